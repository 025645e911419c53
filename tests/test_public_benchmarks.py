"""The helpers of benchmarks/public: what is scored, how it is told, and that no test row chooses anything."""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

import deeptram as dt

FOLDER = Path(__file__).parents[1] / "benchmarks" / "public"
NO_ROWS = '{"settings": SAME, "cpu_seconds": 1.0, "rows": []}'
NO_METHOD = '{"settings": SAME, "cpu_seconds": 1.0, "rows": [{"nll": 1.0}]}'


@pytest.fixture
def part(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.fixture
def scores():
    rows = [
        ("a", 0, "ours", 1.0), ("a", 1, "ours", 2.0), ("a", 0, "peer", 2.0), ("a", 1, "peer", 2.0),
        ("b", 0, "ours", 3.0), ("b", 0, "peer", np.inf), ("b", 0, "other", np.nan),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["dataset", "split", "method", "nll"]).assign(seconds=30.0)


def test_tables_show_the_best_and_every_infinity(part, scores):
    study = part("_study")
    shown = study.side_by_side(scores, "nll", ["ours", "peer", "other"], digits=1)
    assert shown.loc["a"].to_list() == ["**1.5 ± 0.5**", "2.0 ± 0.0", "–"]
    assert shown.loc["b"].to_list() == ["**3.0**", "∞", "–"]
    assert study.markdown(shown).splitlines()[:2] == [
        "| set | ours | peer | other |",
        "| --- | --- | --- | --- |",
    ]
    assert "below all peers in nll on 2 of 2 sets (a, b)" in study.verdict(scores, "nll", "ours", ["peer"])
    assert "0 of 2" in study.verdict(scores, "nll", "peer", ["ours"])
    assert study.cost(scores) == "3 units, 2 minutes of one core."


def test_a_part_is_written_between_its_marks_again_and_again(part, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- uci: begin --><!-- uci: end -->\n<!-- shift: begin -->x<!-- shift: end -->\n"
    )
    for text in ("old", "new"):
        part("_study").publish("shift", text, page)
    assert page.read_text().endswith("<!-- shift: begin -->\n\nnew\n\n<!-- shift: end -->\n")
    assert page.read_text().startswith("before\n<!-- uci: begin --><!-- uci: end -->\n")


@pytest.fixture
def a_page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("<!-- part: begin -->old<!-- part: end -->")
    return path


@pytest.fixture
def study_of_two(part, tmp_path):
    study, seen = part("_study"), []

    def score(unit):
        seen.append(unit)
        rows = [{"method": "m", "nll": 1.0 + unit.split / 7, "crps": float("inf"), "weights": [0.25, 0.75]}]
        return [*rows, {"method": "m", "severity": 3, "pool": "linear", "nll": -0.5}]

    def run(settings, out="first", write=None, fresh=False, splits=(0, 1)):
        wanted = argparse.Namespace(out=tmp_path / out, n_jobs=1, write=write, fresh=fresh)
        units = [study.Unit("a", split) for split in splits]
        return study.run("part", score, units, settings, wanted, kept_in=tmp_path / "kept")

    return run, seen


def refused(capsys, call, *words):
    """Check that a call ends with exit code 2 and one sentence that has these words."""
    with pytest.raises(SystemExit) as ended:
        call()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert len(told.splitlines()) == 1
    for word in (*words, "expects", "got", ";"):
        assert word in told


def test_a_unit_is_computed_once_and_again_when_its_settings_change(study_of_two):
    run, seen = study_of_two
    for settings in ({"k": 1}, {"k": 1}, {"k": 2}):
        table = run(settings)
    assert len(seen) == 4
    assert table["split"].to_list() == [0, 0, 1, 1]


def test_nothing_is_kept_before_the_page_is_known_to_be_good(study_of_two, a_page, tmp_path, capsys):
    run, seen = study_of_two
    refused(capsys, lambda: run({"k": 1}, write=a_page), "finished units")
    assert not seen
    run({"k": 1})
    refused(capsys, lambda: run({"k": 1}, write=tmp_path / "absent.md"), "absent.md")
    refused(capsys, lambda: run({"k": 1}, write=tmp_path), "--write")
    begin, end = "<!-- part: begin -->", "<!-- part: end -->"
    for text in ("", begin, f"{end}{begin}", f"{begin}{end}{end}", f"{begin}{end}{begin}"):
        a_page.write_text(text)
        refused(capsys, lambda: run({"k": 1}, write=a_page), begin, end)
    assert not (tmp_path / "kept").exists()


def kept_settings(tmp_path):
    table = pd.read_csv(tmp_path / "kept" / "part.csv.gz")
    return table.groupby("split")["settings"].unique().map(list)


def test_kept_rows_of_other_settings_stay_until_their_unit_is_computed(study_of_two, a_page, tmp_path):
    run, _ = study_of_two
    run({"k": 1}, splits=(0, 1, 10))
    run({"k": 1}, splits=(0, 1, 10), write=a_page)
    old = kept_settings(tmp_path)
    run({"k": 2}, splits=[1])
    shown = run({"k": 2}, write=a_page)
    new = kept_settings(tmp_path)
    assert shown["split"].unique().tolist() == [1]
    assert new.index.tolist() == [0, 1, 10]
    assert new[[0, 10]].equals(old[[0, 10]])
    assert len(new[1]) == 1
    assert new[1] != old[1]


def test_a_fresh_run_computes_kept_units_and_drops_no_others(study_of_two, a_page, tmp_path, capsys):
    run, seen = study_of_two
    run({"k": 1})
    run({"k": 1}, write=a_page)
    capsys.readouterr()
    run({"k": 1}, out="second", splits=[0])
    assert "1 units taken from the kept scores" in capsys.readouterr().out
    assert len(seen) == 2
    run({"k": 1}, out="second", splits=[0], fresh=True)
    run({"k": 1}, out="second", splits=[0], fresh=True)
    assert "taken" not in capsys.readouterr().out
    assert len(seen) == 3
    run({"k": 1}, out="second", splits=[0], fresh=True, write=a_page)
    assert kept_settings(tmp_path).index.tolist() == [0, 1]


@pytest.mark.parametrize(
    "text", ['{"sett', "[]", "{}", "null", "3", '{"settings": SAME}', NO_ROWS, NO_METHOD]
)
def test_a_damaged_unit_is_reported_and_computed_again(study_of_two, a_page, tmp_path, capsys, text):
    run, seen = study_of_two
    good = run({"k": 1})
    run({"k": 1}, write=a_page)  # kept scores of the unit do not hide the damage
    path = tmp_path / "first" / "a-1.json"
    same = json.dumps(json.loads(path.read_text())["settings"])
    path.write_text(text.replace("SAME", same))
    capsys.readouterr()
    again = run({"k": 1})
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "a-1.json" in told[0]
    assert "computed again" in told[0]
    assert [unit.split for unit in seen] == [0, 1, 1]
    pd.testing.assert_frame_equal(again.drop(columns="seconds"), good.drop(columns="seconds"))
    run({"k": 1})
    assert not capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused(study_of_two, tmp_path, capsys):
    run, seen = study_of_two
    (tmp_path / "file").write_text("")
    for out in ("file", "file/below"):
        refused(capsys, lambda out=out: run({"k": 1}, out=out), "--out", out)
    assert not seen


def test_kept_scores_are_finished_units_elsewhere_until_the_settings_change(study_of_two, a_page):
    run, seen = study_of_two
    run({"k": 1})
    told = run({"k": 1}, write=a_page)
    found = run({"k": 1}, out="another machine")
    assert len(seen) == 2
    pd.testing.assert_frame_equal(found.drop(columns="seconds"), told.drop(columns="seconds"), rtol=1e-5)
    assert found["nll"].to_list() == [1.0, -0.5, 1.14286, -0.5]
    run({"k": 2}, out="another machine")
    assert len(seen) == 4


def test_kept_scores_of_the_page_have_one_value_per_unit_method_and_metric(part):
    for path in part("_study").KEPT.glob("*.csv.gz"):
        table = pd.read_csv(path)
        assert not table.duplicated(["dataset", "split", "row", "metric"]).any()
        assert (table.groupby(["dataset", "split"])["settings"].nunique() == 1).all()


def test_kept_scores_stay_byte_for_byte_where_nothing_is_new(part, tmp_path):
    study = part("_study")
    for kept in study.KEPT.glob("*.csv.gz"):
        path = tmp_path / kept.name
        shutil.copy(kept, path)
        study.keep({}, path, "other settings")
        assert gzip.decompress(path.read_bytes()) == gzip.decompress(kept.read_bytes())


@pytest.fixture
def script(part, monkeypatch, tmp_path):
    """Run a script with a command line; units are listed instead of computed, and no score is kept."""
    monkeypatch.delenv("DEEPTRAM_DATA", raising=False)
    monkeypatch.setattr(part("_study"), "KEPT", tmp_path / "kept")

    def run(name, *words):
        module, seen = part(name), []

        def listed(unit, data=None):
            seen.append((unit.dataset, unit.split))
            return [{"method": "m"}]

        monkeypatch.setattr(module, "score", listed)
        monkeypatch.setattr(module, "page", lambda *_: "tables")
        command = [f"{name}.py", "--out", str(tmp_path / "out"), "--n-jobs", "1", *map(str, words)]
        monkeypatch.setattr(sys, "argv", command)
        module.main()
        return seen

    return run


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("survival", ["--datasets", "rossi", "--splits", "0"], "1 to 25"),
        ("survival", ["--datasets", "rossi", "--splits", "26"], "26"),
        ("survival", ["--datasets", "whas-once", "whas", "--splits", "0"], "whas, each row once"),
        ("shift", ["--datasets", "digits", "--splits", "0", "5"], "0 to 4"),
        ("shift", ["--datasets", "digits", "--splits", "-1"], "-1"),
        ("uci", ["--datasets", "protein", "--splits", "4", "5"], "0 to 4"),
        ("shift", ["--datasets", "digits", "--n-jobs", "0"], "--n-jobs"),
        ("shift", ["--datasets", "digits", "--data", "nowhere"], "--data"),
        ("shift", ["--datasets", "digits", "mnist"], "DEEPTRAM_DATA"),
        ("shift", ["--datasets", "letters"], "letters"),
        ("survival", ["--datasets", "rossi", "--write", "absent.md"], "absent.md"),
    ],
)
def test_bad_input_gets_one_sentence_and_computes_nothing(script, tmp_path, capsys, name, words, told):
    refused(capsys, lambda: script(name, *words), f"{name}.py: ", told)
    assert not list(tmp_path.glob("out/*"))


def test_a_data_folder_without_the_file_of_a_set_is_refused(script, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DEEPTRAM_DATA", str(tmp_path / "absent"))
    refused(capsys, lambda: script("survival"), "DEEPTRAM_DATA", "absent")
    monkeypatch.setenv("DEEPTRAM_DATA", str(tmp_path))
    refused(capsys, lambda: script("survival", "--datasets", "whas-once"), "survival/whas.csv.gz")
    refused(capsys, lambda: script("uci", "--datasets", "yacht"), "uci/yacht.csv.gz")
    for name, missing in (("mnist", "train-images-idx3-ubyte.gz"), ("utkface", "UTKFace")):
        refused(capsys, lambda name=name: script("shift", "--datasets", "digits", name), name, missing)
    assert not list(tmp_path.glob("out/*"))


def test_a_short_name_computes_the_set_under_its_own_name(script, tmp_path):
    (tmp_path / "survival").mkdir()
    (tmp_path / "survival" / "whas.csv.gz").write_text("")
    words = ("--data", tmp_path, "--splits", "2", "2", "--datasets", "whas-once", "whas, each row once")
    assert script("survival", *words, "rossi") == [("whas, each row once", 2), ("rossi", 2)]
    assert (tmp_path / "out" / "whas, each row once-2.json").exists()


def test_quick_takes_two_splits_of_every_set(part):
    for name in ("uci", "survival", "shift"):
        sets = part(name).SETS
        units = part("_command").units_of(sets, None, None, quick=True)
        assert pd.Series([unit.dataset for unit in units]).value_counts().to_dict() == dict.fromkeys(sets, 2)
    units = part("_command").units_of(part("survival").SETS, ["support", "rossi"], None, quick=True)
    assert [(unit.dataset, unit.split) for unit in units] == [
        ("support", 0), ("support", 1), ("rossi", 1), ("rossi", 2),
    ]  # fmt: skip


def test_every_set_has_only_splits_that_are_there(part, capsys):
    survival, command = part("survival"), part("_command")
    for name, source in survival.SETS.items():
        assert (0 in source.splits) == (name in survival.GIVEN)
    units = command.units_of(part("uci").SETS, ["yacht", "protein"], [7, 4])
    assert [(unit.dataset, unit.split) for unit in units] == [("yacht", 7), ("yacht", 4), ("protein", 4)]
    assert "protein has no split 7" in capsys.readouterr().out


def test_help_says_where_finished_units_come_from(script, capsys):
    with pytest.raises(SystemExit) as ended:
        script("survival", "--help")
    told = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert "benchmarks/public/scores unless --fresh, are taken" in told
    assert "whas-once is 'whas, each row once'" in told


def test_a_training_row_is_not_described_by_trees_that_have_seen_it(part, rng):
    X = pd.DataFrame(rng.normal(size=(150, 2)), columns=["a", "b"])
    y = rng.normal(size=150)  # noise: only a tree that has seen a row can know its outcome
    known, new = part("_forest").forest_columns(X, y, X, 60, 0)
    assert abs(np.corrcoef(known["forest_mean"], y)[0, 1]) < 0.3
    assert np.corrcoef(new["forest_mean"], y)[0, 1] > 0.9
    assert (known["forest_0.25"] <= known["forest_0.75"]).all()


def test_step_functions_have_the_crps_of_their_draws(part, rng):
    levels, proba = np.array([3.0, 4.0, 6.0, 7.0]), rng.dirichlet(np.ones(4), size=5)
    y = np.array([3.0, 6.0, 7.0, 9.0, 1.5])
    distance = np.abs(levels[:, None] - levels)
    by_hand = proba @ np.abs(levels[:, None] - y) - 0.5 * np.sum(proba @ distance * proba, axis=1)[:, None]
    found = part("uci").step_crps(y, levels, proba.cumsum(axis=1))
    np.testing.assert_allclose(found, np.mean(np.diag(by_hand)), atol=1e-12)


def test_copies_of_test_rows_are_counted(part):
    rows = pd.DataFrame(
        {"x1": [1, 1, 2, 3, 4], "x2": [0, 0, 0, 0, 0], "y": [5, 6, 7, 7, 7], "test_0": [0, 1, 1, 0, 0]}
    )
    assert part("uci").copied(rows, "test_0", ["x1", "x2"]) == [0.5, 0.0]


def test_uci_choices_do_not_see_the_test_rows(part, rng):
    uci = part("uci")
    y_held = [rng.normal(size=30) for _ in range(5)]
    y = rng.normal(size=20)

    def kind(name, shift):
        def normal(n):
            return dt.Predictive.from_scipy(norm(np.full(n, shift), 1.0))

        return uci.Kind(name, [normal(20) for _ in range(5)], [normal(30) for _ in range(5)])

    kinds = [kind("CI", 0.0), kind("CI, forest", 2.0)]
    rows, other = (
        {row["method"]: row for row in uci.pooled_scores(kinds, y_held, outcome)} for outcome in (y, y + 2)
    )
    for name in ("linear, tuned", "transformation, tuned", "linear, tuned by crps"):
        assert rows[name]["weights"] == other[name]["weights"]
        assert rows[name]["weights"][0] > 0.9
    for name in ("chosen", "chosen, crps"):
        assert rows[name]["pool"] == other[name]["pool"]
    assert rows["CI alone"]["nll"] == pytest.approx(-norm.logpdf(y).mean(), abs=1e-6)


def test_out_of_fold_predictions_and_pools(part):
    candidates = part("_candidates")
    data = dt.datasets.simulate("ordinal", n=150, seed=1)
    X, y = pd.DataFrame({name: data.X[name] for name in ("x_1", "x_2")}), np.asarray(data.y)
    rows = np.arange(100)
    folds = [(rows[rows % 2 != k], rows[rows % 2 == k]) for k in (0, 1)]
    exact = candidates.cross_fitted("Polr", dt.Polr(), X[:100], y[:100], X[100:], folds, 0)
    half = dt.Polr(levels=sorted(set(y))).fit(X[1:100:2], y[1:100:2]).predict_distribution(X[0:100:2])
    np.testing.assert_allclose(exact.out_of_fold.pmf()[0:100:2], half.pmf(), atol=1e-6)
    network = dt.networks.MLP((4,))
    deep = dt.Polr([dt.CI(network, *X)], training=dt.Training(epochs=2, progress=False))
    found = candidates.cross_fitted("CI", deep, X[:100], y[:100], X[100:], folds, 0)
    assert (len(exact.members), len(found.members)) == (1, 2)
    by_hand = (exact.members[0].cdf() + (found.members[0].cdf() + found.members[1].cdf()) / 2) / 2
    np.testing.assert_allclose(candidates.pool_of([exact, found], "linear").cdf(), by_hand, atol=1e-10)
    values = {name: value for name, value, _ in candidates.pools([exact, found], y[:100])}
    assert len(values) == 6
    assert values["linear, tuned"] <= values["linear, equal"] + 1e-9


def test_what_is_chosen_does_not_see_the_test_rows(part):
    candidates = part("_candidates")
    data = dt.datasets.simulate("ordinal", n=120, seed=2)
    X, y = pd.DataFrame({name: data.X[name] for name in ("x_1", "x_2")}), np.asarray(data.y)
    rows = np.arange(80)
    folds = [(rows[rows % 2 != k], rows[rows % 2 == k]) for k in (0, 1)]
    kinds = {"Polr": dt.Polr(), "CS": dt.Polr(latent="normal"), "CI": dt.Polr(latent="cloglog")}

    def chosen(test):
        found = candidates.predictions(kinds, {}, (X[:80], y[:80]), test, folds, None, 0)
        return [(name, more) for name, _, more in found]

    assert chosen(X[80:]) == chosen(-3 * X[80:])


def test_events_on_the_grid(part):
    survival = part("survival")
    y = dt.Surv.right([0.5, 1.0, 1.5, 9.0, 1.5], [True, True, True, True, False])
    found = survival.on_grid(y, np.array([1.0, 2.0]))
    expected = dt.Surv.interval([0.0, 0.0, 1.0, 2.0, 1.5], [1.0, 1.0, 2.0, np.inf, np.inf])
    pred = dt.Predictive.from_survival([1.0, 2.0, 4.0], np.tile([0.8, 0.4, 0.1], (5, 1)))
    by_hand = -np.log([0.2, 0.2, 0.4, 0.4, 0.8])  # the curve is a step function
    for outcome in (found, expected):
        np.testing.assert_allclose(dt.scores.nll(outcome, pred, reduction="none"), by_hand, atol=1e-12)


def test_the_grid_score_is_finite_for_curves_that_end(part, rng):
    survival = part("survival")
    time, event = rng.exponential(size=200), rng.uniform(size=200) < 0.7
    scores = survival.Scores(time, event)
    early = dt.Predictive.from_survival([0.01, 0.02], np.tile([0.5, 0.0], (200, 1)))
    y = dt.Surv.right(time, event)
    assert np.isfinite(scores.grid_nll(y, early))
    marginal = KaplanMeierFitter().fit(time, event)
    times = np.unique(time[event])
    curve = marginal.survival_function_at_times(times).to_numpy()
    good = dt.Predictive.from_survival(times, np.tile(curve, (200, 1)))
    assert scores.grid_nll(y, good) < scores.grid_nll(y, early)


def test_rare_levels_join_the_next_towards_the_middle(part):
    pytest.importorskip("mord")
    y = np.repeat([3, 4, 5, 6, 9], [2, 20, 20, 20, 4])
    assert np.bincount(part("ordinal").merged(y, 10)).tolist() == [22, 20, 24]


def test_shifts_begin_at_nothing_and_grow(part, rng):
    shift = part("shift")
    images = rng.uniform(size=(20, 8, 8)).astype(np.float32)
    for name in ("noise", "blur", "rotation"):
        assert shift.shifted(images, name, 0, 1) is images
        away = [np.abs(shift.shifted(images, name, k, 1) - images).mean() for k in (1, 3, 5)]
        assert away == sorted(away)
        assert away[0] > 0
    for shape in ((5, 8, 8), (4, 3, 8, 8)):
        patches = shift.patches(np.zeros(shape), 0)
        assert patches.shape == shape
        assert patches.min() == 0
        assert patches.max() == 1


def test_rejection_and_detection(part, rng):
    shift = part("shift")
    uncertainty = np.arange(10.0)
    right = uncertainty < 7
    assert shift.kept_accuracy(uncertainty, right)[:5] == [0.7, 7 / 9, 0.875, 1.0, 1.0]
    usual, other = rng.normal(size=30), rng.normal(1, 1, 40)
    expected = roc_auc_score(np.repeat([0, 1], [30, 40]), np.concatenate([usual, other]))
    assert shift.detection(usual, other) == expected
