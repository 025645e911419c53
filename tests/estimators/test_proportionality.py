"""The test of proportional odds and hazards: size, power, other software, censoring, loaded models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter
from lifelines.datasets import load_rossi
from lifelines.statistics import proportional_hazard_test
from scipy import stats

import deeptram as dt
from deeptram.errors import EmptyClassWarning, InvalidInputError, UnsupportedError
from deeptram.fitting.exact.inference import with_flexible_baseline


def ordinal(rng: np.random.Generator, n: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(n, 2))
    latent = 0.7 * x[:, 0] + np.exp(spread * x[:, 1]) * rng.logistic(size=n)
    return x, np.digitize(latent, [-1.5, 0.0, 1.5])


def test_statistic_of_classes_by_automatic_differentiation(rng: np.random.Generator) -> None:
    """g'H^-1 g of the likelihood with an effect b + d k at cutpoint k, written down here."""
    x, y = ordinal(rng, 400, 0.4)
    model = dt.Polr().fit(x, y)
    design, codes, centred = torch.tensor(x), torch.tensor(y), torch.tensor(x[:, 1] - x[:, 1].mean())

    def loglik(p: torch.Tensor) -> torch.Tensor:
        moving = centred[:, None] * p[5] * torch.arange(3)
        cdf = torch.sigmoid(p[:3] - (design @ p[3:5])[:, None] - moving)
        cdf = torch.cat([torch.zeros(400, 1), cdf, torch.ones(400, 1)], dim=1).double()
        rows = torch.arange(400)
        return torch.log(cdf[rows, codes + 1] - cdf[rows, codes]).sum()

    point = torch.tensor([*model.theta_, *model.coef_, 0.0], dtype=torch.float64)
    gradient = torch.autograd.functional.jacobian(loglik, point).numpy()
    hessian = -torch.autograd.functional.hessian(loglik, point).numpy()
    table = dt.proportionality_test(model)
    assert table["statistic"]["x1"] == pytest.approx(gradient @ np.linalg.solve(hessian, gradient), rel=1e-5)
    assert table["df"].to_dict() == {"x0": 1, "x1": 1, "overall": 2}
    assert table["p"]["x1"] == pytest.approx(stats.chi2.sf(table["statistic"]["x1"], 1))


def test_rossi_as_by_schoenfeld_residuals() -> None:
    rossi = load_rossi().sort_values("week")
    X = rossi.drop(columns=["week", "arrest"]).astype(float)
    model = dt.Coxph().fit(X, dt.Surv.right(rossi["week"], rossi["arrest"]))
    cox = CoxPHFitter().fit(rossi, "week", "arrest")
    for transform in ("rank", "log", "identity"):
        ours = dt.proportionality_test(model, transform=transform)["p"]
        theirs = proportional_hazard_test(cox, rossi, time_transform=transform).p_value
        assert ours["age"] < 0.01
        others = [name for name in X if name not in ("age", "wexp")]
        assert (ours[others] > 0.05).all()
        assert stats.spearmanr(ours[list(X)], theirs).statistic > 0.8


def changing_hazard(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.column_stack([rng.normal(size=n), rng.integers(0, 2, size=n)]).astype(float)
    time = (rng.exponential(size=n) * np.exp(-0.3 * x[:, 0])) ** (1 / np.where(x[:, 1] == 1, 1.4, 1.0))
    limit = rng.uniform(0, 3, size=n)
    order = np.argsort(np.minimum(time, limit))
    return x[order], np.minimum(time, limit)[order], (time <= limit)[order]


def test_statistics_follow_those_of_lifelines(rng: np.random.Generator) -> None:
    ours, theirs = [], []
    for _ in range(12):
        x, time, event = changing_hazard(rng, 300)
        model = dt.Coxph(order=3).fit(x, dt.Surv.right(time, event))
        ours.append(dt.proportionality_test(model)["statistic"]["x1"])
        frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "t": time, "d": event})
        cox = CoxPHFitter().fit(frame, "t", "d")
        theirs.append(np.asarray(proportional_hazard_test(cox, frame).test_statistic)[1])
    assert np.corrcoef(ours, theirs)[0, 1] > 0.95
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.2)


def line_data(name: str, rng: np.random.Generator, n: int) -> tuple[np.ndarray, Any]:
    x = np.column_stack([rng.normal(size=n), rng.integers(0, 2, size=n)]).astype(float)
    noise = {
        "Coxph": np.log(rng.exponential(size=n)),
        "Colr": rng.logistic(size=n),
        "BoxCox": rng.normal(size=n),
    }
    time = np.exp((noise[name] + 0.5 * x[:, 0] - 0.5 * x[:, 1]) / 1.5)
    limit = rng.exponential(4.0, size=n)
    return x, dt.Surv.right(np.minimum(time, limit), time <= limit)


@pytest.mark.slow
@pytest.mark.parametrize("order", [3, 6])
@pytest.mark.parametrize("name", ["Coxph", "Colr", "BoxCox"])
def test_level_on_the_line(name: str, order: int) -> None:
    rng = np.random.default_rng(61)
    p = []
    for _ in range(400):
        model = getattr(dt, name)(order=order).fit(*line_data(name, rng, 300))
        p.append(dt.proportionality_test(model)["p"])
    shares = (np.array(p) < 0.05).mean(axis=0)
    assert ((shares > 0.02) & (shares < 0.09)).all()


def test_level_and_power_of_classes(rng: np.random.Generator) -> None:
    null = [dt.proportionality_test(dt.Polr().fit(*ordinal(rng, 300, 0.0)))["p"]["x1"] for _ in range(120)]
    power = [dt.proportionality_test(dt.Polr().fit(*ordinal(rng, 300, 0.6)))["p"]["x1"] for _ in range(20)]
    assert stats.kstest(null, "uniform").pvalue > 0.01
    assert np.mean(np.array(null) < 0.05) < 0.1
    assert np.mean(np.array(power) < 0.05) > 0.8


@pytest.mark.parametrize("name", ["Coxph", "Colr", "BoxCox", "Survreg", "Lm"])
def test_crossing_effects_are_found(name: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2, size=(300, 1)).astype(float)
    crossing = rng.weibull(np.where(x[:, 0] == 1, 3.0, 0.8))
    model = getattr(dt, name)().fit(x, dt.Surv.right(crossing, np.ones(300)))
    assert dt.proportionality_test(model)["p"]["x0"] < 1e-6


@pytest.mark.parametrize("transform", ["rank", "log", "identity"])
def test_answers_do_not_depend_on_units(transform: str, rng: np.random.Generator) -> None:
    x, time, event = changing_hazard(rng, 200)
    plain = dt.Coxph().fit(x, dt.Surv.right(time, event))
    moved = dt.Coxph().fit(3 - 1e3 * x, dt.Surv.right(1e4 * time, event))
    np.testing.assert_allclose(
        dt.proportionality_test(plain, transform=transform)["statistic"],
        dt.proportionality_test(moved, transform=transform)["statistic"],
        rtol=1e-4,
    )


def test_ranks_do_not_depend_on_the_scale_of_the_outcome(rng: np.random.Generator) -> None:
    x, time, event = changing_hazard(rng, 200)
    plain = dt.Coxph(order=3).fit(x, dt.Surv.right(time, event))
    cubed = dt.Coxph(order=6).fit(x, dt.Surv.right(time**3, event))
    np.testing.assert_allclose(
        dt.proportionality_test(plain)["statistic"], dt.proportionality_test(cubed)["statistic"], rtol=0.1
    )


def test_left_truncation_and_intervals(rng: np.random.Generator) -> None:
    x = rng.integers(0, 2, size=(900, 1)).astype(float)
    time = rng.exponential(size=900) ** (1 / np.where(x[:, 0] == 1, 1.6, 1.0))
    entry = rng.uniform(0, 0.5, size=900)
    seen = time > entry
    surv = dt.Surv.right(time[seen], np.ones(seen.sum()), entry=entry[seen])
    assert dt.proportionality_test(dt.Coxph().fit(x[seen], surv))["p"]["x0"] < 1e-3
    visits = dt.Surv.interval(np.floor(4 * time) / 4, np.floor(4 * time) / 4 + 0.25)
    assert dt.proportionality_test(dt.Coxph().fit(x, visits))["p"]["x0"] < 1e-3


def test_factors_are_tested_together_and_many_columns_work(rng: np.random.Generator) -> None:
    n = 200
    frame = pd.DataFrame(rng.normal(size=(n, 9)), columns=list("abcdefghi"))
    frame["site"] = rng.choice(["p", "q", "r"], size=n)
    model = dt.Colr([dt.LS("site + " + " + ".join("abcdefghi"))], order=3).fit(
        frame, frame["a"] + rng.logistic(size=n)
    )
    table = dt.proportionality_test(model)
    assert table["df"].to_dict() == {"site": 2, **dict.fromkeys("abcdefghi", 1), "overall": 11}
    plain = dt.Polr([dt.LS("site", "a")]).fit(frame, np.digitize(frame["a"] + rng.logistic(size=n), [-1, 1]))
    assert dt.proportionality_test(plain)["df"].to_dict() == {"site": 2, "a": 1, "overall": 3}


def test_strata_scale_and_varying_terms_may_stand_beside(rng: np.random.Generator) -> None:
    n = 250
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc")).assign(
        s=rng.choice(["u", "v"], size=n)
    )
    y = np.exp((frame["a"] + rng.logistic(size=n)) / 2)
    terms = [dt.SI(strata="s"), dt.LS("a"), dt.Varying("b"), dt.Scale("c")]
    for model in (dt.Colr(terms, order=3), dt.Coxph(terms, order=3)):
        for transform in ("rank", "log"):
            p = dt.proportionality_test(model.fit(frame, y), transform=transform)["p"]
            assert p.between(0, 1).all()


def test_a_loaded_model_needs_the_data(tmp_path: Path, rng: np.random.Generator) -> None:
    x, y = ordinal(rng, 200, 0.0)
    model = dt.Polr().fit(x, y, sample_weight=np.arange(1, 201) / 100)
    model.save(tmp_path / "model")
    loaded = dt.load(tmp_path / "model")
    weights = np.arange(1, 201) / 100
    with pytest.raises(UnsupportedError, match="needs the training data, which a loaded model does not hold"):
        dt.proportionality_test(loaded)
    pd.testing.assert_frame_equal(
        dt.proportionality_test(loaded, X=x, y=y, sample_weight=weights), dt.proportionality_test(model)
    )
    profile = loaded.confint(method="profile", X=x, y=y, sample_weight=weights)
    pd.testing.assert_frame_equal(profile, model.confint(method="profile"), rtol=1e-6)
    with pytest.raises(InvalidInputError, match="needs the training data, got other data"):
        dt.proportionality_test(loaded, X=x, y=y)
    with pytest.raises(InvalidInputError, match="needs X and y together"):
        loaded.confint(method="profile", X=x)


def test_refusals(rng: np.random.Generator) -> None:
    x, y = ordinal(rng, 200, 0.0)
    with pytest.raises(InvalidInputError, match="needs a linear shift with a finite coefficient, got none"):
        dt.proportionality_test(dt.Polr([dt.SI()]).fit(x, y))
    with pytest.raises(UnsupportedError, match="single cutpoint"):
        dt.proportionality_test(dt.Logit().fit(x, y > 1))
    with pytest.raises(UnsupportedError, match="needs an ordered outcome and exact maximum likelihood"):
        dt.proportionality_test(dt.Polr(loss="rps").fit(x, y))
    with pytest.raises(UnsupportedError, match="no known reference distribution, as constraints of mono"):
        dt.proportionality_test(dt.Polr().fit(x, y), test="lr")
    with pytest.raises(UnsupportedError, match="classes have ranks only, got transform='log'"):
        dt.proportionality_test(dt.Polr().fit(x, y), transform="log")
    with pytest.raises(InvalidInputError, match="transform='log' needs positive outcomes, got -"):
        dt.proportionality_test(dt.Colr(order=3).fit(x, x[:, 0] + rng.logistic(size=200)), transform="log")
    with pytest.warns(EmptyClassWarning):
        empty = dt.Polr(levels=[0, 1, 2, 3, 4]).fit(x, y)
    with pytest.raises(UnsupportedError, match="every level to be observed in every stratum"):
        dt.proportionality_test(empty)
    alike = dt.Survreg([dt.LS("x0")], dist="exponential").fit(x, dt.Surv.right(np.ones(200), y > 0))
    with pytest.raises(UnsupportedError, match="needs outcomes that differ, got a single value"):
        dt.proportionality_test(alike)


@pytest.mark.parametrize(("events", "order"), [(33, 3), (70, 4), (400, 8)])
def test_few_events_get_a_stiff_baseline(rng: np.random.Generator, events: int, order: int) -> None:
    """Nine parameters of a baseline for 33 events made the overall test reject 12 % instead of 8 %."""
    x, time = rng.normal(size=(2 * events, 2)), rng.exponential(size=2 * events)
    model = dt.Coxph().fit(x, dt.Surv.right(time, np.arange(2 * events) % 2))
    assert with_flexible_baseline(model.fit_)[0].problem.data.basis.order == order
