"""``evaluate``: the table, its intervals, pairing, kinds of outcome, messages."""

from __future__ import annotations

import functools
import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch

import deeptram as dt
from deeptram.errors import UnsupportedError
from deeptram.evaluation import evaluate, metrics, scores
from deeptram.evaluation.bootstrap import resample
from deeptram.predictive import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses import Surv

LEVEL_METRICS = [*scores.core.NAMES, "accuracy", "qwk", "auc", "citl", "calibration_slope"]


def simulate(rng, n=120, n_levels=4, noise=0.5, levels=None):
    """Return outcomes and two predictions of different quality."""
    x = rng.normal(size=n)
    cuts = np.linspace(-1, 1, n_levels - 1)
    codes = (1.3 * x + rng.logistic(size=n) > cuts[:, None]).sum(0)
    levels = tuple(range(n_levels)) if levels is None else levels
    shifts = x[:, None], x[:, None] + noise * rng.normal(size=(n, 1))
    first, second = (DiscretePredictive.from_h(cuts - 1.3 * s, levels=levels) for s in shifts)
    return np.array(levels)[codes], first, second


def test_estimates_are_the_metrics(rng):
    y, first, second = simulate(rng)
    wanted = LEVEL_METRICS
    frame = evaluate({"first": first, "second": second}, y, metrics=wanted, n_boot=0)
    assert frame.columns.tolist() == ["name", "metric", "estimate", "lower", "upper"]
    assert frame["name"].tolist() == ["first"] * len(wanted) + ["second"] * len(wanted)
    assert frame["metric"].tolist() == wanted * 2
    expected = [metrics.get(name)(y, pred) for pred in (first, second) for name in wanted]
    np.testing.assert_allclose(frame["estimate"], expected, atol=1e-10)
    assert frame[["lower", "upper"]].isna().all(axis=None)


def test_intervals_of_a_mean_are_those_of_resampling_it(rng):
    y, first, _ = simulate(rng, n=60)
    frame = evaluate({"m": first}, y, metrics=["nll"], n_boot=4000, level=0.9)
    values = scores.nll(y, first, reduction="none")
    again = np.random.default_rng(9)
    means = [again.choice(values, size=60).mean() for _ in range(4000)]
    np.testing.assert_allclose(
        frame.loc[0, ["lower", "upper"]].astype(float), np.quantile(means, [0.05, 0.95]), rtol=0.02
    )


def test_seed(rng):
    y, first, second = simulate(rng)
    run = functools.partial(evaluate, {"a": first, "b": second}, y, n_boot=50)
    pd.testing.assert_frame_equal(run(random_state=3), run(random_state=3))
    pd.testing.assert_frame_equal(run(random_state=3), run(random_state=np.random.default_rng(3)))
    assert (run(random_state=3)["lower"] != run(random_state=4)["lower"]).any()


def test_pairing(rng):
    y, first, second = simulate(rng)
    same = DiscretePredictive.from_h(first.trafo(), levels=first.levels)
    shifted = second
    frame = evaluate({"a": first, "b": same, "c": shifted}, y, n_boot=200, reference="a").set_index("name")
    assert frame.columns.tolist()[-3:] == ["difference", "difference_lower", "difference_upper"]
    for name in ("a", "b"):
        columns = frame.loc[name, ["difference", "difference_lower", "difference_upper"]]
        np.testing.assert_allclose(columns.astype(float), 0, atol=1e-9)
    other = frame.loc["c"].set_index("metric")
    own = frame.loc["a"].set_index("metric")
    np.testing.assert_allclose(other["difference"], other["estimate"] - own["estimate"], atol=1e-12)
    width = other["difference_upper"] - other["difference_lower"]
    assert width["nll"] < 0.8 * (other["upper"] - other["lower"])["nll"]


def test_a_list_is_the_average_of_its_members(rng):
    y, first, second = simulate(rng)
    wanted = LEVEL_METRICS
    frame = evaluate({"both": [first, second], "a": first, "b": (second,)}, y, metrics=wanted, n_boot=30)
    estimate = frame.pivot(index="metric", columns="name", values="estimate")
    np.testing.assert_allclose(estimate["both"], (estimate["a"] + estimate["b"]) / 2, atol=1e-12)


def test_a_prediction_under_several_names_is_evaluated_once(rng):
    y, first, second = simulate(rng)
    seen = []

    class Counted(dt.scores.Score):
        name = "counted"

        def rows(self, y, pred, **options):
            seen.append(pred)
            return scores.nll(y, pred, reduction="none")

    named = {"first": first, "second": second, "average": [first, second]}
    frame = evaluate(named, y, metrics=[Counted()], n_boot=5).set_index("name")["estimate"]
    assert len(seen) == 2
    assert frame["average"] == pytest.approx((frame["first"] + frame["second"]) / 2)


def test_intervals_by_hand(rng):
    y, first, second = simulate(rng)
    frame = evaluate({"both": [first, second]}, y, metrics=["nll"], n_boot=40, random_state=8, level=0.8)
    (counts,) = resample(np.zeros(len(y), dtype=np.int64), 40, random_state=8)
    values = (scores.nll(y, first, reduction="none") + scores.nll(y, second, reduction="none")) / 2
    expected = np.quantile(values @ counts.numpy() / len(y), [0.1, 0.9])
    np.testing.assert_allclose(frame.loc[0, ["lower", "upper"]].astype(float), expected, rtol=1e-12)


def test_infinite_scores_are_shown():
    log_pmf = np.log(np.full((50, 2), 0.5))
    with np.errstate(divide="ignore"):
        log_pmf[0] = np.log([1.0, 0.0])
    pred = DiscretePredictive.from_log_pmf(log_pmf)
    y = np.ones(50, dtype=int)
    fine = DiscretePredictive.from_log_pmf(np.log(np.full((50, 2), 0.5)))
    frame = evaluate({"m": pred, "fine": fine}, y, metrics=["nll", "brier"], n_boot=400, reference="fine")
    row = frame.iloc[0]
    # Row 0 is in about 63 % of the samples: the upper limit is infinite, the lower is not.
    assert row["estimate"] == np.inf
    assert row["lower"] == pytest.approx(np.log(2))
    assert row["upper"] == np.inf
    assert row["difference"] == np.inf
    assert row["difference_upper"] == np.inf
    assert np.isfinite(frame.iloc[1][["estimate", "lower", "upper"]].astype(float)).all()
    assert frame.attrs["undefined"] == {}


def test_levels_absent_from_a_sample_keep_their_place(rng):
    y, first, _ = simulate(rng, n=40, n_levels=3, levels=("a", "b", "c"))
    y = np.where(y == "c", "b", y)
    y[5] = "c"  # a single row of the last level, absent from a third of the samples
    frame = evaluate({"m": first}, y, n_boot=300)
    assert np.isfinite(frame[["estimate", "lower", "upper"]]).all(axis=None)
    never = evaluate({"m": first}, np.where(y == "c", "b", y), n_boot=300)
    assert np.isfinite(never[["estimate", "lower", "upper"]]).all(axis=None)


def test_undefined_replicates_are_counted():
    y = np.array([0] * 14 + [1])
    pred = DiscretePredictive.from_h(np.linspace(2, -2, 15)[:, None])
    frame = evaluate({"m": pred}, y, metrics=["auc", "nll"], n_boot=500)
    gone = frame.attrs["undefined"]["m"]["auc"]
    assert gone / 500 == pytest.approx((14 / 15) ** 15, abs=0.08)
    assert "nll" not in frame.attrs["undefined"]["m"]
    assert json.loads(json.dumps(frame.attrs)) == frame.attrs  # as Parquet files need it
    assert np.isfinite(frame.loc[0, ["lower", "upper"]].astype(float)).all()


def test_constant_predictions_have_no_slope(rng):
    y = (rng.uniform(size=60) < 0.3).astype(int)
    frame = evaluate({"SI": DiscretePredictive.from_h(np.ones((60, 1)))}, y, n_boot=20)
    slope = frame[frame["metric"] == "calibration_slope"].iloc[0]
    assert slope[["estimate", "lower", "upper"]].isna().all()
    assert np.isfinite(frame[frame["metric"] == "citl"]["estimate"]).all()


def test_metrics_by_name_function_and_own_label(rng):
    y, first, _ = simulate(rng)

    def worst(y, pred):
        return scores.nll(y, pred, reduction="none").max()

    cutoff = functools.partial(metrics.auc, cutoff=2, fold=True)
    frame = evaluate({"m": first}, y, metrics=["nll", worst, metrics.qwk, cutoff], n_boot=10)
    assert frame["metric"].tolist() == ["nll", "worst", "qwk", "auc"]
    named = evaluate({"m": first}, y, metrics={"AUC > 1": cutoff, "max": worst, "loss": "rps"}, n_boot=10)
    assert named["metric"].tolist() == ["AUC > 1", "max", "loss"]
    assert named["estimate"][0] == pytest.approx(metrics.auc(y, first, cutoff=2, fold=True), abs=1e-12)
    assert named["estimate"][1] == worst(y, first)
    assert evaluate({"m": first}, y, metrics="rps", n_boot=0)["metric"].tolist() == ["rps"]
    assert evaluate({"m": first}, y, metrics=metrics.auc, n_boot=0)["metric"].tolist() == ["auc"]


def test_defaults_by_kind_of_outcome(rng):
    y, first, _ = simulate(rng, n_levels=2)
    default = evaluate({"m": first}, y, n_boot=5)["metric"].tolist()
    assert default == ["nll", "brier", "accuracy", "auc", "citl", "calibration_slope"]
    y, first, _ = simulate(rng, n_levels=3)
    default = evaluate({"m": first}, y, n_boot=5)["metric"].tolist()
    assert default == ["nll", "rps", "accuracy", "qwk", "citl", "calibration_slope"]


def test_continuous_and_count_outcomes(rng):
    location, y = rng.normal(size=40), rng.normal(size=40)
    pred = Predictive.from_scipy(scipy.stats.norm(location, 1.0))
    frame = evaluate({"m": pred}, pd.Series(y), n_boot=100)
    assert frame["metric"].tolist() == ["nll", "crps"]
    assert frame["estimate"][0] == pytest.approx(scores.nll(y, pred))
    assert (frame["lower"] < frame["estimate"]).all()
    counts = Predictive.from_scipy(scipy.stats.poisson(np.full(40, 2.0)))
    frame = evaluate({"m": counts}, rng.poisson(2.0, size=40), n_boot=50)
    assert frame["metric"].tolist() == ["nll", "crps"]
    assert np.isfinite(frame["upper"]).all()


def test_censored_outcomes(rng):
    y = Surv.right(rng.exponential(size=40), rng.uniform(size=40) < 0.7)
    pred = Predictive.from_scipy(scipy.stats.expon(scale=np.ones(40)))

    def median_nll(y, pred):
        return float(np.median(scores.nll(y, pred, reduction="none")))

    frame = evaluate({"m": pred}, y, n_boot=50)
    assert frame["metric"].tolist() == ["nll", "ibs", "concordance", "uno"]
    assert frame["lower"][0] < frame["estimate"][0] < frame["upper"][0]
    own = evaluate({"m": pred}, y, metrics=[median_nll], n_boot=20)
    assert own["lower"][0] <= own["estimate"][0] <= own["upper"][0]


@pytest.mark.parametrize("kind", ["list", "series", "categorical", "tuple"])
def test_outcomes_of_every_container(kind, rng):
    y, first, _ = simulate(rng, n_levels=3, levels=("a", "b", "c"))
    given = {
        "list": y.tolist(),
        "tuple": tuple(y.tolist()),
        "series": pd.Series(y, index=rng.permutation(len(y))),
        "categorical": pd.Categorical(y, categories=["c", "b", "a"]),
    }[kind]

    def own(y, pred):
        return metrics.accuracy(y, pred)

    frame = evaluate({"m": first}, given, metrics=["accuracy", own], n_boot=30)
    np.testing.assert_allclose(frame.iloc[0, 2:].astype(float), frame.iloc[1, 2:].astype(float))


def test_predictions_that_carry_gradients(rng):
    y, first, _ = simulate(rng)
    h = torch.tensor(first.trafo(), dtype=torch.float32, requires_grad=True)
    frame = evaluate({"m": DiscretePredictive.from_h(h)}, y, n_boot=20)
    expected = evaluate({"m": first}, y, n_boot=20)
    np.testing.assert_allclose(frame["lower"], expected["lower"], rtol=1e-4, atol=1e-5)


def test_strata_fix_what_is_constant_within_them(rng):
    # Half the rows are right, half are wrong; drawn within these halves the accuracy never changes.
    y = np.array([1] * 20 + [0] * 20)
    pred = DiscretePredictive.from_h(np.full((40, 1), -1.0))
    split = ["x"] * 20 + ["z"] * 20
    frame = evaluate({"m": pred}, y, metrics=["accuracy"], n_boot=100, strata=split)
    assert frame.iloc[0, 2:].tolist() == [0.5, 0.5, 0.5]
    free = evaluate({"m": pred}, y, metrics=["accuracy"], n_boot=100)
    assert free["lower"][0] < 0.5 < free["upper"][0]


def test_threads_change_nothing_and_are_given_back(rng):
    y, first, second = simulate(rng)
    expected = evaluate({"a": first, "b": second}, y, n_boot=60)
    torch.set_num_threads(2)
    try:
        found = evaluate({"a": first, "b": second}, y, n_boot=60)
        assert torch.get_num_threads() == 2
        with pytest.raises(ValueError, match="every y must be one of the levels"):
            evaluate({"a": first}, y + 10, n_boot=3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-12)


def test_nothing_is_written_to(rng):
    y, first, _ = simulate(rng)
    before = first.trafo().copy(), y.copy()
    evaluate({"m": first}, y, n_boot=5)
    np.testing.assert_array_equal(first.trafo(), before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        (
            {"predictions": {}},
            ValueError,
            "predictions must be a non-empty dict from names to Predictives, got dict",
        ),
        (
            {"predictions": [1]},
            ValueError,
            "non-empty dict from names to Predictives, got list; write for example",
        ),
        ({"predictions": {"m": []}}, ValueError, r"predictions\['m'\] must hold a Predictive or several"),
        (
            {"predictions": {"m": np.ones(3)}},
            TypeError,
            r"predictions\['m'\] must be a Predictive, got ndarray",
        ),
        ({"y": [0, 1]}, ValueError, "y must have one value per row, got 2 values for 3 rows"),
        (
            {"metrics": ["nl"]},
            ValueError,
            r"metric must be one of .*'nll', .*, got 'nl'; did you mean 'nll'\?",
        ),
        (
            {"metrics": ["nll", scores.nll]},
            ValueError,
            "metrics must have different names, got .'nll', 'nll'",
        ),
        ({"n_boot": -1}, ValueError, "n_boot must be an integer of at least 0, got -1"),
        (
            {"level": 95},
            ValueError,
            "level must be a number strictly between 0 and 1, got 95; for 95 percent write 0.95",
        ),
        ({"reference": "n"}, ValueError, "reference must be one of 'm', got 'n'"),
        ({"strata": [1, 2]}, ValueError, "strata must have the same number of rows"),
        ({"strata": [1, None, 2]}, ValueError, "Input strata contains NaN: 1 missing value in row 1"),
        (
            {"metrics": [functools.partial(metrics.auc, cutoff=5)]},
            ValueError,
            "cutoff must be at most 0 for 2 levels",
        ),
    ],
)
def test_messages(options, error, match):
    pred = DiscretePredictive.from_h(np.array([[0.1], [0.2], [-0.3]]))
    arguments = {"predictions": {"m": pred}, "y": [0, 1, 1], "n_boot": 2, **options}
    with pytest.raises(error, match=match):
        evaluate(arguments.pop("predictions"), arguments.pop("y"), **arguments)


def nominal_predictions():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = np.array(["a", "b", "c"])[rng.integers(0, 3, size=80)]
    model = dt.Tram(outcome="nominal").fit(x, y)
    pred = model.predict_distribution(x)
    return {"model": pred, "pool": dt.pool([pred, pred[:]], method="linear"), "all": [pred, pred]}, y


def test_nominal_outcomes_get_scores_that_need_no_order():
    predictions, y = nominal_predictions()
    for name in predictions:
        frame = evaluate({name: predictions[name]}, y, n_boot=0)
        assert frame["metric"].tolist() == ["nll", "brier", "accuracy"]
    relabelled = dt.Predictive.from_proba(predictions["model"].pmf()[:, ::-1], levels=("c", "b", "a"))
    again = evaluate({"model": relabelled}, y, n_boot=0, metrics=["nll", "brier", "accuracy"])
    expected = evaluate({"model": predictions["model"]}, y, n_boot=0)
    np.testing.assert_allclose(again["estimate"], expected["estimate"])


@pytest.mark.parametrize("metric", ["rps", "qwk", "auc", "citl", "calibration_slope", "crps"])
def test_scores_that_need_an_order_are_refused_for_nominal_outcomes(metric):
    predictions, y = nominal_predictions()
    message = (
        f"the metric '{metric}' needs ordered levels, got predictions of a nominal outcome; use nll, brier"
    )
    with pytest.raises(UnsupportedError, match=message):
        evaluate(predictions, y, n_boot=0, metrics=["nll", metric])
