"""Fitting: exact convex maximum likelihood, and gradient training of networks."""
