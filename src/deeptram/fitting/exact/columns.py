"""The data of a model without networks, and its columns as a fit sees them: identified, centred, scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

from deeptram.bases import Basis
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.model.outcome import Encoded, Outcome
from deeptram.model.terms import Matrices
from deeptram.responses import Observations

Array = NDArray[np.float64]

_NO_SPREAD = 4 * float(np.finfo(np.float64).eps)
_LITTLE_SPREAD = 1e-8
_BLOCK_ROWS = 8_192
EPSILON = float(np.finfo(np.float64).eps)
_ROUNDING = 64.0  # errors of that many units in the last place are rounding
_CLEARLY = 1e-4
_SUSPICIOUS = 1e-5
_ALIKE = 0.1  # of two columns with about as much of their own the first is taken
_OBLIQUE = 1e-4
_MANY_COLUMNS = 500
_LARGEST_OUTCOME = 1e150  # beyond, squares overflow


@dataclass(frozen=True)
class StructuredData:
    """Everything the likelihood of a model without networks depends on.

    Attributes
    ----------
    latent, basis : Latent, Basis
        F_Z and the basis a(y).
    x : ndarray, shape (n, p)
        Columns of the linear shift (p may be 0).
    observations : Observations or None
        The outcome on the line; ``None`` for classes.
    codes, n_classes : ndarray of int (n,) or None, int
        The outcome as classes.
    weights : ndarray or None, shape (n,)
        Case weights.
    strata, n_strata : ndarray of int (n,) or None, int
        Stratum of each row.
    varying, scale : ndarray or None, shapes (n, J) and (n, q)
        Columns of the varying and of the scale term.
    """

    latent: Latent
    basis: Basis
    x: Array
    observations: Observations | None = None
    codes: NDArray[np.int64] | None = None
    n_classes: int = 0
    weights: Array | None = None
    strata: NDArray[np.int64] | None = None
    n_strata: int = 1
    varying: Array | None = None
    scale: Array | None = None

    @classmethod
    def of(
        cls,
        outcome: Outcome,
        latent: Latent,
        matrices: Matrices,
        encoded: Encoded,
        weights: Array | None,
        n_strata: int,
    ) -> StructuredData:
        """Put together what outcome and design have encoded."""
        return cls(
            latent=latent,
            basis=outcome.basis,
            x=matrices.x,
            observations=encoded.observations,
            codes=encoded.codes,
            n_classes=0 if outcome.levels is None else len(outcome.levels),
            weights=weights,
            strata=matrices.strata,
            n_strata=n_strata,
            varying=matrices.varying,
            scale=matrices.scale,
        )

    @property
    def cell(self) -> NDArray[np.int64]:
        """Stratum times number of classes plus class of each row, shape (n,)."""
        if self.codes is None:
            raise InvalidInputError("a model with cutpoints needs classes, got none; pass codes.")
        return self.codes if self.strata is None else self.strata * self.n_classes + self.codes

    @property
    def n_blocks(self) -> int:
        """Number of baseline vectors: one per stratum and per varying column."""
        return self.n_strata + (0 if self.varying is None else self.varying.shape[1])


@dataclass(frozen=True)
class ScaledColumns:
    """How columns of the linear shift become those of the fit, learned from some rows and used for any.

    Attributes
    ----------
    mean, sd : ndarray, shape (p,)
        Centre (zero in models with a scale term) and scale.
    aliased : ndarray of bool, shape (p,)
        Columns left out, because they are combinations of others.
    correlations : ndarray, shape (k, k)
        Mean products of the k columns of the fit.
    own : ndarray, shape (p,)
        How much of each column is no combination of the others.
    orthogonal : OrthogonalColumns or None
        Coordinates in which nothing cancels, where columns are nearly collinear.
    """

    mean: Array
    sd: Array
    aliased: NDArray[np.bool_]
    correlations: Array
    own: Array
    orthogonal: OrthogonalColumns | None = None

    @classmethod
    def learn(
        cls,
        x: Array,
        weights: Array | None,
        aliased: NDArray[np.bool_],
        *,
        centre: bool,
        turn: bool = True,
    ) -> ScaledColumns:
        """Return the scaling of the columns that are not aliased; nearly collinear ones may be turned."""
        mean, sd, scaled = standardize(x, weights, centre=centre)
        kept = np.flatnonzero(~aliased)
        columns = scaled if len(kept) == len(aliased) else np.ascontiguousarray(scaled[:, kept])
        own, turned = np.ones(len(aliased)), None
        if turn and len(kept) > 1:
            own[kept] = own_share(columns)
        w = np.ones(len(x)) if weights is None else weights
        if bool(own.min(initial=1.0) < _OBLIQUE):
            turned = OrthogonalColumns.learn(x[:, kept], columns, sd[kept], w if centre else None)
            columns = turned.of(x[:, kept], columns)
        return cls(mean, sd, aliased, columns.T @ (columns * w[:, None]) / w.sum(), own, turned)

    @property
    def turn(self) -> Array:
        """Coefficients of the kept, scaled columns are ``turn @ parameters``, shape (k, k)."""
        return np.eye(int((~self.aliased).sum())) if self.orthogonal is None else self.orthogonal.turn

    @property
    def are_plain(self) -> bool:
        """Whether all columns are used, and centred and scaled only."""
        return self.orthogonal is None and not self.aliased.any()

    def of(self, x: Array) -> Array:
        """Return the columns of the fit, shape (n, k), of any rows of plain columns (n, p)."""
        if self.are_plain:
            scaled = x - self.mean
            return np.divide(scaled, self.sd, out=scaled)
        kept = ~self.aliased
        scaled = (x[:, kept] - self.mean[kept]) / self.sd[kept]
        return scaled if self.orthogonal is None else self.orthogonal.of(x[:, kept], scaled)


def check_size(n: int, p: int) -> None:
    """Refuse many columns for too few rows at once; of fewer columns the fit tells what can be told.

    Parameters
    ----------
    n, p : int
        Number of rows and of columns.
    """
    if p >= n and p > _MANY_COLUMNS:
        raise InvalidInputError(
            f"a model without networks needs fewer columns than rows, got {p} columns (one per level of a "
            f"factor) and {n} rows: it fits every outcome without error, so there is no estimate; use fewer "
            "columns or levels, or a CS term with weight decay."
        )


def check_range(observations: Observations | None) -> None:
    """Refuse outcomes whose differences leave the range of floating-point numbers.

    Parameters
    ----------
    observations : Observations or None
        The outcome on the line, if it is there.
    """
    for ends in () if observations is None else (observations.lower, observations.upper):
        largest = float(np.abs(ends[np.isfinite(ends)]).max(initial=0.0))
        if largest > _LARGEST_OUTCOME:
            raise InvalidInputError(
                f"outcomes must be at most {_LARGEST_OUTCOME:.0e} in absolute value, got {largest:.1e}; "
                "rescale y (for example divide it by its largest value)."
            )


def standardize(x: Array, weights: Array | None, *, centre: bool) -> tuple[Array, Array, Array]:
    """Return mean (zero unless centred), standard deviation (one where constant) and scaled columns.

    Parameters
    ----------
    x : ndarray, shape (n, p)
        Columns.
    weights : ndarray or None, shape (n,)
        Case weights.
    centre : bool
        Whether to subtract the mean.

    Examples
    --------
    >>> mean, sd, scaled = standardize(np.array([[1.0], [3.0]]), None, centre=True)
    >>> mean, sd, scaled.ravel()
    (array([2.]), array([1.]), array([-1.,  1.]))
    """
    if x.shape[1] == 0:
        return np.zeros(0), np.ones(0), x
    mean, sd = _mean_and_spread(x, weights)
    flat = sd == 0
    sd = np.where(flat, 1.0, sd)
    if not centre:
        return np.zeros_like(mean), sd, x / sd
    scaled = (x - mean) / sd
    scaled[:, flat] = 0.0
    return mean, sd, scaled


def _mean_and_spread(x: Array, weights: Array | None) -> tuple[Array, Array]:
    """Return mean and standard deviation of columns; exactly zero where the values differ by rounding."""
    total = len(x) if weights is None else weights.sum()
    # without overflow and underflow: powers of two
    unit = np.exp2(np.ceil(np.log2(np.maximum(np.abs(x).max(axis=0, initial=0.0), 1e-300))))
    values = x / unit
    mean = values.sum(axis=0) / total if weights is None else weights @ values / total
    # once more about the mean: the sum's own rounding would look like spread
    values -= mean
    correction = values.sum(axis=0) / total if weights is None else weights @ values / total
    values -= correction
    square = np.einsum("ij,ij->j", values, values) if weights is None else weights @ values**2
    sd = np.sqrt(square / total)
    same = np.abs(values).max(axis=0, initial=0.0) <= _NO_SPREAD * np.abs(mean + correction)
    return (mean + correction) * unit, np.where(same, 0.0, sd) * unit


def moments(x: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return mean, standard deviation and correlation matrix of columns, in one pass after the mean.

    A column with hardly any spread has zeros in the correlation matrix; ``standardize`` is more careful.

    Parameters
    ----------
    x : ndarray, shape (n, p)
        Columns.
    weights : ndarray or None, shape (n,)
        Case weights.

    Examples
    --------
    >>> moments(np.array([[1.0, 2.0], [3.0, -2.0]]), None)
    (array([2., 0.]), array([1., 2.]), array([[ 1., -1.],
           [-1.,  1.]]))
    """
    n, p = x.shape
    total = n if weights is None else weights.sum()
    mean = (np.ones(n) if weights is None else weights) @ x / total
    products = np.zeros((p, p))
    for start in range(0, n, _BLOCK_ROWS):
        centred = x[start : start + _BLOCK_ROWS] - mean
        weighted = centred if weights is None else centred * weights[start : start + _BLOCK_ROWS, None]
        products += centred.T @ weighted
    sd = np.sqrt(np.diag(products) / total)
    flat = (sd <= _LITTLE_SPREAD * np.abs(mean)) | (sd == 0)
    inverse = np.where(flat, 0.0, 1 / np.where(flat, 1.0, sd))
    return mean, np.where(flat, 1.0, sd), products / total * np.outer(inverse, inverse)


def aliased_columns(
    standardized: Array, rounding: Array | None = None, least: float = 0.0
) -> NDArray[np.bool_]:
    r"""Mark columns that are linear combinations of others, up to rounding.

    The columns must be centred (the intercept lives in h) and scaled; a
    constant column is then zero. They are orthogonalised one after the other,
    the one with most of its own first (with as much: the first in order, so as
    in R the first of several dependent columns stays). What is left of column
    j is rounding if changes of all columns in their last digits explain it,

    .. math:: \|x_j - \sum_k b_k x_k\| \le 64 \sqrt{n} \sum_k |b_k| \epsilon_k, \qquad b_j = 1.

    Parameters
    ----------
    standardized : ndarray, shape (n, p)
        Centred columns of unit variance (or zero).
    rounding : ndarray, optional, shape (p,)
        Rounding error of each column's entries; default the machine precision.
        Centring enlarges it (``rounding_of``).
    least : float
        Share of its own that a column must have besides, where less is of no
        use (in single precision).

    Examples
    --------
    >>> x = np.array([-1.0, 0.0, 1.0])
    >>> aliased_columns(np.column_stack([x, 2 * x, np.zeros(3)])).tolist()
    [False, True, True]
    """
    n, p = standardized.shape
    if p == 0:
        return np.zeros(0, dtype=bool)
    if are_independent(standardized.T @ standardized / max(n, 1)):
        return np.zeros(p, dtype=bool)
    error = _ROUNDING * np.sqrt(n) * (np.full(p, EPSILON) if rounding is None else rounding)
    # the triangular factor has the columns' lengths and angles, in p instead of n rows
    columns: Array = np.asarray(np.linalg.qr(standardized, mode="r")) if n > p else standardized
    length = np.linalg.norm(columns, axis=0)
    left, rest = length > error, columns.copy()
    basis, taken = np.zeros((len(columns), p)), list[int]()
    while left.any():
        own = np.where(left, np.linalg.norm(rest, axis=0) / np.where(left, length, 1.0), 0.0)
        found = basis[:, : len(taken)]
        if own.max() < _SUSPICIOUS:
            weights = solve_triangular(found.T @ columns[:, taken], found.T @ columns[:, left])
            noise = (error[left] + error[taken] @ np.abs(weights)) / length[left]
            left[np.flatnonzero(left)[own[left] <= np.maximum(noise, least)]] = False
            own[~left] = 0.0
            if not left.any():
                break
        best = int(np.flatnonzero(left & (own >= _ALIKE * own.max()))[0])
        direction = rest[:, best] / np.linalg.norm(rest[:, best])
        direction -= found @ (found.T @ direction)
        direction /= np.linalg.norm(direction)
        basis[:, len(taken)] = direction
        taken.append(best)
        left[best] = False
        rest[:, left] -= np.outer(direction, direction @ rest[:, left])
    aliased = np.ones(p, dtype=bool)
    aliased[taken] = False
    return aliased


def rounding_of(mean: Array, sd: Array) -> Array:
    """Return the rounding error of columns of given mean and spread, after centring and scaling.

    Examples
    --------
    >>> rounding_of(np.array([0.0, 3.0]), np.array([1.0, 1.0])) / EPSILON
    array([1., 4.])
    """
    return np.asarray(EPSILON * (1 + np.abs(mean) / sd))


def own_share(columns: Array) -> Array:
    """Return how much of each column's length is not a combination of the others (1 / sqrt(VIF)).

    Examples
    --------
    >>> own_share(np.array([[1.0, 1.0], [0.0, 1e-3]])).round(6)
    array([0.001, 0.001])
    """
    length = np.linalg.norm(columns, axis=0)
    inverse = np.linalg.pinv(np.linalg.qr(columns / length, mode="r"), rcond=0.0)
    return np.asarray(1 / np.linalg.norm(inverse, axis=1))


@dataclass(frozen=True)
class OrthogonalColumns:
    r"""Orthogonal columns Q and the matrix T with :math:`Q = S T`, S the scaled columns.

    What a column has of its own is computed from the plain columns in extended
    precision (where the machine has it), before anything is rounded; so Q is
    accurate even if S is all but collinear.

    Attributes
    ----------
    rests : tuple
        For each column that is nearly a combination of others: the column, the
        others, their coefficients, and mean and size of the rest.
    order, root : ndarray, shapes (p,) and (p, p)
        Q is the columns in this order times the upper triangular root.
    turn : ndarray, shape (p, p)
        T.

    Examples
    --------
    >>> x = np.array([[1.0, 1.0], [0.0, 1e-12], [0.0, 0.0]])
    >>> q = OrthogonalColumns.learn(x, x, np.ones(2), None).of(x, x)
    >>> np.abs(q.T @ q).round(12)
    array([[3., 0.],
           [0., 3.]])
    """

    rests: tuple[tuple[int, NDArray[np.int64], Array, Any, float], ...]
    order: NDArray[np.int64]
    root: Array
    turn: Array

    @classmethod
    def learn(cls, x: Array, scaled: Array, sd: Array, weights: Array | None) -> OrthogonalColumns:
        """Find the coordinates.

        Parameters
        ----------
        x : ndarray, shape (n, p)
            Plain columns.
        scaled : ndarray, shape (n, p)
            The columns divided by ``sd``, and centred or not.
        sd : ndarray, shape (p,)
            Scales.
        weights : ndarray or None, shape (n,)
            Weights of the mean; None if the columns are not centred.
        """
        n, p = x.shape
        triangle, order = qr(scaled, mode="r", pivoting=True)
        mixing, rests = np.eye(p), []
        exact = x.astype(np.longdouble)
        for j in range(1, p):
            if abs(triangle[j, j]) > _CLEARLY * np.linalg.norm(triangle[:, j]):
                continue
            before, this = order[:j], int(order[j])
            plain = solve_triangular(triangle[:j, :j], triangle[:j, j]) * sd[this] / sd[before]
            rest = exact[:, this] - exact[:, before] @ plain.astype(np.longdouble)
            mean = np.longdouble(0) if weights is None else weights @ rest / weights.sum()
            size = float(np.sqrt((rest - mean) @ (rest - mean) / n))
            rests.append((this, before, plain, mean, size))
            mixing[before, this] = -plain * sd[before] / size
            mixing[this, this] = sd[this] / size
        found = cls(tuple(rests), order, np.eye(p), np.eye(p))
        r = np.linalg.qr(found.of(x, scaled), mode="r")
        root = np.sqrt(n) * solve_triangular(r, np.eye(p))
        return cls(tuple(rests), order, root, mixing[:, order] @ root)

    def of(self, x: Array, scaled: Array) -> Array:
        """Return Q of any rows, shape (n, p), from their plain and their scaled columns."""
        columns = scaled.copy()
        for this, before, plain, mean, size in self.rests:
            rest = x[:, this].astype(np.longdouble) - x[:, before].astype(np.longdouble) @ plain
            columns[:, this] = (rest - mean) / size
        return np.asarray(columns[:, self.order] @ self.root)


def are_independent(correlations: Array) -> bool:
    """Return whether no column comes near a combination of others, by their correlation matrix.

    Examples
    --------
    >>> are_independent(np.eye(2)), are_independent(np.ones((2, 2)))
    (True, False)
    """
    try:
        return bool(np.diag(np.linalg.cholesky(correlations)).min(initial=1.0) > _CLEARLY)
    except np.linalg.LinAlgError:
        return False


def centre_within(columns: Array, strata: NDArray[np.int64] | None, rows: NDArray[np.int64] | slice) -> Array:
    """Return some rows of centred columns, centred once more within strata.

    Examples
    --------
    >>> centre_within(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]), slice(None)).ravel()
    array([-1.,  1.,  0.])
    """
    if strata is None or not columns.shape[1]:
        return columns
    chosen = columns[rows]
    size = np.maximum(np.bincount(strata), 1)
    means = np.column_stack([np.bincount(strata, weights=column) / size for column in chosen.T])
    return np.asarray(chosen - means[strata])


def informative_rows(
    codes: NDArray[np.int64], strata: NDArray[np.int64], n_classes: int, n_strata: int
) -> NDArray[np.int64]:
    """Return the rows of strata with at least two classes; the others say nothing about effects.

    Examples
    --------
    >>> informative_rows(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, 2)
    array([0, 1])
    """
    counts = np.bincount(strata * n_classes + codes, minlength=n_strata * n_classes)
    several = (counts.reshape(n_strata, n_classes) > 0).sum(axis=1) > 1
    return np.flatnonzero(several[strata])
