"""The terms of h: SI, CI, LS, CS, and the structured Scale and Varying."""

from __future__ import annotations

from deeptram.model.terms.complex_intercept import CI
from deeptram.model.terms.complex_shift import CS
from deeptram.model.terms.linear_shift import LS
from deeptram.model.terms.scale import Scale
from deeptram.model.terms.simple_intercept import SI
from deeptram.model.terms.spec import Spec, Term
from deeptram.model.terms.varying import Varying

__all__ = ["CI", "CS", "LS", "SI", "Scale", "Spec", "Term", "Varying"]
