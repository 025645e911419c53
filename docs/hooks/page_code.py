"""The code in a page: found, run as a reader would, compared with the output that the page shows.

One runner serves the tests and the build of the site. In a page,

* Python blocks run one after the other in one namespace; a ``text`` block right below one is what it prints;
* ``bash`` blocks run if they are marked: three backticks, then ``bash run``;
* ``python figure="..."`` gives the figure that a block draws its alternative text;
* ``python html`` shows the last expression of a block as a notebook would;
* ``python fold`` shows the figure first, and the code when asked for.

``python docs/hooks/page_code.py PAGE ...`` writes what the blocks print into the ``text`` blocks below them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(?P<language>\w*)(?P<marks>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
DECIMAL = re.compile(r"(?P<before>[(\[]*)(?P<number>[+-]?\d*\.\d+)(?P<after>[)\],:;]*)")
FIGURE = re.compile(r'figure="(?P<text>[^"]*)"')


@dataclass(frozen=True)
class Block:
    """A block of a page that runs.

    Attributes
    ----------
    code : str
    line : int
        First line of the code in the page.
    start, end : int
        Where the fence stands in the text of the page.
    output : str or None
        What the page says that the block prints.
    output_span : (int, int) or None
        Where that is said; the fence around it ends at ``output_end``.
    alternative : str or None
        Alternative text of the block's figure.
    is_html : bool
        Whether the last expression is shown as in a notebook.
    is_folded : bool
        Whether the site shows the figure, and the code when asked for.
    is_shell : bool
    """

    code: str
    line: int
    start: int
    end: int
    output: str | None
    output_span: tuple[int, int] | None
    output_end: int | None
    alternative: str | None
    is_html: bool
    is_folded: bool
    is_shell: bool


@dataclass(frozen=True)
class Result:
    """What a block printed, and what its last expression was (blocks marked ``html`` only)."""

    block: Block
    printed: str
    value: Any = None


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page that run, in order."""
    fences = list(FENCE.finditer(text))
    found = []
    for i, here in enumerate(fences):
        marks = here["marks"].split("figure=")[0].split()
        is_shell = here["language"] == "bash" and "run" in marks
        if here["language"] != "python" and not is_shell:
            continue
        shown = None
        if i + 1 < len(fences) and fences[i + 1]["language"] == "text":
            shown = None if text[here.end() : fences[i + 1].start()].strip() else fences[i + 1]
        figure = FIGURE.search(here["marks"])
        found.append(
            Block(
                code=here["code"],
                line=text.count("\n", 0, here.start("code")) + 1,
                start=here.start(),
                end=here.end(),
                output=None if shown is None else shown["code"],
                output_span=None if shown is None else shown.span("code"),
                output_end=None if shown is None else shown.end(),
                alternative=None if figure is None else figure["text"],
                is_html="html" in marks,
                is_folded="fold" in marks,
                is_shell=is_shell,
            )
        )
    return found


def run_blocks(path: Path) -> Iterator[Result]:
    """Run the blocks of a page in the working directory and yield what each gives.

    Parameters
    ----------
    path : Path
        Named in tracebacks.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        printed, value = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            if block.is_shell:
                _run_shell(block.code)
            else:
                value = _run_python(block, path, namespace)
        yield Result(block, printed.getvalue(), value)


def _run_python(block: Block, path: Path, namespace: dict[str, Any]) -> Any:
    tree = ast.parse("\n" * (block.line - 1) + block.code, str(path))
    last = tree.body.pop() if block.is_html and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(path), "exec", dont_inherit=True), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), str(path), "eval", dont_inherit=True), namespace)


def _run_shell(code: str) -> None:
    """Run the lines of a shell; ``deeptram`` itself in this process, which has loaded it already."""
    for line in code.replace("\\\n", " ").splitlines():
        command = shlex.split(line, comments=True)
        if command and command[0] == "deeptram" and not {"|", ">", "<", "&&"} & set(command):
            from deeptram.cli.main import app

            app.main(command[1:], prog_name="deeptram", standalone_mode=False)
        elif command:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", line], capture_output=True, text=True, env={**os.environ, "PATH": path}
            )
            if done.returncode:
                raise RuntimeError(f"{line!r} ended with {done.returncode}: {done.stderr}")
            print(done.stdout, end="")


def differs(result: Result) -> bool:
    """Whether a block printed something else than its page shows.

    Spaces do not count, and neither does one unit of the last decimal: processors round differently.
    """
    if result.block.output is None:
        return False
    printed, shown = result.printed.split(), result.block.output.split()
    return len(printed) != len(shown) or not all(map(_agree, printed, shown))


def _agree(printed: str, shown: str) -> bool:
    if printed == shown:
        return True
    numbers = [DECIMAL.fullmatch(word) for word in (printed, shown)]
    if (
        None in numbers
        or numbers[0]["before"] != numbers[1]["before"]
        or numbers[0]["after"] != numbers[1]["after"]
    ):
        return False
    a, b = (found["number"] for found in numbers)
    decimals = len(b.partition(".")[2])
    return len(a.partition(".")[2]) == decimals and abs(float(a) - float(b)) < 1.5 * 10.0**-decimals


def rewrite(path: Path) -> None:
    """Write what the blocks print into the ``text`` blocks below them."""
    text = path.read_text(encoding="utf-8")
    results = [result for result in run_blocks(path) if result.block.output_span is not None]
    for result in reversed(results):
        start, end = result.block.output_span or (0, 0)
        lines = [line.rstrip() for line in result.printed.strip("\n").splitlines()]
        text = text[:start] + "".join(f"{line}\n" for line in lines) + text[end:]
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Rewrite the outputs of the pages named on the command line."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(name).resolve()
            here = Path.cwd()
            os.chdir(folder)
            try:
                rewrite(path)
            finally:
                os.chdir(here)


if __name__ == "__main__":
    main()
