"""Numbers in text: the same digits, intervals and minus sign in figures, tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


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
