"""The scikit-learn face of a transformation model: fitting, prediction, inference."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags, Tags
from sklearn.utils.validation import _check_feature_names, _check_n_features, validate_data

from deeptram import latent as latents
from deeptram._rows import take_rows
from deeptram._threads import alone
from deeptram._validation import (
    as_pandas,
    check_choice,
    check_flag,
    check_probability_level,
    check_same_labels,
    check_same_length,
    check_sample_weight,
)
from deeptram.errors import (
    InvalidTypeError,
    MissingMethodError,
    NonFiniteLossError,
    UnsupportedError,
)
from deeptram.estimators.coefficient_table import CoefficientTable, effect_table, model_card, model_summary
from deeptram.estimators.data_checks import (
    check_class_counts,
    check_events,
    check_more_than_two_values,
    check_outcome_is_no_column,
    check_unique_names,
    one_sentence,
    require_fit,
    training_fit,
)
from deeptram.estimators.deep import fit_with_networks
from deeptram.estimators.exact import fit_without_networks
from deeptram.estimators.latent_choice import fit_best_latent
from deeptram.estimators.partitioned import prepare_in_pieces
from deeptram.estimators.prediction import PredictiveMethods
from deeptram.fitting.exact.inference import profile_interval
from deeptram.inputs import read_table
from deeptram.inputs.entries import readable_entries
from deeptram.inputs.partitions import RowPieces, in_pieces
from deeptram.inputs.table import by_name
from deeptram.latent import Latent
from deeptram.latent.distribution import is_auto
from deeptram.model import DISCRETE, Design, Encoded, FittedModel, Matrices, Outcome, OutcomeSettings
from deeptram.model.module import OutcomeModule, as_module
from deeptram.model.outcome import Marginal
from deeptram.model.terms import Spec
from deeptram.predictive import Predictive
from deeptram.predictive.kinds import RowParameters

Array = NDArray[np.float64]

LOSSES = ("nll", "rps", "brier", "crps")


class BaseTram(PredictiveMethods, BaseEstimator):
    """What ``Tram`` and its presets share: fitting, prediction and inference.

    Subclasses store their arguments in ``__init__``; what they do not expose
    keeps the class-level defaults below.
    """

    terms: Any = None
    outcome: str = "continuous"
    latent: Any = "logistic"
    basis: str | None = None
    order: int = 6
    support: tuple[float, float] | None = None
    log_first: bool | str = "auto"
    levels: Any = None
    loss: str = "nll"
    training: Any = None
    random_state: Any = None

    model_: FittedModel
    fit_: Any
    coef_: pd.Series
    scale_coef_: pd.Series
    vcov_: pd.DataFrame
    theta_: Array
    latent_choice_: pd.Series

    # -- what a subclass may refine ---------------------------------------------------------

    def _outcome_settings(self, y: Any) -> OutcomeSettings:
        """Return what is known about the outcome before seeing its values."""
        return OutcomeSettings(
            kind=self.outcome,
            basis=self.basis,
            order=self.order,
            support=self.support,
            log_first=self.log_first,
            levels=self.levels,
        )

    def _latent(self) -> Latent:
        """Return F_Z."""
        if is_auto(self.latent):
            raise UnsupportedError(
                "latent='auto' needs all rows at once, got rows in pieces; name a latent distribution"
            )
        return latents.get(self.latent)

    def with_latent(self, name: str) -> BaseTram:
        """Return an unfitted copy with another latent distribution."""
        fresh = self._unfitted()
        fresh.latent = name
        return fresh

    # -- fitting -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, validation: Any = None) -> BaseTram:
        """Fit the model.

        Without networks (CI, CS, Scale) and with ``loss="nll"`` this is the exact
        maximum-likelihood optimum in float64, with a certificate.

        Parameters
        ----------
        X : DataFrame, 2-d array, dict of arrays, Dask DataFrame or ``dt.parquet(path)``
            Covariates; images as entries of a dict. Dask data frames and Parquet files are read in
            pieces and never held; models without networks only.
        y : array-like, Surv, Dask Series or str
            Outcomes, or the name of their column in X (``dt.Surv.right("time", "event")``: the names of
            two), which then is no covariate.
        sample_weight : array-like, Dask Series or str, optional, shape (n,)
            Non-negative case weights; a weight of 2 counts like the row twice.
        validation : float, (X, y) or (X, y, weights), optional
            For models with networks: the data on which the best epoch is
            chosen. Exact fits do not need it.

        Returns
        -------
        self
            A fit that fails leaves a fitted model as it was.
        """
        if is_auto(self.latent) and not (isinstance(X, RowPieces) or hasattr(X, "to_delayed")):
            self.__dict__ = fit_best_latent(self, X, y, sample_weight, validation).__dict__
            return self
        fresh = self._unfitted()
        if isinstance(X, RowPieces) or hasattr(X, "to_delayed"):  # the latter is Dask's
            pilot, pieces = prepare_in_pieces(fresh, *in_pieces(X, y, sample_weight))
            fit_without_networks(fresh, *pilot, pieces)
            self.__dict__ = fresh.__dict__
            return self
        X, y, sample_weight = by_name(X, y, sample_weight)
        X, matrices, encoded, weights = fresh.prepare(X, y, sample_weight)
        if fresh.spec_.is_deep:
            try:
                fit_with_networks(fresh, X, y, matrices, encoded, weights, validation)
            except NonFiniteLossError:
                if not hasattr(self, "model_"):  # the best epoch is better than nothing
                    self.__dict__ = fresh.__dict__
                raise
        else:
            fit_without_networks(fresh, matrices, encoded, weights)
        self.__dict__ = fresh.__dict__
        return self

    def _unfitted(self) -> BaseTram:
        """Return an estimator of the same settings (the same objects, too) without what was learned."""
        fresh: BaseTram = object.__new__(type(self))
        fresh.__dict__ = {
            name: value for name, value in self.__dict__.items() if name[0] == "_" or name[-1] != "_"
        }
        return fresh

    @alone()
    def prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Matrices, Encoded, Array | None]:
        """Check the data, learn the encodings, and return X with its columns, y and weights encoded."""
        spec = Spec.of(self.terms)
        latent = self._latent()
        check_choice(self.loss, LOSSES, "loss")
        X = self.check_X(X, spec, reset=True)
        table = read_table(X, type(self).__name__)
        weights = check_sample_weight(sample_weight, table.n_rows)
        used = None if weights is None or weights.all() else weights > 0
        outcome, encoded = Outcome.fit(self._outcome_settings(y), y, used)
        check_same_length(X=np.empty(table.n_rows), y=encoded)
        check_same_labels(X=X, y=y, sample_weight=sample_weight)
        if self.expects_events:
            check_events(y, encoded, type(self).__name__)
        if outcome.kind == "continuous":
            check_more_than_two_values(encoded, type(self).__name__)
        if outcome.kind.is_nominal and latent.name != "logistic":
            raise UnsupportedError(
                f"a nominal outcome needs latent='logistic', got {latent.name!r}: its levels have no order "
                "on which another distribution could act."
            )
        if used is not None and weights is not None and not spec.is_deep:
            # a weight of zero is no observation at all
            X, encoded, weights = take_rows(X, used), encoded.take(used), weights[used]
        design, matrices = Design.fit(spec, X, estimator=type(self).__name__)
        if used is None:
            check_outcome_is_no_column(y, table, spec, design)
        outcome = dataclasses.replace(outcome, marginal=Marginal.of(encoded, weights))
        self.spec_, self.outcome_, self.design_, self.latent_ = spec, outcome, design, latent
        self.n_obs_ = len(matrices.x)
        if outcome.kind.is_time and encoded.observations is not None:
            self.n_events_ = int(encoded.observations.exact.sum())
        if outcome.response is not None:
            self.classes_ = outcome.response.classes
            check_class_counts(outcome, encoded, weights, design, matrices)
        return X, matrices, encoded, weights

    def keep_coefficients(self, shift: Array, scale: Array) -> None:
        """Set ``coef_``, from (p,) or nominal (p, K - 1), and ``scale_coef_``, from (q,), of the design."""
        names = self.outcome_.coefficient_names(self.design_.names)
        self.coef_ = pd.Series(shift.T.ravel(), index=names, name="coef", dtype=float)
        self.scale_coef_ = pd.Series(scale, index=self.design_.names_of("scale"), dtype=float)

    # -- prediction ------------------------------------------------------------------------------

    @property
    def expects_events(self) -> bool:
        """Whether the model is one of times, some of which are usually censored."""
        return self.outcome == "survival"

    @property
    def outcome_kind(self) -> str:
        """The kind of outcome the model is for; after fitting, that of its data (times may be censored)."""
        return str(self.outcome_.kind) if hasattr(self, "outcome_") else self.outcome

    def _row_parameters(self, X: Any) -> tuple[RowParameters, Matrices]:
        require_fit(self)
        X = self.check_X(X, self.spec_, reset=False)
        matrices = self.design_.matrices(X, estimator=type(self).__name__)
        return self.model_.row_parameters(X, matrices).numpy(), matrices

    def predict_distribution(self, X: Any) -> Predictive:
        r"""Return the predictive distribution :math:`F_Z(h(y \mid x))` of each row."""
        parameters, _ = self._row_parameters(X)
        return self.outcome_.predictive(parameters, self.latent_)

    def contributions(self, X: Any, y: Any = None) -> pd.DataFrame:
        """Return the parts of h of each row, one column per part.

        Columns of the linear shift appear by name with the sign they have in
        h (that is, ``-x_j * beta_j``), complex shifts as ``CS(columns)``, a
        scale term as ``log scale``. With ``y`` (one value, or one per row) the
        column ``intercept`` holds the baseline at that outcome, and the parts
        sum to h(y | x) (in models without scale term). For nominal outcomes
        the parts are those of the logits, one column ``level:part`` each.
        """
        parameters, matrices = self._row_parameters(X)
        parts: dict[str, Any] = {}
        if y is not None:
            if self.outcome_.kind.is_nominal:
                raise UnsupportedError(
                    "a nominal outcome has logits, not one h(y), got y; call contributions(X) without it"
                )
            h = np.asarray(self.predict_distribution(X).trafo(y))
            parts["intercept"] = h + parameters.shift
        found = self.model_.contributions(X, matrices)
        for name, part in found.items():
            columns = part.T if self.outcome_.kind.is_nominal else [part]
            parts |= zip(self.outcome_.coefficient_names([name]), columns, strict=True)
        return pd.DataFrame(parts, index=X.index if isinstance(X, pd.DataFrame) else range(len(matrices.x)))

    @property
    def module_(self) -> OutcomeModule:
        """The fitted model as one ``torch.nn.Module``, for saliency maps and export.

        Called with a dict of tensors it returns probabilities ``(n, K)`` of classes, or h at the outcomes
        ``inputs["y"]``; differentiable. See ``deeptram.model.module.OutcomeModule``.
        """
        require_fit(self)
        model: Any = self.model_
        return OutcomeModule(model if self.spec_.is_deep else as_module(model, self.spec_))

    # -- inference -------------------------------------------------------------------------------

    @property
    def aic_(self) -> float:
        """Akaike's criterion, -2 log-likelihood + 2 parameters (exact maximum likelihood only)."""
        return -2 * self._maximum("aic_") + 2 * int(self.n_parameters_)

    @property
    def bic_(self) -> float:
        """Schwarz's criterion, -2 log-likelihood + log(n) parameters (exact maximum likelihood only)."""
        return -2 * self._maximum("bic_") + float(np.log(self.n_obs_)) * int(self.n_parameters_)

    def _maximum(self, name: str) -> float:
        require_fit(self)
        if self.loss != "nll" or self.spec_.is_deep:
            raise MissingMethodError(
                f"{name} needs exact maximum likelihood (loss='nll', no networks), got loss={self.loss!r} "
                f"and {'some' if self.spec_.is_deep else 'no'} networks; compare such models on held-out data"
            )
        return float(self.loglik_)

    def summary(self, level: float = 0.95, exp: bool = False) -> CoefficientTable:
        r"""Return the coefficient table, with a header that says what a coefficient is.

        The sign is that of :math:`F_Z(h(y) - x'\beta)`: a positive coefficient
        means a larger outcome.

        Parameters
        ----------
        level : float
            Level of the Wald intervals.
        exp : bool
            Whether to add ``exp_lower`` and ``exp_upper``, the limits of ``exp_coef``, also where another
            ratio (of hazards, of times) has limits; else they are there anyway.

        Returns
        -------
        DataFrame
            Columns ``coef, se, z, p, lower, upper, exp_coef, exp_lower, exp_upper``; the last three are odds
            ratios with limits, for the logistic latent; with the normal one ``exp_coef`` means nothing, is
            not printed and has no limits. Proportional
            hazards have ``hazard_ratio`` (:math:`e^{-\beta}`) with limits instead of ``exp_lower`` and
            ``exp_upper``, models of log time ``time_ratio`` with limits
            (:math:`e^{\beta/\vartheta_1}`, by which times are multiplied). Rows
            of a scale term are named ``scale(column)``, those of varying effects
            ``column at y`` (see :meth:`effect`). Aliased columns are NaN; separated
            ones are infinite with NaN standard error. Standard errors of models
            with networks are those given the networks.
        """
        require_fit(self)
        return model_summary(self, check_probability_level(level), check_flag(exp, "exp"))

    def confint(
        self,
        level: float = 0.95,
        *,
        method: str = "wald",
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
    ) -> pd.DataFrame:
        """Return confidence intervals of the linear shift as columns ``lower`` and ``upper``.

        Parameters
        ----------
        level : float
            Coverage.
        method : {"wald", "profile"}
            ``"wald"``: estimate plus and minus normal quantiles of standard
            errors. ``"profile"``: the values not rejected by a likelihood-ratio
            test, each found by refitting with the coefficient held fixed; it
            respects the shape of the likelihood and invariance.
        X, y, sample_weight : data, optional
            The training data, for profiles of a model that was loaded.
        """
        require_fit(self)
        check_choice(method, ("wald", "profile"), "method")
        if method == "wald":
            return self.summary(level)[["lower", "upper"]]
        level = check_probability_level(level)
        fit = training_fit(self, X, y, sample_weight, "a profile interval", in_memory=False)
        rows = [profile_interval(fit, j, level) for j in range(len(self.design_.names))]
        return pd.DataFrame(rows, index=self.design_.names, columns=["lower", "upper"])

    def effect(self, y: Any = None, level: float = 0.95) -> pd.DataFrame:
        r"""Return the effects of the ``Varying`` columns at some outcomes.

        :math:`\beta_j(y) = -a(y)'\vartheta_j`: what one unit of the column takes
        from h at y, with the sign of all coefficients (positive: a larger
        outcome). In a model with ``Scale`` it is multiplied by the row's scale.

        Parameters
        ----------
        y : array-like, optional
            Outcomes; for classes, levels but the last (the cutoff is above the
            level). Default: all cutoffs, or 101 points of the support.
        level : float
            Level of the Wald limits.

        Returns
        -------
        DataFrame
            Columns ``column, y, coef, se, lower, upper``.

        Examples
        --------
        >>> import numpy as np, deeptram as dt
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=(300, 1))
        >>> y = np.digitize(np.exp(0.5 * x[:, 0]) * rng.logistic(size=300), [-1.0, 1.0])
        >>> dt.Polr([dt.Varying("x0")]).fit(x, y).effect()["coef"].round(2).tolist()
        [-0.39, 0.32]
        """
        require_fit(self)
        return effect_table(self, y, check_probability_level(level))

    def _card(self) -> str | None:
        return model_card(self) if hasattr(self, "model_") else None

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Save the fitted model as a folder of JSON and safetensors; ``dt.load(path)`` reads it.

        Nothing in the folder can run code. Training data are not saved, only
        their hash. Networks are saved by name and weights: see
        ``deeptram.networks.register`` for your own.

        Parameters
        ----------
        path : path
            The folder to create; it is complete or not there at all.
        overwrite : bool
            Replace a model saved there before.

        Returns
        -------
        Path
        """
        from deeptram.estimators.persistence import save_model  # which needs the presets

        return save_model(self, path, overwrite=overwrite)

    # -- scikit-learn ------------------------------------------------------------------------

    @alone()
    def check_X(self, X: Any, spec: Spec, *, reset: bool) -> Any:
        """Check X as scikit-learn does; data frames and dicts are checked where they are encoded."""
        if not isinstance(X, pd.DataFrame) or any(kind.kind == "O" for kind in X.dtypes):
            # some sparse ones are dicts
            X = X if sparse.issparse(X) else as_pandas(readable_entries(X, tell=reset))
        if sparse.issparse(X):
            raise InvalidTypeError(
                "X must be dense, but sparse data was passed; use X.toarray() to convert it to a dense array."
            )
        if isinstance(X, dict):
            return X
        try:
            if not isinstance(X, pd.DataFrame):
                return validate_data(self, X, reset=reset, dtype="numeric", accept_sparse=False)
            known = reset or hasattr(self, "n_features_in_")
            if known and spec.linear is not None and spec.linear.columns is None:
                check_unique_names(X)
                _check_feature_names(self, X, reset=reset)
                _check_n_features(self, X, reset=reset)
        except ValueError as error:
            raise one_sentence(error, X) from error
        except TypeError as error:
            raise InvalidTypeError(str(error)) from error
        return X

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn whether this is a classifier or a regressor."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self.outcome in DISCRETE:
            tags.estimator_type = "classifier"
            # an ordinal model has one direction in x only, which classes in no order do not follow
            tags.classifier_tags = ClassifierTags(
                multi_class=self.outcome != "binary", poor_score=self.outcome == "ordinal"
            )
        else:
            tags.estimator_type = "regressor"
            # score() is a mean log-likelihood, which no threshold on R^2 fits
            tags.regressor_tags = RegressorTags(poor_score=True)
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Leave the training data (kept for profiles and score tests) out of pickles."""
        state = dict(super().__getstate__())
        fit = state.get("fit_")
        if fit is not None and getattr(fit, "problem", None) is not None:
            state["fit_"] = dataclasses.replace(fit, problem=None)
        return state
