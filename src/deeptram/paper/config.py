"""What is run, as values: protocols, studies and units of work (Section 4 of the paper).

A :class:`Protocol` is a row of Table 1 with the facts that go with the data
set. A :class:`Study` is a protocol under a preset, with a selection of models,
losses, splits and members; its ``fingerprint`` covers everything that decides
what a member looks like, and nothing else, so that a study can be extended
without repeating what is there. A :class:`Unit` is one member.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from deeptram._files import json_sha256
from deeptram._schema import fields, integer, listed, mapping, number, optional, text
from deeptram._validation import check_choice, check_integer, is_number
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.fitting.deep.training import Training
from deeptram.networks import RandomAffine

SCHEMA = 2
MODELS = ("SI", "SI-LS", "SI-CS", "SI-CS-LS", "CI", "CI-LS")
EXACT_MODELS = ("SI", "SI-LS")
LOSSES = ("nll", "rps")
N_SPLITS = 6
PAPER_MEMBERS = 5
MAX_MEMBERS, MAX_LEVELS = 1000, 1000
# The largest values of settings that a computer can do anything with; files may claim more.
_LIMITS = {"epochs": 10**6, "batch_size": 10**8, "min_epochs": 10**6, "patience": 10**6}
_MAX_PIXELS, _MAX_SEED, _MAX_ROWS, _MAX_NAMES = 10_000, 2**63, 10**9, 1000
# What tells one member from another; device and progress bars do not.
_DECISIVE = ("dataset", "outcome", "linear", "network", "splitting", "group", "p_val", "p_test")
_DECISIVE_TRAINING = (
    *("epochs", "batch_size", "learning_rate", "weight_decay", "patience", "min_epochs", "restore_best"),
    *("optimizer", "schedule", "clip_norm", "adam_epsilon", "warm_start", "standardize"),
    *("dtype", "mixed_precision"),
)
# These, too, where they are not the defaults of Training: members from before they were known stay valid.
_DECISIVE_IF_SET = ("adam_start", "average", "average_from", "label_smoothing", "mixup", "class_weight")
_AGE = dict.fromkeys(("age_mean", "age_sd"), number())
# What config.json of a run says; the study checks itself.
CONFIGURATION = fields(
    {
        "study": mapping(lambda value, at: None),
        "data": fields(dict.fromkeys(("table", "image"), optional(text))),
        "levels": listed(text, 2, MAX_LEVELS),
        "n_rows": integer(1, _MAX_ROWS),
        "versions": mapping(text),
        "machine": fields({**dict.fromkeys(("system", "processor", "gpu"), text), "cpus": integer(1)}),
        "info": fields({}, {"source": text, "licence": text, "beta": mapping(number()), **_AGE}),
    }
)


@dataclass(frozen=True)
class Protocol:
    """A data set and the models fitted to it (Table 1), with what the evaluation needs to know.

    Attributes
    ----------
    dataset : str
    outcome : {"binary", "ordinal"}
        How the outcome is modelled; MNIST's classes in the order 0, ..., 9.
    models : tuple of str
        Among ``MODELS``.
    linear : tuple of str
        Columns of the linear shift.
    network : mapping
        The image network, as ``deeptram.networks.to_dict`` writes it.
    splitting : {"paper", "random", "stratified", "grouped"}
        The authors' splits, or seeded ones.
    group : str or None
        Column that must not be divided between parts.
    p_val, p_test : float
        Shares of the validation and test parts.
    cutoff : int
        AUC and Brier score are those of the event Y > levels[cutoff].
    cuts : {"tail", "equidistant"}
        Bins of the calibration plot.
    event : str
        The outcome in words, for reading coefficients aloud.
    units : mapping
        What one unit of a linear column is, in words.
    """

    dataset: str
    outcome: str
    models: tuple[str, ...]
    linear: tuple[str, ...]
    network: Mapping[str, Any]
    splitting: str
    p_val: float
    p_test: float
    group: str | None = None
    cutoff: int = 0
    cuts: str = "equidistant"
    event: str = "a higher class"
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what a file may say."""
        check_choice(self.outcome, ("binary", "ordinal"), "outcome")
        check_choice(self.splitting, ("paper", "random", "stratified", "grouped"), "splitting")
        check_choice(self.cuts, ("tail", "equidistant"), "cuts")
        for model in self.models:
            check_choice(model, MODELS, "models")
        _check_within(self.cutoff, "cutoff", 0, MAX_LEVELS - 2)
        texts = (self.dataset, self.event, *self.linear, *self.units.keys(), *self.units.values())
        _check(
            len(self.linear) <= _MAX_NAMES and len(self.units) <= _MAX_NAMES,
            "linear and units",
            "short lists",
        )
        _check(all(isinstance(text, str) for text in (*texts, self.group or "")), "names", "texts")
        _check(isinstance(self.network, Mapping), "network", "a mapping")
        for name in ("p_val", "p_test"):
            share = getattr(self, name)
            _check(isinstance(share, float) and 0 <= share < 1, name, "a share of the rows")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Protocol:
        """Rebuild a protocol from :meth:`to_dict`."""
        values = dict(state)
        for name in ("models", "linear"):
            values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, order=True)
class Unit:
    """One member: the unit of work.

    Examples
    --------
    >>> unit = Unit("CI-LS", "nll", 1, 3)
    >>> unit.folder, unit.is_exact
    ('nll/CI-LS/split-1/member-3', False)
    """

    model: str
    loss: str
    split: int
    member: int

    @property
    def folder(self) -> str:
        """Where its artefacts lie, below ``members``."""
        return f"{self.loss}/{self.model}/split-{self.split}/member-{self.member}"

    @property
    def is_exact(self) -> bool:
        """Whether the model has no network, so that there is one certified fit per split."""
        return self.model in EXACT_MODELS

    @property
    def label(self) -> str:
        """The unit in words."""
        member = "" if self.is_exact else f" member {self.member}"
        return f"{self.model} ({self.loss}) split {self.split}{member}"


@dataclass(frozen=True)
class Study:
    """A protocol under a preset, and the part of the grid that is wanted.

    Attributes
    ----------
    protocol : Protocol
    preset : str
    training : Training
        Gradient training of the models with networks.
    models, losses : tuple of str
    splits : tuple of int
        Numbers from 1 to 6.
    n_members : int
    pixels : int or None
        Side of the images; None for data sets with images of one size.
    seed : int
        Root of all randomness: seeded splits, simulated covariates, members.
    one_adam : bool
        Whether Adam's count of steps goes on from member to member and from split to
        split, as where one optimiser object trains them all (the authors' loop).
    augment : mapping
        Arguments of ``deeptram.networks.RandomAffine``; empty for images as they are.
    changed : mapping
        Settings that differ from the preset, for the report.

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> study = make_study("digits", "quick", models=["SI", "CI"], losses=["nll"], splits=[1], n_members=2)
    >>> [unit.folder for unit in study.units()]
    ['nll/SI/split-1/member-1', 'nll/CI/split-1/member-1', 'nll/CI/split-1/member-2']
    >>> Study.from_dict(study.to_dict()) == study
    True
    """

    protocol: Protocol
    preset: str
    training: Training
    models: tuple[str, ...]
    losses: tuple[str, ...]
    splits: tuple[int, ...]
    n_members: int
    pixels: int | None = None
    seed: int = 0
    one_adam: bool = False
    augment: Mapping[str, float] = field(default_factory=dict)
    changed: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the selection once."""
        known = ", ".join(self.protocol.models)
        for model in self.models:
            check_choice(model, MODELS, "models")
            if model not in self.protocol.models:
                raise InvalidInputError(
                    f"the models of {self.dataset} are {known}, got {model!r}; choose among these"
                )
        for loss in self.losses:
            check_choice(loss, LOSSES, "losses")
        object.__setattr__(self, "splits", tuple(check_split(split) for split in self.splits))
        for name in ("models", "losses", "splits"):
            wanted = getattr(self, name)
            if not wanted:
                raise InvalidInputError(f"{name} must name at least one, got none; leave it out for all")
            _check(len(set(wanted)) == len(wanted), name, "named once each")
        _check_within(self.n_members, "members", 1, MAX_MEMBERS)
        _check_within(self.seed, "seed", 0, _MAX_SEED)
        if self.pixels is not None:
            _check_within(self.pixels, "pixels", 8, _MAX_PIXELS)
        for name, largest in _LIMITS.items():
            if getattr(self.training, name) is not None:
                _check_within(getattr(self.training, name), name, 0, largest)
        _check(isinstance(self.preset, str), "preset", "a text")
        _check(isinstance(self.one_adam, bool), "one_adam", "true or false")
        known_names = {name.name for name in dataclasses.fields(RandomAffine)}
        _check(
            isinstance(self.augment, Mapping) and set(self.augment) <= known_names,
            "augment",
            "settings of RandomAffine",
        )
        RandomAffine(**self.augment)
        _check(
            isinstance(self.changed, Mapping) and len(self.changed) <= _MAX_NAMES,
            "changed",
            "a short mapping",
        )

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        return self.protocol.dataset

    def training_of(self, unit: Unit, n_train: int) -> Training:
        """Return how one member is trained, given the number of training rows.

        Adam's count of steps begins at ``training.adam_start``; with ``one_adam`` the steps of all members
        before this one are added.

        Examples
        --------
        >>> from deeptram.paper.protocols import make_study
        >>> study = make_study("mnist", "paper")
        >>> [study.training_of(Unit("CI", "nll", 1, m), 48_000).adam_start for m in (1, 2, 3)]
        [0, 2820, 5640]
        """
        augment = RandomAffine(**self.augment) if self.augment else None
        before = (unit.split - 1) * PAPER_MEMBERS + unit.member - 1 if self.one_adam else 0
        steps = self.training.epochs * -(-n_train // self.training.batch_size)
        return self.training.replace(augment=augment, adam_start=self.training.adam_start + before * steps)

    def units(self) -> Iterator[Unit]:
        """Yield the grid: split by split, exact models first, so that results come early."""
        for split in self.splits:
            for loss in self.losses:
                for model in self.models:
                    for member in range(1, 1 + (1 if model in EXACT_MODELS else self.n_members)):
                        yield Unit(model, loss, split, member)

    @property
    def fingerprint(self) -> str:
        """Hash of all settings that decide what a member looks like."""
        protocol, training = self.protocol.to_dict(), self.training.to_dict()
        plain = Training()
        own = [name for name in _DECISIVE_IF_SET if getattr(self.training, name) != getattr(plain, name)]
        return json_sha256(
            {
                "schema": SCHEMA,
                "protocol": {name: protocol[name] for name in _DECISIVE},
                "training": {name: training[name] for name in (*_DECISIVE_TRAINING, *own)},
                "pixels": self.pixels,
                "one_adam": self.one_adam,
                "augment": dict(self.augment),
                "seed": self.seed,
            }
        )[:20]

    def merged(self, other: Study) -> Study:
        """Return the study with the other's selection added."""
        return dataclasses.replace(
            self,
            models=tuple(m for m in MODELS if m in self.models or m in other.models),
            losses=tuple(s for s in LOSSES if s in self.losses or s in other.losses),
            splits=tuple(sorted({*self.splits, *other.splits})),
            n_members=max(self.n_members, other.n_members),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values."""
        state = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        nested = {"protocol": self.protocol.to_dict(), "training": self.training.to_dict()}
        return {**state, **nested, "schema": SCHEMA}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Study:
        """Rebuild a study from :meth:`to_dict`."""
        values = dict(state)
        if values.pop("schema", None) != SCHEMA:
            raise FileFormatError(
                f"a study must have schema {SCHEMA}, got {state.get('schema')!r}; run it again"
            )
        values["protocol"] = Protocol.from_dict(values["protocol"])
        values["training"] = Training.from_dict(values["training"])
        for name in ("models", "losses", "splits"):
            values[name] = tuple(values[name])
        return cls(**values)


def check_split(split: Any) -> int:
    """Return the number of a split, or say which there are.

    Examples
    --------
    >>> check_split(3)
    3
    """
    if isinstance(split, Integral) and is_number(split) and 1 <= int(split) <= N_SPLITS:
        return int(split)
    raise InvalidInputError(f"splits must be numbers from 1 to {N_SPLITS}, got {split!r}; correct it")


def _check_within(value: Any, name: str, smallest: int, largest: int) -> None:
    _check(check_integer(value, name, smallest) <= largest, name, f"at most {largest}")


def _check(holds: bool, name: str, expected: str) -> None:
    if not holds:
        raise InvalidInputError(f"{name} must be {expected}, got something else; correct it")


def unit_hash(fingerprint: str, data: Mapping[str, str | None], unit: Unit) -> str:
    """Return the hash of a member: settings, data and place in the grid.

    Examples
    --------
    >>> data = {"table": "a", "image": "b"}
    >>> unit_hash("s", data, Unit("CI", "nll", 1, 1)) == unit_hash("s", data, Unit("CI", "nll", 1, 2))
    False
    """
    image = None if unit.is_exact else data["image"]
    return json_sha256([fingerprint, data["table"], image, dataclasses.astuple(unit)])


def unit_seed(seed: int, unit: Unit) -> int:
    """Return the seed of a member, from the run's seed, the split and the member's number only.

    Examples
    --------
    >>> unit_seed(0, Unit("CI", "nll", 1, 2)) == unit_seed(0, Unit("SI-CS", "rps", 1, 2))
    True
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(unit.split, unit.member))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
