"""What every score and metric does at its edge: check prediction and outcomes, reduce the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import check_choice, first_rows, n_rows
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses.observations import encode_continuous

REDUCTIONS = ("mean", "none")


def check_predictive(pred: Any, name: str = "pred") -> Predictive:
    """Return ``pred`` if it is a ``Predictive``; arrays are refused, because they could mean two things.

    Examples
    --------
    >>> check_predictive([[0.2, 0.8]])
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidTypeError: pred must be a Predictive, got list; wrap probabilities with ...
    """
    if isinstance(pred, Predictive):
        return pred
    if hasattr(pred, "predict_distribution"):
        raise InvalidTypeError(
            f"{name} must be a Predictive, got the model {type(pred).__name__}; pass its predictions, "
            "model.predict_distribution(X)"
        )
    raise InvalidTypeError(
        f"{name} must be a Predictive, got {type(pred).__name__}; wrap probabilities with "
        "Predictive.from_proba or cumulative ones with Predictive.from_cdf"
    )


def check_discrete(pred: Any, what: str, name: str = "pred") -> DiscretePredictive:
    """Return ``pred`` if it is a distribution on levels, else say that ``what`` has no meaning for it."""
    if isinstance(check_predictive(pred, name), DiscretePredictive):
        return pred  # type: ignore[no-any-return]
    raise UnsupportedError(
        f"{what} needs a distribution on levels (binary, ordinal, nominal), got a {type(pred).__name__}; "
        "use nll or crps for outcomes on the real line"
    )


def check_rows(y: Any, pred: Predictive) -> None:
    """Raise unless there is one outcome per row of the prediction."""
    single = not hasattr(y, "__len__") or getattr(y, "shape", None) == ()
    n = None if single else n_rows(y)
    if n != len(pred):
        got = "a single value" if n is None else f"{n} values"
        raise InvalidInputError(
            f"y must have one value per row, got {got} for {len(pred)} rows; "
            "pass the outcomes that belong to these predictions"
        )


def codes_of(y: Any, pred: DiscretePredictive) -> Tensor:
    """Return the positions of the outcomes among ``pred.levels``, shape (n,), int64."""
    check_rows(y, pred)
    return pred.encode(y)


def exact_outcomes(y: Any, what: str, instead: str) -> npt.NDArray[np.float64]:
    """Return outcomes that are all known, shape (n,), or say what to use instead where some are censored.

    Examples
    --------
    >>> exact_outcomes([1, 2], "coverage", "d_calibration")
    array([1., 2.])
    """
    seen = encode_continuous(y)
    if not seen.exact.all():
        raise UnsupportedError(
            f"{what} needs exact outcomes, got censored ones in {first_rows(~seen.exact)}; use {instead}"
        )
    return seen.lower


def reduce_rows(values: Any, reduction: str, *, numpy: bool) -> Any:
    """Return the mean (default) or all rows; NumPy out when the prediction was made from NumPy.

    Nothing is left out: one infinite row makes the mean infinite.

    Examples
    --------
    >>> import torch
    >>> reduce_rows(torch.tensor([1.0, torch.inf]), "mean", numpy=True)
    inf
    """
    check_choice(reduction, REDUCTIONS, "reduction")
    values = torch.as_tensor(values)
    if reduction == "none":
        return as_numpy(values) if numpy else values
    mean = values.mean()
    return float(mean) if numpy else mean
