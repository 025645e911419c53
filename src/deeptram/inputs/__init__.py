"""From the user's X to numbers: design matrices of linear terms."""

from deeptram.inputs.encode import LinearEncoder
from deeptram.inputs.factors import FactorEncoder
from deeptram.inputs.table import Table, read_table

__all__ = ["FactorEncoder", "LinearEncoder", "Table", "read_table"]
