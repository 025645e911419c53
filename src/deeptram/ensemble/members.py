"""What a member is: a trained model as plain values, or a fitted model of any kind."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from deeptram._schema import fields, flag, integer, number
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import FitSummary, keep_fit, summarise_fit
from deeptram.estimators.persistence import HISTORY, split_arrays
from deeptram.estimators.saved_format import NETWORKS, SEED, measured
from deeptram.fitting.deep.task import DeepFit, DeepTask
from deeptram.model.deep import DeepModel, row_parameters_of
from deeptram.model.design import Spec
from deeptram.model.persistence import JSON_NAME, Tensors, plain, unplain
from deeptram.pooling import Rule, get_rule
from deeptram.predictive import Predictive

Array = NDArray[np.float64]


def check_model(model: Any, *, deep: bool = True) -> BaseTram:
    """Return a fresh copy of the model that members are to be made of.

    Parameters
    ----------
    model : Tram or one of its presets
    deep : bool
        Whether it needs networks.
    """
    if not isinstance(model, BaseTram):
        raise InvalidTypeError(
            f"model must be a dt.Tram or one of its presets, got {type(model).__name__}; "
            "for fitted models of any kind use Ensemble.from_members([...])"
        )
    template: BaseTram = clone(model)
    if deep and not Spec.of(template.terms).is_deep:
        raise UnsupportedError(
            "members of an ensemble differ in their networks' initial weights, got a model without networks, "
            "whose exact fit is the same for every member; use Ensemble.from_folds(model, X, y, cv=5), or "
            "cv=dt.Bags(10) for bootstrap samples"
        )
    return template


AUTO = "auto"  # the pool is chosen on validation data


def check_pooling(pooling: Any) -> None:
    """Raise unless this is "auto", the name of a pool, or a rule (``QuasiArithmetic`` or your own).

    Examples
    --------
    >>> check_pooling("linear")
    """
    if not (isinstance(pooling, str) and pooling == AUTO):
        get_rule(pooling, "pooling")


def meant_pool(pooling: str | Rule, kind: str | None) -> str | Rule:
    """Return the pool that is meant for a kind of outcome: h of a nominal outcome are its logits.

    Their mean does not depend on the order in which the classes are written.

    Examples
    --------
    >>> meant_pool("transformation", "nominal"), meant_pool("transformation", "ordinal")
    ('log-linear-density', 'transformation')
    """
    return "log-linear-density" if pooling == "transformation" and kind == "nominal" else pooling


# -- fitted models of any kind -----------------------------------------------------------------------


def gather_members(members: Any) -> list[Any]:
    """Return fitted models of any kind; paths of saved ones are loaded.

    Parameters
    ----------
    members : sequence
        Fitted deeptram models, anything with ``predict_distribution`` or
        ``predict_proba`` (and ``classes_``), or paths of saved models.
    """
    from deeptram.ensemble.persistence import load  # which needs Ensemble

    if isinstance(members, (str, bytes)) or not hasattr(members, "__iter__"):
        raise InvalidTypeError(
            f"members must be a sequence of fitted models, got {type(members).__name__}; put them into a list"
        )
    loaded = [load(member) if isinstance(member, (str, os.PathLike)) else member for member in members]
    if not loaded:
        raise InvalidInputError("members must hold at least one fitted model, got none; pass some")
    return [_check_member(member, number) for number, member in enumerate(loaded)]


def _check_member(member: Any, number: int) -> Any:
    """Return a member if it can predict distributions, else say what is missing."""
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
    X = first.check_X(X, first.spec_, reset=False)
    matrices = first.design_.matrices(X, estimator=type(first).__name__)
    parameters = row_parameters_of([member.model_ for member in members], X, matrices)
    return [
        member.outcome_.predictive(each.numpy(), member.latent_)
        for member, each in zip(members, parameters, strict=True)
    ]


# -- trained members ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MemberFit:
    """What training a member gave.

    Attributes
    ----------
    seed : int
        The member's seed.
    model : dict
        ``DeepModel.to_dict()``.
    weights : dict of arrays
        Parameters and buffers.
    history : DataFrame
    best_epoch, n_epochs : int
    seconds : float
    interrupted : bool
        Whether training was ended early by Ctrl-C.
    null_loss : float
        See ``DeepFit``.
    loglik : float
    shift_vcov : ndarray or None
    """

    seed: int
    model: Mapping[str, Any]
    weights: Tensors
    history: pd.DataFrame
    best_epoch: int
    n_epochs: int
    seconds: float
    interrupted: bool
    null_loss: float
    loglik: float
    shift_vcov: Array | None

    @classmethod
    def of(cls, task: DeepTask, fit: DeepFit) -> MemberFit:
        """Return a trained member as plain values, with what the training data say about it."""
        summary = summarise_fit(task, fit.model)
        return cls(
            fit.seed,
            fit.model.to_dict(),
            fit.model.arrays(),
            fit.history,
            fit.best_epoch,
            fit.n_epochs,
            fit.seconds,
            fit.interrupted,
            fit.null_loss,
            summary.loglik,
            summary.shift_vcov,
        )

    def restore(self, template: BaseTram) -> BaseTram:
        """Return the member as a fitted estimator.

        Parameters
        ----------
        template : BaseTram
            The prepared estimator all members come from.
        """
        member: BaseTram = copy.copy(template)
        member.random_state = self.seed
        model = DeepModel.from_dict(self.model, member.spec_, member.outcome_, member.latent_, member.design_)
        model.load_arrays(self.weights)
        fit = DeepFit(
            model,
            self.history,
            self.best_epoch,
            self.seconds,
            self.n_epochs,
            self.seed,
            interrupted=self.interrupted,
            null_loss=self.null_loss,
        )
        keep_fit(member, fit, FitSummary(self.loglik, self.shift_vcov))
        return member

    def to_record(self) -> tuple[dict[str, Any], Tensors]:
        """Return JSON-able values and arrays."""
        record = {
            "seed": self.seed,
            "model": dict(self.model),
            "best_epoch": self.best_epoch,
            "n_epochs": self.n_epochs,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "null_loss": plain(self.null_loss),
            "loglik": plain(self.loglik),
        }
        tensors = {f"model.{name}": value for name, value in self.weights.items()}
        tensors["history"] = self.history[HISTORY].to_numpy(dtype=float)
        if self.shift_vcov is not None:
            tensors["shift_vcov"] = self.shift_vcov
        return record, tensors

    @classmethod
    def from_record(cls, record: Any, tensors: Tensors) -> MemberFit:
        """Read a member back from :meth:`to_record`; what does not fit is a ``FileFormatError``."""
        _MEMBER(record, f"{JSON_NAME}: member")
        weights, history, shift_vcov = split_arrays(tensors)
        given = {**record, **{name: float(unplain(record[name])) for name in ("loglik", "null_loss")}}
        return cls(weights=weights, history=history, shift_vcov=shift_vcov, **given)


_MEMBER = fields(
    {
        "seed": SEED,
        "model": NETWORKS,
        **dict.fromkeys(("best_epoch", "n_epochs"), integer()),
        "seconds": number(0),
        "interrupted": flag,
        **dict.fromkeys(("loglik", "null_loss"), measured),
    }
)
