"""Ensembles as one torch module, and models and ensembles as one ONNX graph."""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeptram.errors import InvalidTypeError, MissingDependencyError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.model.module import Inputs, OutcomeModule, read
from deeptram.pooling import Rule, pool
from deeptram.pooling.recalibration import Recalibration

TOLERANCE = 1e-5
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
POOLS = ("transformation", "linear", "log-linear-density")
_CHECKED_ROWS = 5
_OPSET = 17


class PooledModule(nn.Module):
    """What an ensemble predicts, as a module of tensors: its members and its pool.

    Called as ``OutcomeModule``: a dict of tensors gives the pooled probabilities ``(n, K)``, or h of the pool
    at the outcomes ``inputs["y"]``, ``(n,)``; differentiable.

    Parameters
    ----------
    members : sequence of M OutcomeModule
        Of models with the same outcome and inputs.
    weights : array, shape (M,)
    method : str or Rule
    recalibrations : sequence of M Recalibration, optional
    """

    def __init__(
        self,
        members: Sequence[OutcomeModule],
        weights: Any,
        method: str | Rule,
        recalibrations: Sequence[Recalibration] | None = None,
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.shapes = {name: shape for member in members for name, shape in member.shapes.items()}
        self.dtypes = {name: dtype for member in members for name, dtype in member.dtypes.items()}
        self.is_discrete = members[0].is_discrete
        self.weights, self.method, self.recalibrations = np.asarray(weights), method, recalibrations

    @property
    def each(self) -> list[OutcomeModule]:
        """The members."""
        return [member for member in self.members if isinstance(member, OutcomeModule)]

    def forward(self, inputs: Inputs) -> Tensor:
        """Return pooled probabilities ``(n, K)``, or h of the pool at ``inputs["y"]``, ``(n,)``."""
        each = [member.distribution(inputs) for member in self.each]
        if self.recalibrations is not None:
            each = [one.apply(pred) for one, pred in zip(self.recalibrations, each, strict=True)]
        return read(pool(each, method=self.method, weights=self.weights), inputs)

    def inputs(self, X: Any, y: Any = None) -> dict[str, Tensor]:
        """Return the tensors of some rows, as the module takes them; see ``OutcomeModule.inputs``."""
        return {name: one for member in self.each for name, one in member.inputs(X, y).items()}


def module_of(
    members: Sequence[Any], weights: Any, method: str | Rule, recalibrations: Sequence[Recalibration] | None
) -> PooledModule:
    """Return fitted members and their pool as one module; arguments as of ``PooledModule``."""
    for number, member in enumerate(members):
        if not isinstance(member, BaseTram):
            raise UnsupportedError(
                f"the module of an ensemble needs models of deeptram, got {type(member).__name__} as member "
                f"{number}; use predict_distribution(X)"
            )
    return PooledModule([member.module_ for member in members], weights, method, recalibrations)


def export(model: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted model or ensemble as one ONNX graph, all members and the pool in it.

    The graph has one input for each tensor of ``model.module_`` (see there) with any number of rows, and one
    output: ``probability`` ``(n, K)``, or ``h`` ``(n,)`` at the outcomes ``y``. What it computes is compared
    with the model on a few rows in onnxruntime, to 1e-5.

    Parameters
    ----------
    model : Tram, one of its presets, or Ensemble
        Fitted, with or without networks (an exact model with ``Varying`` has no graph).
    path : path
        The file to write, for example ``"model.onnx"``.

    Returns
    -------
    Path

    Examples
    --------
    >>> import tempfile, deeptram as dt
    >>> data = dt.datasets.simulate("ordinal", n=60, seed=1)
    >>> terms = [dt.CS(dt.networks.MLP((4,)), "image"), dt.LS("x_1")]
    >>> model = dt.Polr(terms, training=dt.Training(epochs=1, progress=False)).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dt.export(model, f"{folder}/model.onnx").name
    'model.onnx'
    """
    if not hasattr(type(model), "module_"):
        raise InvalidTypeError(
            f"export needs a fitted deeptram model or ensemble, got {type(model).__name__}; fit one first"
        )
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        raise MissingDependencyError(
            f"export needs onnx, onnxruntime and onnxscript, got no {', '.join(absent)}; "
            "run pip install 'deeptram[export]'"
        )
    path = Path(path)
    graph = Graph(model.module_).eval()
    examples = graph.examples(_CHECKED_ROWS)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad(), _own_softplus():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph,
            tuple(examples),
            os.fspath(path),
            input_names=list(graph.names),
            output_names=["probability" if graph.is_discrete else "h"],
            dynamic_axes={name: {0: "rows"} for name in graph.names},
            opset_version=_OPSET,
            dynamo=False,
        )
    _check(path, graph, model.module_)
    return path


@contextmanager
def _own_softplus() -> Iterator[None]:
    """Let softplus be written in operations that onnxruntime has in float64, too."""
    from torch.onnx.utils import register_custom_op_symbolic, unregister_custom_op_symbolic

    register_custom_op_symbolic("aten::softplus", _softplus, _OPSET)
    try:
        yield
    finally:
        unregister_custom_op_symbolic("aten::softplus", _OPSET)


def _softplus(graph: Any, x: Any, beta: Any, threshold: Any) -> Any:
    """Write log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|))."""
    double = x.type().scalarType() == "Double"
    one = graph.op("Constant", value_t=torch.ones((), dtype=torch.float64 if double else torch.float32))
    small = graph.op("Exp", graph.op("Neg", graph.op("Abs", x)))
    return graph.op("Add", graph.op("Relu", x), graph.op("Log", graph.op("Add", one, small)))


class Graph(nn.Module):
    """A module in operations that ONNX has, called with its tensors one after the other.

    Parameters
    ----------
    module : OutcomeModule or PooledModule
    """

    def __init__(self, module: OutcomeModule | PooledModule) -> None:
        super().__init__()
        self.names, self.dtypes, self.shapes = tuple(module.shapes), module.dtypes, module.shapes
        self.pooled = (
            PooledModule([module], [1.0], "transformation") if isinstance(module, OutcomeModule) else module
        )
        for member in self.pooled.each:
            member.precision = member.model.dtype
        self.is_discrete = module.is_discrete
        self.is_nominal = self.pooled.each[0].model.is_nominal
        allowed = POOLS if self.is_discrete else POOLS[:1]
        if self.pooled.method not in allowed or (self.is_nominal and self.pooled.recalibrations is not None):
            raise UnsupportedError(
                f"a graph can hold the {' or '.join(allowed)} pool here (nominal: not recalibrated), got "
                f"{self.pooled.method!r}; use one of these, or the members one by one"
            )

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return what the module returns."""
        inputs = dict(zip(self.names, tensors, strict=True))
        members, linear = self.pooled.each, self.pooled.method == "linear"
        if self.is_nominal:
            logits = [nn.functional.pad(one.transformation(inputs)[0], (1, 0)) for one in members]
            chances = self._mean([torch.softmax(one, dim=1) for one in logits])
            return chances if linear else torch.softmax(self._mean(logits), dim=1)
        if not self.is_discrete:
            return self._mean(
                [self._moved(m, read(one.distribution(inputs), inputs)) for m, one in enumerate(members)]
            )
        each = [self._moved(m, one.transformation(inputs)[0]) for m, one in enumerate(members)]
        if self.pooled.method == "transformation":
            return self._probabilities(self._mean(each))
        probabilities = [self._probabilities(h) for h in each]
        if linear:
            return self._mean(probabilities)
        return torch.softmax(self._mean([torch.log(one) for one in probabilities]), dim=1)

    def _mean(self, each: list[Tensor]) -> Tensor:
        total = float(self.pooled.weights[0]) * each[0]
        for weight, one in zip(self.pooled.weights[1:], each[1:], strict=True):
            total = total + float(weight) * one
        return total

    def _moved(self, member: int, h: Tensor) -> Tensor:
        """Return the recalibrated h of a member."""
        if self.pooled.recalibrations is None:
            return h
        one = self.pooled.recalibrations[member]
        intercept, slope = (torch.as_tensor(part).to(h.dtype) for part in (one.intercept_, one.slope_))
        return intercept + slope * h if self.is_discrete else intercept[0] + slope[0] * h

    def _probabilities(self, h: Tensor) -> Tensor:
        latent = self.pooled.each[0].model.latent
        normal = latent.name == "normal"  # ONNX knows erf, not its logarithm
        if normal:  # in float32, which is all onnxruntime has of it
            cdf = (1 + torch.erf((h / 2**0.5).float()).to(h.dtype)) / 2
        else:
            cdf = torch.exp(latent.log_cdf_t(h))
        return nn.functional.pad(cdf, (1, 0)).neg() + nn.functional.pad(cdf, (0, 1), value=1.0)

    def examples(self, n: int) -> list[Tensor]:
        """Return n rows of every input, different from each other."""
        return [
            (torch.arange(n * prod(shape)) % 7 / 7).reshape(n, *shape).to(self.dtypes[name])
            for name, shape in self.shapes.items()
        ]


def _check(path: Path, graph: Graph, module: nn.Module) -> None:
    """Raise unless onnxruntime computes from the file what torch computes from the module."""
    import onnxruntime

    session = onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
    for n in (_CHECKED_ROWS, 1, 3):
        tensors = graph.examples(n)
        feed = {name: tensor.numpy() for name, tensor in zip(graph.names, tensors, strict=True)}
        known = {one.name for one in session.get_inputs()}
        (got,) = session.run(None, {name: value for name, value in feed.items() if name in known})
        with torch.no_grad():
            expected = module(dict(zip(graph.names, tensors, strict=True))).numpy()
        if not np.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE):
            raise UnsupportedError(
                f"the exported graph must compute what the model computes, got a difference of "
                f"{np.abs(got - expected).max():.2g}; a layer of the network does not survive the export"
            )
