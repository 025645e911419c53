r"""What-if: a fitted model or ensemble as data from which a browser computes distributions, exactly.

The page holds coefficients, not predictions: baselines, linear shifts, scales and varying effects, the
weights of small networks on tables, and how members are pooled. ``templates/whatif.js`` evaluates them. What
a browser cannot compute (networks on images, large networks, rare functions of formulas) is stored for each
row that the page offers, so that :math:`h_{new} = h_{row} + (x_{row} - x_{new})'\beta` stays exact; the
columns that such a part reads cannot be changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeptram._rows import take_rows
from deeptram.bases import Basis, Bernstein, Linear, LogLinear
from deeptram.inputs import LinearEncoder, Table, read_table
from deeptram.inputs.formula_terms import expressions
from deeptram.inputs.network_inputs import NetworkInputs, TableInput
from deeptram.model import Matrices
from deeptram.model.deep import DeepModel
from deeptram.model.dropout import MemberDropout
from deeptram.model.parts import ComplexIntercept
from deeptram.plots.report.design_steps import Step, design_steps, is_step

LATENTS = ("logistic", "normal", "minimum-extreme-value", "maximum-extreme-value")
POOLS = ("transformation", "linear", "log-linear")
POOLS_OF_LEVELS = (*POOLS, "log-linear-density")
LARGEST = 30_000  # weights of all networks together; about half a megabyte
_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.ELU: "elu",
    nn.Softplus: "softplus",
}
_IDLE = (nn.Dropout, MemberDropout, nn.Flatten, nn.Identity)


@dataclass(frozen=True)
class WhatIf:
    """What the page embeds, or why it cannot.

    Attributes
    ----------
    spec : dict or None
        Plain values for JSON.
    reason : str
        Why there is no spec; empty if there is one.
    fixed : tuple of str
        Columns that cannot be changed, because something that only Python computes reads them.
    """

    kind: ClassVar[str] = "what-if"
    spec: dict[str, Any] | None
    reason: str = ""
    fixed: tuple[str, ...] = ()


def what_if(model: Any, X: Any, rows: Sequence[int], labels: Sequence[str]) -> WhatIf:
    """Return a model for the browser.

    Parameters
    ----------
    model : Tram or Ensemble
        Fitted.
    X : data
        Rows from which covariates take their ranges.
    rows : sequence of int
        Those that the page offers to start from.
    labels : sequence of str
        What they are called.

    Examples
    --------
    >>> import deeptram as dt
    >>> X = np.arange(8.0).reshape(-1, 1)
    >>> model = dt.Polr().fit(X, [0, 1, 0, 1, 2, 1, 2, 2])
    >>> made = what_if(model, X, [0], ["first row"])
    >>> made.spec["kind"], made.spec["inputs"][0]["name"], made.fixed
    ('ordinal', 'x0', ())
    """
    members = list(getattr(model, "members_", [model]))
    reason = _why_not(model, members)
    if reason:
        return WhatIf(None, reason)
    first = members[0]
    chosen = take_rows(X, np.asarray(rows))
    small = sum(_size(one.model_) for one in members) <= LARGEST
    parts = [_Member(one.model_, chosen, one.design_.matrices(chosen), small) for one in members]
    specs = [part.spec() for part in parts]
    fixed = set().union(*(part.fixed for part in parts))
    levels = {name: known for part in parts for name, known in part.levels.items()}
    numbers = set().union(*(part.columns for part in parts)) - set(levels)
    table = _named_as_fitted(read_table(X), parts)
    names = [name for name in table.names if name in numbers or name in levels]
    inputs = [_input(table, name, levels.get(name), name in fixed) for name in names]
    outcome = first.outcome_
    spec = {
        "kind": str(outcome.kind),
        "nominal": outcome.kind.is_nominal,
        "levels": None if outcome.levels is None else [_plain(level) for level in outcome.levels],
        "latent": first.latent_.name,
        "basis": None if outcome.is_discrete else _basis(outcome.basis),
        "lifetimes": bool(outcome.lifetimes),
        "count": outcome.kind.is_count,
        "time": outcome.kind.is_time or bool(outcome.lifetimes),
        "offset": int(outcome.kind.is_count and outcome.log_first),
        "range": None if outcome.is_discrete else _range(outcome.observed, model, chosen),
        "pool": _pool_of(model),
        "weights": [float(w) for w in getattr(model, "weights_", [1.0])],
        "inputs": inputs,
        "members": specs,
        "rows": [
            {"label": label, "values": {name: _value(table, name, row, name in levels) for name in names}}
            for row, label in zip(rows, labels, strict=True)
        ],
    }
    for one, member in zip(getattr(model, "recalibrations_", None) or [], specs, strict=False):
        member["recalibration"] = [one.intercept_.tolist(), one.slope_.tolist()]
    return WhatIf(spec, fixed=tuple(sorted(fixed)))


def shifted_rows(
    heights: Sequence[NDArray[np.float64]],
    coefficients: Sequence[Mapping[str, float]],
    changes: Mapping[str, str],
    levels: Sequence[str],
    labels: Sequence[str],
) -> WhatIf:
    r"""Return stored rows of an ensemble on levels that covariates shift: :math:`h_{row} - \Delta'\beta`.

    Parameters
    ----------
    heights : sequence of M arrays, shape (n, K - 1)
        h of each member, logistic latent; pooled on that scale with equal weights.
    coefficients : sequence of M mappings
        Of each member, by variable.
    changes : mapping of variable -> str
        The variables, and what their changes are called.
    levels, labels : sequence of str
        Names of the K levels and of the n rows.

    Examples
    --------
    >>> one = shifted_rows([np.zeros((1, 1))], [{"x": 0.5}], {"x": "change of x"}, ["no", "yes"], ["row"])
    >>> one.spec["members"][0]["linear"]["coef"], one.spec["inputs"][0]["range"]
    ([0.5], [-2.0, 2.0])
    """
    names = list(changes.values())
    steps = [["x", name] for name in names]
    spec = {
        **{"kind": "ordinal", "nominal": False, "levels": list(levels), "latent": "logistic", "basis": None},
        **{"lifetimes": False, "count": False, "time": False, "offset": 0, "range": None},
        "pool": "transformation",
        "weights": [1 / len(heights)] * len(heights),
        "inputs": [{"name": name, "fixed": False, "range": [-2.0, 2.0], "whole": False} for name in names],
        "members": [
            {
                "thetas": np.asarray(h).tolist(),
                "linear": {"coef": [float(own[v]) for v in changes], "steps": steps, "stored": None},
            }
            for h, own in zip(heights, coefficients, strict=True)
        ],
        "rows": [{"label": label, "values": dict.fromkeys(names, 0.0)} for label in labels],
    }
    return WhatIf(spec)


def _why_not(model: Any, members: Sequence[Any]) -> str:
    """Return why the browser cannot compute this model's distributions; empty if it can."""
    if not all(hasattr(one, "model_") and hasattr(one, "design_") for one in members):
        return "its members are not all transformation models"
    first = members[0]
    kinds = [{**one.outcome_.to_dict(), "observed": None, "marginal": None} for one in members]
    if len({repr((one.latent_.name, kind)) for one, kind in zip(members, kinds, strict=True)}) > 1:
        return "its members differ in latent distribution, basis or levels"
    if first.latent_.name not in LATENTS or type(first.latent_).__module__.partition(".")[0] != "deeptram":
        return f"the latent distribution {first.latent_.name!r} is not one of deeptram's own"
    if not first.outcome_.is_discrete and not isinstance(
        first.outcome_.basis, (Bernstein, Linear, LogLinear)
    ):
        return f"the basis {first.outcome_.basis.name!r} is not one of deeptram's own"
    computed = POOLS_OF_LEVELS if first.outcome_.is_discrete else POOLS
    if len(members) > 1 and _pool_of(model) not in computed:
        return f"the {_pool_of(model)} pool is not one that the page computes ({', '.join(computed)})"
    if getattr(model, "correction_", None) is not None:
        return "its pool is corrected on the scale of the outcome"
    recalibrated = getattr(model, "recalibrations_", None) or []
    if any(one.latent_ != first.latent_ for one in recalibrated):
        return "members are recalibrated on another scale than their own"
    return ""


@dataclass
class _Member:
    """One member: its numbers, and what its parts read from X."""

    model: Any
    X: Any
    matrices: Matrices
    small: bool
    columns: set[str] = field(default_factory=set)
    fixed: set[str] = field(default_factory=set)
    levels: dict[str, list[Any]] = field(default_factory=dict)
    feature_names: tuple[str, ...] = ()

    def spec(self) -> dict[str, Any]:
        """Return the member as plain values."""
        design, model = self.model.design, self.model
        made: dict[str, Any] = {}
        if design.linear is not None:
            made["linear"] = self._design(design.linear, self.matrices.x, np.nan_to_num(model.coef))
        if design.scale is not None and self.matrices.scale is not None:
            made["scale"] = self._design(design.scale, self.matrices.scale, model.scale_coef)
        if design.strata is not None:
            self.levels[design.strata.column] = [_plain(level) for level in design.strata.levels]
            made["strata"] = [design.strata.column, self.levels[design.strata.column]]
        if model.inputs:
            return {**made, **self._deep(model)}
        theta = np.asarray(model.theta)
        if design.varying is not None and self.matrices.varying is not None:
            rows = theta[design.n_strata :]
            made["varying"] = self._design(design.varying, self.matrices.varying, rows)
        return {**made, "theta": theta[: design.n_strata].tolist()}

    def _deep(self, model: DeepModel) -> dict[str, Any]:
        made: dict[str, Any] = {}
        remaining = list(model.inputs)
        if isinstance(model.intercept, ComplexIntercept):
            net = self._network(model.intercept.net, remaining.pop(0))
            if net is None:
                theta = np.asarray(model.row_parameters(self.X, self.matrices).theta)
                logits = self.matrices.x @ np.nan_to_num(model.coef) if model.is_nominal else 0.0
                made["thetas"] = (theta - logits - self._stored_shifts(model)).tolist()
            else:
                made["intercept"] = {
                    "net": net,
                    "constant": _floats(model.intercept.constant),
                    "moved": model.moved_constant().tolist(),
                    "line": _floats(model.line) if model.is_line else None,
                }
        else:
            made["theta"] = np.asarray(model.theta).tolist()
        values = model.network_values(self.X, len(self.matrices.x))
        networks = [*(shift.net for shift in model.complex_shifts), *model.scales]
        parts: list[dict[str, Any]] = []
        for network, inputs, stored in zip(networks, remaining, values, strict=True):
            net = self._network(network, inputs)
            parts.append({"stored": stored.tolist()} if net is None else {"net": net})
        for part, shift in zip(parts, model.complex_shifts, strict=False):  # scales follow
            part |= {"mean": _floats(shift.mean), "slopes": shift.slopes.tolist()}
        n = len(model.complex_shifts)
        return {**made, "shifts": parts[:n], "scales": parts[n:]}

    def _stored_shifts(self, model: DeepModel) -> Any:
        """Return what complex shifts add to the logits of a nominal outcome, part of theta there."""
        if not model.is_nominal:
            return 0.0
        values = model.network_values(self.X, len(self.matrices.x))
        pairs = zip(model.complex_shifts, values, strict=True)  # a nominal outcome has no scale
        return sum(value - self.matrices.x @ one.slopes.numpy() - one.mean.numpy() for one, value in pairs)

    def _design(
        self, encoder: LinearEncoder, values: NDArray[np.float64], coef: NDArray[np.float64]
    ) -> dict[str, Any]:
        return {"coef": np.asarray(coef).tolist(), **self._encoder(encoder, values)}

    def _encoder(self, encoder: LinearEncoder, values: NDArray[np.float64]) -> dict[str, Any]:
        """Return the steps of the columns, and the stored values of those that have none."""
        steps = design_steps(encoder)
        self.feature_names = self.feature_names or (encoder.feature_names if encoder.from_array else ())
        factors = {one.column: one for one in encoder.factors}
        factors |= {} if encoder.formula is None else encoder.formula.factors
        for name in encoder.required_columns:
            if name in factors:
                kept = [level for level in factors[name].levels if level not in factors[name].unobserved]
                self.levels[name] = [_plain(level) for level in kept]
        self.columns |= set(encoder.required_columns)
        missing = [j for j, step in enumerate(steps) if step is None]
        if missing:
            self.fixed |= _columns_of_missing(encoder, missing)
        stored = values[:, missing].tolist() if missing else None
        return {"steps": [_plain_step(step) for step in steps], "stored": stored}

    def _network(self, net: nn.Module, inputs: NetworkInputs) -> dict[str, Any] | None:
        """Return a network on tabular columns as layers, None if only Python can compute it."""
        part = inputs.parts[0]
        layers = _layers(net) if self.small and len(inputs.parts) == 1 else None
        if (
            layers is not None
            and isinstance(part, TableInput)
            and part.encoder is not None
            and not part.blocks
        ):
            design = self._encoder(part.encoder, part.encoder.transform(self.X))
            return {**design, "mean": part.mean.tolist(), "sd": part.sd.tolist(), "layers": layers}
        for one in inputs.parts:
            if isinstance(one, TableInput) and one.encoder is not None:
                self.columns |= set(one.encoder.required_columns)
                self.fixed |= set(one.encoder.required_columns)
        return None


def _columns_of_missing(encoder: LinearEncoder, missing: Sequence[int]) -> set[str]:
    """Return the columns that stored parts of a formula read."""
    if encoder.formula is None:
        return set(encoder.required_columns)
    owners, used = {encoder.formula.owners[j] for j in missing}, set[str]()
    for term in encoder.formula.terms:
        if ":".join(text for text, kind in term if kind != "literal") in owners:
            used |= {name for one in expressions((term,)).values() for name in one.columns}
    return used


def _layers(net: nn.Module) -> list[Any] | None:
    """Return the layers of a plain sequence of linear maps and activations, None for anything else."""
    found: list[Any] = []
    for layer in _flat(net):
        if isinstance(layer, nn.Linear):
            bias = None if layer.bias is None else _floats(layer.bias)
            found.append([layer.weight.detach().double().tolist(), bias])
        elif type(layer) in _ACTIVATIONS and _is_plain(layer):
            found.append(_ACTIVATIONS[type(layer)])
        elif not isinstance(layer, _IDLE):
            return None
    return found


def _flat(net: nn.Module) -> Iterator[nn.Module]:
    for layer in net if isinstance(net, nn.Sequential) else [net]:
        yield from _flat(layer) if isinstance(layer, nn.Sequential) else [layer]


def _is_plain(layer: nn.Module) -> bool:
    """Whether an activation has torch's default settings, which are those of the page."""
    return layer.extra_repr().replace("inplace=True", "") == type(layer)().extra_repr()


def _size(model: Any) -> int:
    return sum(parameter.numel() for _, parameter in model.network_parameters())


def _floats(values: torch.Tensor) -> list[float]:
    return [float(value) for value in values.detach().double().reshape(-1)]


def _pool_of(model: Any) -> str:
    """Return the pool that predicts: for a nominal outcome the transformation pool is that of the logits."""
    return str(model.method()) if hasattr(model, "members_") else "transformation"


def _basis(basis: Basis) -> dict[str, Any]:
    low, high = basis.support
    finite = bool(np.isfinite([low, high]).all())
    return {
        "name": basis.name,
        "order": getattr(basis, "order", 0),
        "support": [low, high] if finite else None,
        "log": basis.domain[0] == 0.0,
        "slope": getattr(basis, "fixed_slope", None),
    }


def _range(observed: tuple[float, float] | None, model: Any, X: Any) -> list[float]:
    """Return where outcomes are: where they were observed in fitting, or where some rows have them."""
    if observed is not None:
        return [float(end) for end in observed]
    ends = np.asarray(model.predict_distribution(X).quantile([0.005, 0.995]), dtype=np.float64)
    ends = ends[np.isfinite(ends)]
    low, high = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 1.0)
    return [low, max(high, low + 1.0)]


def _named_as_fitted(table: Table, parts: Sequence[_Member]) -> Table:
    """Return the table with the names of fitting, where columns are known by position."""
    names = next((part.feature_names for part in parts if part.feature_names), ())
    renames = len(names) == len(table.names) and not set(names) <= set(table.names)
    return table.renamed(names) if renames else table


def _input(table: Table, name: str, levels: list[Any] | None, fixed: bool) -> dict[str, Any]:
    if levels is not None:
        return {"name": name, "fixed": fixed, "options": levels}
    values = np.asarray(table.column(name), dtype=np.float64)
    whole = bool((values == np.round(values)).all())
    return {
        "name": name,
        "fixed": fixed,
        "range": [float(values.min()), float(values.max())],
        "whole": whole,
    }


def _value(table: Table, name: str, row: int, is_level: bool) -> Any:
    value = table.column(name)[row]
    return _plain(value) if is_level else float(value)


def _plain(value: Any) -> Any:
    """Return a level as JSON has it: a number, true or false, or a text."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return value
    return float(value) if isinstance(value, (int, float)) else str(value)


def _plain_step(step: Step | None) -> Any:
    """Return a step with its levels as JSON has them."""
    if step is None:
        return None
    if step[0] == "is":
        return [*step[:2], _plain(step[2])]
    return [_plain_step(part) if is_step(part) else part for part in step]


def described_fixed(made: WhatIf) -> str:
    """Return a sentence about columns that stay as they are; empty if there are none.

    Examples
    --------
    >>> described_fixed(WhatIf({}, fixed=("age",)))
    'Fixed at the value of the row, because only Python computes what reads it: age.'
    """
    if not made.fixed:
        return ""
    return (
        f"Fixed at the value of the row, because only Python computes what reads it: {', '.join(made.fixed)}."
    )
