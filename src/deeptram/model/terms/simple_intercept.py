"""SI: a baseline transformation that does not depend on the data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SI:
    r"""Simple intercept, :math:`h(y) = a(y)'\vartheta` (Section 2.3 of the paper).

    Parameters
    ----------
    strata : str, optional
        A column whose levels each get their own baseline, R's ``y | 0 + s ~ x``.

    Examples
    --------
    >>> SI(strata="centre")
    SI(strata='centre')
    """

    strata: str | None = None
