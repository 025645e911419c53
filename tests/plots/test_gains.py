"""Differences of pools to their members' average, with an axis for each model."""

from __future__ import annotations

import pandas as pd
import pytest

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidInputError, InvalidTypeError


@pytest.fixture(scope="module")
def tables(ordinal, pools):
    members, y = ordinal
    whole = dt.evaluate(
        {"members": members, **pools}, y, metrics=["nll", "rps"], n_boot=50, reference="members"
    )
    half = dt.evaluate({"members": members[:2], **pools}, y, metrics=["nll"], n_boot=50, reference="members")
    return {"four": whole, "two": half}


def test_frame_has_the_paired_differences(tables):
    frame = plots.gains(tables).frame()
    expected = tables["four"].query("metric == 'nll' and name != 'members'")
    shown = frame[frame["panel"] == "four"]
    assert shown["name"].tolist() == ["linear", "log-linear", "transformation"]
    assert shown["estimate"].tolist() == pytest.approx(expected["difference"].tolist())
    assert (shown["upper"] < 0).all()  # no pool is worse than its members on average


def test_each_model_has_its_own_axis(tables, drawn):
    ax = drawn(plots.gains(tables))
    assert [panel.get_title(loc="left") for panel in ax.child_axes] == ["four", "two"]
    assert len({panel.get_xlim() for panel in ax.child_axes}) == 2
    assert ax.child_axes[0].get_xlabel() == "difference in NLL to members\n(smaller is better)"
    drawn(plots.gains(tables["four"], metric="rps"))


def test_bad_tables_are_named(tables):
    with pytest.raises(
        InvalidTypeError, match=r"a table of differences must be a DataFrame, got str for 'a'"
    ):
        plots.gains({"a": "table"})
    with pytest.raises(InvalidInputError, match=r"got none named difference, .*pass reference= to evaluate"):
        plots.gains(pd.DataFrame({"name": [], "metric": []}))
    with pytest.raises(InvalidInputError, match=r"tables must hold differences in 'auc', got none"):
        plots.gains(tables, metric="auc")
