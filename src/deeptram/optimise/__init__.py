"""Optimisers with certificates: Newton under linear inequalities, quadratic programmes, the simplex."""
