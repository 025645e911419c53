"""The edge of the pools: which members can be pooled, with which weights and on which scale.

Members are a list of distributions, or one array of CDFs, shape (M, n, K), checked and read without copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_tensor
from deeptram._validation import as_float, check_weights, first_rows
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.latent import Latent, Logistic
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive

Weights = npt.NDArray[np.float64]
# Numbers per block: a few blocks of this size stay in the processor's second-level cache.
BLOCK = 1 << 18
CHECKED_AT_ONCE = 1 << 18


def is_array(members: Any) -> bool:
    """Whether members came as one array of CDFs rather than as a sequence of distributions.

    Examples
    --------
    >>> is_array(np.zeros((2, 3, 4))), is_array([])
    (True, False)
    """
    return isinstance(members, (np.ndarray, Tensor))


def check_members(members: Any) -> list[Predictive]:
    """Return the members as a list of distributions of one kind, length and set of levels.

    Examples
    --------
    >>> check_members([])
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: members must hold at least one Predictive, got none; ...
    """
    if isinstance(members, Predictive):
        raise InvalidTypeError(
            "members must be a sequence of Predictive, got a single one; put it into a list: [pred]"
        )
    if not hasattr(members, "__iter__"):
        raise InvalidTypeError(
            f"members must be a sequence of Predictive or an array (members, rows, levels) of CDFs, got "
            f"{type(members).__name__}; build each with Predictive.from_proba, from_cdf, ..."
        )
    checked = list(members)
    if not checked:
        raise InvalidInputError(
            "members must hold at least one Predictive, got none; pass the members to be pooled"
        )
    for m, member in enumerate(checked):
        if not isinstance(member, Predictive):
            raise InvalidTypeError(
                f"members must be Predictive objects, got {type(member).__name__} at position {m}; "
                "build it with Predictive.from_proba, from_cdf, from_scipy, ..."
            )
    _check_alike(checked)
    return checked


def _check_alike(members: Sequence[Predictive]) -> None:
    first = members[0]
    for m, member in enumerate(members[1:], start=1):
        if member.kind != first.kind:
            raise InvalidInputError(
                f"members must be of one kind, got {first.kind} for member 0 and {member.kind} for "
                f"member {m}; pool distributions of the same outcome"
            )
        if len(member) != len(first):
            raise InvalidInputError(
                f"members must have the same number of rows, got {len(first)} for member 0 and "
                f"{len(member)} for member {m}; predict the same rows with every member"
            )
        if member.levels != first.levels:
            raise InvalidInputError(
                f"members must have the same levels in the same order, got {_shown(first.levels)} for "
                f"member 0 and {_shown(member.levels)} for member {m}; reorder the columns of one of them"
            )


def as_members(members: Any) -> list[Predictive]:
    """Return checked members, whether they came as a sequence or as an array of CDFs.

    Examples
    --------
    >>> len(as_members(np.array([[[0.2, 1.0]], [[0.4, 1.0]]])))
    2
    """
    if is_array(members):
        return [*CdfStack.check(members).members()]
    return check_members(members)


def normalised_weights(weights: npt.ArrayLike | None, n_members: int, n_rows: int | None = None) -> Weights:
    """Return checked weights, divided by their sum so that rounding within 1e-8 does not matter.

    Parameters
    ----------
    weights : array-like, shape (M,) or (n, M), optional
    n_members : int
    n_rows : int, optional
        Where rows may have weights of their own.

    Examples
    --------
    >>> normalised_weights([0.25, 0.75], 2)
    array([0.25, 0.75])
    """
    if n_rows is None or not _is_table(weights):
        checked = check_weights(weights, n_members)
        return np.asarray(checked / checked.sum())
    given = as_float(weights, "weights")
    if given.shape != (n_rows, n_members):
        raise InvalidInputError(
            f"weights of every row must have shape ({n_rows}, {n_members}), got {given.shape}; "
            "pass one row of weights for each prediction"
        )
    total = given.sum(axis=1, keepdims=True)
    wrong = ~((given >= 0).all(axis=1) & (np.abs(total[:, 0] - 1) <= 1e-8))
    if wrong.any():
        raise InvalidInputError(
            f"weights must not be negative and sum to 1, got others in {first_rows(wrong)}; "
            "divide each row by its sum"
        )
    return np.asarray(given / total)


def _is_table(weights: Any) -> bool:
    """Whether weights have two axes; what is no array has none."""
    try:
        return np.ndim(weights) == 2
    except ValueError:  # lists of unequal length
        return False


def common_latent(members: Sequence[Predictive]) -> Latent | None:
    """Return the latent that all members with one share; None if there is none or they differ.

    Examples
    --------
    >>> one = DiscretePredictive.from_h(np.zeros((1, 1)), latent="normal")
    >>> common_latent([one, one]).name
    'normal'
    """
    own = {member.latent for member in members if member.latent is not None}
    return own.pop() if len(own) == 1 else None


def pooling_latent(members: Sequence[Predictive], latent: str | Latent | None) -> Latent:
    """Return F_Z of a transformation pool: as asked for, else the members' own, else logistic.

    Examples
    --------
    >>> pooling_latent([DiscretePredictive.from_h(np.zeros((1, 1)), latent="normal")], None).name
    'normal'
    """
    if latent is not None:
        return latents.get(latent)
    own = {member.latent.name for member in members if member.latent is not None}
    if len(own) > 1:
        raise InvalidInputError(
            f"members must share one latent distribution for the transformation pool, got "
            f"{', '.join(sorted(own))}; pass latent= to say on which scale to pool: "
            f"{', '.join(latents.names())}"
        )
    return common_latent(members) or latents.get("logistic")


def _shown(levels: tuple[Any, ...] | None) -> str:
    shown = ", ".join(map(repr, (levels or ())[:4]))
    return f"[{shown}{', ...' if levels and len(levels) > 4 else ''}]"


class CdfMember(DiscretePredictive):
    r"""One member given by its CDF at the K levels; logs are taken when asked for and not kept.

    All that is known is F itself, so :math:`\log(1 - F)` is taken from the rounded F:
    members that have h, log F or the survivor function should hand those over instead.

    Examples
    --------
    >>> CdfMember(torch.tensor([[0.25, 1.0]], dtype=torch.float64)).log_pmf_t().exp()
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """

    _row_parts = ("_cdf", "_full")
    _keeps_derived = False

    def __init__(self, cdf: Tensor, levels: tuple[Any, ...] | None = None, *, numpy: bool = True) -> None:
        super().__init__(levels=levels, numpy=numpy, cdf=cdf[:, :-1])
        self._full = cdf

    def _derive_log_pmf(self) -> Tensor:
        return torch.log(torch.cat([self._full[:, :1], torch.diff(self._full, dim=1)], dim=1))

    def trafo_t(self, latent: Latent | None = None) -> Tensor:
        """Return the quantile function of the latent (logistic by default) at F."""
        inner: Any = self._cdf
        return torch.logit(inner) if latent is None or isinstance(latent, Logistic) else latent.icdf_t(inner)


class CdfStack:
    """An array of CDFs with the members along its first axis.

    Examples
    --------
    >>> stack = CdfStack.check(np.array([[[0.2, 1.0]], [[0.4, 1.0]]]))
    >>> stack.n_members, stack.n_rows, stack.n_levels
    (2, 1, 2)
    """

    def __init__(self, values: Tensor, *, numpy: bool) -> None:
        self.values = values
        self.numpy = numpy
        self.n_members, self.n_rows, self.n_levels = values.shape
        self.levels = tuple(range(self.n_levels))

    @classmethod
    def check(cls, array: Any) -> CdfStack:
        """Return the stack, or say which rows of which member are no CDF."""
        numpy = not isinstance(array, Tensor)
        values = as_tensor(array)
        if numpy and values.dtype != torch.float64:
            values = values.to(torch.float64)
        if values.ndim != 3 or values.shape[0] < 1 or values.shape[1] < 1 or values.shape[2] < 2:
            raise InvalidInputError(
                "members as an array must have shape (members, rows, levels) with at least two levels, got "
                f"shape {tuple(values.shape)}; pass the CDFs of all members in one array"
            )
        if not _all_cdfs(values):
            values = torch.stack([_repaired(m, member) for m, member in enumerate(values)])
        return cls(values, numpy=numpy)

    def members(self, rows: slice = slice(None)) -> list[CdfMember]:
        """Return the members as predictive distributions of some rows (views)."""
        return [CdfMember(member[rows], self.levels, numpy=self.numpy) for member in self.values]

    def take_members(self, index: Any) -> CdfStack:
        """Return the stack of some members (those of positive weight)."""
        index = np.flatnonzero(index)
        if len(index) == self.n_members:
            return self
        return CdfStack(self.values[torch.as_tensor(index)], numpy=self.numpy)

    def take_rows(self, index: Tensor) -> CdfStack:
        """Return the stack of some rows."""
        return CdfStack(self.values[:, index], numpy=self.numpy)

    def blocks(self, size: int | None = None) -> Iterator[slice]:
        """Yield slices of rows whose members together hold about ``size`` numbers."""
        step = max(1, (BLOCK if size is None else size) // (self.n_levels * self.n_members))
        for start in range(0, self.n_rows, step):
            yield slice(start, min(start + step, self.n_rows))


def _all_cdfs(values: Tensor) -> bool:
    """Whether every row increases from >= 0 to exactly 1; NaN does not. One pass in cache-sized blocks."""
    array = np.ascontiguousarray(values.detach().cpu().numpy())
    levels = array.shape[2]
    rows = array.reshape(-1, levels)
    step = max(1, CHECKED_AT_ONCE // levels)
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    if len(parts) < 2:
        return all(map(_are_cdfs, parts))
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as threads:
        return all(threads.map(_are_cdfs, parts))


def _are_cdfs(rows: npt.NDArray[np.float64]) -> bool:
    levels = rows.shape[1]
    flat = rows.reshape(-1)
    increases = flat[1:] >= flat[:-1]
    increases[levels - 1 :: levels] = True  # from the end of one row to the start of the next
    return bool(increases.all() and rows[:, 0].min() >= 0 and (rows[:, -1] == 1).all())


def _repaired(position: int, cdf: Tensor) -> Tensor:
    """Return the CDF as foreign input rules see it: rounding forgiven, all else refused with its rows."""
    try:
        return as_tensor(Predictive.from_cdf(cdf).cdf(), cdf.dtype)
    except InvalidInputError as error:
        raise InvalidInputError(f"member {position}: {error}") from error
