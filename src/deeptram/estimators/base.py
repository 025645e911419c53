"""The scikit-learn face of a transformation model: fitting."""

from __future__ import annotations

import dataclasses
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
from deeptram._validation import as_pandas, check_choice, check_same_length, check_sample_weight
from deeptram.errors import InvalidInputError, InvalidTypeError, NonFiniteLossError, UnsupportedError
from deeptram.estimators.class_counts import check_class_counts, check_outcome_is_no_column
from deeptram.estimators.deep import fit_with_networks
from deeptram.estimators.inference import InferenceMixin
from deeptram.estimators.information import shift_covariance
from deeptram.estimators.prediction import PredictionMixin
from deeptram.estimators.saving import SavingMixin
from deeptram.estimators.sklearn_words import one_sentence
from deeptram.fitting.exact.diagnosis import Labels
from deeptram.fitting.exact.fit import centre_scale, fit_exact, uncentre_scale
from deeptram.fitting.exact.nominal import fit_nominal
from deeptram.fitting.exact.scored import check_loss, fit_scored
from deeptram.fitting.exact.structured_data import StructuredData
from deeptram.inputs import read_table
from deeptram.latent import Latent
from deeptram.model import DISCRETE, Design, Encoded, Matrices, Outcome, OutcomeSettings, StructuredModel
from deeptram.model.terms import Spec
from deeptram.responses import Surv

Array = NDArray[np.float64]

LOSSES = ("nll", "rps", "brier", "crps")


class BaseTram(InferenceMixin, PredictionMixin, SavingMixin, BaseEstimator):
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
        return latents.get(self.latent)

    # -- fitting -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, validation: Any = None) -> BaseTram:
        """Fit the model.

        Without networks (CI, CS) and with ``loss="nll"`` this is the exact
        maximum-likelihood optimum in float64, with a certificate.

        Parameters
        ----------
        X : DataFrame, 2-d array or dict of arrays
            Covariates; images as entries of a dict.
        y : array-like or Surv
            Outcomes.
        sample_weight : array-like, optional, shape (n,)
            Non-negative case weights; a weight of 2 counts like the row twice.
        validation : float or (X, y), optional
            For models with networks: the data on which the best epoch is
            chosen. Exact fits do not need it.

        Returns
        -------
        self
            A fit that fails leaves a fitted model as it was.
        """
        fresh = self._unfitted()
        X, matrices, encoded, weights = fresh._prepare(X, y, sample_weight)
        if fresh.spec_.is_deep:
            try:
                fit_with_networks(fresh, X, y, matrices, encoded, weights, validation)
            except NonFiniteLossError:
                if not hasattr(self, "model_"):  # the best epoch is better than nothing
                    self.__dict__ = fresh.__dict__
                raise
        else:
            fresh._fit_structured(matrices, encoded, weights)
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
    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Matrices, Encoded, Array | None]:
        """Check the data, learn the encodings, and return X with its columns, y and weights encoded."""
        spec = Spec.of(self.terms)
        latent = self._latent()
        check_choice(self.loss, LOSSES, "loss")
        X = self._check_X(X, spec, reset=True)
        table = read_table(X, type(self).__name__)
        weights = check_sample_weight(sample_weight, table.n_rows)
        used = None if weights is None or weights.all() else weights > 0
        outcome, encoded = Outcome.fit(self._outcome_settings(y), y, used)
        check_same_length(X=np.empty(table.n_rows), y=encoded)
        if outcome.kind == "nominal" and latent.name != "logistic":
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
        self.spec_, self.outcome_, self.design_, self.latent_ = spec, outcome, design, latent
        self.n_obs_ = len(matrices.x)
        if outcome.kind == "survival" and encoded.observations is not None:
            self.n_events_ = int(encoded.observations.exact.sum())
        if outcome.response is not None:
            self.classes_ = outcome.response.classes
            check_class_counts(outcome, encoded, weights, design, matrices, stacklevel=5)
        return X, matrices, encoded, weights

    def _fit_structured(self, matrices: Matrices, encoded: Encoded, weights: Array | None) -> None:
        if self.outcome_.kind == "nominal":
            self._fit_nominal(matrices, encoded, weights)
            return
        scale, centre = centre_scale(matrices.scale, weights, self.outcome_.basis)
        centred = dataclasses.replace(matrices, scale=scale)
        data = StructuredData.of(
            self.outcome_, self.latent_, centred, encoded, weights, self.design_.n_strata
        )
        if self.loss != "nll":
            check_loss(self.loss, self.outcome_, data)
        fit = fit_exact(data, labels=self._labels())
        self.fit_ = fit if self.loss == "nll" else fit_scored(fit, self.outcome_, self.loss)
        theta, vcov = uncentre_scale(self.fit_, centre)
        self._store(theta, self.fit_.beta, self.fit_.gamma)
        if self.loss in ("rps", "brier") and scale is None:
            parameters = self.model_.row_parameters(None, matrices)
            kept = ~fit.problem.aliased & (fit.infinite == 0)
            parts = (self.outcome_, self.latent_, parameters, matrices, encoded, weights, 1, kept, self.loss)
            vcov[theta.size :, theta.size :] = shift_covariance(*parts)
        self.vcov_ = self._label_covariance(vcov)

    def _labels(self) -> Labels:
        """Return the names that messages use."""
        design = self.design_
        return Labels(
            linear=design.names,
            varying=() if design.varying is None else design.varying.names,
            scale=() if design.scale is None else design.scale.names,
            strata=() if design.strata is None else [repr(level) for level in design.strata.levels],
        )

    def _fit_nominal(self, matrices: Matrices, encoded: Encoded, weights: Array | None) -> None:
        if self.loss != "nll":
            raise UnsupportedError(
                f"loss={self.loss!r} is not available for a nominal outcome without networks; use loss='nll'."
            )
        if any(part is not None for part in (matrices.strata, matrices.scale, matrices.varying)):
            raise UnsupportedError(
                "strata, Scale and Varying need an ordered outcome; "
                "a nominal outcome takes LS, CI and CS terms."
            )
        if encoded.codes is None or self.outcome_.levels is None:
            raise InvalidInputError("a nominal outcome needs class labels; pass them as y.")
        self.fit_ = fit_nominal(
            encoded.codes,
            len(self.outcome_.levels),
            matrices.x,
            weights,
            self.design_.names,
            levels=self.outcome_.levels,
        )
        self._store(self.fit_.theta, self.fit_.beta, np.zeros(0))
        self.vcov_ = self._label_covariance(self.fit_.vcov)

    @alone()
    def _store(self, theta: Array, beta: Array, gamma: Array) -> None:
        """Keep the estimates: public ones as they are, finite ones for prediction."""
        fit = self.fit_
        public = np.where(fit.infinite != 0, np.copysign(np.inf, fit.infinite), beta)
        names = self._coefficient_names()
        self.coef_ = pd.Series(public.T.ravel(), index=names, name="coef", dtype=float)
        self.scale_coef_ = pd.Series(
            gamma, index=[] if self.design_.scale is None else list(self.design_.scale.names), dtype=float
        )
        self.theta_ = theta.ravel()
        self.loglik_ = fit.loglik
        self.n_iter_, self.converged_, self.certificate_ = fit.n_iter, fit.converged, fit.certificate
        self.n_parameters_ = fit.n_parameters
        shift, stretch = np.nan_to_num(beta, nan=0.0), np.nan_to_num(gamma, nan=0.0)
        self.model_ = StructuredModel(self.outcome_, self.latent_, self.design_, theta, shift, stretch)

    # -- scikit-learn ------------------------------------------------------------------------

    @alone()
    def _check_X(self, X: Any, spec: Spec, *, reset: bool) -> Any:
        """Check X as scikit-learn does; data frames and dicts are checked where they are encoded."""
        X = as_pandas(X)
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


def is_censored(y: Any) -> bool:
    """Return whether y is a censored response."""
    return isinstance(y, Surv)
