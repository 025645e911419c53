"""Members of any origin: fitted models, folders of saved ones, other software's classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.utils.validation import check_is_fitted

from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.estimators.base import BaseTram
from deeptram.model.deep import DeepModel, row_parameters_of
from deeptram.predictive import Predictive


def check_member(member: Any, number: int) -> Any:
    """Return a member if it can predict distributions, else say what is missing.

    Parameters
    ----------
    member : object
    number : int
        Its position, for the message.
    """
    if isinstance(member, BaseTram):
        check_is_fitted(member, "model_")
        return member
    if not any(callable(getattr(member, name, None)) for name in ("predict_distribution", "predict_proba")):
        raise InvalidTypeError(
            "members must be fitted models with predict_distribution or predict_proba, or paths of saved "
            f"ones, got {type(member).__name__} at position {number}; wrap it in a class with "
            "predict_distribution(X)"
        )
    return member


def predict_one(member: Any, X: Any) -> Predictive:
    """Return the predictive distributions of one member.

    Parameters
    ----------
    member : object
        With ``predict_distribution``, or ``predict_proba`` and ``classes_``.
    X : data
    """
    if callable(getattr(member, "predict_distribution", None)):
        predictive = member.predict_distribution(X)
        if not isinstance(predictive, Predictive):
            raise InvalidTypeError(
                f"predict_distribution of {type(member).__name__} must return a Predictive, got "
                f"{type(predictive).__name__}; build it with Predictive.from_proba, from_cdf, ..."
            )
        return predictive
    return Predictive.from_sklearn(member, X)


def predict_all(members: Sequence[Any], X: Any) -> list[Predictive]:
    """Return the predictive distributions of all members; deep ones read the inputs once.

    Parameters
    ----------
    members : sequence of M fitted models
    X : data
    """
    if len(members) == 0:
        raise InvalidInputError("an ensemble needs at least one member, got none; fit it first")
    first = members[0]
    deep = all(
        isinstance(member, BaseTram)
        and isinstance(member.model_, DeepModel)
        and member.design_ is first.design_
        for member in members
    )
    if not deep:
        return [predict_one(member, X) for member in members]
    X = first._check_X(X, first.spec_, reset=False)
    matrices = first.design_.matrices(X, estimator=type(first).__name__)
    parameters = row_parameters_of([member.model_ for member in members], X, matrices)
    return [
        member.outcome_.predictive(each.numpy(), member.latent_)
        for member, each in zip(members, parameters, strict=True)
    ]
