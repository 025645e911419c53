"""Ensembles as folders, and ``load`` for everything that was saved."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from deeptram import _schema as schema
from deeptram import latent as latents
from deeptram._files import json_sha256, versions
from deeptram._schema import (
    agree,
    choice,
    fields,
    flag,
    integer,
    listed,
    mapping,
    misfit,
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
from deeptram.estimators.saved_format import MODEL, SEED, UNFITTED, latent_name, loss_value, unmarked
from deeptram.model import Design
from deeptram.model.persistence import JSON_NAME, Tensors, check_arrays, read_folder, write_folder
from deeptram.pooling import rule_from_file, saved_rule
from deeptram.pooling.correction import KINDS, Correction
from deeptram.pooling.pool import check_weights
from deeptram.pooling.recalibration import Recalibration

if TYPE_CHECKING:
    from deeptram.ensemble.ensemble import Ensemble

_SETTINGS = ("n_members", "n_jobs", "strategy", "recalibrate")


def save_ensemble(ensemble: Ensemble, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Save a fitted ensemble as a folder.

    Parameters
    ----------
    ensemble : Ensemble
    path : path
    overwrite : bool
    """
    check_is_fitted(ensemble, "members_")
    for number, member in enumerate(ensemble.members_):
        if not isinstance(member, BaseTram):
            raise UnsupportedError(
                f"only deeptram models can be saved, got {type(member).__name__} as member {number}; save it "
                "with its own library and build the ensemble again with from_members"
            )
    members, tensors = [], {"weights": ensemble.weights_}
    for number, member in enumerate(ensemble.members_):
        record, arrays = model_to_record(member)
        members.append(record)
        tensors |= {f"{number}/{name}": value for name, value in arrays.items()}
    settings = {name: plain(getattr(ensemble, name)) for name in _SETTINGS}
    seed = ensemble.random_state
    record = {
        "settings": settings,
        "pooling": saved_rule(getattr(ensemble, "rule_", ensemble.pooling)),
        "chosen": ensemble.choice_.reason if ensemble.pooling == AUTO else None,
        "weights": ensemble.weights if isinstance(ensemble.weights, str) else "given",
        "random_state": int(seed) if isinstance(seed, (int, np.integer)) else None,
        "root_seed": getattr(ensemble, "root_seed_", None),
        "strategy": getattr(ensemble, "strategy_", None),
        "model": None if ensemble.model is None else parameters_to_record(ensemble.model),
        "recalibrations": _recalibrations_to_record(ensemble.recalibrations_),
        "correction": None
        if ensemble.correction_ is None
        else plain(dataclasses.asdict(ensemble.correction_)),
        "members": members,
    }
    if ensemble.members != "seeds":
        record["differ"] = ensemble.members
    if ensemble.vary:
        record["vary"] = {name: [_varied(one) for one in values] for name, values in ensemble.vary.items()}
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
        numbers = [str(number) for number in range(len(record["members"]))]
        rest = {name: value for name, value in tensors.items() if name.split("/")[0] not in numbers}
        check_arrays({"weights": ((len(numbers),), "float64")}, rest)
        weights = check_weights(tensors["weights"], len(numbers))
        members = [
            model_from_record(entry, _part(tensors, number), networks)
            for number, entry in enumerate(record["members"])
        ]
        share_designs(members)
        model = None if record["model"] is None else parameters_from_record(record["model"], networks)
        rule = rule_from_file(record["pooling"])
        ensemble = Ensemble(
            model,
            pooling=rule if record["chosen"] is None else AUTO,
            weights=weights if record["weights"] == "given" else record["weights"],
            random_state=record["random_state"],
            vary=unplain(record.get("vary")),
            members=record.get("differ", "seeds"),
            **record["settings"],
        )
        ensemble._keep(members)
        ensemble.weights_ = tensors["weights"]
        if record["chosen"] is not None:
            ensemble.choice_, ensemble.rule_ = _choice(record), rule
        ensemble.recalibrations_ = _recalibrations_from_record(record["recalibrations"])
        if record["correction"] is not None:
            ensemble.correction_ = Correction(**unplain(record["correction"]))
        for name in ("root_seed", "strategy"):
            if record[name] is not None:
                setattr(ensemble, f"{name}_", record[name])
    return ensemble


def _choice(record: dict[str, Any]) -> PoolChoice:
    kind = "none" if record["correction"] is None else record["correction"]["kind"]
    return PoolChoice(record["pooling"]["name"], record["chosen"], None, kind)


def _ensemble_agrees(record: dict[str, Any], at: str) -> None:
    outcomes = [member["fitted"]["outcome"] for member in record["members"]]
    for number, outcome in enumerate(outcomes):
        path = f"{at}.members[{number}].fitted.outcome"
        agree(f"{path}.levels", "those of the first member", outcomes[0]["levels"], outcome["levels"])
        counts = (outcomes[0]["kind"] == "count", outcome["kind"] == "count")
        agree(f"{path}.kind: being a count", "as in the first member", *counts)
    if record["recalibrations"] is None:
        return
    width = max(len(outcomes[0]["levels"] or ()) - 1, 1)
    agree(f"{at}.recalibrations", "one for each member", len(outcomes), len(record["recalibrations"]))
    for number, one in enumerate(record["recalibrations"]):
        for name in ("intercept", "slope"):
            agree(f"{at}.recalibrations[{number}].{name}", "one for each cutpoint", width, len(one[name]))
        steps = np.diff(one["intercept"])
        if len(set(one["slope"])) > 1 or (steps < -1e-6 * (1 + np.abs(steps).max(initial=0))).any():
            raise misfit(f"{at}.recalibrations[{number}]", "one slope and increasing intercepts", one)


_RECALIBRATION = fields(
    {
        "intercept": listed(schema.number(), 1),
        "slope": listed(schema.number(0), 1),
        "latent": latent_name,
        "converged": flag,
    }
)


_CORRECTION = fields(
    {
        "kind": choice(list(KINDS)),
        "intercept": schema.number(),
        "spread": schema.number(1e-100),
        "centre": optional(schema.number()),
        **dict.fromkeys(("before", "after"), loss_value),
    }
)


def _pool(value: Any, at: str) -> None:
    """Check for the name of a registered pool with its parameters."""
    with about(at):
        rule_from_file(value)


def _varied(value: Any) -> Any:
    return latents.saved_name(value) if isinstance(value, latents.Latent) else plain(value)


def _one_varied(value: Any, at: str) -> None:
    """Check for a number, a text, or a tuple of them."""
    found = unplain(value)
    for one in found if isinstance(found, tuple) else (found,):
        scalar(one, at)


_ENSEMBLE = fields(
    {
        "settings": fields(
            {
                "n_members": integer(1, 10**6),
                "n_jobs": optional(integer(-(10**6), 10**6)),
                "strategy": choice(STRATEGIES),
                "recalibrate": flag,
            }
        ),
        "pooling": fields({"name": text, "parameters": listed(schema.number(), 0, 9)}, then=_pool),
        "chosen": optional(text),
        "weights": choice(["equal", "tuned", "given"]),
        "random_state": optional(SEED),
        "root_seed": optional(SEED),
        "strategy": optional(choice(STRATEGIES)),
        "model": optional(UNFITTED),
        "recalibrations": optional(listed(_RECALIBRATION)),
        "correction": optional(unmarked(_CORRECTION)),
        "members": listed(MODEL, 1, 10**5),
    },
    {"vary": mapping(listed(_one_varied, 1, 10**5)), "differ": choice(MEMBERS)},
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


def _part(tensors: Tensors, number: int) -> Tensors:
    prefix = f"{number}/"
    return {name.removeprefix(prefix): v for name, v in tensors.items() if name.startswith(prefix)}


def _recalibrations_to_record(recalibrations: list[Recalibration] | None) -> Any:
    if recalibrations is None:
        return None
    return [
        {
            "intercept": one.intercept_.tolist(),
            "slope": one.slope_.tolist(),
            "latent": latents.saved_name(one.latent_),
            "converged": bool(one.converged_),
        }
        for one in recalibrations
    ]


def _recalibrations_from_record(record: Any) -> list[Recalibration] | None:
    if record is None:
        return None
    result = []
    for entry in record:
        one = Recalibration()
        one.intercept_, one.slope_ = (np.array(entry[name], dtype=float) for name in ("intercept", "slope"))
        one.latent_, one.converged_ = latents.get(entry["latent"]), entry["converged"]
        result.append(one)
    return result
