"""What-if in a browser: every distribution is the one that Python computes, at random covariates."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.plots.report.page import script_json
from deeptram.plots.report.whatif import what_if
from headless_browser import Browser, find_browser
from what_if_models import DEEP, ENSEMBLES, EXACT, NET, fit_ensemble, fit_exact

PROGRAM = find_browser()
SCRIPT = "src/deeptram/plots/report/templates/whatif.js"
SETTINGS, ROWS = 200, 4
LEVELS = [0.05, 0.5, 0.9]
TOLERANCE = 1e-9
pytestmark = pytest.mark.filterwarnings(
    "ignore::deeptram.errors.ExtrapolationWarning"
)  # asked for on purpose
in_browser = pytest.mark.skipif(
    PROGRAM is None or sys.platform == "win32",
    reason="no Chromium on this computer: `make browser` installs it",
)


@pytest.fixture(scope="module")
def browser():
    with Browser(PROGRAM) as one:
        yield one
        assert one.complaints == []


def opened(browser, tmp_path, made, pytestconfig):
    script = (pytestconfig.rootpath / SCRIPT).read_text(encoding="utf-8")
    data = script_json(made.spec)
    page = tmp_path / "page.html"
    page.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,">'
        f'<script type="application/json" id="what-if-data">{data}</script><script>{script}</script>',
        encoding="utf-8",
    )
    browser.open(page)
    return browser


def random_settings(made, X, rng):
    """Values of every covariate that can be changed, within the range of the data."""
    drawn = pd.DataFrame(index=range(SETTINGS))
    for one in made.spec["inputs"]:
        if "options" in one:
            drawn[one["name"]] = rng.choice(np.array(one["options"], dtype=object), SETTINGS)
        else:
            low, high = one["range"]
            values = rng.uniform(low, high, SETTINGS)
            drawn[one["name"]] = np.round(values) if one["whole"] else values
    return drawn


def asked(page, drawn, points, rows=None):
    """What the page says about each setting."""
    rows = [0] * len(drawn) if rows is None else [int(row) for row in rows]
    questions = json.dumps([drawn.to_dict("records"), rows, list(map(float, points)), LEVELS])
    return page.evaluate(f"""(() => {{
        const [settings, rows, points, levels] = {questions};
        return settings.map((x, i) => deeptramWhatIf.predict(x, rows[i], points, levels));
    }})()""")


def compare(answers, pred, points, place):
    """Compare the pool (place 0) or a member with Python's distribution."""
    cdf = np.array([answer["cdf"][place] for answer in answers])
    if pred.levels is not None:
        np.testing.assert_allclose(cdf, pred.cdf(), rtol=0, atol=TOLERANCE)
        return
    np.testing.assert_allclose(cdf, pred.cdf_grid(points), rtol=0, atol=TOLERANCE)
    quantiles = np.array([answer["quantiles"][place] for answer in answers], dtype=float)
    expected = pred.quantile(LEVELS)
    np.testing.assert_allclose(quantiles, expected, rtol=TOLERANCE, atol=TOLERANCE * np.ptp(points))


def points_for(made):
    if made.spec["range"] is None:
        return [0.0]
    low, high = made.spec["range"]
    return np.linspace(low - 0.2 * (high - low), high + 0.2 * (high - low), 23)


@in_browser
@pytest.mark.browser
@pytest.mark.parametrize("name", EXACT)
def test_exact_models(name, browser, tmp_path, pytestconfig, rng):
    model, X, _ = fit_exact(name)
    made = what_if(model, X, range(ROWS), ["row"] * ROWS)
    assert (made.reason, made.fixed) == ("", ())
    drawn, points = random_settings(made, X, rng), points_for(made)
    answers = asked(opened(browser, tmp_path, made, pytestconfig), drawn, points)
    used = [name for name in X if name in drawn]
    compare(
        answers,
        model.predict_distribution(X.iloc[:SETTINGS].assign(**drawn[used].to_dict("list"))),
        points,
        0,
    )


@in_browser
@pytest.mark.browser
@pytest.mark.parametrize("name", ENSEMBLES)
def test_ensembles_of_small_networks(name, browser, tmp_path, pytestconfig, rng):
    ensemble, X, _ = fit_ensemble(name)
    made = what_if(ensemble, X, range(ROWS), ["row"] * ROWS)
    assert (made.reason, made.fixed) == ("", ())
    drawn, points = random_settings(made, X, rng), points_for(made)
    answers = asked(opened(browser, tmp_path, made, pytestconfig), drawn, points)
    changed = X.iloc[:SETTINGS].assign(**drawn.to_dict("list"))
    compare(answers, ensemble.predict_distribution(changed), points, 0)
    for m, pred in enumerate(ensemble.predict_members(changed), start=1):
        compare(answers, pred, points, m)


@in_browser
@pytest.mark.browser
def test_parts_that_only_python_computes_are_stored(browser, tmp_path, pytestconfig, rng):
    X = {"image": rng.normal(size=(120, 6, 6)), "x": rng.normal(size=120), "z": rng.normal(size=120)}
    y = (X["x"] + X["image"][:, 0, 0] + rng.logistic(size=120) > 0).astype(int) + (X["z"] > 1)
    cnn = dt.networks.CNN(channels=(2,))
    for terms in (
        [dt.CS(cnn, "image"), dt.LS("x + np.where(z > 0, z, 0)")],
        [dt.CI(cnn, "image"), dt.LS("x"), dt.CS(NET, "z")],
        [dt.LS("x"), dt.Scale("z"), dt.Scale(cnn, "image")],
    ):
        ensemble = dt.Ensemble(dt.Polr(terms, training=DEEP), 2, random_state=1, strategy="sequential").fit(
            X, y
        )
        made = what_if(ensemble, X, range(ROWS), ["row"] * ROWS)
        assert made.fixed == (("z",) if isinstance(terms[0], dt.CS) else ())
        drawn = random_settings(made, X, rng)
        rows = rng.integers(0, ROWS, SETTINGS)
        if made.fixed:
            drawn["z"] = X["z"][rows]
        answers = asked(opened(browser, tmp_path, made, pytestconfig), drawn, [0.0], rows)
        changed = {"image": X["image"][rows], **{name: drawn[name].to_numpy() for name in drawn}}
        compare(answers, ensemble.predict_distribution(changed), [0.0], 0)


@in_browser
@pytest.mark.browser
def test_recalibrated_members_and_tuned_weights(browser, tmp_path, pytestconfig, rng):
    for name in ("ordinal", "continuous"):
        ensemble, X, _ = fit_ensemble(name, recalibrate=True, weights="tuned")
        made = what_if(ensemble, X, range(ROWS), ["row"] * ROWS)
        drawn, points = random_settings(made, X, rng), points_for(made)
        answers = asked(opened(browser, tmp_path, made, pytestconfig), drawn, points)
        changed = X.iloc[:SETTINGS].assign(**drawn.to_dict("list"))
        compare(answers, ensemble.predict_distribution(changed), points, 0)


@in_browser
@pytest.mark.browser
def test_single_precision_networks_agree_to_single_precision(browser, tmp_path, pytestconfig, rng):
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    y = X["a"] + rng.normal(size=200)
    training = dt.Training(epochs=2, validation=0.2, progress=False)
    model = dt.BoxCox(
        [dt.CS(dt.networks.MLP(hidden=(8, 8)), "a", "b")], training=training, random_state=1
    ).fit(X, y)
    made = what_if(model, X, [0], ["row"])
    drawn, points = random_settings(made, X, rng), points_for(made)
    answers = asked(opened(browser, tmp_path, made, pytestconfig), drawn, points)
    cdf = np.array([answer["cdf"][0] for answer in answers])
    np.testing.assert_allclose(cdf, model.predict_distribution(drawn).cdf_grid(points), rtol=0, atol=2e-6)


@in_browser
@pytest.mark.browser
def test_varying_effects_beyond_the_data_say_so(browser, tmp_path, pytestconfig):
    model, X, _ = fit_exact("ordinal varying")
    made = what_if(model, X, [0], ["row"])
    page = opened(browser, tmp_path, made, pytestconfig)
    far = pd.DataFrame({"age": [5000.0, -5000.0], "sex": ["f", "f"]})
    assert None in asked(page, far, [0.0])  # Python refuses these rows


def test_what_the_page_cannot_compute_is_said(rng):
    X = pd.DataFrame({"x": rng.normal(size=60)})
    y = X["x"] + rng.normal(size=60)
    one = dt.Lm().fit(X, y)
    pooled = dt.Ensemble.from_members([one, dt.Lm().fit(X[:50], y[:50])])
    pooled.pooling = "log-linear-density"
    assert "log-linear-density pool is not one that the page computes" in what_if(pooled, X, [0], [""]).reason
    other = dt.Ensemble.from_members([one, dt.BoxCox().fit(X, y)])
    assert "differ in latent distribution, basis or levels" in what_if(other, X, [0], [""]).reason
    from sklearn.dummy import DummyClassifier

    dummy = DummyClassifier().fit(X, y > 0)
    foreign = dt.Ensemble.from_members([dummy, dummy])
    assert "not all transformation models" in what_if(foreign, X, [0], [""]).reason


def test_texts_from_data_stay_texts():
    model, X, _ = fit_exact("binary")
    made = what_if(model, X, [0], ["</script><script>alert(1)</script>"])
    text = str(script_json(made.spec))
    assert "<" not in text
    assert json.loads(text)["rows"][0]["label"] == "</script><script>alert(1)</script>"
    assert "</script>" in json.loads(text)["inputs"][1]["options"]


def test_arrays_and_booleans(rng):
    X = np.column_stack([rng.normal(size=50), rng.normal(size=50)])
    made = what_if(
        dt.Lm().fit(X, X[:, 0] + rng.normal(size=50)), pd.DataFrame(X, columns=["p", "q"]), [3], ["row"]
    )
    assert [one["name"] for one in made.spec["inputs"]] == ["x0", "x1"]
    assert made.spec["rows"][0]["values"] == {"x0": X[3, 0], "x1": X[3, 1]}
    frame = pd.DataFrame({"flag": rng.random(50) > 0.5})
    made = what_if(dt.Lm().fit(frame, rng.normal(size=50)), frame, [0], ["row"])
    assert made.spec["rows"][0]["values"] == {"flag": float(frame["flag"][0])}
