"""Fill a page of results from runs: blocks are replaced, everything else on the page stays.

A block begins with ``<!-- run: NAME -->`` and ends with ``<!-- end of run: NAME -->``, where NAME is the name
of the run's folder; a run without a block gets one at the end of the page. With a file of cells the numbers
of every split are kept in it, too, and blocks named ``cells DATASET PRESET`` (or ``cells DATASET PRESET
PIXELS``) show those of all runs together, whenever they were made; ``--figures DIR`` draws these, too.

    python examples/results_page.py RUN [RUN ...] --page docs/results/mnist.md --cells docs/results/cells.csv
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
from PIL import Image

from deeptram.paper.cells import cells_markdown, cells_of_run, chosen_cells, keep_cells, read_cells
from deeptram.paper.figures import cell_figures, save_figures
from deeptram.paper.protocols import make_study
from deeptram.paper.report import replace_block, results_markdown

JOINED = re.compile(r"<!-- run: (cells (\w+) (\w+)(?: (\d+))?) -->")


def with_joined_cells(page: str, cells: pd.DataFrame) -> str:
    """Return the page with its blocks of joined cells filled."""
    for name, dataset, preset, pixels in JOINED.findall(page):
        table = cells_markdown(cells, dataset, preset, int(pixels) if pixels else None)
        page = replace_block(page, name, table)
    return page


def draw_joined_cells(page: str, cells: pd.DataFrame, folder: Path) -> None:
    """Draw the cells of the page's joined blocks, those of the first seed that a loss has."""
    for _, dataset, preset, pixels in JOINED.findall(page):
        chosen = chosen_cells(cells, dataset, preset, int(pixels) if pixels else None)
        for loss, of_loss in chosen.groupby("loss", sort=False):
            one_seed = of_loss[of_loss["seed"] == of_loss["seed"].min()]
            figures = cell_figures(one_seed, make_study(dataset, preset), str(loss))
            renamed = (replace(one, name=f"{dataset}-{preset}-{one.name}") for one in figures)
            for path in save_figures(renamed, str(loss), folder, ["png"]):
                with Image.open(path) as figure:
                    few = figure.convert("RGB").quantize(64, dither=Image.Dither.NONE)
                few.save(path, optimize=True)  # a quarter of the size


def main() -> None:
    """Evaluate the runs and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--cells", type=Path, default=None)
    parser.add_argument("--n-boot", type=int, default=None)
    parser.add_argument("--figures", type=Path, default=None)
    arguments = parser.parse_args()
    page = arguments.page.read_text(encoding="utf-8") if arguments.page.is_file() else "# Results\n"
    for run in arguments.runs:
        name = run.resolve().name
        page = replace_block(page, name, results_markdown(run, n_boot=arguments.n_boot))
        if arguments.cells is not None:
            keep_cells(arguments.cells, cells_of_run(run, n_boot=arguments.n_boot))
        print(f"{name}: written")
    if arguments.cells is not None:
        cells = read_cells(arguments.cells)
        page = with_joined_cells(page, cells)
        if arguments.figures is not None:
            draw_joined_cells(page, cells, arguments.figures)
    arguments.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
