"""Exact fits: the optimum of models without networks, in float64, with a certificate."""
