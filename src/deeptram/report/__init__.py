"""The report of a run: one HTML file, static figures, tables."""

from __future__ import annotations

from deeptram.report.build import build_report

__all__ = ["build_report"]
