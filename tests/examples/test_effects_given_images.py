"""Effects given images: those simulated where images say nothing, smaller ones where they say much."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit

from deeptram.datasets.simulated import PAPER_EFFECTS
from digits_report import digits_report as make_report

FILE = Path(__file__).parents[2] / "examples" / "effects_given_images.py"
TRUTH = np.array(list(PAPER_EFFECTS.values()))


@pytest.fixture(scope="session")
def digits_report(tmp_path_factory):
    return make_report(tmp_path_factory)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("effects_given_images", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_simulated_is_found_where_images_say_nothing(script):
    shares = np.array([0.08, 0.07, 0.06, 0.34, 0.24, 0.13, 0.08])  # about those of the age groups
    h = np.tile(logit(shares.cumsum()[:-1]), (6000, 1))
    found = script.effects_given(h, n_draws=3).mean(axis=0)
    np.testing.assert_allclose(found, TRUTH, atol=0.03)


def test_effects_shrink_with_what_images_say(script):
    rng = np.random.default_rng(0)
    base = logit(np.arange(1, 7) / 7)
    sizes = []
    for sd in (0.0, 2.0, 5.0):
        h = np.sqrt(1 + sd**2 / 3) * base - sd * rng.normal(size=(6000, 1))
        found = script.effects_given(h, n_draws=3).mean(axis=0)
        sizes.append(found @ TRUTH / (TRUTH @ TRUTH))
        np.testing.assert_allclose(found[TRUTH == 0], 0, atol=0.04)
    assert sizes[0] > sizes[1] > sizes[2] > 0.2


def test_thresholds_that_cross_are_no_candidates(script):
    h, x = np.array([[0.0, 1.0]]), np.zeros((1, 1))
    value, gradient = script._nll(np.array([2.0, 0.0, 1.0, 0.0]), h, x, np.array([1]))
    assert value == np.inf
    assert np.isfinite(gradient).all()


def test_the_script_reads_runs(script, digits_report, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", str(digits_report), "--model", "CI-LS"])
    script.main()
    lines = capsys.readouterr().out.splitlines()
    found = {line.split(":")[0]: float(line.split("without images ")[1].split(",")[0]) for line in lines}
    assert list(found) == list(PAPER_EFFECTS)
    np.testing.assert_allclose(list(found.values()), TRUTH, atol=0.2)  # of 360 rows, ten draws
    monkeypatch.setattr(sys, "argv", ["x", str(digits_report), "--model", "CI-LS", "--split", "2"])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert stopped.value.code == 2
    assert "must have finished members of CI-LS (nll, split 2), got" in capsys.readouterr().err


def test_the_gradient_is_that_of_the_loss(script):
    rng = np.random.default_rng(1)
    h, x, codes = np.sort(rng.normal(size=(50, 4)) * 2), rng.normal(size=(50, 3)), rng.integers(0, 5, 50)
    at, step = np.concatenate([[-0.3, -0.1, 0.1, 0.2, 1.1], rng.normal(size=3)]), 1e-6
    _, gradient = script._nll(at, h, x, codes)
    for j in range(8):
        ends = [script._nll(at + sign * step * np.eye(8)[j], h, x, codes)[0] for sign in (1, -1)]
        assert gradient[j] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-8)
