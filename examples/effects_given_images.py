"""Which effects a proportional-odds model of simulated columns has, given images that tell much of the class.

The columns of UTKFace and digits are drawn given the class, so that the model of them alone, SI-LS, has the
simulated log odds-ratios. Given an image, few classes are left, and the cumulative odds ratio is another one.
Here the classes are drawn from what the members of a run say of the test rows, the columns given these
classes, and the best effects are found beside a + b h: what an ideal CI-LS would have. (h of CI-LS and
SI-CS-LS says what the columns say, too, a little more than the images alone.)

    python examples/effects_given_images.py RUN --model CI --split 1
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

import deeptram as dt
from deeptram.datasets import digits
from deeptram.datasets.simulated import PAPER_EFFECTS, PAPER_SD, simulate_covariates
from deeptram.errors import DeeptramError, InvalidInputError
from deeptram.paper import RunFolder
from deeptram.paper.members import PARTS, load_member, load_parts

NAMES = tuple(PAPER_EFFECTS)
SDS = {"utkface": PAPER_SD, "digits": digits.SD}  # of the columns, given the class


def effects_given(h: Any, *, sd: float = PAPER_SD, n_draws: int = 10, seed: int = 1) -> np.ndarray:
    """Return the effects of the ten columns, a row of each draw, given h (n, K - 1) of the images."""
    h = np.asarray(h, dtype=np.float64)
    rng, found = np.random.default_rng(seed), []
    for draw in range(n_draws):
        codes = (rng.random(len(h))[:, None] > expit(h)).sum(axis=1)
        columns = simulate_covariates(codes, seed + draw, sd=sd)
        x = np.column_stack([columns[name] for name in NAMES])
        start = np.concatenate([np.zeros(h.shape[1]), [1.0], np.zeros(x.shape[1])])
        fit = minimize(_nll, start, (h, x, codes), jac=True, method="L-BFGS-B", options={"maxiter": 1000})
        found.append(fit.x[h.shape[1] + 1 :])
    return np.array(found)


def _nll(parameters: np.ndarray, h: np.ndarray, x: np.ndarray, codes: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean of -log P(Y = k | a + b h - x'beta), and its gradient in (a, b, beta)."""
    n, width = h.shape
    a, b, beta = parameters[:width], parameters[width], parameters[width + 1 :]
    moved = a + b * h - (x @ beta)[:, None]
    cdf = expit(np.column_stack([np.full(n, -np.inf), moved, np.full(n, np.inf)]))
    rows = np.arange(n)
    mass = cdf[rows, codes + 1] - cdf[rows, codes]
    if not (mass > 0).all():  # thresholds that cross: no distribution
        return np.inf, np.zeros_like(parameters)
    slopes = np.zeros((n, width + 2))  # of log P in the transformation at each threshold
    for at, sign in ((codes + 1, 1.0), (codes, -1.0)):
        slopes[rows, at] = sign * cdf[rows, at] * (1 - cdf[rows, at]) / mass
    inner = slopes[:, 1:-1]
    of_beta = -(inner.sum(axis=1)[:, None] * x).mean(axis=0)
    gradient = np.concatenate([inner.mean(axis=0), [(inner * h).sum(axis=1).mean()], of_beta])
    return float(-np.log(mass).mean()), -gradient


def pooled_h(run: RunFolder, model: str, loss: str, split: int) -> np.ndarray:
    """Return h of the recalibrated transformation ensemble of a run, test part, (n, K - 1)."""
    study, n_levels, parts = run.study(), len(run.config()["levels"]), load_parts(run)
    done = run.finished(study, run.data_digests())
    units = [one for one in done if (one.model, one.loss, one.split) == (model, loss, split)]
    if not units:
        there = ", ".join(sorted({f"{one.model} ({one.loss}, split {one.split})" for one in done}))
        raise InvalidInputError(
            f"{run.path} must have finished members of {model} ({loss}, split {split}), got "
            f"{there or 'none'}; choose --model, --loss and --split among these"
        )
    members = [load_member(run, unit, n_levels).predictions for unit in units]
    val, test = (dt.pool([member[part] for member in members]) for part in PARTS)
    outcomes = parts.codes[parts.splits[split - 1].validation]
    return np.asarray(dt.calibration.Recalibration().fit(val, outcomes).apply(test).trafo())


def main() -> None:
    """Print the effects."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--model", default="CI")
    parser.add_argument("--loss", default="nll")
    parser.add_argument("--split", type=int, default=1)
    arguments = parser.parse_args()
    try:
        run = RunFolder(arguments.run).require()
        dataset = run.study().dataset
        if dataset not in SDS:
            raise InvalidInputError(
                f"the run must be of {' or '.join(SDS)}, whose columns are simulated, got {dataset}"
            )
        h = pooled_h(run, arguments.model, arguments.loss, arguments.split)
    except DeeptramError as error:
        parser.error(str(error))
    nothing = np.tile(logit(expit(h).mean(axis=0)), (len(h), 1))  # the same classes, images left out
    without, given = (effects_given(one, sd=SDS[dataset]) for one in (nothing, h))
    for name, alone, beside in zip(NAMES, without.T, given.T, strict=True):
        error_of_mean = beside.std(ddof=1) / len(beside) ** 0.5
        print(
            f"{name}: simulated {PAPER_EFFECTS[name]:.3f}, without images {alone.mean():.3f}, given them "
            f"{beside.mean():.3f} ± {error_of_mean:.3f}"
        )


if __name__ == "__main__":
    main()
