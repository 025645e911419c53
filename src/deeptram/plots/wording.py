"""Numbers in text, and what they say as sentences: the same digits, intervals and words everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def decimal(value: float, digits: int = 4, *, sign: bool = False) -> str:
    """Return a number with a fixed count of decimals and a real minus sign.

    Parameters
    ----------
    value : float
    digits : int
        Decimals.
    sign : bool
        Whether positive numbers have a plus.

    Examples
    --------
    >>> decimal(-0.12345), decimal(2.0, 1, sign=True), decimal(float("inf")), decimal(float("nan"))
    ('−0.1235', '+2.0', '∞', '–')
    """
    if math.isnan(value):
        return "–"
    text = "∞" if math.isinf(value) else f"{abs(value):.{digits}f}"
    negative = value < 0 and (math.isinf(value) or float(text) != 0)
    return ("−" if negative else "+" if sign else "") + text


def p_value(value: float) -> str:
    """Return a p value in words.

    Examples
    --------
    >>> p_value(0.0421), p_value(0.0002)
    ('p 0.042', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p {decimal(value, 3)}"


def short(value: Any, digits: int = 3) -> str:
    """Return a value in as few characters as it needs, three significant digits of a number.

    Examples
    --------
    >>> short(1234.5), short(0.01234), short(-2.0), short("low")
    ('1,230', '0.0123', '−2', 'low')
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return str(value)
    if not math.isfinite(value):
        return decimal(value)
    rounded = float(f"{value:.{digits}g}")
    text = f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"
    return text.replace("-", "−")


def interval(lower: float, upper: float, digits: int = 4) -> str:
    """Return limits in words; nothing where there are none.

    Examples
    --------
    >>> interval(-0.1, 0.2, 2), interval(float("nan"), float("nan"))
    ('−0.10 to 0.20', '')
    """
    return "" if math.isnan(lower) else f"{decimal(lower, digits)} to {decimal(upper, digits)}"


def estimate(value: float, lower: float, upper: float, digits: int = 4) -> str:
    """Return a number and its interval in brackets, where there is one.

    Examples
    --------
    >>> estimate(0.28701, 0.2839, 0.2904), estimate(0.5, float("nan"), float("nan"), 1)
    ('0.2870 (0.2839 to 0.2904)', '0.5')
    """
    limits = interval(lower, upper, digits)
    return f"{decimal(value, digits)} ({limits})" if limits else decimal(value, digits)


def joined(names: Sequence[Any]) -> str:
    """Return names as a sentence has them.

    Examples
    --------
    >>> joined(["a"]), joined(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def slope_sentence(who: str, slope: float, lower: float, upper: float) -> str:
    """Return what a calibration slope says about confidence.

    Examples
    --------
    >>> slope_sentence("CI", 1.3, 1.1, 1.5)
    'CI is under-confident: its predictions are too timid (calibration slope 1.30, 1.10 to 1.50; ideal: 1).'
    >>> slope_sentence("CI", 1.02, 0.95, 1.1)
    'CI: these rows show neither over- nor under-confidence (calibration slope 1.02, 0.95 to 1.10; ideal: 1).'
    """
    limits = interval(lower, upper, 2)
    shown = f"calibration slope {decimal(slope, 2)}" + (f", {limits}" if limits else "")
    if not math.isfinite(slope):
        return f"{who}: these rows do not settle the calibration slope."
    if lower > 1:
        return f"{who} is under-confident: its predictions are too timid ({shown}; ideal: 1)."
    if upper < 1:
        return f"{who} is over-confident: its predictions are too extreme ({shown}; ideal: 1)."
    if not limits:
        side = "timid" if slope > 1 else "extreme"
        return f"{who} makes predictions that are a little too {side} ({shown}; ideal: 1)."
    return f"{who}: these rows show neither over- nor under-confidence ({shown}; ideal: 1)."


def large_sentence(who: str, citl: float, lower: float, upper: float) -> str:
    """Return what calibration in the large says about the level of predictions.

    Examples
    --------
    >>> large_sentence("It", 0.4, 0.2, 0.6)
    'It predicts too low: outcomes are larger (calibration in the large 0.40, 0.20 to 0.60; ideal: 0).'
    >>> large_sentence("It", float("nan"), float("nan"), float("nan"))
    'These rows do not settle whether predictions are too high or too low on average.'
    """
    if not math.isfinite(citl):
        return "These rows do not settle whether predictions are too high or too low on average."
    limits = interval(lower, upper, 2)
    shown = f"calibration in the large {decimal(citl, 2)}" + (f", {limits}" if limits else "")
    if lower > 0:
        return f"{who} predicts too low: outcomes are larger ({shown}; ideal: 0)."
    if upper < 0:
        return f"{who} predicts too high: outcomes are smaller ({shown}; ideal: 0)."
    if not limits:
        side = "low" if citl > 0 else "high"
        return f"{who} predicts too {side} on average on these rows ({shown}; ideal: 0)."
    level = "neither too high nor too low on average as far as these rows show"
    return f"{who} predicts {level} ({shown}; ideal: 0)."


def sign_words(sign: str) -> str:
    """Return what a positive coefficient means, without the formula that may stand before it.

    Examples
    --------
    >>> sign_words("F_Z(h(y) - x'beta): a positive coefficient means a larger outcome")
    'a positive coefficient means a larger outcome'
    """
    return sign.rpartition(": ")[2]


def gain_words(
    difference: float, lower: float, upper: float, *, other: str, smaller_is_better: bool = True
) -> str:
    """Return whether a difference to another is for the better, with its size.

    Examples
    --------
    >>> gain_words(-0.058, -0.075, -0.041, other="the mean")
    'better by 0.0580 (0.0410 to 0.0750) than the mean'
    >>> gain_words(0.001, -0.002, 0.004, other="the mean")
    'not clearly different (0.0010, −0.0020 to 0.0040) from the mean'
    """
    if math.isnan(difference):
        return f"not comparable with {other}"
    if not math.isnan(lower) and lower <= 0 <= upper:
        return f"not clearly different ({decimal(difference)}, {interval(lower, upper)}) from {other}"
    better = (difference < 0) == smaller_is_better
    least, most = sorted([abs(lower), abs(upper)])
    return f"{'better' if better else 'worse'} by {estimate(abs(difference), least, most)} than {other}"


def coefficient_words(
    subject: str,
    coef: float,
    lower: float,
    upper: float,
    latent: str = "logistic",
    event: str = "a larger outcome",
    given: str = "",
) -> str:
    """Return a coefficient as a sentence.

    Parameters
    ----------
    subject : str
        What changes.
    coef, lower, upper : float
    latent : str
        Name of F_Z.
    event : str
        Whose odds these are.
    given : str
        What else is held, said after the number.

    Examples
    --------
    >>> coefficient_words("One unit more of age", 0.6931, 0.4055, 1.0986)
    'One unit more of age multiplies the odds of a larger outcome by 2.00 (1.50 to 3.00).'
    >>> coefficient_words("One unit more of age", 0.6931, 0.4055, 1.0986, "minimum-extreme-value")
    'One unit more of age multiplies the hazard by 0.50 (0.33 to 0.67).'
    >>> coefficient_words("One unit more of hue", 26.6, 17.3, 35.8)
    'One unit more of hue multiplies the odds of a larger outcome by 3.6·10¹¹ (3.3·10⁷ to 3.5·10¹⁵).'
    """
    if not math.isfinite(coef):
        return f"{subject}: no finite coefficient (left out, or the data are separated)."
    none = "; the interval includes no effect." if lower <= 0 <= upper else "."
    if latent == "normal":
        value = estimate(coef, lower, upper, 2)
        return (
            f"{subject} moves the outcome by {value} on the scale of a standard normal variable{given}{none}"
        )
    sign = -1.0 if latent == "minimum-extreme-value" else 1.0
    ratio, *ends = (float(np.exp(sign * value)) for value in (coef, lower, upper))
    what = {
        "logistic": f"the odds of {event}",
        "minimum-extreme-value": "the hazard",
        "maximum-extreme-value": "the reverse-time hazard",
    }.get(latent, "exp(-h)")
    limits = f" ({_ratio(min(ends))} to {_ratio(max(ends))})" if all(map(math.isfinite, ends)) else ""
    return f"{subject} multiplies {what} by {_ratio(ratio)}{limits}{given}{none}"


def _ratio(value: float) -> str:
    """Return a ratio with two decimals, one that they do not suit by a power of ten."""
    if value == 0 or 0.01 <= value < 1000 or not math.isfinite(value):
        return decimal(value, 2)
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}·10" + str(int(power)).translate(_RAISED)
