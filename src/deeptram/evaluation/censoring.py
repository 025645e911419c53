r"""The distribution of the censoring times, and weights that make up for censored rows.

With :math:`G(t-) = P(C \ge t)`, an event seen at t stands for :math:`1 / G(t-)` rows, of which the others
were censored before (inverse probability of censoring weights, IPCW).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deeptram._validation import first_rows
from deeptram.errors import UnsupportedError
from deeptram.responses.observations import Observations

Floats = npt.NDArray[np.float64]


def censoring_weights(seen: Observations) -> Floats:
    r"""Return :math:`\delta_i / \hat G(t_i-)`, shape (n,), with the Kaplan-Meier estimate of G.

    Events at a time come before censorings at that time. The weights sum to n minus what the estimate of
    the events' distribution leaves beyond the last event.

    Parameters
    ----------
    seen : Observations
        Exact and right-censored values, without left truncation.

    Examples
    --------
    >>> seen = Observations(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, np.inf, 3.0, 4.0]))
    >>> censoring_weights(seen)
    array([1. , 0. , 1.5, 1.5])
    """
    event = seen.exact
    other = ~(event | seen.right_censored) | seen.truncated
    if other.any():
        raise UnsupportedError(
            "weights for censoring need exact and right-censored outcomes without left truncation, got "
            f"others in {first_rows(other)}; leave these rows out of the calibration"
        )
    times, place = np.unique(seen.lower, return_inverse=True)
    events = np.bincount(place, event, len(times))
    censored = np.bincount(place, ~event, len(times))
    at_risk = len(seen) - np.concatenate([[0.0], np.cumsum(events + censored)[:-1]]) - events
    with np.errstate(invalid="ignore"):
        steps = np.where(censored > 0, 1 - censored / at_risk, 1.0)
    before = np.concatenate([[1.0], np.cumprod(steps)[:-1]])  # P(C >= t)
    return np.where(event, 1 / np.where(event, before[place], 1.0), 0.0)
