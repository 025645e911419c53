"""``Display``: what every plot function returns, a tidy table that can draw itself; axes in panels."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pandas as pd

from deeptram.plots.style import paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN_GAP = 0.28  # inches
ROW_GAP = 0.68
TITLE_ROOM = 0.24


@dataclass(frozen=True, eq=False)
class Display(ABC):
    """A figure as data first: ``frame()`` is the table, ``plot()`` draws it.

    Implementing a display: inherit as a frozen dataclass, add fields for what
    the table does not say, and implement ``_draw`` on one matplotlib ``Axes``.
    Override ``size`` if the figure grows with the table.

    Parameters
    ----------
    table : DataFrame
        Everything the figure shows.

    Examples
    --------
    >>> from deeptram.plots import weights
    >>> weights([0.2, 0.8]).frame()
          name  member  weight
    0  weights       1     0.2
    1  weights       2     0.8
    """

    table: pd.DataFrame

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches of a figure of its own."""
        return 5.2, 3.4

    def frame(self) -> pd.DataFrame:
        """Return a copy of the tidy table behind the figure."""
        return self.table.copy()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on ``ax``, or on a new figure, and return the ``Axes``.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw. A new figure uses matplotlib's "constrained" layout,
            which makes room for the legend beside the data; so should yours.
        """
        with paper_style():
            if ax is None:
                from matplotlib import pyplot as plt

                ax = plt.subplots(figsize=self.size, layout="constrained")[1]
            self._draw(ax)
        return ax

    def save(self, path: str | Path, dpi: float = 200) -> Path:
        """Draw into a file (its suffix is the format) without opening a window, and return its path."""
        target = Path(path)
        self._write(target, dpi=dpi)
        return target

    def _write(self, target: Path | BinaryIO, **settings: Any) -> None:
        from matplotlib.figure import Figure

        with paper_style():
            figure = Figure(figsize=self.size, layout="constrained")
            self._draw(figure.subplots())
            figure.savefig(target, **settings)

    def _repr_png_(self) -> bytes:
        """Draw the figure where a notebook shows the result of a cell."""
        with io.BytesIO() as file:
            self._write(file, dpi=144, format="png")
            return file.getvalue()

    @abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw the table on ``ax``."""


def n_columns(n: int) -> int:
    """Return how many panels stand side by side.

    Examples
    --------
    >>> [n_columns(n) for n in range(1, 8)]
    [1, 2, 3, 2, 3, 3, 3]
    """
    return 2 if n == 4 else min(n, 3)


def panels(ax: Axes, n: int) -> list[Axes]:
    """Divide an axes into n panels, row by row; the axes itself becomes an invisible host (its title stays).

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> len(panels(Figure().subplots(), 4))
    4
    """
    ax.set_axis_off()
    columns = n_columns(n)
    rows = -(-n // columns)
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    column_gap, row_gap = COLUMN_GAP * dpi / box.width, ROW_GAP * dpi / box.height
    top = 1 - TITLE_ROOM * dpi / box.height
    width = (1 - (columns - 1) * column_gap) / columns
    height = (top - (rows - 1) * row_gap) / rows
    return [
        ax.inset_axes(
            (
                (k % columns) * (width + column_gap),
                top - height - (k // columns) * (height + row_gap),
                width,
                height,
            )
        )
        for k in range(n)
    ]
