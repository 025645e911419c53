"""The site: its reference misses no name, its formulas are drawn, its numbers from R are R's; it builds and reads well."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.figure
import pytest

import deeptram as dt

pytest.importorskip("griffe", reason="needs the docs extra")
import api_pages
import docstring_roles
import formula_images
import page_code
import site_checks

from headless_browser import find_browser

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_the_reference_has_every_public_name_once():
    written = [path for page in api_pages.subjects() for path, _ in page.names]
    assert sorted(written) == sorted(api_pages.public_names())
    assert {f"deeptram.{name}" for name in dt.__all__ if callable(getattr(dt, name))} <= set(written)
    assert {"deeptram.metrics.qwk", "deeptram.errors.NotFittedError", "deeptram.bases.Basis"} <= set(written)
    assert api_pages.undocumented() == []


def test_a_name_without_docstring_is_found(monkeypatch):
    def bare() -> None: ...

    monkeypatch.setattr(api_pages, "public_names", lambda: {"deeptram.bare": bare, "deeptram.Tram": dt.Tram})
    assert api_pages.undocumented() == ["deeptram.bare"]


def test_sphinx_roles_become_markdown():
    text = "See :func:`~deeptram.pool`, :math:`F_Z^{-1}`.\n\n.. math:: a\n    + b\n\nEnd."
    assert (
        docstring_roles.as_markdown(text) == "See `deeptram.pool`, \\(F_Z^{-1}\\).\n\n\n\\[a + b\\]\n\n\nEnd."
    )


def test_parameters_described_together_keep_their_own_defaults():
    text = "What.\n\nParameters\n----------\na, b : int\n    Both.\n\n    More.\nc\n    One.\n\nReturns\n-------\nx, y : int\n    Two.\n"
    alone = "a : int\n    Both.\n\n    More.\nb : int\n    Both.\n\n    More.\nc\n"
    assert docstring_roles.one_by_one(text) == text.replace("a, b : int\n    Both.\n\n    More.\nc\n", alone)


def test_the_index_of_f_is_set_in_sentences_only():
    page_hooks = pytest.importorskip("page_hooks", reason="needs the docs extra")
    shown = page_hooks.on_page_content(
        "<p>F_Z, <code>F_Z</code> <a title='F_Z'>f_Z⁻¹</a></p>", None, None, None
    )
    assert shown == "<p>F<sub>Z</sub>, <code>F_Z</code> <a title='F_Z'>f<sub>Z</sub>⁻¹</a></p>"


def test_a_figure_needs_labels_or_an_alternative_text():
    page_hooks = pytest.importorskip("page_hooks", reason="needs the docs extra")
    bare = matplotlib.figure.Figure()
    bare.subplots()
    with pytest.raises(ValueError, match="a figure without labels needs its alternative text"):
        page_hooks._described(bare)


def test_every_formula_of_the_reference_can_be_drawn():
    formulas = set()
    for _, thing in api_pages.public_names().items():
        module = importlib.import_module(getattr(thing, "__module__", None) or "deeptram")
        text = docstring_roles.as_markdown(Path(str(module.__file__)).read_text(encoding="utf-8"))
        formulas |= {a or b for a, b in re.findall(r"(?<!\\)\\\((.*?)\\\)|(?<!\\)\\\[(.*?)\\\]", text)}
    assert len(formulas) > 100
    for formula in formulas:
        assert formula_images.formula_svg(" ".join(formula.split())).startswith("<svg")


def test_a_formula_that_cannot_be_drawn_is_named():
    with pytest.raises(ValueError, match=r"formula .*nonsense.* cannot be drawn"):
        formula_images.draw_formulas(r'<span class="arithmatex">\(\nonsense{x}\)</span>')


def literals(page: Path) -> list[dict[str, float]]:
    """Return the dictionaries of numbers that the code of a page contains."""
    found = []
    for block in page_code.blocks(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.Dict):
                try:
                    found.append(ast.literal_eval(node))
                except ValueError:
                    continue
    return found


def test_numbers_from_r_are_those_of_the_reference_cases(golden):
    shown = literals(ROOT / "docs" / "guide" / "six_packages.md")
    housing, cox, aft = (
        golden(f"{name}.json")
        for name in ("polr_housing_logistic", "coxph_gbsg2_log", "survreg_gbsg2_weibull")
    )
    polr, survreg = housing["cross_check"]["polr"], aft["cross_check"]["survreg"]
    coxph = golden("coxph_gbsg2.json")["cross_check"]["coxph"]["coef"]
    for expected in (
        {
            "InflHigh": polr["coef"]["InflHigh"],
            "ContHigh": polr["coef"]["ContHigh"],
            "Low|Medium": polr["zeta"]["Low|Medium"],
        },
        {
            "InflHigh": housing["coef_r"]["InflHigh"],
            "ContHigh": housing["coef_r"]["ContHigh"],
            "logLik": housing["logLik_r"],
        },
        {"horThyes": coxph["horThyes"], "pnodes": coxph["pnodes"]},
        {"horThyes": cox["coef_r"]["horThyes"], "pnodes": cox["coef_r"]["pnodes"]},
        {"horThyes": survreg["coef"]["horThyes"], "scale": survreg["scale"], "logLik": survreg["logLik"]},
        {"horThyes": aft["coef_r"]["horThyes"], "logLik": aft["logLik_r"]},
    ):
        assert pytest.approx(expected, abs=6e-5) in [one for one in shown if one.keys() == expected.keys()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_pages_are_read_as_written(page):
    """Every fence is closed, and its marks are ones that the build knows."""
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") % 2 == 0 or text.startswith("```")
    for fence in page_code.FENCE.finditer(text):
        marks = page_code.FIGURE.sub("", fence["marks"]).split()
        assert set(marks) <= {"run", "html", "fold"}, fence["marks"]


@pytest.mark.slow
@pytest.mark.browser
def test_the_site_builds_and_reads_well(tmp_path):
    if find_browser() is None:
        pytest.skip("no browser")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(
        command, cwd=ROOT, text=True, capture_output=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    assert list(site_checks.findings(site, pages)) == []


@pytest.mark.browser
def test_what_is_wrong_with_a_page_is_found(tmp_path):
    if find_browser() is None:
        pytest.skip("no browser")
    page = tmp_path / "index.html"
    page.write_text(
        "<html><body><article><h1>a</h1><h3>b</h3><p style='color:#aaa'>pale</p><img src='none.png'>"
        "<a href='x'></a><div style='width:2000px'>wide</div></article><script>console.error('bad')</script>"
        "<script src='http://example.org/x.js'></script></body></html>"
    )
    shutil.copy(page, tmp_path / "other.html")
    found = "\n".join(site_checks.page_findings(tmp_path, [page]))
    for words in (
        "no language",
        "alternative text",
        "does not load",
        "without a name",
        "heading after level 1",
        "contrast 2.32",
        "wider than the window",
        "the console says (dark): bad",
        "asks the network",
    ):
        assert words in found
