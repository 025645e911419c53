from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.evaluation import evaluate


def predictives(tables, part="test"):
    return [dt.Predictive.from_proba(table) for table in tables.members[part]]


def read(path):
    return pd.read_csv(path, float_precision="round_trip")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".csv.gz"])
@pytest.mark.parametrize("method", ["linear", "log-linear", "log-linear-density", "transformation"])
def test_pooled_probabilities(tables, run, tmp_path, method, suffix):
    result = run(
        "pool", "--members", *tables.write(suffix=suffix), "--method", method, "--out", tmp_path / "o"
    )
    assert result.exit_code == 0, result.output
    pooled = read(tmp_path / "o" / "pooled.csv")
    assert list(pooled.columns) == ["low", "mid", "high"]
    expected = dt.pool(predictives(tables), method=method)
    np.testing.assert_allclose(pooled, expected.pmf(), rtol=1e-12)
    assert not (tmp_path / "o" / "metrics.csv").exists()


def test_a_pool_does_not_replace_its_members(tables, run, refused, tmp_path):
    members = tables.write()
    assert run("pool", "--members", *members, "--out", tmp_path / "o").exit_code == 0
    first = tmp_path / "o" / "pooled.csv"
    before = first.read_bytes()
    message = refused("pool", "--members", first, members[0], "--out", tmp_path / "o", "--force")
    assert f"--out must not replace what is read, got {first}" in message
    assert first.read_bytes() == before


def test_cdfs_in_cdfs_out(tables, run, tmp_path):
    paths = tables.write(form="cdf")
    assert run("pool", "--members", *paths, "--input", "cdf", "--out", tmp_path / "o").exit_code == 0
    pooled = read(tmp_path / "o" / "pooled.csv")
    np.testing.assert_allclose(pooled, dt.pool(predictives(tables)).cdf(), rtol=1e-12)
    assert (pooled["high"] == 1).all()


def test_classes_without_an_order(tables, run, tmp_path):
    """Nothing looks at the order: the same numbers whatever it is, and no pool that would need it."""
    paths, truth = tables.write(), tables.truth()
    tables.folder.joinpath("turned").mkdir()
    turned = [
        tables.write_one(table[["mid", "high", "low"]], f"turned/test_m{k}.csv")
        for k, table in enumerate(tables.members["test"])
    ]
    found = []
    for number, members in enumerate((paths, turned)):
        out = tmp_path / str(number)
        command = ["pool", "--members", *members, "--input", "classes", "--truth", truth, "--n-boot", 0]
        result = run(*command, "--no-figures", "--out", out)
        assert result.exit_code == 0, result.output
        table = read(out / "metrics.csv")
        assert set(table["metric"]) == {"nll", "brier", "accuracy"}
        assert {"linear", "log-linear-density"} <= set(table["name"])
        assert not {"transformation", "log-linear"} & set(table["name"])
        found.append(table.set_index(["name", "metric"])["estimate"])
        pooled = read(out / "pooled.csv")[["low", "mid", "high"]]
        np.testing.assert_allclose(pooled, dt.pool(predictives(tables), method="linear").pmf(), rtol=1e-12)
    np.testing.assert_allclose(found[0].sort_index(), found[1].sort_index(), rtol=1e-12)
    refused = run(*command, "--method", "transformation", "--out", tmp_path / "no")
    assert refused.exit_code == 2
    assert "classes without an order are pooled by linear or log-linear-density, got" in refused.output
    tuning = ["--tune-members", *tables.write("tune"), "--tune-truth", tables.truth("tune")]
    command = ["pool", "--members", *paths, "--input", "classes", "--weights", "tuned", *tuning]
    refused = run(*command, "--score", "rps", "--out", tmp_path / "no")
    assert refused.exit_code == 2
    assert "the metric 'rps' needs ordered levels, got predictions of a nominal outcome" in refused.output


def test_the_pool_can_be_pooled_again(tables, run, tmp_path):
    paths = tables.write()
    run("pool", "--members", *paths, "--out", tmp_path / "o")
    again = run("pool", "--members", tmp_path / "o" / "pooled.csv", paths[0], "--out", tmp_path / "p")
    assert again.exit_code == 0, again.output


def test_tuned_parameters_of_a_rule_are_used(tables, run, tmp_path):
    tuning = ["--tune-members", *tables.write("tune"), "--tune-truth", tables.truth("tune")]
    how = ["--method", "beta-linear", "--weights", "tuned", "--out", tmp_path / "o", "--quiet"]
    result = run("pool", "--members", *tables.write(), *tuning, *how)
    assert result.exit_code == 0, result.output
    tuned = dt.tune_weights(predictives(tables, "tune"), tables.y["tune"], method="beta-linear")
    assert tuned.rule.parameters != (1.0, 1.0)
    expected = dt.pool(predictives(tables), method=tuned.rule, weights=tuned.weights)
    np.testing.assert_allclose(read(tmp_path / "o" / "pooled.csv"), expected.pmf(), rtol=1e-6)


@pytest.mark.parametrize("weights", ["equal", "tuned"])
def test_the_best_members_alone(tables, run, tmp_path, weights):
    paths, out = tables.write(), tmp_path / "o"
    tuning = ["--tune-members", *tables.write("tune"), "--tune-truth", tables.truth("tune")]
    result = run("pool", "--members", *paths, *tuning, "--top-k", "2", "--weights", weights, "--out", out)
    assert result.exit_code == 0, result.output
    assert f"the best 2 of {len(paths)} members by NLL, " in result.output
    scores = [dt.scores.nll(tables.y["tune"], one) for one in predictives(tables, "tune")]
    order = np.argsort(scores)[:2]
    assert len(paths) > 2
    record = json.loads((out / "weights.json").read_text())
    assert record["members"] == [paths[m] for m in order]
    assert (record["top_k"], record["chosen_from"], record["chosen_by"]) == (2, paths, "nll")
    chosen = [predictives(tables)[m] for m in order]
    expected = dt.pool(chosen, weights=record["weights"])
    np.testing.assert_allclose(read(out / "pooled.csv"), expected.pmf(), rtol=1e-12)
    assert (record["weights"] == [0.5, 0.5]) == (weights == "equal")


def test_latent_scale(tables, run, tmp_path):
    run("pool", "--members", *tables.write(), "--latent", "probit", "--out", tmp_path / "o")
    expected = dt.pool(predictives(tables), latent="normal")
    np.testing.assert_allclose(read(tmp_path / "o" / "pooled.csv"), expected.pmf(), rtol=1e-12)
    assert json.loads((tmp_path / "o" / "weights.json").read_text())["latent"] == "normal"


def test_equal_weights_and_metrics(tables, run, tmp_path):
    paths = tables.write()
    result = run("pool", "--members", *paths, "--truth", tables.truth(), "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    weights = json.loads((tmp_path / "o" / "weights.json").read_text())
    assert weights["weights"] == pytest.approx([1 / 3] * 3)
    assert weights["scheme"] == "equal"
    assert weights["members"] == paths
    table = read(tmp_path / "o" / "metrics.csv")
    assert list(table.columns) == ["name", "metric", "estimate", "lower", "upper"]
    members = predictives(tables)
    pools = {name: dt.pool(members, method=name) for name in ("linear", "log-linear", "transformation")}
    names = dict(zip(["test_m0", "test_m1", "test_m2"], members, strict=True))
    expected = evaluate({**names, "average": members, **pools}, tables.y["test"], n_boot=0)
    pd.testing.assert_frame_equal(table, pd.DataFrame(expected), check_exact=False, rtol=1e-10)


def test_intervals_are_those_of_evaluate(tables, run, tmp_path):
    args = ["pool", "--members", *tables.write(), "--truth", tables.truth(), "--out", tmp_path / "o"]
    result = run(*args, "--n-boot", 40, "--level", 0.8, "--seed", 5, "--no-figures", fast=False)
    assert result.exit_code == 0, result.output
    row = read(tmp_path / "o" / "metrics.csv").query("name == 'linear' and metric == 'nll'").iloc[0]
    members = predictives(tables)
    expected = evaluate(
        {"linear": dt.pool(members, method="linear")},
        tables.y["test"],
        metrics="nll",
        n_boot=40,
        level=0.8,
        random_state=5,
    ).iloc[0]
    assert (row["lower"], row["upper"]) == pytest.approx((expected["lower"], expected["upper"]))


@pytest.mark.parametrize("score", ["nll", "rps"])
def test_tuned_weights_come_from_the_tuning_data(tables, run, tmp_path, score):
    tuning = ["--tune-members", *tables.write("tune"), "--tune-truth", tables.truth("tune")]
    args = ["pool", "--members", *tables.write(), "--truth", tables.truth(), "--score", score, *tuning]
    result = run(*args, "--weights", "tuned", "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    weights = json.loads((tmp_path / "o" / "weights.json").read_text())
    for method, values in weights["weights_by_method"].items():
        tuned = dt.tune_weights(predictives(tables, "tune"), tables.y["tune"], method=method, score=score)
        np.testing.assert_allclose(values, tuned.weights, atol=1e-6)
    assert weights["weights"] == weights["weights_by_method"]["transformation"]
    assert weights["tuning"]["same_data_as_evaluation"] is False
    assert (weights["tuning"]["gap"] is None) == (score == "rps")
    pooled = dt.pool(predictives(tables), weights=weights["weights"])
    np.testing.assert_allclose(read(tmp_path / "o" / "pooled.csv"), pooled.pmf(), rtol=1e-10)


def test_tuning_on_the_evaluation_data_is_said_aloud(tables, run, tmp_path):
    paths, truth = tables.write(), tables.truth()
    tuning = ["--weights", "tuned", "--tune-members", *paths, "--tune-truth", truth]
    result = run("pool", "--members", *paths, "--truth", truth, *tuning, "--out", tmp_path / "o")
    assert result.exit_code == 0
    assert "tuned on the data they are evaluated on" in " ".join(result.stdout.split())
    weights = json.loads((tmp_path / "o" / "weights.json").read_text())
    assert weights["tuning"]["same_data_as_evaluation"] is True


def test_ids_bring_files_into_one_order(tables, run, tmp_path, rng):
    ids = [f"patient {k}" for k in range(60)]
    order = rng.permutation(60)
    first = tables.write(ids=ids)
    shuffled = tables.members["test"][1].assign(id=ids).iloc[order]
    paths = [first[0], tables.write_one(shuffled, "b.parquet"), first[2]]
    truth = pd.DataFrame({"y": tables.y["test"], "id": ids}).iloc[order[::-1]]
    path = tables.write_one(truth, "truth.csv")
    assert run("pool", "--members", *paths, "--truth", path, "--out", tmp_path / "o").exit_code == 0
    pooled = read(tmp_path / "o" / "pooled.csv")
    assert pooled["id"].tolist() == ids
    np.testing.assert_allclose(pooled[["low", "mid", "high"]], dt.pool(predictives(tables)).pmf(), rtol=1e-12)
    table = read(tmp_path / "o" / "metrics.csv").query("name == 'transformation' and metric == 'nll'")
    expected = dt.scores.nll(tables.y["test"], dt.pool(predictives(tables)))
    assert table["estimate"].item() == pytest.approx(float(expected))


def test_numeric_levels_may_be_spelled_differently(tables, run, tmp_path):
    paths = [
        tables.write_one(table.set_axis(["0", "1", "2"], axis=1), f"n{k}.csv")
        for k, table in enumerate(tables.members["test"])
    ]
    codes = pd.Series(tables.y["test"]).map({"low": 0.0, "mid": 1.0, "high": 2.0})
    truth = tables.write_one(pd.DataFrame({"y": codes}), "truth.csv")
    result = run("pool", "--members", *paths, "--truth", truth, "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output


def test_rounded_probabilities_with_a_tolerance(tables, run, tmp_path):
    paths = [tables.write_one(table.round(3), f"r{k}.csv") for k, table in enumerate(tables.members["test"])]
    result = run("pool", "--members", *paths, "--tolerance", "0.002", "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(read(tmp_path / "o" / "pooled.csv").sum(axis=1), 1.0)


def test_two_decimals_need_a_tolerance_of_their_size(tables, run, tmp_path):
    rounded = pd.DataFrame({"low": [0.34], "mid": [0.34], "high": [0.33]})  # 1.01 - 1 is more than 0.01
    paths = [tables.write_one(rounded, f"r{k}.csv") for k in range(2)]
    assert "or allow rounding with --tolerance" in run("pool", "--members", *paths, "--out", tmp_path).stderr
    result = run("pool", "--members", *paths, "--tolerance", "0.01", "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output


def test_quantiles_are_not_levels(tables, run, tmp_path):
    path = tables.write_one(pd.DataFrame({"q0.1": [1.0], "q0.9": [2.0]}), "q.csv")
    said = run("pool", "--members", path, path, "--out", tmp_path / "o").stderr
    assert "got quantiles of numbers (q0.1, q0.9, ...); pass --input quantiles" in said


def test_figures(tables, run, tmp_path):
    tuning = [
        "--weights",
        "tuned",
        "--tune-members",
        *tables.write("tune"),
        "--tune-truth",
        tables.truth("tune"),
    ]
    args = ["pool", "--members", *tables.write(), "--truth", tables.truth(), *tuning, "--out", tmp_path / "o"]
    assert run(*args, "--n-boot", 20, fast=False).exit_code == 0
    for name in ("calibration.png", "performance.png", "weights.png"):
        assert (tmp_path / "o" / name).read_bytes()[:4] == b"\x89PNG"
    assert not [path for path in (tmp_path / "o").iterdir() if path.name.startswith(".")]


def test_quiet(tables, run, tmp_path):
    args = ["pool", "--members", *tables.write(), "--truth", tables.truth(), "--out", tmp_path / "o"]
    result = run(*args, "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "o" / "metrics.csv").is_file()


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        (["--method", "tranformation"], "--method must be one of .*did you mean 'transformation'"),
        (["--weights", "optimal"], "--weights must be one of 'equal', 'tuned', got 'optimal'"),
        (
            ["--input", "pdf"],
            "--input must be one of 'proba', 'classes', 'cdf', 'quantiles', 'samples', got 'pdf'",
        ),
        (["--latent", "cauchy"], "'cauchy'"),
        (["--tolerance", "0.5"], "--tolerance must be between 0 and 0.05, got 0.5"),
        (["--weights", "tuned"], "--tune-members and --tune-truth, got neither"),
        (["--top-k", "2"], "--top-k needs data of its own"),
        (
            ["--top-k", "0", "--tune-members", "MEMBERS", "--tune-truth", "TRUTH"],
            "--top-k must be an integer of at least 1, got 0",
        ),
        (
            ["--top-k", "9", "--tune-members", "MEMBERS", "--tune-truth", "TRUTH"],
            "k must not exceed the number",
        ),
        (["--weights", "tuned", "--tune-members", "MEMBERS"], "got only one of them"),
        (["--tune-members", "MEMBERS", "--tune-truth", "TRUTH"], "need --weights tuned, got --weights equal"),
        (
            ["--weights", "tuned", "--tune-members", "ONE", "--tune-truth", "TRUTH"],
            "one file per member in the order of --members, got 1 for 3",
        ),
        (["--truth", "TRUTH", "--level", "95"], "level must be a number strictly between 0 and 1, got 95"),
        (
            ["--weights", "tuned", "--tune-members", "MEMBERS", "--tune-truth", "TRUTH", "--score", "nlll"],
            "did you mean 'nll'",
        ),
    ],
    ids=[
        "method",
        "weights",
        "input",
        "latent",
        "tolerance",
        "no data",
        "no data for the best",
        "none of them",
        "too many",
        "half",
        "unused",
        "count",
        "level",
        "score",
    ],
)
def test_refusals(tables, run, tmp_path, extra, match):
    words = {
        "MEMBERS": tables.write("tune"),
        "ONE": tables.write("tune")[:1],
        "TRUTH": [tables.truth("tune")],
    }
    if "--level" in extra:
        words["TRUTH"] = [tables.truth()]
    args = [value for word in extra for value in words.get(word, [word])]
    result = run("pool", "--members", *tables.write(), *args, "--out", tmp_path / "o")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert pd.Series([result.stderr]).str.contains(match).item(), result.stderr


def test_tuning_levels_must_agree(tables, refused, tmp_path):
    other = [
        tables.write_one(table.rename(columns={"high": "top"}), f"other{k}.csv")
        for k, table in enumerate(tables.members["tune"])
    ]
    message = refused(
        "pool", "--members", *tables.write(), "--weights", "tuned", "--tune-members", *other,
        "--tune-truth", tables.truth("tune"), "--out", tmp_path / "o",
    )  # fmt: skip
    assert "must have the columns of" in message
    assert "got an unknown column 'top' and no column 'high'; rename the columns" in message


def test_out_must_be_a_folder(tables, refused, tmp_path):
    (tmp_path / "file").write_text("")
    message = refused("pool", "--members", *tables.write(), "--out", tmp_path / "file")
    assert (
        "file must be a folder that can be written, got FileExistsError (File exists); choose another --out"
        in message
    )


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        (["--score", "rps"], "--score has an effect with --weights tuned only, got no such option"),
        (["--level", "0.9"], "--level has an effect with --truth only"),
        (["--seed", "3"], "--seed has an effect with --truth only"),
        (["--n-boot", "50"], "--n-boot has an effect with --truth only"),
        (["--figures"], "--figures has an effect with --truth only"),
        (
            ["--method", "linear", "--latent", "normal"],
            "--latent has an effect with --method transformation only",
        ),
        (
            ["--truth", "TRUTH", "--n-boot", "0", "--level", "0.9"],
            "--level has an effect with --n-boot above 0 only",
        ),
    ],
)
def test_options_without_effect_are_refused(tables, run, tmp_path, extra, match):
    args = [tables.truth() if word == "TRUTH" else word for word in extra]
    result = run("pool", "--members", *tables.write(), *args, "--out", tmp_path / "o", fast=False)
    assert result.exit_code == 2
    assert match in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_one_member_is_refused(tables, refused, tmp_path):
    message = refused("pool", "--members", tables.write()[0], "--out", tmp_path / "o")
    assert "--members must name at least two files, got" in message


def test_no_bootstrap_has_no_intervals(tables, run, tmp_path):
    args = [
        "pool",
        "--members",
        *tables.write(),
        "--truth",
        tables.truth(),
        "--out",
        tmp_path / "o",
        "--n-boot",
        "0",
    ]
    result = run(*args, fast=False)
    assert result.exit_code == 0, result.output
    assert "interval" not in result.stdout
    assert (tmp_path / "o" / "performance.png").is_file()


def test_what_predict_writes_is_pooled(tables, run, refused, tmp_path):
    """Probabilities, the likeliest level and uncertainties: the latter two are no levels."""
    paths = []
    for k, table in enumerate(tables.members["test"]):
        more = table.assign(prediction=table.idxmax(axis=1), total=0.5, aleatoric=0.4, epistemic=0.1)
        paths.append(tables.write_one(more, f"predicted{k}.csv"))
    assert run("pool", "--members", *paths, "--out", tmp_path / "a").exit_code == 0
    assert run("pool", "--members", *tables.write(), "--out", tmp_path / "b").exit_code == 0
    assert (tmp_path / "a" / "pooled.csv").read_bytes() == (tmp_path / "b" / "pooled.csv").read_bytes()
    numbers = pd.DataFrame({"q0.025": [1.0], "q0.5": [2.0], "P(Y>3)": [0.1], "prediction": [2.0]})
    paths = [tables.write_one(numbers, f"numbers{k}.csv") for k in range(2)]
    message = refused("pool", "--members", *paths, "--out", tmp_path / "c")
    assert "got quantiles of numbers (q0.025, q0.5, P(Y>3), ...)" in message


def test_a_level_may_be_called_prediction(tables, run, tmp_path):
    paths = [
        tables.write_one(table.rename(columns={"high": "prediction"}), f"l{k}.csv")
        for k, table in enumerate(tables.members["test"])
    ]
    assert run("pool", "--members", *paths, "--out", tmp_path / "a").exit_code == 0
    assert list(pd.read_csv(tmp_path / "a" / "pooled.csv").columns) == ["low", "mid", "prediction"]


def test_predictions_of_our_own_models_feed_the_pool(run, tmp_path):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(120, 2))
    y = np.digitize(x[:, 0] + rng.logistic(size=120), [-1, 1])
    table = pd.DataFrame({"id": [f"p{k}" for k in range(120)], "x1": x[:, 0], "x2": x[:, 1], "y": y})
    table.to_csv(tmp_path / "d.csv", index=False)
    outs = []
    for k, linear in enumerate(("x1", "x2")):
        fit = ["fit", "--data", tmp_path / "d.csv", "--outcome", "y", "--type", "ordinal", "--linear", linear]
        assert run(*fit, "--out", tmp_path / f"m{k}", "--quiet").exit_code == 0
        outs.append(tmp_path / f"p{k}.csv")
        done = run("predict", tmp_path / f"m{k}", "--data", tmp_path / "d.csv", "--out", outs[-1])
        assert done.exit_code == 0, done.output
    table[["id", "y"]].to_csv(tmp_path / "y.csv", index=False)
    result = run("pool", "--members", *outs, "--truth", tmp_path / "y.csv", "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    pooled = pd.read_csv(tmp_path / "o" / "pooled.csv")
    assert list(pooled.columns) == ["id", "0", "1", "2"]
    np.testing.assert_allclose(pooled[["0", "1", "2"]].sum(axis=1), 1)


@pytest.mark.skipif(os.name != "posix", reason="/proc and /dev are POSIX")
def test_unwritable_folders_are_named_before_anything_is_done(tables, refused):
    for out in ("/dev/null/out", "/proc/1/out"):
        message = refused("pool", "--members", *tables.write(), "--out", out)
        assert f"{out} must be a folder that can be written, got" in message
