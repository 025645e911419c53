from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import deeptram.paper.members as members_module
from deeptram.errors import FileFormatError
from deeptram.estimators import Tram
from deeptram.evaluation import scores
from deeptram.model.persistence import JSON_NAME, TENSOR_NAME, read_folder
from deeptram.model.terms import Spec
from deeptram.paper import RunFolder, Unit
from deeptram.paper.members import (
    fit_member,
    load_member,
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
    np.testing.assert_allclose(fitted.predictions["test"].trafo(), h, rtol=1e-8)


def test_files_give_the_prediction_back(material, deep, tmp_path):
    _, data, split = material
    run = RunFolder(tmp_path)
    save_member(run, DEEP, deep, "hash")
    assert run.is_done(DEEP, "hash")
    assert {p.name for p in run.member(DEEP).iterdir()} == {JSON_NAME, TENSOR_NAME}
    member = load_member(run, DEEP, 10)
    loaded = member.predictions
    assert read_folder(run.member(DEEP))[1]["test/h"].dtype == np.float32
    assert loaded["test"].trafo().dtype == np.float64
    np.testing.assert_allclose(loaded["test"].trafo(), deep.predictions["test"].trafo(), atol=1e-4, rtol=1e-6)
    pd.testing.assert_frame_equal(member.coefficients, deep.coefficients, check_exact=True)
    pd.testing.assert_frame_equal(member.history, deep.history, check_exact=True)
    assert member.info == deep.info
    # h and its gaps belong together exactly, although both were rounded
    np.testing.assert_allclose(
        np.diff(loaded["val"].trafo(), axis=1), np.exp(loaded["val"].log_increments_t().numpy()), rtol=1e-9
    )
    value = scores.nll(data.take(split.validation).y, loaded["val"])
    assert value == pytest.approx(deep.history["validation_loss"].min(), abs=1e-5)


def test_the_same_unit_gives_the_same_member(material, deep):
    again = fit_member(*material, DEEP)
    for name, values in deep.predictions.items():
        assert np.array_equal(again.predictions[name].trafo(), values.trafo())
    assert again.coefficients.equals(deep.coefficients)


def test_members_differ(material, deep):
    other = fit_member(*material, Unit("CI-LS", "nll", 1, 2))
    assert not np.array_equal(other.predictions["test"].trafo(), deep.predictions["test"].trafo())


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
        load_member(RunFolder(tmp_path), DEEP, 2)


def test_other_levels_are_refused(small_run):
    with pytest.raises(FileFormatError, match="must hold predictions of 3 levels, got others"):
        load_member(small_run, DEEP, 3)


def test_the_machine_has_no_name():
    assert set(machine()) == {"system", "processor", "cpus", "gpu"}
    assert "deeptram" in versions()
