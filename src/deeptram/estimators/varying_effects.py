"""Effects that change with the outcome, read off a fitted model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from deeptram._validation import check_float_vector, check_probability_level
from deeptram.bases import Bernstein
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.estimators.coefficient_table import SIGN
from deeptram.estimators.sklearn_words import require_fit
from deeptram.latent import Latent
from deeptram.model import Design, Outcome

Array = NDArray[np.float64]

_POINTS = 101


class VaryingEffectsMixin:
    """The effects of ``Varying`` columns."""

    outcome_: Outcome
    design_: Design
    latent_: Latent
    vcov_: pd.DataFrame
    model_: Any

    def effect(self, y: Any = None, level: float = 0.95) -> pd.DataFrame:
        r"""Return the effects of the ``Varying`` columns at some outcomes.

        :math:`\beta_j(y) = -a(y)'\vartheta_j`: what one unit of the column takes
        from h at y, with the sign of all coefficients (positive: a larger
        outcome). In a model with ``Scale`` it is multiplied by the row's scale.

        Parameters
        ----------
        y : array-like, optional
            Outcomes; for classes, levels but the last (the cutoff is above the
            level). Default: all cutoffs, or 101 points of the support.
        level : float
            Level of the Wald limits.

        Returns
        -------
        DataFrame
            Columns ``column, y, coef, se, lower, upper``.

        Examples
        --------
        >>> import numpy as np, deeptram as dt
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=(300, 1))
        >>> y = np.digitize(np.exp(0.5 * x[:, 0]) * rng.logistic(size=300), [-1.0, 1.0])
        >>> dt.Polr([dt.Varying("x0")]).fit(x, y).effect()["coef"].round(2).tolist()
        [-0.39, 0.32]
        """
        require_fit(self)
        level = check_probability_level(level)
        if self.design_.varying is None:
            raise UnsupportedError(
                "effect() shows effects that change with the outcome, got a model without them; add "
                "dt.Varying(...), or read coef_"
            )
        points, rows = self._basis_rows(y)
        half = stats.norm.ppf((1 + level) / 2)
        frames = []
        for j, name in enumerate(self.design_.varying.names):
            value, se = self._linear_combination(j, rows)
            columns = {"coef": value, "se": se, "lower": value - half * se, "upper": value + half * se}
            frames.append(pd.DataFrame({"column": name, "y": points, **columns}))
        table = pd.concat(frames, ignore_index=True)
        table.attrs.update(sign=SIGN, effect=self.latent_.effect_name, level=level)
        return table

    def _basis_rows(self, y: Any) -> tuple[list[Any], Array]:
        """Return outcomes and the basis at them, shape (m, d)."""
        outcome = self.outcome_
        d = outcome.basis.n_coef
        if outcome.levels is not None:
            chosen = list(outcome.levels[:-1] if y is None else np.atleast_1d(np.asarray(y)).ravel())
            codes = np.asarray(outcome.encode(chosen).codes)
            if (codes == d).any():
                raise InvalidInputError(
                    "effects of classes belong to the cutoffs above all levels but the last, got "
                    f"{outcome.levels[-1]!r}; leave it out"
                )
            return chosen, np.eye(d)[codes]
        values = self._support_points(_POINTS) if y is None else check_float_vector(np.atleast_1d(y), "y")
        seen = outcome.encode(values).observations
        at = values if seen is None else seen.within(outcome.basis.domain).upper
        return list(values), outcome.basis.evaluate(at)

    def _support_points(self, count: int) -> Array:
        """Return evenly spaced outcomes from one end of the support to the other."""
        outcome = self.outcome_
        basis = outcome.basis
        if not isinstance(basis, Bernstein):
            raise InvalidInputError(
                "effect() needs the outcomes at which effects are wanted, got none, and a straight line "
                "has no support to take them from; pass y"
            )
        points = (np.geomspace if basis.log_first else np.linspace)(*basis.support, count)
        if outcome.kind == "count":
            return np.asarray(np.unique(points.round()) - int(basis.log_first))
        return np.asarray(points)

    def _linear_combination(self, column: int, rows: Array) -> tuple[Array, Array]:
        """Return -a'theta of a varying column for rows a, and standard errors."""
        block, d = self.design_.n_strata + column, rows.shape[1]
        own = slice(block * d, (block + 1) * d)
        variance = np.einsum("ij,jk,ik->i", rows, self.vcov_.to_numpy()[own, own], rows)
        with np.errstate(invalid="ignore"):
            return -rows @ self.model_.theta[block], np.sqrt(np.where(variance >= 0, variance, np.nan))

    def _varying_rows(self) -> list[tuple[str, float, float]]:
        """Return names, values and standard errors of varying effects for the summary."""
        levels, basis, varying = self.outcome_.levels, self.outcome_.basis, self.design_.varying
        if levels is not None:
            rows, labels = np.eye(basis.n_coef), [f"at {a}|{b}" for a, b in itertools.pairwise(levels)]
        elif isinstance(basis, Bernstein):
            points, rows = self._basis_rows(self._support_points(5)[1:-1])
            labels = [f"at {point:.4g}" for point in points]
        else:
            rows = np.eye(basis.n_coef)
            labels = ["at 0", "per unit of y"] if basis.name == "linear" else ["at 1", "per unit of log(y)"]
            labels = labels[: basis.n_coef]
        found = []
        for j, name in enumerate([] if varying is None else varying.names):
            pairs = zip(labels, *self._linear_combination(j, rows), strict=True)
            found += [(f"{name} {label}", float(value), float(error)) for label, value, error in pairs]
        return found
