"""Ensembles as folders, and ``load`` for everything that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from deeptram import latent as latents
from deeptram._files import json_sha256, versions
from deeptram._schema import (
    Field,
    SavedForm,
    agree,
    choice,
    fields,
    flag,
    integer,
    listed,
    mapping,
    misfit,
    number,
    optional,
    plain,
    scalar,
    text,
    unplain,
)
from deeptram.ensemble.plans import AUTO, MEMBERS
from deeptram.ensemble.pooled_members import PoolChoice
from deeptram.ensemble.strategies import STRATEGIES
from deeptram.errors import FileFormatError, InvalidTypeError, UnsupportedError, about
from deeptram.estimators.base import BaseTram
from deeptram.estimators.persistence import (
    model_from_record,
    model_to_record,
    parameters_from_record,
    parameters_to_record,
    rebuilding,
)
from deeptram.estimators.saved_format import (
    MODEL,
    SEED,
    UNFITTED,
    latent_name,
    loss_value,
    saved_latent,
    saved_seed,
    unmarked,
)
from deeptram.model import Design
from deeptram.model.persistence import JSON_NAME, Tensors, check_arrays, read_folder, write_folder
from deeptram.pooling import rule_from_file, saved_rule
from deeptram.pooling.correction import KINDS, Correction
from deeptram.pooling.pool import check_weights
from deeptram.pooling.recalibration import Recalibration

if TYPE_CHECKING:
    from deeptram.ensemble.ensemble import Ensemble


def save_ensemble(ensemble: Ensemble, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Save a fitted ensemble as a folder.

    Parameters
    ----------
    ensemble : Ensemble
    path : path
    overwrite : bool
    """
    check_is_fitted(ensemble, "members_")
    for m, member in enumerate(ensemble.members_):
        if not isinstance(member, BaseTram):
            raise UnsupportedError(
                f"only deeptram models can be saved, got {type(member).__name__} as member {m}; save it "
                "with its own library and build the ensemble again with from_members"
            )
    members, tensors = [], {"weights": ensemble.weights_}
    for m, member in enumerate(ensemble.members_):
        record, arrays = model_to_record(member)
        members.append(record)
        tensors |= {f"{m}/{name}": value for name, value in arrays.items()}
    record = {
        "settings": _SETTINGS.write(ensemble),
        "model": None if ensemble.model is None else parameters_to_record(ensemble.model),
        **_STATE.write(ensemble),
        **_FOLDS.write(ensemble),
        "members": members,
    }
    content = {"kind": "ensemble", "versions": versions(), "ensemble": record}
    return write_folder(path, content, tensors, overwrite=overwrite)


def load(path: str | os.PathLike[str], networks: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """Load a model or an ensemble that ``save`` wrote.

    Nothing in the folder is executed. A folder of another schema, damaged or
    changed since it was written, is refused.

    Parameters
    ----------
    path : path
        The folder.
    networks : dict, optional
        Your own network factories, by the name under which they were saved
        (see ``deeptram.networks.register``; without registration the name is ``module.function``).

    Returns
    -------
    Tram or Ensemble
        Fitted; predictions are those of the saved one.

    Examples
    --------
    >>> import tempfile, deeptram as dt
    >>> model = dt.Logit().fit(np.arange(6.0)[:, None], [0, 1, 0, 1, 1, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = dt.load(model.save(Path(folder) / "model"))
    >>> again.coef_.equals(model.coef_)
    True
    """
    if networks is not None and not isinstance(networks, Mapping):
        raise InvalidTypeError(
            f"networks must be a dict of names and factories, got {type(networks).__name__}; "
            "write networks={'my_net': my_net}"
        )
    content, tensors = read_folder(path)
    kind, given = content.get("kind"), dict(networks or {})
    if not isinstance(kind, str) or kind not in _LOADERS:
        raise FileFormatError(
            f"load reads models and ensembles, got a folder of kind {kind!r} in {str(path)!r}; "
            "pass the path that was given to save"
        )
    return _LOADERS[kind](content.get(kind), tensors, given)


def _ensemble_from_record(
    record: Any, tensors: Tensors, networks: Mapping[str, Callable[..., Any]]
) -> Ensemble:
    from deeptram.ensemble.ensemble import Ensemble

    with rebuilding():
        _ENSEMBLE(record, f"{JSON_NAME}: ensemble")
        count = len(record["members"])
        own = [str(m) for m in range(count)]
        rest = {name: value for name, value in tensors.items() if name.split("/")[0] not in own}
        check_arrays({"weights": ((count,), "float64")}, rest)
        weights = check_weights(tensors["weights"], count)
        members = [
            model_from_record(entry, _part(tensors, m), networks) for m, entry in enumerate(record["members"])
        ]
        share_designs(members)
        model = None if record["model"] is None else parameters_from_record(record["model"], networks)
        settings = _SETTINGS.read(record["settings"])
        if settings["weights"] == "given":
            settings["weights"] = weights
        ensemble = Ensemble(model, **settings)
        ensemble._keep(members)
        ensemble.weights_ = tensors["weights"]
        _STATE.restore({name: record[name] for name in _STATE.checks}, ensemble)
        _FOLDS.restore({name: record[name] for name in _FOLDS.checks if name in record}, ensemble)
    return ensemble


def _ensemble_agrees(record: dict[str, Any], at: str) -> None:
    outcomes = [member["fitted"]["outcome"] for member in record["members"]]
    for m, outcome in enumerate(outcomes):
        path = f"{at}.members[{m}].fitted.outcome"
        agree(f"{path}.levels", "those of the first member", outcomes[0]["levels"], outcome["levels"])
        counts = (outcomes[0]["kind"] == "count", outcome["kind"] == "count")
        agree(f"{path}.kind: being a count", "as in the first member", *counts)
    if "fold_scores" in record:
        count = len(record["fold_scores"])
        agree(f"{at}.fold_scores", "one for each member", len(outcomes), count)
    if "fold_weights" in record:
        sizes = [len(fold) for fold in record["fold_weights"]]
        agree(f"{at}.fold_weights", "one for each member", len(outcomes), sum(sizes))
        agree(f"{at}.fold_weights", "as many in each fold", sizes[:1] * len(sizes), sizes)
    if record["recalibrations"] is None:
        return
    width = max(len(outcomes[0]["levels"] or ()) - 1, 1)
    agree(f"{at}.recalibrations", "one for each member", len(outcomes), len(record["recalibrations"]))
    for m, one in enumerate(record["recalibrations"]):
        for name in ("intercept", "slope"):
            agree(f"{at}.recalibrations[{m}].{name}", "one for each cutpoint", width, len(one[name]))
        steps = np.diff(one["intercept"])
        if len(set(one["slope"])) > 1 or (steps < -1e-6 * (1 + np.abs(steps).max(initial=0))).any():
            raise misfit(f"{at}.recalibrations[{m}]", "one slope and increasing intercepts", one)


def _pool_check(value: Any, at: str) -> None:
    """Check for the name of a registered pool with its parameters."""
    fields({"name": text, "parameters": listed(number(), 0, 9)})(value, at)
    with about(at):
        rule_from_file(value)


def _one_varied(value: Any, at: str) -> None:
    """Check for a number, a text, or a tuple of them."""
    found = unplain(value)
    for one in found if isinstance(found, tuple) else (found,):
        scalar(one, at)


def _is_auto(pooling: Any) -> bool:
    return isinstance(pooling, str) and pooling == AUTO


def _recalibration(record: dict[str, Any]) -> Recalibration:
    one = Recalibration()
    _RECALIBRATION.restore(record, one)
    return one


_SETTINGS = SavedForm(
    {
        "n_members": integer(1, 10**6),
        "n_jobs": optional(integer(-(10**6), 10**6)),
        "strategy": choice(STRATEGIES),
        "recalibrate": lambda value, at: None if value == "pool" else flag(value, at),
        "members": choice(MEMBERS),
        "random_state": Field(optional(SEED), saved_seed),
        "weights": Field(
            choice(["equal", "tuned", "given"]), lambda given: given if isinstance(given, str) else "given"
        ),
        "pooling": Field(
            lambda value, at: None if _is_auto(value) else _pool_check(value, at),
            lambda pooling: pooling if _is_auto(pooling) else saved_rule(pooling),
            lambda record: record if _is_auto(record) else rule_from_file(record),
        ),
        "vary": Field(
            optional(mapping(listed(_one_varied, 1, 10**5))),
            lambda vary: {name: [saved_latent(one) for one in values] for name, values in vary.items()},
        ),
    }
)
_VECTOR = (lambda values: values.tolist(), lambda values: np.array(values, dtype=float))
_RECALIBRATION = SavedForm(
    {
        "intercept": Field(listed(number(), 1), *_VECTOR),
        "slope": Field(listed(number(0), 1), *_VECTOR),
        "latent": Field(latent_name, latents.saved_name, latents.get),
        "converged": flag,
    },
    suffix="_",
)
_CORRECTION = SavedForm(
    {
        "kind": choice(list(KINDS)),
        "intercept": number(),
        "spread": number(1e-100),
        "centre": optional(number()),
        **dict.fromkeys(("before", "after"), unmarked(loss_value)),
    }
)
_CHOICE = SavedForm({"pool": text, "reason": text, "correction": choice(["none", *KINDS])})
_STATE = SavedForm(
    {
        "root_seed": optional(SEED),
        "strategy": optional(choice(STRATEGIES)),
        "rule": Field(optional(_pool_check), saved_rule, rule_from_file),
        "choice": Field(optional(_CHOICE), _CHOICE.write, lambda record: PoolChoice(**_CHOICE.read(record))),
        "recalibrations": Field(
            optional(listed(_RECALIBRATION)),
            lambda every: [_RECALIBRATION.write(one) for one in every],
            lambda every: [_recalibration(one) for one in every],
        ),
        "correction": Field(
            optional(_CORRECTION), _CORRECTION.write, lambda record: Correction(**_CORRECTION.read(record))
        ),
    },
    suffix="_",
)
_FOLDS = SavedForm(  # of ensembles from folds
    {},
    {
        "fold_scores": Field(
            listed(unmarked(loss_value), 1),
            lambda scores: plain(scores.tolist()),
            lambda scores: np.array(unplain(scores), dtype=float),
        ),
        "fold_weights": Field(listed(listed(number(0), 1), 1), *_VECTOR),
    },
    suffix="_",
)
_ENSEMBLE = fields(
    {
        "settings": _SETTINGS,
        "model": optional(UNFITTED),
        **_STATE.checks,
        "members": listed(MODEL, 1, 10**5),
    },
    _FOLDS.checks,
    then=_ensemble_agrees,
)
_LOADERS: dict[str, Callable[..., Any]] = {"model": model_from_record, "ensemble": _ensemble_from_record}


def share_designs(members: list[BaseTram]) -> None:
    """Let members with equal encodings share one, in place, so that new data are encoded once.

    Parameters
    ----------
    members : list of fitted models
    """
    seen: dict[str, Design] = {}
    for member in members:
        member.design_ = seen.setdefault(json_sha256(member.design_.to_dict()), member.design_)
        member.model_ = member.model_.with_design(member.design_)


def _part(tensors: Tensors, m: int) -> Tensors:
    prefix = f"{m}/"
    return {name.removeprefix(prefix): v for name, v in tensors.items() if name.startswith(prefix)}
