"""Data sets of the paper, embedded data, and simulations with known truth.

Belongs here: loaders that return a ``Dataset``; files are untrusted.
May import: ``inputs``, ``responses`` and the leaf modules.
Start reading at ``base.Dataset``, then ``digits``.
"""

from __future__ import annotations

from deeptram.datasets.base import Dataset
from deeptram.datasets.digits import load_digits, load_mnist
from deeptram.datasets.image_studies import check, load_ham10000, load_melanoma, load_utkface
from deeptram.datasets.simulated import PAPER_EFFECTS, simulate, simulate_covariates
from deeptram.datasets.sources import cache_folder

__all__ = [
    "PAPER_EFFECTS",
    "Dataset",
    "cache_folder",
    "check",
    "load_digits",
    "load_ham10000",
    "load_melanoma",
    "load_mnist",
    "load_utkface",
    "simulate",
    "simulate_covariates",
]
