"""The shape of the package: downward imports, short files, plain `__init__` files, docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
FILES = sorted((SRC / "deeptram").rglob("*.py"))
MAX_LINES = 500

# A layer may import from itself and from the layers before it.
LAYERS = [
    "_version",
    "_workers",
    "errors",
    "_files",
    "_validation",
    "_arrays",
    "_schema",
    "_numerics",
    "_threads",
    "latent",
    "bases",
    "responses",
    "optimise",
    "likelihood",
    "predictive",
    "evaluation",
    "scores",
    "metrics",
    "pooling",
    "weights",
    "calibration",
    "inputs",
    "networks",
    "model",
    "fitting",
    "estimators",
    "ensemble",
    "datasets",
    "plots",
    "paper",
    "cli",
    "__main__",
    "__init__",
]

# (importing module, imported layer) -> why the rule does not hold there. Imports of deeptram.plots inside a
# function named `plot` need no entry: drawing is optional, and results know how to draw themselves.
EXCEPTIONS: dict[tuple[str, str], str] = {}


@dataclass(frozen=True)
class Import:
    """One imported layer, the line, and the function around it ("" at module level)."""

    layer: str
    line: int
    function: str


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def deeptram_imports(tree: ast.AST, function: str = "") -> Iterator[Import]:
    """Every import of deeptram, wherever it stands: in functions and under TYPE_CHECKING too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "deeptram":
            names = [f"deeptram.{a.name}" if a.name in LAYERS else "deeptram" for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        else:
            names = []
        for name in names:
            if name.startswith("."):
                yield Import("relative import", node.lineno, function)
            elif name.split(".")[0] == "deeptram":
                yield Import(layer_of(name), node.lineno, function)
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from deeptram_imports(node, inside)


def layer_faults(module: str, source: str) -> list[str]:
    """The imports of a module that do not point down, as sentences."""
    own = layer_of(module)
    if own not in LAYERS:
        return [f"{module}: layer {own!r} is not in LAYERS; give it a place in the order"]
    faults = []
    for found in deeptram_imports(ast.parse(source)):
        draws_itself = found.layer == "plots" and found.function == "plot"
        if found.layer == own != "__init__" or draws_itself or (module, found.layer) in EXCEPTIONS:
            continue
        if found.layer not in LAYERS[: LAYERS.index(own)]:
            faults.append(f"{module}:{found.line} imports {found.layer!r}, which is not below {own!r}")
    return faults


def init_faults(source: str) -> list[str]:
    """The statements of an ``__init__`` file that do more than re-export."""
    faults = []
    for node in ast.parse(source).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        silence = isinstance(node, ast.Expr) and "NullHandler" in ast.unparse(node)
        dunder = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__all__", "__version__")
        lazy = isinstance(node, ast.Assign) and "lazy_loader.attach_stub" in ast.unparse(node.value)
        if not (docstring or silence or dunder or lazy or isinstance(node, ast.Import | ast.ImportFrom)):
            faults.append(f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}")
    return faults


def undocumented(module: object) -> list[str]:
    """Public functions, classes and methods without a docstring of their own or of a base class."""
    missing = []
    for name, value in vars(module).items():
        is_class, is_function = inspect.isclass(value), inspect.isfunction(value)
        if name.startswith("_") or not (is_class or is_function) or value.__module__ != module.__name__:
            continue
        if not value.__doc__:
            missing.append(name)
        for member, raw in vars(value).items() if is_class else ():
            is_method = inspect.isfunction(raw) or isinstance(raw, property | classmethod | staticmethod)
            if not member.startswith("_") and is_method and not inspect.getdoc(getattr(value, member)):
                missing.append(f"{name}.{member}")
    return missing


by_file = pytest.mark.parametrize("path", FILES, ids=module_name)


@by_file
def test_imports_point_down(path):
    assert layer_faults(module_name(path), path.read_text(encoding="utf-8")) == []


@by_file
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", [f for f in FILES if f.name == "__init__.py"], ids=module_name)
def test_init_files_only_reexport(path):
    assert init_faults(path.read_text(encoding="utf-8")) == []


@by_file
def test_public_names_are_documented(path):
    assert undocumented(importlib.import_module(module_name(path))) == []


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for path in FILES}
    assert [str(f.relative_to(SRC)) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


def test_exceptions_are_still_needed():
    used = set()
    for path in FILES:
        for found in deeptram_imports(ast.parse(path.read_text(encoding="utf-8"))):
            used.add((module_name(path), found.layer))
    assert set(EXCEPTIONS) <= used


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("deeptram.latent.base", "from deeptram.evaluation.scores import nll", "imports 'evaluation'"),
        ("deeptram.latent.base", "import deeptram.model.inference", "imports 'model'"),
        ("deeptram.pooling.linear", "from deeptram import estimators", "imports 'estimators'"),
        ("deeptram.pooling.linear", "import deeptram as dt", "imports '__init__'"),
        ("deeptram.pooling.linear", "from deeptram import pool", "imports '__init__'"),
        ("deeptram.pooling.linear", "from . import simplex", "imports 'relative import'"),
        (
            "deeptram.evaluation.scores.nll",
            "def f():\n    from deeptram.fitting import exact",
            "imports 'fitting'",
        ),
        ("deeptram.evaluation.scores.nll", "def f():\n    from deeptram.plots import cdf", "imports 'plots'"),
        (
            "deeptram.evaluation.scores.nll",
            "if TYPE_CHECKING:\n    from deeptram.model import x",
            "imports 'model'",
        ),
        ("deeptram.errors", "from deeptram._arrays import as_tensor", "imports '_arrays'"),
        ("deeptram.utils.misc", "", "not in LAYERS"),
    ],
)
def test_upward_imports_are_found(module, source, fault):
    (found,) = layer_faults(module, source)
    assert fault in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("deeptram.evaluation.scores.nll", "import torch\nfrom deeptram.predictive.base import Predictive"),
        ("deeptram.predictive.base", "def f():\n    from deeptram.predictive import foreign"),
        (
            "deeptram.pooling.structure",
            "class S:\n    def plot(self):\n        from deeptram.plots import cdf",
        ),
        ("deeptram", "from deeptram import latent\nfrom deeptram.estimators import Polr"),
    ],
)
def test_downward_imports_are_allowed(module, source):
    assert layer_faults(module, source) == []


@pytest.mark.parametrize(
    "source", ["def f(): ...", "class A: ...", "x = 1", "for i in range(3): pass", "f()"]
)
def test_code_in_init_files_is_found(source):
    assert len(init_faults(f'"""Doc."""\nfrom a import b\n__all__ = ["b"]\n{source}')) == 1
