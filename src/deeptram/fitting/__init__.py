"""Fitting: exact convex maximum likelihood, and gradient training of networks.

Belongs here: from a model's data to its fitted numbers, in two ways.
May import: ``model`` and below.
Start reading at ``exact.fit.fit_exact`` and ``deep.gradient.fit_deep``.
"""
