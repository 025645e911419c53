r"""A fitted model as one ``torch.nn.Module``, from the user's columns to probabilities, h or quantiles.

For saliency maps, further training and export: everything between the raw columns
and :math:`P(Y = y_k)` or :math:`h(y)` is a torch operation, scaling and encoded columns included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeptram._validation import check_float_vector, check_same_length
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.inputs.network_inputs import stacked_columns
from deeptram.model.deep import Batch, DeepModel
from deeptram.model.parts import Working, class_distribution, class_transformation
from deeptram.model.structured import StructuredModel
from deeptram.model.terms import Matrices, Spec
from deeptram.predictive import DiscretePredictive, Predictive
from deeptram.predictive.kinds import RowParameters
from deeptram.predictive.transformation import TransformationCount

Inputs = Mapping[str, Tensor]
OUTCOME = "y"


class OutcomeModule(nn.Module):
    """What a model with networks predicts, as a module of tensors.

    Called with a dict of tensors, one for each of ``shapes``: numeric columns ``(n,)`` in the user's units;
    columns that an encoding made (``"sex[T.m]"``, ``"bs(age, df=4)[1]"``) under their encoded names; images
    ``(n, C, H, W)`` (or in any layout that ``fit`` takes), bytes or numbers as in training; strata as codes.
    :meth:`inputs` makes that dict from any X. For outcomes on the line, ``"y"`` holds the outcomes ``(n,)``
    at which h is read (of counts at the whole number below, so that y has no gradient); :meth:`distribution`
    and :meth:`quantile` do without.

    Parameters
    ----------
    model : DeepModel

    Examples
    --------
    >>> import deeptram as dt
    >>> data = dt.datasets.simulate("ordinal", n=60, seed=1)
    >>> terms = [dt.CS(dt.networks.MLP((4,)), "image"), dt.LS("x_1")]
    >>> training = dt.Training(epochs=1, progress=False)
    >>> module = dt.Polr(terms, training=training, random_state=1).fit(data.X, data.y).module_
    >>> tensors = module.inputs(data.X)
    >>> {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    {'image': (60, 1, 8, 8), 'x_1': (60,)}
    >>> bool(((module(tensors).sum(dim=1) - 1).abs() < 1e-6).all())
    True
    """

    def __init__(self, model: DeepModel) -> None:
        super().__init__()
        self.model = model
        self.precision = torch.float64
        """Of everything after the networks."""
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Name and shape of one row of each input."""
        for one in model.inputs:
            self.shapes |= one.tensor_shapes
        exact = {name: dtype for one in model.inputs for name, dtype in one.tensor_dtypes.items()}
        self.shared = nn.ModuleList(part for one in model.inputs for part in one.modules)
        design, strata = model.design, model.design.strata_column
        self.shapes |= dict.fromkeys((*design.names, *design.names_of("scale")), ())
        self._check_new(strata, "codes of strata")
        self.shapes |= {} if strata is None else {strata: ()}
        self._check_new(None if self.is_discrete else OUTCOME, "the outcome")
        self.shapes |= {} if self.is_discrete else {OUTCOME: ()}
        if not self.shapes:
            raise UnsupportedError("a module needs at least one input, got a model without any; use pmf()")
        exact |= {} if strata is None else {strata: torch.int64}
        self.dtypes: dict[str, torch.dtype] = {name: exact.get(name, torch.float64) for name in self.shapes}
        """The type of each input; others are converted."""
        self.meanings: dict[str, Any] = dict.fromkeys(self.shapes)
        """What was learned to make each input from X; None where it is as in X."""
        for encoder in design.encoders.values():
            if encoder.formula is not None:
                learned = encoder.formula.to_dict()
                made = set(encoder.names) - set(encoder.required_columns)
                self.meanings |= dict.fromkeys(sorted(made), learned)
            for factor in encoder.factors:
                levels = zip(factor.names, factor.levels[1:], strict=True)
                self.meanings |= {name: {"column": factor.column, "level": level} for name, level in levels}
        if strata is not None and design.strata is not None:
            self.meanings[strata] = design.strata.to_dict()

    def _check_new(self, name: str | None, what: str) -> None:
        """Raise if an input of that name is there already."""
        if name in self.shapes:
            raise UnsupportedError(
                f"a module has one input {name!r} for {what}, got a column of that name; rename the column"
            )

    @property
    def is_discrete(self) -> bool:
        """Whether the output is probabilities ``(n, K)``, not h ``(n,)``."""
        return self.model.outcome.is_discrete

    def forward(self, inputs: Inputs) -> Tensor:
        """Return probabilities ``(n, K)``, or h at the outcomes ``inputs["y"]``, ``(n,)``."""
        return read(self.distribution(inputs), inputs) if self.is_discrete else self._h(inputs)

    def quantile(self, inputs: Inputs, probs: Any) -> Tensor:
        r"""Return quantiles ``(n, len(probs))`` of an outcome on the line; see :func:`quantiles_of`.

        Parameters
        ----------
        inputs : dict of Tensor
            As for a call; ``"y"`` is not needed.
        probs : float or array-like, shape (Q,)

        Examples
        --------
        >>> import deeptram as dt
        >>> data = dt.datasets.simulate("continuous", n=60, seed=1)
        >>> module = dt.Lm([dt.LS("x_1")]).fit(data.X, data.y).module_
        >>> tensors = module.inputs(data.X)
        >>> median = module.quantile({"x_1": tensors["x_1"].requires_grad_()}, 0.5)
        >>> median.sum().backward()
        >>> median.shape, bool((tensors["x_1"].grad != 0).all())
        (torch.Size([60, 1]), True)
        """
        return quantiles_of(self.distribution(inputs), probs)

    def distribution(self, inputs: Inputs) -> Predictive:
        """Return the predictive distributions of the rows, of tensors with gradients, in float64."""
        model = self.model
        if self.is_discrete:
            return class_distribution(*self.transformation(inputs), model.outcome, model.latent)
        working = self._working(inputs)
        rows = next(iter(inputs.values()), torch.zeros(1))  # a model without inputs has one distribution
        shift = rows.new_zeros(rows.shape[0]) if working.shift is None else working.shift
        parameters = RowParameters(model.on_line(working.theta), shift.to(self.precision), working.log_scale)
        return model.outcome.predictive(parameters, model.latent)

    def _h(self, inputs: Inputs) -> Tensor:
        r"""Return :math:`h(y) = e^s (a(y)'\theta + o(y)) - \mathrm{shift}` at ``inputs["y"]``, shape (n,).

        The same as ``trafo`` of ``distribution`` (of counts h of the whole number below y), in operations of
        which none depends on a value or on the number of rows, so that it can be traced.
        """
        y, working, model = outcomes(inputs, self.precision), self._working(inputs), self.model
        theta = model.on_line(working.theta)
        line: Any = model.outcome.predictive(RowParameters(torch.zeros_like(theta[:1])), model.latent)
        if isinstance(line, TransformationCount):
            y = torch.where(y < 0, -torch.inf, torch.floor(y) + line.offset)
            line = line.line
        basis, (low, high) = model.outcome.basis, (end[0] for end in line.support_t())
        inside = next((end for end in basis.support if 0 < end < np.inf), 1.0)
        at = torch.where((y <= low) | (y >= high), torch.full_like(y, inside), y)
        h: Tensor = (basis.evaluate(at) * theta).sum(dim=1) + basis.offset(at)
        h = h if working.log_scale is None else torch.exp(working.log_scale) * h
        h = h if working.shift is None else h - working.shift
        h = torch.where(y <= low, torch.full_like(h, -torch.inf), h)
        return torch.where(y >= high, torch.full_like(h, torch.inf), h)

    def transformation(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Return h of classes ``(n, K - 1)`` and the logs of its gaps; for nominal outcomes the logits."""
        n = next(iter(inputs.values())).shape[0]
        h, log_gaps = class_transformation(self._working(inputs), self.model.outcome)
        return h.expand(n, -1), log_gaps.expand(n, -1)  # one row of parameters may stand for all

    def _working(self, inputs: Inputs) -> Working:
        needed = [name for name in self.shapes if self.is_discrete or name != OUTCOME]
        missing = [name for name in needed if name not in inputs]
        if missing:
            raise InvalidInputError(
                f"the module needs a tensor for each of {', '.join(needed)}, got none for "
                f"{', '.join(missing)}; module_.inputs(X) makes them from a table"
            )
        model, batch = self.model, self._batch(inputs)
        columns = {name: batch[name] for name in ("x", "scale") if name in batch}
        nothing = {name: one.new_zeros(1, one.shape[1], dtype=model.dtype) for name, one in columns.items()}
        raw = {name: one.to(self.precision) for name, one in model(batch | nothing).items()}
        if model.beta is not None:  # as in predictions, not in the precision of the networks
            raw["shift"] = raw["shift"] + _times(columns["x"], model.beta.to(self.precision))
        if model.gamma is not None:
            scale = _times(columns["scale"], model.gamma.to(self.precision))
            raw["log_scale"] = raw["log_scale"] + scale / 2
        return model.working(raw)

    def inputs(self, X: Any, y: Any = None) -> dict[str, Tensor]:
        """Return the tensors of some rows, as the module takes them.

        Parameters
        ----------
        X : DataFrame, 2-d array or dict
            As for ``predict``.
        y : array-like, optional
            Outcomes, for models on the line.
        """
        model = self.model
        tensors: dict[str, Tensor] = {}
        for one in model.inputs:
            tensors |= one.tensors(X)
        matrices: Matrices = model.design.matrices(X)
        for term, values in (("linear", matrices.x), ("scale", matrices.scale)):
            if values is not None:
                columns = zip(model.design.names_of(term), values.T, strict=True)
                tensors |= {name: torch.as_tensor(column) for name, column in columns}
        if matrices.strata is not None and model.design.strata_column is not None:
            tensors[model.design.strata_column] = torch.as_tensor(matrices.strata)
        if y is not None and not self.is_discrete:
            outcomes = check_float_vector(y, "y")
            check_same_length(X=matrices.x, y=outcomes)
            tensors[OUTCOME] = torch.as_tensor(outcomes)
        return {name: tensors[name] for name in self.shapes if name in tensors}

    def _batch(self, inputs: Inputs) -> Batch:
        model, design = self.model, self.model.design
        batch: Batch = {"nets": [one.from_tensors(inputs, model.dtype) for one in model.inputs]}
        if model.beta is not None:
            x = stacked_columns(inputs, design.names)
            batch["x"] = ((x - model.x_mean) / model.x_sd * model.x_kept).to(self.precision)
        if model.gamma is not None:
            z = stacked_columns(inputs, design.names_of("scale"))
            batch["scale"] = (z / model.z_sd).to(self.precision)
        if design.strata_column is not None:
            batch["strata"] = inputs[design.strata_column].long()
        return batch


def _times(x: Tensor, coefficients: Tensor) -> Tensor:
    """Return ``x @ coefficients`` as a product of matrices: onnxruntime has none of no rows with a vector."""
    return x @ coefficients if coefficients.ndim == 2 else (x @ coefficients.unsqueeze(1)).squeeze(1)


def as_module(model: StructuredModel, spec: Spec) -> DeepModel:
    """Return an exactly fitted model as a torch module without networks, in float64.

    Parameters
    ----------
    model : StructuredModel
        Its baselines must be finite: a class that was never seen has no place in a network's numbers.
    spec : Spec
        Its terms.

    Examples
    --------
    >>> import deeptram as dt
    >>> data = dt.datasets.simulate("ordinal", n=60, seed=1)
    >>> fitted = dt.Polr([dt.LS("x_1")]).fit(data.X, data.y)
    >>> module = fitted.module_
    >>> bool(np.allclose(module(module.inputs(data.X)).detach(), fitted.predict_proba(data.X)))
    True
    """
    if spec.varying is not None or not np.isfinite(model.theta).all():
        reason = "Varying" if spec.varying is not None else "an infinite baseline"
        raise UnsupportedError(
            f"a model without networks is a module if its baselines are finite and the same for all x, got "
            f"{reason}; use predict_distribution(X)"
        )
    basis, nominal = model.outcome.basis, model.outcome.kind.is_nominal
    found = DeepModel(spec, model.outcome, model.latent, model.design, (), torch.float64)
    values = {
        "intercept.free": model.theta if nominal else basis.free_from_theta(model.theta),
        "beta": model.coef,
        "gamma": model.scale_coef,
    }
    with torch.no_grad():
        for name, parameter in found.named_parameters():
            parameter.copy_(torch.as_tensor(values[name]))
    return found


def read(pred: Any, inputs: Inputs) -> Tensor:
    """Return the probabilities of classes, or h at the outcomes ``inputs["y"]``."""
    if isinstance(pred, DiscretePredictive):
        return torch.exp(pred.log_pmf_t())
    h: Tensor = pred.trafo(outcomes(inputs, pred.dtype))
    return h


def outcomes(inputs: Inputs, dtype: torch.dtype) -> Tensor:
    """Return the outcomes ``inputs["y"]``, which must be there."""
    if OUTCOME not in inputs:
        raise InvalidInputError(
            "the module gives h at outcomes, the tensor 'y', got none; pass module_.inputs(X, y), or ask "
            "module_.quantile(inputs, probs) or module_.distribution(inputs), which need none"
        )
    return inputs[OUTCOME].to(dtype)


def quantiles_of(pred: Predictive, probs: Any) -> Tensor:
    r"""Return quantiles ``(n, len(probs))`` of distributions on the line, with gradients.

    A quantile q solves :math:`h(q \mid x) = F_Z^{-1}(p)`, so

    .. math:: \frac{\partial q}{\partial x} = -\frac{\partial h(q \mid x) / \partial x}{h'(q \mid x)},

    and the same for the parameters. Those of counts are whole numbers and have no gradient.

    Parameters
    ----------
    pred : Predictive
        Of tensors.
    probs : float or array-like, shape (Q,)

    Examples
    --------
    >>> from deeptram.bases import Linear
    >>> from deeptram.predictive import TransformationPredictive
    >>> theta = torch.tensor([[0.0, 0.5]], dtype=torch.float64)
    >>> shift = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    >>> median = quantiles_of(TransformationPredictive(Linear(), "normal", theta, shift), [0.5])
    >>> torch.autograd.grad(median.sum(), shift)[0]  # the median is shift / 0.5
    tensor([2., 2.], dtype=torch.float64)
    """
    if isinstance(pred, DiscretePredictive):
        raise UnsupportedError(
            "a module has quantiles of outcomes on the line, got classes; use their probabilities, "
            "module_(inputs), and cumsum(dim=1) of them"
        )
    found: Tensor = pred.quantile(np.atleast_1d(np.asarray(probs)))
    return found
