"""Every kind of bad input has its own error, in one sentence: what was expected, what came, what to do."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError as SklearnNotFittedError

import deeptram as dt
from deeptram.errors import (
    DeeptramError,
    EventsWarning,
    InvalidInputError,
    InvalidTypeError,
    MissingMethodError,
    MixedColumnWarning,
    NotFittedError,
    TwoValuesWarning,
    UnknownNameError,
    UnsupportedError,
)

N = 30
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = RNG.integers(0, 3, size=N)
B = (Y > 0).astype(int)
T = RNG.exponential(size=N) + 0.1
FRAME = pd.DataFrame(X, columns=["a", "b"]).assign(s=np.where(np.arange(N) % 2, "u", "v"))


def spoil(values, by=np.nan):
    copy = np.array(values, dtype=float)
    copy.flat[3] = by
    return copy


def fitted():
    return dt.Polr().fit(X, Y)


def smooth():
    return dt.Colr(order=2).fit(X, T)


def by_formula():
    return dt.Polr([dt.LS("a + s")]).fit(FRAME, Y)


def stratified():
    return dt.Polr([dt.SI(strata="s"), dt.LS("a")]).fit(FRAME, Y)


# name: (call, error, text)
CASES = {
    # -- X ------------------------------------------------------------------------------------------
    "X of three axes": (
        lambda: dt.Polr().fit(np.zeros((N, 2, 2)), Y),
        InvalidInputError,
        r"Found array with dim 3, while dim <= 2 is required by Polr: X must be a table .* by name, {.image.: X}",
    ),
    "X of one axis": (
        lambda: dt.Polr().fit(X[:, 0], Y),
        InvalidInputError,
        r"Expected 2D array, got 1D array instead: X must be a table .* by X.reshape\(-1, 1\) if it is one column",
    ),
    "X missing": (
        lambda: dt.Polr().fit(None, Y),
        InvalidInputError,
        "Expected 2D array, got scalar array instead",
    ),
    "X without rows": (
        lambda: dt.Polr().fit(X[:0], Y[:0]),
        InvalidInputError,
        r"Found array with 0 sample\(s\) \(shape=\(0, 2\)\) while a minimum of 1 is required by Polr",
    ),
    "frame without rows": (lambda: dt.Polr().fit(FRAME[:0], Y[:0]), InvalidInputError, r"0 sample\(s\)"),
    "dict without entries": (lambda: dt.Polr().fit({}, Y), InvalidInputError, r"0 sample\(s\)"),
    "X without columns": (
        lambda: dt.Polr().fit(X[:, :0], Y),
        InvalidInputError,
        r"0 feature\(s\) \(shape=\(30, 0\)\)",
    ),
    "NaN in an array": (
        lambda: dt.Polr().fit(spoil(X), Y),
        InvalidInputError,
        "Input X contains NaN: 1 missing value in row 1; drop or fill these rows first",
    ),
    "NaN in a frame": (
        lambda: dt.Polr([dt.LS("a + b")]).fit(FRAME.assign(a=spoil(X[:, 0])), Y),
        InvalidInputError,
        "Input X contains NaN. Column 'a' has 1 missing value in row 3; drop or fill these rows first",
    ),
    "missing label in a factor": (
        lambda: dt.Polr([dt.LS("s")]).fit(FRAME.assign(s=[None, *FRAME["s"][1:]]), Y),
        InvalidInputError,
        "Column 's' has 1 missing value in row 0",
    ),
    "infinite X": (
        lambda: dt.Polr().fit(spoil(X, np.inf), Y),
        InvalidInputError,
        "Input X contains infinity .*: 1 infinite value in row 1; correct these rows first",
    ),
    "infinite X in a frame": (
        lambda: dt.Polr([dt.LS("a")]).fit(FRAME.assign(a=spoil(X[:, 0], -np.inf)), Y),
        InvalidInputError,
        "Column 'a' has 1 infinite value in row 3",
    ),
    "sparse X": (
        lambda: dt.Polr().fit(sparse.csr_matrix(X), Y),
        InvalidTypeError,
        r"X must be dense, but sparse data was passed; use X.toarray\(\)",
    ),
    "a sparse format that is a dict": (
        lambda: dt.Polr().fit(sparse.dok_array(X), Y),
        InvalidTypeError,
        "sparse data was passed",
    ),
    "complex X": (
        lambda: dt.Polr().fit(X.astype(complex), Y),
        InvalidInputError,
        "Complex data not supported",
    ),
    "text in an array": (
        lambda: dt.Polr().fit(np.array([["p", "q"]] * N), Y),
        InvalidInputError,
        "Convert your data to numeric values",
    ),
    "dates": (
        lambda: dt.Polr([dt.LS("d")]).fit(FRAME.assign(d=pd.date_range("2020", periods=N)), Y),
        InvalidTypeError,
        "column 'd' must hold numbers or strings, got datetime64",
    ),
    "entries of different length": (
        lambda: dt.Polr().fit({"a": X[:, 0], "b": X[:-1, 1]}, Y),
        InvalidInputError,
        r"a, b must have the same number of rows, .*\(a has 30, b has 29\)",
    ),
    # -- y ------------------------------------------------------------------------------------------
    "y missing": (
        lambda: dt.Colr().fit(X, None),
        InvalidInputError,
        r"requires y to be passed, but the target y is None: call fit\(X, y\)",
    ),
    "y of two columns": (
        lambda: dt.Polr().fit(X, np.zeros((N, 2))),
        InvalidInputError,
        r"y should be a 1d array, got an array of shape \(30, 2\) instead; pass one value per row",
    ),
    "NaN among classes": (
        lambda: dt.Polr().fit(X, spoil(Y)),
        InvalidInputError,
        "Input y contains NaN: 1 missing value in row 3; drop or fill these rows first",
    ),
    "NaN among numbers": (lambda: dt.Colr().fit(X, spoil(T)), InvalidInputError, "Input y contains NaN"),
    "infinite y": (
        lambda: dt.Colr().fit(X, spoil(T, np.inf)),
        InvalidInputError,
        "Input y contains infinity .* 1 infinite value in row 3",
    ),
    "text as numbers": (lambda: dt.Colr().fit(X, ["p"] * N), InvalidInputError, "y must hold numbers, got"),
    "one class": (
        lambda: dt.Polr().fit(X, np.zeros(N, dtype=int)),
        InvalidInputError,
        "y must contain at least two classes, got only one class, 0",
    ),
    "one class of positive weight": (
        lambda: dt.Polr().fit(X, Y, sample_weight=(Y == 1).astype(float)),
        InvalidInputError,
        "got only one class of positive weight, 1",
    ),
    "real numbers as classes": (
        lambda: dt.Polr().fit(X, T),
        InvalidInputError,
        r"Unknown label type: continuous.*for numbers use Colr or BoxCox \(outcome='continuous'\)",
    ),
    "three classes of a binary outcome": (
        lambda: dt.Logit().fit(X, Y),
        InvalidInputError,
        r"expected two classes, got 3 \(0, 1, 2\); use outcome='ordinal' or 'nominal'",
    ),
    "X and y of different length": (
        lambda: dt.Polr().fit(X, Y[:-1]),
        InvalidInputError,
        r"X, y must have the same number of rows, .*\(X has 30, y has 29\); pass one entry per observation",
    ),
    "X and Surv of different length": (
        lambda: dt.Coxph().fit(X, dt.Surv.right(T[:-1], B[:-1])),
        InvalidInputError,
        r"\(X has 30, y has 29\)",
    ),
    "negative counts": (
        lambda: dt.Cotram().fit(X, Y - 1),
        InvalidInputError,
        "counts must not be negative, got -1 in rows .*; correct these rows, or use outcome='continuous'",
    ),
    "counts that are not whole": (
        lambda: dt.Cotram().fit(X, T),
        InvalidInputError,
        "counts must be whole numbers",
    ),
    "lower above upper": (
        lambda: dt.Surv.interval([0.0, 2.0], [1.0, 1.0]),
        InvalidInputError,
        "lower must not exceed upper, got lower > upper in row 1; swap or correct the two ends",
    ),
    "time zero": (
        lambda: dt.Surv.right([0.0, 1.0], [1, 1]),
        InvalidInputError,
        "an event must have a time after 0, got an event at 0 in row 0; use Surv.interval, in which it is an event before some",
    ),
    "plain times that are not positive": (
        lambda: dt.Survreg().fit(X, T - 1),
        InvalidInputError,
        "survival times must be positive, got time <= 0 in rows",
    ),
    "events that are neither 0 nor 1": (
        lambda: dt.Surv.right([1.0, 1.0], [1, 2]),
        InvalidInputError,
        "event must be True/False or 1/0, got 2 in row 1",
    ),
    "entry after time": (
        lambda: dt.Surv.right([1.0, 1.0], [1, 1], entry=[0.0, 2.0]),
        InvalidInputError,
        "entry must be smaller than time, got entry >= time in row 1",
    ),
    "Surv for classes": (
        lambda: dt.Polr().fit(X, dt.Surv.right(T, B)),
        InvalidInputError,
        "a censored response needs outcome='survival' or 'continuous', got outcome='ordinal'; change it",
    ),
    "Surv for counts": (
        lambda: dt.Cotram().fit(X, dt.Surv.right(T, B)),
        InvalidInputError,
        "a censored response needs .* got outcome='count'",
    ),
    "negative numbers in log y": (
        lambda: dt.Colr(log_first=True).fit(X, T - 1),
        InvalidInputError,
        "a basis in log y needs positive outcomes, got -0.*; use log_first=False",
    ),
    # -- levels ---------------------------------------------------------------------------------------
    "a label that is no level": (
        lambda: dt.Polr(levels=[0, 1]).fit(X, Y),
        UnknownNameError,
        "every y must be one of the levels 0, 1, got 2 in rows .*; add it to levels or correct these rows",
    ),
    "a level twice": (
        lambda: dt.Polr(levels=[0, 1, 1, 2]).fit(X, Y),
        InvalidInputError,
        "levels must be distinct, got 1 twice",
    ),
    "one level": (
        lambda: dt.Polr(levels=[0]).fit(X, Y),
        InvalidInputError,
        "levels must name at least two classes, got 0",
    ),
    "levels as a string": (
        lambda: dt.Polr(levels="abc").fit(X, Y),
        InvalidInputError,
        "levels must be a sequence of labels, got 'abc'; pass a list of labels",
    ),
    "levels as a number": (
        lambda: dt.Polr(levels=3).fit(X, Y),
        InvalidInputError,
        "levels must be a sequence of labels, got 3; pass a list of labels",
    ),
    # -- names and settings -----------------------------------------------------------------------------
    "unknown latent": (
        lambda: dt.Polr(latent="logitt").fit(X, Y),
        UnknownNameError,
        "latent must be one of .* got 'logitt'",
    ),
    "unknown loss": (
        lambda: dt.Polr(loss="mse").fit(X, Y),
        UnknownNameError,
        "loss must be one of 'nll', 'rps', 'brier', 'crps', got 'mse'",
    ),
    "unknown outcome": (
        lambda: dt.Tram(outcome="ordinall").fit(X, Y),
        UnknownNameError,
        "outcome must be one of .* got 'ordinall'; did you mean 'ordinal'",
    ),
    "unknown basis": (
        lambda: dt.Tram(outcome="continuous", basis="splines").fit(X, T),
        UnknownNameError,
        "basis must be one of 'bernstein', 'linear', 'log-linear', got 'splines'",
    ),
    "a basis for classes": (
        lambda: dt.Tram(outcome="ordinal", basis="linear").fit(X, Y),
        UnsupportedError,
        "outcome='ordinal' has cutpoints, not a basis, got basis='linear'; leave it out",
    ),
    "unknown dist": (
        lambda: dt.Survreg(dist="weibul").fit(X, T),
        UnknownNameError,
        "dist must be one of .* got 'weibul'; did you mean 'weibull'",
    ),
    "order zero": (
        lambda: dt.Colr(order=0).fit(X, T),
        InvalidInputError,
        "order must be an integer of at least 1, got 0",
    ),
    "order that is not whole": (
        lambda: dt.Colr(order=2.5).fit(X, T),
        InvalidInputError,
        "at least 1, got 2.5",
    ),
    "support upside down": (
        lambda: dt.Colr(support=(1, 0)).fit(X, T),
        InvalidInputError,
        r"support must be finite with a < b, got \(1, 0\); use the range of the response",
    ),
    "support of three numbers": (
        lambda: dt.Colr(support=(1, 2, 3)).fit(X, T),
        InvalidInputError,
        r"support must be a pair of numbers \(a, b\), got \(1, 2, 3\)",
    ),
    "support of one number": (
        lambda: dt.Colr(support=3).fit(X, T),
        InvalidInputError,
        r"pair of numbers \(a, b\), got 3",
    ),
    "negative support in log y": (
        lambda: dt.Colr(support=(-1, 3), log_first=True).fit(X, T),
        InvalidInputError,
        "support must be positive when log_first=True",
    ),
    # -- terms --------------------------------------------------------------------------------------------
    "terms that are no terms": (
        lambda: dt.Polr(["a"]).fit(FRAME, Y),
        InvalidTypeError,
        r"terms must be SI, CI, LS, CS, Scale or Varying; got str: for example terms=\[dt.SI\(\), dt.LS",
    ),
    "terms as a formula": (lambda: dt.Polr("a + b").fit(FRAME, Y), InvalidTypeError, "got str: for example"),
    "terms as a number": (
        lambda: dt.Polr(3).fit(FRAME, Y),
        InvalidTypeError,
        "terms must be a list of SI, CI, LS, .*; got 3",
    ),
    "two linear shifts": (
        lambda: dt.Polr([dt.LS("a"), dt.LS("b")]).fit(FRAME, Y),
        InvalidInputError,
        "at most one LS term is allowed; got 2: put all columns into one term",
    ),
    "two intercepts": (
        lambda: dt.Polr([dt.SI(), dt.SI(strata="s")]).fit(FRAME, Y),
        InvalidInputError,
        r"at most one intercept \(SI or CI\) term is allowed; got 2",
    ),
    "LS of numbers": (
        lambda: dt.LS(3),
        InvalidTypeError,
        r"LS takes a formula or column names \(strings\); got \(3,\)",
    ),
    "an empty formula": (
        lambda: dt.Polr([dt.LS("")]).fit(FRAME, Y),
        InvalidInputError,
        "a linear term must name columns or be a formula, got ''",
    ),
    "unknown column": (
        lambda: dt.Polr([dt.LS("aa")]).fit(FRAME, Y),
        UnknownNameError,
        "column 'aa' is needed but missing from X, which has the columns 'a', 'b', 's'; did you mean 'a'",
    ),
    "unknown column in a formula": (
        lambda: dt.Polr([dt.LS("a * zz")]).fit(FRAME, Y),
        UnknownNameError,
        "column 'zz' is needed but missing from X",
    ),
    "unknown column in Scale": (
        lambda: dt.Polr([dt.Scale("zz")]).fit(FRAME, Y),
        UnknownNameError,
        "column 'zz' is needed",
    ),
    "unknown column in Varying": (
        lambda: dt.Polr([dt.Varying("zz")]).fit(FRAME, Y),
        UnknownNameError,
        "column 'zz' is",
    ),
    "unknown strata": (
        lambda: dt.Polr([dt.SI(strata="zz")]).fit(FRAME, Y),
        UnknownNameError,
        "column 'zz' is needed",
    ),
    "a name where columns have none": (
        lambda: dt.Polr([dt.LS("a")]).fit(X, Y),
        UnknownNameError,
        "column 'a' is needed but missing from X, which has the columns 'x0', 'x1'",
    ),
    "strata of real numbers": (
        lambda: dt.Polr([dt.SI(strata="a")]).fit(FRAME, Y),
        InvalidInputError,
        "strata column 'a' must hold categories, got real numbers such as .*; use the column in LS, or cut it",
    ),
    "missing stratum": (
        lambda: dt.Polr([dt.SI(strata="s")]).fit(FRAME.assign(s=[None, *FRAME["s"][1:]]), Y),
        InvalidInputError,
        "Input X contains NaN. Column 's' has 1 missing value in row 0",
    ),
    # -- weights ------------------------------------------------------------------------------------------
    "negative weights": (
        lambda: dt.Polr().fit(X, Y, sample_weight=-np.ones(N)),
        InvalidInputError,
        "sample_weight must not be negative, got negative weights in rows .*; use 0 to leave a row out",
    ),
    "weights of another length": (
        lambda: dt.Polr().fit(X, Y, sample_weight=np.ones(N - 1)),
        InvalidInputError,
        r"sample_weight must have one entry per row \(30\), got 29",
    ),
    "missing weights": (
        lambda: dt.Polr().fit(X, Y, sample_weight=spoil(np.ones(N))),
        InvalidInputError,
        "Input sample_weight contains NaN",
    ),
    "weights all zero": (
        lambda: dt.Polr().fit(X, Y, sample_weight=np.zeros(N)),
        InvalidInputError,
        "sample_weight must contain at least one non-zero number, got only zeros",
    ),
    "weights of two columns": (
        lambda: dt.Polr().fit(X, Y, sample_weight=np.ones((N, 2))),
        InvalidInputError,
        "sample_weight must be 1D array or scalar",
    ),
    "negative weights in score": (
        lambda: fitted().score(X, Y, -np.ones(N)),
        InvalidInputError,
        "must not be negative",
    ),
    # -- combinations without meaning ---------------------------------------------------------------------
    "crps of classes": (
        lambda: dt.Polr(loss="crps").fit(X, Y),
        UnsupportedError,
        "loss='crps' is for outcomes on the line",
    ),
    "rps of numbers": (
        lambda: dt.Colr(loss="rps").fit(X, T),
        UnsupportedError,
        "loss='rps' is for classes, got outcome='continuous'; use loss='crps'",
    ),
    "rps of a nominal outcome": (
        lambda: dt.Tram(outcome="nominal", loss="rps").fit(X, Y),
        UnsupportedError,
        "loss='rps' is not available for a nominal outcome without networks; use loss='nll'",
    ),
    "crps of censored times": (
        lambda: dt.Colr(loss="crps").fit(X, dt.Surv.right(T, B)),
        UnsupportedError,
        "loss='crps' needs exact outcomes, got censored ones; use loss='nll'",
    ),
    "rps with strata": (
        lambda: dt.Polr([dt.SI(strata="s")], loss="rps").fit(FRAME, Y),
        UnsupportedError,
        "loss='rps' is not available with strata or Varying terms; use loss='nll'",
    ),
    "another latent for a nominal outcome": (
        lambda: dt.Tram(outcome="nominal", latent="probit").fit(X, Y),
        UnsupportedError,
        "a nominal outcome needs latent='logistic', got 'normal'",
    ),
    "scale of a nominal outcome": (
        lambda: dt.Tram([dt.Scale("a")], outcome="nominal").fit(FRAME, Y),
        UnsupportedError,
        "strata, Scale and Varying need an ordered outcome; a nominal outcome takes LS, CI and CS terms",
    ),
    # -- a fitted model -----------------------------------------------------------------------------------
    "predict before fit": (
        lambda: dt.Polr().predict(X),
        NotFittedError,
        r"a fitted model is needed, but this Polr instance is not fitted yet; call fit\(X, y\) first",
    ),
    "probabilities before fit": (
        lambda: dt.Logit().predict_proba(X),
        NotFittedError,
        "this Logit instance is not fitted",
    ),
    "summary before fit": (
        lambda: dt.Coxph().summary(),
        NotFittedError,
        "this Coxph instance is not fitted yet",
    ),
    "confint before fit": (lambda: dt.Lm().confint(), NotFittedError, "this Lm instance is not fitted yet"),
    "contributions before fit": (
        lambda: dt.Lm().contributions(X),
        NotFittedError,
        "this Lm instance is not fitted yet",
    ),
    "probabilities of numbers": (
        lambda: smooth().predict_proba(X),
        MissingMethodError,
        r"predict_proba is for classes, got outcome='continuous': use predict_distribution\(X\)",
    ),
    "probabilities of times": (
        lambda: (
            dt.Coxph().fit(X, dt.Surv.right(np.arange(1.0, len(X) + 1), np.ones(len(X)))).predict_proba(X)
        ),
        MissingMethodError,
        "predict_proba is for classes, got outcome='survival': use",
    ),
    "another number of columns": (
        lambda: fitted().predict(X[:, :1]),
        InvalidInputError,
        "X has 1 features, but Polr is expecting 2 features as input",
    ),
    "NaN in new data": (
        lambda: fitted().predict(spoil(X)),
        InvalidInputError,
        "Input X contains NaN: 1 missing value",
    ),
    "a missing column in new data": (
        lambda: by_formula().predict(FRAME[["b", "s"]]),
        UnknownNameError,
        "column 'a' is needed but missing from X, which has the columns 'b', 's'",
    ),
    "two columns of one name": (
        lambda: dt.Lm().fit(pd.DataFrame(X).set_axis(["a"] * X.shape[1], axis=1), T),
        InvalidInputError,
        "X must have columns of different names, got 'a' more than once; rename or drop them",
    ),
    "an unseen level in new data": (
        lambda: by_formula().predict(FRAME.assign(s="w")),
        UnknownNameError,
        r"column 's' must hold levels seen in fitting \('u', 'v'\), got 'w' in rows",
    ),
    "an unseen stratum in new data": (
        lambda: stratified().predict(FRAME.assign(s="w")),
        UnknownNameError,
        r"column 's' must hold levels seen in fitting \('u', 'v'\), got 'w' in rows .*; drop these rows or fit",
    ),
    "an unseen class in score": (
        lambda: fitted().score(X, Y + 1),
        UnknownNameError,
        "one of the levels 0, 1, 2, got 3",
    ),
    "score with too few outcomes": (
        lambda: fitted().score(X, Y[:-1]),
        InvalidInputError,
        "one value per row, got 29",
    ),
    "loglik with too few outcomes": (
        lambda: smooth().loglik(X, T[:-1]),
        InvalidInputError,
        r"got shape \(29,\)",
    ),
    "a quantile above one": (
        lambda: smooth().predict_quantile(X, 1.5),
        InvalidInputError,
        "q must be a number or a vector of numbers between 0 and 1, got 1.5; pass probabilities",
    ),
    "times that are text": (
        lambda: smooth().predict_survival(X, "late"),
        InvalidInputError,
        "times must hold numbers",
    ),
    "times that are missing": (
        lambda: smooth().predict_survival(X, [1.0, np.nan]),
        InvalidInputError,
        "Input times contains NaN",
    ),
    "a level in percent": (
        lambda: fitted().summary(level=95),
        InvalidInputError,
        "level must be a number strictly between 0 and 1, got 95; for 95 percent write 0.95",
    ),
    "an unknown kind of interval": (
        lambda: fitted().confint(method="bootstrap"),
        UnknownNameError,
        "method must be one of 'wald', 'profile', got 'bootstrap'",
    ),
    "profiles without the data": (
        lambda: pickle.loads(pickle.dumps(fitted())).confint(method="profile"),
        UnsupportedError,
        "a profile interval needs the training data, which a loaded model does not hold; pass them as X=, y=",
    ),
    "profiles of a score": (
        lambda: dt.Polr(loss="rps").fit(X, Y).confint(method="profile"),
        UnsupportedError,
        "a profile interval needs an ordered outcome and exact maximum likelihood, got loss='rps'",
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_bad_input_is_refused_with_a_sentence(name):
    call, kind, text = CASES[name]
    with pytest.raises(kind, match=text) as caught:
        call()
    assert isinstance(caught.value, DeeptramError)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize("name", [n for n, (_, kind, _) in CASES.items() if kind is not InvalidTypeError])
def test_errors_are_also_the_builtin_ones(name):
    call, kind, _ = CASES[name]
    builtin = SklearnNotFittedError if kind is NotFittedError else ValueError
    with pytest.raises(builtin):
        call()


def test_a_failed_fit_leaves_no_half_fitted_model():
    model = dt.Polr()
    with pytest.raises(InvalidInputError):
        model.fit(X, Y[:-1])
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("spoil", ["loss", "rows", "classes", "columns"])
def test_a_failed_refit_leaves_the_fitted_model_as_it_was(spoil):
    model = fitted()
    before, expected = dict(vars(model)), model.predict_proba(X)
    if spoil == "loss":
        model.set_params(loss="crps")
    y = {"rows": Y[:-1], "classes": np.full_like(Y, Y[0])}.get(spoil, Y)
    x = np.full((N, 5), "text") if spoil == "columns" else X
    with pytest.raises((UnsupportedError, InvalidInputError)):
        model.fit(x, y)
    after = dict(vars(model))
    after["loss"] = before["loss"]
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.predict_proba(X), expected)


def test_inputs_are_left_alone():
    x, y, w = X.copy(), Y.copy(), np.linspace(0.0, 1.0, N)
    weights = w.copy()
    frame = FRAME.copy()
    dt.Polr().fit(x, y, sample_weight=w).predict_proba(x)
    dt.Polr([dt.SI(strata="s"), dt.LS("a * b")]).fit(frame, y).predict_proba(frame)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(w, weights)
    pd.testing.assert_frame_equal(frame, FRAME)


@pytest.mark.parametrize("kind", ["frame", "dict", "text", "survival", "network", "strata", "scale"])
def test_the_outcome_among_the_predictors_is_refused(kind):
    rng = np.random.default_rng(0)
    a, z = rng.normal(size=(2, 30))
    label = np.where(z > 0, "yes", "no")
    net = dt.CS(dt.networks.MLP((2,)), "leak")
    calls = {
        "frame": (dt.Lm([dt.LS("a + bs(leak, df=4)")]), pd.DataFrame({"a": a, "leak": z}), z, "leak"),
        "dict": (dt.Logit(), {"a": a, "leak": (z > 0).astype(float)}, z > 0, "leak"),
        "text": (
            dt.Logit(),
            pd.DataFrame({"a": a, "leak": label}, index=range(5, 35)),
            pd.Series(label, index=range(5, 35)),
            "leak",
        ),
        "survival": (
            dt.Coxph(),
            pd.DataFrame({"a": a, "leak": np.exp(z)}),
            dt.Surv.right(np.exp(z), a > 0),
            "leak",
        ),
        "network": (dt.Lm([net, dt.LS("a")]), pd.DataFrame({"a": a, "leak": z}), z, "leak"),
        "strata": (
            dt.Logit([dt.SI("leak"), dt.LS("a")]),
            pd.DataFrame({"a": a, "leak": label}),
            label,
            "leak",
        ),
        "scale": (dt.Lm([dt.LS("a"), dt.Scale("leak")]), pd.DataFrame({"a": a, "leak": z}), z, "leak"),
    }
    model, X, y, name = calls[kind]
    with pytest.raises(
        InvalidInputError, match=f"must not be among the predictors, got column '{name}' with"
    ):
        model.fit(X, y)


def test_a_column_that_no_term_uses_may_hold_the_outcome():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=30), "leak": rng.normal(size=30)})
    dt.Lm([dt.LS("a")]).fit(frame, frame["leak"])
    dt.Lm().fit(frame, frame["leak"] + (np.arange(30) == 29))


@pytest.mark.parametrize("terms", [None, [dt.LS("m + log(b)")], [dt.CS(dt.networks.MLP(hidden=(2,)), "m")]])
def test_text_among_numbers_is_no_category(terms):
    cells = pd.Series(X[:, 0]).astype(str)
    cells[17] = "12,5"
    frame = pd.DataFrame({"m": cells, "b": T})
    said = (
        r"column 'm' must hold numbers alone, or levels, got 1 text among 29 numbers, '12,5' in row 17; corr"
    )
    with pytest.raises(InvalidInputError, match=said):
        dt.Polr(terms).fit(frame, Y)
    with pytest.raises(InvalidInputError, match=r"got both, 'n/a' in row 17 among numbers; correct or leave"):
        dt.Polr(terms).fit(frame.assign(m=pd.Series(X[:, 0]).astype(object).where(cells != "12,5", "n/a")), Y)


def test_levels_that_look_like_numbers_stay_levels():
    frame = pd.DataFrame({"children": np.array(["0", "1", "2", "3+"])[np.arange(N) % 4]})
    with pytest.warns(
        MixedColumnWarning, match=r"got 7 text among 23 numbers, '3\+' in rows 3, 7, .*LS\('C\("
    ):
        model = dt.Polr().fit(frame, Y)
    assert list(model.coef_.index) == ["children1", "children2", "children3+"]
    said = dt.Polr([dt.LS("C(children)")]).fit(frame, Y)  # no warning: warnings are errors here
    kept = dt.Polr().fit(frame.astype("category"), Y)
    np.testing.assert_allclose(said.coef_, model.coef_)
    np.testing.assert_allclose(kept.coef_, model.coef_)


def test_numbers_stored_as_text_are_said_to_be_levels():
    frame = pd.DataFrame({"m": pd.Series(np.arange(N) % 12).astype(str)})
    with pytest.warns(
        MixedColumnWarning, match=r"'m' holds numbers stored as text, which makes 12 levels; conv"
    ):
        assert len(dt.Polr().fit(frame, np.arange(N) // 12 % 2).coef_) == 11
    dt.Polr().fit(pd.DataFrame({"m": (np.arange(N) % 5).astype(str)}), Y)  # a few may be levels


@pytest.mark.parametrize("model", [dt.Coxph(), dt.Survreg(), dt.Tram(outcome="survival")])
def test_times_without_events_are_said_to_be_events(model):
    name = type(model).__name__
    with pytest.warns(EventsWarning, match=f"{name} expects times with events, got numbers.*dt.Surv.right"):
        model.fit(X, T)
    model.fit(X, dt.Surv.right(T, np.ones(N)))


@pytest.mark.parametrize("model", [dt.Colr(), dt.BoxCox(), dt.Lm(), dt.Tram(outcome="continuous")])
def test_two_values_of_a_continuous_outcome_are_said(model):
    name, binary = type(model).__name__, np.arange(N) // 12 % 2
    message = f"{name} is a model of continuous numbers, got the two values {{}} and {{}} only; .* use Logit"
    for y, ends in ((binary, (0, 1)), (binary > 0, (0, 1)), (3.5 * binary - 2, (-2, 1.5))):
        with pytest.warns(TwoValuesWarning, match=message.format(*ends)):
            model.fit(X, y)
    model.fit(X, np.arange(N) % 6 + 3)  # grades may be read as numbers
