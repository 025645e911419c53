"""Fill a page of results from runs: each run's block is replaced, everything else on the page stays.

A block begins with ``<!-- run: NAME -->`` and ends with ``<!-- end of run: NAME -->``, where NAME is the name
of the run's folder; a run without a block gets one at the end of the page.

    python examples/results_page.py RUN [RUN ...] --page docs/results/mnist.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from deeptram.paper.report import replace_block, results_markdown


def main() -> None:
    """Evaluate the runs and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--n-boot", type=int, default=None)
    arguments = parser.parse_args()
    page = arguments.page.read_text(encoding="utf-8") if arguments.page.is_file() else "# Results\n"
    for run in arguments.runs:
        name = run.resolve().name
        page = replace_block(page, name, results_markdown(run, n_boot=arguments.n_boot))
        print(f"{name}: written")
    arguments.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
