"""The report of a run: one HTML file, static figures, tables; results as Markdown."""

from __future__ import annotations

from deeptram.paper.report.build import build_report, replace_block, results_markdown

__all__ = ["build_report", "replace_block", "results_markdown"]
