r"""Complex shifts with mean zero, or orthogonal to the linear shift.

Both are done after training and change the reading, not the distribution: what
the columns of LS explain of :math:`\eta(B)` on the training rows moves to their
coefficients, the mean to the intercept,

.. math:: x'\beta + \eta = x'(\beta + c) + (\eta - x'c - m) + m .

The stored slopes c and mean m apply to new data unchanged (post-hoc
orthogonalisation; Rügamer 2023, A new PHO-rmula for improved performance of
semi-structured networks).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from deeptram.fitting.deep.task import Setup
from deeptram.inputs.batches import Source, spans
from deeptram.model.deep import DeepModel, evaluating
from deeptram.model.parts import ComplexIntercept, ComplexShift, as_float64


def identify_shifts(model: DeepModel, setup: Setup, rows: Tensor) -> None:
    """Take mean and explained part out of the complex shifts that ask for it, in place.

    Parameters
    ----------
    model : DeepModel
        Trained.
    setup : Setup
        Whose data it was trained on.
    rows : Tensor of int
        The training rows.
    """
    first = int(isinstance(model.intercept, ComplexIntercept))
    index = rows.cpu().numpy()
    x = setup.task.matrices.x[index]
    weights = None if setup.task.sample_weight is None else setup.task.sample_weight[index]
    for shift, term, sources in zip(
        model._complex_shifts(), setup.task.spec.shifts, setup.data.nets[first:], strict=True
    ):
        if not (term.center or term.orthogonalize):
            continue
        eta = _outputs(model, shift, sources, rows)
        if term.orthogonalize:
            kept = setup.scaling.x_kept
            scaled = (x[:, kept] - setup.scaling.x_mean[kept]) / setup.scaling.x_sd[kept]
            design = np.column_stack([np.ones(len(x)), scaled])
            root = np.ones((len(x), 1)) if weights is None else np.sqrt(weights)[:, None]
            slopes = np.linalg.lstsq(design * root, eta * root, rcond=None)[0][1:]
            shift.slopes[torch.as_tensor(kept)] = torch.as_tensor(
                slopes / setup.scaling.x_sd[kept][:, None]
            ).to(shift.slopes.device)
            eta = eta - x @ as_float64(shift.slopes)
        if term.center:
            shift.mean.copy_(torch.as_tensor(np.average(eta, axis=0, weights=weights)))


def _outputs(model: DeepModel, shift: ComplexShift, sources: list[Source], rows: Tensor) -> np.ndarray:
    with evaluating(model):
        pieces = [
            shift(*(source.gather(rows[start:stop]) for source in sources))
            for start, stop in spans(len(rows), sources)
        ]
    return as_float64(torch.cat(pieces))
