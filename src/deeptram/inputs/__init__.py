"""From the user's X to numbers: design matrices, encoded columns, images.

Belongs here: reading tables, formulas and images, with the state that new data need.
May import: ``responses`` and below.
Start reading at ``table``, ``formula``, ``images``.
"""

from deeptram.inputs.encode import LinearEncoder
from deeptram.inputs.factors import FactorEncoder
from deeptram.inputs.table import Table, read_table

__all__ = ["FactorEncoder", "LinearEncoder", "Table", "read_table"]
