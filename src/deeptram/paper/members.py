"""The data of a study, and one member of it: fitted, written to its folder, read back as distributions."""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeptram import datasets, networks
from deeptram._files import versions, write_json, write_table
from deeptram.datasets.base import Dataset
from deeptram.datasets.sources import Progress
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.estimators import Tram
from deeptram.model.terms import CI, CS, LS, SI
from deeptram.paper import storage
from deeptram.paper.config import EXACT_MODELS, N_SPLITS, Protocol, Study, Unit, unit_seed
from deeptram.paper.splits import (
    PAPER,
    Split,
    grouped_splits,
    paper_splits,
    seeded_splits,
    splits_from_frame,
)
from deeptram.paper.storage import RunFolder
from deeptram.predictive.discrete import DiscretePredictive

FILES = (storage.PREDICTIONS, storage.COEFFICIENTS, storage.HISTORY, storage.INFO)
PARTS = ("val", "test")
INFO_NUMBERS = ("seconds", "n_epochs", "best_epoch", "seed")
HISTORY_COLUMNS = ["epoch", "train_loss", "validation_loss", "learning_rate", "seconds"]

GALLERY_ROWS = 240
GALLERY_PIXELS = 64
_CHUNK = 2**24


def load_study_data(
    study: Study,
    directory: str | os.PathLike[str] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Return the data set of a study; images only where a model needs them.

    Parameters
    ----------
    study : Study
    directory : path-like, optional
        As for the loaders in ``deeptram.datasets``.
    cache : path-like, optional
        Folder of decoded images.
    progress : callable, optional
        Called while images are decoded.

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> len(load_study_data(make_study("digits", "quick")))
    1797
    """
    needs_images = any(model not in EXACT_MODELS for model in study.models)
    load: Callable[..., Dataset] = getattr(datasets, f"load_{study.dataset}")
    wanted: dict[str, Any] = {"directory": directory, "seed": study.seed + 1, "images": needs_images}
    wanted |= {"cache": cache, "progress": progress}
    wanted |= {} if study.pixels is None else {"size": study.pixels}
    return load(**{name: wanted[name] for name in inspect.signature(load).parameters if name in wanted})


def has_images(dataset: str, directory: str | os.PathLike[str] | None) -> bool:
    """Whether models with images can be fitted (the melanoma table may come without)."""
    if dataset != "melanoma":
        return True
    from deeptram.datasets.image_studies import MELANOMA
    from deeptram.datasets.sources import data_folder

    return MELANOMA.find_images(data_folder(directory, dataset)) is not None


def make_splits(study: Study, data: Dataset) -> list[Split]:
    """Return the six splits of a study: the authors', or seeded ones.

    Examples
    --------
    >>> from deeptram.paper.protocols import make_study
    >>> study = make_study("digits", "quick")
    >>> [len(part) for part in make_splits(study, load_study_data(study))[0].parts()]
    [360, 360, 1077]
    """
    protocol = study.protocol
    shares: dict[str, Any] = {
        "p_val": protocol.p_val,
        "p_test": protocol.p_test,
        "n_splits": N_SPLITS,
        "seed": study.seed,
    }
    if protocol.splitting == "paper":
        expected = PAPER[study.dataset].n
        if len(data) != expected:
            raise InvalidInputError(
                f"the authors' splits of {study.dataset} are for {expected} rows, got {len(data)}; "
                "complete the data (`deeptram data check` says what is missing)"
            )
        return paper_splits(study.dataset)
    if protocol.splitting == "grouped":
        return grouped_splits(data.X[protocol.group or ""], stratify=data.codes, **shares)
    stratify = data.codes if protocol.splitting == "stratified" else None
    return seeded_splits(len(data), stratify=stratify, **shares)


def data_digests(study: Study, data: Dataset) -> dict[str, str | None]:
    """Return hashes of what the members see: ``table`` (outcomes, linear columns) and ``image`` (pixels).

    Exact models depend on the table only; without images ``image`` is None.
    """
    return {"table": _table_digest(study, data), "image": _image_digest(data)}


def _table_digest(study: Study, data: Dataset) -> str:
    hashed = hashlib.sha256()
    hashed.update(repr((data.name, len(data), data.levels)).encode())
    hashed.update(data.codes.tobytes())
    for name in study.protocol.linear:
        hashed.update(name.encode())
        hashed.update(np.ascontiguousarray(data.X[name], dtype=np.float64).tobytes())
    return hashed.hexdigest()[:20]


def _image_digest(data: Dataset) -> str | None:
    images = data.X.get("image")
    if images is None:
        return None
    hashed = hashlib.sha256(repr((tuple(images.shape), str(images.dtype))).encode())
    rows = max(1, _CHUNK // max(1, int(np.prod(images.shape[1:]))))
    for start in range(0, len(images), rows):
        block = images[np.arange(start, min(start + rows, len(images)))]
        hashed.update(np.ascontiguousarray(block).tobytes())
    return hashed.hexdigest()[:20]


def gallery(data: Dataset, splits: Sequence[Split], study: Study) -> dict[str, NDArray[Any]]:
    """Return some test images of the study's first split, as small bytes, and their positions.

    Returns
    -------
    dict
        ``split`` (its number); ``position`` (G,) in its test part; ``images`` uint8, (G, H, W) or
        (G, H, W, 3).
    """
    number = min(study.splits)
    split = splits[number - 1]
    rng = np.random.default_rng(np.random.SeedSequence(study.seed, spawn_key=(0,)))
    size = min(GALLERY_ROWS, len(split.test))
    position = np.sort(rng.choice(len(split.test), size=size, replace=False))
    images = np.asarray(data.X["image"][split.test[position]])
    if images.dtype != np.uint8:
        images = np.round(255 * images).astype(np.uint8)
    step = max(1, -(-max(images.shape[1:3]) // GALLERY_PIXELS))
    return {
        "split": np.array(number),
        "position": position,
        "images": np.ascontiguousarray(images[:, ::step, ::step]),
    }


@dataclass(frozen=True, eq=False)
class FittedMember:
    """What is kept of a member.

    Attributes
    ----------
    predictions : dict
        For the parts ``val`` and ``test``: ``{part}_h`` (n, K-1), the
        transformation, and ``{part}_log_gaps`` (n, K-2), the logs of its
        differences, so that no log-probability saturates. float32 for
        networks (which computed in it), float64 for exact fits.
    coefficients : DataFrame
        Columns variable, estimate, se (NaN where there is none).
    history : DataFrame
        One row per epoch; empty for exact fits.
    info : dict
        Seed, seconds, best epoch, versions, baseline parameters.
    """

    predictions: dict[str, NDArray[Any]]
    coefficients: pd.DataFrame
    history: pd.DataFrame
    info: dict[str, Any]


def model_terms(model: str, protocol: Protocol) -> list[SI | CI | LS | CS]:
    """Return the terms of a model of Table 1.

    Examples
    --------
    >>> from deeptram.paper.protocols import PROTOCOLS
    >>> model_terms("SI-LS", PROTOCOLS["melanoma"])
    [SI(strata=None), LS(columns='age')]
    """
    network = networks.from_dict(protocol.network)
    parts = model.split("-")
    terms: list[SI | CI | LS | CS] = [CI(network, "image") if parts[0] == "CI" else SI()]
    if "CS" in parts:
        terms.append(CS(network, "image"))
    if "LS" in parts:
        terms.append(LS(*protocol.linear))
    return terms


def fit_member(study: Study, data: Dataset, split: Split, unit: Unit) -> FittedMember:
    """Fit one member and predict the validation and test parts.

    The result depends on the study's settings, the data, the split and the
    member's number only: torch uses one thread, and the seed is
    ``unit_seed(study.seed, unit)``.

    Parameters
    ----------
    study : Study
    data : Dataset
    split : Split
    unit : Unit
    """
    started = time.perf_counter()
    seed = unit_seed(study.seed, unit)
    model = Tram(
        model_terms(unit.model, study.protocol),
        outcome=study.protocol.outcome,
        loss=unit.loss,
        levels=data.levels,
        training=None if unit.is_exact else study.training_of(unit, len(split.train)),
        random_state=None if unit.is_exact else seed,
    )
    columns = _columns(unit, study.protocol)
    train, val, test = (data.take(rows) for rows in (split.train, split.validation, split.test))
    X_val, X_test = _inputs(val, columns), _inputs(test, columns)
    model.fit(_inputs(train, columns), train.y, validation=None if unit.is_exact else (X_val, val.y))
    history = _history(model, study, unit)
    predictions: dict[str, NDArray[Any]] = {}
    for part, X in zip(PARTS, (X_val, X_test), strict=True):
        predictions.update(_prediction(model.predict_distribution(X), part, unit))
    return FittedMember(
        predictions=predictions,
        coefficients=_coefficients(model),
        history=history,
        info={
            "seed": seed,
            "seconds": time.perf_counter() - started,
            "converged": bool(getattr(model, "converged_", True)),
            "n_epochs": len(history),
            "best_epoch": _best_epoch(history),
            "n_train": len(train),
            "versions": versions(),
        },
    )


def save_member(run: RunFolder, unit: Unit, fitted: FittedMember, expected: str) -> None:
    """Write a member's files, each under a temporary name first, and its DONE marker last."""
    folder = run.member(unit)
    run.start(unit)
    storage.write_arrays(folder / storage.PREDICTIONS, fitted.predictions)
    write_table(folder / storage.COEFFICIENTS, fitted.coefficients)
    write_table(folder / storage.HISTORY, fitted.history)
    write_json(folder / storage.INFO, fitted.info)
    run.finish(unit, expected, FILES)


def load_parts(run: RunFolder) -> tuple[NDArray[np.int64], list[Split]]:
    """Return the class of every row of a run, and its splits, after checking that they belong together."""
    described = run.described()
    path, expected = run.file(storage.OUTCOMES)
    codes = storage.read_arrays(path, expected, ["codes"])["codes"]
    n, n_levels = described["n_rows"], len(described["levels"])
    right = codes.shape == (n,) and codes.dtype.kind == "i"
    if not right or codes.min() < 0 or codes.max() >= n_levels:
        raise FileFormatError(
            f"{path} must hold a class from 0 to {n_levels - 1} for each of {n} rows, got something else; "
            "delete it and run again"
        )
    path, expected = run.file(storage.SPLITS)
    splits = splits_from_frame(storage.read_frame(path, expected))
    if len(splits) != N_SPLITS or any(len(split) != n for split in splits):
        raise FileFormatError(
            f"{path} must hold {N_SPLITS} splits of {n} rows, got others; delete it and run again"
        )
    return codes.astype(np.int64), splits


def load_predictions(run: RunFolder, unit: Unit, levels: tuple[Any, ...]) -> dict[str, DiscretePredictive]:
    """Return the distributions of a finished member for the parts ``val`` and ``test``, in float64."""
    path, expected = run.member_file(unit, storage.PREDICTIONS)
    names = [f"{part}_{name}" for part in PARTS for name in ("h", "log_gaps")]
    arrays = storage.read_arrays(path, expected, names)
    found = {}
    for part in PARTS:
        h, log_gaps = arrays[f"{part}_h"], arrays[f"{part}_log_gaps"]
        shapes = h.ndim == 2 and h.shape[1] == len(levels) - 1 and log_gaps.shape == (len(h), len(levels) - 2)
        if not shapes or any(one.dtype.kind != "f" or np.isnan(one).any() for one in (h, log_gaps)):
            raise FileFormatError(
                f"{path.parent} must hold h for {len(levels)} levels, got shapes {h.shape} and "
                f"{log_gaps.shape} or NaN; delete it and run again"
            )
        found[part] = _predictive(h.astype(np.float64), log_gaps.astype(np.float64), levels)
    return found


def load_coefficients(run: RunFolder, unit: Unit) -> pd.DataFrame:
    """Return a finished member's table of variable, estimate and se."""
    return _load_table(run, unit, storage.COEFFICIENTS, ["variable"], ["estimate", "se"])


def load_history(run: RunFolder, unit: Unit) -> pd.DataFrame:
    """Return a finished member's losses, one row per epoch."""
    return _load_table(run, unit, storage.HISTORY, [], HISTORY_COLUMNS)


def load_info(run: RunFolder, unit: Unit) -> dict[str, Any]:
    """Return a finished member's seconds, epochs and seed."""
    path, expected = run.member_file(unit, storage.INFO)
    info = storage.read_json(path, expected)
    values: dict[str, Any] = {name: info.get(name) for name in INFO_NUMBERS} if isinstance(info, dict) else {}
    if not values or not all(type(value) in (int, float) and 0 <= value < 2**64 for value in values.values()):
        raise FileFormatError(
            f"{path} must hold the numbers {', '.join(INFO_NUMBERS)}, got others; delete it and run again"
        )
    return values


def _load_table(run: RunFolder, unit: Unit, name: str, texts: list[str], numbers: list[str]) -> pd.DataFrame:
    path, expected = run.member_file(unit, name)
    table = storage.read_frame(path, expected, dtype=dict.fromkeys(texts, str))
    right = all(column in table for column in (*texts, *numbers))
    if not right or not all(table[column].dtype.kind in "iuf" or table.empty for column in numbers):
        raise FileFormatError(
            f"{path} must have the columns {', '.join((*texts, *numbers))}, with numbers, got others; "
            "delete it and run again"
        )
    return table


def _predictive(
    h: NDArray[np.float64], log_gaps: NDArray[np.float64], levels: tuple[Any, ...]
) -> DiscretePredictive:
    """Return distributions from the first h and the gaps: rounded separately, h and gaps would disagree."""
    rest = h[:, :1] + np.cumsum(np.exp(log_gaps), axis=1)
    consistent = np.concatenate([h[:, :1], rest], axis=1)
    return DiscretePredictive.from_h(consistent, log_gaps, levels=levels, latent="logistic")


def machine() -> dict[str, Any]:
    """Return what is worth knowing about the computer: its kind, not its name.

    Examples
    --------
    >>> "cpus" in machine()
    True
    """
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cpus": os.cpu_count() or 1,
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none",
    }


def _columns(unit: Unit, protocol: Protocol) -> list[str]:
    columns = [] if unit.is_exact else ["image"]
    return columns + (list(protocol.linear) if "LS" in unit.model.split("-") else [])


def _inputs(part: Dataset, columns: list[str]) -> dict[str, Any]:
    if not columns:  # the model without covariates still needs to know how many rows there are
        return {"row": np.zeros(len(part))}
    return {name: part.X[name] for name in columns}


def _history(model: Any, study: Study, unit: Unit) -> pd.DataFrame:
    if unit.is_exact:
        return pd.DataFrame(columns=HISTORY_COLUMNS)
    history: pd.DataFrame = model.history_
    if len(history) < study.training.epochs and study.training.patience is None:
        raise KeyboardInterrupt  # the estimator keeps what it has; a member must be whole
    return history


def _best_epoch(history: pd.DataFrame) -> int:
    if history.empty:
        return 0
    return int(history["epoch"].iloc[int(np.argmin(history["validation_loss"]))])


def _prediction(pred: Any, part: str, unit: Unit) -> dict[str, NDArray[Any]]:
    dtype = np.float64 if unit.is_exact else np.float32
    return {
        f"{part}_h": pred.trafo_t().numpy().astype(dtype),
        f"{part}_log_gaps": pred.log_increments_t().numpy().astype(dtype),
    }


def _coefficients(model: Any) -> pd.DataFrame:
    table = model.summary()
    columns = {"variable": table.index, "estimate": table["coef"].to_numpy(), "se": table["se"].to_numpy()}
    return pd.DataFrame(columns)
