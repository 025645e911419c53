"""Checks on a list of terms, and what a model needs to know about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.model.terms.complex_intercept import CI
from deeptram.model.terms.complex_shift import CS
from deeptram.model.terms.linear_shift import LS
from deeptram.model.terms.scale import Scale
from deeptram.model.terms.simple_intercept import SI
from deeptram.model.terms.varying import Varying

Term = SI | CI | LS | CS | Scale | Varying


@dataclass(frozen=True)
class Spec:
    """The terms of one model, sorted by their part in h.

    ``h(y | D) = exp(scale / 2) * a(y)'theta(D) - linear - complex``.

    Examples
    --------
    >>> spec = Spec.of([LS("age + sex")])
    >>> spec.intercept, spec.is_deep
    (SI(strata=None), False)
    """

    intercept: SI | CI
    linear: LS | None = None
    shifts: tuple[CS, ...] = ()
    scale: Scale | None = None
    varying: Varying | None = None

    @property
    def is_deep(self) -> bool:
        """Whether a network takes part, so that the exact fit does not apply."""
        return isinstance(self.intercept, CI) or bool(self.shifts)

    @classmethod
    def of(cls, terms: Iterable[Term] | Term | None) -> Spec:
        """Sort terms; ``None`` means a linear shift of all columns.

        At most one intercept, one linear shift, one scale and one varying term
        may be given; several complex shifts add up.
        """
        if terms is None:
            return cls(intercept=SI(), linear=LS())
        if not isinstance(terms, Term | Iterable):
            raise InvalidTypeError(
                f"terms must be a list of SI, CI, LS, CS, Scale and Varying; got {terms!r}: "
                "for example terms=[dt.SI(), dt.LS('age + sex')]."
            )
        listed = [terms] if isinstance(terms, Term) else list(terms)
        for term in listed:
            if not isinstance(term, Term):
                raise InvalidTypeError(
                    f"terms must be SI, CI, LS, CS, Scale or Varying; got {type(term).__name__}: "
                    "for example terms=[dt.SI(), dt.LS('age + sex')]."
                )
        intercepts = [t for t in listed if isinstance(t, SI | CI)]
        linear = [t for t in listed if isinstance(t, LS)]
        scales = [t for t in listed if isinstance(t, Scale)]
        varying = [t for t in listed if isinstance(t, Varying)]
        for name, found in (
            ("intercept (SI or CI)", intercepts),
            ("LS", linear),
            ("Scale", scales),
            ("Varying", varying),
        ):
            if len(found) > 1:
                raise InvalidInputError(
                    f"at most one {name} term is allowed; got {len(found)}: put all columns into one term."
                )
        return cls(
            intercept=intercepts[0] if intercepts else SI(),
            linear=linear[0] if linear else None,
            shifts=tuple(t for t in listed if isinstance(t, CS)),
            scale=scales[0] if scales else None,
            varying=varying[0] if varying else None,
        )

    @property
    def name(self) -> str:
        """The paper's name of the model, e.g. ``SI-CS-LS`` (Table 1)."""
        parts = ["CI" if isinstance(self.intercept, CI) else "SI"]
        parts += ["CS"] * bool(self.shifts) + ["LS"] * (self.linear is not None)
        return "-".join(parts)
