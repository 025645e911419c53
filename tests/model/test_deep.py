"""Deep models: what their numbers mean, without training."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from deeptram import latent
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.inputs.network_inputs import NetworkInputs
from deeptram.model import Design, Outcome, OutcomeSettings
from deeptram.model.deep import DeepModel, is_network_parameter, row_parameters_of
from deeptram.model.terms import CI, CS, LS, SI, Scale, Spec
from deeptram.networks import CNN, MLP
from deeptram.predictive.kinds import build_predictive

N = 30


def outcomes(rng):
    return {
        "ordinal": np.arange(N) % 4,
        "nominal": np.array(list("abc"))[np.arange(N) % 3],
        "continuous": rng.normal(500.0, 20.0, N),
        "count": rng.poisson(4, N),
        "survival": rng.exponential(3.0, N),
    }


@pytest.fixture
def X(rng):
    frame = pd.DataFrame(rng.normal(size=(N, 3)), columns=list("abc"))
    frame["g"] = np.where(np.arange(N) % 2, "u", "v")
    frame["a"] = 100.0 + 30.0 * frame["a"]
    return frame


def build(terms, kind, X, y, *, dtype=torch.float64, settings=None, randomise=True):
    """Return a model with random parameters and a non-trivial working scale."""
    spec = Spec.of(terms)
    outcome, _ = Outcome.fit(OutcomeSettings(kind, **(settings or {})), y)
    design, matrices = Design.fit(spec, X)
    inputs = [NetworkInputs.fit(X, term.columns) for term in spec.networks]
    model = DeepModel(spec, outcome, latent.get("logistic"), design, inputs, dtype).eval()
    if randomise:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.5)
            if not spec.has_scale:
                model.x_mean.copy_(torch.linspace(-1.0, 2.0, len(design.names)))
            model.x_sd.copy_(torch.linspace(0.5, 3.0, len(design.names)))
            model.z_sd.copy_(torch.full_like(model.z_sd, 1.7))
            if model.is_line:
                model.line.copy_(torch.tensor([500.0, 20.0]))
    return model, matrices


def working_batch(model, X, matrices):
    batch = {"nets": [tuple(s.span(0, N) for s in one.sources(X, model.dtype)) for one in model.inputs]}
    if model.beta is not None:
        x = (torch.as_tensor(matrices.x) - model.x_mean) / model.x_sd
        batch["x"] = x.to(model.dtype)
    if model.gamma is not None:
        batch["scale"] = torch.as_tensor(matrices.scale) / model.z_sd
    if matrices.strata is not None:
        batch["strata"] = torch.as_tensor(matrices.strata)
    return batch


NET = MLP((5,), output_bias=True)
CASES = {
    "SI-CS-LS": [CS(NET, "b"), LS("a + g")],
    "SI-CS-CS": [CS(NET, "b"), CS(NET, "c", "a")],
    "strata": [SI(strata="g"), CS(NET, "b"), LS("a")],
    "scale": [CS(NET, "b"), LS("a"), Scale("c")],
    "scale networks": [Scale(NET, "a"), CS(NET, "b"), LS("a"), Scale("c"), Scale(NET, "b", "c")],
    "CI": [CI(NET, "a", "b", "g")],
    "CI-CS-LS": [CI(NET, "a"), CS(NET, "b"), LS("c")],
}


@pytest.mark.parametrize(
    ("kind", "basis"),
    [
        ("ordinal", None),
        ("continuous", "bernstein"),
        ("continuous", "linear"),
        ("count", "bernstein"),
        ("survival", "bernstein"),
        ("survival", "log-linear"),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_row_parameters_are_the_forward_pass(kind, case, basis, X, rng):
    """h from the reported parameters equals h of the working scale, on which training happens."""
    y = outcomes(rng)[kind]
    model, matrices = build(CASES[case], kind, X, y, settings={"basis": basis})
    working = model.working(model(working_batch(model, X, matrices)))
    parameters = model.row_parameters(X, matrices)
    shift = torch.zeros(N) if working.shift is None else working.shift
    points = np.arange(3) if kind == "ordinal" else np.quantile(y, [0.1, 0.5, 0.9])
    for point in points:
        a = torch.as_tensor(model.outcome.basis.evaluate(np.full(N, point)))
        stretch = 1.0 if working.log_scale is None else torch.exp(working.log_scale)
        expected = stretch * (a * model.on_line(working.theta)).sum(-1) - shift
        s = 0.0 if parameters.log_scale is None else parameters.log_scale
        found = np.exp(s) * (a.numpy() * parameters.theta).sum(-1) - parameters.shift
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("terms", [[CS(NET, "b"), LS("a + g")], [CI(NET, "a"), CS(NET, "b")], [CI(NET, "a")]])
def test_nominal_logits(terms, X, rng):
    model, matrices = build(terms, "nominal", X, outcomes(rng)["nominal"])
    logits = model.working(model(working_batch(model, X, matrices))).free.detach()
    parameters = model.row_parameters(X, matrices)
    np.testing.assert_allclose(parameters.theta, logits.expand(N, 2).numpy(), atol=1e-10)
    assert (parameters.shift == 0).all()
    assert model.coef.shape == (len(model.design.names), 2)


def test_a_straight_line_is_centred_and_scaled(X, rng):
    """Working coefficients (t0, t1) mean h(y) = t0 + t1 (y - location) / scale."""
    y = outcomes(rng)["continuous"]
    model, matrices = build([CS(NET, "b")], "continuous", X, y, settings={"basis": "linear"})
    t0, t1 = model.working(model(working_batch(model, X, matrices))).theta[0].detach().numpy()
    parameters = model.row_parameters(X, matrices)
    for point in (450.0, 500.0, 530.0):
        h = parameters.theta[0] @ [1.0, point]
        assert h == pytest.approx(t0 + t1 * (point - 500.0) / 20.0, rel=1e-12)


def test_increments_survive_where_differences_vanish(X, rng):
    model, matrices = build([CS(NET, "b")], "ordinal", X, outcomes(rng)["ordinal"], dtype=torch.float32)
    with torch.no_grad():
        model.intercept.free.copy_(torch.tensor([[30.0, -60.0, 0.0]]))
    parameters = model.row_parameters(X, matrices)
    assert parameters.theta[0, 1] - parameters.theta[0, 0] == 0.0
    assert parameters.log_increments[0, 0] == pytest.approx(-60.0)
    pred = build_predictive("ordinal", parameters, model.outcome.basis, model.latent, levels=(0, 1, 2, 3))
    assert np.isfinite(pred.log_prob(np.ones(N, dtype=int))).all()


def test_log_increments_are_those_of_theta(X, rng):
    for kind, settings in (("ordinal", {}), ("continuous", {}), ("continuous", {"basis": "linear"})):
        model, matrices = build([CI(NET, "a"), LS("c")], kind, X, outcomes(rng)[kind], settings=settings)
        parameters = model.row_parameters(X, matrices)
        increments = parameters.theta @ model.outcome.basis.monotone_differences.T
        np.testing.assert_allclose(np.log(increments), parameters.log_increments, rtol=1e-9)


def test_float64_is_computed_from_float32(X, rng):
    model, matrices = build(
        [CI(NET, "a"), LS("c")], "ordinal", X, outcomes(rng)["ordinal"], dtype=torch.float32
    )
    parameters = model.row_parameters(X, matrices)
    assert parameters.theta.dtype == parameters.shift.dtype == np.float64
    beta = model.beta.detach().double().numpy()
    np.testing.assert_array_equal(model.coef, beta / model.x_sd.numpy())


@pytest.mark.parametrize("kind", ["ordinal", "continuous", "nominal"])
def test_contributions_add_up_to_h(kind, X, rng):
    model, matrices = build([CS(NET, "b"), CS(NET, "b"), LS("a + g")], kind, X, outcomes(rng)[kind])
    with torch.no_grad():
        for shift in model.shifts:
            shift.slopes.copy_(torch.randn_like(shift.slopes))
            shift.mean.copy_(torch.randn_like(shift.mean))
    parts = model.contributions(X, matrices)
    assert list(parts) == ["a", "gv", "CS('b')", "CS('b') #2"]
    parameters = model.row_parameters(X, matrices)
    total = sum(parts.values())
    if kind == "nominal":
        np.testing.assert_allclose(model.theta + total, parameters.theta, atol=1e-10)
    else:
        np.testing.assert_allclose(total, -parameters.shift, atol=1e-10)
        np.testing.assert_allclose(model.theta, parameters.theta, atol=1e-12)


def test_what_is_taken_out_of_a_shift_does_not_change_the_distribution(X, rng):
    for kind in ("ordinal", "nominal", "continuous"):
        model, matrices = build([CS(NET, "b"), LS("a + g")], kind, X, outcomes(rng)[kind])
        before = model.row_parameters(X, matrices)
        with torch.no_grad():
            model.shifts[0].slopes.copy_(torch.randn_like(model.shifts[0].slopes))
            model.shifts[0].mean.copy_(torch.randn_like(model.shifts[0].mean))
        after = model.row_parameters(X, matrices)
        h0, h1 = (p.theta - p.shift[:, None] for p in (before, after))
        np.testing.assert_allclose(h0, h1, atol=1e-10)


def test_members_are_predicted_together(X, rng):
    y = outcomes(rng)["ordinal"]
    terms = [CI(NET, "a"), CS(NET, "b"), LS("c")]
    models = [
        build(terms, "ordinal", X, y, dtype=dtype)[0]
        for dtype in (torch.float32, torch.float64, torch.float32)
    ]
    _, matrices = build(terms, "ordinal", X, y)
    other = DeepModel(
        models[0].spec,
        models[0].outcome,
        models[0].latent,
        models[0].design,
        [NetworkInputs.fit(X[:20], ("a",)), NetworkInputs.fit(X[:20], ("b",))],
    )
    models.append(other)
    for model, together in zip(models, row_parameters_of(models, X, matrices), strict=True):
        alone = model.row_parameters(X, matrices)
        np.testing.assert_array_equal(alone.theta, together.theta)
        np.testing.assert_array_equal(alone.shift, together.shift)


def test_prediction_in_pieces_is_prediction_at_once(rng):
    images = rng.random((150, 8, 8)).astype(np.float32)
    X = {"image": images}
    terms = [CI(CNN((3,), dense=(4,)), "image")]
    model, matrices = build(terms, "ordinal", X, np.arange(150) % 3, dtype=torch.float32)
    model.inputs[0].sources(X)
    whole = model.row_parameters(X, matrices).theta
    some = {"image": images[140:]}
    np.testing.assert_allclose(
        model.row_parameters(some, model.design.matrices(some)).theta, whole[140:], atol=1e-6
    )


def test_the_mode_of_the_model_is_left_as_it_was(X, rng):
    net = MLP((5,), dropout=0.5)
    model, matrices = build([CS(net, "b")], "ordinal", X, outcomes(rng)["ordinal"])
    model.train()
    first, second = (model.row_parameters(X, matrices).shift for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert model.training


def test_state_and_configuration_rebuild_the_model(X, rng):
    y = outcomes(rng)["ordinal"]
    model, matrices = build([CI(NET, "a", "g"), CS(NET, "b"), LS("c")], "ordinal", X, y, dtype=torch.float32)
    config = json.loads(json.dumps(model.to_dict()))
    before = torch.get_rng_state()
    rebuilt = DeepModel.from_dict(config, model.spec, model.outcome, model.latent, model.design)
    assert torch.equal(before, torch.get_rng_state())
    rebuilt.load_state_dict(model.state_dict())
    a, b = model.row_parameters(X, matrices), rebuilt.row_parameters(X, matrices)
    np.testing.assert_array_equal(a.theta, b.theta)
    np.testing.assert_array_equal(a.shift, b.shift)


def test_models_can_be_pickled_and_copied(X, rng):
    model, matrices = build([CI(NET, "a"), LS("c")], "ordinal", X, outcomes(rng)["ordinal"])
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(
            again.row_parameters(X, matrices).theta, model.row_parameters(X, matrices).theta
        )


def test_theta_of_a_complex_intercept_is_refused(X, rng):
    model, _ = build([CI(NET, "a")], "ordinal", X, outcomes(rng)["ordinal"])
    with pytest.raises(
        UnsupportedError, match=r"theta is one vector only in models with a simple intercept, got"
    ):
        _ = model.theta


def test_other_numbers_of_images_are_refused(rng):
    X = {"image": rng.random((12, 8, 8)), "a": rng.normal(size=12)}
    terms = [CS(CNN((2,), dense=(2,)), "image"), LS("a")]
    model, matrices = build(terms, "ordinal", X, np.arange(12) % 3)
    other = {"image": X["image"][:11]}
    with pytest.raises(
        InvalidInputError, match=r"every network input must have one entry per row \(12\), got 11"
    ):
        model.row_parameters(other, matrices)
    with pytest.raises(
        InvalidInputError, match=r"every network input must have one entry per row \(12\), got 11"
    ):
        model.contributions(other, matrices)


def test_parameters_are_told_apart_by_name(X, rng):
    terms = [CI(NET, "a"), CS(NET, "b"), LS("c"), Scale("a"), Scale(NET, "b")]
    model, _ = build(terms, "ordinal", X, outcomes(rng)["ordinal"])
    structured = [name for name, _ in model.named_parameters() if not is_network_parameter(name)]
    assert structured == ["beta", "gamma", "intercept.constant"]
    assert len(list(model.network_parameters())) == 12


def test_channels_last_does_not_change_values(rng):
    X = {"image": rng.random((12, 3, 8, 8)), "a": rng.normal(size=12)}
    model, _ = build([CI(CNN((4, 4), dense=(4,)), "image"), LS("a")], "ordinal", X, np.arange(12) % 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.use_channels_last()
    weight = next(p for p in model.parameters() if p.ndim == 4 and p.shape[1] > 1)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_initial_weights_come_from_the_global_generator(X, rng):
    y = outcomes(rng)["ordinal"]
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(build([CS(nn_linear, "a")], "ordinal", X, y, randomise=False)[0].state_dict())
    assert torch.equal(states[0]["shifts.0.net.weight"], states[1]["shifts.0.net.weight"])
    assert not torch.equal(states[0]["shifts.0.net.weight"], states[2]["shifts.0.net.weight"])


def nn_linear(in_shape, out_features):
    return nn.Linear(in_shape[0], out_features)
