"""From the user's X to numbers: design matrices, encoded columns, images.

Belongs here: reading tables, formulas and images, with the state that new data need.
May import: ``responses`` and below.
Start reading at ``table``, ``formula``, ``images``, ``shards``, ``entries``.
"""

from deeptram.inputs.encode import LinearEncoder
from deeptram.inputs.entries import AsIs
from deeptram.inputs.factors import FactorEncoder
from deeptram.inputs.images import FolderImages
from deeptram.inputs.shards import TarImages, write_shards
from deeptram.inputs.table import Table, read_table

__all__ = [
    "AsIs",
    "FactorEncoder",
    "FolderImages",
    "LinearEncoder",
    "Table",
    "TarImages",
    "read_table",
    "write_shards",
]
