"""What the build of the site adds to MkDocs: pages are made, code is run, formulas are drawn."""

from __future__ import annotations

import io
import os
import re
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import Any

import api_pages
import command_page
import matplotlib as mpl
import page_code
from formula_images import draw_formulas
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from deeptram.plots import paper_style

mpl.use("Agg")
from matplotlib import pyplot as plt  # after the choice of the backend

COMMANDS = "<!-- every command -->"
SUBJECTS = "<!-- every subject -->"
HOW_TO, REFERENCE = "How-to", "Reference"
LARGEST_SVG = 400_000
# F_Z and f_Z in a sentence, not those in code and formulas.
SUBSCRIPT = re.compile(
    r"(?P<kept><(?P<tag>pre|code|svg)\b.*?</(?P=tag)>|<[^>]*>|\\\(.*?\\\)|\\\[.*?\\\])|\b(?P<letter>[Ff])_Z",
    re.DOTALL,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every how-to and every page of the reference into the navigation."""
    sections = {title: section for entry in config.nav or [] for title, section in entry.items()}
    how_to = sections[HOW_TO]
    listed = {page for page in how_to if isinstance(page, str)}
    found = sorted(Path(config.docs_dir).glob("howto/*.md"))
    how_to += [name for path in found if (name := f"howto/{path.name}") not in listed]
    sections[REFERENCE] += [{page.title.replace("`", ""): page.path} for page in api_pages.subjects()]
    missing = api_pages.undocumented()
    if missing:
        raise PluginError(f"public names without a docstring: {', '.join(missing)}")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference."""
    for page in api_pages.subjects():
        files.append(File.generated(config, page.path, content=api_pages.markdown(page)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Run the code of a page, check what it prints and show the figures it draws."""
    markdown = markdown.replace(COMMANDS, command_page.markdown() if COMMANDS in markdown else "")
    markdown = markdown.replace(SUBJECTS, api_pages.subject_table())
    if page.file.generated_by is not None or not page_code.blocks(markdown):
        return markdown
    results, drawn = _run(Path(config.docs_dir) / page.file.src_uri)
    pieces, at = [], 0
    for result, block in zip(results, page_code.blocks(markdown), strict=True):
        if page_code.differs(result):
            raise PluginError(
                f"{page.file.src_uri}, line {result.block.line}: the page shows {result.block.output!r}, "
                f"the code printed {result.printed!r}"
            )
        code = _clean_fence(markdown[block.start : block.end])
        end = block.end if block.output_end is None else block.output_end
        made = []
        for k, (figure, text) in enumerate(drawn.get(result.block.line, ())):
            place = page.file.src_uri.removesuffix(".md").replace("/", "-")
            name = f"{place}-{result.block.line}-{k}{figure[0]}"
            files.append(File.generated(config, f"figures/{name}", content=figure[1]))
            up = "../" * page.file.src_uri.count("/")
            made.append(f"\n\n![{text}]({up}figures/{name}){{ .drawn }}\n")
        if result.value is not None:
            made.append(f'\n\n<div class="notebook">{result.value._repr_html_()}</div>\n')
        if block.is_folded:
            code = '??? note "Code"\n\n' + textwrap.indent(code, "    ")
            pieces += [markdown[at : block.start], *made, "\n", code]
        else:
            pieces += [markdown[at : block.start], code, markdown[block.end : end], *made]
        at = end
    return "".join(pieces) + markdown[at:]


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the formulas; F_Z gets its subscript; anchors of the reference are places, not links."""
    html = re.sub(r'<a href="" id="([^"]+)"></a>', r'<span id="\1"></span>', html)
    html = SUBSCRIPT.sub(lambda found: found["kept"] or f"{found['letter']}<sub>Z</sub>", html)
    try:
        return draw_formulas(html)
    except ValueError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error


def on_post_build(config: MkDocsConfig) -> None:
    """Check that every public name stands in the reference that was written."""
    written = "".join(
        path.read_text(encoding="utf-8") for path in Path(config.site_dir, "reference").glob("*.html")
    )
    missing = [name for name in api_pages.public_names() if f'id="{name}"' not in written]
    if missing:
        raise PluginError(f"public names that the reference does not show: {', '.join(missing)}")


def _run(path: Path) -> tuple[list[page_code.Result], dict[int, list[tuple[tuple[str, bytes], str]]]]:
    """Run a page in an empty folder; return results, and the figures by the line of their block."""
    results, drawn = [], {}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), paper_style():
        warnings.simplefilter("error")
        os.chdir(folder)
        try:
            for result in page_code.run_blocks(path):
                results.append(result)
                figures = [plt.figure(number) for number in plt.get_fignums()]
                drawn[result.block.line] = [
                    (_picture(figure), result.block.alternative or _described(figure)) for figure in figures
                ]
                plt.close("all")
        except Exception as error:
            line = page_code.blocks(path.read_text(encoding="utf-8"))[len(results)].line
            raise PluginError(
                f"{path.name}, block at line {line}: {type(error).__name__}: {error}"
            ) from error
        finally:
            os.chdir(here)
    return results, drawn


def _picture(figure: Any) -> tuple[str, bytes]:
    """Return the suffix and the content of a figure's file."""
    with mpl.rc_context({"svg.hashsalt": "deeptram"}):
        for suffix, settings in ((".svg", {"metadata": {"Date": None}}), (".png", {"dpi": 200})):
            out = io.BytesIO()
            figure.savefig(out, format=suffix[1:], bbox_inches="tight", **settings)
            if len(out.getvalue()) <= LARGEST_SVG:
                break
    return suffix, out.getvalue()


def _described(figure: Any) -> str:
    """Return a sentence for a figure whose block has none: what its axes show."""
    axes = [ax for ax in figure.axes if ax.get_ylabel() or ax.get_xlabel()]
    if not axes:
        raise ValueError(
            'a figure without labels needs its alternative text: `python figure="what it shows"`'
        )
    return "; ".join(f"{ax.get_ylabel() or 'values'} by {ax.get_xlabel() or 'index'}" for ax in axes[:2])


def _clean_fence(text: str) -> str:
    """Return a fence without the marks that are for the build."""
    first, _, rest = text.partition("\n")
    return f"{re.match('```[a-z]*', first)[0]}\n{rest}"
