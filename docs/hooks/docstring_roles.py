"""Docstrings in the words of Sphinx (``:math:``, ``:meth:``, ``.. math::``) read as Markdown."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

INLINE = re.compile(r":math:`([^`]+)`", re.DOTALL)
ROLE = re.compile(r":(?:func|class|meth|mod|attr):`~?([^`]+)`")
DISPLAYED = re.compile(
    r"^(?P<indent>[ ]*)\.\. math::[ ]*(?P<first>[^\n]*)\n"
    r"(?P<rest>(?:(?P=indent)[ ]+\S[^\n]*\n?|[ ]*\n(?=(?P=indent)[ ]+\S))*)",
    re.MULTILINE,
)
PARAMETERS = re.compile(r"(?<=^Parameters\n----------\n).*?(?=^\S[^\n]*\n---|\Z)", re.MULTILINE | re.DOTALL)
TOGETHER = re.compile(
    r"^(?P<names>\w+(?:, \w+)+)(?P<rest>(?: :[^\n]*)?\n(?:[ ]+[^\n]*\n?|\n(?=[ ]))*)", re.MULTILINE
)
FOOTNOTE = re.compile(r"^(\s*)\.\. \[(\d+)\] ", re.MULTILINE)


def as_markdown(text: str) -> str:
    """Return a docstring with its formulas and roles in Markdown."""
    text = DISPLAYED.sub(_displayed, text)
    text = INLINE.sub(lambda found: "\\(" + " ".join(found[1].split()) + "\\)", text)
    return FOOTNOTE.sub(r"\1\2. ", ROLE.sub(r"`\1`", text))


def one_by_one(text: str) -> str:
    """Return a docstring in which parameters described together stand alone, each with its own default."""
    return PARAMETERS.sub(lambda section: TOGETHER.sub(_alone, section[0]), text)


def _alone(found: re.Match[str]) -> str:
    rest = found["rest"].rstrip("\n") + "\n"
    return "".join(name + rest for name in found["names"].split(", "))


def _displayed(found: re.Match[str]) -> str:
    formula = " ".join(f"{found['first']}\n{textwrap.dedent(found['rest'])}".split())
    indent = found["indent"]
    return f"\n{indent}\\[{formula}\\]\n\n"


class Roles(griffe.Extension):
    """Translate every docstring that griffe reads."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Translate one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(one_by_one(obj.docstring.value))
