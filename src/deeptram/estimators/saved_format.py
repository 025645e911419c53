"""What the JSON file of a saved model holds: every field, its bounds, how it is written, what must agree."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pandas as pd

from deeptram import bases
from deeptram import latent as latents
from deeptram._schema import (
    Check,
    Field,
    SavedForm,
    agree,
    choice,
    fields,
    fixed,
    flag,
    integer,
    listed,
    mapping,
    misfit,
    number,
    optional,
    plain,
    scalar,
    tagged,
    text,
    unplain,
)
from deeptram.bases import Basis
from deeptram.errors import about
from deeptram.estimators.exact import TINY
from deeptram.fitting.deep.training import Training
from deeptram.inputs.factors import FactorEncoder
from deeptram.latent import Latent
from deeptram.model import Design, Outcome
from deeptram.model.outcome import BASES as LINE_BASES
from deeptram.predictive.kinds import DISCRETE, OUTCOMES

LARGEST_ORDER, MOST_PIXELS = 10_000, 10**9
CLASS_NAMES = ("Tram", "Polr", "Logit", "Colr", "BoxCox", "Coxph", "Lehmann", "Lm", "Survreg", "Cotram")


def unmarked(check: Check) -> Check:
    """Return the check of a value that ``plain`` wrote: tuples and infinities are marked there.

    Examples
    --------
    >>> unmarked(fixed(number(), number()))({"tuple": [0, 1]}, "file.json: support")
    """
    return lambda value, at: check(unplain(value), at)


def label(value: Any, at: str) -> None:
    """Check for a level of a factor or an outcome."""
    if isinstance(value, int) and not isinstance(value, bool):
        integer(-(2**63))(value, at)
    elif value is None:
        raise misfit(at, "a label", value)
    scalar(value, at)


def measured(value: Any, at: str) -> None:
    """Check for a number that may be infinite or missing: a log-likelihood, a residual."""
    if unplain(value) not in (float("inf"), -float("inf")) and value != {"float": "nan"}:
        number(-1e308, 1e308)(value, at)


def setting(value: Any, at: str) -> None:
    """Check for numbers, texts, lists and objects of them, which what is built of them checks further."""
    if isinstance(value, list):
        listed(setting)(value, at)
    elif isinstance(value, dict):
        mapping(setting)(value, at)
    else:
        scalar(value, at)


NAMES, COUNT = listed(text), integer()
LEVELS = listed(label, 1, distinct=True)
COLUMNS = listed(text, distinct=True)

# -- encodings ---------------------------------------------------------------------------------------


def _encoder_agrees(state: dict[str, Any], at: str) -> None:
    required, formula = state["required_columns"], state["formula"]
    if not set(required) <= set(state["feature_names"]):
        raise misfit(f"{at}.required_columns", "among feature_names", required)
    if formula is not None:
        agree(f"{at}.factors", "empty beside a formula", [], state["factors"])
        agree(f"{at}.formula.columns", "required_columns", required, formula["columns"])
        agree(f"{at}.formula.names", "names", state["names"], formula["names"])
    factors = state["factors"] if formula is None else formula["factors"]
    columns = [factor["column"] for factor in factors]
    listed(choice(required), distinct=True)(columns, f"{at}.factors: the columns")
    if formula is None:
        levels = {one["column"]: FactorEncoder(one["column"], tuple(one["levels"])).names for one in factors}
        names = [name for column in required for name in levels.get(column, (column,))]
        agree(f"{at}.names", "what columns and levels give", names, list(state["names"]))


_FACTOR = fields({"column": text, "levels": LEVELS, "unobserved": listed(label, distinct=True)})
_FORMULA = fields(
    {
        "formula": text,
        "terms": listed(listed(fixed(text, text), 1)),
        "columns": COLUMNS,
        "factors": listed(_FACTOR),
        "calls": mapping(_FACTOR),
        "transform_state": mapping(setting),
        "names": NAMES,
    }
)
_ENCODER = fields(
    {
        "names": NAMES,
        "required_columns": COLUMNS,
        "feature_names": NAMES,
        "from_array": flag,
        "factors": listed(_FACTOR),
        "formula": optional(_FORMULA),
    },
    then=_encoder_agrees,
)


_DESIGN = fields(
    {**dict.fromkeys(("linear", "scale", "varying"), optional(_ENCODER)), "strata": optional(_FACTOR)}
)


def _part_agrees(state: dict[str, Any], at: str) -> None:
    if state["kind"] != "table":
        number(1, MOST_PIXELS)(prod(state["shape"]), f"{at}.shape: the number of pixels")
        return
    encoder = state["encoder"]
    width = 0 if encoder is None else len(encoder["names"])
    width += sum(width for _, width in state["blocks"])
    agree(f"{at}.mean", "as many as columns", width, len(state["mean"]))
    agree(f"{at}.sd", "as many as columns", width, len(state["sd"]))


_PART_FIELDS = tagged(
    "kind",
    {
        "table": {
            "encoder": optional(_ENCODER),
            "blocks": listed(fixed(text, integer(1, 10**7))),
            "mean": listed(number(), 1),
            "sd": listed(number(TINY), 1),
        },
        "image": {
            "name": text,
            "shape": listed(integer(1, 10**6), 3, 3),
            "scale": fixed(number(), number()),
        },
        "tensor": {"name": text, "shape": listed(integer(1, 10**7), 1, 8), "integers": flag},
    },
)


def _part(value: Any, at: str) -> None:
    _PART_FIELDS(value, at)
    _part_agrees(value, at)


NETWORKS = fields(
    {
        "inputs": listed(fields({"parts": listed(_part, 1, 1000), "backbone": optional(text)}), 1, 1000),
        "dtype": choice(["float32", "float64"]),
    },
    {"masks": integer()},
)

# -- outcome -----------------------------------------------------------------------------------------


def _outcome_agrees(state: dict[str, Any], at: str) -> None:
    basis, levels, discrete = state["basis"], state["levels"], state["kind"] in DISCRETE
    if (basis["name"] == "cutpoints") != discrete or (levels is not None) != discrete:
        raise misfit(f"{at}.kind", f"one of outcomes with {basis['name']} and such levels", state["kind"])
    if levels is not None:
        agree(f"{at}.levels", "as many as the basis has", basis["n_levels"], len(levels))
        number(2, 2 if state["kind"] == "binary" else 10**6)(len(levels), f"{at}.levels: their number")
    elif "log_first" in basis:
        agree(f"{at}.log_first", "that of the basis", basis["log_first"], state["log_first"])
    seen, line = state["observed"], state["kind"] in ("continuous", "survival")
    if (seen is not None) != line or (line and seen[0] > seen[1]):
        raise misfit(f"{at}.observed", "the range of an outcome on the line, or null for others", seen)
    if state["lifetimes"] and (not line or seen[0] < 0):
        raise misfit(f"{at}.lifetimes", "false for outcomes that are no times", state["lifetimes"])
    if state["marginal"] is not None:
        _marginal_agrees(state["marginal"], levels, f"{at}.marginal")


def _marginal_agrees(state: dict[str, Any], levels: list[Any] | None, at: str) -> None:
    names = {"lower", "upper"} if levels is None else {"codes"}
    if set(state) - {"entry"} != names | {"weights"}:
        raise misfit(at, f"the {' and '.join(sorted(names))} of such an outcome", sorted(state))
    for name, values in state.items():
        agree(f"{at}.{name}", "as many as weights", len(state["weights"]), len(values))
    if levels is not None:
        listed(integer(0, len(levels) - 1), 1, distinct=True)(state["codes"], f"{at}.codes")
    elif any(low > high for low, high in zip(state["lower"], state["upper"], strict=True)):
        raise misfit(f"{at}.lower", "not above upper", state["lower"])


def basis_record(value: Any, at: str) -> None:
    """Check for a registered basis, which knows the bounds of its settings."""
    mapping(setting)(value, at)
    with about(at):
        bases.from_dict(value)


def _end(value: Any, at: str) -> None:
    if value not in (float("inf"), -float("inf")):
        number()(value, at)


_ENDS = listed(_end)
_OUTCOME = fields(
    {
        "kind": choice(OUTCOMES),
        "basis": basis_record,
        "levels": optional(LEVELS),
        "log_first": flag,
        "lifetimes": flag,
        "observed": optional(fixed(number(), number())),
        "marginal": optional(
            fields(
                {"weights": listed(number(TINY), 1)},
                {"codes": listed(COUNT), "lower": _ENDS, "upper": _ENDS, "entry": _ENDS},
            )
        ),
    },
    then=_outcome_agrees,
)

# -- arguments ---------------------------------------------------------------------------------------

_NETWORK = fields({"name": text, "config": mapping(setting)}, {"own": flag})


def _columns(value: Any, at: str) -> None:
    (text if isinstance(value, str) else listed(text, 1))(value, at)


def latent_name(value: Any, at: str) -> None:
    """Check for the name of a registered latent distribution.

    Examples
    --------
    >>> latent_name("probit", "file.json: latent")
    """
    with about(at):
        latents.from_file(value)


NETWORK_SCALE = "Scale network"
_TERM = tagged(
    "term",
    {
        "SI": {"strata": optional(text)},
        "CI": {"net": _NETWORK, "columns": NAMES},
        "CS": {"net": _NETWORK, "columns": NAMES, "center": flag, "orthogonalize": flag},
        NETWORK_SCALE: {"net": _NETWORK, "columns": NAMES},
        **{name: {"columns": optional(_columns)} for name in ("LS", "Scale", "Varying")},
    },
)
SEED = integer(-(2**63), 2**64)

# -- models ------------------------------------------------------------------------------------------


def _model_agrees(model: dict[str, Any], at: str) -> None:
    fitted, design = model["fitted"], model["fitted"]["design"]
    levels = model["parameters"].get("levels")
    if levels is not None:
        agree(f"{at}.fitted.outcome.levels", "the levels given", levels, fitted["outcome"]["levels"])
    terms = model["parameters"]["terms"]
    terms = [{"term": "LS"}] if terms is None else terms
    kinds = [term["term"] for term in terms]
    for kind, name in (("LS", "linear"), ("Scale", "scale"), ("Varying", "varying")):
        if (kind in kinds) != (design[name] is not None):
            raise misfit(f"{at}.fitted.design.{name}", f"there exactly when a term {kind} is", design[name])
    strata = next((term["strata"] for term in terms if term["term"] == "SI"), None)
    agree(f"{at}.fitted.design.strata", "of the term SI", strata, (design["strata"] or {}).get("column"))
    networks = sum(kinds.count(kind) for kind in ("CI", "CS", NETWORK_SCALE))
    inputs = fitted["fit"]["model"]["inputs"] if "model" in fitted["fit"] else []
    agree(f"{at}.fitted.fit.model.inputs", "one for each network", networks, len(inputs))
    parts = [part for one in inputs for part in one["parts"] if part["kind"] == "table"]
    encoders = [part["encoder"] for part in parts] + [design[n] for n in ("linear", "scale", "varying")]
    given = [encoder for encoder in encoders if encoder is not None]
    for encoder in given[1:]:
        for name in ("feature_names", "from_array"):
            agree(f"{at}.fitted: {name}", "the same in all terms", given[0][name], encoder[name])
    names, width = fitted["feature_names_in"], fitted["n_features_in"]
    if given and width is not None:
        agree(f"{at}.fitted.n_features_in", "the number of columns", len(given[0]["feature_names"]), width)
    if names is not None:
        known = given[0]["feature_names"] if given else names
        agree(f"{at}.fitted.feature_names_in", "those of the encoding", known, names)
        agree(f"{at}.fitted.feature_names_in", "as many as n_features_in", width, len(names))


_CERTIFICATE = fields(
    {
        **dict.fromkeys(("gap", "gradient"), measured),
        "active": unmarked(listed(integer())),
        "multipliers": unmarked(listed(number(-1e308, 1e308))),
        "convex": flag,
    }
)
_EXACT = fields(
    {
        "loglik": measured,
        **dict.fromkeys(("n_iter", "n_parameters"), COUNT),
        "converged": flag,
        "certificate": _CERTIFICATE,
    }
)
TRAINED = fields(
    {
        "seed": SEED,
        "model": NETWORKS,
        **dict.fromkeys(("best_epoch", "n_epochs"), COUNT),
        "seconds": number(0),
        "interrupted": flag,
        **dict.fromkeys(("loglik", "null_loss"), measured),
    },
    {"unfinished": flag, "silent": flag},
)


def _fit(value: Any, at: str) -> None:
    (TRAINED if isinstance(value, dict) and "model" in value else _EXACT)(value, at)


def loss_value(value: Any, at: str) -> None:
    """Check for a number; one that is infinite stands for a fit that failed."""
    if not isinstance(value, float):
        number()(value, at)


def saved_seed(seed: Any) -> int | None:
    """Return a seed that can be written; a generator has none.

    Examples
    --------
    >>> saved_seed(np.int64(3)), saved_seed(np.random.default_rng(3))
    (3, None)
    """
    return int(seed) if isinstance(seed, (int, np.integer)) else None


def saved_latent(value: Any) -> Any:
    """Return a latent distribution, or what stands for one, as it is written."""
    return latents.saved_name(value) if isinstance(value, Latent) else plain(value)


_AS_IT_IS = (lambda terms: terms, lambda terms: terms)  # networks are made by those who have them
PARAMETERS = SavedForm(
    {
        "terms": Field(optional(listed(_TERM, 0, 1000)), *_AS_IT_IS),
        "training": Field(
            optional(mapping(scalar)),
            lambda given: plain(given.to_dict()) if isinstance(given, Training) else None,
            lambda record: Training.from_dict(unplain(record)),
        ),
        "random_state": Field(optional(SEED), saved_seed),
    },
    {
        "outcome": choice(OUTCOMES),
        "latent": Field(lambda value, at: None if value == "auto" else latent_name(value, at), saved_latent),
        "basis": Field(
            optional(
                lambda value, at: (choice(LINE_BASES) if isinstance(value, str) else basis_record)(value, at)
            ),
            lambda given: bases.to_dict(given) if isinstance(given, Basis) else plain(given),
            lambda record: bases.from_dict(record) if isinstance(record, dict) else record,
        ),
        "order": integer(1, LARGEST_ORDER),
        "support": Field(
            unmarked(optional(fixed(number(), number()))),
            lambda given: plain(given.tolist() if isinstance(given, np.ndarray) else given),
        ),
        "log_first": lambda value, at: None if value == "auto" else flag(value, at),
        "levels": Field(optional(LEVELS), lambda levels: plain(list(levels))),
        "loss": text,
        "dist": text,
    },
)
STATE = SavedForm(
    {
        "outcome": Field(
            unmarked(_OUTCOME),
            lambda outcome: plain(outcome.to_dict()),
            lambda record: Outcome.from_dict(unplain(record)),
        ),
        "latent": Field(latent_name, latents.saved_name, latents.get),
        "design": Field(_DESIGN, Design.to_dict, Design.from_dict),
        "n_obs": COUNT,
        **dict.fromkeys(("n_events", "n_features_in"), optional(COUNT)),
        "data_hash": optional(text),
        "feature_names_in": Field(
            optional(NAMES),
            lambda names: [str(name) for name in names],
            lambda names: np.array(names, dtype=object),
        ),
        "latent_choice": Field(
            optional(mapping(unmarked(loss_value))),
            lambda losses: plain(losses.to_dict()),
            lambda losses: pd.Series(unplain(losses), dtype=float).sort_values(),
        ),
    },
    suffix="_",
)
_ARGUMENTS: dict[str, Check] = {"class": choice(CLASS_NAMES), "parameters": PARAMETERS}
UNFITTED = fields(_ARGUMENTS)
MODEL = fields(
    {**_ARGUMENTS, "fitted": fields({**STATE.checks, "fit": _fit})},
    {"networks": mapping(text)},
    then=_model_agrees,
)
