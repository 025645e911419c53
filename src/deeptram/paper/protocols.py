"""The paper's experiments as data: Table 1, and three ways to train (Appendix B).

``paper``
    As published: optimiser, learning rate, batches, epochs, image size, warm
    start, linear columns as they are; 6 splits, 5 members, both losses. One
    Adam, with the epsilon of Keras, counts its steps through all members of all
    splits, so that every member but the first starts without bias correction.
``modern``
    The same splits and networks, trained the way one would today: learning
    rate 1e-3 with a cosine schedule (begun slowly for photographs), smaller
    batches, few epochs, images turned and moved a little at random instead of
    dropout between their convolutions, networks in bfloat16 where processors
    have instructions for it.
``quick``
    Minutes on two cores: fewer splits, members, epochs and pixels.

HAM10000 (a stand-in for the melanoma images) and digits (embedded) are not in
the paper; they follow its protocol for melanoma and UTKFace. What the authors
published, and when a run may be compared with it, is here, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import pandas as pd

from deeptram._validation import as_list, check_choice
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.fitting.deep.training import Training
from deeptram.paper.config import EXACT_MODELS, LOSSES, N_SPLITS, Protocol, Study, check_split
from deeptram.paper.splits import PAPER

FOUR = ("SI", "SI-LS", "CI", "CI-LS")
SIX = ("SI", "SI-LS", "SI-CS", "SI-CS-LS", "CI", "CI-LS")
SIMULATED = tuple(f"x_{j}" for j in range(1, 11))
AGE_UNIT = {"age": "one standard deviation of age"}
SIMULATED_UNITS = {name: f"one unit of {name}" for name in SIMULATED}

PROTOCOLS: dict[str, Protocol] = {
    "mnist": Protocol(
        dataset="mnist",
        outcome="ordinal",
        models=("CI",),
        linear=(),
        network={"name": "paper_mnist", "config": {}},
        splitting="paper",
        p_val=0.1,
        p_test=0.1,
        cutoff=2,
        event="a higher digit",
    ),
    "melanoma": Protocol(
        dataset="melanoma",
        outcome="binary",
        models=FOUR,
        linear=("age",),
        network={"name": "paper_melanoma", "config": {}},
        splitting="paper",
        p_val=0.2,
        p_test=0.2,
        cuts="tail",
        event="melanoma",
        units=AGE_UNIT,
    ),
    "utkface": Protocol(
        dataset="utkface",
        outcome="ordinal",
        models=SIX,
        linear=("gender", *SIMULATED),
        network={"name": "paper_utkface", "config": {}},
        splitting="random",
        p_val=0.2,
        p_test=0.2,
        cutoff=2,
        event="a higher age group",
        units={"gender": "being female instead of male", **SIMULATED_UNITS},
    ),
    "digits": Protocol(
        dataset="digits",
        outcome="ordinal",
        models=SIX,
        linear=SIMULATED,
        network={"name": "CNN", "config": {"channels": [16, 32], "dense": [64]}},
        splitting="stratified",
        p_val=0.2,
        p_test=0.2,
        cutoff=2,
        event="a higher digit",
        units=SIMULATED_UNITS,
    ),
}
PROTOCOLS["ham10000"] = dataclasses.replace(
    PROTOCOLS["melanoma"], dataset="ham10000", splitting="grouped", group="lesion_id"
)
DATASETS = ("mnist", "melanoma", "utkface", "ham10000", "digits")


@dataclass(frozen=True)
class Preset:
    """How one data set is trained, and how much of the grid is run."""

    training: Training
    pixels: int | None = None
    splits: int = N_SPLITS
    n_members: int = 5
    losses: tuple[str, ...] = LOSSES
    one_adam: bool = False
    augment: Mapping[str, float] = field(default_factory=dict)
    image_dropout: float | None = None

    def of(self, protocol: Protocol) -> Protocol:
        """Return the protocol with this preset's dropout after convolutions: a matter of training."""
        if self.image_dropout is None:
            return protocol
        config = {**protocol.network["config"], "image_dropout": self.image_dropout}
        return dataclasses.replace(protocol, network={**protocol.network, "config": config})


N_BOOT = {"paper": 1000, "modern": 1000, "quick": 200}
_TODAY: dict[str, Any] = {
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "batch_size": 64,
    "mixed_precision": "native",
}
_DIGITS = {"degrees": 10.0, "shift": 0.08, "zoom": 0.1}
_PHOTOS = {"degrees": 10.0, "shift": 0.06, "zoom": 0.1, "flip": 0.5}


def _published(pixels: int | None = None, *, standardize: bool = True, **training: Any) -> Preset:
    """Return the authors' training: one Adam for all members, with the epsilon of Keras."""
    how = Training(adam_epsilon=1e-7, standardize=standardize, **training)
    return Preset(how, pixels=pixels, one_adam=True)


def _photographs(epochs: int) -> Preset:
    """Return today's training without dropout between convolutions, begun slowly.

    At the full rate the first steps silence the dense layers of some CS members for good.
    """
    how = Training(epochs=epochs, **{**_TODAY, "schedule": "warm-up"})
    return Preset(how, pixels=128, augment=_PHOTOS, image_dropout=0.0)


def _quick(epochs: int, pixels: int | None = None, *, splits: int = 1, **training: Any) -> Preset:
    how = Training(epochs=epochs, **{**_TODAY, "mixed_precision": "auto", **training})
    return Preset(how, pixels=pixels, splits=splits, n_members=3, losses=("nll",))


PRESETS: dict[str, dict[str, Preset]] = {
    "paper": {
        "mnist": _published(epochs=30, batch_size=512, micro_batch=64, learning_rate=1e-5, warm_start=False),
        "melanoma": _published(128, epochs=90, batch_size=64, learning_rate=1e-4, standardize=False),
        "utkface": _published(128, epochs=150, batch_size=32, learning_rate=1e-4, standardize=False),
        "ham10000": _published(128, epochs=90, batch_size=64, learning_rate=1e-4, standardize=False),
        "digits": _published(epochs=100, batch_size=64, learning_rate=1e-4, standardize=False),
    },
    "modern": {
        "mnist": Preset(Training(epochs=10, warm_start=False, **_TODAY), augment=_DIGITS),
        "melanoma": _photographs(epochs=12),
        "utkface": _photographs(epochs=20),
        "ham10000": _photographs(epochs=20),
        "digits": Preset(Training(epochs=30, **_TODAY)),
    },
    "quick": {
        "mnist": _quick(2, batch_size=128, warm_start=False),
        "melanoma": _quick(3, 32),
        "utkface": _quick(4, 32),
        "ham10000": _quick(6, 32),
        "digits": _quick(12, splits=2),
    },
}


def make_study(
    dataset: str,
    preset: str = "paper",
    *,
    models: Sequence[str] | None = None,
    losses: Sequence[str] | None = None,
    splits: Sequence[int] | None = None,
    n_members: int | None = None,
    pixels: int | None = None,
    seed: int = 0,
    training: Mapping[str, Any] | None = None,
) -> Study:
    """Return the study of a data set under a preset, with the changes asked for.

    Parameters
    ----------
    dataset : {"mnist", "melanoma", "utkface", "ham10000", "digits"}
    preset : {"paper", "modern", "quick"}
    models, losses, splits, n_members
        What to run; by default what the preset has. For a binary outcome the
        loss "brier" is another name for "rps".
    pixels : int, optional
        Side of the images.
    seed : int
    training : mapping, optional
        Settings of ``Training`` that replace the preset's; no functions for ``optimizer``, ``schedule`` or
        ``augment``, since a study is written to a file. ``adam_start`` holds for every member; with the
        preset ``paper``, whose one Adam counts through all members, it is refused.

    Examples
    --------
    >>> study = make_study("mnist", "paper", splits=[1])
    >>> study.training.learning_rate, study.n_members, len(list(study.units()))
    (1e-05, 5, 10)
    >>> make_study("utkface", "modern", pixels=32).changed
    {'pixels': 32}
    """
    protocol = PROTOCOLS[check_choice(dataset, DATASETS, "data set")]
    base = PRESETS[check_choice(preset, PRESETS, "preset")][dataset]
    protocol = base.of(protocol)
    wanted = _settings(training, base)
    changed = {k: v for k, v in wanted.items() if getattr(base.training, k, None) != v}
    if pixels is not None and pixels != base.pixels:
        if base.pixels is None:
            raise InvalidInputError(
                f"the images of {dataset} have one size, got pixels={pixels}; leave it out"
            )
        changed["pixels"] = pixels
    return Study(
        protocol=protocol,
        preset=preset,
        training=base.training.replace(**{"progress": False, **wanted}),
        models=_in_order(models, protocol.models, "models"),
        losses=_losses(losses, base, protocol),
        splits=_splits(splits, base),
        n_members=base.n_members if n_members is None else n_members,
        pixels=base.pixels if pixels is None else pixels,
        seed=seed,
        one_adam=base.one_adam,
        augment=base.augment,
        changed=changed,
    )


def _settings(training: Any, base: Preset) -> dict[str, Any]:
    """Return the settings that replace the preset's, or say which of them cannot."""
    if training is None:
        return {}
    if not isinstance(training, Mapping):
        raise InvalidTypeError(
            f"training must be a dict of settings of Training, got {training!r}; write "
            "training={'epochs': 10}"
        )
    known = [one.name for one in dataclasses.fields(Training)]
    for name, value in training.items():
        check_choice(name, known, "settings in training")
        if callable(value) and name != "callbacks":
            raise UnsupportedError(
                f"training must hold values that can be written to a file, got a function as {name}; use one "
                "of those with a name, or train with dt.Ensemble"
            )
    if base.one_adam and "adam_start" in training:
        raise InvalidInputError(
            "one Adam counts its steps through all members of the preset 'paper', got "
            f"adam_start={training['adam_start']!r}; leave it out, or use another preset"
        )
    return dict(training)


def _splits(splits: Sequence[int] | None, base: Preset) -> tuple[int, ...]:
    if splits is None:
        return tuple(range(1, base.splits + 1))
    return tuple(sorted({check_split(one) for one in as_list(splits, "splits", "numbers")}))


def _losses(losses: Sequence[str] | None, base: Preset, protocol: Protocol) -> tuple[str, ...]:
    if losses is None:
        return base.losses
    binary = protocol.outcome == "binary"
    given = as_list(losses, "losses", "names")
    named = ["rps" if binary and loss == "brier" else loss for loss in given]
    for loss in named:
        check_choice(loss, (*LOSSES, "brier") if binary else LOSSES, "losses")
    return _in_order(named, LOSSES, "losses")


def _in_order(wanted: Sequence[str] | None, known: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the wanted names in the order of the paper, each once."""
    if wanted is None:
        return known
    chosen = [check_choice(one, known, name) for one in as_list(wanted, name, "names")]
    return tuple(one for one in known if one in chosen)


PAPER_DATASETS = ("mnist", "melanoma", "utkface")
SPLIT_COLUMNS = [f"split_{k}" for k in range(1, 7)]


def published_metrics(*, recalibrated: bool = False) -> pd.DataFrame:
    """Return the authors' metrics: dataset, model, loss, weights, method, metric, split, estimate.

    Parameters
    ----------
    recalibrated : bool
        Those of members that were recalibrated on the validation part before pooling (melanoma alone).

    Examples
    --------
    >>> table = published_metrics().query("dataset == 'melanoma' and loss == 'nll' and metric == 'nll'")
    >>> round(float(table.query("model == 'SI-LS'")["estimate"].mean()), 4)
    0.0836
    """
    table = _long("metrics.csv.gz")
    return table[table.pop("recalibrated") == recalibrated].reset_index(drop=True)


def published_coefficients() -> pd.DataFrame:
    """Return the authors' log odds-ratios: dataset, model, loss, weights, variable, split, estimate.

    Examples
    --------
    >>> table = published_coefficients().query("dataset == 'melanoma' and model == 'SI-LS' and loss == 'nll'")
    >>> round(float(table["estimate"].mean()), 3)
    0.678
    """
    return _long("log_odds_ratios.csv.gz")


def published_weights() -> pd.DataFrame:
    """Return the authors' tuned weights: dataset, model, loss, method, split, member, weight.

    Examples
    --------
    >>> table = published_weights().query("dataset == 'mnist' and loss == 'nll' and method == 'linear'")
    >>> round(float((table["weight"] > 1e-8).groupby(table["split"]).sum().mean()), 1)  # of five members
    2.8
    """
    wide = _packaged("weights.csv.gz")
    keys = [column for column in wide.columns if not column.startswith("member_")]
    long = wide.melt(id_vars=keys, var_name="member", value_name="weight")
    return long.assign(member=long["member"].str.removeprefix("member_").astype(int))


def is_same_protocol(study: Study, model: str) -> bool:
    """Whether a model of a study was fitted as the authors fitted theirs.

    Exact fits are, under every preset; networks under the preset ``paper``
    without changes, in ensembles of as many members.

    Parameters
    ----------
    study : Study
    model : str
        Among the models of its protocol.

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> is_same_protocol(make_study("mnist", "modern"), "CI"), is_same_protocol(make_study("mnist"), "CI")
    (False, True)
    """
    if not isinstance(study, Study):
        raise InvalidTypeError(f"study must be a Study, got {study!r}; make one with make_study('mnist')")
    check_choice(model, study.protocol.models, f"models of {study.dataset}")
    if study.dataset not in PAPER_DATASETS:
        return False
    as_published = study.preset == "paper" and not study.changed
    theirs = PRESETS["paper"][study.dataset]
    same = (study.pixels, study.n_members) == (theirs.pixels, theirs.n_members)
    return model in EXACT_MODELS or (as_published and same)


def comparable(table: pd.DataFrame, study: Study, splits: list[int]) -> pd.DataFrame:
    """Return the published means of the models that were fitted as the authors fitted theirs.

    Parameters
    ----------
    table, study, splits
        As for :func:`published_means`.
    """
    means = published_means(table, study, splits)
    return means[means["model"].map(lambda model: is_same_protocol(study, model)).astype(bool)]


def published_means(table: pd.DataFrame, study: Study, splits: list[int]) -> pd.DataFrame:
    """Return the published means of a study's data set and models.

    Where the splits are the authors' own, the mean is over the splits that were
    run; elsewhere over all six.

    Parameters
    ----------
    table : DataFrame
        From :func:`published_metrics` or :func:`published_coefficients`.
    study : Study
    splits : list of int
        The splits in the run.

    Returns
    -------
    DataFrame
        The table's columns without ``split``; ``estimate`` is a mean, ``smallest`` and ``largest`` are
        over all six splits.
    """
    chosen = table[(table["dataset"] == study.dataset) & table["model"].isin(study.models)]
    keys = [column for column in table.columns if column not in ("split", "estimate")]
    ranges = chosen.groupby(keys, sort=False)["estimate"].agg(smallest="min", largest="max")
    if study.dataset in PAPER:
        chosen = chosen[chosen["split"].isin(splits)]
    return chosen.groupby(keys, sort=False)["estimate"].mean().to_frame().join(ranges).reset_index()


def _packaged(name: str) -> pd.DataFrame:
    source = resources.files("deeptram.paper").joinpath("published", name)
    with resources.as_file(source) as path:
        return pd.read_csv(path, float_precision="round_trip")


def _long(name: str) -> pd.DataFrame:
    wide = _packaged(name)
    keys = [column for column in wide.columns if column not in SPLIT_COLUMNS]
    long = wide.melt(id_vars=keys, value_vars=SPLIT_COLUMNS, var_name="split", value_name="estimate")
    return long.assign(split=long["split"].str.removeprefix("split_").astype(int))
