"""Forecast hubs: submissions read, pooled, written and scored; a small hub, and the real one."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from click.testing import CliRunner

import deeptram as dt
from deeptram.cli.hub import HubScoresDisplay
from deeptram.cli.main import app
from deeptram.datasets import hub_pools
from deeptram.datasets.hub import Hub
from deeptram.datasets.hub_pools import score_table
from deeptram.errors import FileFormatError

ROUNDS = ["2024-01-06", "2024-01-13", "2024-01-20"]
PLACES = ["01", "02", "US"]
HORIZONS = [0, 1]
LEVELS = [0.025, 0.25, 0.5, 0.75, 0.975]
CUTS = [5.0, 10.0, 15.0]
CATEGORIES = ["low", "moderate", "high", "very high"]
DRAWS = 20
TASK = ["reference_date", "target", "horizon", "location", "target_end_date"]
MODELS = {"team-good": (0.0, 2.0), "team-wide": (1.0, 5.0), "team-off": (4.0, 1.0)}


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    if code == 2:
        assert len(result.stderr.splitlines()) == 1
    return result.stderr if code else result.stdout


def end_of(date: str, horizon: int) -> str:
    return str((pd.Timestamp(date) + pd.Timedelta(weeks=horizon)).date())


def centre(place: str, end: str) -> float:
    return 10.0 + PLACES.index(place) + 0.1 * (pd.Timestamp(end).dayofyear % 30)


def submission(date: str, shift: float, sd: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = []
    for i, place in enumerate(PLACES):
        path = rng.normal(size=DRAWS)  # one trajectory per draw, over the horizons
        for h in HORIZONS:
            end = end_of(date, h)
            dist = scipy.stats.norm(centre(place, end) + shift, sd)
            common = {"reference_date": date, "horizon": h, "location": place, "target_end_date": end}
            quantiles = np.maximum(np.round(dist.ppf(LEVELS), 1), 0)
            rows += [
                {**common, "target": "inc", "output_type": "quantile", "output_type_id": q, "value": v}
                for q, v in zip(LEVELS, quantiles, strict=True)
            ]
            rows += [
                {
                    **common,
                    "target": "inc",
                    "output_type": "mean",
                    "output_type_id": "NA",
                    "value": dist.mean(),
                },
                {
                    **common,
                    "target": "inc",
                    "output_type": "median",
                    "output_type_id": "NA",
                    "value": dist.median(),
                },
            ]
            draws = np.maximum(np.round(dist.mean() + sd * (path + 0.1 * rng.normal(size=DRAWS))), 0)
            rows += [
                {
                    **common,
                    "target": "inc",
                    "output_type": "sample",
                    "output_type_id": DRAWS * i + k,
                    "value": d,
                }
                for k, d in enumerate(draws)
            ]
            rows += [
                {**common, "target": "rate", "output_type": "cdf", "output_type_id": c, "value": dist.cdf(c)}
                for c in CUTS
            ]
            pmf = np.diff([0, *dist.cdf(CUTS), 1])
            rows += [
                {**common, "target": "category", "output_type": "pmf", "output_type_id": c, "value": p}
                for c, p in zip(CATEGORIES, pmf, strict=True)
            ]
    return pd.DataFrame(rows)  # fmt: skip


def tasks_json() -> dict:
    def ids(values):
        return {"required": None, "optional": values}

    def task(target, kind, outputs):
        ends = sorted({end_of(d, h) for d in ROUNDS for h in HORIZONS})
        return {
            "task_ids": {"reference_date": ids(ROUNDS), "target": ids([target]), "horizon": ids(HORIZONS),
                         "location": ids(PLACES), "target_end_date": ids(ends)},
            "output_type": outputs,
            "target_metadata": [{"target_id": target, "target_type": kind, "target_keys": {"target": target}}],
        }  # fmt: skip

    number = {"type": "double", "minimum": 0}
    outputs = {
        "mean": {"output_type_id": {"required": None}, "value": number},
        "median": {"output_type_id": {"required": None}, "value": number},
        "quantile": {"output_type_id": {"required": LEVELS}, "value": number},
        "sample": {"output_type_id_params": {"min_samples_per_task": DRAWS, "compound_taskid_set": ["reference_date", "location"]},
                   "value": {"type": "integer", "minimum": 0}},
    }  # fmt: skip
    return {"rounds": [{"round_id_from_variable": True, "round_id": "reference_date", "model_tasks": [
        task("category", "ordinal", {"pmf": {"output_type_id": {"required": CATEGORIES}, "value": {"type": "double", "minimum": 0, "maximum": 1}}}),
        task("rate", "continuous", {"cdf": {"output_type_id": {"required": CUTS}, "value": {"type": "double", "minimum": 0, "maximum": 1}}}),
        task("inc", "continuous", outputs)]}]}  # fmt: skip


def observations() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ends = sorted({end_of(d, h) for d in ROUNDS for h in HORIZONS})
    rows = [(end, place, centre(place, end) + 2 * rng.normal()) for end in ends for place in PLACES]
    table = pd.DataFrame(rows, columns=["target_end_date", "location", "observation"])
    category = np.array(CATEGORIES)[np.searchsorted(CUTS, table["observation"])]
    return pd.concat([table.assign(target="inc"), table.assign(target="rate"),
                      table.assign(target="category", observation=category)])  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub of three models; one misses a location in its first round, one writes Parquet."""
    path = tmp_path_factory.mktemp("hub")
    (path / "hub-config").mkdir()
    (path / "hub-config" / "tasks.json").write_text(json.dumps(tasks_json()))
    for k, (model, (shift, sd)) in enumerate(MODELS.items()):
        folder = path / "model-output" / model
        folder.mkdir(parents=True)
        for date in ROUNDS:
            table = submission(date, shift, sd, k)
            if model == "team-off" and date == ROUNDS[0]:
                table = table[table["location"] != "US"]
            if model == "team-wide":
                table.astype({"output_type_id": str}).to_parquet(folder / f"{date}-{model}.parquet")
            else:
                table.to_csv(folder / f"{date}-{model}.csv", index=False)
    (path / "model-output" / "README.md").write_text("not a submission")
    (path / "target-data").mkdir()
    observations().to_csv(path / "target-data" / "time-series.csv", index=False)
    return path


def by(hub, target, output):
    return next(f for f in Hub(hub).forecasts() if (f.target, f.output.name) == (target, output))


def test_submissions_are_read(hub):
    found = Hub(hub).forecasts()
    assert [(f.target, f.output.name) for f in found] == [
        ("category", "pmf"), ("inc", "mean"), ("inc", "median"), ("inc", "quantile"), ("inc", "sample"), ("rate", "cdf"),
    ]  # fmt: skip
    quantiles = by(hub, "inc", "quantile")
    assert quantiles.ids == tuple(LEVELS)
    assert len(quantiles.tasks) == 18
    assert {m: int(quantiles.available(m).sum()) for m in quantiles.models} == {
        "team-good": 18, "team-off": 16, "team-wide": 18,
    }  # fmt: skip
    row = int(
        np.flatnonzero((quantiles.tasks[TASK] == ["2024-01-13", "inc", "1", "02", "2024-01-20"]).all(axis=1))[
            0
        ]
    )
    expected = np.round(scipy.stats.norm(centre("02", "2024-01-20"), 2).ppf(LEVELS), 1)
    np.testing.assert_allclose(quantiles.values["team-good"][row], expected)
    assert by(hub, "category", "pmf").ids == tuple(CATEGORIES)
    assert by(hub, "inc", "sample").values["team-wide"].shape == (18, DRAWS)


def read_pool(out, name):
    files = sorted((out / "model-output" / name).iterdir())
    assert [f.name for f in files] == [f"{date}-{name}.csv" for date in ROUNDS]
    return pd.concat([pd.read_csv(f, dtype={"location": str}) for f in files], ignore_index=True)


def wide(table, output):
    own = table[table["output_type"] == output]
    return own.pivot(index=TASK, columns="output_type_id", values="value")


@pytest.fixture(scope="module")
def pooled(hub, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    told = CliRunner().invoke(
        app, ["hub", "pool", str(hub), "--out", str(out), "--methods", "linear", "quantile", "transformation"]
    )
    assert told.exit_code == 0, told.output
    assert "9 submissions of deeptram-linear, deeptram-quantile, deeptram-transformation" in told.stdout
    for output in ("pmf of 'category'", "cdf of 'rate'"):
        assert f"{output} gets the transformation pool: the quantile pool averages quantiles" in told.stderr
    return out


@pytest.mark.parametrize("method", ["linear", "quantile", "transformation"])
def test_submissions_are_valid(hub, pooled, method):
    """By the rules of the hub: all tasks, ids, ranges and sums; draws in trajectories."""
    table = read_pool(pooled, f"deeptram-{method}")
    assert list(table.columns) == [*TASK, "output_type", "output_type_id", "value"]
    assert (table["value"] >= 0).all()
    quantiles = wide(table, "quantile")
    assert list(quantiles.columns.astype(float)) == LEVELS
    assert len(quantiles) == 18
    assert (np.diff(quantiles.to_numpy(), axis=1) >= 0).all()
    draws = table[table["output_type"] == "sample"]
    assert (draws["value"] == draws["value"].round()).all()
    assert (draws.groupby(TASK).size() == DRAWS).all()
    owners = draws.groupby(["reference_date", "output_type_id"])["location"].nunique()
    assert (owners == 1).all()  # a trajectory belongs to one location
    assert (draws.groupby(["reference_date", "location"])["output_type_id"].nunique() == DRAWS).all()
    pmf = wide(table, "pmf")[CATEGORIES]
    np.testing.assert_allclose(pmf.sum(axis=1), 1, atol=1e-12)
    cdf = wide(table, "cdf")[[f"{cut:g}" for cut in CUTS]].to_numpy()
    assert (np.diff(cdf, axis=1) >= 0).all()
    assert cdf.max() <= 1
    assert set(table["output_type"]) == {"mean", "median", "quantile", "sample", "pmf", "cdf"}
    if method == "quantile":  # what it has no meaning for is pooled by the transformation pool
        instead = read_pool(pooled, "deeptram-transformation")
        pd.testing.assert_frame_equal(wide(table, "pmf"), wide(instead, "pmf"))
        pd.testing.assert_frame_equal(wide(table, "cdf"), wide(instead, "cdf"))


def test_pools_are_those_of_the_library(hub, pooled):
    quantiles = by(hub, "inc", "quantile")
    all_three = quantiles.available("team-off")
    for method in ("linear", "quantile", "transformation"):
        table = wide(read_pool(pooled, f"deeptram-{method}"), "quantile")
        index = [tuple(row) for row in quantiles.tasks.astype({"horizon": int})[TASK].to_numpy()]
        found = table.reindex(index).to_numpy()
        for rows, models in ((all_three, list(MODELS)), (~all_three, ["team-good", "team-wide"])):
            members = [dt.Predictive.from_quantiles(LEVELS, quantiles.values[m][rows]) for m in models]
            np.testing.assert_allclose(
                found[rows], dt.pool(members, method=method).quantile(LEVELS), rtol=1e-9
            )
            if method == "quantile":
                mean = np.mean([quantiles.values[m][rows] for m in models], axis=0)
                np.testing.assert_allclose(found[rows], mean, rtol=1e-12)


@pytest.mark.parametrize("weights", ["equal", "tuned", "rolling"])
def test_only_the_rounds_that_are_named_are_pooled(hub, tmp_path, monkeypatch, weights):
    def run(out, *words):
        """Return what is written, by the names of the files, and the number of rows that were pooled."""
        rows = []

        def counted(members, **settings):
            rows.append(len(members[0]))
            return dt.pool(members, **settings)

        monkeypatch.setattr(hub_pools, "pool", counted)
        command = ["hub", "pool", str(hub), "--out", str(tmp_path / out), "--methods", "transformation"]
        told = CliRunner().invoke(app, [*command, "--weights", weights, *words])
        assert told.exit_code == 0, told.output
        files = (tmp_path / out / "model-output" / "deeptram-transformation").iterdir()
        return {file.name: file.read_bytes() for file in files}, sum(rows)

    whole, n_rows = run("all")
    some, n_some = run("some", "--rounds", *ROUNDS[1:])
    last, n_last = run("last", "--rounds", ROUNDS[-1])
    names = [f"{date}-deeptram-transformation.csv" for date in ROUNDS]
    assert some == {name: whole[name] for name in names[1:]}
    assert last == {names[-1]: whole[names[-1]]}
    assert n_rows * np.array([2, 1]) == pytest.approx(len(ROUNDS) * np.array([n_some, n_last]))


def test_means_and_medians_are_those_of_the_pool(hub, pooled):
    table = read_pool(pooled, "deeptram-linear")
    means = by(hub, "inc", "mean")
    there = means.available("team-off")
    index = [tuple(row) for row in means.tasks.astype({"horizon": int})[TASK].to_numpy()]
    own = table[table["output_type"] == "mean"].set_index(TASK)["value"].reindex(index).to_numpy()
    np.testing.assert_allclose(own[there], np.mean([means.values[m][there, 0] for m in MODELS], axis=0))
    median = table[table["output_type"] == "median"].set_index(TASK)["value"]
    quantile = wide(table, "quantile")
    quantile.columns = quantile.columns.astype(float)
    np.testing.assert_allclose(median.reindex(quantile.index), quantile[0.5], rtol=1e-12)


def test_draws_keep_the_dependence_between_horizons(hub, pooled):
    """Trajectories of the members rise and fall together over horizons, and so do those of the pool."""
    table = read_pool(pooled, "deeptram-transformation")
    draws = table[table["output_type"] == "sample"]
    paths = draws.pivot(
        index=["reference_date", "location", "output_type_id"], columns="horizon", values="value"
    )
    for _, group in paths.groupby(level=[0, 1]):
        assert scipy.stats.spearmanr(group[0], group[1]).statistic > 0.8


@pytest.mark.parametrize("weights", [["tuned"], ["rolling"], ["team-good=1", "team-wide=3"]])
def test_weights(hub, tmp_path, weights):
    call(
        "hub",
        "pool",
        hub,
        "--out",
        tmp_path,
        "--methods",
        "linear",
        "--weights",
        *weights,
        "--outputs",
        "pmf",
        "--quiet",
    )
    found = wide(read_pool(tmp_path, "deeptram-linear"), "pmf")[CATEGORIES]
    pmf = by(hub, "category", "pmf")
    index = [tuple(row) for row in pmf.tasks.astype({"horizon": int})[TASK].to_numpy()]
    last = (pmf.tasks["reference_date"] == ROUNDS[-1]).to_numpy()
    observed = Hub(hub).truth(pmf)
    if weights == ["team-good=1", "team-wide=3"]:
        w = {"team-good": 0.25, "team-wide": 0.75, "team-off": 0.0}
    else:
        known = (
            (pmf.tasks["target_end_date"] < ROUNDS[-1]).to_numpy()
            if weights == ["rolling"]
            else np.full(18, True)
        )
        used = known & pmf.available("team-off")
        if used.sum() < 20:
            w = dict.fromkeys(MODELS, 1 / 3)  # too few tasks to tune on
        else:
            members = [pmf.predictive(m, used) for m in pmf.models]
            tuned = dt.tune_weights(members, observed[used].to_numpy(), method="linear", score="nll")
            w = dict(zip(pmf.models, tuned.weights, strict=True))
    expected = sum(w[m] * pmf.values[m][last] for m in MODELS)
    np.testing.assert_allclose(found.reindex(index).to_numpy()[last], expected, atol=1e-7)


def test_scores(hub, pooled, tmp_path):
    shown = call("hub", "score", hub, "--pooled", pooled, "--out", tmp_path, "--baseline", "team-wide")
    assert "inc, quantile: weighted interval score" in shown
    table = pd.read_csv(tmp_path / "scores.csv")
    assert (tmp_path / "scores.png").read_bytes()[:4] == b"\x89PNG"
    ax = HubScoresDisplay(table.query("metric == 'wis'")).plot()
    drawn = [axis for axis in ax.child_axes or [ax] if axis.lines]
    assert [list(axis.get_xticks()) for axis in drawn] == [HORIZONS]  # whole horizons
    assert len(drawn[0].lines) == table["model_id"].nunique()
    quantiles = by(hub, "inc", "quantile")
    y = Hub(hub).truth(quantiles).astype(float).to_numpy()
    wis = table.query("output_type == 'quantile' and metric == 'wis' and horizon == 'all'").set_index(
        "model_id"
    )
    values = quantiles.values["team-good"]
    loss = np.mean(
        [2 * np.maximum(q * (y - v), (q - 1) * (y - v)) for q, v in zip(LEVELS, values.T, strict=True)]
    )
    assert wis.loc["team-good", "score"] == pytest.approx(
        loss, rel=1e-12
    )  # WIS is the mean of twice the pinball losses
    assert wis.loc["team-wide", "relative_skill"] == 1
    assert wis.loc["team-off", "n"] == 16
    parts = table[table["metric"].isin(["dispersion", "overprediction", "underprediction"])]
    total = parts.query("horizon == 'all'").groupby("model_id")["score"].sum()
    np.testing.assert_allclose(total.loc[wis.index], wis["score"], rtol=1e-12)
    pmf = by(hub, "category", "pmf")
    proba = dt.Predictive.from_proba(pmf.values["team-good"], levels=CATEGORIES)
    rps = table.query(
        "output_type == 'pmf' and metric == 'rps' and horizon == 'all' and model_id == 'team-good'"
    )
    assert rps["score"].item() == pytest.approx(float(dt.scores.rps(Hub(hub).truth(pmf).to_numpy(), proba)))
    crps = table.query("output_type == 'sample' and horizon == 'all' and model_id == 'team-good'")[
        "score"
    ].item()
    draws = dt.Predictive.from_samples(by(hub, "inc", "sample").values["team-good"])
    assert crps == pytest.approx(float(dt.scores.crps(y, draws)))
    record = json.loads(call("hub", "score", hub, "--outputs", "median", "--json"))
    medians = by(hub, "inc", "median").values["team-good"][:, 0]
    mine = [r for r in record["scores"] if r["model_id"] == "team-good" and r["horizon"] == "all"]
    assert mine[0]["score"] == pytest.approx(np.abs(medians - y).mean())


def test_relative_skill_uses_common_tasks():
    rows = pd.DataFrame(
        {"target": "t", "output_type": "quantile", "metric": "wis", "horizon": "1",
         "model_id": ["a", "a", "a", "b", "b", "c", "c"], "task": [0, 1, 2, 0, 1, 1, 2], "score": [1.0, 3.0, 8.0, 2.0, 6.0, 9.0, 2.0]}
    )  # fmt: skip
    table = score_table(rows).query("horizon == 'all'").set_index("model_id")["relative_skill"]
    ratios = {("a", "b"): 4 / 8, ("a", "c"): 11 / 11, ("b", "c"): 6 / 9}
    assert table["a"] == pytest.approx((1 * ratios["a", "b"] * ratios["a", "c"]) ** (1 / 3))
    assert table["b"] == pytest.approx((1 / ratios["a", "b"] * ratios["b", "c"]) ** (1 / 3))


def test_oracle_outputs_are_the_truth_where_they_are(hub, tmp_path):
    observed = observations().query("target == 'category'")
    rows = [
        {"location": r.location, "target_end_date": r.target_end_date, "target": "category", "output_type": "pmf",
         "output_type_id": c, "oracle_value": float(c == r.observation)}
        for r in observed.itertuples() for c in CATEGORIES
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "oracle.csv", index=False)
    pmf = by(hub, "category", "pmf")
    found = Hub(hub).truth(pmf, tmp_path / "oracle.csv")
    pd.testing.assert_series_equal(found, Hub(hub).truth(pmf), check_names=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pool", "{empty}", "--out", "o"], "must be the folder of a hub, got no hub-config/tasks.json in it"),
        (["pool", "{hub}", "--out", "{empty}/o", "--methods", "liner"], "--methods must be one of"),
        (["pool", "{hub}", "--out", "{empty}/o", "--weights", "best"], "--weights must be one of 'equal', 'tuned', 'rolling'"),
        (["pool", "{hub}", "--out", "{empty}/o", "--weights", "a=1", "b=x"], "or pairs MODEL=0.5, got 'b=x'"),
        (["pool", "{hub}", "--out", "{empty}/o", "--weights", "a=1"], "weights must be of models of the hub, got 'a'"),
        (["pool", "{hub}", "--out", "{empty}/o", "--weights", "team-good=-1"], "weights must be at least 0 and not all 0"),
        (["pool", "{hub}", "--out", "{empty}/o", "--models", "team-god"], "got 'team-god'.*did you mean 'team-good'"),
        (["pool", "{hub}", "--out", "{empty}/o", "--outputs", "pdf"], "--outputs must be one of"),
        (["pool", "{hub}", "--out", "{empty}/o", "--rounds", ROUNDS[0], "2030-01-01", "--methods", "linear", "--outputs", "pmf"], "--rounds must be one of"),
        (["pool", "{hub}", "--out", "{empty}/o", "--format", "xls"], "--format must be one of 'csv', 'parquet'"),
        (["score", "{hub}", "--pooled", "{empty}"], "must have a folder model-output, got none"),
        (["score", "{hub}", "--baseline", "nobody"], "--baseline must be one of"),
    ],
)  # fmt: skip
def test_refusals(hub, tmp_path, arguments, message):
    said = call("hub", *[a.format(hub=hub, empty=tmp_path) for a in arguments], code=2)
    assert pd.Series([said]).str.contains(message).item(), said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="location"), "must have the columns .* got none named 'location'"),
        (lambda t: t.assign(value="x"), "must hold numbers as values, got 'x' in row 0"),
        (lambda t: pd.concat([t, t[:1]]), "must submit every number once, got two for"),
        (lambda t: t.assign(output_type="pdf"), "must describe pdf forecasts of"),
        (lambda t: t.replace({"output_type_id": {"low": "lowest"}}), "the categories must be low, moderate, high, very high, got 'lowest'"),
        (lambda t: t.assign(target="deaths"), "must describe .* forecasts of 'deaths'"),
    ],
)  # fmt: skip
def test_damaged_submissions(hub, tmp_path, change, message):
    import shutil

    shutil.copytree(hub, tmp_path / "hub")
    path = tmp_path / "hub" / "model-output" / "team-good" / f"{ROUNDS[0]}-team-good.csv"
    change(pd.read_csv(path, dtype=str)).to_csv(path, index=False)
    with pytest.raises(FileFormatError, match=message):
        Hub(tmp_path / "hub").forecasts()
    (tmp_path / "hub" / "hub-config" / "tasks.json").write_text('{"rounds": []}')
    with pytest.raises(FileFormatError, match="must describe rounds with model_tasks"):
        Hub(tmp_path / "hub")


def test_a_hub_without_submissions_or_observations(tmp_path, hub):
    import shutil

    (tmp_path / "hub-config").mkdir()
    shutil.copy(hub / "hub-config" / "tasks.json", tmp_path / "hub-config")
    assert "must have a folder model-output" in call("hub", "score", tmp_path, code=2)
    (tmp_path / "model-output" / "a-b").mkdir(parents=True)
    assert "must hold submissions" in call("hub", "score", tmp_path, code=2)
    shutil.copytree(hub / "model-output" / "team-good", tmp_path / "model-output" / "team-good")
    assert "must have observations of its targets, got none" in call(
        "hub", "score", tmp_path, "--quiet", code=2
    )


@pytest.mark.slow
def test_the_real_hub(data_dir, tmp_path):
    """The mean of the quantiles exactly; the linear pool's quantiles by its own CDF; scores of three models."""
    archive = Path(data_dir) / "hub" / "example-complex-forecast-hub.tar.gz"
    if not archive.is_file():
        pytest.skip("no example hub")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "hub", filter="data")
    hub = tmp_path / "hub"
    call(
        "hub",
        "pool",
        hub,
        "--out",
        tmp_path / "o",
        "--methods",
        "linear",
        "quantile",
        "--outputs",
        "quantile",
        "pmf",
        "mean",
        "--quiet",
    )
    place = Hub(hub)
    read = {(f.target, f.output.name): f for f in place.forecasts(also=tmp_path / "o")}
    found = read["wk inc flu hosp", "quantile"]
    three = found.available("MOBS-GLEAM_FLUH")
    models = ["Flusight-baseline", "MOBS-GLEAM_FLUH", "PSI-DICE"]
    mean = np.mean([found.values[m][three] for m in models], axis=0)
    np.testing.assert_allclose(found.values["deeptram-quantile"][three], mean, rtol=1e-12)
    linear = found.values["deeptram-linear"][three]
    members = [found.predictive(m, three) for m in models]
    for k, q in enumerate(found.ids):
        at, before = (
            np.mean([m.cdf(y) for m in members], axis=0)
            for y in (linear[:, k] * (1 + 1e-9) + 1e-9, linear[:, k] * (1 - 1e-9) - 1e-9)
        )
        assert (at >= q - 1e-6).all()
        assert (before <= q + 1e-6).all()
    shown = call(
        "hub",
        "score",
        hub,
        "--pooled",
        tmp_path / "o",
        "--baseline",
        "Flusight-baseline",
        "--outputs",
        "quantile",
    )
    assert "wk inc flu hosp, quantile: weighted interval score" in shown
