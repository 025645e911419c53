"""What every score and metric does at its edge: check prediction and outcomes, reduce the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import as_array, check_choice, first_rows, n_rows
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses.observations import encode_continuous

REDUCTIONS = ("mean", "none")
_OF_MODELS = {  # what models of several libraries have, and what to pass instead of them
    "predict_distribution": "its predictions, model.predict_distribution(X)",
    "predict_survival_function": "its curves, Predictive.from_survival(times, curves), or give the model and "
    "data to leaderboard",
    "predict_proba": "its probabilities, Predictive.from_sklearn(model, X)",
    "predict": "distributions, such as Predictive.from_scipy(norm(model.predict(X), sd)), or give the model "
    "and data to leaderboard",
}


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
    for method, remedy in _OF_MODELS.items():
        if hasattr(pred, method):
            raise InvalidTypeError(
                f"{name} must be a Predictive, got the model {type(pred).__name__}; pass {remedy}"
            )
    raise InvalidTypeError(
        f"{name} must be a Predictive, got {type(pred).__name__}; wrap probabilities with "
        "Predictive.from_proba, cumulative ones with from_cdf, survival curves with from_survival"
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
    if isinstance(y, np.ndarray):
        as_array(y, "y")  # which refuses structured ones
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


def read_chunks(
    chunks: Any, what: str = "predictions", *, weighted: bool = True
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield what belongs to outcomes, the outcomes and sample weights (or None) of every chunk, at least one.

    Parameters
    ----------
    chunks : iterable, or a function that returns one
    what : str
        The name of what comes before the outcomes.
    weighted : bool
        Whether a chunk may be a triple with sample weights.
    """
    source, parts = chunks() if callable(chunks) else chunks, f"({what}, y)"
    if not isinstance(source, Iterable) or isinstance(source, str | dict):
        raise InvalidTypeError(
            f"chunks must give pairs {parts}, got {type(source).__name__}; pass a list or a function"
        )
    number, triple = -1, ", or a triple with sample weights" if weighted else ""
    for number, chunk in enumerate(source):
        if not isinstance(chunk, (tuple, list)) or len(chunk) not in ((2, 3) if weighted else (2,)):
            raise InvalidTypeError(
                f"every chunk must be a pair {parts}{triple}, got {type(chunk).__name__} in chunk {number}; "
                "yield both"
            )
        yield chunk[0], chunk[1], chunk[2] if len(chunk) == 3 else None
    if number < 0:
        raise InvalidInputError(
            f"chunks must yield at least one pair {parts}, got none; check the source of the chunks"
        )
