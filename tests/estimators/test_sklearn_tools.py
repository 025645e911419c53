"""Tools of scikit-learn that look for ``predict_proba``: with every discrete preset and with ensembles."""

from __future__ import annotations

import inspect
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import PrecisionRecallDisplay, RocCurveDisplay, average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV, cross_val_score
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

import deeptram as dt
from deeptram.errors import MissingMethodError, UnsupportedError

NETWORK = [dt.CS(dt.networks.MLP((4,)), "x0", "x1"), dt.LS("x2")]
TRAINING = dt.Training(epochs=3, progress=False)
MODELS = {
    "Logit": dt.Logit(),
    "Polr": dt.Polr(),
    "binary": dt.Tram(outcome="binary", latent="probit"),
    "ordinal": dt.Tram(outcome="ordinal"),
    "nominal": dt.Tram(outcome="nominal"),
    "deep": dt.Logit(NETWORK, training=TRAINING, random_state=1),
    "Ensemble": dt.Ensemble(dt.Logit(NETWORK, training=TRAINING), 2, random_state=1),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(90, 3))
    return x, (x @ [1.0, -0.5, 0.5] + rng.logistic(size=90) > 0).astype(int)


@each_model
def test_predict_proba_is_a_method(model: Any) -> None:
    assert hasattr(model, "predict_proba")
    assert inspect.ismethod(model.predict_proba)
    assert callable(type(model).predict_proba)
    assert "class probabilities" in str(inspect.getdoc(model.predict_proba))


@each_model
def test_scorers_that_need_probabilities(model: Any, data: Any) -> None:
    x, y = data
    fitted = clone(model).fit(x, y)
    for name, metric in (("roc_auc", roc_auc_score), ("average_precision", average_precision_score)):
        scores = cross_val_score(model, x, y, cv=2, scoring=name, error_score="raise")
        assert ((scores > 0.2) & (scores <= 1)).all()
        scorer_value = cross_val_score(
            fitted, x, y, cv=[(np.arange(90), np.arange(90))], scoring=name, error_score="raise"
        )
        assert scorer_value[0] == pytest.approx(metric(y, fitted.predict_proba(x)[:, 1]), rel=1e-12)


def test_scoring_of_several_classes(data: Any) -> None:
    x, y = data
    several = y + np.random.default_rng(4).integers(0, 2, size=len(y))
    for model in (dt.Polr(), dt.Tram(outcome="nominal")):
        search = GridSearchCV(model, {"loss": ["nll"]}, scoring="roc_auc_ovr", cv=3, error_score="raise")
        assert 0.5 < search.fit(x, several).best_score_ <= 1


@each_model
def test_calibration_and_thresholds(model: Any, data: Any) -> None:
    x, y = data
    calibrated = CalibratedClassifierCV(model, cv=2).fit(x, y)
    np.testing.assert_allclose(calibrated.predict_proba(x).sum(axis=1), 1)
    tuned = TunedThresholdClassifierCV(model, cv=2).fit(x, y)
    np.testing.assert_array_equal(
        tuned.predict(x), tuned.estimator_.predict_proba(x)[:, 1] >= tuned.best_threshold_
    )


@each_model
def test_stacking_and_voting(model: Any, data: Any) -> None:
    x, y = data
    others = [("ours", model), ("theirs", LogisticRegression())]
    stacked = StackingClassifier(others, cv=2).fit(x, y)
    assert stacked.stack_method_ == ["predict_proba", "predict_proba"]
    assert stacked.score(x, y) > 0.5
    voting = VotingClassifier(others, voting="soft").fit(x, y)
    np.testing.assert_allclose(
        voting.predict_proba(x), np.mean([one.predict_proba(x) for one in voting.estimators_], axis=0)
    )


@each_model
def test_displays(model: Any, data: Any) -> None:
    x, y = data
    fitted = clone(model).fit(x, y)
    shown = [kind.from_estimator(fitted, x, y) for kind in (RocCurveDisplay, PrecisionRecallDisplay)]
    reliability = CalibrationDisplay.from_estimator(fitted, x, y)
    np.testing.assert_allclose(reliability.y_prob, fitted.predict_proba(x)[:, 1])
    assert np.ravel(shown[0].roc_auc)[0] == pytest.approx(roc_auc_score(y, fitted.predict_proba(x)[:, 1]))
    plt.close("all")


@each_model
def test_inspection(model: Any, data: Any) -> None:
    x, y = data
    frame = pd.DataFrame(x, columns=["x0", "x1", "x2"])
    fitted = clone(model).fit(frame, y)
    curve = partial_dependence(fitted, frame, ["x2"], grid_resolution=3, response_method="predict_proba")
    for value, average in zip(curve["grid_values"][0], curve["average"][0], strict=True):
        assert average == pytest.approx(fitted.predict_proba(frame.assign(x2=value))[:, 1].mean())
    importance = permutation_importance(fitted, frame, y, scoring="roc_auc", n_repeats=2, random_state=0)
    assert importance.importances.shape == (3, 2)


def test_outcomes_without_classes_have_no_such_method() -> None:
    for model in (dt.Colr(), dt.Cotram(), dt.Ensemble(dt.Lm(NETWORK), 2)):
        assert not hasattr(model, "predict_proba")
        with pytest.raises(AttributeError):
            model.predict_proba  # noqa: B018
    with pytest.raises(MissingMethodError, match=r"predict_proba is for classes, got outcome='count': use"):
        dt.Cotram().predict_proba  # noqa: B018


@pytest.mark.filterwarnings("ignore::deeptram.errors.DeeptramWarning")
@pytest.mark.parametrize("model", [dt.Polr(), dt.Logit(), dt.Colr(), dt.Lm(), dt.Tram(outcome="nominal")])
def test_messages_name_the_columns_that_do_not_match(model: Any) -> None:
    check_dataframe_column_names_consistency(type(model).__name__, model)


def test_a_model_is_no_transformer():
    with pytest.raises(
        UnsupportedError, match=r"is for transformers, got .*; write set_output\(predict='pandas'\)"
    ):
        dt.Lm().set_output(transform="pandas")
