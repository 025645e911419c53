"""What numbers say, as sentences: the same words for the paper's studies and for a model of one's own."""

from __future__ import annotations

import math

from deeptram.plots import wording


def slope_sentence(who: str, slope: float, lower: float, upper: float) -> str:
    """Return what a calibration slope says about confidence.

    Examples
    --------
    >>> slope_sentence("CI", 1.3, 1.1, 1.5)
    'CI is under-confident: its predictions are too timid (calibration slope 1.30, 1.10 to 1.50; ideal: 1).'
    >>> slope_sentence("CI", 1.02, 0.95, 1.1)
    'CI is neither over- nor under-confident on these rows (calibration slope 1.02, 0.95 to 1.10).'
    """
    limits = wording.interval(lower, upper, 2)
    shown = f"calibration slope {wording.decimal(slope, 2)}" + (f", {limits}" if limits else "")
    if not math.isfinite(slope):
        return f"{who}: these rows do not settle the calibration slope."
    if lower > 1:
        return f"{who} is under-confident: its predictions are too timid ({shown}; ideal: 1)."
    if upper < 1:
        return f"{who} is over-confident: its predictions are too extreme ({shown}; ideal: 1)."
    if not limits:
        side = "timid" if slope > 1 else "extreme"
        return f"{who} makes predictions that are a little too {side} ({shown}; ideal: 1)."
    return f"{who} is neither over- nor under-confident on these rows ({shown})."


def large_sentence(who: str, citl: float, lower: float, upper: float) -> str:
    """Return what calibration in the large says about the level of predictions.

    Examples
    --------
    >>> large_sentence("It", 0.4, 0.2, 0.6)
    'It predicts too low: outcomes are larger (calibration in the large 0.40, 0.20 to 0.60; ideal: 0).'
    """
    limits = wording.interval(lower, upper, 2)
    shown = f"calibration in the large {wording.decimal(citl, 2)}" + (f", {limits}" if limits else "")
    if lower > 0:
        return f"{who} predicts too low: outcomes are larger ({shown}; ideal: 0)."
    if upper < 0:
        return f"{who} predicts too high: outcomes are smaller ({shown}; ideal: 0)."
    return f"{who} predicts neither too high nor too low on average ({shown})."


def gain_words(difference: float, lower: float, upper: float, *, smaller_is_better: bool = True) -> str:
    """Return whether a difference is for the better, with its size.

    Examples
    --------
    >>> gain_words(-0.058, -0.075, -0.041)
    'better by 0.0580 (0.0410 to 0.0750)'
    >>> gain_words(0.001, -0.002, 0.004)
    'not clearly different (0.0010, −0.0020 to 0.0040)'
    """
    if math.isnan(difference):
        return "not comparable"
    if not math.isnan(lower) and lower <= 0 <= upper:
        return f"not clearly different ({wording.decimal(difference)}, {wording.interval(lower, upper)})"
    better = (difference < 0) == smaller_is_better
    least, most = sorted([abs(lower), abs(upper)])
    return f"{'better' if better else 'worse'} by {wording.estimate(abs(difference), least, most)}"
