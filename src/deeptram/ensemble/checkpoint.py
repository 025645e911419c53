"""Finished members and folds on disk, so that a fit or leaderboard that was killed goes on where it was.

A checkpoint is a folder with ``checkpoint.json`` (root seed, and hashes of the
model, the training settings and the data) and one folder per finished member
(``deeptram.model.persistence.FinishedWork``), which counts with the hash of its configuration. Members in
training have a state of a few epochs ago beside them (``deeptram.fitting.deep.resume``).
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deeptram import bases
from deeptram import latent as latents
from deeptram._files import clear_leftovers, json_sha256, parse_json, write_json
from deeptram._schema import (
    agree,
    fields,
    fixed,
    flag,
    integer,
    mapping,
    number,
    optional,
    plain,
    tagged,
    text,
    unplain,
)
from deeptram.ensemble.plans import Plan
from deeptram.errors import DeeptramError, FileFormatError, InvalidInputError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.data_checks import fingerprint
from deeptram.estimators.deep import MemberFit
from deeptram.estimators.identity import identity
from deeptram.estimators.persistence import parameters_to_record, rebuilding
from deeptram.estimators.saved_format import LEVELS, SEED, TRAINED, basis_record, latent_name
from deeptram.fitting.deep.resume import ResumePoints
from deeptram.fitting.deep.seeds import root_seed
from deeptram.fitting.deep.training import Training
from deeptram.model.persistence import JSON_NAME, FinishedWork, Tensors, check_arrays, check_values
from deeptram.model.terms import Spec
from deeptram.predictive import (
    DiscretePredictive,
    Predictive,
    QuantilesPredictive,
    SamplesPredictive,
    SurvivalPredictive,
    TransformationCount,
    TransformationPredictive,
)

SCHEMA = 2
INDEX = "checkpoint.json"
# Settings that change how training runs or looks, not what it computes.
_IRRELEVANT = ("progress", "device", "workers")
_INDEX = fields({"schema": integer(), "root_seed": SEED, "configuration": mapping(text)})


@dataclass(frozen=True)
class Configuration:
    """Hashes of everything a member depends on besides its seed.

    Attributes
    ----------
    model, training, data, validation : str
    """

    model: str
    training: str
    data: str
    validation: str

    @classmethod
    def of(
        cls,
        model: BaseTram,
        X: Any,
        y: Any,
        sample_weight: Any,
        validation: Any,
        vary: Any = None,
        kind: str = "seeds",
    ) -> Configuration:
        """Return the configuration of an ensemble's members.

        Parameters
        ----------
        model : BaseTram
            Unfitted.
        X, y, sample_weight, validation
            As given to ``fit``.
        vary : dict or None
        kind : str
            In what the members of the ensemble differ.
        """
        record = parameters_to_record(model)
        if kind != "seeds":
            record["members"] = kind
        if vary:
            record["vary"] = identity(vary)
        record["parameters"].pop("random_state")
        record["parameters"].pop("training")
        record["networks"] = [identity(term.net) for term in Spec.of(model.terms).networks]
        training = Training() if model.training is None else model.training
        settings = {key: value for key, value in training.to_dict().items() if key not in _IRRELEVANT}
        settings["hooks"] = identity(training.hooks())
        held = validation if isinstance(validation, (float, int)) else None
        data = validation if isinstance(validation, (tuple, list)) else ()
        return cls(
            json_sha256(record),
            json_sha256(plain(settings)),
            fingerprint(X, y, sample_weight),
            json_sha256(held) + (fingerprint(*data) if data else ""),
        )

    def member_hash(self, seed: int) -> str:
        """Return the hash of one member's configuration."""
        return json_sha256([self.model, self.training, self.data, self.validation, seed])


class Checkpoint:
    """A folder of finished members of one configuration.

    Parameters
    ----------
    folder : path
        Created if it is not there.
    configuration : Configuration
        A folder of another configuration is refused.
    random_state : int or None
        With None, the root seed of an existing folder is taken over.
    """

    def __init__(
        self, folder: str | os.PathLike[str], configuration: Configuration, random_state: Any
    ) -> None:
        self.folder, self.configuration = Path(folder), configuration
        self.members = FinishedWork(self.folder)
        self.root = self._open(random_state)

    def _open(self, random_state: Any) -> int:
        index = self.folder / INDEX
        parts = dict(vars(self.configuration))
        if not index.is_file():
            self._check_new()
            root = root_seed(random_state)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(index, {"schema": SCHEMA, "root_seed": root, "configuration": parts})
            return root
        try:
            found = parse_json(index.read_bytes())
            _INDEX(found, INDEX)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(
                f"{INDEX} in {str(self.folder)!r} must be as it was written, got one that cannot be read "
                f"({error}); delete the folder to train again"
            ) from error
        stored, before, schema = found["root_seed"], found["configuration"], found["schema"]
        clear_leftovers(self.folder)  # of a fit that was killed while writing
        root = stored if random_state is None else root_seed(random_state)
        changed = [name for name, value in parts.items() if before.get(name) != value]
        changed += ["random_state"] * (root != stored) + ["schema"] * (schema != SCHEMA)
        if changed:
            raise InvalidInputError(
                f"checkpoint {str(self.folder)!r} must hold members of this configuration, got another "
                f"{' and '.join(changed)}; use another folder, or delete it to train again"
            )
        return root

    def _check_new(self) -> None:
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InvalidInputError(
                f"checkpoint must be a new or empty folder, or one made by an earlier fit, got "
                f"{str(self.folder)!r}; choose another folder"
            )

    def load(self, plans: Sequence[Plan]) -> dict[int, MemberFit]:
        """Return the finished members among those planned; damaged ones do not count."""
        found = {}
        for m, plan in enumerate(plans):
            with contextlib.suppress(OSError, FileFormatError):
                found[m] = self._load(_name(m), plan.seed, plan.template)
        return found

    def _load(self, name: str, seed: int, template: BaseTram) -> MemberFit:
        record, tensors = self.members.load(name, self.configuration.member_hash(seed))
        with rebuilding():
            TRAINED(record, f"{JSON_NAME}: record")
            member = MemberFit.from_record(record, tensors)
            agree(f"{JSON_NAME}: record.seed", "that of this fit", seed, member.seed)
            member.restore_checked(copy.copy(template))
        return member

    def remembered(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a value of this configuration, which is computed and kept where it is not there yet."""
        if not self.members.is_done(name, self._code):
            self.members.save(name, self._code, plain(compute()), {})
        return unplain(self.members.load(name, self._code)[0])

    @property
    def _code(self) -> str:
        return json_sha256(vars(self.configuration))

    def resume_points(self, every: int) -> ResumePoints:
        """Return where members in training write their state, every so many epochs."""
        return ResumePoints(self.folder.absolute(), every, self._code)

    def save(self, m: int, member: MemberFit) -> None:
        """Write a finished member: complete, or not at all."""
        code = self.configuration.member_hash(member.seed)
        self.members.save(_name(m), code, *member.to_record())


def _name(m: int) -> str:
    return f"member-{m:04d}"


# -- folds of a leaderboard --------------------------------------------------------------------------


Seconds = tuple[float, float]


class FoldStore:
    """A folder of finished folds; without a path nothing is kept.

    Parameters
    ----------
    path : path, optional
    data : objects
        X, y and whatever else the predictions depend on.
    """

    def __init__(self, path: Any, *data: Any) -> None:
        self.folds = None if path is None else FinishedWork(Path(path))
        self.data = "" if path is None else fingerprint(*data)

    def load(self, name: str, model: Any, fold: int, rows: Any) -> tuple[Predictive, Seconds] | None:
        """Return the prediction of a finished fold and its seconds; None if there is none of this model."""
        if self.folds is None:
            return None
        try:
            record, arrays = self.folds.load(_fold_name(name, fold), self._code(model, rows))
            _FOLD(record, JSON_NAME)
            return distribution_from_record(record["distribution"], arrays), tuple(record["seconds"])
        except (DeeptramError, OSError):  # none, damaged, or of another version
            return None

    def save(self, name: str, model: Any, fold: int, rows: Any, pred: Predictive, seconds: Seconds) -> None:
        """Keep the prediction of a finished fold, if it can be kept."""
        if self.folds is None:
            return
        try:
            form, arrays = distribution_to_record(pred)
        except UnsupportedError:
            return
        record = {"seconds": list(seconds), "distribution": form}
        self.folds.save(_fold_name(name, fold), self._code(model, rows), record, arrays)

    def _code(self, model: Any, rows: Any) -> str:
        return json_sha256([self.data, identity(model), fingerprint(np.asarray(rows))])


def _fold_name(name: str, fold: int) -> str:
    plain_name = re.sub(r"[^\w.-]+", "_", name)[:60]
    return f"{plain_name}-{json_sha256(name)[:8]}/fold-{fold}"


# -- distributions -----------------------------------------------------------------------------------

# Distributions that are their numbers, and nothing else.
_NUMBERS_ONLY: dict[str, tuple[Any, tuple[str, ...]]] = {
    "survival": (SurvivalPredictive, ("times", "survival")),
    "quantiles": (QuantilesPredictive, ("q", "values")),
    "samples": (SamplesPredictive, ("draws",)),
}
_LINE = {
    "basis": basis_record,
    "latent": latent_name,
    "lifetimes": flag,
    "observed": optional(fixed(number(), number())),
}
_DISTRIBUTION = tagged(
    "kind",
    {
        "discrete": {"levels": LEVELS, "ordered": flag, "latent": optional(latent_name)},
        "line": _LINE,
        "count": {**_LINE, "offset": integer()},
        **{kind: {} for kind in _NUMBERS_ONLY},
    },
)
_FOLD = fields({"seconds": fixed(number(0), number(0)), "distribution": _DISTRIBUTION})


def distribution_to_record(pred: Any) -> tuple[dict[str, Any], Tensors]:
    """Return distributions as JSON-able values and arrays; ``UnsupportedError`` for those with more to them.

    Examples
    --------
    >>> record, arrays = distribution_to_record(Predictive.from_trafo([[-1.0, 2.0]]))
    >>> record["levels"], arrays["h"]
    ([0, 1, 2], array([[-1.,  2.]]))
    >>> distribution_from_record(record, arrays).trafo()
    array([[-1.,  2.]])
    """
    record: dict[str, Any]
    held: dict[str, Any]
    if isinstance(pred, DiscretePredictive):
        record = {"kind": "discrete", "levels": [plain(level) for level in pred.levels]}
        record |= {"ordered": pred.ordered, "latent": pred.latent and latents.saved_name(pred.latent)}
        held = {"log_cdf": pred.log_cdf_t, "log_sf": pred.log_sf_t, "log_pmf": pred.log_pmf_t}
        if pred.has_trafo:
            held = {"h": pred.trafo_t, "log_increments": pred.log_increments_t}
        return record, {name: values().detach().numpy() for name, values in held.items()}
    if type(pred) is TransformationCount:
        record, arrays = distribution_to_record(pred.line)
        return {**record, "kind": "count", "offset": pred.offset}, arrays
    if type(pred) is TransformationPredictive:
        observed = None if pred.observed is None else list(pred.observed)
        record = {"kind": "line", "basis": bases.to_dict(pred.basis), "lifetimes": pred.lifetimes}
        record |= {"latent": latents.saved_name(pred.latent), "observed": observed}
        held = {name: getattr(pred, name) for name in ("theta", "shift", "log_scale")}
        return record, {name: value.detach().numpy() for name, value in held.items() if value is not None}
    for kind, (known, names) in _NUMBERS_ONLY.items():
        if type(pred) is known:
            return {"kind": kind}, {name: getattr(pred, name).numpy() for name in names}
    raise UnsupportedError(f"a {type(pred).__name__} has more to it than its numbers; it is not kept")


def distribution_from_record(record: Any, arrays: Tensors) -> Predictive:
    """Return the distributions of :func:`distribution_to_record`, after checking that all fits together."""
    with rebuilding():
        _DISTRIBUTION(record, f"{JSON_NAME}: distribution")
        for name, values in arrays.items():
            check_values(name, values, np.inf)
        kind = record["kind"]
        if kind in _NUMBERS_ONLY:
            known, names = _NUMBERS_ONLY[kind]
            return known(*(torch.from_numpy(arrays[name]) for name in names), numpy=True)  # type: ignore[no-any-return]
        if kind == "discrete":
            return _discrete_from_record(record, arrays)
        known = {
            "lifetimes": record["lifetimes"],
            "observed": record["observed"] and tuple(record["observed"]),
        }
        numbers = (arrays["theta"], arrays.get("shift"), arrays.get("log_scale"))
        line = TransformationPredictive(bases.from_dict(record["basis"]), record["latent"], *numbers, **known)
        return line if kind == "line" else TransformationCount(line, record["offset"])


def _discrete_from_record(record: dict[str, Any], arrays: Tensors) -> DiscretePredictive:
    k, some = len(record["levels"]), next(iter(arrays.values()))
    widths = {"h": k - 1, "log_increments": k - 2}
    if "h" not in arrays:
        widths = {"log_cdf": k - 1, "log_sf": k - 1, "log_pmf": k}
    check_arrays({name: ((len(some), width), some.dtype.name) for name, width in widths.items()}, arrays)
    latent = None if record["latent"] is None else latents.get(record["latent"])
    held: dict[str, Any] = {name: torch.from_numpy(values) for name, values in arrays.items()}
    pred = DiscretePredictive(levels=record["levels"], latent=latent, **held)
    pred.ordered = record["ordered"]
    return pred
