"""Ensembles as folders, and ``load`` for everything that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from deeptram import latent as latents
from deeptram.calibration import Recalibration
from deeptram.errors import FileFormatError, InvalidTypeError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.persistence import (
    model_from_record,
    model_to_record,
    parameters_from_record,
    parameters_to_record,
    versions,
)
from deeptram.model.persistence import Tensors, plain, read_folder, unplain, write_folder

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
    if not isinstance(ensemble.pooling, str):
        raise UnsupportedError(
            "an ensemble is saved with the name of its pool, got a QuasiArithmetic, which holds functions; "
            "save its members one by one, or use a named pool"
        )
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
        "pooling": ensemble.pooling,
        "weights": ensemble.weights if isinstance(ensemble.weights, str) else "given",
        "random_state": int(seed) if isinstance(seed, (int, np.integer)) else None,
        "root_seed": getattr(ensemble, "root_seed_", None),
        "strategy": getattr(ensemble, "strategy_", None),
        "model": None if ensemble.model is None else parameters_to_record(ensemble.model),
        "recalibrations": _recalibrations_to_record(ensemble.recalibrations_),
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
    if kind == "model" and isinstance(content.get("model"), dict):
        return model_from_record(content["model"], tensors, given)
    if kind == "ensemble" and isinstance(content.get("ensemble"), dict):
        return _ensemble_from_record(content["ensemble"], tensors, given)
    raise FileFormatError(
        f"load reads models and ensembles, got a folder of kind {kind!r} in {str(path)!r}; "
        "pass the path that was given to save"
    )


def _ensemble_from_record(
    record: Mapping[str, Any], tensors: Tensors, networks: Mapping[str, Callable[..., Any]]
) -> Ensemble:
    from deeptram.ensemble.ensemble import Ensemble

    try:
        members = [
            model_from_record(entry, _part(tensors, number), networks)
            for number, entry in enumerate(record["members"])
        ]
        share_designs(members)
        weights = tensors["weights"]
        model = None if record["model"] is None else parameters_from_record(record["model"], networks)
        settings = {name: unplain(record["settings"][name]) for name in _SETTINGS}
        ensemble = Ensemble(
            model,
            pooling=record["pooling"],
            weights=weights if record["weights"] == "given" else record["weights"],
            random_state=record["random_state"],
            **settings,
        )
        ensemble._keep(members)
        if weights.shape != (len(members),):
            raise FileFormatError(
                f"a saved ensemble must have one weight per member, got {weights.shape} for {len(members)}; "
                "save it again"
            )
        ensemble.weights_ = weights
        ensemble.recalibrations_ = _recalibrations_from_record(record["recalibrations"])
        for name in ("root_seed", "strategy"):
            if record[name] is not None:
                setattr(ensemble, f"{name}_", record[name])
    except FileFormatError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileFormatError(
            f"a saved ensemble must be complete and consistent, got one that cannot be rebuilt ({error}); "
            "save it again"
        ) from error
    return ensemble


def share_designs(members: list[BaseTram]) -> None:
    """Let members with equal encodings share one, in place, so that new data are encoded once.

    Parameters
    ----------
    members : list of fitted models
    """
    seen: list[tuple[Any, Any]] = []
    for member in members:
        state = member.design_.to_dict()
        for known, design in seen:
            if known == state:
                member.design_ = design
                if hasattr(member.model_, "inputs"):
                    member.model_.design = design
                break
        else:
            seen.append((state, member.design_))


def _part(tensors: Tensors, number: int) -> Tensors:
    prefix = f"{number}/"
    return {name.removeprefix(prefix): v for name, v in tensors.items() if name.startswith(prefix)}


def _recalibrations_to_record(recalibrations: list[Recalibration] | None) -> Any:
    if recalibrations is None:
        return None
    return [
        {
            "intercept": plain(one.intercept_),
            "slope": plain(one.slope_),
            "latent": one.latent_.name,
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
        one.intercept_ = np.array(unplain(entry["intercept"]), dtype=float)
        one.slope_ = np.array(unplain(entry["slope"]), dtype=float)
        one.latent_, one.converged_ = latents.get(entry["latent"]), bool(entry["converged"])
        result.append(one)
    return result
