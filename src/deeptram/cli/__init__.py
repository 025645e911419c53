"""The command line: ``deeptram --help``.

Belongs here: one module per command (or two that belong together), and reading users' tables.
May import: everything; ``main``, ``group`` and ``options`` only what is quick to load.
Start reading at ``main``, then ``options``: a command is a typed function.
"""

from __future__ import annotations
