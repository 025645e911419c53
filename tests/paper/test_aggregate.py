"""The tables against the same numbers computed one by one."""

from __future__ import annotations

import shutil
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest

from deeptram.errors import InvalidInputError
from deeptram.evaluation import metrics as M
from deeptram.evaluation import scores
from deeptram.evaluation.bootstrap import Sample, mean_sample, resample
from deeptram.evaluation.metrics.calibration import mean_curve
from deeptram.paper import RunFolder, Unit, aggregate, make_study
from deeptram.paper.aggregate import CURVE_NUMBERS, RECALIBRATED, _Aggregation
from deeptram.paper.ensembles import METRICS, Entry, Group, _subsets, split_samples
from deeptram.paper.members import load_member, load_study_data, machine, make_splits
from deeptram.pooling import pool
from deeptram.pooling.recalibration import Recalibration
from deeptram.pooling.weights import tune_weights
from deeptram.predictive.base import Predictive

CONTRACT = ["dataset", "model", "loss", "split", "weights", "method", "metric", "estimate", "lower", "upper"]
KEYS = CONTRACT[:7]


@pytest.fixture(scope="module")
def tables(small_run):
    return aggregate(small_run.path, n_boot=40)


@pytest.fixture(scope="module")
def truth(small_run, small_study):
    """Outcomes and members' predictions of split 1."""
    data = load_study_data(small_study)
    split = make_splits(small_study, data)[0]
    loaded = [load_member(small_run, Unit("CI-LS", "nll", 1, m), 10).predictions for m in (1, 2)]
    return data.codes[split.validation], data.codes[split.test], loaded


def direct(metric, y, pred, cutoff=2):
    if metric == "brier":
        return float(scores.brier(*M.at_cutoff(y, pred, cutoff)))
    if metric == "auc":
        return M.auc(y, pred, cutoff=cutoff)
    return float(M.get(metric)(y, pred))


def value(table, **conditions):
    for name, wanted in conditions.items():
        table = table[table[name].isna() if wanted is None else table[name] == wanted]
    (row,) = table.to_dict("records")
    return row


def test_columns_are_those_of_the_contract(tables, small_run):
    written = pd.read_csv(small_run.path / "metrics.csv")
    assert list(written.columns) == [*CONTRACT, "member", *RECALIBRATED["members"], *RECALIBRATED["pool"]]
    assert list(tables.metrics.columns) == [
        *CONTRACT,
        "member",
        *RECALIBRATED["members"],
        *RECALIBRATED["pool"],
    ]
    assert set(written["method"]) == {"single", "member", "average", "linear", "log-linear", "transformation"}
    assert set(written["weights"]) == {"equal", "tuned"}
    assert set(written["metric"]) == set(METRICS)
    assert not tables.metrics[tables.metrics["method"] != "member"].duplicated(KEYS).any()
    assert not tables.metrics.duplicated([*KEYS, "member"]).any()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("method", ["linear", "log-linear", "transformation"])
def test_pools(tables, truth, metric, method):
    y_val, y, loaded = truth
    members = [one["test"] for one in loaded]
    weights = tune_weights([one["val"] for one in loaded], y_val, method=method, score="nll").weights
    for scheme, w in (("equal", None), ("tuned", weights)):
        row = value(tables.metrics, model="CI-LS", split=1, weights=scheme, method=method, metric=metric)
        assert row["estimate"] == pytest.approx(
            direct(metric, y, pool(members, method=method, weights=w)), abs=1e-9
        )
    stored = tables.weights[(tables.weights["split"] == 1) & (tables.weights["method"] == method)]
    np.testing.assert_allclose(stored["weight"], weights, atol=1e-12)


@pytest.mark.parametrize("metric", ["nll", "accuracy", "calibration_slope"])
def test_members_and_averages(tables, truth, metric):
    _, y, loaded = truth
    values = [direct(metric, y, one["test"]) for one in loaded]
    for m in (1, 2):
        row = value(tables.metrics, model="CI-LS", split=1, method="member", member=m, metric=metric)
        assert row["estimate"] == pytest.approx(values[m - 1], abs=1e-9)
    of = {"model": "CI-LS", "split": 1, "metric": metric, "method": "average"}
    assert value(tables.metrics, weights="equal", **of)["estimate"] == pytest.approx(
        np.mean(values), abs=1e-9
    )
    for method in ("linear", "transformation"):
        w = tables.weights[(tables.weights["split"] == 1) & (tables.weights["method"] == method)]["weight"]
        row = value(tables.averages, pool=method, **of)
        assert row["estimate"] == pytest.approx(float(w.to_numpy() @ values), abs=1e-9)
    tuned = value(tables.metrics, weights="tuned", **of)["estimate"]
    assert tuned == value(tables.averages, pool="transformation", **of)["estimate"]


def test_rows_over_all_splits_are_means(tables):
    table = tables.metrics[tables.metrics["method"] != "member"]
    keys = [key for key in KEYS if key != "split"]
    means = table[table["split"].notna()].groupby(keys)["estimate"].mean()
    overall = table[table["split"].isna()].set_index(keys)["estimate"]
    pd.testing.assert_series_equal(overall.sort_index(), means.sort_index(), check_exact=False, rtol=1e-12)


def test_intervals_contain_the_estimates_and_narrow_over_splits(tables):
    table = tables.metrics[
        (tables.metrics["metric"] == "nll") & (tables.metrics["method"] == "transformation")
    ]
    assert (table["lower"] < table["estimate"]).all()
    assert (table["estimate"] < table["upper"]).all()
    width = (table["upper"] - table["lower"]).to_numpy(dtype=float)
    alone = table["split"].notna().to_numpy()
    assert width[~alone].max() < width[alone].min()


@pytest.mark.parametrize("weights", ["equal", "tuned"])
def test_gains_are_differences_to_the_members_average_with_the_same_weights(tables, weights):
    chosen = {"model": "CI-LS", "split": 1, "weights": weights, "method": "log-linear", "metric": "nll"}
    gain, pooled = value(tables.gains, **chosen), value(tables.metrics, **chosen)
    averages = tables.averages[tables.averages["weights"] == weights]
    averages = averages[averages["pool"] == "log-linear"] if weights == "tuned" else tables.metrics
    average = value(averages, **{**chosen, "method": "average"})
    assert gain["estimate"] == pytest.approx(pooled["estimate"] - average["estimate"])
    assert gain["upper"] <= 1e-12  # the interval is that of the difference, and never worse in any row


def test_relative_is_the_difference_to_si_ls(tables):
    row = value(tables.relative, model="CI-LS", split=1, weights="equal", method="linear", metric="nll")
    ours = value(tables.metrics, model="CI-LS", split=1, weights="equal", method="linear", metric="nll")
    base = value(tables.metrics, model="SI-LS", split=1, method="single", metric="nll")
    assert row["estimate"] == pytest.approx(ours["estimate"] - base["estimate"])
    # paired: narrower than independent samples would have it
    independent = np.hypot(ours["upper"] - ours["lower"], base["upper"] - base["lower"])
    assert row["upper"] - row["lower"] < independent


def test_replicates_are_metrics_of_resampled_rows(truth):
    y_val, y, loaded = truth
    units = (Unit("CI-LS", "nll", 1, 1), Unit("CI-LS", "nll", 1, 2))
    made = Group(units, tuple(o["val"] for o in loaded), tuple(o["test"] for o in loaded)).tune(y_val)
    samples = split_samples([made], y, cutoff=2, n_boot=4, seed=11)
    (counts,) = resample(np.zeros(len(y), dtype=np.int64), 4, 11)
    pooled = pool(made.test, method="transformation")
    for b in range(4):
        rows = np.repeat(np.arange(len(y)), counts[:, b].long().numpy())
        for metric in METRICS:
            found = samples[Entry("CI-LS", "nll", "equal", "transformation"), metric].replicates[b]
            expected = direct(metric, y[rows], pooled[rows])
            loose = metric in ("citl", "calibration_slope")
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-3 if loose else 1e-12)


def test_averages_leave_out_members_without_weight():
    infinite = Sample(np.inf, np.full(3, np.inf))
    assert mean_sample([Sample(1.0, np.ones(3)), infinite], np.array([1.0, 0.0])).value == 1.0
    assert mean_sample([Sample(1.0, np.ones(3)), infinite], np.array([0.5, 0.5])).value == np.inf


def test_calibration_is_averaged_over_splits(tables):
    table = tables.calibration
    chosen = table[(table["model"] == "SI-LS") & (table["bin"] == 4)]
    assert chosen["split"].isna().sum() == 1
    mean = chosen.loc[chosen["split"].notna(), "observed"].mean()
    assert chosen.loc[chosen["split"].isna(), "observed"].iloc[0] == pytest.approx(mean)


def test_recalibrated_columns_are_those_of_recalibrated_members(tables, truth):
    y_val, y, loaded = truth
    found = [Recalibration().fit(one["val"], y_val) for one in loaded]
    members = [one.apply(pred["test"]) for one, pred in zip(found, loaded, strict=True)]
    of = {"model": "CI-LS", "split": 1, "metric": "nll"}
    row = value(tables.metrics, method="transformation", weights="equal", **of)
    assert row["estimate_recalibrated"] == pytest.approx(direct("nll", y, pool(members)), abs=1e-9)
    assert row["lower_recalibrated"] < row["estimate_recalibrated"] < row["upper_recalibrated"]
    assert row["estimate_recalibrated"] != pytest.approx(row["estimate"], abs=1e-6)
    average = value(tables.metrics, method="average", weights="equal", **of)["estimate_recalibrated"]
    assert average == pytest.approx(np.mean([direct("nll", y, one) for one in members]), abs=1e-9)
    tuned = tune_weights(
        [one.apply(pred["val"]) for one, pred in zip(found, loaded, strict=True)], y_val, score="nll"
    )
    row = value(tables.metrics, method="transformation", weights="tuned", **of)
    assert row["estimate_recalibrated"] == pytest.approx(
        direct("nll", y, pool(members, weights=tuned.weights)), abs=1e-9
    )


def test_pools_are_recalibrated_after_pooling_in_columns_of_their_own(tables, truth):
    y_val, y, loaded = truth
    val, test = ([one[part] for one in loaded] for part in ("val", "test"))
    of = {"model": "CI-LS", "split": 1, "metric": "nll"}
    for method in ("linear", "transformation"):
        for scheme in ("equal", "tuned"):
            weights = None if scheme == "equal" else tune_weights(val, y_val, method=method).weights
            options = {"method": method, "weights": weights}
            after = Recalibration().fit(pool(val, **options), y_val).apply(pool(test, **options))
            row = value(tables.metrics, method=method, weights=scheme, **of)
            assert row["estimate_pool_recalibrated"] == pytest.approx(direct("nll", y, after), abs=1e-9)
            if scheme == "equal":
                before = row["estimate_recalibrated"]
                assert row["estimate_pool_recalibrated"] != pytest.approx(before, abs=1e-6)
    for method in ("average", "single"):  # nothing is pooled in them
        rows = tables.metrics[(tables.metrics["method"] == method) & (tables.metrics["weights"] == "equal")]
        assert (rows["estimate_pool_recalibrated"] - rows["estimate_recalibrated"]).abs().max() == 0
        assert rows["estimate_pool_recalibrated"].notna().sum() > 0


def test_a_member_that_excludes_what_happened_has_no_recalibration():
    unit = Unit("CI-LS", "nll", 1, 1)
    sure = Predictive.from_proba(np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert Group((unit,), (sure,), (sure,)).recalibrate(np.array([1, 1])) is None


def test_sizes_are_pools_of_subsets(tables, truth):
    y_val, y, loaded = truth
    of = {"model": "CI-LS", "split": 1, "method": "log-linear"}
    single = [direct("nll", y, one["test"]) for one in loaded]
    row = value(tables.sizes, choice="any", members=1, **of)
    assert row["estimate"] == pytest.approx(np.mean(single))
    assert (row["smallest"], row["largest"], row["ensembles"]) == pytest.approx((*sorted(single), 2))
    best = int(np.argmin([direct("nll", y_val, one["val"]) for one in loaded]))
    assert value(tables.sizes, choice="best", members=1, **of)["estimate"] == pytest.approx(single[best])
    pooled = value(tables.metrics, metric="nll", weights="equal", **of)["estimate"]
    for choice in ("any", "best"):
        assert value(tables.sizes, choice=choice, members=2, **of)["estimate"] == pytest.approx(pooled)


def test_larger_ensembles_have_the_smaller_nll_on_average(rng):
    """Jensen: the mean over subsets falls with their size for every pool with Prop. 1, 3 or 5."""
    units = tuple(Unit("CI", "nll", 1, m) for m in range(1, 6))
    members = tuple(Predictive.from_trafo(np.sort(rng.normal(size=(80, 3)), axis=1)) for _ in units)
    y = rng.integers(0, 4, 80)
    table = pd.DataFrame(Group(units, members, members).size_rows(y, y, 1))
    assert table.groupby("members")["ensembles"].max().tolist() == [5, 10, 10, 5, 1]
    for _, part in table[table["choice"] == "any"].groupby("method"):
        assert (np.diff(part["estimate"]) < 0).all()


def test_many_members_are_drawn_and_the_same_each_time(rng):
    units = tuple(Unit("CI", "nll", 1, m) for m in range(1, 8))
    members = tuple(Predictive.from_trafo(np.sort(rng.normal(size=(9, 2)), axis=1)) for _ in units)
    y = rng.integers(0, 3, 9)
    one, two, other = (pd.DataFrame(Group(units, members, members).size_rows(y, y, k)) for k in (1, 1, 2))
    pd.testing.assert_frame_equal(one, two)
    assert one["ensembles"].max() == 3 * 7  # circles of seven members
    averages = [direct("nll", y, member) for member in members]
    for size in (3, 4):  # every member is in equally many subsets
        chosen = _subsets(7, size, np.random.default_rng(5))
        assert np.bincount(np.ravel(chosen)).tolist() == [3 * size] * 7
        assert np.mean([np.mean([averages[m] for m in s]) for s in chosen]) == pytest.approx(
            np.mean(averages)
        )
    assert not one["estimate"].equals(other["estimate"])


def test_the_average_curve_is_the_mean_of_the_members_curves(tables, truth):
    _, y, loaded = truth
    table = tables.calibration
    table = table[(table["model"] == "CI-LS") & (table["split"] == 1) & (table["method"] == "average")]
    curves = [M.calibration_curve(y, one["test"]) for one in loaded]
    stored = tables.weights[(tables.weights["split"] == 1) & (tables.weights["method"] == "transformation")]
    weights = stored["weight"].to_numpy()
    for scheme, w in (("equal", np.full(2, 0.5)), ("tuned", weights)):
        shown = table[table["weights"] == scheme]["observed"]
        mean = sum(share * curve["observed"] for share, curve in zip(w, curves, strict=True))
        np.testing.assert_allclose(shown, mean, rtol=1e-10)


def test_average_curves_weigh_members_and_leave_out_empty_bins():
    empty = {key: [0.2, np.nan] for key in CURVE_NUMBERS} | {"bin": [1, 2]}
    full = {key: [0.6, 0.8] for key in CURVE_NUMBERS} | {"bin": [1, 2]}
    mean = mean_curve([pd.DataFrame(empty), pd.DataFrame(full)], np.array([0.25, 0.75]))
    assert mean["observed"].tolist() == pytest.approx([0.25 * 0.2 + 0.75 * 0.6, 0.8])


def test_the_best_members_are_chosen_on_the_validation_part():
    good, bad = (Predictive.from_proba(np.array([[p, 1 - p]])) for p in (0.9, 0.2))
    units = (Unit("CI", "nll", 1, 1), Unit("CI", "nll", 1, 2))
    table = pd.DataFrame(Group(units, (bad, good), (good, bad)).size_rows(np.array([0]), np.array([0]), 1))
    best = table[(table["choice"] == "best") & (table["members"] == 1)]["estimate"]
    assert best.tolist() == pytest.approx([-np.log(0.2)] * 3)  # the second, though it is worse in the test


@pytest.mark.parametrize(("model", "n_bins"), [("SI-LS", 4), ("CI-LS", 5)])
def test_the_last_two_bins_of_rare_events_are_merged_for_si_ls(small_run, rng, model, n_bins):
    p = rng.uniform(0.001, 0.1, 4000)
    pred = Predictive.from_proba(np.column_stack([1 - p, p]))
    y = (rng.uniform(size=4000) < p).astype(int)
    group = Group((Unit(model, "nll", 1, 1),), (pred,), (pred,)).tune(y)
    study = make_study("melanoma", "paper")
    curves = list(_Aggregation(small_run, study, [], 0, 0.95)._calibration(group, y, 1))
    assert {len(curve) for curve in curves} == {n_bins}
    assert curves[0]["n"].sum() == 4000
    if model == "SI-LS":
        assert curves[0]["n"].tolist() == [2000, 1600, 360, 40]


def test_guarantees_hold(tables):
    table = tables.guarantees
    assert table.loc[table["applies"], "held"].all()
    assert {"Prop. 1", "Prop. 2", "Prop. 3", "Prop. 5"} <= set(table["statement"])
    assert set(table["weights"]) == {"equal", "tuned"}


def test_tables_are_made_once(small_run, tables, monkeypatch):
    def never(*_args, **_options):
        raise AssertionError("the tables were made again")

    monkeypatch.setattr(sys.modules["deeptram.paper.aggregate"], "split_samples", never)
    again = aggregate(small_run.path, n_boot=40)
    pd.testing.assert_frame_equal(again.metrics, tables.metrics)
    with pytest.raises(AssertionError, match="made again"):
        aggregate(small_run.path, n_boot=41)
    with pytest.raises(AssertionError, match="made again"):
        aggregate(small_run.path, n_boot=40, refresh=True)


def test_unfinished_runs_have_tables(small_run, tables, tmp_path):
    shutil.copytree(small_run.path, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    shutil.rmtree(run.member(Unit("CI-LS", "nll", 2, 2)))
    shutil.rmtree(run.member(Unit("SI", "nll", 1, 1)))
    part = aggregate(run.path, n_boot=0)
    assert part.members["done"].sum() == 6
    assert part.metrics[["lower", "upper"]].isna().all(axis=None)
    of = {"model": "CI-LS", "metric": "nll", "weights": "equal"}
    alone = value(part.metrics, split=2, method="member", **of)
    assert value(part.metrics, split=2, method="linear", **of)["estimate"] == pytest.approx(alone["estimate"])
    si = part.metrics[(part.metrics["model"] == "SI") & (part.metrics["metric"] == "nll")]
    assert si["split"].isna().tolist() == [False, True]


def test_runs_without_members_are_refused(small_study, tmp_path):
    about = {"levels": ["a", "b"], "n_rows": 9, "info": {}, "versions": {}, "machine": machine()}
    RunFolder(tmp_path).save_study(small_study, {"table": "x", "image": None}, **about)
    with pytest.raises(InvalidInputError, match="must hold at least one finished member, got none"):
        aggregate(tmp_path)


@pytest.mark.parametrize(
    ("options", "match"), [({"n_boot": -1}, "n_boot must be"), ({"level": 1.0}, "level must be")]
)
def test_wrong_options(small_run, options, match):
    with pytest.raises(InvalidInputError, match=match):
        aggregate(small_run.path, **options)


def test_number_of_jobs_changes_nothing(small_run, tables, tmp_path):
    shutil.copytree(small_run.path, tmp_path / "run")
    other = aggregate(tmp_path / "run", n_boot=40, n_jobs=2, refresh=True)
    pd.testing.assert_frame_equal(other.metrics, tables.metrics, check_exact=True)


def test_auc_is_the_authors(tables, truth):
    _, y, loaded = truth
    row = value(tables.metrics, model="CI-LS", split=1, method="member", member=1, metric="auc")
    assert row["estimate"] == partial(M.auc, cutoff=2)(y, loaded[0]["test"])
