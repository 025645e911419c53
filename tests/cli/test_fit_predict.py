"""``deeptram fit`` and ``deeptram predict``: tables and images in, models and distributions out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

import deeptram as dt
from deeptram.cli.main import app
from deeptram.cli.model_data import read_outcome
from deeptram.errors import ExtrapolationWarning

ORDER = ["--levels", "low", "mid", "high"]
FAST = ["--epochs", "2", "--members", "2", "--batch-size", "32", "--quiet"]


def run(*arguments, code=0):
    """Run the command line; return what it printed, or its one line on stderr."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.stderr or result.output
    if code == 2:
        assert len(result.stderr.strip().splitlines()) == 1
        assert "Traceback" not in result.stderr
    return result.stderr if code else result.stdout


@pytest.fixture
def data(tmp_path):
    """Write a training table with every type of outcome, new rows, and image files."""
    rng = np.random.default_rng(0)
    n = 60
    x = rng.normal(size=(n, 2))
    z = rng.logistic(size=n) + x[:, 0]
    (tmp_path / "pictures").mkdir()
    for i in range(n):
        pixels = rng.integers(0, 255, size=(9, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{i}.png")
    table = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(n)],
            "x1": x[:, 0],
            "x2": x[:, 1],
            "sex": np.where(x[:, 1] > 0, "f", "m"),
            "file": [f"{i}.png" for i in range(n)],
            "grade": np.array(["low", "mid", "high"])[np.digitize(z, [-1, 1])],
            "sick": (z > 0).astype(int),
            "value": z,
            "count": np.floor(np.exp(z / 2)).astype(int),
            "time": np.exp(z / 2),
            "event": (rng.random(n) < 0.7).astype(int),
        }
    )
    table.to_csv(tmp_path / "train.csv", index=False)
    table.drop(columns=["grade", "sick", "value", "count", "time", "event"])[:7].to_csv(
        tmp_path / "new.csv", index=False
    )
    return tmp_path


@pytest.mark.parametrize(
    ("outcome", "kind", "more"),
    [
        ("sick", "binary", []),
        ("grade", "ordinal", ["--levels", "low", "mid", "high"]),
        ("grade", "nominal", []),
        ("value", "continuous", []),
        ("count", "count", []),
        ("time", "survival", ["--event", "event"]),
    ],
)
def test_exact_fit_is_that_of_the_library(data, outcome, kind, more):
    arguments = ["--data", data / "train.csv", "--outcome", outcome, "--type", kind, "--out", data / "model"]
    shown = run("fit", *arguments, "--linear", "x1 + sex", *more)
    sign = "larger odds of its level against high" if kind == "nominal" else "a larger outcome"
    assert f"Coefficients: a positive coefficient means {sign}\n" in shown
    for line in dt.load(data / "model").summary().attrs["header"][1:]:
        assert f"\n{line}\n" in shown
    assert ("of the level in its name against high" in shown) == (kind == "nominal")
    assert "Exact maximum likelihood" in shown
    run("predict", data / "model", "--data", data / "new.csv", "--out", data / "sub" / "pred.csv", "--quiet")
    found = pd.read_csv(data / "sub" / "pred.csv", float_precision="round_trip")
    assert found["id"].tolist() == [f"p{i}" for i in range(7)]
    table, new = pd.read_csv(data / "train.csv"), pd.read_csv(data / "new.csv")
    y = dt.Surv.right(table["time"], table["event"]) if kind == "survival" else table[outcome]
    latent = {"continuous": "normal", "survival": "cloglog"}.get(kind, "logistic")
    levels = ["low", "mid", "high"] if more and kind == "ordinal" else None
    model = dt.Tram([dt.LS("x1 + sex")], outcome=kind, latent=latent, levels=levels).fit(table, y)
    if kind in ("binary", "ordinal", "nominal"):
        np.testing.assert_allclose(found[[str(c) for c in model.classes_]], model.predict_proba(new))
        assert found["prediction"].tolist() == model.predict(new).tolist()
    else:
        if kind == "survival":
            with pytest.warns(ExtrapolationWarning, match="last observed"):
                quantiles = model.predict_quantile(new, [0.025, 0.25, 0.5, 0.75, 0.975])
            assert model.outcome_.log_first
            assert (quantiles > 0).all()
            again = ["predict", data / "model", "--data", data / "new.csv", "--out", data / "p.csv"]
            noted = CliRunner().invoke(app, [str(a) for a in again])
            assert noted.stderr.count("Note: some quantiles lie beyond") == 1
        else:
            quantiles = model.predict_quantile(new, [0.025, 0.25, 0.5, 0.75, 0.975])
        np.testing.assert_allclose(found[["q0.025", "q0.25", "q0.5", "q0.75", "q0.975"]], quantiles)


def test_an_ensemble_on_a_table(data):
    arguments = ["--data", data / "train.csv", "--outcome", "value", "--type", "continuous"]
    shown = run(
        "fit", *arguments, "--linear", "x1", "--deep", "x2", "sex", "--out", data / "m", "--weights", "tuned",
        *FAST[:-1],
    )  # fmt: skip
    assert "2 members with weights" in shown
    assert "lower" in shown
    assert "for the best epochs and the weights were chosen on these rows" in shown
    ensemble = dt.load(data / "m")
    assert len(ensemble.members_) == 2
    assert [str(term.columns) for term in ensemble.model.terms] == ["('x2', 'sex')", "x1"]
    told = run(
        "predict", data / "m", "--data", data / "new.csv", "--out", data / "p.csv",
        "--quantiles", "0.1", "0.9", "--times", "0", "1", "--uncertainty", "--pooling", "linear",
    )  # fmt: skip
    assert "7 rows written" in told
    found = pd.read_csv(data / "p.csv")
    assert found.columns.tolist() == [
        "id", "q0.1", "q0.9", "P(Y>0)", "P(Y>1)", "prediction", "total", "aleatoric", "epistemic",
    ]  # fmt: skip
    new = pd.read_csv(data / "new.csv")
    linear = ensemble.predict_distribution(new, pooling="linear")
    np.testing.assert_allclose(found["P(Y>1)"], linear.sf(1.0))


@pytest.mark.parametrize("options", [[], ["--grey", "--image-term", "shift"]])
def test_an_ensemble_on_images(data, options):
    run(
        "fit", "--data", data / "train.csv", "--outcome", "grade", "--type", "ordinal", "--levels", "low", "mid",
        "high", "--images", data / "pictures", "--image-size", "8", "--linear", "x1", "--out", data / "m",
        "--n-jobs", "1", *options, *FAST,
    )  # fmt: skip
    ensemble = dt.load(data / "m")
    assert ensemble.members_[0].model_.inputs[0].in_shape == ((1, 8, 8) if options else (3, 8, 8))
    run(
        "predict",
        data / "m",
        "--data",
        data / "new.csv",
        "--images",
        data / "pictures",
        "--out",
        data / "p.csv",
        "--keep",
        "file",
        "--batch-rows",
        3,
    )
    found = pd.read_csv(data / "p.csv")
    assert found["file"].tolist() == [f"{i}.png" for i in range(7)]
    np.testing.assert_allclose(found[["low", "mid", "high"]].sum(axis=1), 1)
    message = run("predict", data / "m", "--data", data / "new.csv", "--out", data / "q.csv", code=2)
    assert "needs images (column file), got no --images" in message


def test_a_checkpoint_is_used(data):
    arguments = [
        "fit", "--data", data / "train.csv", "--outcome", "sick", "--type", "binary", "--deep", "x1",
        "--checkpoint", data / "members", "--overwrite", "--out", data / "m", *FAST,
    ]  # fmt: skip
    run(*arguments)
    marker = data / "members" / "member-0000" / "deeptram.json"
    before = marker.stat().st_mtime_ns
    run(*arguments)
    assert marker.stat().st_mtime_ns == before


def test_bags_have_the_intervals_of_the_bootstrap(data):
    arguments = fit_arguments(data, **{"--deep": "x2", "--out": data / "b"})
    shown = run(*arguments, "--bags", "--n-jobs", "1", *FAST[:-1])
    assert dt.load(data / "b").members == "bags"
    assert "se, lower, upper (95 %): rows and seeds drawn anew (bootstrap)" in shown
    assert "too narrow" not in shown


def test_what_is_read_is_never_replaced(data):
    run(*fit_arguments(data), "--quiet")
    before = (data / "new.csv").read_bytes()
    (data / "link.csv").symlink_to(data / "new.csv")
    for out in ("new.csv", "pictures/../new.csv", "link.csv"):
        said = run("predict", data / "m", "--data", data / "new.csv", "--out", data / out, "--force", code=2)
        assert "--out must not replace what is read, got" in said
    assert (data / "new.csv").read_bytes() == before
    (data / "m" / "train.csv").write_bytes((data / "train.csv").read_bytes())
    said = run(*fit_arguments(data, **{"--data": data / "m" / "train.csv"}), "--force", code=2)
    assert "--out must not replace what is read, got" in said


def test_a_folder_that_is_no_model_is_refused_before_the_fit(data, monkeypatch):
    monkeypatch.setattr(dt.Tram, "fit", None)
    said = run(*fit_arguments(data, **{"--out": data / "pictures"}), "--force", code=2)
    assert "--force replaces saved models only, got" in said
    assert "overwrite=True" not in said


def test_one_row_is_no_rows(data):
    run(*fit_arguments(data), "--quiet")
    pd.read_csv(data / "new.csv")[:1].to_csv(data / "one.csv", index=False)
    assert "1 row written to" in run(
        "predict", data / "m", "--data", data / "one.csv", "--out", data / "p.csv"
    )


def test_notes_of_the_library_speak_of_options(data):
    arguments = fit_arguments(data, **{"--deep": "x2", "--members": 2, "--epochs": 2, "--n-jobs": 1})
    said = CliRunner().invoke(app, [str(a) for a in arguments]).stderr
    assert (
        "had not ended after 2 epochs: the validation loss was still falling; raise --epochs, and set" in said
    )
    assert "converged_" not in said
    assert "Training(" not in said


def test_pools_without_coefficients_say_so(data):
    shown = run(
        "fit", "--data", data / "train.csv", "--outcome", "sick", "--type", "binary", "--deep", "x1",
        "--linear", "x2", "--pooling", "linear", "--out", data / "m", *FAST[:-1],
    )  # fmt: skip
    assert "No coefficients: the linear pool" in shown


def fit_arguments(data, **changes):
    options = {
        "--data": data / "train.csv",
        "--outcome": "grade",
        "--type": "ordinal",
        "--linear": "x1",
        "--out": data / "m",
        **changes,
    }
    known = options["--type"] == "ordinal" and options["--outcome"] == "grade" and "--levels" not in changes
    return [
        "fit",
        *[part for option, value in options.items() if value is not None for part in (option, value)],
        *(ORDER if known else []),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--outcome": "grad"}, "--outcome must name a column of .*did you mean 'grade'"),
        ({"--type": "ordered"}, "--type must be one of 'binary', 'ordinal'"),
        ({"--linear": None}, "at least one of --linear, --deep and --images, got none"),
        ({"--linear": "x9"}, "column 'x9' is needed but missing"),
        ({"--data": "nowhere.csv"}, "no such file"),
        ({"--event": "event"}, "--event is for --type survival"),
        ({"--type": "survival", "--outcome": "time"}, "--type survival needs --event"),
        ({"--type": "continuous", "--outcome": "value", "--levels": "a"}, "--levels is for classes"),
        ({"--outcome": "sick", "--levels": "no"}, "--levels must be numbers as the outcome is, got no"),
        ({"--images": "nowhere"}, "--images must be a folder, got nowhere"),
        ({"--images": ".", "--image-column": "picture"}, "--image-column must name a column"),
        ({"--weights": "best"}, "--weights must be one of 'equal', 'tuned'"),
        ({"--image-term": "scale"}, "--image-term must be one of 'intercept', 'shift'"),
        (
            {"--levels": None},
            "an ordinal outcome needs an order, got labels without one in column 'grade'; say it, smallest "
            "first: --levels high low mid",
        ),
        ({"--linear": "x1 + grade"}, "must not be among the predictors, got column 'grade' in --linear"),
        (
            {"--linear": "bs(value, df=4)", "--type": "continuous", "--outcome": "value"},
            "'value' in --linear",
        ),
        ({"--deep": "grade"}, "must not be among the predictors, got column 'grade' in --deep"),
        (
            {"--type": "survival", "--outcome": "time", "--event": "event", "--linear": "event"},
            "must not be among the predictors, got column 'event' in --linear",
        ),
        ({"--epochs": "3"}, "--epochs has no effect without --deep or --images"),
        ({"--n-jobs": "1"}, "--n-jobs has no effect without --deep or --images"),
        ({"--validation": "0.1"}, "--validation has no effect without --deep or --images"),
        ({"--deep": "x2", "--image-size": "9"}, "--image-size has no effect without --images"),
        (
            {"--deep": "x2", "--validation": "1.5"},
            "--validation must be a number strictly between 0 and 1, got 1.5",
        ),
        (
            {"--outcome": "value", "--levels": None},
            r"--type ordinal is for classes, got numbers such as .* in column 'value' of .*; use --type continuous",
        ),
        ({"--latent": "gumbell"}, "--latent must be one of 'logistic', 'logit', .*did you mean 'gumbel'"),
    ],
)
def test_bad_fits_end_with_one_line(data, changes, message):
    import re

    said = run(*fit_arguments(data, **changes), code=2)
    assert re.search(message, said), said
    assert not (data / "m").exists()


def test_an_existing_model_is_not_replaced(data):
    run(*fit_arguments(data), "--quiet")
    assert "--out must not exist yet" in run(*fit_arguments(data), code=2)
    run(*fit_arguments(data), "--overwrite", "--quiet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--out", "p.txt"],
            "--out must be a table ending in .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .pq, or - for stdout, got p.txt",
        ),
        (
            ["--out", "{folder}/p.csv", "--pooling", "linear"],
            "pooling is for ensembles, got a single model",
        ),
        (["--out", "{folder}/p.csv", "--uncertainty"], "uncertainty is for ensembles"),
        (
            ["--out", "{folder}/p.csv", "--quantiles", "0.5"],
            "quantiles are for numbers, got a model of classes",
        ),
        (["--out", "{folder}/p.csv", "--times", "1"], "times are for numbers"),
        (["--out", "{folder}/new.csv/p.csv"], "--out must be where a file can be written"),
        (["--out", "{folder}/p.csv", "--pooling", "liner"], "--pooling must be one of"),
        (
            ["--out", "{folder}/p.csv", "--keep", "id", "fil"],
            "--keep must name a column of {folder}/new.csv, got 'fil'; it has 'id', 'x1', 'x2', 'sex', 'file'; "
            "did you mean 'file'?",
        ),
        (["--out", "{folder}/p.csv", "--images", "{folder}"], "--images is for models with images"),
    ],
)
def test_bad_predictions_end_with_one_line(data, arguments, message):
    run(*fit_arguments(data), "--quiet")
    filled = [argument.format(folder=data) for argument in arguments]
    said = run("predict", data / "m", "--data", data / "new.csv", *filled, code=2)
    assert message.format(folder=data) in said


def test_other_messages(data):
    run(*fit_arguments(data, **{"--type": "continuous", "--outcome": "value"}), "--quiet")
    common = ["predict", data / "m", "--data", data / "new.csv", "--out", data / "p.csv"]
    assert "strictly between 0 and 1" in run(*common, "--quantiles", "1.5", code=2)
    assert "a saved model is a folder" in run("predict", data / "x", *common[2:], code=2)
    table = pd.read_csv(data / "train.csv")
    table.loc[3, ["value", "file"]] = np.nan
    table.to_csv(data / "train.csv", index=False)
    arguments = {"--type": "continuous", "--outcome": "value", "--out": data / "n"}
    assert "must have no missing values, got some in line 5" in run(*fit_arguments(data, **arguments), code=2)
    arguments = {"--images": data / "pictures", "--out": data / "n"}
    assert "must name an image in every row, got none in line 5" in run(
        *fit_arguments(data, **arguments), code=2
    )


def test_columns_that_do_not_fit_are_named_with_their_file_and_line(data):
    table = pd.read_csv(data / "train.csv")
    table.astype({"x1": object}).assign(x1=lambda t: t["x1"].where(t.index != 6, "unknown")).to_csv(
        data / "text.csv", index=False
    )
    said = run(*fit_arguments(data, **{"--data": data / "text.csv"}), code=2)
    assert f"column 'x1' of {data / 'text.csv'} must hold numbers alone, or levels, got 1 text among" in said
    assert (
        "'unknown' in line 8; correct it, or leave these rows out; if all of them are levels, write C(x1)"
        in said
    )
    table.assign(x1=table["x1"].where(table.index != 6)).to_csv(data / "gap.csv", index=False)
    gap = "column 'x1' of {} must have no missing values, got some in line 8; leave these rows out, or fill them"
    said = run(*fit_arguments(data, **{"--data": data / "gap.csv"}), code=2)
    assert gap.format(data / "gap.csv") in said
    said = run(*fit_arguments(data, **{"--linear": "x11"}), code=2)
    assert f"--linear and {data / 'train.csv'} do not fit: column 'x11' is needed but missing" in said
    said = run(*fit_arguments(data, **{"--linear": None, "--deep": "x11"}), code=2)
    assert f"--deep must name a column of {data / 'train.csv'}, got 'x11'" in said
    run(*fit_arguments(data), "--quiet")
    new = ["predict", data / "m", "--out", data / "p.csv", "--batch-rows", "3", "--data"]
    assert gap.format(data / "gap.csv") in run(
        *new, data / "gap.csv", code=2
    )  # the line, not the row of a part
    said = run(*new, data / "text.csv", code=2)
    assert "column 'x1' must hold numbers as in fitting, got labels such as" in said
    table.drop(columns="x1").to_csv(data / "less.csv", index=False)
    said = run(*new, data / "less.csv", code=2)
    assert f"{data / 'less.csv'} does not fit the model: column 'x1' is needed but missing" in said


def test_a_column_of_a_network_and_of_the_linear_part_is_noted(data):
    arguments = {"--linear": "x1", "--deep": "x1", "--members": 2, "--epochs": 1}
    said = CliRunner().invoke(app, [str(a) for a in fit_arguments(data, **arguments)]).stdout
    assert "\nx1: also in a network, which may take its effect\n" in said


def test_outcomes_of_every_kind_are_read(data):
    table = pd.read_csv(data / "train.csv")
    censored = read_outcome(table, data / "train.csv", "time", "survival", "event")
    assert isinstance(censored, dt.Surv)
    assert (
        read_outcome(table, data / "train.csv", "grade", "ordinal", None).tolist() == table["grade"].tolist()
    )


@pytest.mark.parametrize("place", ["train.csv/m", "locked/m"])
def test_a_place_that_cannot_be_written_is_found_before_the_fit(data, place, monkeypatch):
    monkeypatch.setattr("deeptram.cli.output.tempfile.TemporaryFile", refuse)
    said = run(*fit_arguments(data, **{"--out": data / place}), code=2)
    assert "--out must be where a file can be written, got" in said


def refuse(dir):
    raise PermissionError(dir)


def test_binary_files(data):
    (data / "other.csv").write_bytes(bytes(range(256)) * 20)
    assert "other.csv must be" in run(*fit_arguments(data, **{"--data": data / "other.csv"}), code=2)


@pytest.mark.parametrize(
    ("outcome", "kind", "more", "sentence"),
    [
        ("sick", "binary", [], "Larger class: 1 (the smaller: 0)."),
        ("sex", "binary", ["--levels", "m", "f"], "Larger class: f (the smaller: m)."),
        ("grade", "ordinal", ORDER, "Order of the levels: low < mid < high."),
        ("grade", "nominal", [], "Levels, without order: high, low, mid."),
        ("value", "continuous", [], None),
    ],
)
def test_the_order_of_the_levels_is_named(data, outcome, kind, more, sentence):
    arguments = ["--data", data / "train.csv", "--outcome", outcome, "--type", kind, "--out", data / "m"]
    fitted = run("fit", *arguments, "--linear", "x1", *more)
    told = run("predict", data / "m", "--data", data / "new.csv", "--out", data / "p.csv")
    for shown in (fitted, told):
        assert sentence in shown if sentence else "Larger class" not in shown and "Order of" not in shown


def test_an_order_in_a_parquet_file_is_used(data):
    table = pd.read_csv(data / "train.csv")
    table["grade"] = pd.Categorical(table["grade"], ["low", "mid", "high"], ordered=True)
    table.to_parquet(data / "train.parquet")
    changes = {"--data": data / "train.parquet", "--levels": None}
    assert "Order of the levels: low < mid < high." in run(*fit_arguments(data, **changes))


def test_coefficients_and_validation_scores(data):
    run(*fit_arguments(data), "--quiet")
    written = pd.read_csv(data / "m" / "coefficients.csv", index_col="term")
    pd.testing.assert_frame_equal(written, pd.DataFrame(dt.load(data / "m").summary()), check_names=False)
    arguments = fit_arguments(data, **{"--out": data / "e", "--deep": "x2", "--validation": "0.25"})
    shown = run(*arguments, *FAST[:-1])
    ensemble = dt.load(data / "e")
    written = pd.read_csv(data / "e" / "coefficients.csv", index_col="term")
    np.testing.assert_allclose(written["coef"], ensemble.coef_)
    assert (
        "Scores on the 15 validation rows; they are optimistic, for the best epochs were chosen on" in shown
    )
    assert "se, lower, upper (95 %): sampling given the networks, and seeds\n" in shown
    assert "too narrow: other rows would give other networks; --bags --members 30 draws them\n" in shown
    assert ensemble.members_[0].training.validation == 0.25
    nll = next(line.split() for line in shown.splitlines() if line.startswith("nll"))
    best = ensemble.history_.groupby("member")["validation_loss"].min().mean()
    assert float(nll[2]) == pytest.approx(best, abs=1e-3)
    assert float(nll[1]) <= float(nll[2])
    assert "rps" in shown


def test_predictions_feed_the_pool(data):
    for name, formula in (("one", "x1"), ("two", "x1 + x2")):
        run(*fit_arguments(data, **{"--linear": formula, "--out": data / name}), "--quiet")
        arguments = [
            "--data",
            data / "train.csv",
            "--out",
            data / f"{name}.csv",
            "--keep",
            "x1",
            "file",
            "--quiet",
        ]
        run("predict", data / name, *arguments)
    truth = pd.read_csv(data / "train.csv")[["id", "grade"]]
    truth.to_csv(data / "truth.csv", index=False)
    run(
        "pool", "--members", data / "one.csv", data / "two.csv", "--truth", data / "truth.csv", "--n-boot", "0",
        "--out", data / "pool", "--no-figures", "--quiet",
    )  # fmt: skip
    pooled = pd.read_csv(data / "pool" / "pooled.csv")
    assert pooled.columns.tolist() == ["id", "low", "mid", "high"]
    table = pd.read_csv(data / "train.csv")
    members = [dt.load(data / name).predict_distribution(table) for name in ("one", "two")]
    np.testing.assert_allclose(pooled[["low", "mid", "high"]], dt.pool(members).pmf(), atol=1e-9)


@pytest.mark.parametrize("rows", [3, 100])
@pytest.mark.parametrize(("source", "ending"), [("csv", "csv"), ("csv", "parquet"), ("parquet", "parquet")])
def test_columns_are_kept_behind_the_predictions_as_they_are(data, source, ending, rows):
    run(*fit_arguments(data, **{"--linear": "x1 + sex"}), "--quiet")
    new = pd.read_csv(data / "new.csv").assign(
        patient=[f"{i:03}" for i in range(7)],  # numbers that are names
        remark=pd.Series([None] * 5 + ["late", None], dtype=object),  # a part without any
        grade=pd.Categorical(["a", "b", "a", "c", "b", "a", "c"]),
    )
    if source == "csv":
        new.to_csv(data / "new.csv", index=False)
    else:
        new.to_parquet(data / "new.parquet")
    out, wanted = data / f"p.{ending}", ["patient", "remark", "file", "sex", "x2", "grade"]
    run(
        "predict", data / "m", "--data", data / f"new.{source}", "--out", out, "--batch-rows", rows,
        "--keep", "id", *wanted, "patient", "--quiet",
    )  # fmt: skip
    found = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out, dtype={"patient": str})
    assert found.columns.tolist() == ["id", "low", "mid", "high", "prediction", *wanted]
    for name in ("id", "patient", "file", "sex", "grade"):
        assert found[name].tolist() == new[name].tolist()
    assert found["remark"].fillna("").tolist() == new["remark"].fillna("").tolist()
    np.testing.assert_allclose(found["x2"].astype(float), new["x2"])
    np.testing.assert_allclose(found[["low", "mid", "high"]], dt.load(data / "m").predict_proba(new))


def test_a_column_called_as_a_prediction_is_not_kept(data):
    run(*fit_arguments(data), "--quiet")
    pd.read_csv(data / "new.csv").assign(high=1).to_csv(data / "new.csv", index=False)
    said = run(
        "predict", data / "m", "--data", data / "new.csv", "--out", data / "p.csv", "--keep", "high", code=2
    )
    assert "must not be called as one of the predictions, got 'high'; rename it" in said
    assert not (data / "p.csv").exists()


@pytest.mark.parametrize("coding", [{True: 2, False: 1}, {True: "dead", False: "alive"}], ids=str)
def test_an_event_may_be_a_value_of_its_column(coding, run, refused, tmp_path):
    rng = np.random.default_rng(3)
    age, seen = rng.normal(60, 8, 80), rng.random(80) < 0.7
    table = pd.DataFrame(
        {"age": age, "time": rng.exponential(np.exp(1 - age / 50)), "seen": seen.astype(int)}
    )
    table["status"] = [coding[bool(one)] for one in seen]
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", "--data", tmp_path / "t.csv", "--outcome", "time", "--type", "survival", "--linear", "age"]
    models = []
    for number, event in enumerate(["seen", f"status == {coding[True]}"]):
        assert run(*fit, "--event", event, "--out", tmp_path / f"m{number}").exit_code == 0
        models.append(dt.load(tmp_path / f"m{number}"))
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    message = refused(*fit, "--event", "status == 7", "--out", tmp_path / "m2")
    assert "--event must say a value of column 'status'" in message


def test_bytes_that_are_not_utf8_are_called_so(refused, tmp_path):
    (tmp_path / "t.csv").write_bytes("x,y\n1,Zürich\n2,Bern\n".encode("latin-1"))
    message = refused(
        "fit",
        "--data",
        tmp_path / "t.csv",
        "--outcome",
        "x",
        "--type",
        "continuous",
        "--linear",
        "y",
        "--out",
        "m",
    )
    assert "must be text in UTF-8, got the byte 0xfc" in message


def test_the_cell_that_is_no_number_is_named_not_its_neighbours(refused, tmp_path):
    rows = "".join(f"{i},{i * i}\n" for i in range(1, 30))
    (tmp_path / "t.csv").write_text("x,time\n" + rows + "30,long\n")
    fit = ["fit", "--data", tmp_path / "t.csv", "--outcome", "time", "--type", "continuous", "--linear", "x"]
    assert "'long'" in refused(*fit, "--out", tmp_path / "m")


@pytest.mark.parametrize(
    ("time", "event", "message"),
    [
        ("-2", "1", "t.csv: column 'days' must not be negative, got time < 0 in line 3;"),
        ("0", "1", "t.csv: an event must have a time after 0, got an event at 0 in line 3;"),
        ("2", "7", "t.csv: column 'dead' must be True/False or 1/0, got 7 in line 3;"),
        ("soon", "1", "t.csv: column 'days' must hold numbers, got 'soon'"),
    ],
)
def test_times_and_events_are_named_with_their_lines(tmp_path, time, event, message):
    (tmp_path / "t.csv").write_text(f"x,days,dead\n1,4,1\n2,{time},{event}\n3,5,0\n")
    args = {"data": tmp_path / "t.csv", "outcome": "days", "event": "dead", "linear": "x", "type": "survival"}
    args["out"] = tmp_path / "m"
    said = run("fit", *(word for name, value in args.items() for word in (f"--{name}", value)), code=2)
    assert message in said


@pytest.fixture
def parquet_rows(tmp_path):
    """A saved model, and 120 rows of its columns with numbers as id."""
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.arange(120) * 7, "x": rng.normal(size=120)})
    dt.Polr([dt.LS("x")]).fit(table[["x"]], np.digitize(table["x"] + rng.logistic(size=120), [-1, 1])).save(
        tmp_path / "model"
    )
    return table


def test_rows_without_values_are_named_by_their_place_in_the_whole_file(parquet_rows, tmp_path, refused):
    parquet_rows.loc[[71, 95], "x"] = np.nan
    for name, place in (("rows.parquet", "row 71 (the first is row 0)"), ("rows.csv", "line 73")):
        write = parquet_rows.to_parquet if name.endswith("parquet") else parquet_rows.to_csv
        write(tmp_path / name, index=False)
        out = tmp_path / "out.csv"
        message = refused(
            "predict", tmp_path / "model", "--data", tmp_path / name, "--out", out, "--batch-rows", 30
        )
        assert f"must have no missing values, got some in {place}" in message


def test_numbers_as_id_stay_numbers_in_parquet(parquet_rows, tmp_path, run):
    parquet_rows.to_parquet(tmp_path / "rows.parquet")
    out = tmp_path / "out.parquet"
    found = run(
        "predict", tmp_path / "model", "--data", tmp_path / "rows.parquet", "--out", out, "--batch-rows", 50
    )
    assert found.exit_code == 0
    pd.testing.assert_series_equal(pd.read_parquet(out)["id"], parquet_rows["id"])


def test_a_parquet_file_without_rows_is_refused(parquet_rows, tmp_path, refused):
    parquet_rows.iloc[:0].to_parquet(tmp_path / "rows.parquet")
    out = tmp_path / "out.parquet"
    message = refused("predict", tmp_path / "model", "--data", tmp_path / "rows.parquet", "--out", out)
    assert "must hold at least one row below its header, got none" in message
    assert not out.exists()
