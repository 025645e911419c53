"""The shape of the package: downward imports, short files, one place for each name, docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
FILES = sorted((SRC / "deeptram").rglob("*.py"))
MAX_LINES = 500
MAX_ROOMS = 18

# A layer may import from itself and from the layers before it.
LAYERS = [
    "_version",
    "_workers",
    "errors",
    "_files",
    "_validation",
    "_arrays",
    "_rows",
    "_schema",
    "_numerics",
    "_registry",
    "_threads",
    "_progress",
    "_html",
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
# function named `plot` or `report` need no entry: drawing is optional, and results know how to draw themselves.
EXCEPTIONS: dict[tuple[str, str], str] = {}

# Public name -> why several modules define it.
REGISTRY = "a registry is called through its room: latent.get, scores.get, networks.names"
SAME_NAME: dict[str, str] = {
    "get": REGISTRY,
    "names": REGISTRY,
    "from_dict": REGISTRY,
    "register": REGISTRY,
    "to_dict": REGISTRY,
    "pit": "dt.metrics.pit are the values, dt.plots.pit draws them",
    "crps": "dt.scores.crps is the score, the other the integral behind it",
    "minimize": "one per kind of problem, called through the module: newton.minimize, simplex.minimize",
}

# (module, use) -> why it reaches for something private of another room or library.
TORCH_HOOKS = "torch has no public way to ask whether a module has hooks"
PRIVATE_USES: dict[tuple[str, str], str] = {
    ("deeptram._workers", "os._exit"): "documented by Python, in spite of its name",
    ("deeptram.model.dropout", "layer._forward_hooks"): TORCH_HOOKS,
    ("deeptram.model.dropout", "layer._forward_pre_hooks"): TORCH_HOOKS,
}


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
        draws_itself = found.layer == "plots" and found.function in ("plot", "save", "report")
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


def public_definitions(source: str) -> list[str]:
    """The public functions and classes that a module defines at its top level."""
    found = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return [node.name for node in found if not node.name.startswith("_")]


def own_names(source: str) -> set[str]:
    """Every name a module gives to something: functions, classes, variables, attributes."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def is_own(value: ast.expr) -> bool:
    """Whether an expression is ``self``, ``cls`` or ``super()``."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def private_uses(source: str, own: set[str]) -> list[str]:
    """The uses ``x._y`` of something private that no module of the same room defines."""
    found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Attribute) and not is_own(n.value)]
    private = [n for n in found if n.attr.startswith("_") and not n.attr.startswith("__")]
    return sorted({ast.unparse(node) for node in private if node.attr not in own})


def faults_by_file(find: Callable[[str], list[str]], files: Sequence[Path] = FILES) -> dict[str, list[str]]:
    """What is found in the source of each file, without files in which nothing is."""
    found = {module_name(path): find(path.read_text(encoding="utf-8")) for path in files}
    return {module: faults for module, faults in found.items() if faults}


def test_imports_point_down():
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in FILES}
    assert [fault for module, source in sources.items() for fault in layer_faults(module, source)] == []


def test_files_are_short():
    lengths = {module_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {module: length for module, length in lengths.items() if length > MAX_LINES} == {}


def test_init_files_only_reexport():
    assert faults_by_file(init_faults, [path for path in FILES if path.name == "__init__.py"]) == {}


def test_public_names_are_documented():
    found = {name: undocumented(importlib.import_module(name)) for name in map(module_name, FILES)}
    assert {module: names for module, names in found.items() if names} == {}


def test_no_two_modules_define_the_same_public_name():
    places: dict[str, list[str]] = {}
    for module, names in faults_by_file(public_definitions).items():
        for name in names:
            places.setdefault(name, []).append(module)
    assert {n: where for n, where in places.items() if len(where) > 1 and n not in SAME_NAME} == {}


def test_no_room_uses_what_is_private_in_another():
    own: dict[str, set[str]] = {}
    for path in FILES:
        own.setdefault(layer_of(module_name(path)), set()).update(own_names(path.read_text(encoding="utf-8")))
    found = [
        (module_name(path), use)
        for path in FILES
        for use in private_uses(path.read_text(encoding="utf-8"), own[layer_of(module_name(path))])
    ]
    assert [use for use in found if use not in PRIVATE_USES] == []


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for path in FILES}
    assert [str(f.relative_to(SRC)) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


def test_rooms_say_what_belongs_there_what_they_import_and_where_to_start():
    rooms = [path for path in FILES if path.name == "__init__.py" and path.parent.parent == SRC / "deeptram"]
    words = ("Belongs here: ", "May import: ", "Start reading at ")
    silent = {
        module_name(path): [word for word in words if word not in path.read_text(encoding="utf-8")]
        for path in rooms
    }
    assert {room: missing for room, missing in silent.items() if missing} == {}
    assert len(rooms) <= MAX_ROOMS


def test_exceptions_are_still_needed():
    used = set()
    for path in FILES:
        for found in deeptram_imports(ast.parse(path.read_text(encoding="utf-8"))):
            used.add((module_name(path), found.layer))
    assert set(EXCEPTIONS) <= used


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        (
            "deeptram.latent.distribution",
            "from deeptram.evaluation.scores import nll",
            "imports 'evaluation'",
        ),
        ("deeptram.latent.distribution", "import deeptram.model.inference", "imports 'model'"),
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


def test_private_uses_are_found():
    source = "self._a; cls._b; super()._c; x._own; y._foreign; z.__dict__"
    assert private_uses(source, own_names("def _own(): ...")) == ["y._foreign"]


def test_public_definitions_are_found():
    assert public_definitions("def f(): ...\nclass A: ...\ndef _g(): ...\nx = 1") == ["f", "A"]
