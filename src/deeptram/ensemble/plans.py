r"""What each member of an ensemble is before it is trained: its settings, its rows, its seed.

Members may differ in four ways (``Ensemble(members=...)``):

* ``"seeds"``: initial weights and order of the rows (the paper's; Lakshminarayanan et al. 2017);
* ``"bags"``: rows drawn with replacement as well (Breiman 1996): the spread of their coefficients is the
  bootstrap's estimate of sampling variation, networks included;
* ``"snapshots"``: one training in M cycles of the learning rate, each member beginning at the weights of the
  one before (Huang et al. 2017);
* ``"dropout"``: one training with dropout, whose masks are drawn once for each member (Gal and
  Ghahramani 2016): a draw drops units for all rows alike, so that a member is one model.

``vary`` gives members settings of their own besides.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from deeptram import latent as latents
from deeptram._validation import check_choice, check_integer
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import deep_task
from deeptram.fitting.deep.seeds import MemberSeeds, fold_rows, member_seed
from deeptram.fitting.deep.task import DeepTask
from deeptram.fitting.deep.training import Training
from deeptram.model.deep import DeepModel
from deeptram.model.dropout import MemberDropout
from deeptram.model.terms import Spec
from deeptram.networks.factories import Configured
from deeptram.pooling import BetaLinear, Rule, get_rule
from deeptram.predictive.kinds import DISCRETE

IN_ONE_PASS = ("learning_rate", "weight_decay", "dropout", "latent")
MEMBERS = ("seeds", "bags", "snapshots", "dropout")


def check_model(model: Any, *, deep: bool = True) -> BaseTram:
    """Return a fresh copy of the model that members are to be made of.

    Parameters
    ----------
    model : Tram or one of its presets
    deep : bool
        Whether it needs networks.
    """
    if not isinstance(model, BaseTram):
        raise InvalidTypeError(
            f"model must be a dt.Tram or one of its presets, got {type(model).__name__}; "
            "for fitted models of any kind use Ensemble.from_members([...])"
        )
    template: BaseTram = clone(model)
    if deep and not Spec.of(template.terms).is_deep:
        raise UnsupportedError(
            "members of an ensemble differ in their networks' initial weights, got a model without networks, "
            "whose exact fit is the same for every member; use members='bags' for bootstrap samples, or "
            "Ensemble.from_folds(model, X, y, cv=5)"
        )
    return template


AUTO = "auto"  # the pool is chosen on validation data


def check_pooling(pooling: Any, kind: str | None) -> None:
    """Raise unless this is "auto", the name of a pool, or a rule (``QuasiArithmetic`` or your own).

    Parameters
    ----------
    pooling : str or Rule
    kind : str or None
        Of the outcome, where it is known.

    Examples
    --------
    >>> check_pooling("linear", "ordinal")
    """
    if not (isinstance(pooling, str) and pooling == AUTO):
        rule = get_rule(pooling, "pooling")
        if kind in DISCRETE and rule.refuses_classes:
            raise UnsupportedError(rule.refuses_classes)


def check_fold_tuning(model: BaseTram, pooling: str | Rule, n_members: Any) -> None:
    """Raise unless weights can be tuned among the members of each fold, and their mean over folds be used.

    Parameters
    ----------
    model : BaseTram
        The unfitted model.
    pooling : str or Rule
        Checked.
    n_members : int
        Members per fold.

    Examples
    --------
    >>> import deeptram as dt
    >>> check_fold_tuning(dt.Polr([dt.CI(dt.networks.MLP(), "x")]), "linear", 2)
    """
    if not Spec.of(model.terms).is_deep:
        raise UnsupportedError(
            "weights='tuned' chooses among the members of a fold, got a model without networks, of which a "
            "fold has one; leave weights out, or call tune_weights(X, y) with new data afterwards"
        )
    if check_integer(n_members, "n_members", 1) == 1:
        raise InvalidInputError(
            "weights='tuned' chooses among the members of a fold, got n_members=1, one per fold; set "
            "n_members=2 or more"
        )
    if isinstance(pooling, str) and pooling == AUTO:
        raise UnsupportedError(
            "weights='tuned' in folds needs a pool that is known before, got pooling='auto'; name it, as in "
            "pooling='transformation'"
        )
    if isinstance(pooling, str) and isinstance(get_rule(pooling, "pooling"), BetaLinear):
        raise UnsupportedError(
            "weights='tuned' in folds gives the mean of weights alone, got pooling='beta-linear', whose "
            "parameters are tuned along; use pooling='linear', or leave weights out and call "
            "tune_weights(X, y) with new data afterwards"
        )


def meant_pool(pooling: str | Rule, kind: str | None) -> str | Rule:
    """Return the pool that is meant for a kind of outcome: h of a nominal outcome are its logits.

    Their mean does not depend on the order in which the classes are written.

    Examples
    --------
    >>> meant_pool("transformation", "nominal"), meant_pool("transformation", "ordinal")
    ('log-linear-density', 'transformation')
    """
    return "log-linear-density" if pooling == "transformation" and kind == "nominal" else pooling


def check_recalibrate(value: Any, pooling: str | Rule, kind: str | None) -> None:
    """Raise unless ``recalibrate`` is a flag, or "pool" with the pool that stays itself when recalibrated.

    Examples
    --------
    >>> check_recalibrate("pool", "transformation", "ordinal")
    """
    if isinstance(value, str) and value == "pool":
        meant = meant_pool(pooling, kind)
        name = meant if isinstance(meant, str) else meant.name
        if name != "transformation":
            raise UnsupportedError(
                f"recalibrating the pool on the scale of h needs the transformation pool, got {name!r}; "
                "recalibrate the members (True), or correct the pool with fit_correction"
            )
    elif not isinstance(value, (bool, np.bool_)):
        raise InvalidTypeError(f"recalibrate must be True, False or 'pool', got {value!r}; write True")


def check_vary(vary: Any) -> dict[str, list[Any]]:
    """Return the values of each setting, or say what is wrong with them.

    Examples
    --------
    >>> check_vary({"learning_rate": (0.001, 0.01)})
    {'learning_rate': [0.001, 0.01]}
    """
    if not isinstance(vary, Mapping):
        raise InvalidTypeError(
            f"vary must be a dict of settings and their values, got {type(vary).__name__}; "
            "write vary={'learning_rate': [1e-3, 3e-3]}"
        )
    checked = {}
    for name, values in vary.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) == 0:
            raise InvalidInputError(
                f"vary[{name!r}] must be a list of at least one value, got {values!r}; "
                "members take the values in turn"
            )
        checked[str(name)] = list(values)
    return checked


def check_common_scale(vary: Mapping[str, Sequence[Any]]) -> None:
    """Raise if members differ in their latent distribution: the mean of their h has no meaning.

    Examples
    --------
    >>> check_common_scale({"latent": ["logistic", "logit"]})
    """
    different = {latents.get(one).name for one in vary.get("latent", ())}
    if len(different) > 1:
        raise InvalidInputError(
            f"the transformation pool needs members with one latent distribution, got "
            f"{', '.join(sorted(different))} in vary; use pooling='linear'"
        )


def vary_setting(model: BaseTram, name: str, value: Any) -> None:
    """Set an argument of a model, of its ``Training`` or of its networks, in place.

    Examples
    --------
    >>> import deeptram as dt
    >>> model = dt.Colr([dt.CI(dt.networks.MLP(dropout=0.1), "x")])
    >>> vary_setting(model, "dropout", 0.2)
    >>> model.terms[0].net.dropout
    0.2
    """
    if name in model.get_params(deep=False):
        model.set_params(**{name: value})
        return
    if name in Training.__dataclass_fields__:
        training = Training() if model.training is None else model.training
        model.set_params(training=training.replace(**{name: value}))
        return
    changed = [_with_setting(term, name, value) for term in model.terms or []]
    if all(one is None for one in changed):
        raise UnknownNameError(
            f"vary takes arguments of the model, of dt.Training or of its networks, got {name!r}, which "
            f"{type(model).__name__} has not; check the name"
        )
    kept = [term if one is None else one for term, one in zip(model.terms, changed, strict=True)]
    model.set_params(terms=kept)


def _with_setting(term: Any, name: str, value: Any) -> Any:
    """Return a term whose network has another setting; None where it has no such setting."""
    if not hasattr(term, "net"):
        return None
    net: Any = None
    if isinstance(term.net, Configured) and name in vars(term.net):
        net = type(term.net)(**{**vars(term.net), name: value})
    elif isinstance(term.net, functools.partial) and name in term.net.keywords:
        net = functools.partial(term.net.func, *term.net.args, **{**term.net.keywords, name: value})
    if net is None:
        return None
    changed = copy.copy(term)
    object.__setattr__(changed, "net", net)
    return changed


# -- from settings to tasks ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plan:
    """One member before training.

    Attributes
    ----------
    template : BaseTram
        Prepared, with the member's own settings.
    task : DeepTask
    seed : int
    group : int
        Members of one group can be trained in one vectorised pass.
    kind : str
        In what members differ, one of ``MEMBERS``.
    masks : int
        Seed of the member's own dropout masks (``"dropout"`` only).
    """

    template: BaseTram
    task: DeepTask
    seed: int
    group: int = 0
    kind: str = "seeds"
    masks: int = 0


def number_of_folds(validation: Any) -> int:
    """Return the number of folds that ``validation`` asks for; 0 where it is a share or data.

    Examples
    --------
    >>> number_of_folds(5), number_of_folds(0.2)
    (5, 0)
    """
    is_count = isinstance(validation, (int, np.integer)) and not isinstance(validation, bool)
    if is_count and validation < 2:
        raise InvalidInputError(
            f"validation must be a share, data or at least 2 folds, got {validation}; write validation=5"
        )
    return int(validation) if is_count else 0


def plan_members(
    template: BaseTram,
    vary: Mapping[str, Sequence[Any]],
    n_members: int,
    data: tuple[Any, Any, Any],
    validation: Any,
    root: int,
    kind: str = "seeds",
) -> list[Plan]:
    """Return what each member is and trains on; the template is prepared, in place.

    Parameters
    ----------
    template : BaseTram
        Unfitted.
    vary : dict of lists
        Checked; member m takes value m of each list, and begins again at its end. With folds, as many
        members in a row as there are folds have the same values.
    n_members : int
    data : (X, y, sample_weight)
    validation : float, int, (X, y) or None
    root : int
        The ensemble's seed.
    kind : str
        In what members differ, one of ``MEMBERS``.
    """
    folds = number_of_folds(validation)
    groups: list[tuple[dict[str, Any], BaseTram, DeepTask]] = []
    plans = []
    for number in range(n_members):
        turn = number // folds if folds else number
        values = {name: each[turn % len(each)] for name, each in vary.items()}
        apart = {name: value for name, value in values.items() if name not in IN_ONE_PASS}
        found = next((g for g, (known, _, _) in enumerate(groups) if known == apart), None)
        if found is None:
            found = len(groups)
            first = template if not groups else clone(template)
            for name, value in apart.items():
                vary_setting(first, name, value)
            checked, matrices, encoded, weights = first.prepare(*data)
            share = 1 / folds if folds else validation
            seed = MemberSeeds.of(root).validation
            task = deep_task(first, checked, matrices, encoded, weights, share, seed)
            groups.append((apart, first, task))
        _, base, task = groups[found]
        own = {name: value for name, value in values.items() if name in IN_ONE_PASS}
        if own:
            base = copy.copy(base)
            for name, value in own.items():
                vary_setting(base, name, value)
            base.spec_ = Spec.of(base.terms)
            if "latent" in own:
                base.latent_ = latents.get(own["latent"])
            training = Training() if base.training is None else base.training
            training = training.replace(validation=task.training.validation)
            task = dataclasses.replace(task, spec=base.spec_, latent=base.latent_, training=training)
        if folds:
            rows = fold_rows(task.used_rows, folds, MemberSeeds.of(root).validation)[number % folds]
            task = dataclasses.replace(task, validation_rows=rows)
        seed = member_seed(root, 0 if kind == "dropout" else number)
        task = _own_task(task, kind, n_members, seed)
        plans.append(Plan(base, task, seed, found, kind, member_seed(root, number)))
    return plans


def _own_task(task: DeepTask, kind: str, n_members: int, seed: int) -> DeepTask:
    """Return what a member of a kind is trained on, and for how long."""
    if kind == "bags":
        held = () if task.validation_rows is None else task.validation_rows
        rows, rng = np.setdiff1d(task.used_rows, held), np.random.default_rng(MemberSeeds.of(seed).validation)
        return dataclasses.replace(task, train_rows=np.sort(rng.choice(rows, len(rows))))
    if kind == "snapshots":
        training = task.training
        cycle = {"epochs": math.ceil(training.epochs / n_members), "schedule": training.schedule or "cosine"}
        return dataclasses.replace(task, training=training.replace(**cycle))
    return task


def check_kind(kind: Any, vary: Any, strategy: str, validation: Any) -> None:
    """Raise unless members of a kind can be made with the other settings of an ensemble.

    Examples
    --------
    >>> check_kind("bags", None, "auto", 0.2)
    """
    check_choice(kind, MEMBERS, "members")
    if kind == "seeds":
        return
    if number_of_folds(validation):
        raise UnsupportedError(
            f"folds are for members='seeds', got members={kind!r} and validation={validation}; pass a share, "
            "validation=0.2"
        )
    if kind != "bags" and (vary or strategy in ("stacked", "parallel")):
        got = f"vary={vary}" if vary else f"strategy={strategy!r}"
        raise UnsupportedError(
            f"members={kind!r} come out of one training, got {got}; leave it out, or use members='seeds'"
        )


def check_has_dropout(model: DeepModel) -> None:
    """Raise if no network of a model drops anything: all draws of masks would be the same member."""
    if not any(isinstance(layer, MemberDropout) and layer.rate > 0 for layer in model.modules()):
        raise InvalidInputError(
            "members='dropout' need networks with dropout, got none; write dt.networks.MLP(dropout=0.1), or "
            "use members='seeds'"
        )
