"""Out-of-fold predictions on disk, so that a leaderboard that was stopped goes on where it was.

Distributions are kept as numbers, never pickled. Those of which the numbers do not say all (SciPy's, pools)
are not kept: their models are fitted again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deeptram import bases
from deeptram import latent as latents
from deeptram._files import json_sha256
from deeptram._validation import as_float
from deeptram.errors import DeeptramError, UnsupportedError
from deeptram.estimators.data_checks import fingerprint
from deeptram.model.persistence import Tensors, plain, read_folder, write_folder
from deeptram.predictive import (
    DiscretePredictive,
    Predictive,
    QuantilesPredictive,
    SamplesPredictive,
    SurvivalPredictive,
    TransformationCount,
    TransformationPredictive,
)

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
        self.path = None if path is None else Path(path)
        self.data = "" if path is None else fingerprint(*data)

    def load(self, name: str, model: Any, fold: int, rows: Any) -> tuple[Predictive, Seconds] | None:
        """Return the prediction of a finished fold and its seconds; None if there is none of this model."""
        if self.path is None:
            return None
        try:
            content, arrays = read_folder(self._folder(name, fold))
            if content.get("code") != self._code(model, rows):
                return None
            seconds = as_float(arrays.pop("seconds"), "seconds")
            return _read(content["form"], arrays), (float(seconds[0]), float(seconds[1]))
        except (DeeptramError, KeyError, IndexError, TypeError, OSError):  # damaged, or of another version
            return None

    def save(self, name: str, model: Any, fold: int, rows: Any, pred: Predictive, seconds: Seconds) -> None:
        """Keep the prediction of a finished fold, if it can be kept."""
        code = self._code(model, rows)
        if self.path is None or code is None:
            return
        try:
            form, arrays = _written(pred)
        except UnsupportedError:
            return
        content = {"kind": "fold", "code": code, "form": form}
        kept = {**arrays, "seconds": np.array(seconds)}
        write_folder(self._folder(name, fold), content, kept, overwrite=True)

    def _folder(self, name: str, fold: int) -> Path:
        plain_name = re.sub(r"[^\w.-]+", "_", name)[:60]
        return Path(str(self.path)) / f"{plain_name}-{json_sha256(name)[:8]}" / f"fold-{fold}"

    def _code(self, model: Any, rows: Any) -> str | None:
        described = _described(model)
        if " at 0x" in described:  # a function without a name of its own: it could be any other next time
            return None
        return json_sha256([self.data, described, fingerprint(np.asarray(rows))])


def _described(model: Any) -> str:
    """Return everything that is set of a model, in words."""
    if hasattr(model, "func"):
        return f"{model.func!r} {model.args!r} {sorted(model.keywords.items())!r}"
    given = model.get_params(deep=True) if hasattr(model, "get_params") else getattr(model, "__dict__", {})
    return f"{type(model).__module__}.{type(model).__qualname__} {sorted(given.items())!r} " + (
        repr(model) if isinstance(model, type) else ""
    )


def _written(pred: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the form of a distribution and its numbers."""
    form: dict[str, Any] = {"name": type(pred).__name__}
    if isinstance(pred, DiscretePredictive):
        form |= {"name": "DiscretePredictive", "levels": [plain(level) for level in pred.levels]}
        form |= {"ordered": pred.ordered, "latent": _latent_name(pred)}
        logs = {"log_cdf": pred.log_cdf_t(), "log_sf": pred.log_sf_t(), "log_pmf": pred.log_pmf_t()}
        return form, {name: values.detach().numpy() for name, values in logs.items()}
    if type(pred) is SurvivalPredictive:
        return form, {"times": pred.times.numpy(), "survival": pred.survival.numpy()}
    if type(pred) is QuantilesPredictive:
        return form, {"q": pred.q.numpy(), "values": pred.values.numpy()}
    if type(pred) is SamplesPredictive:
        return form, {"draws": pred.draws.numpy()}
    if type(pred) is TransformationCount:
        inner, arrays = _written(pred.line)
        return {**form, "line": inner, "offset": pred.offset}, arrays
    if type(pred) is TransformationPredictive:
        form |= {"basis": bases.to_dict(pred.basis), "latent": _latent_name(pred)}
        form |= {
            "lifetimes": pred.lifetimes,
            "observed": None if pred.observed is None else list(pred.observed),
        }
        parts = {"theta": pred.theta, "shift": pred.shift, "log_scale": pred.log_scale}
        return form, {name: values.detach().numpy() for name, values in parts.items() if values is not None}
    raise UnsupportedError(f"a {type(pred).__name__} has more to it than its numbers; it is not kept")


def _read(form: Any, arrays: Tensors) -> Predictive:
    name = form["name"]
    if name == "DiscretePredictive":
        latent = None if form["latent"] is None else latents.get(form["latent"])
        logs = (arrays["log_cdf"], arrays["log_sf"], arrays["log_pmf"])
        pred = DiscretePredictive.from_logs(*logs, levels=tuple(form["levels"]), latent=latent)
        pred.ordered = bool(form["ordered"])
        return pred
    if name == "TransformationCount":
        line = _read(form["line"], arrays)
        return TransformationCount(line, int(form["offset"]))  # type: ignore[arg-type]
    if name == "TransformationPredictive":
        known = {"lifetimes": form["lifetimes"], "observed": form["observed"] and tuple(form["observed"])}
        numbers = (arrays["theta"], arrays.get("shift"), arrays.get("log_scale"))
        return TransformationPredictive(bases.from_dict(form["basis"]), form["latent"], *numbers, **known)
    numbers_only: dict[str, Any] = {
        "SurvivalPredictive": SurvivalPredictive,
        "QuantilesPredictive": QuantilesPredictive,
        "SamplesPredictive": SamplesPredictive,
    }
    order = {"SurvivalPredictive": ("times", "survival"), "QuantilesPredictive": ("q", "values")}
    parts = [torch.from_numpy(arrays[one].copy()) for one in order.get(name, ("draws",))]
    return numbers_only[name](*parts, numpy=True)  # type: ignore[no-any-return]


def _latent_name(pred: Any) -> str | None:
    return None if pred.latent is None else latents.saved_name(pred.latent)
