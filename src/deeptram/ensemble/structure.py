r"""Whether a pool of transformation models is again a model with readable coefficients (Prop. 2).

The transformation pool averages :math:`h_m(y \mid x) = \ldots - x'\beta_m`, so its linear shift is
:math:`x' \sum_m w_m \beta_m`. Multinomial logits are averaged by the log-linear density pool instead. Every
other pool leaves the model class of its members: there is no coefficient to report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram.estimators.base import BaseTram

Array = NDArray[np.float64]


def why_no_coefficients(
    members: Sequence[Any], pooling: Any, weights: Array, recalibrated: bool
) -> str | None:
    """Return why the pool of these members has no coefficients, or None if it has.

    Parameters
    ----------
    members : sequence
        Fitted models.
    pooling : str or QuasiArithmetic
    weights : array, shape (M,)
    recalibrated : bool
        Whether the members' transformations are recalibrated before pooling.
    """
    models: list[BaseTram] = []
    for number, member in enumerate(members):
        if not isinstance(member, BaseTram):
            return (
                f"member {number} is a {type(member).__name__}, which has no linear shift; "
                "use members that are deeptram models"
            )
        models.append(member)
    return _different(models) or _leaves_the_class(models[0], pooling, weights, recalibrated)


def _different(models: Sequence[BaseTram]) -> str | None:
    first = models[0]
    for number, model in enumerate(models[1:], start=1):
        if model.latent_ != first.latent_ or model.outcome_.kind != first.outcome_.kind:
            return (
                f"members 0 and {number} measure effects on different scales ({_scale(first)} and "
                f"{_scale(model)}), so their coefficients cannot be averaged; use members of one kind"
            )
        if list(model.coef_.index) != list(first.coef_.index):
            return (
                f"members 0 and {number} have different linear shifts ({_columns(first)} and "
                f"{_columns(model)}); use members with the same LS term"
            )
        if model.design_ is not first.design_ and _encoding(model) != _encoding(first):
            return (
                f"members 0 and {number} encode the columns of their linear shifts differently (levels, "
                "knots or centres), so coefficients of one name mean different things; "
                "fit them with one encoding"
            )
    return None


def _leaves_the_class(model: BaseTram, pooling: Any, weights: Array, recalibrated: bool) -> str | None:
    name = pooling if isinstance(pooling, str) else "quasi-arithmetic"
    if model.outcome_.kind == "nominal":
        if recalibrated:
            return (
                "recalibration acts on the distribution function of a nominal outcome, not on its logits; "
                "use recalibrate=False"
            )
        if name == "log-linear-density" or (weights > 0).sum() == 1:
            return None
        return (
            f"the {name} pool of multinomial logits is no multinomial logit; "
            "use pooling='log-linear-density', which averages the logits"
        )
    logits = model.outcome_.kind == "binary" and model.latent_.name == "logistic"
    if name == "transformation" or (weights > 0).sum() == 1 or (logits and name == "log-linear-density"):
        return None
    return (
        f"the {name} pool of transformation models is in general none: it has no "
        f"{model.latent_.effect_name}; use pooling='transformation', which averages h and with it the "
        "coefficients"
    )


def _scale(model: BaseTram) -> str:
    return f"{model.outcome_.kind}, {model.latent_.name}"


def _columns(model: BaseTram) -> str:
    names = list(model.coef_.index)
    return f"[{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}]"


def _encoding(model: BaseTram) -> Any:
    """Return what decides the meaning of the columns of the linear shift."""
    linear = model.design_.linear
    return None if linear is None else linear.to_dict()
