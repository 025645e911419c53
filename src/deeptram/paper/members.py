"""The data of a study, and one member of it: fitted, written to its folder, read back as distributions."""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeptram import datasets, networks
from deeptram._files import json_sha256, versions
from deeptram._schema import fields, flag, integer, listed, mapping, number, text
from deeptram.datasets.base import Dataset
from deeptram.datasets.sources import Progress
from deeptram.ensemble.checkpoint import distribution_from_record, distribution_to_record
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.estimators import Tram
from deeptram.estimators.data_checks import fingerprint
from deeptram.estimators.deep import history_from_array
from deeptram.estimators.saved_format import setting
from deeptram.fitting.deep.hooks import HISTORY
from deeptram.model.persistence import FinishedWork, check_arrays
from deeptram.model.terms import CI, CS, LS, SI
from deeptram.paper import storage
from deeptram.paper.config import EXACT_MODELS, N_SPLITS, Protocol, Study, Unit, unit_seed
from deeptram.paper.splits import PAPER, Split, grouped_splits, paper_splits, seeded_splits
from deeptram.paper.storage import RunFolder
from deeptram.predictive.discrete import DiscretePredictive

PARTS = ("val", "test")
_INFO = fields(
    {
        "seed": integer(0, 2**64),
        "seconds": number(0),
        "converged": flag,
        **dict.fromkeys(("n_epochs", "best_epoch", "n_train"), integer()),
        "versions": mapping(text),
    }
)
_MEMBER = fields({"variables": listed(text), "info": _INFO, **dict.fromkeys(PARTS, mapping(setting))})

GALLERY = ("images", "position", "split")
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
    columns = {name: np.asarray(data.X[name], dtype=np.float64) for name in study.protocol.linear}
    return fingerprint([data.name, repr(data.levels)], data.codes, columns)[:20]


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
        ``split`` (1,), its number; ``position`` (G,) in its test part; ``images`` uint8, (G, H, W) or
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
        "split": np.array([number]),
        "position": position,
        "images": np.ascontiguousarray(images[:, ::step, ::step]),
    }


@dataclass(frozen=True, eq=False)
class FittedMember:
    """What is kept of a member.

    Attributes
    ----------
    predictions : dict
        The distributions of the parts ``val`` and ``test``. Files have h, (n, K-1), and the logs of its
        differences, (n, K-2), so that no log-probability saturates: float32 for
        networks (which computed in it), float64 for exact fits.
    coefficients : DataFrame
        Columns variable, estimate, se (NaN where there is none).
    history : DataFrame
        One row per epoch; empty for exact fits.
    info : dict
        Seed, seconds, best epoch, versions, baseline parameters.
    """

    predictions: dict[str, Any]
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
    parts = zip(PARTS, (X_val, X_test), strict=True)
    return FittedMember(
        predictions={part: model.predict_distribution(X) for part, X in parts},
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
    """Write a finished member, under its hash."""
    table, dtype = fitted.coefficients, np.float64 if unit.is_exact else np.float32
    record = {"variables": [str(name) for name in table["variable"]], "info": fitted.info}
    tensors = {
        "coefficients": table[["estimate", "se"]].to_numpy(dtype=np.float64),
        "history": fitted.history[HISTORY].to_numpy(dtype=np.float64),
    }
    for part, pred in fitted.predictions.items():
        record[part], arrays = distribution_to_record(pred)
        tensors |= {f"{part}/{name}": values.astype(dtype) for name, values in arrays.items()}
    run.members.save(unit.folder, expected, record, tensors)
    run.failure(unit).unlink(missing_ok=True)


def load_member(run: RunFolder, unit: Unit, n_levels: int) -> FittedMember:
    """Return a finished member, its distributions on the levels 0, ..., K - 1 and in float64."""
    folder = run.member(unit)
    if not folder.exists():
        raise FileFormatError(
            f"{folder} must hold a finished member, got none; run `deeptram reproduce` again"
        )
    record, tensors = run.members.load(unit.folder)
    _MEMBER(record, str(folder))
    known = {
        "coefficients": (len(record["variables"]), 2),
        "history": (record["info"]["n_epochs"], len(HISTORY)),
    }
    check_arrays(
        {name: (shape, "float64") for name, shape in known.items()},
        {name: values for name, values in tensors.items() if "/" not in name},
    )
    table = pd.DataFrame(tensors["coefficients"], columns=["estimate", "se"])
    table.insert(0, "variable", record["variables"])
    predictions = {}
    for part in PARTS:
        arrays = {name.partition("/")[2]: v for name, v in tensors.items() if name.startswith(f"{part}/")}
        pred = distribution_from_record(
            record[part], {name: v.astype(np.float64) for name, v in arrays.items()}
        )
        if not isinstance(pred, DiscretePredictive) or len(pred.levels) != n_levels:
            raise FileFormatError(
                f"{folder} must hold predictions of {n_levels} levels, got others; delete it and run again"
            )
        predictions[part] = _consistent(pred)
    return FittedMember(predictions, table, history_from_array(tensors["history"]), record["info"])


def _consistent(pred: DiscretePredictive) -> DiscretePredictive:
    """Return distributions from the first h and the gaps: rounded separately, h and gaps would disagree."""
    h, log_gaps = pred.trafo_t().numpy(), pred.log_increments_t().numpy()
    rest = h[:, :1] + np.cumsum(np.exp(log_gaps), axis=1)
    return DiscretePredictive.from_h(np.concatenate([h[:, :1], rest], axis=1), log_gaps, latent="logistic")


@dataclass(frozen=True, eq=False)
class RunParts:
    """The rows of a run.

    Attributes
    ----------
    codes : array of int, shape (n,)
        The class of every row.
    splits : list of Split
    images : array of uint8, shape (G, H, W) or (G, H, W, 3), or None
        Some test images of one split.
    position : array of int, shape (G,)
        Where they are in its test part.
    split : int
        Its number; 0 without images.
    """

    codes: NDArray[np.int64]
    splits: list[Split]
    images: NDArray[np.uint8] | None = None
    position: NDArray[np.int64] | None = None
    split: int = 0


def prepare_parts(run: RunFolder, study: Study, data: Dataset, digest: str | None) -> list[Split]:
    """Return the splits of a study, after writing them, the class of every row and some images.

    What is there and complete stays.

    Parameters
    ----------
    run : RunFolder
    study : Study
    data : Dataset
    digest : str
        Of the table.
    """
    splits, work = make_splits(study, data), FinishedWork(run.path)
    code = json_sha256([study.fingerprint, digest])
    rows: dict[str, NDArray[Any]] = {
        "codes": data.codes.astype(np.int16),
        "rows": np.stack([np.concatenate([*split.parts()]) for split in splits]).astype(np.int32),
        "sizes": np.array([[len(part) for part in split.parts()] for split in splits]),
    }
    kept = work.load(storage.DATA, code)[1] if work.is_done(storage.DATA, code) else {}
    if kept and any(not np.array_equal(kept.get(name, ()), values) for name, values in rows.items()):
        raise FileFormatError(
            f"{run.path / storage.DATA} must hold the splits of this study, got others; choose another folder"
        )
    if not kept or ("image" in data.X and "images" not in kept):
        images = gallery(data, splits, study) if "image" in data.X else {}
        work.save(storage.DATA, code, {}, {**rows, **images})
    return splits


def load_parts(run: RunFolder) -> RunParts:
    """Return the rows of a run, after checking that they belong together."""
    path, config = run.path / storage.DATA, run.config()
    n, n_levels = config["n_rows"], len(config["levels"])
    _, arrays = FinishedWork(run.path).load(storage.DATA)
    names = ["codes", "rows", "sizes", *(GALLERY if "images" in arrays else ())]
    if not set(names) <= set(arrays) or any(values.dtype.kind not in "iu" for values in arrays.values()):
        raise _not(path, f"whole numbers as {', '.join(names)}")
    codes, rows, sizes = (arrays[name].astype(np.int64) for name in names[:3])
    if codes.shape != (n,) or codes.min() < 0 or codes.max() >= n_levels:
        raise _not(path, f"a class from 0 to {n_levels - 1} for each of {n} rows")
    right = rows.shape == (N_SPLITS, n) and sizes.shape == (N_SPLITS, 3) and sizes.min() >= 0
    if not right or (np.sort(rows) != np.arange(n)).any() or (sizes.sum(axis=1) != n).any():
        raise _not(path, f"{N_SPLITS} splits of {n} rows")
    parts = [np.split(own, ends) for own, ends in zip(rows, sizes.cumsum(axis=1)[:, :2], strict=True)]
    splits = [Split(test=test, validation=validation, train=train) for test, validation, train in parts]
    if "images" not in arrays:
        return RunParts(codes, splits)
    images, position, number = arrays["images"], arrays["position"].astype(np.int64), arrays["split"]
    right = (
        images.dtype == np.uint8 and images.ndim in (3, 4) and images.shape[3:] in ((), (3,)) and images.size
    )
    right = right and position.shape == (len(images),) and number.shape == (1,) and 1 <= number[0] <= N_SPLITS
    if not right or position.min() < 0 or position.max() >= len(splits[int(number[0]) - 1].test):
        raise _not(path, "test images and their rows")
    return RunParts(codes, splits, images, position, int(number[0]))


def _not(path: Path, expected: str) -> FileFormatError:
    return FileFormatError(f"{path} must hold {expected}, got something else; delete it and run again")


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
        return pd.DataFrame(columns=HISTORY)
    history: pd.DataFrame = model.history_
    if len(history) < study.training.epochs and study.training.patience is None:
        raise KeyboardInterrupt  # the estimator keeps what it has; a member must be whole
    return history


def _best_epoch(history: pd.DataFrame) -> int:
    if history.empty:
        return 0
    return int(history["epoch"].iloc[int(np.argmin(history["validation_loss"]))])


def _coefficients(model: Any) -> pd.DataFrame:
    table = model.summary()
    columns = {"variable": table.index, "estimate": table["coef"].to_numpy(), "se": table["se"].to_numpy()}
    return pd.DataFrame(columns)
