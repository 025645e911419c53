"""Row parameters from trained networks: piece by piece, without gradients, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError
from deeptram.inputs.batches import spans
from deeptram.model.design import Matrices
from deeptram.model.parts import ComplexIntercept, SimpleIntercept, as_float64
from deeptram.predictive.parameters import RowParameters

if TYPE_CHECKING:
    from deeptram.model.deep import DeepModel


def row_parameters_of(models: Sequence[DeepModel], X: Any, matrices: Matrices) -> list[RowParameters]:
    """Return the row parameters of several models for the same rows, reading the inputs once.

    Parameters
    ----------
    models : sequence of DeepModel
        Members of one ensemble; inputs are shared where their encodings agree.
    X : DataFrame, 2-d array or dict
    matrices : Matrices
        The same rows, encoded by the members' common design.
    """
    n = len(matrices.x)
    groups: list[list[int]] = []
    keys = [[one.to_dict() for one in model.inputs] for model in models]
    for m, model in enumerate(models):
        for group in groups:
            other = models[group[0]]
            if keys[group[0]] == keys[m] and (other.dtype, other.device) == (model.dtype, model.device):
                group.append(m)
                break
        else:
            groups.append([m])
    results: dict[int, RowParameters] = {}
    for group in groups:
        members = [models[m] for m in group]
        results.update(zip(group, _shared_rows(members, X, matrices, n), strict=True))
    return [results[m] for m in range(len(models))]


def _shared_rows(models: Sequence[DeepModel], X: Any, matrices: Matrices, n: int) -> list[RowParameters]:
    first = models[0]
    sources = [one.sources(X, first.dtype, first.device) for one in first.inputs]
    flat = [source for several in sources for source in several]
    check_count(flat, n)
    with ExitStack() as modes:
        for model in models:
            modes.enter_context(evaluating(model))
        collected = [_Collector(model, n) for model in models]
        for start, stop in spans(n, flat) if flat else ():
            nets = [tuple(source.span(start, stop) for source in several) for several in sources]
            for collector in collected:
                collector.add(nets, start, stop)
        return [collector.finish(matrices) for collector in collected]


class _Collector:
    """Runs one model's networks piece by piece and keeps the results in float64."""

    def __init__(self, model: DeepModel, n: int) -> None:
        self.model, self.n = model, n
        d = model.outcome.basis.n_coef
        rows = n if isinstance(model.intercept, ComplexIntercept) else 0
        m = 0 if model.is_nominal else len(model.outcome.basis.monotone_differences)
        self.theta, self.log_increments = np.empty((rows, d)), np.empty((rows, m))
        self.shift = np.zeros((n, model.n_outputs))
        self._constant = model._moved_constant()
        model.use_channels_last()

    def add(self, nets: list[tuple[Tensor, ...]], start: int, stop: int) -> None:
        model, nets = self.model, list(nets)
        if isinstance(model.intercept, ComplexIntercept):
            theta, log_increments = model._theta_rows(model.intercept(*nets.pop(0)), self._constant)
            self.theta[start:stop], self.log_increments[start:stop] = theta, log_increments
        for shift, inputs in zip(model._complex_shifts(), nets, strict=True):
            self.shift[start:stop] += as_float64(shift(*inputs))

    def finish(self, matrices: Matrices) -> RowParameters:
        model = self.model
        theta, log_increments = self.theta, self.log_increments
        if isinstance(model.intercept, SimpleIntercept):
            theta, log_increments = model._theta_rows(model.intercept.free, self._constant)
            if matrices.strata is not None:
                theta, log_increments = theta[matrices.strata], log_increments[matrices.strata]
        shift = self.shift
        for one in model._complex_shifts():
            shift = shift - as_float64(one.mean)
        bad = ~(np.isfinite(shift).all(axis=1) & np.isfinite(theta).all(axis=1))
        if bad.any():
            raise InvalidInputError(
                f"networks must give finite numbers to predict, got others in {first_rows(bad)}; "
                "check the scale of these rows, or fit the model again"
            )
        linear = matrices.x @ model._slopes()
        if model.is_nominal:
            return RowParameters(theta=theta + shift + linear, shift=np.zeros(self.n))
        log_scale = None if matrices.scale is None else matrices.scale @ model.scale_coef / 2
        return RowParameters(theta, shift[:, 0] + linear, log_scale, log_increments)


class evaluating:
    """Evaluation mode without gradients, then back to what it was.

    Examples
    --------
    >>> model = nn.Linear(1, 1)
    >>> with evaluating(model):
    ...     model.training, torch.is_grad_enabled()
    (False, False)
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._inference = model, torch.inference_mode()

    def __enter__(self) -> None:
        self._training = self._model.training
        self._model.eval()
        self._inference.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inference.__exit__(*error)
        self._model.train(self._training)


def check_count(sources: Sequence[Any], n: int) -> None:
    """Raise unless every source of a network's inputs has n rows.

    Examples
    --------
    >>> check_count([[1, 2]], 2)
    """
    for source in sources:
        if len(source) != n:
            raise InvalidInputError(
                f"every network input must have one entry per row ({n}), got {len(source)}; "
                "pass one image for each row of the table"
            )
