r"""Bootstrap replicates of calibration in the large and slope from grouped rows.

A grid of experiments needs hundreds of thousands of logistic fits. Rows of the
same kind (event or not) with nearly the same linear predictor :math:`\eta` of
the full-sample fit enter a replicate as one row, at their mean and with the sum of
their counts. Groups are narrow where rows matter and wide where they do not: the
weight of a row is :math:`\sigma'(\eta) \le e^{-|\eta|}`, the width of its group
grows like :math:`e^{|\eta|/4}`. Replicates are shifted by the difference
between the exact and the grouped full-sample fit; what remains is far below
their standard deviation (tested), and the estimate itself is always exact.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from deeptram.evaluation.metrics.calibration import standardisation
from deeptram.evaluation.metrics.logistic import fit_intercept, fit_slope, informative, solve
from deeptram.evaluation.statistics import Statistic

WIDTH = 0.04  # of the groups at a linear predictor of zero
GROWTH = 4.0  # the width grows by the factor e every so many units
STEPS = 6  # at most, of Newton's method from the full-sample fit
SETTLED = 1e-4  # largest last step, which squares the error it leaves
BLOCK = 250  # replicates at once: they stay in the cache


class GroupedCalibration(Statistic):
    """Calibration in the large, or slope, of one threshold.

    Parameters
    ----------
    log_odds : Tensor, shape (n,)
        Predicted log-odds of the event.
    event : Tensor of bool, shape (n,)
    slope : bool
        The slope, or the intercept with the log-odds as offset.

    Examples
    --------
    >>> r = torch.linspace(-3, 3, 200, dtype=torch.float64)
    >>> event = torch.rand(200, generator=torch.Generator().manual_seed(1)) < torch.sigmoid(0.5 * r)
    >>> one = GroupedCalibration(r, event, slope=True)
    >>> counts = torch.ones(200, 1, dtype=torch.float64)
    >>> round(float(one.finish(one.columns() @ counts, counts)), 1)
    0.5
    """

    n_columns = 1

    def __init__(self, log_odds: Tensor, event: Tensor, *, slope: bool) -> None:
        kept, contradicted = informative(log_odds, event)
        self._n, self._slope, self._contradicted = len(event), slope, contradicted
        rows = torch.nonzero(kept).squeeze(1)
        r, happened = log_odds[kept].double(), event[kept]
        center, self._unit = standardisation(r) if slope else (0.0, 1.0)
        z = (r - center) / self._unit
        self._exact = self._full_fit(z, happened, torch.ones(len(r), 1, dtype=torch.float64))
        self._defined = not bool(self._exact.isnan().any())
        if self._defined:
            linear = self._exact[0] + (self._exact[1] if slope else 1.0) * z
            self._group_rows(linear, z, happened, rows)

    def columns(self) -> Tensor:
        return self._contradicted.double().unsqueeze(0)

    def finish(self, sums: Tensor, counts: Tensor) -> Tensor:
        if not self._defined:
            return sums.new_full((counts.shape[1],), torch.nan)
        grouped = torch.from_numpy(self._sum @ counts.numpy())
        coef = torch.cat([self._fit(block) for block in grouped.split(BLOCK, dim=1)])
        value = (coef - self._base[-1] + self._exact[-1]) / self._unit
        return torch.where(sums[-1] > 0, torch.nan, value)

    def _full_fit(self, z: Tensor, event: Tensor, counts: Tensor, start: Tensor | None = None) -> Tensor:
        fit = fit_slope if self._slope else fit_intercept
        return fit(z, event, counts, start).coef

    def _group_rows(self, linear: Tensor, z: Tensor, event: Tensor, rows: Tensor) -> None:
        place = torch.floor(torch.sign(linear) * GROWTH * -torch.expm1(-linear.abs() / GROWTH) / WIDTH)
        _, group = torch.unique(2 * place.long() + event.long(), return_inverse=True)
        n_groups = int(group.max()) + 1
        size = torch.bincount(group, minlength=n_groups).double()
        self._z = torch.zeros(n_groups, dtype=torch.float64).index_add_(0, group, z) / size
        self._event = torch.zeros(n_groups, dtype=torch.bool)
        self._event[group] = event
        ones = np.ones(len(rows))
        self._sum = sparse.csr_matrix((ones, (group.numpy(), rows.numpy())), shape=(n_groups, self._n))
        self._base = self._full_fit(self._z, self._event, size.unsqueeze(1), self._exact.clone())

    def _fit(self, counts: Tensor) -> Tensor:
        """Return the estimates (B,) of grouped counts: Newton steps, with care where these do not settle.

        Without overlap of events and others there is no optimum, and steps do not settle.
        """
        z = self._z.unsqueeze(1)
        powers = torch.cat([torch.ones_like(z), z, z**2], dim=1).T.contiguous()
        order = 2 if self._slope else 1
        happened = powers[:order] @ (counts * self._event.unsqueeze(1))
        coef = self._base.expand(-1, counts.shape[1])
        for _ in range(STEPS):
            p = torch.sigmoid(coef[0] + z * coef[1] if self._slope else coef[0] + z)
            expected = counts * p
            score = happened - powers[:order] @ expected
            information = powers[: 2 * order - 1] @ expected.mul_(1 - p)
            matrix = torch.stack([information[:2], information[1:]]) if self._slope else information[None]
            step = solve(matrix, score)
            coef = coef + step
            restless = ~(step.abs().amax(0) < SETTLED)
            if not bool(restless.any()):
                break
        value = coef[-1].clone()
        if bool(restless.any()):
            again = torch.nonzero(restless).squeeze(1)
            start = self._base.expand(-1, len(again)).clone()
            value[again] = self._full_fit(self._z, self._event, counts[:, again], start)[-1]
        return value
