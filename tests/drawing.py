"""What tests of figures ask about matplotlib axes."""

from __future__ import annotations

LEVELS = ("low", "mid", "high", "severe")


def labels(ax):
    """The entries of the legend."""
    return [] if ax.get_legend() is None else [text.get_text() for text in ax.get_legend().get_texts()]


def legend_is_outside(ax):
    """Whether the legend covers none of the axes."""
    box = ax.get_legend().get_window_extent()
    return box.x0 >= ax.get_window_extent().x1
