"""The API reference: one page per subject, made from the list of public names, so that none can miss."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from docstring_roles import as_markdown

import deeptram

# Where a name is defined decides on which page it stands; what fits nowhere goes to the last page.
SUBJECTS = {
    "models": ("Models", ("deeptram.estimators", "deeptram.fitting")),
    "terms": ("Terms", ("deeptram.model",)),
    "data": ("Outcomes and data", ("deeptram.responses", "deeptram.inputs")),
    "predictive": ("Predictive distributions", ("deeptram.predictive",)),
    "ensembles": ("Ensembles", ("deeptram.ensemble",)),
    "pools": ("Pools and weights", ("deeptram.pooling",)),
    "evaluation": ("Evaluation", ("deeptram.evaluation",)),
    "other": ("Other names", ("deeptram",)),
}
# Modules that `import deeptram as dt` does not offer by name, and that users write parts of their own with.
FURTHER = ("deeptram.bases", "deeptram.pooling")
# These show every method, inherited ones too; their relatives refer to them.
WHOLE = {"Tram", "Ensemble", "Predictive"}
RELATIVES = "Methods and attributes are those of [`Tram`][deeptram.Tram]."


@dataclass
class Subject:
    """A page of the reference: its file name, title, introduction and names."""

    key: str
    title: str
    introduction: str = ""
    names: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Where the page stands in the docs."""
        return f"reference/{self.key}.md"


@functools.cache
def public_names() -> dict[str, Any]:
    """Return every public object by its public path, such as ``deeptram.metrics.qwk``."""
    found: dict[str, Any] = {}
    for name in deeptram.__all__:
        if name.startswith("__"):
            continue
        thing = getattr(deeptram, name)
        if isinstance(thing, ModuleType):
            found.update(_names_in(thing))
        else:
            found[f"deeptram.{name}"] = thing
    known = {id(thing) for thing in found.values()}
    for module in map(importlib.import_module, FURTHER):
        found.update({path: thing for path, thing in _names_in(module).items() if id(thing) not in known})
    return found


def _names_in(module: ModuleType) -> dict[str, Any]:
    names = getattr(module, "__all__", None) or _classes_in(module)
    found = {f"{module.__name__}.{name}": getattr(module, name) for name in names}
    return {path: thing for path, thing in found.items() if not isinstance(thing, ModuleType)}


def _classes_in(module: ModuleType) -> list[str]:
    """Return the classes of a module without ``__all__`` (one of ``errors`` is made at its first use)."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


def subjects() -> list[Subject]:
    """Return the pages of the reference, in order."""
    pages = {key: Subject(key, title) for key, (title, _) in SUBJECTS.items()}
    for path, thing in public_names().items():
        room, _, _ = path.rpartition(".")
        if room == "deeptram":
            home = getattr(thing, "__module__", "deeptram")
            key = next(k for k, (_, rooms) in SUBJECTS.items() if home.startswith(rooms))
        else:
            key = room.removeprefix("deeptram.")
            if key not in pages:
                text = inspect.getdoc(importlib.import_module(room)) or ""
                pages[key] = Subject(key, f"`{room}`", text.split("\n\n")[0])
            elif key in SUBJECTS:
                key = "parts"
                pages.setdefault(key, Subject(key, "`deeptram.pooling`: parts of pools"))
        pages[key].names.append((path, thing))
    return [page for page in pages.values() if page.names]


def subject_table() -> str:
    """Return the rows of the table of subjects, each with its names."""
    rows = []
    for page in subjects():
        links = [f"[`{path.rpartition('.')[2]}`][{path}]" for path, _ in page.names]
        rows.append(f"| [{page.title}]({page.key}.md) | {', '.join(links)} |")
    return "\n".join(rows)


def markdown(page: Subject) -> str:
    """Return a page of the reference in Markdown."""
    lines = [f"# {page.title}", "", page.introduction, ""]
    lines += ["| name | what it is |", "|---|---|"]
    lines += [f"| [`{_short(path)}`][{path}] | {summary(thing)} |" for path, thing in page.names]
    for path, thing in page.names:
        lines += ["", *_entry(path, thing)]
    return "\n".join(lines) + "\n"


def summary(thing: Any) -> str:
    """Return the first sentence of a docstring."""
    text = inspect.getdoc(thing) if _has_source(thing) else type(thing).__name__
    first = as_markdown((text or "").split("\n\n")[0])
    return first.replace("\n", " ").replace("|", "\\|")


def undocumented() -> list[str]:
    """Return the public names without a docstring of their own."""
    return [path for path, thing in public_names().items() if _has_source(thing) and not thing.__doc__]


def _has_source(thing: Any) -> bool:
    return inspect.isclass(thing) or inspect.isroutine(thing)


def _short(path: str) -> str:
    return path.removeprefix("deeptram.")


def _entry(path: str, thing: Any) -> list[str]:
    short = _short(path)
    first = next(name for name, other in public_names().items() if other is thing)
    if first != path:
        return [f"## `{short}` {{ #{path} }}", "", f"The same as [`{first}`][{first}]."]
    if not _has_source(thing):
        return [f"## `{short}` {{ #{path} }}", "", f"```text\n{thing!r}\n```"]
    name = path.rpartition(".")[2]
    lines = [f"[](){{#{path}}}", "", f"::: {thing.__module__}.{thing.__qualname__}", "    options:"]
    lines += [f"      heading: '{short}'", f"      toc_label: '{short}'"]
    if inspect.isclass(thing):
        if name in WHOLE:
            lines.append("      inherited_members: true")
        elif issubclass(thing, deeptram.Tram.__mro__[1]):
            lines += ["      members: []", "", RELATIVES]
    return lines
