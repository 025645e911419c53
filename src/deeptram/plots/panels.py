"""Several small axes inside one, for figures with a panel for each metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN_GAP = 0.28  # inches
ROW_GAP = 0.68
TITLE_ROOM = 0.24


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
