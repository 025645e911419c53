from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeptram import plots
from deeptram.errors import InvalidInputError, InvalidTypeError
from drawing import labels


@pytest.fixture
def run():
    epoch = np.arange(1, 11)
    return pd.DataFrame({"epoch": epoch, "train_loss": 1 / epoch, "validation_loss": (epoch - 4.0) ** 2 + 1})


def test_frame_marks_the_best_epoch(run):
    frame = plots.history([run, run]).frame()
    assert list(frame.columns) == ["name", "epoch", "part", "loss", "best"]
    assert frame.loc[frame["best"], "epoch"].tolist() == [4, 4]
    assert frame["name"].unique().tolist() == ["member 1", "member 2"]
    assert (frame["part"] == "validation").sum() == 20


def test_members_in_one_table(run):
    stacked = pd.concat([run.assign(member=0), run.assign(member=1, train_loss=7.0)], ignore_index=True)
    pd.testing.assert_frame_equal(
        plots.history(stacked).frame(), plots.history([run, run.assign(train_loss=7.0)]).frame()
    )


def test_without_validation(run, drawn):
    display = plots.history(run.assign(validation_loss=np.nan))
    assert set(display.frame()["part"]) == {"train"}
    assert not display.frame()["best"].any()
    assert labels(drawn(display)) == ["training"]


def test_drawing(run, drawn):
    assert labels(drawn(plots.history(run))) == ["training", "validation", "best epoch"]
    assert labels(drawn(plots.history({"a": run, "b": run})))[-2:] == ["a", "b"]
    drawn(plots.history([run] * 8))


@pytest.mark.parametrize(
    ("argument", "error", "match"),
    [
        (3, InvalidTypeError, "histories must be a DataFrame, or a list or dict of them, got int"),
        ([1], InvalidTypeError, "a history must be a DataFrame, got int for 'member 1'"),
        (pd.DataFrame({"epoch": [1]}), InvalidInputError, "got none named train_loss for 'model'"),
    ],
    ids=["type", "entry", "columns"],
)
def test_refusals(argument, error, match):
    with pytest.raises(error, match=match):
        plots.history(argument)


def test_losses_that_hardly_change_can_be_read(drawn):
    losses = {"train_loss": [1.01, 0.97, 0.95], "validation_loss": [1.02, 0.99, 0.98]}
    ax = drawn(plots.history(pd.DataFrame({"epoch": [1, 2, 3], **losses})))
    low, high = ax.get_ylim()
    assert sum(low <= tick <= high for tick in ax.get_yticks()) >= 3
