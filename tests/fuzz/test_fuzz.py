"""A short campaign in every run of the tests: the same calls each time, spread over a few items.

``make fuzz SECONDS=600`` makes new calls for as long as it is told.
"""

import random
import warnings

import numpy as np
import pytest

import deeptram as dt
from fuzz import targets
from fuzz.driver import TARGETS, Call, campaign, fingerprint, run, target
from fuzz.hostile import Draw

CALLS = {"predictive": 200, "pools": 100, "scores": 400, "data": 1000, "models": 40, "plots": 80}
SECONDS = 9.0  # per area: together less than a minute, however slow the machine
assert targets  # registers what TARGETS holds


def test_every_area_has_a_share():
    assert {one.area for one in TARGETS.values()} == set(CALLS)


@pytest.mark.parametrize("area", CALLS)
def test_no_call_misbehaves(area):
    names = [name for name, one in TARGETS.items() if one.area == area]
    count, found = campaign(names, 0, CALLS[area], SECONDS)
    told = [f'--replay "{f.target}" {f.seed}: {" ".join(f.key)}\n{f.text}' for f, _ in found.values()]
    assert count
    assert not told, "\n\n".join(told)


def test_public_callables_have_targets():
    """Every public function and class is the beginning of a target's name, or is named here with its reason."""
    # files: persistence tests; asked of every fitted preset; changes what all later calls know
    elsewhere = {"load", "export", "parquet", "predict_frame", "proportionality_test", "register_adapter"}
    names = " ".join(TARGETS)
    public = {name for name in dt.__all__ if callable(getattr(dt, name))} - elsewhere
    public |= {f"scores.{name}" for name in dt.scores.names() if hasattr(dt.scores, name)}  # ours, not users'
    inside = {
        "AsIs",
        "Bags",
        "CI",
        "CS",
        "LS",
        "SI",
        "Scale",
        "Varying",
        "TunedWeights",
        "Predictive",
        "Surv",
    }
    missing = [name for name in public - inside if name not in names]
    assert not missing


# -- the rules themselves can fail ----------------------------------------------------------------------


def changes_argument(values):
    values[0] = 5.0
    return 1.0


def warns():
    warnings.warn("leaked", RuntimeWarning, stacklevel=1)


def fails():
    raise KeyError("foreign")


BAD = {
    "nan": (lambda: np.array([1.0, np.nan]), ()),
    "infinity": (lambda: {"a": [np.inf]}, ()),
    "range": (lambda: -1.0, ()),
    "exception": (fails, ()),
    "warning": (warns, ()),
    "argument changed": (changes_argument, (np.zeros(2),)),
    "state changed": (lambda: random.seed(1), ()),
}


@pytest.mark.parametrize("kind", BAD)
def test_the_driver_finds_what_is_planted(kind, monkeypatch):
    function, args = BAD[kind]
    monkeypatch.setattr("fuzz.driver.TARGETS", {})
    target("planted", "nowhere")(lambda draw: Call(function, args, low=0.0))
    finding = run("planted", 0)
    assert finding is not None
    assert finding.key[0] == kind


def test_calls_follow_from_their_seed():
    first, second = (Draw([1, 2]) for _ in range(2))
    values = [[draw.array(draw.normals(3)) for _ in range(50)] for draw in (first, second)]
    assert fingerprint(values[0]) == fingerprint(values[1])
