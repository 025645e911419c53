"""The report of a model of one's own: every kind of outcome, the answer in numbers, nothing from data becomes code."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup
from scipy.stats import norm, poisson

import deeptram as dt
from deeptram.errors import InvalidInputError
from deeptram.inputs import read_table
from deeptram.plots.report.model_answers import (
    _coverage_sentence,
    coefficients_in_words,
    importance_sentence,
    null_model,
    quality_sentence,
    shuffled_losses,
)
from deeptram.plots.report.page import Page as ReportPage
from deeptram.plots.report.page import Section, lighter, script_json
from deeptram.plots.wording import gain_words, large_sentence, short, slope_sentence
from headless_browser import Browser, find_browser
from what_if_models import covariates, fit_ensemble, fit_exact, outcome

PROGRAM = find_browser()
KINDS = ("binary", "ordinal", "nominal", "continuous", "count", "survival")


class Page(HTMLParser):
    """The text of each section, tags and identifiers."""

    def __init__(self):
        super().__init__()
        self.text, self.tags, self.ids = {}, [], []
        self._section, self._silent = "", False

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self._silent = tag in ("script", "style")
        if tag == "section":
            self._section = attributes["id"]

    def handle_endtag(self, tag):
        self._silent = False

    def handle_data(self, data):
        if not self._silent:
            self.text[self._section] = self.text.get(self._section, "") + data


def parsed(html):
    page = Page()
    page.feed(html)
    return page


def words(page, section):
    return " ".join(page.text[section].split())


@pytest.fixture(scope="module")
def reports():
    """A report of an exact model for every kind of outcome, made once."""
    made = {}
    for kind in KINDS:
        model, X, y = fit_exact(kind)
        made[kind] = (model, X, y, model.report(X, y, n_boot=30))
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_outcome_has_its_sections(kind, reports):
    page = parsed(reports[kind][3].html)
    sections = {
        "answer",
        "what-if",
        "coefficients-section",
        "effects-section",
        "calibration-section",
        "worst",
        "provenance",
    }
    assert sections <= set(page.text)
    assert ("survival-section" in page.text) == (kind == "survival")
    assert len(set(page.ids)) == len(page.ids)
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    labels = [a["aria-label"] for tag, a in page.tags if tag == "svg" and "aria-label" in a]
    assert len(set(labels)) == len(labels) >= 4
    assert "What matters: " in words(page, "answer")
    banded = "Bands are of the difference to that typical row" in words(page, "effects-section")
    assert banded == (kind != "nominal")  # which has no bands


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_the_score_and_its_difference_to_the_null_model(kind, reports):
    model, X, y, report = reports[kind]
    pred = model.predict_distribution(X)
    table = dt.evaluate(
        {"model": pred, "null": null_model(model, y, pred)[0]}, y, metrics=["nll"], n_boot=0, reference="null"
    )
    said = words(parsed(report.html), "answer")
    assert f"On 300 rows the NLL is {table['estimate'][0]:.4f} (" in said
    gain = rf"better by {-table['difference'][0]:.4f} \([^)]*\) than|not clearly different \([^)]*\) from"
    assert re.search(rf"({gain}) that of the null model, which ignores all covariates", said)


def test_null_model_of_classes_is_their_frequency_in_the_training_data(tmp_path):
    model, X, y = fit_exact("nominal")
    model.save(tmp_path / "model")
    shares = pd.Series(y).value_counts(normalize=True)
    few = slice(0, 20)
    for known in (model, dt.load(tmp_path / "model")):
        pred = known.predict_distribution(X[few])
        null, from_training = null_model(known, y[few], pred)
        assert from_training
        np.testing.assert_allclose(null.pmf()[0], shares[list(pred.levels)])
    null, from_training = null_model(object(), y[few], pred)  # a foreign model: of these rows
    assert not from_training
    own = pd.Series(y[few]).value_counts(normalize=True).reindex(list(pred.levels), fill_value=0.0)
    np.testing.assert_allclose(null.pmf()[0], own)


@pytest.mark.parametrize("kind", ["continuous", "count", "survival"])
def test_null_model_of_numbers_is_that_of_the_training_data(kind, tmp_path):
    """A model without covariates fitted to all training rows, from a summary of them that is saved along."""
    X, few = covariates(), np.arange(30)
    y = outcome(kind, X)
    model = dt.Tram([dt.LS("age", "dose")], outcome=kind).fit(X, y)
    model.save(tmp_path / "model")
    bare = dt.Tram([dt.SI()], outcome=kind, order=4).fit(X, y)
    expected = dt.scores.nll(y[few], bare.predict_distribution(X.iloc[few]))
    for known in (model, dt.load(tmp_path / "model")):
        null, from_training = null_model(known, y[few], known.predict_distribution(X.iloc[few]))
        assert from_training
        assert dt.scores.nll(y[few], null) == pytest.approx(expected, abs=0.01)
    assert null_model(object(), y[few], null) == (None, False)  # nobody knows what a foreign model would fit


def test_training_outcomes_keep_their_weights_and_censoring():
    rng = np.random.default_rng(0)
    time, weights = rng.exponential(size=900), rng.integers(1, 4, 900).astype(float)
    y = dt.Surv.interval(np.where(time > 1, 1.0, time), np.where(time > 1, np.inf, time))
    marginal = dt.Coxph().fit(rng.normal(size=(900, 1)), y, sample_weight=weights).outcome_.marginal
    seen = marginal.outcomes.observations
    assert len(marginal.weights) == 200  # 100 events and 100 censored times stand for all
    assert marginal.weights[seen.exact].sum() == pytest.approx(weights[time <= 1].sum())
    assert marginal.weights.sum() == pytest.approx(weights.sum())
    mean = np.average(time[time <= 1], weights=weights[time <= 1])
    assert seen.lower[seen.exact].mean() == pytest.approx(mean, abs=0.005)


def test_a_survival_report_checks_proportional_hazards(rng, tmp_path):
    X = pd.DataFrame({"a": rng.normal(size=600), "b": rng.choice([0.0, 1.0], 600)})
    crossing = rng.weibull(np.where(X["b"] > 0, 3.0, 0.7)) * np.exp(0.5 * X["a"].to_numpy())
    y = dt.Surv.right(np.minimum(crossing, 2.0), crossing < 2.0)
    model = dt.Tram(outcome="survival", latent="cloglog").fit(X, y)
    page = parsed(model.report(X, y, n_boot=0).html)
    said = words(page, "coefficients-section")
    p = dt.proportionality_test(model)["p"]
    assert max(p["overall"], p["b"]) < 0.001
    assert "Proportional hazards, checked by a score test on its training rows: p < 0.001 overall" in said
    part = words(parsed(model.report(X[:99], y[:99], n_boot=0).html), "coefficients-section")
    assert "on its training rows: p < 0.001" in part
    assert "least for b (p < 0.001): effects change with the outcome; consider dt.Varying" in said
    assert "Coxph on 600 rows" in page.text[""]  # the name of the preset, whichever class was used
    model.save(tmp_path / "cox")
    steady = parsed(dt.load(tmp_path / "cox").report(X.assign(b=rng.permutation(X["b"])), y, n_boot=0).html)
    said = words(steady, "coefficients-section")
    assert "nothing speaks against it here" in said
    assert "of the model refitted to these rows: p " in said


def test_shuffling_finds_what_matters(rng):
    X = pd.DataFrame({"strong": rng.normal(size=400), "weak": rng.normal(size=400), "unused": 0.0})
    X["unused"] = rng.normal(size=400)
    y = 2 * X["strong"] + 0.3 * X["weak"] + rng.normal(size=400)
    model = dt.Lm([dt.LS("strong", "weak")]).fit(X, y)
    found = shuffled_losses(model, X, y, model.predict_distribution(X), read_table(X), 0)
    assert found["column"].tolist() == ["strong", "weak"]
    # A shuffled column leaves independent copies: the NLL grows by about beta^2 var(x) / sigma^2.
    assert found["loss"][0] == pytest.approx(4 * X["strong"].var() / (y - model.predict(X)).var(), rel=0.15)
    assert (found["lower"] < found["loss"]).all()
    X["none"] = rng.normal(size=400)
    model = dt.Lm([dt.LS("strong", "weak", "none")]).fit(X, y)
    found = shuffled_losses(model, X, y, model.predict_distribution(X), read_table(X), 0).set_index("column")
    assert found.loc["none", "lower"] < 0 < found.loc["weak", "lower"]
    assert "what none adds is too little for these rows to show" in importance_sentence(found.reset_index())


def test_a_column_without_which_outcomes_are_impossible_matters():
    class Certain:
        def predict_distribution(self, X):
            sure = np.asarray(X["x"])[:, None] == [0.0, 1.0]
            return dt.Predictive.from_proba(sure.astype(float))

    X = pd.DataFrame({"x": np.arange(40) % 2.0})
    y = X["x"].astype(int).to_numpy()
    found = shuffled_losses(Certain(), X, y, Certain().predict_distribution(X), read_table(X), 0)
    assert np.isposinf(found["lower"]).all()
    assert "What matters: x (shuffled among rows it raises the NLL by ∞)" in importance_sentence(found)


def test_coefficients_are_read_in_words(reports):
    model, _, _, report = reports["survival"]
    said = words(parsed(report.html), "coefficients-section")
    row = model.summary().loc["dose"]
    assert f"One unit more of dose multiplies the hazard by {np.exp(-row['coef']):.2f} (" in said
    assert "sex = m instead of </script> multiplies the hazard by" in said
    said = words(parsed(reports["binary"][3].html), "coefficients-section")
    assert "One unit more of age multiplies the odds of yes by" in said
    assert "A positive coefficient means a larger probability of yes." in said
    assert "Proportional odds" not in said  # one cutpoint: there is nothing that effects could change with
    said = words(parsed(reports["ordinal"][3].html), "coefficients-section")
    assert "bs(age, df=5)1" in said
    assert "One unit more of bs(" not in said  # a column of a spline means nothing alone
    said = words(parsed(reports["nominal"][3].html), "coefficients-section")
    assert "the odds of green against blue by" in said


def test_worst_rows_are_the_least_likely_and_their_parts_add_up_to_h(reports):
    model, X, y, report = reports["continuous"]
    score = dt.scores.nll(y, model.predict_distribution(X), reduction="none")
    said = words(parsed(report.html), "worst")
    order = np.argsort(-score)[:10]
    section = report.html[report.html.index('<section id="worst">') :]
    rows = re.findall(r'<th scope="row">(\d+)</th>', section[: section.index("</section>")])
    assert [int(row) for row in rows] == order.tolist()
    part = model.contributions(X.iloc[order[:1]]).iloc[0] - model.contributions(X).mean()
    top = part.abs().idxmax()
    assert f"{top} {'+' if part[top] > 0 else '−'}{abs(part[top]):.2f}" in said.replace("\u00a0", " ")


def test_units_suit_the_columns(rng):
    X = pd.DataFrame({"dose": rng.uniform(0, 0.06, 200), "income": rng.normal(3e4, 8e3, 200)})
    y = 40 * X["dose"] + 1e-4 * X["income"] + rng.logistic(size=200)
    model = dt.Colr().fit(X, y)
    found = coefficients_in_words(model.summary(), model, X)
    assert list(found.index) == ["dose (per 0.01)", "income (per 10,000)"]
    np.testing.assert_allclose(found["coef"], model.coef_ * [0.01, 1e4])
    assert (
        found["words"].iloc[1].startswith("10,000 more of income multiplies the odds of a larger outcome by")
    )
    assert "income (per 10,000)" in words(parsed(model.report(X, y, n_boot=0).html), "coefficients-section")


def test_times_beyond_the_last_are_not_extrapolated(rng):
    X = pd.DataFrame({"x": rng.normal(size=100)})
    times = np.exp(3 * X["x"]) * rng.exponential(size=100)
    y = dt.Surv.right(np.minimum(times, 1.0), times < 1.0)
    model = dt.Coxph().fit(X, y)
    last = model.predict_distribution(X).last_time
    assert f"> {short(last)}" in words(parsed(model.report(X, y, n_boot=0).html), "worst")


def test_every_dark_colour_is_lighter_on_a_dark_page():
    marks = '<path style="fill: #0b3c5d" /><path style="fill: #332288" />'
    html = ReportPage("Marks", "", [Section("marks", "Marks", [Markup(marks)])]).html()
    assert "--c0b3c5d:#0b3c5d" in html
    assert "--c332288:#332288" in html


def test_survival_has_its_concordance_and_brier_score(reports):
    model, X, y, report = reports["survival"]
    said = words(parsed(report.html), "answer")
    value = dt.metrics.concordance(y, model.predict_distribution(X))
    assert f"concordance index {value:.3f} (" in said
    assert "integrated Brier score" in said


def test_numbers_at_risk_are_in_the_survival_figure(reports):
    report = reports["survival"][3]
    figure = report.html[report.html.index('id="survival"') :]
    figure = figure[: figure.index("</figure>")]
    assert ">at risk, 1<" in figure
    assert figure.count(">100<") >= 3  # three groups of a hundred rows
    assert "Kaplan-Meier" in figure


def test_ensembles_have_their_own(tmp_path):
    ensemble, X, y = fit_ensemble("count")
    report = ensemble.report(X, y, tmp_path / "page.html", n_boot=20)
    assert report.path.read_text(encoding="utf-8") == report.html
    page = parsed(report.html)
    assert "Ensemble of 3 Cotram members on 300 rows" in words(page, "")
    assert "transformation pool" in words(page, "")
    assert "pool ± 2 sd of the members" in words(page, "effects-section")
    assert "Bands are of the difference" not in words(page, "effects-section")  # they are the members'
    linear, X, y = fit_ensemble("ordinal")
    assert "There are no coefficients: " in linear.report(X, y, n_boot=0).html


@pytest.mark.parametrize("kind", ["seeds", "bags"])
def test_coefficients_have_the_words_that_python_prints_above_them(kind, tmp_path):
    X = covariates()
    y = (X["age"] + np.random.default_rng(0).logistic(size=len(X)) > X["age"].median()).astype(int)
    training = dt.Training(epochs=1, validation=0.2, progress=False)
    net = dt.networks.MLP((2,))
    model = dt.Logit([dt.LS("age"), dt.CS(net, "dose")], training=training)
    ensemble = dt.Ensemble(model, 2, members=kind, random_state=1, n_jobs=1).fit(X, y)
    ensemble.save(tmp_path / "model")
    page = parsed(dt.load(tmp_path / "model").report(X, y, n_boot=0).html)
    said = words(page, "coefficients-section")
    _, _, *about = ensemble.coef_table().attrs["header"]
    about = [line for line in about if not line.startswith("training of")]
    assert about[0].startswith("se, lower, upper (95 %): ")
    assert len(about) == (2 if kind == "seeds" else 1)
    for line in about:
        assert line in said
    assert f"{len(X)} rows, 20 % of them to choose the best epochs on (validation)" in words(
        page, "provenance"
    )


def test_few_rows_have_no_limits_that_fall_together(reports):
    model, X, y, _ = reports["ordinal"]
    rows = np.zeros(5, dtype=int)  # the same row: all bootstrap samples agree
    page = parsed(model.report(X.iloc[rows].reset_index(drop=True), np.asarray(y)[rows], n_boot=20).html)
    said = words(page, "answer") + words(page, "effects-section")
    assert re.search(r"On 5 rows the NLL is \d\.\d{4}, ", said)
    assert not re.search(r"\((−?[\d.]+) to \1\)", said.replace("(0.0000 to 0.0000)", ""))
    assert "These rows do not settle whether predictions are too high or too low" in said
    assert "These rows do not show that any covariate matters" in said
    with pytest.raises(InvalidInputError, match=r"needs at least 5 rows with outcomes .*, got 4; pass more"):
        model.report(X[:4], y[:4])


def test_foreign_members_are_reported_without_what_if(rng):
    from sklearn.linear_model import LogisticRegression

    X = rng.normal(size=(200, 2))
    y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)
    members = [LogisticRegression(C=c).fit(X, y) for c in (0.1, 1.0)]
    html = dt.Ensemble.from_members(members).report(X, y, n_boot=20).html
    assert "There is no what-if view: its members are not all transformation models." in html
    assert "better by" in html


def test_images_are_held_and_named(rng):
    X = {"image": rng.normal(size=(80, 6, 6)), "x": rng.normal(size=80)}
    y = (X["x"] + rng.logistic(size=80) > 0).astype(int)
    training = dt.Training(epochs=1, validation=0.2, progress=False)
    model = dt.Logit(
        [dt.CS(dt.networks.CNN(channels=(2,)), "image"), dt.LS("x")], training=training, random_state=1
    )
    page = parsed(model.fit(X, y).report(X, y, n_boot=10).html)
    assert "image" in words(page, "effects-section")
    assert "what-if" in page.text


def test_texts_from_data_never_become_code(tmp_path):
    hostile = '<img src=x onerror="alert(1)">'
    rng = np.random.default_rng(1)
    X = pd.DataFrame(
        {hostile: rng.normal(size=120), "g": rng.choice(["</script><script>alert(2)</script>", "b"], 120)}
    )
    y = np.where(X[hostile] + rng.logistic(size=120) > 0, "<b>yes</b>", "{{ 7 * 7 }}")
    X.index = [f"<i>{k}</i>" for k in range(120)]
    page = dt.Logit().fit(X, y).report(X, y, n_boot=10, source="<script>alert(3)</script>")
    for piece in ("<img src=x", "<script>alert", "<b>yes", "<i>1"):
        assert piece not in page.html
    assert "{{ 7 * 7 }}" in page.html
    assert [tag for tag, _ in parsed(page.html).tags].count("script") == 4  # ours


def test_it_shows_itself_in_a_notebook(reports):
    frame = reports["binary"][3]._repr_html_()
    assert frame.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert frame.count("<") == 2


def test_bad_input_is_named(reports):
    model, X, y, _ = reports["binary"]
    with pytest.raises(InvalidInputError, match="same number of rows"):
        model.report(X, y[:5])
    with pytest.raises(InvalidInputError, match="n_boot must be"):
        model.report(X, y, n_boot=-1)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (slope_sentence("It", 0.7, 0.6, 0.8), "over-confident: its predictions are too extreme"),
        (slope_sentence("It", 1.4, 1.2, 1.6), "under-confident: its predictions are too timid"),
        (slope_sentence("It", 1.4, np.nan, np.nan), "a little too timid"),
        (slope_sentence("It", np.nan, np.nan, np.nan), "do not settle the calibration slope"),
        (
            slope_sentence("It", 0.77, 0.56, 1.35),
            "It: these rows show neither over- nor under-confidence (calibration slope 0.77, 0.56 to 1.35; ideal: 1)",
        ),
        (large_sentence("It", -0.4, -0.6, -0.2), "predicts too high: outcomes are smaller"),
        (
            large_sentence("It", 0.1, -0.2, 0.4),
            "predicts neither too high nor too low on average as far as these rows show (",
        ),
        (
            large_sentence("It", 0.4, np.nan, np.nan),
            "too low on average on these rows (calibration in the large 0.40;",
        ),
        (
            large_sentence("It", np.nan, np.nan, np.nan),
            "These rows do not settle whether predictions are too high",
        ),
        (gain_words(0.2, 0.1, 0.3, other="a"), "worse by 0.2000 (0.1000 to 0.3000) than a"),
        (gain_words(0.2, 0.1, 0.3, other="a", smaller_is_better=False), "better by 0.2000"),
        (gain_words(np.nan, np.nan, np.nan, other="a"), "not comparable with a"),
    ],
)
def test_sentences(sentence, expected):
    assert expected in sentence


def test_width_of_intervals_is_judged(rng):
    X = rng.normal(size=(400, 1))
    y = X[:, 0] + rng.normal(size=400)
    model = dt.Lm().fit(X, y)
    said = words(parsed(model.report(X, y, n_boot=0).html), "calibration-section")
    inside = np.abs(norm.cdf((y - model.predict(X)) / (y - model.predict(X)).std()) - 0.5) <= 0.4
    assert f"Of its 80 % intervals {100 * inside.mean():.0f} % (" in said
    assert "they are too narrow" in model.report(X, X[:, 0] + 3 * rng.normal(size=400), n_boot=0).html
    assert "they are too wide" in model.report(X, X[:, 0] + 0.2 * rng.normal(size=400), n_boot=0).html


@pytest.mark.parametrize(("mean", "promised"), [(1.0, 92), (6.0, 85)])
def test_intervals_of_counts_promise_more_than_their_level(rng, mean, promised):
    pred = dt.Predictive.from_scipy(poisson(np.full(500, mean)))
    low, high = poisson(mean).ppf([0.1, 0.9])
    assert round(100 * (poisson(mean).cdf(high) - poisson(mean).cdf(low - 1))) == promised
    said = _coverage_sentence(rng.poisson(mean, 500).astype(float), pred, 0.95)
    assert f"80 % intervals, which promise {promised} %, ending at whole numbers, " in said
    assert "calibrated in width" in said
    assert "too wide" in _coverage_sentence(np.full(500, mean), pred, 0.95)
    assert "too narrow" in _coverage_sentence(rng.poisson(3 * mean, 500).astype(float), pred, 0.95)


def test_dark_colours_are_lighter_on_a_dark_page():
    assert lighter("#ffffff") == "#ffffff"
    assert lighter("#000000") != "#000000"
    page = ReportPage("<b>", "", []).html()
    assert "@media screen and (prefers-color-scheme:dark)" in page
    assert "<title>&lt;b&gt;" in page
    assert str(script_json(["\u2028&"])) == '["\\u2028\\u0026"]'


@pytest.fixture(scope="module")
def opened(reports, tmp_path_factory):
    if PROGRAM is None or sys.platform == "win32":
        pytest.skip("no Chromium on this computer: `make browser` installs it")
    folder = tmp_path_factory.mktemp("pages")
    with Browser(PROGRAM) as browser:

        def show(kind, **window):
            path = reports[kind][3].save(folder / f"{kind}.html")
            browser.open(path, **window)
            return browser

        yield show
        assert browser.complaints == []
        assert {address.split(":")[0] for address in browser.requests} <= {"file", "data"}


@pytest.mark.browser
@pytest.mark.parametrize("kind", KINDS)
def test_the_what_if_view_follows_its_controls(kind, opened, reports):
    model, X, _, _ = reports[kind]
    page = opened(kind)
    state = """(() => ({
        live: document.querySelector('.live').textContent,
        marks: document.querySelectorAll('.shown svg *').length,
        first: document.querySelector('.shown tbody td').textContent,
    }))()"""
    before = page.evaluate(state)
    assert before["marks"] > 8
    age = page.evaluate("""(() => {
        const label = [...document.querySelectorAll('.control label')].find(l => l.textContent == 'age');
        const slider = document.getElementById(label.htmlFor);
        slider.value = slider.max;
        slider.dispatchEvent(new Event('input', {bubbles: true}));
        return +slider.value;
    })()""")
    after = page.evaluate(state)
    assert after["live"] != before["live"]
    row = page.evaluate("deeptramWhatIf.spec.rows[0].values")
    changed = X.iloc[:1].assign(**{name: [value] for name, value in row.items()}).assign(age=age)
    pred = model.predict_distribution(changed)
    if pred.levels is not None:
        assert after["first"] == f"{100 * pred.pmf()[0, 0]:.1f} %"
    else:
        assert float(after["first"].replace("−", "-")) == pytest.approx(
            float(pred.quantile(0.05)[0]), rel=1e-3
        )
    page.evaluate("document.querySelector('.controls button').click()")
    assert page.evaluate(state)["live"] == before["live"]


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_no_screen_makes_it_scroll_sideways(width, opened):
    page = opened("ordinal", width=width, mobile=width < 600)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_the_what_if_view_is_reached_by_keyboard_and_spoken(opened):
    page = opened("binary")
    assert page.evaluate("document.querySelector('.live').getAttribute('aria-live')") == "polite"
    assert page.evaluate("""[...document.querySelectorAll('.controls select, .controls input')]
        .every(one => document.querySelector(`label[for="${one.id}"]`) && one.tabIndex === 0)""")
    page.evaluate("document.getElementById('what-if-0').focus()")
    said = page.evaluate("document.querySelector('.live').textContent")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="End", code="End", windowsVirtualKeyCode=35)
    assert page.evaluate("document.querySelector('.live').textContent") != said


@pytest.mark.browser
def test_the_page_is_usable_at_once_and_an_update_takes_milliseconds(opened, reports):
    page = opened("survival")
    timing = page.evaluate("performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart")
    assert timing < 5000  # a second on a computer that is not busy
    assert len(reports["survival"][3].html) < 200_000


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        ((-0.04, -0.06, -0.02), ", worse than the null model's 0.650"),
        ((-0.04, -0.06, 0.01), ", not better than the null model's 0.650"),
        ((0.0, 0.0, 0.0), ", not better than the null model's 0.610"),
        ((0.04, 0.02, 0.06), ""),
    ],
)
def test_the_first_sentence_says_what_is_worse_than_the_null_model(difference, said):
    names = ["estimate", "lower", "upper", "difference", "difference_lower", "difference_upper"]
    rows = {"nll": [0.5, 0.4, 0.6, -0.1, -0.2, -0.05], "accuracy": [0.61, 0.58, 0.64, *difference]}
    scores = pd.DataFrame.from_dict(rows, "index", columns=names).rename_axis("metric").reset_index()
    sentence = quality_sentence(scores.assign(name="model"), 120, True)
    assert sentence.endswith(f"ccuracy 0.610 (0.580 to 0.640){said}.")


def test_a_model_that_misleads_says_so_at_once():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"a": rng.normal(size=300)})
    model = dt.Logit().fit(X, X["a"] + rng.logistic(size=300) > 0)
    answer = words(parsed(model.report(X, X["a"] < 0, n_boot=30).html), "answer")
    assert re.search(
        r"worse by .* null model.*ccuracy 0\.0\d+ \(.*\), worse than the null model's 0\.\d+", answer
    )
