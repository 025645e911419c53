"""The fast ordinal likelihood against SciPy, automatic differentiation and the general likelihood."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from deeptram import latent as latents
from deeptram.likelihood.cutpoints import CutpointLikelihood, cells_of
from derivatives import check_derivatives

LATENTS = ["logistic", "normal", "minimum-extreme-value", "maximum-extreme-value"]
SCIPY = {
    "logistic": stats.logistic,
    "normal": stats.norm,
    "minimum-extreme-value": stats.gumbel_l,
    "maximum-extreme-value": stats.gumbel_r,
}


def make(latent, n_classes=4, strata=1, p=2, weighted=False, offset=False, drop=(), n=60):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, p))
    codes = rng.integers(0, n_classes, size=n)
    for k in drop:
        codes[codes == k] = (k + 1) % n_classes
    group = rng.integers(0, strata, size=n)
    weights = rng.uniform(0.1, 3.0, size=n) if weighted else None
    known = rng.normal(size=n) if offset else None
    cells = cells_of(codes, n_classes, group if strata > 1 else None, strata)
    likelihood = CutpointLikelihood(
        codes if strata == 1 else group * n_classes + codes,
        cells,
        torch.from_numpy(x),
        None if weights is None else torch.from_numpy(weights),
        latents.get(latent),
        shift_offset=None if known is None else torch.from_numpy(known),
    )
    free = np.concatenate([np.sort(rng.normal(size=n_classes - 1)) + 0.1 * np.arange(n_classes - 1)] * strata)
    free = free[: cells.n_columns] if strata == 1 else np.sort(rng.normal(size=cells.n_columns))
    point = np.concatenate([free, rng.normal(size=p)])
    return likelihood, point, cells, x, codes, group, weights, known


@pytest.mark.parametrize("latent", LATENTS)
def test_rows_equal_differences_of_scipy_distributions(latent):
    likelihood, point, cells, x, codes, group, _, known = make(latent, strata=2, offset=True)
    theta = cells.expand(point[: cells.n_columns])
    bounds = np.hstack([np.full((2, 1), -np.inf), theta, np.full((2, 1), np.inf)])
    eta = x @ point[cells.n_columns :] + known
    cdf = SCIPY[latent].cdf
    expected = cdf(bounds[group, codes + 1] - eta) - cdf(bounds[group, codes] - eta)
    rows = likelihood.rows(torch.from_numpy(point))
    np.testing.assert_allclose(torch.exp(rows), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("latent", LATENTS)
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"weighted": True},
        {"n_classes": 2},
        {"strata": 3, "weighted": True},
        {"offset": True, "weighted": True},
        {"p": 0},
        {"drop": (0,)},
        {"drop": (1,), "n_classes": 5},
        {"drop": (3,), "offset": True},
    ],
    ids=str,
)
def test_derivatives(latent, case):
    likelihood, point, *_, weights, _ = make(latent, **case)
    check_derivatives(likelihood, point, weights)


def test_crossing_cutpoints_are_outside_the_domain():
    likelihood, point, *_ = make("logistic")
    crossed = point.copy()
    crossed[:2] = point[1::-1]
    assert likelihood.value(torch.from_numpy(crossed)) == np.inf
    assert likelihood.evaluate(torch.from_numpy(crossed))[0] == np.inf
    assert np.isneginf(likelihood.rows(torch.from_numpy(crossed)).numpy()).all()


@pytest.mark.parametrize("latent", LATENTS)
def test_derivatives_stay_finite_far_out(latent):
    likelihood, point, cells, *_ = make(latent)
    far = point.copy()
    far[cells.n_columns :] *= 15.0
    value, gradient, hessian = likelihood.evaluate(torch.from_numpy(far))
    if np.isfinite(value):
        assert torch.isfinite(gradient).all()
        assert torch.isfinite(hessian).all()
    else:
        assert value == np.inf


def test_a_stratum_with_one_class_says_nothing():
    codes, strata = np.array([0, 1, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1])
    x = np.arange(6.0)[:, None]
    cells = cells_of(codes, 2, strata, 2)
    likelihood = CutpointLikelihood(
        strata * 2 + codes, cells, torch.from_numpy(x), None, latents.get("logistic")
    )
    assert likelihood.n_parameters == 2
    rows = likelihood.rows(torch.tensor([0.3, -0.2], dtype=torch.float64))
    np.testing.assert_array_equal(rows[4:], 0.0)
    check_derivatives(likelihood, np.array([0.3, -0.2]))


def test_cells_of_empty_classes():
    cells = cells_of(np.array([1, 3, 3, 4]), 6, None, 1)
    np.testing.assert_array_equal(cells.columns, [[-1, 0, 0, 1, -2]])
    np.testing.assert_array_equal(cells.expand(np.array([0.5, 2.0])), [[-np.inf, 0.5, 0.5, 2.0, np.inf]])
    np.testing.assert_array_equal(cells.counts, [[0, 1, 0, 2, 1, 0]])


def test_columns_are_centred_and_scaled_on_the_way_in():
    _, point, cells, x, codes, *_ = make("normal")
    centre, spread = np.array([3.0, -1.0]), np.array([0.5, 4.0])
    scaled = torch.from_numpy((x - centre) / spread)
    expected = CutpointLikelihood(codes, cells, scaled, None, latents.get("normal"))
    found = CutpointLikelihood(
        codes, cells, torch.from_numpy(x), None, latents.get("normal"), centre=centre, spread=spread
    )
    at = torch.from_numpy(point)
    for ours, theirs in zip(found.evaluate(at), expected.evaluate(at), strict=True):
        np.testing.assert_array_equal(ours, theirs)
