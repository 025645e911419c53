"""The code in README and docs runs, and prints what the page says it prints."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import page_code
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run_page(path: Path) -> None:
    """Run the blocks of a page one after the other, as a reader would."""
    for result in page_code.run_blocks(path):
        assert not page_code.differs(result), f"{path.name}, line {result.block.line}: {result.printed}"


@pytest.mark.filterwarnings("error:training.* had not ended")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs(path, tmp_path, monkeypatch, registries):
    monkeypatch.chdir(tmp_path)
    run_page(path)
    plt.close("all")


def test_readme_starts_with_a_short_example_whose_output_is_shown():
    first = page_code.blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert len(first.code.splitlines()) <= 15
    assert first.output


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "tests/README.md"])
def test_make_targets_named_in_pages_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", (ROOT / page).read_text(encoding="utf-8"), re.M)
    assert named
    assert {a or b for a, b in named} <= set(targets)


def test_files_and_names_of_the_papers_map_exist():
    text = (ROOT / "docs/paper_map.md").read_text(encoding="utf-8")
    places = [ROOT / "src/deeptram", ROOT / "tests", ROOT]
    named = re.findall(r"`([\w-]+/[\w./-]*)`(?: \(((?:`[^`]+`(?:, )?)+)\))?", text)
    assert len(named) > 100
    for path, names in named:
        found = [place / path for place in places if (place / path).exists()]
        assert found, path
        for name in re.findall("`([^`]+)`", names):
            assert name in found[0].read_text(encoding="utf-8"), f"{name} in {path}"


def test_wrong_output_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md, line 6"):
        run_page(page)


@pytest.mark.parametrize(
    ("shown", "agrees"), [("0.40", True), ("0.41", True), ("0.42", False), ("0.4", False), ("(0.40", False)]
)
def test_one_unit_of_the_last_decimal_is_rounding(tmp_path, shown, agrees):
    page = tmp_path / "page.md"
    page.write_text(f"```python\nprint('x', 0.396.__format__('.2f'))\n```\n\n```text\nx {shown}\n```\n")
    (result,) = page_code.run_blocks(page)
    assert page_code.differs(result) is not agrees


def test_failing_code_names_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("words\n```python\n\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as error:
        run_page(page)
    assert error.traceback[-1].lineno + 1 == 4


@pytest.mark.parametrize("page", ["docs/paper_map.md", "tests/README.md", "CONTRIBUTING.md"])
def test_files_that_a_page_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md)|(?:\w+/)+)(?:::\w+)?`", text))
    homes = (ROOT, ROOT / "src", ROOT / "src" / "deeptram", ROOT / "tests", ROOT / "docs")
    assert named
    assert [name for name in sorted(named) if not any((home / name).exists() for home in homes)] == []
