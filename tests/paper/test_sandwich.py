from __future__ import annotations

import numpy as np
import torch

from deeptram.estimators import Tram
from deeptram.evaluation import scores
from deeptram.paper.sandwich import rps_standard_errors
from deeptram.predictive.discrete import DiscretePredictive


def simulate(rng, n=600):
    x = rng.normal(size=(n, 2))
    y = (rng.logistic(size=n) + x @ [0.8, -0.4])[:, None] > np.array([-1.0, 0.0, 1.5])
    return x, y.sum(axis=1)


def test_against_derivatives_by_autograd(rng):
    x, y = simulate(rng, 80)
    model = Tram(outcome="ordinal", loss="rps").fit(x, y)
    start = torch.tensor(np.r_[model.theta_, model.coef_.to_numpy()])
    design, codes = torch.tensor(x), torch.tensor(y)

    def losses(parameters):
        h = parameters[:3] - (design @ parameters[3:]).unsqueeze(1)
        return scores.rps(codes.numpy(), DiscretePredictive.from_h(h), reduction="none")

    hessian = torch.autograd.functional.hessian(lambda p: losses(p).sum(), start)
    gradients = torch.autograd.functional.jacobian(losses, start)
    inverse = torch.linalg.inv(hessian)
    expected = torch.sqrt(torch.diag(inverse @ gradients.T @ gradients @ inverse))[3:]
    found = rps_standard_errors(model.predict_distribution(x).trafo(), y, x)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-8)


def test_against_the_spread_of_fits_to_fresh_data(rng):
    estimates, errors = [], []
    for _ in range(60):
        x, y = simulate(rng)
        model = Tram(outcome="ordinal", loss="rps").fit(x, y)
        estimates.append(model.coef_.to_numpy())
        errors.append(rps_standard_errors(model.predict_distribution(x).trafo(), y, x))
    ratio = np.mean(errors, axis=0) / np.std(estimates, axis=0, ddof=1)
    assert (np.abs(ratio - 1) < 0.3).all()


def test_no_error_where_there_is_no_minimum():
    x = np.ones((4, 1))
    h = np.full((4, 1), 8.0)
    assert np.isnan(rps_standard_errors(h, np.array([1, 1, 1, 1]), x)).all()
