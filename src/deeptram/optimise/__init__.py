"""Optimisers with certificates: Newton under linear inequalities, quadratic programmes, the simplex.

Belongs here: minimising functions of vectors, with proof; no model, no data.
May import: the leaf modules.
Start reading at ``newton``.
"""
