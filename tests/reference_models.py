"""Rebuild the models behind the R reference cases with deeptram's public names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import deeptram as dt

GOLDEN = Path(__file__).parent / "golden"
PRESETS = {"colr": dt.Colr, "boxcox": dt.BoxCox, "coxph": dt.Coxph, "lehmann": dt.Lehmann}


@dataclass
class ReferenceModel:
    """A model to fit, its data, and the rows the reference predicts."""

    model: Any
    X: pd.DataFrame
    y: Any
    weights: np.ndarray | None


def read_data(case: dict[str, Any]) -> pd.DataFrame:
    """Read a case's data with the factor levels of R; rows with missing values are left out as R does."""
    frame = pd.read_csv(GOLDEN / case["data"]["file"], float_precision="round_trip")
    for name, levels in (case["data"]["levels"] or {}).items():
        if name in frame:
            frame[name] = pd.Categorical(frame[name].astype(str), categories=levels, ordered=False)
    return frame


def rebuild(case: dict[str, Any]) -> ReferenceModel:
    """Return the deeptram model of an R case."""
    name, kind, formula = case["case"], case["kind"], case["formula"]
    if name == "survreg_gbsg2_exponential":
        formula = "Surv(time, cens) ~ horTh + age + menostat + tsize + tgrade + pnodes + progrec + estrec"
    frame = read_data(case)
    left, right = (side.strip() for side in formula.split("~"))
    weights = None
    if ", weights = " in right:
        right, column = (part.strip() for part in right.split(", weights = "))
        weights = frame[column].to_numpy(float)
    right = right.split(" (")[0]
    terms: list[Any] = []
    if "|" in right:
        right, scale = (part.strip() for part in right.split("|"))
        terms.append(dt.Scale(scale))
    if "|" in left:
        left, modulator = (part.strip() for part in left.split("|"))
        terms.append(dt.SI(strata=modulator[4:]) if modulator.startswith("0 + ") else dt.Varying(modulator))
    if right != "1":
        terms.append(dt.LS(right))
    terms = terms or [dt.SI()]
    return ReferenceModel(_model(case, terms), frame, _response(case, left, frame, kind), weights)


def _response(case: dict[str, Any], left: str, frame: pd.DataFrame, kind: str) -> Any:
    name = case["case"]
    if "lefttrunc" in name:
        return dt.Surv.right(frame["time"], frame["status"], entry=frame["entry"])
    if "interval" in name:
        return dt.Surv.interval(frame["left"], frame["right"])
    if "tobit" in name:
        return dt.Surv.interval(np.where(frame["cens"] == 1, -np.inf, frame["y"]), frame["y"])
    if kind == "survival":
        return dt.Surv.right(frame["time"], frame["cens"])
    return frame[left]


def _model(case: dict[str, Any], terms: list[Any]) -> Any:
    name, kind, link = case["case"], case["kind"], case["link"]
    prefix = name.split("_")[0]
    if kind == "nominal":
        return dt.Tram(terms, outcome="nominal", levels=case["data"]["levels"][case["data"]["response"]])
    if kind in ("ordinal", "binary"):
        levels = case["data"]["levels"][case["data"]["response"]]
        preset = dt.Polr if kind == "ordinal" else dt.Logit
        return preset(terms, latent=link, levels=levels)
    smooth = {"order": case["order"], "support": case["support"], "log_first": bool(case["log_first"])}
    if kind == "count":
        return dt.Cotram(terms, latent=link, **smooth)
    if prefix in ("lm", "tobit"):
        return dt.Lm(terms)
    if prefix == "survreg":
        return dt.Survreg(terms, dist=name.split("_")[-1])
    return PRESETS[prefix](terms, **smooth)
