from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from deeptram import latent
from deeptram.evaluation import metrics
from deeptram.plots import style
from deeptram.pooling import METHODS


def test_every_pool_has_its_own_colour_and_marker():
    assert set(METHODS) <= set(style.POOL_COLORS)
    assert len(set(style.POOL_COLORS.values())) == len(style.POOL_COLORS)
    looks = style.looks(list(style.POOL_COLORS)).values()
    assert len({look.marker for look in looks}) == len(style.POOL_COLORS)


@pytest.mark.parametrize("method", METHODS)
def test_a_pool_keeps_its_colour_in_any_company(method):
    alone = style.colors([method])[method]
    together = style.colors(["SI-LS", "average", method, f"{method}, tuned", "CI"])
    assert together[method] == together[f"{method}, tuned"] == alone
    assert len({together["SI-LS"], together["average"], together["CI"], alone}) == 4


def lab(color):
    """CIE 1976 L*a*b* under D65, where distances below about 2.3 cannot be seen."""
    rgb = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / [0.95047, 1.0, 1.08883]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_what_is_no_pool_never_looks_like_one():
    for other in style.OTHER_COLORS:
        distances = {
            name: np.linalg.norm(lab(other) - lab(color)) for name, color in style.POOL_COLORS.items()
        }
        assert min(distances.values()) > 25
        assert min(distances[name] for name in ("linear", "log-linear", "transformation")) > 40


def test_where_names_stand_beside_their_marks_colours_are_for_pools():
    named = style.looks(["SI", "SI-LS", "CI: members", "CI: linear"], labelled=True)
    assert named["SI"].color == named["SI-LS"].color == style.SINGLE_COLOR
    assert named["CI: linear"].color == style.POOL_COLORS["linear"]
    assert named["CI: members"].color == style.AVERAGE_COLOR
    assert named["SI"].marker != named["SI-LS"].marker


def test_pools_of_models_have_the_colour_of_the_pool():
    named = style.colors(["SI-LS", "CI: members", "CI: linear", "CI-LS: members", "CI-LS: linear"])
    assert named["CI: linear"] == named["CI-LS: linear"] == style.POOL_COLORS["linear"]
    assert named["CI: members"] == named["CI-LS: members"] == style.AVERAGE_COLOR


def test_average_is_black_wherever_it_stands():
    assert style.colors(["a", "b", "average"])["average"] == style.AVERAGE_COLOR


def test_no_colour_is_used_twice():
    names = [f"model {k}" for k in range(20)]
    assert len(set(style.colors(names).values())) == 20
    assert len(set(style.colors([*names[:6], "linear", "average"]).values())) == 8
    assert {look.marker for look in style.looks(names).values()} <= set(style.OTHER_MARKERS)


def simulate_deuteranopia(color):
    """Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB."""
    rgb = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    )
    return seen @ linear


def test_pools_of_the_paper_differ_without_red_green_vision():
    seen = [
        simulate_deuteranopia(style.POOL_COLORS[name]) for name in ("linear", "log-linear", "transformation")
    ]
    distances = [np.abs(a - b).max() for k, a in enumerate(seen) for b in seen[:k]]
    assert min(distances) > 0.1


def test_labels_cover_the_registries():
    assert set(style.TRAFO_LABELS) == set(latent.names())
    for name in metrics.names():
        assert style.metric_label(name)
        assert style.metric_hint(name)


def test_global_settings_are_left_alone():
    before = dict(matplotlib.rcParams)
    with style.paper_style():
        assert not matplotlib.rcParams["axes.spines.top"]
    assert dict(matplotlib.rcParams) == before
