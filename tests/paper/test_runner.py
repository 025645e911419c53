from __future__ import annotations

import dataclasses
import json

import pytest

import deeptram.paper.places as places
from deeptram.errors import InvalidInputError, NonFiniteLossError
from deeptram.model.persistence import JSON_NAME, TENSOR_NAME, read_folder
from deeptram.paper import RunFolder, Unit, make_study, run_study, storage
from deeptram.paper.members import fit_member, load_parts
from deeptram.paper.runner import GridProgress, available_study

EXACT = {"models": ["SI", "SI-LS"], "losses": ["nll"], "splits": [1]}


def contents(run):
    """The members' numbers, without times."""
    folders = sorted(path.parent for path in run.members.folder.rglob(JSON_NAME))
    arrays = {str(folder.relative_to(run.path)): read_folder(folder)[1] for folder in folders}
    return {
        f"{folder}/{name}": values.tobytes()
        for folder, found in arrays.items()
        for name, values in found.items()
        if name != "history"
    }


def test_everything_is_there(small_run, small_study):
    done = small_run.finished(small_study, small_run.data_digests())
    assert done == list(small_study.units())
    assert (small_run.path / storage.CONFIG).is_file()
    assert load_parts(small_run).images.shape == (240, 8, 8)
    config = small_run.config()
    assert config["levels"] == [str(k) for k in range(10)]
    assert config["n_rows"] == 1797
    assert not list(small_run.path.rglob("*.tmp"))


def test_resuming_repeats_nothing(small_run, small_study, monkeypatch):
    def never(*_):
        raise AssertionError("a finished member was fitted again")

    monkeypatch.setattr(places, "fit_member", never)
    result = run_study(small_study, small_run.path)
    assert (result.finished, result.repeated, result.failed) == (0, 8, {})


def test_number_of_jobs_changes_nothing(small_run, small_study, tmp_path):
    study = dataclasses.replace(small_study, splits=(1,))
    result = run_study(study, tmp_path / "two", n_jobs=2)
    assert result.finished == 4
    expected = {name: v for name, v in contents(small_run).items() if "split-1" in name}
    assert contents(result.run) == expected


def test_lost_members_are_made_again(small_study, tmp_path):
    study = dataclasses.replace(small_study, models=("SI", "SI-LS"), splits=(1,))
    run = run_study(study, tmp_path).run
    before = contents(run)
    (run.member(Unit("SI", "nll", 1, 1)) / JSON_NAME).unlink()
    (run.member(Unit("SI-LS", "nll", 1, 1)) / TENSOR_NAME).write_bytes(b"damaged")
    assert run_study(study, tmp_path).finished == 2
    assert contents(run) == before


def test_a_study_can_be_extended(tmp_path):
    run_study(make_study("digits", "quick", **EXACT), tmp_path)
    more = make_study("digits", "quick", models=["SI"], losses=["rps"], splits=[2])
    result = run_study(more, tmp_path)
    assert (result.finished, result.repeated) == (1, 0)
    merged = RunFolder(tmp_path).study()
    assert (merged.models, merged.losses, merged.splits) == (("SI", "SI-LS"), ("nll", "rps"), (1, 2))


def test_another_study_is_refused(small_run, small_study):
    other = dataclasses.replace(small_study, training=small_study.training.replace(epochs=9), seed=4)
    with pytest.raises(
        InvalidInputError, match=r"got another \(epochs 2, now 9, seed 0, now 4\); choose another"
    ):
        run_study(other, small_run.path)


def test_folders_with_other_things_are_refused(small_study, tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(InvalidInputError, match="must be empty or hold an earlier run, got other files"):
        run_study(small_study, tmp_path)


def test_other_data_are_refused(tmp_path, monkeypatch):
    study = make_study("digits", "quick", **EXACT)
    run_study(study, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["data"]["table"] = "other"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInputError, match="must be continued with the same data, got another table"):
        run_study(study, tmp_path)


@pytest.mark.parametrize("n_jobs", [0, 1.5])
def test_wrong_number_of_jobs(small_study, tmp_path, n_jobs):
    with pytest.raises(InvalidInputError, match="n_jobs must be"):
        run_study(small_study, tmp_path, n_jobs=n_jobs)


def test_one_failure_does_not_stop_the_others(small_study, tmp_path, monkeypatch):
    bad = Unit("SI", "nll", 1, 1)

    def sometimes(study, data, split, unit):
        if unit == bad:
            raise NonFiniteLossError("the loss was infinite")
        return fit_member(study, data, split, unit)

    study = dataclasses.replace(small_study, models=("SI", "SI-LS"), splits=(1,))
    monkeypatch.setattr(places, "fit_member", sometimes)
    result = run_study(study, tmp_path)
    assert result.failed == {bad: "the loss was infinite"}
    assert result.finished == 1
    failure = json.loads(result.run.failure(bad).read_text())
    assert failure["reason"] == "the loss was infinite"
    monkeypatch.setattr(places, "fit_member", fit_member)
    again = run_study(study, tmp_path)
    assert (again.finished, again.failed) == (1, {})
    assert not result.run.failure(bad).exists()


def test_models_without_images(tmp_path):
    study = make_study("melanoma")
    assert available_study(study, tmp_path, explicit=False).models == ("SI", "SI-LS")
    with pytest.raises(
        InvalidInputError, match="the models CI, CI-LS need the images of melanoma, got the table only"
    ):
        available_study(study, tmp_path, explicit=True)
    exact = make_study("melanoma", models=["SI"])
    assert available_study(exact, tmp_path, explicit=True) == exact


def test_the_time_that_is_left_is_not_guessed_from_exact_fits(tmp_path, capsys):
    study = make_study("digits", "quick", models=["SI", "CI"], splits=[1], n_members=2)
    exact, *deep = study.units()
    with GridProgress(study, [exact, *deep], 0, tmp_path, quiet=False) as shown:
        shown.finished(exact, "0 s")
        shown.finished(deep[0], "9 s")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "[1/3] digits SI (nll) split 1: 0 s"
    assert second.startswith("[2/3] digits CI (nll) split 1 member 1: 9 s; about 0 s left")


def test_of_exact_fits_alone_it_is(tmp_path, capsys):
    study = make_study("digits", "quick", models=["SI", "SI-LS"], splits=[1])
    units = list(study.units())
    with GridProgress(study, units, 0, tmp_path, quiet=False) as shown:
        shown.finished(units[0], "0 s")
    assert capsys.readouterr().err.endswith("0 s; about 0 s left\n")
