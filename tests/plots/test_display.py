from __future__ import annotations

import subprocess
import sys

import matplotlib
import pytest

import deeptram as dt
from deeptram import plots


def test_contract_names_are_there():
    names = [
        "cdf",
        "density",
        "trafo",
        "calibration",
        "performance",
        "coefficients",
        "weights",
        "structure",
        "epistemic",
        "history",
    ]
    assert set(names) <= set(plots.__all__)
    assert all(callable(getattr(dt.plots, name)) for name in names)


def test_importing_plots_does_not_import_matplotlib():
    code = "import sys, deeptram.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_drawing_leaves_global_settings_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    display = plots.weights([0.5, 0.5])
    display.plot()
    display.save(tmp_path / "a.pdf")
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.pdf").read_bytes()[:4] == b"%PDF"


def test_a_display_is_frozen():
    display = plots.weights([0.5, 0.5])
    with pytest.raises(AttributeError):
        display.table = None
