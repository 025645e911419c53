"""Gradient training of models with networks.

A ``task`` is made ready with its ``losses``, ``seeds`` and ``warm_start``; ``gradient`` trains one member and
``stacked`` several in one pass, both in the same ``loop`` under the same ``training`` settings, with the
``hooks`` of users and the ``smoothing`` they ask for.
"""

from deeptram.fitting.deep import hooks

__all__ = ["hooks"]
