"""What the campaign found, one case each: the sentence that is said now, or the value that is right."""

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import torch

import deeptram as dt
from deeptram import bases, networks, plots
from deeptram.errors import InvalidInputError, InvalidTypeError, RowIndexError
from deeptram.evaluation import metrics, scores
from deeptram.predictive import Predictive
from deeptram.responses import DiscreteResponse, encode_count

PAIR = Predictive.from_proba([[0.5, 0.5], [0.2, 0.8]])
CERTAIN = Predictive.from_proba([[1.0, 0.0, 0.0]])
NORMAL = Predictive.from_scipy(scipy.stats.norm([0.0, 1.0], 1.0))
POISSON = Predictive.from_torch(torch.distributions.Poisson(torch.tensor([2.0, 3.0], dtype=torch.float64)))
SAMPLES = Predictive.from_samples([[1.0, 2.0, 4.0], [0.0, 1.0, 3.0]])


REFUSED = [
    (lambda: PAIR.sample(-1), InvalidInputError, r"size must be an integer of at least 0, got -1"),
    (lambda: PAIR.sample(10**18), InvalidInputError, r"size must be an integer of at most \d+, got 10+$"),
    (
        lambda: NORMAL.sample(1, "seed"),
        InvalidInputError,
        r"random_state must be None, a non-negative integer or",
    ),
    (lambda: metrics.pit([0, 1], PAIR, random_state=-1), InvalidInputError, r"random_state must be None"),
    (
        lambda: dt.evaluate({"a": PAIR}, [0, 1], random_state=0.5),
        InvalidInputError,
        r"random_state must be None",
    ),
    (
        lambda: dt.evaluate({"a": PAIR}, [0, 1], metrics=3),
        InvalidTypeError,
        r"metrics must be a list of names or",
    ),
    (
        lambda: dt.evaluate({"a": PAIR}, [0, 1], reference={}),
        InvalidInputError,
        r"reference must be one of 'a', got",
    ),
    (
        lambda: dt.evaluate({"a": PAIR}, [0, 1], n_boot=10**18),
        InvalidInputError,
        r"n_boot must be .* at most 10000000",
    ),
    (lambda: PAIR[2], RowIndexError, r"rows of 'prediction' must lie in 0..1, got 2"),
    (
        lambda: PAIR.log_prob([[1.0], [1.0, 2.0]]),
        InvalidInputError,
        r"y must be a one-dimensional array, got a seq",
    ),
    (lambda: NORMAL.cdf(10**400), InvalidTypeError, r"y must hold numbers that a float can hold, got int"),
    (
        lambda: Predictive.from_proba([[0.5, 0.5]], levels=5),
        InvalidTypeError,
        r"levels must be a list of labels, got 5",
    ),
    (
        lambda: DiscreteResponse(([1], [2])),
        InvalidInputError,
        r"levels must be strings, numbers or booleans, got \[1\]",
    ),
    (
        lambda: metrics.citl([0, 1], PAIR, per_threshold=np.ones(2)),
        InvalidInputError,
        r"per_threshold must be True or",
    ),
    (
        lambda: metrics.auc([0, 1], PAIR, fold=np.ones(2)),
        InvalidInputError,
        r"fold must be True or False, got",
    ),
    (
        lambda: metrics.pit_histogram([0, 1], PAIR, bins=10**18),
        InvalidInputError,
        r"bins must be .* at most 10000,",
    ),
    (
        lambda: metrics.clopper_pearson([1, 2], [3]),
        InvalidInputError,
        r"events and n must be counts of one shape with 0 <=",
    ),
    (
        lambda: metrics.calibration_curve([0, 1], PAIR, quantiles=int),
        InvalidInputError,
        r"quantiles must hold numbers",
    ),
    (
        lambda: dt.top_k([PAIR, PAIR], [0, 1], 1).weights([]),
        InvalidInputError,
        r"weights must hold one number for each",
    ),
    (
        lambda: dt.weights.tune_weights_stream(None),
        InvalidTypeError,
        r"chunks must give pairs \(members, y\), got None",
    ),
    (
        lambda: dt.weights.tune_weights_stream("a"),
        InvalidTypeError,
        r"chunks must give pairs \(members, y\), got str",
    ),
    (
        lambda: dt.QuasiArithmetic(1.0, np.exp),
        InvalidTypeError,
        r"g must be a function of numbers in \(0, 1\), got 1.0",
    ),
    (
        lambda: dt.guarantees([PAIR], 0.5, [0, 1]),
        InvalidTypeError,
        r"pooled must be a Predictive, got float; make it with dt",
    ),
    (lambda: dt.compare(1, 2), InvalidTypeError, r"compare needs fitted models, got int"),
    (
        lambda: dt.calibration.Temperature().fit(NORMAL, [1.0]),
        InvalidInputError,
        r"pred, y must have the same number of",
    ),
    (
        lambda: dt.latent.get("logistic").icdf(2.0),
        InvalidInputError,
        r"p must lie between 0 and 1, got a number outside",
    ),
    (
        lambda: dt.latent.get("normal").log_cdf(None),
        InvalidTypeError,
        r"log_cdf needs a number or an array of numbers",
    ),
    (lambda: dt.latent.get("normal").cdf("a"), InvalidInputError, r"values must hold numbers, got"),
    (
        lambda: dt.latent.get("normal").cdf(torch.ones(1) * 1j),
        InvalidInputError,
        r"a tensor of real numbers was expected",
    ),
    (
        lambda: dt.latent.get("normal").log_interval([0.0, 1.0], [1.0, 2.0, 3.0]),
        InvalidInputError,
        r"lo and hi must have one shape, got \(2,\) and \(3,\); pass pairs",
    ),
    (
        lambda: bases.theta_from_free(1.0),
        InvalidInputError,
        r"a vector of coefficients was expected, got the number 1",
    ),
    (
        lambda: bases.Bernstein(3, (0, 1), np.ones(2)),
        InvalidInputError,
        r"log_first must be True or False, got",
    ),
    (lambda: bases.from_dict(3), dt.errors.FileFormatError, r"a saved basis must be one of"),
    (
        lambda: encode_count([1], log_first="x"),
        InvalidInputError,
        r"log_first must be True or False, got 'x'",
    ),
    (lambda: networks.MLP(hidden=5), InvalidTypeError, r"hidden must be a list of positive integers, got 5"),
    (
        lambda: networks.CNN(convolutions=10**4),
        InvalidInputError,
        r"convolutions must be an integer of at most 100, got",
    ),
    (lambda: networks.MLP(dropout="a"), InvalidInputError, r"dropout must be a finite number, got 'a'"),
    (
        lambda: networks.from_dict(range(3)),
        dt.errors.FileFormatError,
        r"a saved network needs a 'name' and a 'config'",
    ),
    (lambda: dt.Training.from_dict(3), InvalidTypeError, r"settings must be a dict made by to_dict, got int"),
    (
        lambda: dt.Training(learning_rate=10**400),
        InvalidInputError,
        r"learning_rate must be a finite number of at least 0, got 10",
    ),
    (lambda: dt.datasets.simulate(n="a"), InvalidInputError, r"n must be an integer of at least 1, got 'a'"),
    (
        lambda: dt.datasets.simulate(beta=[[1.0]]),
        InvalidInputError,
        r"beta must be a vector of effects within 1e9",
    ),
    (
        lambda: dt.datasets.simulate("survival", beta=[1e4]),
        InvalidInputError,
        r"beta and image_effect must leave outcomes",
    ),
    (
        lambda: dt.datasets.simulate_covariates([0, 1], 0, effects=[1]),
        InvalidTypeError,
        r"effects must be a dict from",
    ),
    (
        lambda: dt.datasets.simulate_covariates([1e18], 0),
        InvalidInputError,
        r"codes must be classes 0, 1, ..., got 1e\+18",
    ),
    (lambda: dt.datasets.load_mnist(5), InvalidTypeError, r"directory must be the path of a folder, got 5"),
    (lambda: dt.datasets.load_mnist("x" * 5000), InvalidInputError, r"directory must be a folder, got xxx"),
    (
        lambda: dt.Lm().fit([[1e200], [0.0], [1.0]], [1, 2, 3]),
        InvalidInputError,
        r"X must hold numbers whose squares do",
    ),
    (
        lambda: bases.Bernstein(10**18, (0, 1)),
        InvalidInputError,
        r"order must be an integer of at most 1000, got",
    ),
    (
        lambda: DiscreteResponse((True, np.inf)),
        InvalidInputError,
        r"levels must be finite, got True, inf; leave infinity",
    ),
    (
        lambda: dt.datasets.simulate(n=9, image_size=10**6),
        InvalidInputError,
        r"n images of image_size pixels must not",
    ),
    (lambda: dt.LS(np.zeros(3)), InvalidTypeError, r"LS takes a formula or column names \(strings\)"),
    (
        lambda: dt.tune_weights_cv([PAIR, PAIR], scipy.sparse.csr_matrix(np.eye(2)), folds=2),
        InvalidTypeError,
        r"y must be dense, but sparse data was passed; use y.toarray\(\)",
    ),
    (
        lambda: dt.Lm().fit([[0.0], [1.0], [2.0]], [1, 2, 2], sample_weight=[1, 1e200, 1]),
        InvalidInputError,
        r"sample_weight must not exceed 1e\+100, got 1e\+200; rescale it",
    ),
    (lambda: plots.epistemic(3), InvalidTypeError, r"members must be a list of Predictives, got 3"),
    (
        lambda: plots.pit([0, 1], PAIR, level=(1,)),
        InvalidInputError,
        r"level must be a number strictly between 0 and 1",
    ),
    (
        lambda: plots.illustration(NORMAL, row="a"),
        InvalidInputError,
        r"row must be an integer of at least -2, got 'a'",
    ),
    (lambda: plots.illustration(NORMAL, at={}), InvalidInputError, r"at must be a finite number, got {}"),
    (lambda: plots.weights([1.0], members=3), InvalidTypeError, r"members must be a list of names, got 3"),
    (lambda: plots.cdf(NORMAL, grid=b"x"), InvalidInputError, r"grid must hold numbers, got"),
]


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[match[:40] for _, _, match in REFUSED])
def test_one_clear_sentence(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_plots_refuse_tables_that_are_none():
    table = dt.Polr().fit(np.arange(6.0).reshape(-1, 1), [0, 1, 0, 1, 2, 2]).summary()
    with pytest.raises(InvalidTypeError, match="members must be a DataFrame, got int"):
        plots.coefficients(table, members=3)
    with pytest.raises(InvalidTypeError, match="truth must be a dict from names to effects, got int"):
        plots.coefficients(table, truth=3)
    history = table.assign(epoch=1, train_loss=np.nan)
    with pytest.raises(
        InvalidInputError, match="a history must hold at least one loss, got none for 'model'"
    ):
        plots.history(history)


@pytest.mark.parametrize("pred", [PAIR, NORMAL, POISSON, SAMPLES])
def test_rows_by_negative_steps_and_none_at_all(pred):
    y = np.array([0, 1])
    assert np.asarray(pred[::-1].cdf(y)).tolist() == np.asarray(pred.cdf(y[::-1]))[::-1].tolist()
    nobody = pred[:0]
    assert len(nobody) == 0
    assert np.shape(nobody.cdf(1)) == np.shape(nobody.crps(1)) == np.shape(nobody.median()) == (0,)
    assert np.shape(nobody.sample(3, 0)) == (0, 3)
    assert [len(row) for row in pred] == [1, 1]  # a loop over rows ends


def test_arrays_that_torch_cannot_share():
    y = np.array([0.5, 1.5])
    frozen = y.copy()
    frozen.setflags(write=False)
    for same in (y[::-1][::-1].copy()[::-1][::-1], frozen, np.array([1.5, 0.5])[::-1]):
        assert NORMAL.log_prob(dt.Surv.interval(same, same)).tolist() == NORMAL.log_prob(y).tolist()
        assert dt.calibration.Temperature().fit(NORMAL, same).temperature_ > 0
        assert POISSON.pmf_grid(np.array([2, 1])[::-1]).shape == (2, 2)
        assert (
            dt.Lm()
            .fit(np.array([[0.0], [1.0], [2.0]]), [1.0, 3.0, 2.0], sample_weight=np.ones(3)[::-1])
            .converged_
        )


def test_hazard_where_nothing_survives():
    """1 (levels, counts) or infinite (line), the limit of the hazard at the last possible outcome."""
    assert CERTAIN.hazard(0).tolist() == CERTAIN.hazard(2).tolist() == [1.0]
    uniform = Predictive.from_scipy(scipy.stats.uniform([0.0], 1.0))
    assert uniform.hazard(2.0).tolist() == uniform.hazard(np.inf).tolist() == [np.inf]
    dice = Predictive.from_scipy(scipy.stats.binom([3], 0.5))
    assert dice.hazard(3).tolist() == dice.hazard(99).tolist() == [1.0]
    h = 1 / scipy.stats.binom(3, 0.5).sf(1) * scipy.stats.binom(3, 0.5).pmf(2)
    assert dice.hazard(2) == pytest.approx(h)


def test_calibration_of_rows_as_good_as_certain():
    """No finite slope, as documented, instead of a singular matrix."""
    pred = Predictive.from_trafo([[-800.0], [800.0], [790.0]])
    assert np.isnan(metrics.citl([0, 1, 0], pred, per_threshold=True)).all()
    with pytest.warns(dt.errors.SeparationWarning, match="has no finite estimate"):
        assert np.isnan(metrics.calibration_slope([1, 0, 0], pred))


def test_scores_of_one_row():
    assert scores.nll([1], Predictive.from_proba([[0.5, 0.5]])) == pytest.approx(np.log(2))


def test_distributions_without_an_expectation():
    """Cauchy's has none (both tails diverge), that of a Pareto with index 1 is infinite."""
    for cauchy in (
        Predictive.from_scipy(scipy.stats.cauchy([0.0, 1.0])),
        Predictive.from_torch(torch.distributions.Cauchy(torch.zeros(2), 1.0)),
    ):
        with pytest.raises(
            dt.errors.UnsupportedError,
            match=r"a distribution with two heavy tails has no mean, got rows 0, 1; use median",
        ):
            cauchy.mean()
        assert np.asarray(cauchy.quantile([0.0, 1.0])).tolist() == [[-np.inf, np.inf]] * 2
    assert Predictive.from_scipy(scipy.stats.pareto([1.0])).mean().tolist() == [np.inf]


def test_recalibration_of_predictions_too_certain():
    """Derivatives beyond the floats are said instead of divided."""
    certain = Predictive.from_trafo(np.full((2, 1), 1.2e154), latent="normal")
    with pytest.raises(
        dt.errors.FittingError, match="recalibration needs derivatives that floats can hold, got"
    ):
        dt.calibration.Temperature().fit(certain, [1, 1])
