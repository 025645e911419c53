from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import deeptram.paper.members as members_module
from deeptram.errors import FileFormatError
from deeptram.estimators import Tram
from deeptram.evaluation import scores
from deeptram.model.terms import Spec
from deeptram.paper import RunFolder, Unit
from deeptram.paper.members import (
    FILES,
    fit_member,
    load_predictions,
    load_study_data,
    machine,
    make_splits,
    model_terms,
    save_member,
    versions,
)
from deeptram.paper.protocols import PROTOCOLS

DEEP = Unit("CI-LS", "nll", 1, 1)


@pytest.fixture(scope="module")
def material(small_study):
    data = load_study_data(small_study)
    return small_study, data, make_splits(small_study, data)[0]


@pytest.fixture(scope="module")
def deep(material):
    return fit_member(*material, DEEP)


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_terms_have_the_name_of_the_model(dataset):
    for model in PROTOCOLS[dataset].models:
        assert Spec.of(model_terms(model, PROTOCOLS[dataset])).name == model


def test_exact_member_is_the_exact_model(material):
    study, data, split = material
    fitted = fit_member(study, data, split, Unit("SI-LS", "nll", 1, 1))
    columns = list(study.protocol.linear)
    model = Tram(outcome="ordinal").fit(data.take(split.train).table()[columns], data.take(split.train).y)
    np.testing.assert_allclose(fitted.coefficients["estimate"], model.coef_, rtol=1e-8)
    np.testing.assert_allclose(fitted.coefficients["se"], model.summary()["se"], rtol=1e-6)
    test = data.take(split.test)
    h = model.predict_distribution(test.table()[columns]).trafo()
    np.testing.assert_allclose(fitted.predictions["test_h"], h, rtol=1e-8)
    assert fitted.predictions["test_h"].dtype == np.float64


def test_files_give_the_prediction_back(material, deep, tmp_path):
    _, data, split = material
    run = RunFolder(tmp_path)
    save_member(run, DEEP, deep, "hash")
    assert run.is_done(DEEP, "hash")
    assert {p.name for p in run.member(DEEP).iterdir()} == {*FILES, "DONE"}
    loaded = load_predictions(run, DEEP, data.levels)
    assert deep.predictions["test_h"].dtype == np.float32
    np.testing.assert_allclose(loaded["test"].trafo(), deep.predictions["test_h"], atol=1e-4, rtol=1e-6)
    # h and its gaps belong together exactly, although both were rounded
    np.testing.assert_allclose(
        np.diff(loaded["val"].trafo(), axis=1), np.exp(loaded["val"].log_increments_t().numpy()), rtol=1e-9
    )
    value = scores.nll(data.take(split.validation).y, loaded["val"])
    assert value == pytest.approx(deep.history["validation_loss"].min(), abs=1e-5)


def test_the_same_unit_gives_the_same_member(material, deep):
    again = fit_member(*material, DEEP)
    for name, values in deep.predictions.items():
        assert np.array_equal(again.predictions[name], values)
    assert again.coefficients.equals(deep.coefficients)


def test_members_differ(material, deep):
    other = fit_member(*material, Unit("CI-LS", "nll", 1, 2))
    assert not np.array_equal(other.predictions["test_h"], deep.predictions["test_h"])


def test_rps_members_have_standard_errors(material):
    fitted = fit_member(*material, Unit("CI-LS", "rps", 1, 1))
    assert (fitted.coefficients["se"] > 0).all()


def test_members_have_the_standard_errors_of_their_shift(deep):
    errors = deep.coefficients["se"].to_numpy()
    assert ((errors > 0.02) & (errors < 0.05)).all()  # about 1,080 rows, columns of variance one


def test_info_says_what_was_done(material, deep):
    assert deep.info["n_epochs"] == 2
    assert deep.info["best_epoch"] in (1, 2)
    assert deep.info["n_train"] == len(material[2].train)
    assert deep.info["versions"]["torch"]


def test_an_interrupted_training_is_no_member(material, monkeypatch):
    study, data, split = material
    longer = dataclasses.replace(study, training=study.training.replace(epochs=3))

    class Interrupted(Tram):
        """Stops after two of three epochs, as Ctrl-C makes it do."""

        def fit(self, *args, **kwargs):
            self.training = self.training.replace(epochs=2)
            return super().fit(*args, **kwargs)

    monkeypatch.setattr(members_module, "Tram", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_member(longer, data, split, DEEP)


def test_unfinished_members_are_named(tmp_path):
    with pytest.raises(FileFormatError, match="must hold a finished member, got none"):
        load_predictions(RunFolder(tmp_path), DEEP, (0, 1))


def test_other_levels_are_refused(small_run):
    with pytest.raises(FileFormatError, match=r"must hold h for 3 levels, got shapes \(360, 9\)"):
        load_predictions(small_run, DEEP, (0, 1, 2))


def test_the_machine_has_no_name():
    assert set(machine()) == {"system", "processor", "cpus", "gpu"}
    assert "deeptram" in versions()
