"""Small stable functions on tensors that the log scale needs everywhere.

Each keeps full relative accuracy over its whole domain and has finite
gradients wherever its value is finite. ``torch.where`` passes NaN gradients
out of the branch that was not taken, so every branch receives an argument
that is harmless to it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

LOG_2 = math.log(2.0)


def log1mexp(d: Tensor) -> Tensor:
    r"""Return :math:`\log(1 - e^{-d})` for :math:`d \ge 0`.

    Uses ``log(-expm1(-d))`` for small and ``log1p(-exp(-d))`` for large ``d``
    (Maechler 2012). ``d = 0`` gives minus infinity, ``d = inf`` gives 0.

    Examples
    --------
    >>> log1mexp(torch.tensor([0.0, 1e-20, 50.0], dtype=torch.float64))
    tensor([       -inf, -4.6052e+01, -1.9287e-22], dtype=torch.float64)
    """
    small = d < LOG_2
    low = torch.log(-torch.expm1(-torch.where(small, d, torch.ones_like(d))))
    high = torch.log1p(-torch.exp(-torch.where(small, torch.ones_like(d), d)))
    return torch.where(small, low, high)


def log1mexp_of_log(log_d: Tensor) -> Tensor:
    r"""Return :math:`\log(1 - \exp(-e^{\log d}))` from :math:`\log d`.

    For tiny ``d`` the series :math:`\log d - d/2 + d^2/24` is used, so the
    result stays finite where ``d`` itself underflows to zero. Beyond
    :math:`\\log d = 7` the result is 0 to the last bit.

    Examples
    --------
    >>> log1mexp_of_log(torch.tensor([-1000.0], dtype=torch.float64))
    tensor([-1000.], dtype=torch.float64)
    """
    threshold = math.log(1e-3) if log_d.dtype == torch.float64 else math.log(1e-2)
    tiny = log_d < threshold
    safe_small = torch.where(tiny, log_d, torch.full_like(log_d, threshold))
    d = torch.exp(safe_small)
    series = safe_small - d / 2 + d * d / 24 - d**4 / 2880
    certain = log_d > 7.0
    safe_large = torch.where(tiny | certain, torch.zeros_like(log_d), log_d)
    value = torch.where(tiny, series, log1mexp(torch.exp(safe_large)))
    return torch.where(certain, torch.zeros_like(value), value)


def logdiffexp(a: Tensor, b: Tensor) -> Tensor:
    r"""Return :math:`\log(e^a - e^b)`; ``b = -inf`` gives ``a``, and minus infinity unless :math:`a > b`.

    Examples
    --------
    >>> logdiffexp(torch.tensor([-1000.0, -3.0]), torch.tensor([-1001.0, -2.0]))
    tensor([-1000.4587,       -inf])
    """
    open_below, nothing = torch.isneginf(b), a <= b
    simple = open_below | nothing
    safe_a = torch.where(simple, torch.zeros_like(a), a)
    safe_b = torch.where(simple, torch.full_like(b, -1.0), b)
    value = torch.where(open_below, a, safe_a + log1mexp(safe_a - safe_b))
    return torch.where(nothing, torch.full_like(value, -torch.inf), value)


def log_mass_between(low: tuple[Tensor, Tensor], high: tuple[Tensor, Tensor]) -> Tensor:
    """Return log(F(u) - F(l)) from log F and log(1 - F) at both ends, by whichever tail is accurate.

    Minus infinity where nothing lies between them, or rounding has them in the wrong order.

    Examples
    --------
    >>> low, high = (torch.tensor(-0.0), torch.tensor(-50.0)), (torch.tensor(-0.0), torch.tensor(-torch.inf))
    >>> log_mass_between(low, high)
    tensor(-50.)
    """
    right = low[0] > low[1]
    return logdiffexp(torch.where(right, low[1], high[0]), torch.where(right, high[1], low[0]))


def softplus(x: Tensor) -> Tensor:
    r"""Return :math:`\log(1 + e^x)` to full precision.

    torch switches to the identity at 20, where the error is still 2e-9; here
    it switches at 40, beyond float64's resolution.

    Examples
    --------
    >>> softplus(torch.tensor([0.0]))
    tensor([0.6931])
    """
    return functional.softplus(x, threshold=40.0)


def log_softplus(x: Tensor) -> Tensor:
    r"""Return :math:`\log\log(1 + e^x)`, which is close to ``x`` for very negative ``x``.

    Examples
    --------
    >>> log_softplus(torch.tensor([-1000.0]))
    tensor([-1000.])
    """
    tiny = x < -15.0
    safe_small = torch.where(tiny, x, torch.full_like(x, -15.0))
    series = safe_small + torch.log1p(-0.5 * torch.exp(safe_small))
    safe_large = torch.where(tiny, torch.zeros_like(x), x)
    return torch.where(tiny, series, torch.log(softplus(safe_large)))


def softplus_inverse(y: Tensor) -> Tensor:
    r"""Return ``x`` with :math:`\log(1 + e^x) = y` for ``y > 0``; 0 gives minus infinity.

    Examples
    --------
    >>> softplus_inverse(softplus(torch.tensor([-3.0, 40.0], dtype=torch.float64)))
    tensor([-3., 40.], dtype=torch.float64)
    """
    return y + log1mexp(y)
