"""``import deeptram`` is quick: heavy packages are loaded when a name that needs them is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import deeptram as dt
from deeptram import errors

HEAVY = ("torch", "sklearn", "scipy", "pandas", "numpy", "matplotlib")


def loaded_by(statement: str) -> list[str]:
    code = f"{statement}; import sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    "statement",
    [
        "import deeptram",
        "import deeptram; dir(deeptram); deeptram.__version__",
        "from deeptram.errors import DeeptramError",
    ],
)
def test_import_loads_nothing_heavy(statement):
    assert loaded_by(statement) == []


def test_every_public_name_is_there():
    assert all(getattr(dt, name) is not None for name in dt.__all__)
    assert set(dt.__all__) <= set(dir(dt))


def test_the_stub_lists_what_it_imports():
    stub = ast.parse(Path(dt.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imported = {a.name for node in stub.body if isinstance(node, ast.ImportFrom) for a in node.names}
    (listed,) = (ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign))
    assert set(listed) == imported == set(dt.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="polr"):
        _ = dt.polr
    with pytest.raises(AttributeError, match="Unfitted"):
        _ = errors.Unfitted


def test_not_fitted_is_scikit_learns_too():
    from sklearn.exceptions import NotFittedError

    assert issubclass(errors.NotFittedError, NotFittedError)
    assert errors.NotFittedError is errors.NotFittedError
