from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidTypeError
from drawing import labels


def test_frame_is_that_of_the_check(ordinal):
    members, y = ordinal
    check = dt.structure_check(members, y=y)
    pd.testing.assert_frame_equal(plots.structure(check).frame(), check.frame())


def test_transformation_pool_lies_on_the_diagonal(normals):
    frame = plots.structure(dt.structure_check(normals, method="transformation", latent="normal")).frame()
    np.testing.assert_allclose(frame["trafo_pool"], frame["trafo_mean"], atol=1e-10)


def test_drawing(ordinal, normals, drawn):
    members, _ = ordinal
    ax = drawn(plots.structure(dt.structure_check(members)))
    assert labels(ax) == ["members", "mean of members", "linear pool"]
    assert ax.get_xlabel() == "mean of members, logit scale"
    assert (
        drawn(plots.structure(dt.structure_check(normals, latent="normal")))
        .get_ylabel()
        .endswith("probit scale")
    )


def test_the_check_draws_itself(normals):
    ax = dt.structure_check(normals).plot()
    assert ax.get_xlabel() == "mean of members, logit scale"


def test_certain_members_are_left_out(drawn):
    members = [dt.Predictive.from_trafo([[-np.inf, 1.0]]), dt.Predictive.from_trafo([[0.0, 2.0]])]
    drawn(plots.structure(dt.structure_check(members)))


def test_refuses_anything_else():
    with pytest.raises(InvalidTypeError, match=r"check must come from deeptram\.structure_check, got list"):
        plots.structure([1])


def test_the_check_is_saved(normals, tmp_path):
    target = dt.structure_check(normals).save(tmp_path / "check.png")
    assert target.read_bytes()[:4] == b"\x89PNG"
