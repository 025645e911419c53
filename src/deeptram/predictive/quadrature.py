"""The Gauss-Kronrod rule with 7 and 15 nodes, vectorised over panels."""

from __future__ import annotations

import torch
from torch import Tensor

# Non-negative nodes of the 15-point Kronrod rule with their weights, and the weights of the 7-point
# Gauss rule, whose nodes are every second of them (Piessens et al. 1983, QUADPACK, qk15).
_NODES = (
    0.991455371120812639206854697526329,
    0.949107912342758524526189684047851,
    0.864864423359769072789712788640926,
    0.741531185599394439863864773280788,
    0.586087235467691130294144691693013,
    0.405845151377397166906606412076961,
    0.207784955007898467600689403773245,
    0.0,
)
_KRONROD = (
    0.022935322010529224963732008058970,
    0.063092092629978553290700663189204,
    0.104790010322250183839876322541518,
    0.140653259715525918745189590510238,
    0.169004726639267902826583426598550,
    0.190350578064785409913256402421014,
    0.204432940075298892414161999234649,
    0.209482141084727828012999174891714,
)
_GAUSS = (
    0.0,
    0.129484966168869693270611432679082,
    0.0,
    0.279705391489276667901467771423780,
    0.0,
    0.381830050505118944950369775488975,
    0.0,
    0.417959183673469387755102040816327,
)


def kronrod_nodes(dtype: torch.dtype) -> Tensor:
    """Return the 15 nodes in (-1, 1), in increasing order.

    Examples
    --------
    >>> kronrod_nodes(torch.float64).shape
    torch.Size([15])
    """
    return torch.tensor([*(-x for x in _NODES), *_NODES[-2::-1]], dtype=dtype)


def kronrod(values: Tensor, half_width: Tensor) -> tuple[Tensor, Tensor]:
    """Return integrals and error estimates of panels from the integrand at their 15 nodes.

    The estimate is QUADPACK's: the difference of the two rules, scaled by how
    much the integrand varies over the panel.

    Parameters
    ----------
    values : Tensor, shape (..., panels, 15)
    half_width : Tensor, shape (..., panels)

    Returns
    -------
    tuple of Tensor
        Integral and error, each (..., panels).

    Examples
    --------
    >>> x = kronrod_nodes(torch.float64)
    >>> kronrod((x**22).unsqueeze(0), torch.ones(1, dtype=torch.float64))[0] * 23 / 2
    tensor([1.], dtype=torch.float64)
    """
    weights = values.new_tensor([*_KRONROD, *_KRONROD[-2::-1]])
    gauss = values.new_tensor([*_GAUSS, *_GAUSS[-2::-1]])
    integral = values @ weights
    difference = (integral - values @ gauss).abs() * half_width
    variation = ((values - integral.unsqueeze(-1) / 2).abs() @ weights) * half_width
    ratio = (200 * difference / variation.clamp(min=torch.finfo(values.dtype).tiny)) ** 1.5
    return integral * half_width, torch.where(variation > 0, variation * ratio.clamp(max=1.0), difference)
