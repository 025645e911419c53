"""Metrics over chunks: the numbers of one table, whatever the division of its rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch

import deeptram as dt
from deeptram.errors import DeeptramError, InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation import streams
from deeptram.evaluation.bootstrap import replicates
from deeptram.evaluation.measures import get
from deeptram.evaluation.streams import BLOCK_ROWS

N, LEVELS = 2600, ("low", "mid", "high")
LIMITS = ["lower", "upper", "difference", "difference_lower", "difference_upper"]


def levels_data():
    rng = np.random.default_rng(1)
    signal = rng.normal(size=(N, 1))
    h = np.array([-0.5, 1.0]) - signal
    codes = (signal + rng.logistic(size=(N, 1)) > [-0.5, 1.0]).sum(axis=1)
    members = [dt.Predictive.from_trafo(f * h, levels=LEVELS) for f in (1.0, 1.5, 0.5)]
    return {"model": members[0], "members": members[1:]}, np.array(LEVELS)[codes]


def numbers_data():
    rng = np.random.default_rng(2)
    mean = rng.normal(size=N)
    pred = dt.Predictive.from_scipy(scipy.stats.norm(mean, 1.0))
    return {"model": pred}, mean + rng.normal(size=N)


def divided(predictions, y, sizes, weight=None):
    """Yield chunks of these sizes, again and again."""
    start, k = 0, 0
    while start < len(y):
        rows = slice(start, start + sizes[k % len(sizes)])
        start, k = rows.stop, k + 1
        own = {
            name: [one[rows] for one in entry] if isinstance(entry, list) else entry[rows]
            for name, entry in predictions.items()
        }
        yield (own, y[rows]) if weight is None else (own, y[rows], weight[rows])


CASES = [
    (levels_data, ["nll", "rps", "brier", "accuracy", "qwk"]),
    (numbers_data, ["nll", "crps", "coverage", "wis", "d_calibration"]),
]


@pytest.mark.parametrize(("data", "metrics"), CASES)
def test_values_are_those_of_memory_and_intervals_do_not_depend_on_the_chunks(data, metrics):
    predictions, y = data()
    reference = "model"
    whole = dt.evaluate(predictions, y, metrics=metrics, reference=reference)
    one = dt.evaluate_stream([(predictions, y)], metrics=metrics, reference=reference)
    assert list(one.columns) == list(whole.columns)
    for column in ("name", "metric"):
        assert list(one[column]) == list(whole[column])
    np.testing.assert_allclose(one["estimate"], whole["estimate"], rtol=1e-12)
    np.testing.assert_allclose(one["difference"], whole["difference"], atol=1e-12)
    # Poisson and multinomial samples: the same intervals up to the noise of 1000 samples.
    width = (whole["upper"] - whole["lower"]).to_numpy()
    for limit in ("lower", "upper"):
        assert (np.abs(one[limit] - whole[limit]) < 0.2 * width).all()
    for sizes in ([700, 1, 1023], [BLOCK_ROWS], [N - 1, 1]):
        again = dt.evaluate_stream(
            partial(divided, predictions, y, sizes), metrics=metrics, reference=reference
        )
        np.testing.assert_allclose(again[["estimate", *LIMITS]], one[["estimate", *LIMITS]], atol=1e-10)


def test_weights_count_as_in_memory():
    predictions, y = levels_data()
    weight = np.random.default_rng(3).uniform(0, 3, N)
    whole = dt.evaluate(predictions, y, metrics=["nll", "qwk"], sample_weight=weight, n_boot=0)
    chunks = divided(predictions, y, [400, 33], weight)
    streamed = dt.evaluate_stream(chunks, metrics=["nll", "qwk"], n_boot=0)
    np.testing.assert_allclose(streamed["estimate"], whole["estimate"], rtol=1e-12)
    assert streamed["lower"].isna().all()


def test_replicates_are_those_of_poisson_counts():
    """The interval of a kappa, from counts drawn here and the statistic of all rows."""
    predictions, y = levels_data()
    streamed = dt.evaluate_stream(divided(predictions, y, [999]), metrics="qwk", n_boot=50, random_state=7)
    seed = int(np.random.default_rng(7).integers(2**63))
    blocks = [
        np.random.default_rng([seed, b]).poisson(1.0, (BLOCK_ROWS, 50)) for b in range(-(-N // BLOCK_ROWS))
    ]
    counts = torch.from_numpy(np.concatenate(blocks)[:N].astype(float))
    values = replicates(get("qwk").statistics(y, predictions["model"]), counts)[0].numpy()
    expected = np.quantile(values, [0.025, 0.975])
    np.testing.assert_allclose(streamed.loc[0, ["lower", "upper"]].astype(float), expected, atol=1e-12)


def test_an_impossible_outcome_is_infinite_wherever_it_comes():
    sure = dt.Predictive.from_proba([[1.0, 0.0]] * 4)
    for y in ([0, 0, 1, 0], [1, 0, 0, 0]):
        chunks = [({"m": sure[:2]}, y[:2]), ({"m": sure[2:]}, y[2:])]
        assert dt.evaluate_stream(chunks, metrics="nll", n_boot=0)["estimate"].item() == np.inf


def test_usual_metrics_are_those_that_are_sums():
    predictions, y = levels_data()
    table = dt.evaluate_stream(divided(predictions, y, [1000]), n_boot=0)
    assert list(table["metric"].unique()) == ["nll", "rps", "accuracy", "qwk"]


class Failure(dt.metrics.Metric):
    name = "failure"

    def __call__(self, y, pred, **options):
        return 0.0


@pytest.mark.parametrize("metric", ["auc", "calibration_slope", Failure()])
def test_metrics_of_all_rows_are_refused(metric):
    predictions, y = levels_data()
    with pytest.raises(UnsupportedError, match="must be a function of sums over rows, got"):
        dt.evaluate_stream(divided(predictions, y, [1000]), metrics=metric, n_boot=10)


def test_survival_metrics_of_all_rows_are_refused():
    pred = dt.Predictive.from_scipy(scipy.stats.expon(scale=np.ones(5)))
    y = dt.Surv.right(np.arange(1.0, 6.0), [True] * 5)
    curves = partial(dt.metrics.concordance, kind="antolini", tau=4.0)
    for metric in (curves, "ibs"):
        with pytest.raises(UnsupportedError, match="must be a function of sums over rows"):
            dt.evaluate_stream([({"m": pred}, y)], metrics=metric)
    with pytest.raises(
        UnsupportedError, match="over chunks needs one horizon for the risks of all rows, got"
    ):
        dt.evaluate_stream([({"m": pred}, y)], metrics="concordance")
    assert list(dt.evaluate_stream([({"m": pred}, y)], n_boot=0)["metric"]) == ["nll"]


def test_concordance_is_that_of_memory_from_what_is_kept_of_the_rows(monkeypatch):
    rng = np.random.default_rng(3)
    scale = np.exp(rng.normal(size=700))
    time, limit = rng.exponential(scale).round(2) + 0.01, rng.exponential(2.0, 700)
    y, weight = dt.Surv.right(np.minimum(time, limit), time <= limit), rng.integers(0, 3, 700)
    slopes = {"one": 0.3, "other": 1.0}
    predictions = {k: dt.Predictive.from_scipy(scipy.stats.expon(scale=scale**s)) for k, s in slopes.items()}
    metrics = {k: partial(dt.metrics.concordance, kind=k, tau=1.5) for k in ("harrell", "uno")} | {
        "nll": "nll"
    }
    asked = {"metrics": metrics, "reference": "one", "n_boot": 40}
    whole = dt.evaluate(predictions, y, sample_weight=weight, **asked)
    tables = []
    for sizes in ([700], [150, 77]):
        monkeypatch.setattr(streams, "KEPT", 700 * 16)  # the samples come in several blocks
        tables.append(dt.evaluate_stream(divided(predictions, y, sizes, weight), **asked))
        assert tables[-1][["name", "metric"]].equals(whole[["name", "metric"]])
        np.testing.assert_allclose(tables[-1]["estimate"], whole["estimate"], rtol=1e-12)
    np.testing.assert_allclose(tables[0][LIMITS], tables[1][LIMITS], rtol=1e-9)
    width = [(table["upper"] - table["lower"]).to_numpy() for table in (whole, tables[0])]
    np.testing.assert_allclose(width[1], width[0], rtol=0.6)


PRED, Y = dt.Predictive.from_proba([[0.2, 0.8]]), [1]


@pytest.mark.parametrize(
    ("chunks", "error", "match"),
    [
        ([], InvalidInputError, "must yield at least one pair"),
        (None, InvalidTypeError, "chunks must give pairs"),
        ({"m": PRED}, InvalidTypeError, "chunks must give pairs"),
        ([PRED], InvalidTypeError, "every chunk must be a pair"),
        ([({"a": PRED}, Y), ({"b": PRED}, Y)], InvalidInputError, "must hold the same predictions"),
        ([({"a": PRED}, [1, 0])], InvalidInputError, "one value per row"),
    ],
)
def test_chunks_are_checked(chunks, error, match):
    with pytest.raises(error, match=match):
        dt.evaluate_stream(chunks)


def test_reference_is_checked():
    with pytest.raises(DeeptramError, match="reference must be one of 'a', got 'b'"):
        dt.evaluate_stream([({"a": PRED}, Y)], reference="b")


@pytest.mark.parametrize("per_threshold", [False, True])
def test_calibration_curve_over_chunks(per_threshold):
    predictions, y = levels_data()
    pred = predictions["model"]
    for cuts in (7, [0.2, 0.5]):
        whole = dt.metrics.calibration_curve(y, pred, cuts, per_threshold=per_threshold)
        parts = [(own["model"], outcome) for own, outcome in divided({"model": pred}, y, [800, 3])]
        found = dt.metrics.calibration_curve_stream(parts, cuts, per_threshold=per_threshold)
        pd.testing.assert_frame_equal(found, whole, rtol=1e-12)


def test_calibration_curve_over_chunks_refuses():
    with pytest.raises(UnsupportedError, match="must be a number of bins or cut points, got 'equidistant'"):
        dt.metrics.calibration_curve_stream([(PRED, Y)], "equidistant")
    other = dt.Predictive.from_proba([[0.2, 0.8]], levels=["a", "b"])
    with pytest.raises(InvalidInputError, match="every chunk must have the levels"):
        dt.metrics.calibration_curve_stream([(PRED, Y), (other, ["a"])])


def test_outcomes_apart_from_their_chunks_are_refused():
    pred = dt.Predictive.from_proba([[0.4, 0.6]] * 3)
    message = r"takes chunks that are pairs \(predictions, y\), got .* apart; write evaluate_stream\(\[\("
    with pytest.raises(InvalidTypeError, match=message):
        dt.evaluate_stream({"model": pred}, [0, 1, 1])
