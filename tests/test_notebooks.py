"""What a notebook shows: models, distributions, weights, tables, figures, progress; pandas in, pandas out."""

from __future__ import annotations

import sys
import types
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from sklearn.base import clone

import deeptram as dt
from deeptram._progress import LineBar, progress
from deeptram.errors import InvalidInputError
from deeptram.fitting.deep.hooks import EpochBar


class Page(HTMLParser):
    """Checks that tags close in order and pictures say what they show; collects the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.labels: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "svg":
            assert named["role"] == "img"
            self.labels.append(str(named["aria-label"]))
        if tag not in ("br", "rect", "hr", "input", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def __contains__(self, words: str) -> bool:
        return words in "".join(self.text)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"a": rng.normal(size=120), "b": rng.normal(size=120)}, index=np.arange(500, 620))
    latent = 0.8 * X["a"] + rng.logistic(size=120)
    return X, pd.cut(latent, [-np.inf, -1, 1, np.inf], labels=["low", "<mid>", "high"]), np.exp(latent)


@pytest.fixture(scope="module")
def ordinal(data):
    return dt.Polr([dt.LS("a + b")]).fit(data[0], data[1])


def test_a_fitted_model_says_terms_h_rows_likelihood_and_coefficients(ordinal):
    page = Page(ordinal._repr_html_())
    for words in ("Polr: ordinal outcome, low < <mid> < high", "LS(a + b)", "cutpoint", "rows: 120"):
        assert words in page
    assert f"{ordinal.loglik_:.2f}" in page
    assert f"{ordinal.coef_['a']:.4f}" in page
    assert ordinal._repr_mimebundle_()["text/html"] == ordinal._repr_html_()


def test_before_the_fit_scikit_learn_draws_the_settings():
    assert "sk-" in dt.Polr([dt.LS("a")])._repr_html_()
    assert "sk-" in dt.Ensemble(dt.Polr([dt.LS("a")]))._repr_html_()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (dt.BoxCox([dt.LS("a")]), "a Bernstein polynomial of order 6 between"),
        (dt.Coxph([dt.LS("a")], log_first=True), "a Bernstein polynomial of log y of order 6"),
        (dt.Lm([dt.LS("a")]), "a line in y"),
        (dt.Survreg([dt.LS("a")]), "a line in log y"),
        (dt.BoxCox([dt.SI(strata="s"), dt.LS("a")]), "SI(s), LS(a)"),
    ],
    ids=["BoxCox", "Coxph", "Lm", "Survreg", "strata"],
)
def test_h_in_words(data, model, words):
    X, _, y = data
    assert words in Page(model.fit(X.assign(s=np.where(X["b"] > 0, "u", "v")), y)._repr_html_())


def test_an_ensemble_says_members_pool_weights_and_coefficients(data):
    X, y, _ = data
    members = [dt.Polr([dt.LS("a + b")]).fit(X[rows], y[rows]) for rows in (slice(0, 90), slice(30, 120))]
    ensemble = dt.Ensemble.from_members(members, weights=[0.25, 0.75])
    page = Page(ensemble._repr_html_())
    for words in ("Ensemble of 2 members: Polr", "pool: transformation", "weights: 0.25, 0.75"):
        assert words in page
    assert f"{ensemble.coef_['a']:.4f}" in page
    assert "No coefficients: " in Page(dt.Ensemble.from_members(members, pooling="linear")._repr_html_())


def test_long_tables_are_cut_and_missing_intervals_left_out(data):
    pred = dt.Predictive.from_proba(np.full((4, 2), 0.5), levels=["no", "yes"])
    page = Page(
        dt.evaluate({f"model {k}": pred for k in range(40)}, ["no", "yes"] * 2, n_boot=0)._repr_html_()
    )
    assert "model 29" in page
    assert "model 35" not in page
    assert "…10 more rows" in page
    assert "nan" not in page
    assert "(" not in page
    assert "in brackets" not in page


def test_what_else_a_notebook_shows(data, ordinal):
    X, _, y = data
    pred = dt.Lm([dt.LS("a")]).fit(X, y).predict_distribution(X)
    page = Page(dt.conformal(pred, y, groups=np.arange(120) % 2)._repr_html_())
    for words in ("Conformal prediction", "outcome: continuous", "calibration rows: 120", "160"):
        assert words in page
    counts = dt.Predictive.from_scipy(scipy.stats.poisson([2.0]))._repr_html_()
    assert counts.count("<rect") == counts.count("height=") - 1 <= 12  # one for each count
    levels = ordinal.predict_distribution(X)
    table = dt.evaluate(
        {"one": levels, "two": levels[::-1]}, data[1], metrics=["nll"], n_boot=20, reference="two"
    )
    assert "".join(Page(table._repr_html_()).text).count("two") == 1  # no line of zeros
    assert "−" in Page(table._repr_html_())


def test_levels_are_shown_as_bars(ordinal, data):
    pred = ordinal.predict_distribution(data[0])
    assert repr(pred) == "DiscretePredictive(n=120, levels=low|<mid>|high, latent='logistic')"
    page = Page(pred._repr_html_())
    assert "further rows: 115" in page
    assert len(page.labels) == 5
    assert page.labels[0] == ", ".join(
        f"{level} {probability:.3f}" for level, probability in zip(pred.levels, pred.pmf()[0], strict=True)
    )


@pytest.mark.parametrize(
    "pred",
    [
        dt.Predictive.from_scipy(scipy.stats.norm([0.0, 1.0], 1.0)),
        dt.Predictive.from_scipy(scipy.stats.poisson([2.0, 30.0])),
        dt.Predictive.from_torch(torch.distributions.Normal(torch.tensor([0.0], requires_grad=True), 1.0)),
        dt.Predictive.from_samples([[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]]),
        dt.Predictive.from_survival([1.0, 2.0], [[0.9, 0.8], [0.5, 0.1]]),
    ],
    ids=["normal", "poisson", "torch", "samples", "survival"],
)
def test_numbers_are_shown_with_median_and_interval(pred):
    page = Page(pred._repr_html_())
    assert len(page.labels) == len(pred)
    assert all(label.startswith("median ") and "90 % between " in label for label in page.labels)


def test_times_beyond_the_data_are_shown_without_a_warning(data):
    X, _, y = data
    model = dt.Coxph([dt.LS("a")]).fit(X, dt.Surv.right(np.minimum(y, 1.0), y < 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "median" in Page(model.predict_distribution(X)._repr_html_())


def test_tuned_weights_show_their_certificate(data, ordinal):
    X, y, _ = data
    null = dt.Polr([dt.SI()]).fit(X, y)
    tuned = dt.tune_weights([model.predict_distribution(X) for model in (ordinal, null)], y)
    page = Page(tuned._repr_html_())
    assert f"at most {tuned.gap:.1e}" in page
    assert page.labels == [f"weight {weight:.3f}" for weight in tuned.weights]


def test_evaluation_is_shown_side_by_side(data, ordinal):
    X, y, _ = data
    null = dt.Polr([dt.SI()]).fit(X, y)
    predictions = {"full": ordinal.predict_distribution(X), "null": null.predict_distribution(X)}
    table = dt.evaluate(predictions, y, metrics=["nll", "rps"], n_boot=20, reference="null")
    page = Page(table._repr_html_())
    row = table.iloc[0]
    assert f"{row['estimate']:.3g} ({row['lower']:.3g} to {row['upper']:.3g})" in page
    assert "Paired differences" in page
    assert "Scores and metrics" not in table[["name", "estimate"]]._repr_html_()
    assert isinstance(table, pd.DataFrame)


def test_a_display_shows_its_figure():
    assert dt.plots.weights([0.2, 0.8])._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"


def test_progress_in_a_notebook_is_a_line_that_rewrites_itself(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with EpochBar(dt.Training(epochs=4), "member 1") as bar:
        bar.update(1, 0.5, 0.6)
        bar.update(4, 0.25, float("nan"))
    lines = capsys.readouterr().err.split("\r")
    assert lines[1] == "member 1 [#####               ] 1/4  train 0.5  validation 0.6"
    assert lines[2].strip() == "member 1 [####################] 4/4  train 0.25"
    with progress("pools", 2) as steps:
        steps.done("linear")
    assert capsys.readouterr().err.rstrip() == "\rlinear [##########          ] 1/2"
    assert LineBar.text("x", 0, 0, "") == "x [                    ] 0/0"


def test_nothing_is_shown_where_nobody_watches(capsys):
    with EpochBar(dt.Training(epochs=4), "member 1") as bar:
        bar.update(1, 0.5, 0.6)
    assert capsys.readouterr().err == ""


def test_predictions_keep_the_index_of_a_data_frame(ordinal, data):
    X, y, z = data
    model = clone(ordinal).set_output(predict="pandas").fit(X, y)
    plain = ordinal.predict_proba(X)
    pd.testing.assert_frame_equal(
        model.predict_proba(X), pd.DataFrame(plain, X.index, list(ordinal.classes_))
    )
    pd.testing.assert_series_equal(
        model.predict(X), pd.Series(ordinal.predict(X), X.index, name="prediction")
    )
    assert clone(model).fit(X, y).predict(X).index.equals(X.index)
    line = dt.BoxCox([dt.LS("a")]).set_output(predict="pandas").fit(X, z)
    assert line.predict_quantile(X, [0.1, 0.9]).columns.tolist() == [0.1, 0.9]
    assert line.predict_quantile(X, 0.5).equals(line.predict(X))
    assert line.predict_survival(X, [1.0, 2.0]).columns.tolist() == [1.0, 2.0]
    assert line.predict_survival(X, 1.0).index.equals(X.index)
    assert isinstance(
        dt.Lm().set_output(predict="pandas").fit(X.to_numpy(), z).predict(X.to_numpy()), np.ndarray
    )
    assert isinstance(model.set_output().predict(X), np.ndarray)
    with pytest.raises(InvalidInputError, match="predict must be one of 'default', 'pandas', got 'polars'"):
        model.set_output(predict="polars")
