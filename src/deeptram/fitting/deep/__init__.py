"""Gradient training of models with networks."""
