"""Training losses against the evaluation scores, and against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from deeptram import latent
from deeptram.bases import Bernstein, Linear, LogLinear
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation import scores
from deeptram.fitting.deep.losses import ClassLoss, LineLoss, OrderedLogitLoss, make_loss
from deeptram.model import Encoded, Outcome, OutcomeSettings
from deeptram.model.parts import Working
from deeptram.predictive.kinds import RowParameters, build_predictive
from deeptram.responses import Observations

LATENTS = latent.names()
BASES = {
    "bernstein": (Bernstein(5, (1.0, 9.0)), None),
    "bernstein-log": (Bernstein(4, (1.0, 9.0), log_first=True), None),
    "linear": (Linear(), (5.0, 2.5)),
    "log-linear": (LogLinear(), (1.5, 0.6)),
    "exponential": (LogLinear(fixed_slope=1.0), None),
}


def observations(n, rng):
    """Rows of every kind: exact, interval, left, right, unknown, and truncated ones of each."""
    lower = rng.uniform(0.5, 11.0, n)
    upper = lower + rng.uniform(0.01, 2.0, n)
    kind = np.arange(n) % 5
    upper[kind == 0] = lower[kind == 0]
    lower[(kind == 2) | (kind == 4)] = -np.inf
    upper[(kind == 3) | (kind == 4)] = np.inf
    entry = np.where(np.arange(n) % 3 == 0, 0.3, -np.inf)
    return Observations(lower, upper, entry)


def random_working(basis, n, rng, scale=True, members=None):
    lead = (n,) if members is None else (members, n)
    free = torch.as_tensor(rng.normal(size=(*lead, basis.n_coef)))
    return Working(
        free,
        basis,
        torch.as_tensor(rng.normal(size=lead)),
        torch.as_tensor(0.3 * rng.normal(size=lead)) if scale else None,
    )


def user_theta(theta, line):
    if line is None:
        return theta
    slope = theta[..., 1] / line[1]
    return torch.stack([theta[..., 0] - line[0] * slope, slope], dim=-1)


@pytest.mark.parametrize("name", LATENTS)
@pytest.mark.parametrize("basis_name", BASES)
def test_line_loss_is_the_score(name, basis_name, rng):
    basis, line = BASES[basis_name]
    seen, F = observations(60, rng), latent.get(name)
    working = random_working(basis, 60, rng)
    loss = LineLoss(basis, F, line)
    rows = loss.rows(working, loss.target(Encoded(observations=seen), torch.float64))
    parameters = RowParameters(user_theta(working.theta, line), working.shift, working.log_scale)
    pred = build_predictive("survival", parameters, basis, F)
    expected = scores.nll(seen, pred, reduction="none")
    torch.testing.assert_close(rows, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", range(5))
def test_line_loss_with_one_kind_only(kind, rng):
    seen = observations(60, rng).take(np.arange(60) % 5 == kind)
    basis, F = Bernstein(5, (1.0, 9.0)), latent.get("normal")
    working = random_working(basis, 12, rng)
    loss = LineLoss(basis, F)
    rows = loss.rows(working, loss.target(Encoded(observations=seen), torch.float64))
    parameters = RowParameters(working.theta, working.shift, working.log_scale)
    expected = scores.nll(seen, build_predictive("survival", parameters, basis, F), reduction="none")
    torch.testing.assert_close(rows, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("log_first", [False, True])
def test_counts_are_scored_as_counts(log_first, rng):
    y = np.array([0, 0, 1, 2, 3, 7, 12])
    settings = OutcomeSettings("count", log_first=log_first, order=4)
    outcome, encoded = Outcome.fit(settings, y)
    F = latent.get("logistic")
    loss = make_loss("nll", outcome, F)
    working = random_working(outcome.basis, len(y), rng, scale=False)
    rows = loss.rows(working, loss.target(encoded, torch.float64))
    parameters = RowParameters(working.theta, working.shift)
    pred = build_predictive("count", parameters, outcome.basis, F, log_first=log_first)
    torch.testing.assert_close(rows, scores.nll(y, pred, reduction="none"), rtol=1e-9, atol=1e-9)


def test_normal_linear_model_has_the_normal_density(rng):
    y = rng.normal(10.0, 2.0, 20)
    loss = LineLoss(Linear(), latent.get("normal"), (10.0, 2.0))
    free = torch.tensor([[0.3, np.log(np.expm1(0.8))]], dtype=torch.float64)
    working = Working(free, Linear(), torch.zeros(20, dtype=torch.float64))
    rows = loss.rows(working, loss.target(Encoded(observations=Observations(y, y)), torch.float64))
    # h = 0.3 + 0.8 (y - 10) / 2, so y is normal with sd 2.5 around 10 - 0.3 * 2.5
    expected = -stats.norm(10 - 0.3 * 2.5, 2.5).logpdf(y)
    np.testing.assert_allclose(rows.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("score", ["nll", "rps", "brier"])
def test_class_losses_are_plain_formulas(score, rng):
    outcome, encoded = Outcome.fit(OutcomeSettings("ordinal"), np.arange(24) % 4)
    basis, F = outcome.basis, latent.get("logistic")
    working = random_working(basis, 24, rng)
    loss = make_loss(score, outcome, F)
    rows = loss.rows(working, loss.target(encoded, torch.float64)).numpy()
    h = np.exp(working.log_scale.numpy())[:, None] * working.theta.numpy() - working.shift.numpy()[:, None]
    cdf = np.column_stack([stats.logistic.cdf(h), np.ones(24)])
    pmf = np.diff(cdf, prepend=0.0, axis=1)
    codes = encoded.codes
    expected = {
        "nll": -np.log(pmf[np.arange(24), codes]),
        "rps": ((cdf - (np.arange(4) >= codes[:, None])) ** 2)[:, :3].mean(axis=1),
        "brier": 0.5 * ((pmf - (np.arange(4) == codes[:, None])) ** 2).sum(axis=1),
    }[score]
    np.testing.assert_allclose(rows, expected, rtol=1e-10)


@pytest.mark.parametrize("n_levels", [2, 3, 6])
@pytest.mark.parametrize("shared", [True, False])
def test_the_three_sigmoids_are_the_score(n_levels, shared, rng):
    """Its fast form for the logistic latent variable gives the log-score itself, and its gradient."""
    outcome, encoded = Outcome.fit(OutcomeSettings("ordinal"), np.arange(30) % n_levels)
    fast, plain = (
        make_loss("nll", outcome, latent.get("logistic")),
        ClassLoss("nll", outcome, latent.get("logistic")),
    )
    assert isinstance(fast, OrderedLogitLoss)
    target = fast.target(encoded, torch.float64)
    free = torch.as_tensor(3 * rng.normal(size=(1 if shared else 30, n_levels - 1))).requires_grad_()
    for shift in (None, torch.as_tensor(5 * rng.normal(size=30)).requires_grad_()):
        working = Working(free, outcome.basis, shift)
        torch.testing.assert_close(
            fast.rows(working, target), plain.rows(working, target), rtol=1e-11, atol=1e-12
        )
        wanted = [free] if shift is None else [free, shift]
        gradients = [torch.autograd.grad(loss.rows(working, target).sum(), wanted) for loss in (fast, plain)]
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-10)


def test_nominal_loss_is_the_softmax(rng):
    outcome, encoded = Outcome.fit(OutcomeSettings("nominal"), np.array(list("abcabc")))
    logits = torch.as_tensor(rng.normal(size=(6, 2)))
    loss = make_loss("nll", outcome, latent.get("logistic"))
    rows = loss.rows(Working(logits, outcome.basis), loss.target(encoded, torch.float64))
    full = torch.cat([torch.zeros(6, 1, dtype=torch.float64), logits], dim=1)
    expected = torch.nn.functional.cross_entropy(full, torch.as_tensor(encoded.codes), reduction="none")
    torch.testing.assert_close(rows, expected)


@pytest.mark.parametrize("kind", ["ordinal", "continuous"])
def test_members_side_by_side_are_members_one_by_one(kind, rng):
    y = np.arange(20) % 4 if kind == "ordinal" else rng.normal(size=20)
    outcome, encoded = Outcome.fit(OutcomeSettings(kind, order=4), y)
    loss = make_loss("nll", outcome, latent.get("logistic"))
    target = loss.target(encoded, torch.float64)
    working = random_working(outcome.basis, 20, rng, members=3)
    rows = torch.arange(20).expand(3, 20)
    together = loss.rows(working, target.take(rows))
    parts = zip(working.free, working.shift, working.log_scale, strict=True)
    alone = [loss.rows(Working(free, outcome.basis, *part), target) for free, *part in parts]
    torch.testing.assert_close(together, torch.stack(alone))


def test_one_baseline_stands_for_all_rows(rng):
    outcome, encoded = Outcome.fit(OutcomeSettings("continuous", order=4), rng.normal(size=20))
    for score in ("nll", "crps"):
        loss = make_loss(score, outcome, latent.get("logistic"))
        free = torch.as_tensor(rng.normal(size=(1, 5)))
        shift = torch.as_tensor(rng.normal(size=20))
        target = loss.target(encoded, torch.float64)
        shared = loss.rows(Working(free, outcome.basis, shift), target)
        each = loss.rows(Working(free.expand(20, -1), outcome.basis, shift), target)
        torch.testing.assert_close(shared, each)


@pytest.mark.parametrize("kind", ["continuous", "count"])
def test_crps_is_the_score_and_has_a_gradient(kind, rng):
    y = rng.normal(size=12) if kind == "continuous" else rng.poisson(3, 12)
    outcome, encoded = Outcome.fit(OutcomeSettings(kind, order=3), y)
    F = latent.get("logistic")
    loss = make_loss("crps", outcome, F)
    free = torch.as_tensor(rng.normal(size=(12, 4))).requires_grad_()
    shift = torch.as_tensor(rng.normal(size=12)).requires_grad_()
    target = loss.target(encoded, torch.float64)

    def total(free, shift):
        return loss.rows(Working(free, outcome.basis, shift), target)

    rows = total(free, shift)
    parameters = RowParameters(outcome.basis.theta_from_free(free), shift)
    pred = build_predictive(kind, parameters, outcome.basis, F)
    torch.testing.assert_close(rows, scores.crps(y, pred, reduction="none"))
    rows.sum().backward()
    step = 1e-5 * torch.ones_like(shift)
    with torch.no_grad():
        numeric = (total(free, shift + step) - total(free, shift - step)) / 2e-5
    torch.testing.assert_close(shift.grad, numeric, rtol=1e-4, atol=1e-6)
    assert torch.isfinite(free.grad).all()


# -- float32 far out ------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["nll", "rps", "brier"])
@pytest.mark.parametrize("name", ["logistic", "normal"])
def test_gradients_of_classes_are_finite_in_float32_saturation(score, name):
    outcome, encoded = Outcome.fit(OutcomeSettings("ordinal"), np.arange(40) % 5)
    loss = make_loss(score, outcome, latent.get(name))
    sizes = torch.tensor([-80.0, -30.0, 0.0, 30.0, 80.0])
    free = sizes.repeat(8)[:, None].expand(40, 4).clone().requires_grad_()
    shift = (
        torch.tensor([-300.0, -60.0, -5.0, 0.0, 5.0, 60.0, 300.0, 0.0]).repeat_interleave(5).requires_grad_()
    )
    working = Working(free, outcome.basis, shift)
    rows = loss.rows(working, loss.target(encoded, torch.float32))
    assert torch.isfinite(rows).all()
    rows.sum().backward()
    assert torch.isfinite(free.grad).all()
    assert torch.isfinite(shift.grad).all()


@pytest.mark.parametrize("name", LATENTS)
def test_gradients_on_the_line_are_finite_in_float32_saturation(name, rng):
    seen = observations(45, rng)
    basis = Bernstein(5, (1.0, 9.0))
    loss = LineLoss(basis, latent.get(name))
    free = torch.tensor([-80.0, -20.0, 0.0]).repeat(15)[:, None].expand(45, 6).clone()
    free[:, 0] = 0.0
    free.requires_grad_()
    reach = 30.0 if "extreme" in name else 200.0
    shift = torch.linspace(-reach, reach, 45).requires_grad_()
    working = Working(free, basis, shift)
    rows = loss.rows(working, loss.target(Encoded(observations=seen), torch.float32))
    assert torch.isfinite(rows).all()
    rows.sum().backward()
    assert torch.isfinite(free.grad).all()
    assert torch.isfinite(shift.grad).all()


def test_narrow_intervals_do_not_cancel_in_float32():
    """A count of 10,000 is an interval of relative width 1e-4; float32 differences of h would be noise."""
    basis, F = Bernstein(6, (0.0, 20_000.0)), latent.get("logistic")
    loss = LineLoss(basis, F)
    seen = Encoded(observations=Observations(np.arange(9_990.0, 10_010.0), np.arange(9_991.0, 10_011.0)))
    rows = {}
    for dtype in (torch.float32, torch.float64):
        free = torch.tensor([[-3.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]], dtype=dtype)
        working = Working(free, basis, torch.zeros(20, dtype=dtype))
        rows[dtype] = loss.rows(working, loss.target(seen, dtype)).double()
    torch.testing.assert_close(rows[torch.float32], rows[torch.float64], rtol=1e-6, atol=1e-6)


# -- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "y", "loss", "match"),
    [
        (
            "continuous",
            [1.0, 2.0],
            "rps",
            "loss='rps' is for classes, got outcome='continuous'; use loss='crps'",
        ),
        ("count", [1, 2], "brier", "loss='brier' is for classes, got outcome='count'; use loss='crps'"),
        (
            "ordinal",
            [1, 2],
            "crps",
            "loss='crps' is for outcomes on the line, got outcome='ordinal'; use loss='rps'",
        ),
        (
            "nominal",
            [1, 2],
            "rps",
            "loss='rps' needs an ordered outcome, got outcome='nominal'; use loss='brier'",
        ),
    ],
)
def test_undefined_losses(kind, y, loss, match):
    outcome, _ = Outcome.fit(OutcomeSettings(kind), y)
    with pytest.raises(UnsupportedError, match=match):
        make_loss(loss, outcome, latent.get("logistic"))


def test_crps_of_censored_outcomes():
    outcome, _ = Outcome.fit(OutcomeSettings("survival"), [1.0, 2.0])
    loss = make_loss("crps", outcome, latent.get("logistic"))
    seen = Encoded(observations=Observations(np.array([1.0]), np.array([np.inf])))
    with pytest.raises(
        UnsupportedError, match="loss='crps' needs exact outcomes, got censored or truncated ones"
    ):
        loss.target(seen, torch.float64)


def test_outcomes_of_the_wrong_kind():
    line, _ = Outcome.fit(OutcomeSettings("continuous"), [1.0, 2.0])
    classes, codes = Outcome.fit(OutcomeSettings("ordinal"), [1, 2])
    F = latent.get("logistic")
    with pytest.raises(InvalidInputError, match="this loss needs outcomes on the line, got classes"):
        make_loss("nll", line, F).target(codes, torch.float64)
    with pytest.raises(InvalidInputError, match="this loss needs class labels, got an outcome on the line"):
        make_loss("nll", classes, F).target(
            Encoded(observations=observations(5, np.random.default_rng(0))), torch.float64
        )
    with pytest.raises(
        InvalidInputError, match="this loss needs outcomes on the line, got classes; use loss='rps'"
    ):
        make_loss("crps", line, F).target(codes, torch.float64)
