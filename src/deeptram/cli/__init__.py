"""The command line: ``deeptram --help``.

Belongs here: one module per command (or two that belong together), and reading users' tables.
May import: everything; ``main`` and ``group`` only what is quick to load.
Start reading at ``main``, then ``group``.
"""

from __future__ import annotations
