"""Models with networks as scikit-learn estimators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from torch import nn

import deeptram as dt
from deep_models import FAST, MODELS, NET, TERMS, make, table
from deeptram.datasets import simulate
from deeptram.errors import (
    CollinearityWarning,
    ConvergenceWarning,
    InvalidInputError,
    InvalidTypeError,
    NonFiniteLossError,
    UnknownNameError,
)
from deeptram.estimators.deep import held_out_rows
from deeptram.estimators.exact import FittedRows, row_loglik, row_loss, shift_covariance
from deeptram.model import Encoded
from deeptram.predictive import RowParameters

every_model = pytest.mark.parametrize("name", MODELS)


@every_model
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
def test_every_outcome_fits_and_predicts(name, terms):
    X, _ = table()
    model, y = make(name, TERMS[terms])
    assert model.fit(X, y) is model
    assert np.isfinite(model.loglik_)
    assert model.loglik_ == pytest.approx(model.loglik(X, y), rel=1e-12)
    assert model.score(X, y) == pytest.approx(model.loglik_ / len(X))
    assert model.history_["epoch"].tolist() == [1, 2, 3]
    assert (model.n_iter_, model.converged_) == (3, True)
    n_coef = (2 if name == "nominal" else 1) * (terms != "CI")
    assert len(model.coef_) == n_coef
    assert np.isfinite(model.coef_).all()
    assert hasattr(model, "theta_") == terms.startswith("SI")
    assert not hasattr(model, "vcov_")
    distribution = model.predict_distribution(X)
    assert len(distribution) == len(X)
    assert len(model.predict(X)) == len(X)
    if name in ("Polr", "Logit", "nominal"):
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-12)
        assert model.classes_.tolist() == sorted(set(y.tolist()))


@every_model
def test_contributions_add_up_to_h(name):
    X, _ = table()
    model, y = make(name, TERMS["SI-CS-LS"])
    model.fit(X, y)
    if name == "nominal":
        parts = model.contributions(X)
        assert parts.columns.tolist() == ["v:a", "w:a", "v:CS('b', 'c')", "w:CS('b', 'c')"]
        logits = np.log(model.predict_proba(X))
        rest = logits[:, 1] - logits[:, 0] - parts["v:a"] - parts["v:CS('b', 'c')"]
        np.testing.assert_allclose(rest, rest.iloc[0], atol=1e-6)
        return
    at = {"Logit": False, "Cotram": 2}.get(name, "u" if name.startswith("Polr") else 1.5)
    parts = model.contributions(X, at)
    h = model.predict_distribution(X).trafo(at)
    np.testing.assert_allclose(parts.sum(axis=1), h, atol=1e-10)
    assert parts.columns.tolist() == ["intercept", "a", "CS('b', 'c')"]
    np.testing.assert_allclose(parts["a"], -X["a"] * model.coef_["a"])


def test_nominal_contributions_have_no_h():
    X, _ = table()
    model, y = make("nominal", TERMS["CI-LS"])
    with pytest.raises(dt.errors.UnsupportedError, match="has logits, not one h"):
        model.fit(X, y).contributions(X, "u")


@every_model
def test_shift_covariance_is_that_of_the_exact_fit_where_there_is_no_network(name):
    X, _ = table()
    kind, options, y = MODELS[name]
    if issubclass(kind, (dt.Colr, dt.BoxCox, dt.Coxph, dt.Lehmann, dt.Cotram)):
        options = {**options, "order": 2}  # few enough for no constraint to be active
    model = kind([dt.LS("a + b + c")], **options)
    model.fit(X, y)
    _, matrices, encoded, _ = clone(model).prepare(X, y, None)
    parameters = model.model_.row_parameters(X, matrices).numpy()
    fitted = FittedRows(model.outcome_, model.latent_, parameters, matrices, encoded)
    got = shift_covariance(fitted, 1, np.ones(3, dtype=bool))
    assert name == "nominal" or not model.certificate_.active
    want = model.vcov_.to_numpy()[-len(got) :, -len(got) :]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-10)


def test_shift_covariance_with_strata_scale_weights_and_aliased_columns():
    X, z = table(400)
    X = X.assign(s=np.where(X["c"] > 0, "p", "q"), d=2.0 * X["a"])
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X))
    model = dt.Polr([dt.SI("s"), dt.LS("a", "b")]).fit(X, np.digitize(z, [-1, 1]), sample_weight=weights)
    _, matrices, encoded, _ = clone(model).prepare(X, np.digitize(z, [-1, 1]), weights)
    parameters = model.model_.row_parameters(X, matrices).numpy()
    fitted = FittedRows(model.outcome_, model.latent_, parameters, matrices, encoded, weights)
    got = shift_covariance(fitted, 2, np.ones(2, dtype=bool))
    np.testing.assert_allclose(got, model.vcov_.to_numpy()[-2:, -2:], rtol=1e-8)
    only_first = shift_covariance(fitted, 2, np.array([True, False]))
    assert np.isnan(only_first[1]).all()
    assert np.isfinite(only_first[0, 0])
    nothing = shift_covariance(fitted, 2, np.zeros(2, dtype=bool))
    assert np.isnan(nothing).all()


@pytest.mark.parametrize("scale", [dt.Scale("b"), dt.Scale(NET, "b")], ids=["formula", "network"])
def test_shift_covariance_with_a_scale_term_against_finite_differences(scale):
    X, z = table(300)
    model = dt.BoxCox([dt.LS("a"), scale, dt.CS(NET, "c")], training=FAST, random_state=2, order=3)
    model.fit(X, z)
    _, matrices, encoded, _ = clone(model).prepare(X, z, None)
    base = model.model_.row_parameters(X, matrices).numpy()

    def minus_loglik(point):
        theta = base.theta + point[None, :-1]
        shift = base.shift + matrices.x[:, 0] * point[-1]
        changed = type(base)(theta, shift, base.log_scale)
        return -float(row_loglik(model.outcome_, model.latent_, changed, encoded).sum())

    size, step = 5, 1e-4
    hessian = np.empty((size, size))
    unit = np.eye(size) * step
    for i in range(size):
        for j in range(size):
            signs = [(s, t, minus_loglik(s * unit[i] + t * unit[j])) for s in (1, -1) for t in (1, -1)]
            hessian[i, j] = sum(s * t * value for s, t, value in signs) / (4 * step**2)
    assert model.shift_vcov_.to_numpy()[0, 0] == pytest.approx(np.linalg.inv(hessian)[-1, -1], rel=1e-4)


def test_shift_covariance_of_a_complex_intercept_against_finite_differences():
    X, z = table(200)
    y = np.digitize(z, [-1, 0, 1])
    model = dt.Polr([dt.CI(NET, "b", "c"), dt.LS("a")], training=FAST, random_state=2).fit(X, y)
    _, matrices, encoded, _ = clone(model).prepare(X, y, None)
    base = model.model_.row_parameters(X, matrices).numpy()

    def minus_loglik(constant, slope):
        shift = base.shift + matrices.x[:, 0] * slope - constant
        changed = type(base)(base.theta, shift, None, base.log_increments)
        return -float(row_loglik(model.outcome_, model.latent_, changed, encoded).sum())

    step = 1e-3
    grid = np.array([[minus_loglik(i * step, j * step) for j in (-1, 0, 1)] for i in (-1, 0, 1)])
    second = [grid[0, 1] - 2 * grid[1, 1] + grid[2, 1], grid[1, 0] - 2 * grid[1, 1] + grid[1, 2]]
    mixed = (grid[2, 2] - grid[2, 0] - grid[0, 2] + grid[0, 0]) / 4
    hessian = np.array([[second[0], mixed], [mixed, second[1]]]) / step**2
    assert model.shift_vcov_.iloc[0, 0] == pytest.approx(np.linalg.inv(hessian)[1, 1], rel=1e-4)


@pytest.mark.parametrize("intercept", ["SI", "CI"])
def test_sandwich_beside_a_network_is_that_of_its_rows(intercept):
    """Sum of outer products of the rows' own gradients, each by finite differences of the public score."""
    X, z = table(150)
    y = np.digitize(z, [-1, 0, 1])
    terms = {"SI": [dt.CS(NET, "b"), dt.LS("a")], "CI": [dt.CI(NET, "b"), dt.LS("a")]}[intercept]
    model = dt.Polr(terms, loss="rps", training=FAST, random_state=2).fit(X, y)
    h, a = model.predict_distribution(X).trafo(), X["a"].to_numpy()[:, None]
    free = 3 if intercept == "SI" else 1

    def scores_at(point):
        moved = h + (point[:free] if free == 3 else point[0]) - a * point[free]
        return dt.scores.rps(y, dt.Predictive.from_trafo(moved), reduction="none")

    step, size = 1e-4, free + 1
    unit = step * np.eye(size)
    gradients = np.stack([(scores_at(e) - scores_at(-e)) / (2 * step) for e in unit], axis=1)
    pairs = [
        [scores_at(e + f) - scores_at(e - f) - scores_at(f - e) + scores_at(-e - f) for f in unit]
        for e in unit
    ]
    inverse = np.linalg.inv(np.array(pairs).sum(axis=2) / (4 * step**2))
    expected = (inverse @ gradients.T @ gradients @ inverse)[-1, -1]
    assert model.shift_vcov_.iloc[0, 0] == pytest.approx(expected, rel=1e-3)


def test_a_network_that_leaves_no_room_has_no_covariance():
    X, z = table(40)
    model = dt.Polr([dt.CI(NET, "b", "c"), dt.LS("a")], training=FAST, random_state=2)
    _, matrices, encoded, _ = model.prepare(X, np.digitize(z, [-1, 0, 1]), None)
    theta = np.tile([-800.0, 1e300, np.inf], (40, 1))
    parameters = RowParameters(theta, np.zeros(40), None, np.full((40, 2), 0.0))
    fitted = FittedRows(model.outcome_, model.latent_, parameters, matrices, encoded)
    assert np.isnan(shift_covariance(fitted, None, np.ones(1, dtype=bool))).all()


def test_loglik_needs_an_encoding_of_its_own_kind():
    model, y = make("Polr", [dt.LS("a")])
    X, _ = table()
    model.fit(X, y)
    _, matrices, _, _ = clone(model).prepare(X, y, None)
    arguments = (model.outcome_, model.latent_, model.model_.row_parameters(X, matrices).numpy(), Encoded())
    with pytest.raises(InvalidTypeError, match="needs outcomes encoded as such"):
        row_loglik(*arguments)
    with pytest.raises(InvalidTypeError, match="loss='rps' needs encoded classes, got Encoded"):
        row_loss(*arguments, "rps")


# -- inputs ----------------------------------------------------------------------------------------


def test_frame_array_and_dict_give_the_same_model():
    X, z = table()
    terms = {
        "frame": (X, [dt.CS(NET, "b", "c"), dt.LS("a")]),
        "dict": ({name: X[name].to_numpy() for name in X}, [dt.CS(NET, "b", "c"), dt.LS("a")]),
        "array": (X.to_numpy(), [dt.CS(NET, "x1", "x2"), dt.LS("x0")]),
    }
    fits = {
        name: dt.Colr(t, training=FAST, random_state=3).fit(data, z).predict_quantile(data, 0.3)
        for name, (data, t) in terms.items()
    }
    np.testing.assert_array_equal(fits["frame"], fits["dict"])
    np.testing.assert_array_equal(fits["frame"], fits["array"])


def test_images_and_a_table():
    data = simulate("ordinal", n=90, seed=2)
    net = dt.networks.CNN(channels=(4,), dense=(4,))
    model = dt.Polr([dt.CI(net, "image"), dt.LS("x_1")], training=FAST, random_state=1)
    model.fit(data.X, data.y, validation=0.2)
    assert model.history_["validation_loss"].notna().all()
    assert model.best_epoch_ == 1 + model.history_["validation_loss"].idxmin()
    assert model.predict_proba({k: data.X[k][:5] for k in data.X}).shape == (5, 5)


def test_same_seed_same_model_and_clone_forgets_it():
    X, z = table()
    model = dt.Colr(TERMS["CI-LS"], training=FAST, random_state=5)
    first = model.fit(X, z).predict_quantile(X, 0.5)
    again = clone(model).fit(X, z)
    np.testing.assert_array_equal(first, again.predict_quantile(X, 0.5))
    other = clone(model).set_params(random_state=6).fit(X, z)
    assert np.abs(first - other.predict_quantile(X, 0.5)).max() > 1e-4
    assert not hasattr(clone(model), "model_")


def test_cross_validation_of_a_deep_model():
    X, z = table()
    scores = cross_val_score(dt.Colr(TERMS["SI-CS-LS"], training=FAST, random_state=1), X, z, cv=2)
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()


def test_weight_zero_rows_do_not_count_and_weights_repeat_rows():
    X, z = table()
    weights = np.ones(len(X))
    weights[:30] = 0
    model = dt.Colr(TERMS["SI-CS-LS"], training=FAST, random_state=1, support=(-6, 6))
    model.fit(X, z, sample_weight=weights)
    assert model.loglik_ == pytest.approx(model.loglik(X[30:], z[30:]))
    double = clone(model).fit(X, z, sample_weight=np.full(len(X), 2.0))
    single = clone(model).fit(X, z)
    assert double.loglik_ == pytest.approx(2 * single.loglik_, rel=1e-6)
    np.testing.assert_allclose(double.shift_vcov_ * 2, single.shift_vcov_, rtol=1e-5)


def test_refitting_without_networks_and_back_leaves_nothing_behind():
    X, z = table()
    model = dt.Colr([dt.LS("a")]).fit(X, z)
    assert hasattr(model, "vcov_")
    model.set_params(terms=TERMS["CI-LS"], training=FAST).fit(X, z)
    assert not hasattr(model, "vcov_")
    assert not hasattr(model, "theta_")
    np.testing.assert_allclose(model.summary()["se"], np.sqrt(np.diag(model.shift_vcov_)))
    with pytest.raises(dt.errors.UnsupportedError, match="a profile interval needs an ordered outcome"):
        model.confint(method="profile")


# -- quality of the optimum ------------------------------------------------------------------------


def test_a_linear_network_reaches_the_exact_optimum():
    X, z = table(400, seed=4)
    y = np.digitize(z, [-2, -1, 0, 1])
    exact = dt.Polr([dt.LS("a", "b", "c")]).fit(X, y)
    linear = dt.networks.MLP(hidden=())
    training = dt.Training(
        epochs=300, batch_size=400, learning_rate=0.05, schedule="cosine", warm_start=False
    )
    deep = dt.Polr([dt.CS(linear, "b", "c"), dt.LS("a")], training=training, random_state=1).fit(X, y)
    assert deep.loglik_ / len(X) == pytest.approx(exact.loglik_ / len(X), abs=1e-3)
    assert deep.coef_["a"] == pytest.approx(exact.coef_["a"], abs=0.02)


# -- validation ------------------------------------------------------------------------------------


def test_validation_share_and_validation_data():
    X, z = table()
    model = dt.Colr(TERMS["SI-CS-LS"], training=FAST, random_state=1, support=(-6, 6))
    by_share = clone(model).fit(X, z, validation=0.25)
    by_setting = clone(model).set_params(training=FAST.replace(validation=0.25)).fit(X, z)
    pd.testing.assert_frame_equal(
        by_share.history_.drop(columns="seconds"), by_setting.history_.drop(columns="seconds")
    )
    by_data = clone(model).fit(X[:90], z[:90], validation=(X[90:], z[90:]))
    last = by_data.history_["validation_loss"].min()
    assert -by_data.score(X[90:], z[90:]) == pytest.approx(last, rel=1e-5)


def test_held_out_rows_are_a_seeded_sorted_sample():
    used = np.array([3, 5, 8, 9, 12])
    rows = held_out_rows(used, 0.4, 1)
    assert len(rows) == 2
    assert set(rows) <= set(used)
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, held_out_rows(used, 0.4, 1))
    with pytest.raises(InvalidInputError, match=r"validation=0\.9 must leave rows to train on, got 2 row"):
        held_out_rows(np.arange(2), 0.9, 1)


@pytest.mark.parametrize(
    ("validation", "kind", "match"),
    [
        ("a fifth", InvalidTypeError, r"must be a share between 0 and 1 or a pair \(X_val, y_val\), got str"),
        (True, InvalidTypeError, "got bool"),
        (1.5, InvalidInputError, "strictly between 0 and 1, got 1.5"),
        ((np.zeros((2, 3)), ["u", "zz"]), UnknownNameError, "validation data: every y must be one of .*'zz'"),
        ((pd.DataFrame({"a": [1.0]}), ["u"]), InvalidInputError, "'b' is needed but missing"),
        ((table()[0][:4], ["u"]), InvalidInputError, "X_val has 4, y_val has 1"),
    ],
    ids=["text", "bool", "too-large", "unseen-level", "missing-column", "lengths"],
)
def test_bad_validation(validation, kind, match):
    X, _ = table()
    model, y = make("Polr", TERMS["SI-CS-LS"])
    if isinstance(validation, tuple) and isinstance(validation[0], np.ndarray):
        validation = (X[:2], validation[1])
    with pytest.raises(kind, match=match):
        model.fit(X, y, validation=validation)


def test_training_must_be_a_training():
    X, z = table()
    with pytest.raises(InvalidTypeError, match=r"training must be a dt\.Training, got dict"):
        dt.Colr(TERMS["CI"], training={"epochs": 3}).fit(X, z)


# -- bad data, one sentence each -------------------------------------------------------------------


def _image_case(**changes):
    data = simulate("ordinal", n=40, seed=1)
    X = {**data.X, **changes}
    net = dt.networks.CNN(channels=(4,), dense=())
    return dt.Polr([dt.CI(net, "image"), dt.LS("x_1")], training=FAST), X, data.y


def test_image_count_must_equal_the_rows():
    model, X, y = _image_case(image=np.zeros((39, 8, 8)))
    with pytest.raises(InvalidInputError, match="same number of rows"):
        model.fit(X, y)


def test_channel_number_must_be_that_of_the_fit():
    model, X, y = _image_case()
    model.fit(X, y)
    with pytest.raises(InvalidInputError, match=r"\(1, 8, 8\) as in fit, got \(3, 8, 8\)"):
        model.predict({**X, "image": np.zeros((40, 8, 8, 3))})
    with pytest.raises(InvalidInputError, match=r"C in \{1, 3, 4\}"):
        model.fit({**X, "image": np.zeros((40, 8, 8, 2))}, y)


def test_pixels_must_be_finite():
    broken = np.zeros((40, 8, 8))
    broken[7, 0, 0] = np.nan
    model, X, y = _image_case(image=broken)
    with pytest.raises(InvalidInputError, match=r"finite pixels.*rows 7"):
        model.fit(X, y)


class WrongSize(nn.Module):
    """Ignores how many outputs it is asked for."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Linear(in_shape[0], 7)

    def forward(self, x):
        return self.layer(x)


def test_network_must_have_the_right_output_size():
    X, z = table()
    with pytest.raises(InvalidInputError, match=r"must return 1 value\(s\) per row.*got \(2, 7\)"):
        dt.Colr([dt.CS(WrongSize, "a")], training=FAST).fit(X, z)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_must_be_there():
    X, z = table()
    with pytest.raises(dt.errors.UnsupportedError, match="needs a GPU that torch can use, got 0"):
        dt.Colr(TERMS["CI"], training=FAST.replace(device="cuda")).fit(X, z)


def test_batches_of_one_class_are_fine():
    X, z = table()
    y = (z > np.sort(z)[-3]).astype(int)
    model = dt.Logit(TERMS["SI-CS-LS"], training=FAST.replace(batch_size=8), random_state=1).fit(X, y)
    assert np.isfinite(model.loglik_)


class Exploding(nn.Module):
    """Becomes infinite once its weight has moved far enough."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(out_features))
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return x[:, :1] * self.weight + (torch.inf if self.training and self.calls > 6 else 0.0)


def test_a_non_finite_loss_keeps_the_best_epoch():
    X, z = table()
    model = dt.Colr([dt.CS(Exploding, "a"), dt.LS("b")], training=FAST.replace(epochs=9), random_state=1)
    with pytest.raises(NonFiniteLossError, match="training loss must stay finite"):
        model.fit(X, z)
    assert model.best_epoch_ >= 1
    assert np.isfinite(model.loglik_)
    assert np.isfinite(model.coef_).all()


def test_a_failed_refit_leaves_a_fitted_deep_model_as_it_was():
    X, z = table()
    model = dt.Colr(
        [dt.CS(dt.networks.MLP(hidden=(4,)), "a"), dt.LS("b")], training=FAST, random_state=1
    ).fit(X, z)
    expected = model.predict(X)
    model.set_params(terms=[dt.CS(Exploding, "a"), dt.LS("b")], training=FAST.replace(epochs=9))
    with pytest.raises(NonFiniteLossError):
        model.fit(X, z)
    np.testing.assert_array_equal(model.predict(X), expected)


def test_a_refit_without_networks_forgets_the_history():
    X, z = table()
    model = dt.Colr(
        [dt.CS(dt.networks.MLP(hidden=(4,)), "a"), dt.LS("b")], training=FAST, random_state=1
    ).fit(X, z)
    model.set_params(terms=[dt.LS("b")]).fit(X, z)
    assert not hasattr(model, "history_")
    assert np.isfinite(model.vcov_.to_numpy()).all()


class Interrupting(nn.Linear):
    passes = 0

    def forward(self, x):
        self.passes += self.training
        if self.training and self.passes == 6:
            raise KeyboardInterrupt
        return super().forward(x)


def test_an_interruption_keeps_the_best_state_and_says_so():
    X, z = table()
    terms = [dt.CS(lambda shape, out: Interrupting(shape[0], out), "b"), dt.LS("a")]
    model = dt.Logit(terms, training=FAST.replace(epochs=9), random_state=1)
    message = "training was interrupted after 2 of 9 epochs; the state of epoch 2 is kept: fit again"
    with pytest.warns(ConvergenceWarning, match=message):
        model.fit(X, z > 0)
    assert not model.converged_
    assert len(model.history_) == 2


def test_collinear_columns_are_named():
    X, z = table()
    model = dt.Logit([dt.CS(NET, "b"), dt.LS("a", "twice")], training=FAST, random_state=1)
    with pytest.warns(CollinearityWarning, match="columns twice are constant or a linear combination"):
        model.fit(X.assign(twice=2 * X.a), z > 0)
    assert np.isnan(model.coef_["twice"])
