"""One member: fitted, written to its folder, read back as predictive distributions."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeptram import networks
from deeptram._version import __version__
from deeptram.datasets.base import Dataset
from deeptram.errors import FileFormatError
from deeptram.estimators import Tram
from deeptram.experiments import storage
from deeptram.experiments.config import Protocol, Study, Unit, unit_seed
from deeptram.experiments.sandwich import rps_standard_errors
from deeptram.experiments.splits import Split
from deeptram.experiments.storage import RunFolder
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.terms import CI, CS, LS, SI

FILES = (storage.PREDICTIONS, storage.COEFFICIENTS, storage.HISTORY, storage.INFO)
PARTS = ("val", "test")
PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "torch", "joblib")
HISTORY_COLUMNS = ["epoch", "train_loss", "validation_loss", "learning_rate", "seconds"]


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
    >>> from deeptram.experiments.paper import PROTOCOLS
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
        training=None if unit.is_exact else study.training,
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
        coefficients=_coefficients(model, train, columns, unit),
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
    storage.write_table(folder / storage.COEFFICIENTS, fitted.coefficients)
    storage.write_table(folder / storage.HISTORY, fitted.history)
    storage.write_json(folder / storage.INFO, fitted.info)
    run.finish(unit, expected, FILES)


def load_predictions(run: RunFolder, unit: Unit, levels: tuple[Any, ...]) -> dict[str, DiscretePredictive]:
    """Return the distributions of a finished member for the parts ``val`` and ``test``, in float64."""
    marker = run.marker(unit)
    folder = run.member(unit)
    if marker is None:
        raise FileFormatError(
            f"{folder} must hold a finished member, got none; run `deeptram reproduce` again to go on"
        )
    expected = marker["files"].get(storage.PREDICTIONS, {}).get("sha256")
    arrays = storage.read_arrays(folder / storage.PREDICTIONS, expected)
    found = {}
    for part in PARTS:
        h, log_gaps = arrays[f"{part}_h"], arrays[f"{part}_log_gaps"]
        if h.ndim != 2 or h.shape[1] != len(levels) - 1 or log_gaps.shape != (len(h), len(levels) - 2):
            raise FileFormatError(
                f"{folder} must hold h for {len(levels)} levels, got shapes {h.shape} and {log_gaps.shape}; "
                "delete it and run again"
            )
        found[part] = _predictive(h.astype(np.float64), log_gaps.astype(np.float64), levels)
    return found


def _predictive(
    h: NDArray[np.float64], log_gaps: NDArray[np.float64], levels: tuple[Any, ...]
) -> DiscretePredictive:
    """Return distributions from the first h and the gaps: rounded separately, h and gaps would disagree."""
    rest = h[:, :1] + np.cumsum(np.exp(log_gaps), axis=1)
    consistent = np.concatenate([h[:, :1], rest], axis=1)
    return DiscretePredictive.from_h(consistent, log_gaps, levels=levels, latent="logistic")


def versions() -> dict[str, str]:
    """Return the versions of Python, deeptram and what it computes with.

    Examples
    --------
    >>> sorted(versions())[:2]
    ['deeptram', 'joblib']
    """
    found = {"python": platform.python_version(), "deeptram": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


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
        f"{part}_log_gaps": pred.log_gaps_t().numpy().astype(dtype),
    }


def _coefficients(model: Any, train: Dataset, columns: list[str], unit: Unit) -> pd.DataFrame:
    estimates: pd.Series = model.coef_
    errors = np.full(len(estimates), np.nan)
    if len(estimates) and unit.loss == "rps":
        h = model.predict_distribution(_inputs(train, columns)).trafo()
        linear = [name for name in columns if name != "image"]
        x = np.column_stack([np.asarray(train.X[name], dtype=np.float64) for name in linear])
        errors = rps_standard_errors(h, train.codes, x)
    elif len(estimates) and unit.is_exact:
        errors = model.summary()["se"].to_numpy()
    elif len(estimates):  # the shift beside a network, given what the network says
        errors = np.sqrt(np.diag(model.shift_vcov_.to_numpy()))
    return pd.DataFrame({"variable": estimates.index, "estimate": estimates.to_numpy(), "se": errors})
