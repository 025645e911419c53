"""What a notebook shows of a fitted model: its terms, h in words, the fit, and the coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deeptram._html import card, few_digits
from deeptram.bases import Basis
from deeptram.estimators.coefficient_table import described_outcome
from deeptram.model import Outcome

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram

SHOWN_ROWS = 20


def model_card(model: BaseTram) -> str:
    """Return the card of a fitted model.

    Parameters
    ----------
    model : BaseTram
        Fitted.
    """
    events = getattr(model, "n_events_", None)
    rows = f"{model.n_obs_}" if events is None else f"{model.n_obs_}, {events} events"
    exact = not model.spec_.is_deep
    how = "exact maximum likelihood" if exact and model.loss == "nll" else f"minimum {model.loss}"
    facts = {
        "terms": described_terms(model),
        "h": h_in_words(model.outcome_),
        "F_Z": model.latent_.name,
        "rows": rows,
        "log-likelihood": f"{model.loglik_:.2f} ({how if exact else 'trained with gradients'})",
    }
    title = f"{type(model).__name__}: {described_outcome(model.outcome_)}"
    return card(title, facts, coefficients_html(model.summary()))


def coefficients_html(table: Any) -> str:
    """Return the first rows of a coefficient table, with its header."""
    if not len(table):
        return "<p>No coefficients.</p>"
    shown = table.head(SHOWN_ROWS)
    shown.attrs["header"] = [
        line for line in table.attrs.get("header", ()) if line.startswith(("coef:", "se:"))
    ]
    return str(shown.round(4)._repr_html_())


def described_terms(model: BaseTram) -> str:
    """Return the terms as they were written, or what stands for none."""
    terms = model.terms
    if terms is None:
        return "linear shift of all columns"
    return ", ".join(_term(term) for term in (terms if isinstance(terms, list | tuple) else [terms]))


def _term(term: Any) -> str:
    """Return a term without the settings of its network: ``CS(MLP: bp)``."""
    columns = getattr(term, "columns", None) or getattr(term, "strata", None) or ""
    named = ", ".join(columns) if isinstance(columns, tuple) else str(columns)
    net = getattr(term, "net", None)
    inside = [] if net is None else [getattr(net, "__name__", type(net).__name__)]
    return f"{type(term).__name__}({': '.join([*inside, *([named] if named else [])])})"


def h_in_words(outcome: Outcome) -> str:
    """Return what form h has.

    Parameters
    ----------
    outcome : Outcome

    Examples
    --------
    >>> from deeptram.model import OutcomeSettings
    >>> h_in_words(Outcome.fit(OutcomeSettings("ordinal"), [1, 2, 3])[0])
    'a cutpoint below each level but the first'
    >>> h_in_words(Outcome.fit(OutcomeSettings("continuous"), [1.0, 2.0, 4.0])[0])
    'smooth and increasing: a Bernstein polynomial of order 6 between 1 and 4'
    """
    if outcome.kind.is_nominal:
        return "none: each level has a logit against the first"
    if outcome.levels is not None:
        return "a cutpoint below each level but the first"
    return _line_in_words(outcome.basis)


def _line_in_words(basis: Basis) -> str:
    if basis.name == "bernstein":
        low, high = (few_digits(end) for end in basis.support)
        scale = " of log y" if getattr(basis, "log_first", False) else ""
        order = getattr(basis, "order", basis.n_coef - 1)
        return (
            f"smooth and increasing: a Bernstein polynomial{scale} of order {order} between {low} and {high}"
        )
    if basis.is_line or basis.n_coef == 1:
        return f"a line in {'log y' if basis.domain[0] == 0 else 'y'}"
    return f"increasing, {basis.n_coef} coefficients of the basis {basis.name!r}"
