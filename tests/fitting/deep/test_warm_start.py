"""Training starts where the exact fit of the structured part ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from deeptram.bases import Bernstein, Cutpoints, Linear, LogLinear
from deeptram.evaluation import scores
from deeptram.fitting.deep.task import Setup
from deeptram.fitting.deep.warm_start import exact_start, free_numbers
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.fit import fit_exact
from deeptram.fitting.exact.nominal import fit_nominal
from deeptram.model import Encoded
from deeptram.model.terms import CI, CS, LS, SI, Scale
from deeptram.predictive.kinds import build_predictive


class Silent(nn.Module):
    """A network whose output is zero, so that the model is its structured part."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Linear(in_shape[0], out_features, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x):
        return self.layer(x)


def mean_nll(task, model):
    parameters = model.row_parameters(task.X, task.matrices)
    outcome = task.outcome
    pred = build_predictive(
        outcome.kind,
        parameters,
        outcome.basis,
        task.latent,
        levels=outcome.levels,
        log_first=outcome.log_first,
    )
    if outcome.is_discrete:
        return -float(np.mean(pred.log_prob(np.asarray(outcome.levels)[task.encoded.codes])))
    seen = task.encoded.observations
    if outcome.kind == "count":
        return float(scores.nll(seen.upper - outcome.log_first, pred))
    return float(scores.nll(seen, pred))


def exact_nll(task):
    outcome, encoded, matrices = task.outcome, task.encoded, task.matrices
    n = len(encoded)
    if outcome.kind == "nominal":
        names = [str(j) for j in range(matrices.x.shape[1])]
        return -fit_nominal(encoded.codes, len(outcome.levels), matrices.x, None, names).loglik / n
    data = StructuredData(
        latent=task.latent,
        basis=outcome.basis,
        x=matrices.x,
        observations=encoded.observations,
        codes=encoded.codes,
        n_classes=0 if outcome.levels is None else len(outcome.levels),
        strata=matrices.strata,
        n_strata=task.design.n_strata,
        scale=matrices.scale,
    )
    return -fit_exact(data).loglik / n


CASES = {
    "binary": ("binary", [LS("a + g")], {}),
    "ordinal": ("ordinal", [LS("a + g")], {}),
    "ordinal-strata": ("ordinal", [SI(strata="g"), LS("a")], {}),
    "ordinal-scale": ("ordinal", [LS("a"), Scale("c")], {}),
    "nominal": ("nominal", [LS("a + g")], {}),
    "continuous": ("continuous", [LS("a")], {}),
    "continuous-line": ("continuous", [LS("a")], {"basis": "linear"}),
    "continuous-strata": ("continuous", [SI(strata="g"), LS("a")], {"order": 3}),
    "count": ("count", [LS("a")], {"order": 4}),
    "count-log": ("count", [LS("a")], {"order": 4, "log_first": True}),
    "survival": ("survival", [LS("a")], {"order": 4, "log_first": True}),
    "survival-line": ("survival", [LS("a")], {"basis": "log-linear"}),
    "survival-exponential": ("survival", [LS("a")], {"basis": "log-linear", "fixed_slope": 1.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_training_starts_at_the_exact_fit(case, make_task, simulated):
    kind, terms, settings = CASES[case]
    task = make_task([*terms, CS(Silent, "b")], kind, simulated.X, simulated.y[kind], settings=settings)
    model = Setup(task).member(0).model
    # increments of zero are raised to 0.001, which costs next to nothing
    assert mean_nll(task, model) == pytest.approx(exact_nll(task), abs=2e-4)


@pytest.mark.parametrize("kind", ["ordinal", "nominal", "continuous"])
def test_the_constant_of_a_complex_intercept_starts_there_too(kind, make_task, simulated):
    task = make_task([CI(Silent, "b"), LS("a")], kind, simulated.X, simulated.y[kind])
    model = Setup(task).member(0).model
    assert mean_nll(task, model) == pytest.approx(exact_nll(task), abs=2e-4)


@pytest.mark.parametrize("basis", ["bernstein", "linear"])
def test_columns_far_from_zero_do_not_matter(basis, make_task, simulated):
    X = simulated.X.assign(a=50.0 + simulated.X.a)
    task = make_task(
        [LS("a"), CS(Silent, "b")],
        "continuous",
        X,
        simulated.y["continuous"],
        settings={"basis": basis, "order": 3 if basis == "bernstein" else 6},
        dtype="float64",
    )
    assert mean_nll(task, Setup(task).member(0).model) == pytest.approx(exact_nll(task), abs=2e-4)


def test_coefficients_are_in_the_users_units(make_task, simulated):
    X = simulated.X.assign(a=1e4 + 250.0 * simulated.X.a)
    task = make_task([LS("a"), CS(Silent, "b")], "ordinal", X, simulated.y["ordinal"])
    data = StructuredData(
        latent=task.latent, basis=task.outcome.basis, x=task.matrices.x, codes=task.encoded.codes, n_classes=4
    )
    exact, model = fit_exact(data), Setup(task).member(0).model
    np.testing.assert_allclose(model.coef, exact.beta, rtol=1e-6)
    np.testing.assert_allclose(model.theta, exact.theta, rtol=1e-5)


def test_without_warm_start_nothing_is_known(make_task, simulated):
    terms = [LS("a"), CS(Silent, "b")]
    task = make_task(terms, "ordinal", simulated.X, simulated.y["ordinal"], warm_start=False)
    model = Setup(task).member(0).model
    assert model.coef == 0.0
    assert torch.equal(model.intercept.free, torch.zeros(1, 3))


def test_separated_columns_start_at_zero(make_task, simulated):
    X = simulated.X.assign(perfect=simulated.y["binary"].astype(float))
    task = make_task([LS("perfect"), CS(Silent, "b")], "binary", X, simulated.y["binary"])
    model = Setup(task).member(0).model
    assert model.coef == 0.0
    share = simulated.y["binary"].mean()
    assert model.theta[0, 0] == pytest.approx(np.log((1 - share) / share), abs=1e-4)


@pytest.mark.parametrize(
    "levels", [[-1, 0, 1, 2, 3], [0, 1, 2, 3, 9], [-1, 0, 1, 2, 3, 9], [0, 0.5, 1, 2, 3]]
)
def test_empty_classes_start_finite(levels, make_task, simulated):
    y = simulated.y["ordinal"]
    task = make_task([LS("a"), CS(Silent, "b")], "ordinal", simulated.X, y, settings={"levels": levels})
    model = Setup(task).member(0).model
    assert np.isfinite(model.theta).all()
    assert (np.diff(model.theta) > 0).all()
    full = make_task([LS("a"), CS(Silent, "b")], "ordinal", simulated.X, y)
    assert mean_nll(task, model) == pytest.approx(exact_nll(full), abs=0.01)


def test_an_empty_nominal_class_starts_rare(make_task, simulated):
    settings = {"levels": ["p", "q", "r", "s", "t"]}
    task = make_task([CS(Silent, "b")], "nominal", simulated.X, simulated.y["nominal"], settings=settings)
    theta = Setup(task).member(0).model.theta[0]
    assert theta[3] == pytest.approx(np.log(0.5 / 241))


def test_an_unbounded_likelihood_starts_without_columns(make_task, simulated):
    """The column explains the outcome without error, so there is no maximum to start from."""
    y = 3.0 * simulated.X.a.to_numpy()
    settings = {"basis": "linear"}
    task = make_task([LS("a"), CS(Silent, "b")], "continuous", simulated.X, y, of="normal", settings=settings)
    data = StructuredData.of(task.outcome, task.latent, task.matrices, task.encoded, None, 1)
    start = exact_start(data, np.ones(data.x.shape[1], dtype=bool), nominal=False)
    assert start.beta == 0.0
    np.testing.assert_allclose(start.theta, [[-y.mean() / y.std(), 1 / y.std()]], rtol=1e-5)


def test_no_start_where_there_is_no_fit(make_task, simulated):
    task = make_task([LS("a")], "ordinal", simulated.X, simulated.y["ordinal"])
    one_class = Encoded(codes=np.zeros(240, dtype=np.int64))
    data = StructuredData.of(task.outcome, task.latent, task.matrices, one_class, None, 1)
    start = exact_start(data, np.ones(data.x.shape[1], dtype=bool), nominal=False)
    assert start is None or np.isfinite(start.theta).all()


@pytest.mark.parametrize("basis", [Cutpoints(5), Bernstein(3, (0.0, 1.0)), Linear(), LogLinear()])
def test_free_numbers_give_the_coefficients_back(basis, rng):
    theta = basis.theta_from_free(rng.normal(size=(2, basis.n_coef)))
    np.testing.assert_allclose(basis.theta_from_free(free_numbers(basis, theta)), theta, atol=1e-12)


def test_free_numbers_of_a_fixed_slope():
    assert free_numbers(LogLinear(fixed_slope=2.0), np.array([[3.0]])) == 3.0
