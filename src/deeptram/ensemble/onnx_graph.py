"""Ensembles as one torch module, and models and ensembles as one ONNX graph."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeptram._files import versions
from deeptram._schema import plain
from deeptram.errors import InvalidInputError, InvalidTypeError, MissingDependencyError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.latent import Latent
from deeptram.model.module import Inputs, OutcomeModule, quantiles_of, read
from deeptram.pooling import Rule, pool
from deeptram.pooling.recalibration import Recalibration
from deeptram.predictive import Predictive

TOLERANCE = 1e-5
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
POOLS = ("transformation", "linear", "log-linear-density")
_CHECKED_ROWS = 5
_OPSET = 17


class PooledModule(nn.Module):
    """What an ensemble predicts, as a module of tensors: its members and its pool.

    Called as ``OutcomeModule``: a dict of tensors gives the pooled probabilities ``(n, K)``, or h of the pool
    at the outcomes ``inputs["y"]``, ``(n,)``; differentiable. ``torch.export`` and ``torch.compile`` see
    the pools named in ``plain_pools`` as plain operations. Members share the inputs of a name, unless they
    have learned to make them in different ways (knots of a spline, say): then the second member's is
    ``"bs(age, df=4)[1] (member 1)"``, counted from zero.

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
        self.is_discrete = members[0].is_discrete
        _check_same_outcome(members)
        self.meanings: dict[str, Any] = {}
        self.own_names: list[dict[str, str]] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, torch.dtype] = {}
        for m, member in enumerate(members):
            other = {one for one, what in member.meanings.items() if self.meanings.get(one, what) != what}
            names = {one: f"{one} (member {m})" if one in other else one for one in member.shapes}
            self.meanings |= {names[one]: what for one, what in member.meanings.items()}
            self.shapes |= {names[one]: shape for one, shape in member.shapes.items()}
            self.dtypes |= {names[one]: dtype for one, dtype in member.dtypes.items()}
            self.own_names.append(names)
        self.weights, self.method, self.recalibrations = np.asarray(weights), method, recalibrations
        self._shares = {m: float(weight) for m, weight in enumerate(self.weights) if weight > 0}

    @property
    def each(self) -> list[OutcomeModule]:
        """The members."""
        return [member for member in self.members if isinstance(member, OutcomeModule)]

    @property
    def is_nominal(self) -> bool:
        """Whether the outcome is classes without an order."""
        return self.each[0].model.is_nominal

    @property
    def latents(self) -> list[Latent]:
        """F_Z of each member."""
        return [member.model.latent for member in self.each]

    @property
    def plain_pools(self) -> tuple[str, ...]:
        """The pools of these members that ``plain`` can compute."""
        latents, moves = self.latents, self.recalibrations or ()
        if moves and (self.is_nominal or any(a.latent_ != b for a, b in zip(moves, latents, strict=True))):
            return ()
        allowed = POOLS if self.is_discrete else POOLS[:1]
        return allowed if self.is_nominal or all(one == latents[0] for one in latents) else allowed[1:]

    def forward(self, inputs: Inputs) -> Tensor:
        """Return pooled probabilities ``(n, K)``, or h of the pool at ``inputs["y"]``, ``(n,)``."""
        if torch.compiler.is_compiling() and self.method in self.plain_pools:
            return self.plain(inputs)
        return read(self.distribution(inputs), inputs)

    def distribution(self, inputs: Inputs) -> Predictive:
        """Return the pooled distributions of the rows, of tensors with gradients, in float64."""
        each = [member.distribution(self.of_member(m, inputs)) for m, member in enumerate(self.each)]
        if self.recalibrations is not None:
            each = [one.apply(pred) for one, pred in zip(self.recalibrations, each, strict=True)]
        return pool(each, method=self.method, weights=self.weights)

    def quantile(self, inputs: Inputs, probs: Any) -> Tensor:
        """Return quantiles ``(n, len(probs))`` of the pool; see ``OutcomeModule.quantile``."""
        return quantiles_of(self.distribution(inputs), probs)

    def plain(self, inputs: Inputs) -> Tensor:
        """Return what ``forward`` returns in operations that can be traced: none depends on a value.

        Certain members (h infinite in some and not in others), of which ``pool`` takes care, are not provided
        for.
        """
        own = [self.of_member(m, inputs) for m in range(len(self.each))]
        pairs = list(zip(self.each, own, strict=True))
        if self.is_nominal:
            logits = [nn.functional.pad(one.transformation(given)[0], (1, 0)) for one, given in pairs]
            return self._pooled([torch.log_softmax(one, dim=1) for one in logits])
        moves = [None] * len(pairs) if self.recalibrations is None else self.recalibrations
        if not self.is_discrete:
            each = [one(given) for one, given in pairs]
            return self._mean([_moved_line(h, move) for h, move in zip(each, moves, strict=True)])
        found = [one.transformation(given) for one, given in pairs]
        moved = [_moved(h, torch.exp(gaps), move) for (h, gaps), move in zip(found, moves, strict=True)]
        if self.method == "transformation":
            h, gaps = (self._mean(list(each)) for each in zip(*moved, strict=True))
            return torch.exp(_log_probabilities(h, gaps, self.latents[0]))
        latents = zip(moved, self.latents, strict=True)
        return self._pooled([_log_probabilities(h, gaps, latent) for (h, gaps), latent in latents])

    def _pooled(self, log_probabilities: list[Tensor]) -> Tensor:
        if self.method == "linear":
            return self._mean([torch.exp(one) for one in log_probabilities])
        return torch.softmax(self._mean(log_probabilities), dim=1)

    def _mean(self, each: list[Tensor]) -> Tensor:
        """Return the weighted mean; a member of weight zero is left out."""
        parts = [weight * each[m] for m, weight in self._shares.items()]
        total: Tensor = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def inputs(self, X: Any, y: Any = None) -> dict[str, Tensor]:
        """Return the tensors of some rows, as the module takes them; see ``OutcomeModule.inputs``."""
        found = [member.inputs(X, y) for member in self.each]
        pairs = zip(self.own_names, found, strict=True)
        return {names[one]: tensor for names, own in pairs for one, tensor in own.items()}

    def of_member(self, m: int, inputs: Inputs) -> dict[str, Tensor]:
        """Return the inputs of one member under the names it knows."""
        return {one: inputs[name] for one, name in self.own_names[m].items() if name in inputs}


def _moved_line(h: Tensor, move: Recalibration | None) -> Tensor:
    """Return h on the line, recalibrated."""
    return h if move is None else float(move.intercept_[0]) + float(move.slope_[0]) * h


def _moved(h: Tensor, gaps: Tensor, move: Recalibration | None) -> tuple[Tensor, Tensor]:
    """Return h of classes (n, K - 1) and its gaps (n, K - 2), recalibrated."""
    if move is None:
        return h, gaps
    intercept, slope = (torch.as_tensor(one).to(h.dtype) for one in (move.intercept_, move.slope_))
    h, steps = intercept + slope * h, np.diff(move.intercept_)
    if (move.slope_ == move.slope_[0]).all() and (steps >= 0).all():
        return h, torch.as_tensor(steps).to(h.dtype) + slope[0] * gaps
    h = h.sort(dim=1).values  # as Recalibration does for rows whose thresholds would cross
    return h, h[:, 1:] - h[:, :-1]


def _check_same_outcome(members: Sequence[OutcomeModule]) -> None:
    """Raise unless all members give probabilities of the same classes, or h."""
    first = [str(level) for level in members[0].model.outcome.levels or ()]
    for m, member in enumerate(members):
        levels = [str(level) for level in member.model.outcome.levels or ()]
        if levels != first:
            raise UnsupportedError(
                f"members of one module must have one outcome, got {levels or 'numbers'} of member {m}, "
                f"{first or 'numbers'} of member 0; leave it out"
            )


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
    with the model on a few rows in onnxruntime, to 1e-5. What a user of the file has to know is in its
    metadata, as JSON: ``levels``, the classes in the order of the columns (null for h), and ``inputs``, what
    was learned to make an input from the user's columns (null where it is as there): names of strata in the
    order of their codes, levels of factors, knots.

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
    if not isinstance(path, (str, os.PathLike)) or not Path(path).parent.is_dir():
        raise InvalidInputError(
            f"path must name a file in a folder that is there, got {path!r}; for example 'model.onnx'"
        )
    path = Path(path)
    graph = Graph(model.module_).eval()
    examples, output = graph.examples(_CHECKED_ROWS), "probability" if graph.is_discrete else "h"
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad(), _own_operations():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph,
            tuple(examples),
            os.fspath(path),
            input_names=list(graph.names),
            output_names=[output],
            dynamic_axes={name: {0: "rows"} for name in (*graph.names, output)},
            opset_version=_OPSET,
            dynamo=False,
        )
    _describe(path, graph)
    try:
        _check(path, graph, model.module_)
    except UnsupportedError:
        path.unlink()
        raise
    return path


def _describe(path: Path, graph: Graph) -> None:
    """Write into the file what its columns and codes mean."""
    import onnx

    levels = graph.pooled.each[0].model.outcome.levels if graph.is_discrete else None
    known = {
        "levels": None if levels is None else plain(list(levels)),
        "inputs": plain(graph.pooled.meanings),
        "versions": versions(),
    }
    model = onnx.load(os.fspath(path))
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in known.items()})
    onnx.save(model, os.fspath(path))


@contextmanager
def _own_operations() -> Iterator[None]:
    """Let functions be written in operations that ONNX knows, and onnxruntime in float64, too."""
    from torch.onnx.utils import register_custom_op_symbolic, unregister_custom_op_symbolic

    for name, own in _OPERATIONS.items():
        register_custom_op_symbolic(name, own, _OPSET)
    try:
        yield
    finally:
        for name in _OPERATIONS:
            unregister_custom_op_symbolic(name, _OPSET)


def _softplus(graph: Any, x: Any, beta: Any, threshold: Any) -> Any:
    """Write log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|))."""
    small = graph.op("Exp", graph.op("Neg", graph.op("Abs", x)))
    return graph.op("Add", graph.op("Relu", x), graph.op("Log", graph.op("Add", _number(graph, x, 1), small)))


def _expm1(graph: Any, x: Any) -> Any:
    """Write exp(x) - 1 as tanh(x / 2) (exp(x) + 1), which does not cancel."""
    half = graph.op("Tanh", graph.op("Mul", x, _number(graph, x, 0.5)))
    return graph.op("Mul", half, graph.op("Add", graph.op("Exp", x), _number(graph, x, 1)))


def _number(graph: Any, like: Any, value: float) -> Any:
    double = like.type().scalarType() == "Double"
    return graph.op("Constant", value_t=torch.tensor(value, dtype=torch.float64 if double else torch.float32))


_OPERATIONS: dict[str, Callable[..., Any]] = {"aten::softplus": _softplus, "aten::expm1": _expm1}


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
        names = [one.name for one in self.pooled.latents]
        allowed = self.pooled.plain_pools
        if "normal" in names:  # ONNX knows erf, not its logarithm
            allowed = tuple(one for one in allowed if one != "log-linear-density")
        if self.pooled.method not in allowed:
            raise UnsupportedError(
                f"a graph can hold the {' or '.join(allowed) or 'unpooled'} pool here (nominal: not "
                f"recalibrated; latents: {', '.join(dict.fromkeys(names))}), got {self.pooled.method!r}; "
                "change it, or export the members one by one"
            )

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return what the module returns."""
        return self.pooled.plain(dict(zip(self.names, tensors, strict=True)))

    def examples(self, n: int) -> list[Tensor]:
        """Return n rows of every input, different from each other."""
        return [
            (torch.arange(n * prod(shape)) % 7 / 7).reshape(n, *shape).to(self.dtypes[name])
            for name, shape in self.shapes.items()
        ]


def _log_probabilities(h: Tensor, gaps: Tensor, latent: Latent) -> Tensor:
    """Return log P(Y = k) of classes, (n, K), from h (n, K - 1) and its gaps (n, K - 2)."""
    if latent.name == "normal" and torch.onnx.is_in_onnx_export():
        # By differences, in float32, which is all onnxruntime has of erf.
        cdf = (1 + torch.erf((h / 2**0.5).float()).to(h.dtype)) / 2
        return torch.log(nn.functional.pad(cdf, (1, 0)).neg() + nn.functional.pad(cdf, (0, 1), value=1.0))
    inner = [latent.log_interval_t(h[:, :-1], h[:, 1:], torch.log(gaps))] if h.shape[1] > 1 else []
    return torch.cat([latent.log_cdf_t(h[:, :1]), *inner, latent.log_sf_t(h[:, -1:])], dim=1)


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
