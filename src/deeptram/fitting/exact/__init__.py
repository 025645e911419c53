"""Exact fits: the optimum of models without networks, in float64, with a certificate.

``fit`` sets up a ``problem`` (``columns``, ``starts``), minimises, and asks ``diagnosis`` (``separation``)
what is wrong where there is no finite optimum; ``nominal`` and ``scored`` are other objectives,
``inference`` goes on from a fit.
"""
