"""A trained member as plain values, which can travel between processes and to disk."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._schema import fields, flag, integer, number
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import FitSummary, keep_fit, summarise
from deeptram.estimators.persistence import HISTORY, arrays_of, rebuild, split_arrays
from deeptram.estimators.saved_format import NETWORKS, SEED, measured
from deeptram.fitting.deep.task import DeepFit, DeepTask
from deeptram.model.persistence import JSON_NAME, Tensors, plain, unplain

Array = NDArray[np.float64]


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
    loglik: float
    shift_vcov: Array | None

    @classmethod
    def of(cls, task: DeepTask, fit: DeepFit) -> MemberFit:
        """Return a trained member as plain values, with what the training data say about it."""
        summary = summarise(task, fit.model)
        return cls(
            fit.seed,
            fit.model.to_dict(),
            arrays_of(fit.model),
            fit.history,
            fit.best_epoch,
            fit.n_epochs,
            fit.seconds,
            fit.interrupted,
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
        fit = DeepFit(
            rebuild(member, self.model, self.weights),
            self.history,
            self.best_epoch,
            self.seconds,
            self.n_epochs,
            self.seed,
            interrupted=self.interrupted,
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
        given = {**record, "loglik": float(unplain(record["loglik"]))}
        return cls(weights=weights, history=history, shift_vcov=shift_vcov, **given)


_MEMBER = fields(
    {
        "seed": SEED,
        "model": NETWORKS,
        **dict.fromkeys(("best_epoch", "n_epochs"), integer()),
        "seconds": number(0),
        "interrupted": flag,
        "loglik": measured,
    }
)
