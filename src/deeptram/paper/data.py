"""The data of a study: loaded once, split, fingerprinted, with a few test images for the report."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram import datasets
from deeptram.datasets.base import Dataset
from deeptram.datasets.sources import Progress
from deeptram.errors import InvalidInputError
from deeptram.paper.config import EXACT_MODELS, N_SPLITS, Study
from deeptram.paper.splits import PAPER, Split, grouped_splits, paper_splits, seeded_splits

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
    from deeptram.datasets.skin_lesions import MELANOMA
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
