from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from deeptram.errors import (
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    UnknownNameError,
    UnsupportedError,
)
from deeptram.paper import DATASETS, PRESETS, Study, Unit, make_study
from deeptram.paper.config import Protocol, unit_hash, unit_seed


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_study_survives_json(dataset, preset):
    study = make_study(dataset, preset)
    again = Study.from_dict(json.loads(json.dumps(study.to_dict())))
    assert again == study
    assert again.fingerprint == study.fingerprint


def test_protocol_survives_json():
    protocol = make_study("utkface").protocol
    assert Protocol.from_dict(json.loads(json.dumps(protocol.to_dict()))) == protocol


def test_selection_is_not_part_of_the_fingerprint():
    base = make_study("digits")
    part = make_study("digits", models=["CI"], losses=["rps"], splits=[3], n_members=2)
    assert part.fingerprint == base.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"epochs": 7}},
        {"training": {"learning_rate": 0.5}},
        {"training": {"batch_size": 3}},
        {"training": {"mixup": 0.2}},
        {"training": {"label_smoothing": 0.1}},
        {"training": {"class_weight": "balanced"}},
        {"training": {"average": "swa"}},
        {"seed": 1},
        {"preset": "quick"},
    ],
)
def test_settings_are_part_of_the_fingerprint(change):
    assert make_study("digits", **change).fingerprint != make_study("digits").fingerprint


# Members of runs are found again by these: they never change.
FINGERPRINTS = {
    ("mnist", "paper"): "f24254a0d68d14f89673",
    ("mnist", "modern"): "3800cbc3fb7d3ee3e832",
    ("mnist", "quick"): "b903bd8b4edca3b4739a",
    ("melanoma", "paper"): "541bcdc3110b3091df2b",
    ("melanoma", "modern"): "00f83cbed52a088d1ace",
    ("melanoma", "quick"): "f2c66e3f8fe5cdcc5a41",
    ("utkface", "paper"): "b74178a0bca27b96ad23",
    ("utkface", "modern"): "7c97b539286c420e13b3",
    ("utkface", "quick"): "91969e8c9d00327fada8",
    ("ham10000", "paper"): "98cb623454370b116ae4",
    ("ham10000", "modern"): "2c1e0e6c7591527e8c92",
    ("ham10000", "quick"): "9a46aa4a8eddeb77404e",
    ("digits", "paper"): "59002ceaeb1b149453fc",
    ("digits", "modern"): "548884d71e7e446376cb",
    ("digits", "quick"): "77c5d1f07e205e9c8ae2",
}


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("preset", PRESETS)
def test_members_of_earlier_runs_stay_valid(dataset, preset):
    assert make_study(dataset, preset).fingerprint == FINGERPRINTS[dataset, preset]


def test_a_count_of_steps_holds_for_every_member_and_is_part_of_the_fingerprint():
    study = make_study("mnist", "modern", training={"adam_start": 2820})
    assert study.changed == {"adam_start": 2820}
    units = [Unit("CI", "nll", split, member) for split in (1, 2) for member in (1, 3)]
    assert {study.training_of(unit, 48_000).adam_start for unit in units} == {2820}
    assert study.fingerprint != make_study("mnist", "modern").fingerprint
    assert Study.from_dict(json.loads(json.dumps(study.to_dict()))) == study


def test_pixels_are_part_of_the_fingerprint():
    assert make_study("utkface", pixels=32).fingerprint != make_study("utkface").fingerprint


def test_where_it_is_computed_is_not_part_of_the_fingerprint():
    study = make_study("digits")
    other = dataclasses.replace(study, training=study.training.replace(device="cpu", progress=True))
    assert other.fingerprint == study.fingerprint


def test_units_cover_the_grid_once():
    study = make_study("utkface")
    units = list(study.units())
    assert len(set(units)) == len(units) == 6 * 2 * (2 + 4 * 5)
    assert {unit.member for unit in units if unit.is_exact} == {1}


def test_seed_depends_on_split_and_member_only():
    seeds = {
        unit_seed(0, Unit("CI", "nll", split, member)) for split in range(1, 7) for member in range(1, 6)
    }
    assert len(seeds) == 30
    assert unit_seed(0, Unit("CI", "nll", 2, 3)) == unit_seed(0, Unit("SI-CS", "rps", 2, 3))
    assert unit_seed(1, Unit("CI", "nll", 2, 3)) != unit_seed(0, Unit("CI", "nll", 2, 3))


def test_pixels_decide_about_networks_only():
    data, other = {"table": "a", "image": "b"}, {"table": "a", "image": "c"}
    exact, deep = Unit("SI-LS", "nll", 1, 1), Unit("CI", "nll", 1, 1)
    assert unit_hash("s", data, exact) == unit_hash("s", other, exact)
    assert unit_hash("s", data, deep) != unit_hash("s", other, deep)
    assert unit_hash("s", data, exact) != unit_hash("s", {"table": "x", "image": "b"}, exact)


def test_merging_adds_up_selections():
    one = make_study("digits", models=["CI"], splits=[2], n_members=3, losses=["rps"])
    other = make_study("digits", models=["SI"], splits=[1], n_members=5, losses=["nll"])
    both = one.merged(other)
    assert (both.models, both.splits, both.n_members, both.losses) == (
        ("SI", "CI"),
        (1, 2),
        5,
        ("nll", "rps"),
    )


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (
            {"models": ["SI-LS"], "dataset": "mnist"},
            UnknownNameError,
            "models must be one of 'CI', got 'SI-LS'",
        ),
        ({"models": ["SILS"]}, UnknownNameError, "did you mean 'SI-LS'"),
        ({"losses": ["brier"]}, UnknownNameError, "losses must be one of 'nll', 'rps', got 'brier'"),
        ({"splits": [7]}, InvalidInputError, "splits must be numbers from 1 to 6, got 7"),
        ({"splits": []}, InvalidInputError, "splits must name at least one, got none"),
        ({"n_members": 0}, InvalidInputError, "members must be"),
        ({"seed": -1}, InvalidInputError, "seed must be"),
        ({"pixels": 32}, InvalidInputError, "the images of digits have one size, got pixels=32"),
        ({"dataset": "utkface", "pixels": 4}, InvalidInputError, "pixels must be"),
        ({"dataset": "cifar"}, UnknownNameError, "data set must be one of .*, got 'cifar'"),
        ({"preset": "fast"}, UnknownNameError, "preset must be one of .*, got 'fast'"),
        ({"training": {"epochs": 0}}, InvalidInputError, "epochs must be"),
        ({"training": {"foo": 1}}, UnknownNameError, "settings in training must be one of .*, got 'foo'"),
        ({"training": {"epoch": 1}}, UnknownNameError, "got 'epoch'; did you mean 'epochs'"),
        ({"training": 5}, InvalidTypeError, "training must be a dict of settings of Training, got 5; write"),
        (
            {"training": {"optimizer": lambda groups: None}},
            UnsupportedError,
            "training must hold values that can be written to a file, got a function as optimizer",
        ),
        (
            {"training": {"adam_start": 0}},
            InvalidInputError,
            "one Adam counts its steps through all members of the preset 'paper', got adam_start=0; leave",
        ),
        ({"splits": 5}, InvalidTypeError, "splits must be a list of numbers, got 5; put it into a list"),
        ({"splits": ["1", 2]}, InvalidInputError, "splits must be numbers from 1 to 6, got '1'; correct it"),
        ({"splits": [True]}, InvalidInputError, "splits must be numbers from 1 to 6, got True"),
        ({"models": "CI"}, InvalidTypeError, "models must be a list of names, got 'CI'; put it into a list"),
        ({"losses": "nll"}, InvalidTypeError, "losses must be a list of names, got 'nll'"),
    ],
)
def test_wrong_requests_are_refused(arguments, error, match):
    arguments = {"dataset": "digits", **arguments}
    with pytest.raises(error, match=match):
        make_study(**arguments)


def test_requests_may_be_arrays_and_say_how_progress_is_shown():
    study = make_study("digits", splits=np.arange(2, 4), training={"progress": True})
    assert study.splits == (2, 3)
    assert study.training.progress
    assert json.dumps(study.to_dict())


def test_models_of_another_data_set_are_refused():
    study = make_study("mnist")
    with pytest.raises(InvalidInputError, match="the models of mnist are CI, got 'SI'"):
        dataclasses.replace(study, models=("SI",))


def test_another_schema_is_refused():
    state = {**make_study("digits").to_dict(), "schema": 99}
    with pytest.raises(FileFormatError, match="a study must have schema 2, got 99"):
        Study.from_dict(state)
