"""The terms of h: SI, CI, LS, CS, and the structured Scale and Varying."""

from __future__ import annotations

from deeptram.terms.complex_intercept import CI
from deeptram.terms.complex_shift import CS
from deeptram.terms.linear_shift import LS
from deeptram.terms.scale import Scale
from deeptram.terms.simple_intercept import SI
from deeptram.terms.spec import Spec, Term
from deeptram.terms.varying import Varying

__all__ = ["CI", "CS", "LS", "SI", "Scale", "Spec", "Term", "Varying"]
