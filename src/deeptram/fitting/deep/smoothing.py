"""What may be done to rows and weights in training: smoothed labels, mixup, class weights, weight averages.

All act on members trained alone and together alike, with random numbers of each member's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._validation import check_number
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.fitting.deep.losses import RowLoss, Target
from deeptram.model.deep import Batch
from deeptram.model.outcome import Encoded, Outcome
from deeptram.model.parts import Working


class SmoothedLoss(RowLoss):
    r"""The log-score with a share :math:`\varepsilon` of every label spread evenly over all K classes.

    .. math:: -(1 - \varepsilon) \log P(Y = y) - \frac{\varepsilon}{K} \sum_k \log P(Y = k)

    Parameters
    ----------
    loss : RowLoss
        The log-score of classes.
    n_classes : int
    share : float
    """

    def __init__(self, loss: RowLoss, n_classes: int, share: float) -> None:
        self._loss, self._n_classes, self._share = loss, n_classes, share
        self._classes: Target | None = None

    @classmethod
    def of(cls, loss: RowLoss, name: str, outcome: Outcome, share: float) -> RowLoss:
        """Return the loss with smoothed labels where it allows them."""
        if outcome.levels is None or name != "nll":
            raise UnsupportedError(
                f"label_smoothing is for classes and loss='nll', got outcome={str(outcome.kind)!r} and "
                f"loss={name!r}; leave it out"
            )
        return cls(loss, len(outcome.levels), share)

    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        self._classes = self._loss.target(Encoded(codes=np.arange(self._n_classes)), dtype, device)
        return self._loss.target(encoded, dtype, device)

    def rows(self, working: Working, target: Target) -> Tensor:
        value = self._loss.rows(working, target)
        if self._classes is None:
            return value
        like = torch.zeros(value.shape, dtype=torch.int64, device=value.device)
        each = [self._loss.rows(working, self._classes.take(like + k)) for k in range(self._n_classes)]
        return (1 - self._share) * value + self._share * torch.stack(each).mean(dim=0)


class Mixup:
    r"""Rows mixed with other rows of their batch: inputs and losses alike (Zhang et al. 2018).

    With :math:`\lambda \sim \mathrm{Beta}(a, a)`, one for each batch and member, the loss of a row is
    :math:`\lambda L(\hat h, y_i) + (1 - \lambda) L(\hat h, y_j)` where :math:`\hat h` is that of the
    mixed inputs; so it works for every kind of outcome, censored ones too.

    Parameters
    ----------
    strength : float
        a.
    seeds : sequence of M int
    """

    def __init__(self, strength: float, seeds: Sequence[int]) -> None:
        self._strength = strength
        self._draws = [np.random.default_rng([seed, 1]) for seed in seeds]

    def draw(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the partners of rows (M, b), and each member's share of the rows themselves, (M, 1)."""
        order = np.stack([draws.permutation(rows.shape[1]) for draws in self._draws])
        shares = [[draws.beta(self._strength, self._strength)] for draws in self._draws]
        return rows.gather(1, torch.from_numpy(order)), torch.tensor(shares)

    @property
    def bits(self) -> list[np.random.BitGenerator]:
        """The random bits of each member."""
        return [draws.bit_generator for draws in self._draws]

    def keep(self, positions: Sequence[int]) -> None:
        """Go on with these members only."""
        self._draws = [self._draws[p] for p in positions]


def mixed(batch: Batch, other: Batch, share: Tensor) -> Batch:
    """Return a batch of the inputs of two; integers (tokens, strata) cannot be mixed.

    Examples
    --------
    >>> one, two = {"x": torch.zeros(1, 2, 1), "nets": []}, {"x": torch.ones(1, 2, 1), "nets": []}
    >>> mixed(one, two, torch.tensor([[0.75]]))["x"].ravel()
    tensor([0.2500, 0.2500])
    """

    def mix(a: Tensor, b: Tensor) -> Tensor:
        if not a.is_floating_point():
            raise UnsupportedError(
                "mixup needs inputs that are numbers, got integers (token numbers or strata); leave it out"
            )
        part = share.to(a).reshape(*share.shape[:1], *(1,) * (a.ndim - 1))
        return part * a + (1 - part) * b

    result: Batch = {name: mix(batch[name], other[name]) for name in batch if name != "nets"}
    pairs = zip(batch["nets"], other["nets"], strict=True)
    result["nets"] = [tuple(map(mix, one, two)) for one, two in pairs]
    return result


def class_factors(wanted: Any, encoded: Encoded, outcome: Outcome, weights: Any = None) -> Any:
    """Return by what the weights of rows are multiplied in each class, (K,).

    Parameters
    ----------
    wanted : "balanced" or dict of levels and factors
    encoded, outcome : Encoded, Outcome
        Of the training rows, in which "balanced" classes have the same total.
    weights : ndarray or None, shape (n,)

    Examples
    --------
    >>> from deeptram.model import OutcomeSettings
    >>> outcome, encoded = Outcome.fit(OutcomeSettings("ordinal"), ["a", "b", "b", "b"])
    >>> class_factors("balanced", encoded, outcome).round(2)
    array([2.  , 0.67])
    """
    codes, levels = encoded.codes, outcome.levels
    if codes is None or levels is None:
        raise UnsupportedError(
            f"class_weight is for classes, got outcome={str(outcome.kind)!r}; pass sample_weight to fit"
        )
    base = np.ones(len(codes)) if weights is None else weights
    if isinstance(wanted, str):
        totals = np.bincount(codes, weights=base, minlength=len(levels))
        return base.sum() / (len(levels) * np.where(totals > 0, totals, 1.0))
    unknown = [level for level in wanted if level not in levels]
    if unknown:
        raise InvalidInputError(
            f"class_weight must name levels of the outcome, {', '.join(map(repr, levels[:6]))}, got "
            f"{unknown[0]!r}; correct it"
        )
    return np.array([check_number(wanted.get(level, 1.0), "class_weight", 0.0) for level in levels])


class WeightAverage:
    r"""Mean of the weights along the way of training, which is what is validated, kept and predicted with.

    A number is the decay d of an exponential moving average, :math:`\bar w \leftarrow d \bar w + (1 - d) w`
    after each step; in the first steps d is at most :math:`(1 + t) / (10 + t)`, so that the initial
    weights are forgotten. ``"swa"`` is the plain mean of the weights after each of the last
    epochs (stochastic weight averaging; Izmailov et al. 2018); before these, the weights are themselves.

    Parameters
    ----------
    values : dict of Tensor
        Those that are trained, and running averages of layers.
    kind : float or "swa"
    begin : float
        Share of the training after which ``"swa"`` begins.

    Examples
    --------
    >>> weight = torch.zeros(1)
    >>> average = WeightAverage({"w": weight}, 0.5)
    >>> _ = weight.fill_(1.0)
    >>> average.end_step()
    >>> with average.applied():
    ...     round(weight.item(), 3)
    0.818
    >>> weight.item()
    1.0
    """

    def __init__(self, values: Mapping[str, Tensor], kind: float | str, begin: float = 0.75) -> None:
        self._values = {name: value for name, value in values.items() if value.is_floating_point()}
        self._kind, self._begin, self.count = kind, begin, 0
        self.averages = {name: value.detach().clone() for name, value in self._values.items()}

    def end_step(self) -> None:
        """Enter the weights after a step."""
        if not isinstance(self._kind, str):
            self.count += 1
            self._enter(1 - min(self._kind, (1 + self.count) / (10 + self.count)))

    def end_epoch(self, done: float) -> None:
        """Enter the weights after an epoch, when a share of the training is done."""
        if isinstance(self._kind, str) and done > self._begin:
            self.count += 1
            self._enter(1 / self.count)

    def _enter(self, share: float) -> None:
        with torch.no_grad():
            for name, value in self._values.items():
                self.averages[name].lerp_(value.detach(), share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the weights be their averages inside the block, once there are some."""
        if self.count == 0:
            yield
            return
        own = {name: value.data for name, value in self._values.items()}
        for name, value in self._values.items():
            value.data = self.averages[name]
        try:
            yield
        finally:
            for name, value in self._values.items():
                value.data = own[name]

    def keep(self, index: Tensor) -> None:
        """Go on with these members only, of weights stacked along a first axis."""
        for name, value in self.averages.items():
            self.averages[name] = value[index.to(value.device)].contiguous()
