"""The command line: ``deeptram --help``."""

from __future__ import annotations
