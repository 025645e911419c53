"""The forward pass of several members at once, by batched matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from deeptram.model.deep import Batch, DeepModel, Raw
from deeptram.model.dropout import MemberDropout
from deeptram.model.parts import ComplexIntercept
from deeptram.networks.mlp import Residual

ELEMENTWISE = (
    nn.ELU,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.ReLU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Tanh,
)
Layer = tuple[str, nn.Module]


class StackedForward:
    """Runs the networks of a model with stacked parameters, by batched matrix products; made by :meth:`of`.

    Fully connected networks need no ``vmap``: their stacked weights go straight
    into batched products, which saves the bookkeeping that dominates small
    networks. Everything else runs under ``torch.func.vmap``; both give the same numbers.
    """

    def __init__(self, model: DeepModel, networks: list[list[Layer]]) -> None:
        self._model, self._networks = model, networks

    @classmethod
    def of(cls, model: DeepModel) -> StackedForward | None:
        """Return the batched forward pass, or None if a network has other layers than it knows."""
        names = [f"shifts.{j}.net" for j in range(len(model.shifts))]
        if isinstance(model.intercept, ComplexIntercept):
            names.insert(0, "intercept.net")
        networks = [list(_layers(model.get_submodule(name), name)) for name in names]
        known = all(_is_known(layer) for network in networks for _, layer in network)
        return cls(model, networks) if known and model.autocast is None else None

    def __call__(self, parameters: dict[str, Tensor], batch: Batch, masks: list[Tensor]) -> Raw:
        """Return what ``DeepModel.forward`` returns, with a first axis of members everywhere.

        Parameters
        ----------
        parameters : dict of Tensor
            Stacked along a first axis.
        batch : dict
            Inputs with axes (M, b, ...).
        masks : list of Tensor
            Dropout masks in the order of the layers, empty in evaluation.
        """
        model, left = self._model, list(masks)
        outputs = [
            self._run(network, inputs, parameters, left)
            for network, (inputs,) in zip(self._networks, batch["nets"], strict=True)
        ]
        if isinstance(model.intercept, ComplexIntercept):
            free = outputs.pop(0) + parameters["intercept.constant"].unsqueeze(1)
        else:
            free = parameters["intercept.free"]
            strata = batch.get("strata")
            if strata is not None:
                free = free[torch.arange(len(free), device=free.device).unsqueeze(1), strata]
        if not model.is_nominal:
            outputs = [output.squeeze(-1) for output in outputs]
        if model.beta is not None:
            outputs.append(_product(batch["x"], parameters["beta"]))
        raw = {"free": free}
        if outputs:
            raw["shift"] = reduce(torch.add, outputs)
        if model.gamma is not None:
            raw["log_scale"] = _product(batch["scale"], parameters["gamma"]) / 2
        return raw

    def _run(
        self, network: list[Layer], x: Tensor, parameters: dict[str, Tensor], masks: list[Tensor]
    ) -> Tensor:
        for name, layer in network:
            if isinstance(layer, nn.Linear):
                weight, bias = parameters[f"{name}.weight"].mT, parameters.get(f"{name}.bias")
                x = torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)
            elif isinstance(layer, MemberDropout):
                x = x * masks.pop(0) if masks and layer.rate > 0 else x
            elif isinstance(layer, nn.LayerNorm):
                x = layer_norm(x, layer.normalized_shape, eps=layer.eps)
                weight, bias = (parameters[f"{name}.{part}"].unsqueeze(1) for part in ("weight", "bias"))
                x = torch.addcmul(bias, x, weight)
            elif isinstance(layer, Residual):
                x = x + self._run(list(_layers_in(layer, name)), x, parameters, masks)
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(2)
            else:
                x = layer(x)
        return x


def _layers(module: nn.Module, name: str) -> Iterator[Layer]:
    if type(module) is nn.Sequential:
        yield from _layers_in(module, name)
    else:
        yield name, module


def _layers_in(module: nn.Module, name: str) -> Iterator[Layer]:
    for child_name, child in module.named_children():
        yield from _layers(child, f"{name}.{child_name}")


def _is_known(layer: nn.Module) -> bool:
    if type(layer) is Residual:
        return all(_is_known(inner) for _, inner in _layers_in(layer, ""))
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.LayerNorm:
        return len(layer.normalized_shape) == 1 and layer.bias is not None
    if type(layer) is MemberDropout:
        return not layer.channelwise and layer.rate < 1
    return type(layer) is nn.Linear or type(layer) in ELEMENTWISE


def _product(columns: Tensor, coefficients: Tensor) -> Tensor:
    """Return columns (M, b, p) times coefficients (M, p) or (M, p, K - 1)."""
    if coefficients.ndim == 2:
        return torch.bmm(columns, coefficients.unsqueeze(-1)).squeeze(-1)
    return torch.bmm(columns, coefficients)
