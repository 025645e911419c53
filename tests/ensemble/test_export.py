"""Models and ensembles as torch modules and ONNX graphs: the numbers of the models themselves, and gradients."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import deeptram as dt
from deep_models import FAST, MODELS, NET, TERMS, make, table
from deeptram.ensemble import onnx_graph
from deeptram.errors import (
    EmptyClassWarning,
    InvalidInputError,
    InvalidTypeError,
    MissingDependencyError,
    UnsupportedError,
)
from deeptram.pooling.recalibration import Recalibration

X, Z = table()
ONLY_CLASSES = [name for name in MODELS if MODELS[name][0] in (dt.Polr, dt.Logit) or name == "nominal"]


def outcomes(name):
    """Return outcomes at which to read h: of all rows, within the support."""
    if name == "Cotram":
        return np.arange(len(X)) % 4
    return np.linspace(0.3, 2.5, len(X))


def expected(model, name):
    if name in ONLY_CLASSES:
        return model.predict_proba(X)
    return np.asarray(model.predict_distribution(X).trafo(outcomes(name)))


def tensors_of(module, name):
    return module.inputs(X, None if name in ONLY_CLASSES else outcomes(name))


@pytest.mark.parametrize("terms", ["CI-LS", "SI-CS-LS"])
@pytest.mark.parametrize("name", MODELS)
def test_a_module_gives_what_the_model_predicts_with_gradients(name, terms):
    model, y = make(name, TERMS[terms])
    module = model.fit(X, y).module_
    tensors = tensors_of(module, name)
    np.testing.assert_allclose(module(tensors).detach().numpy(), expected(model, name), atol=1e-6)
    tensors = {key: value.clone().requires_grad_() for key, value in tensors.items()}
    output = module(tensors)
    (output if output.ndim == 1 else output[:, 0]).sum().backward()
    if name == "Cotram":
        assert not tensors.pop("y").grad.any()  # F of counts is a step function
    assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in tensors.values())


def test_h_between_counts_is_that_of_the_count_below(tmp_path):
    model, y = make("Cotram", TERMS["SI-CS-LS"])
    at = np.resize([0.0, 0.5, 1.0, 2.9, -0.5, -1.5, 1e3, np.inf], len(X))
    pooled = dt.Ensemble(model, 2, random_state=1).fit(X, y)
    straight = dt.Cotram(log_first=False).fit(X, y)  # without an offset
    for one in (pooled, pooled.members_[0], dt.Cotram().fit(X, y), straight):
        h = np.asarray(one.predict_distribution(X).trafo(at))
        np.testing.assert_array_equal(h[at < 0], -np.inf)
        module = one.module_
        feed = module.inputs(X, np.zeros(len(X))) | {"y": torch.as_tensor(at)}
        traced, _ = program_of(module, "Cotram")
        for found in (
            module(feed).detach(),
            traced(feed).detach(),
            run(dt.export(one, tmp_path / "m"), feed),
        ):
            np.testing.assert_allclose(found, h, atol=1e-5, rtol=1e-5)


def test_an_outcome_that_is_missing_has_no_h():
    module = dt.Colr([dt.LS("a")]).fit(X, Z).module_
    feed = module.inputs(X, Z.copy())
    feed["y"][3] = np.nan
    assert np.flatnonzero(module(feed).detach().isnan()).tolist() == [3]


def test_inputs_in_any_form_and_what_is_missing():
    images = np.random.default_rng(0).integers(0, 256, size=(40, 6, 6, 3)).astype(np.uint8)
    data = {
        "image": images,
        "age": np.arange(40.0),
        "sex": np.array(["f", "m"] * 20),
        "site": ["p", "q"] * 20,
    }
    terms = [dt.SI(strata="site"), dt.CS(dt.networks.CNN((2,), dense=()), "image"), dt.CS(NET, "age", "sex")]
    model = dt.Polr([*terms, dt.LS("age + sex")], training=FAST, random_state=1).fit(data, np.arange(40) % 3)
    module = model.module_
    assert module.shapes == {"image": (3, 6, 6), "age": (), "sexm": (), "site": ()}
    tensors = module.inputs(data)
    probabilities = module(tensors)
    np.testing.assert_allclose(probabilities.detach().numpy(), model.predict_proba(data), atol=1e-6)
    as_bytes = {**tensors, "image": torch.as_tensor(images), "age": tensors["age"].float()[:, None]}
    torch.testing.assert_close(module(as_bytes), probabilities)
    with pytest.raises(
        InvalidInputError, match=r"a tensor for each of image, age, sexm, site, got none for age"
    ):
        module({key: value for key, value in tensors.items() if key != "age"})


def test_scale_terms_are_in_the_module(tmp_path):
    terms = [dt.CS(NET, "b"), dt.Scale("c"), dt.LS("a"), dt.Scale(NET, "b")]
    model = dt.Colr(terms, training=FAST, random_state=1).fit(X, Z)
    tensors, h = model.module_.inputs(X, Z), model.predict_distribution(X).trafo(Z)
    np.testing.assert_allclose(model.module_(tensors).detach(), h, atol=1e-5)
    np.testing.assert_allclose(run(dt.export(model, tmp_path / "m.onnx"), tensors), h, atol=1e-5)


@pytest.mark.parametrize("pooling", ["transformation", "linear", "log-linear", "log-linear-density"])
@pytest.mark.parametrize("name", ["Polr", "nominal", "Colr", "Cotram"])
def test_the_module_of_an_ensemble_is_its_pool(name, pooling):
    if name in ("Colr", "Cotram") and pooling == "log-linear-density":
        pytest.skip("has no h of its own")
    model, y = make(name, TERMS["CI-LS"])
    whole = dt.Ensemble(model, 2, random_state=1, pooling=pooling, weights=[0.3, 0.7]).fit(X, y)
    module = whole.module_
    np.testing.assert_allclose(
        module(tensors_of(module, name)).detach().numpy(), expected(whole, name), atol=2e-6
    )


def run(path, feed):
    """Return what onnxruntime computes of some rows; of no rows it has to compute nothing."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    output, nothing = (
        session.run(None, {key: value[:n].numpy() for key, value in feed.items()})[0] for n in (None, 0)
    )
    assert nothing.shape == (0, *output.shape[1:])
    return output


@pytest.mark.parametrize(
    ("name", "pooling", "recalibrate"),
    [
        ("Polr", "transformation", False),
        ("Polr", "transformation", True),
        ("Polr", "linear", True),
        ("Polr", "log-linear-density", False),
        ("Polr-probit", "transformation", False),
        ("nominal", "transformation", False),
        ("nominal", "linear", False),
        ("Colr", "transformation", True),
        ("Coxph", "transformation", False),
        ("Lm", "transformation", False),
        ("Cotram", "transformation", False),
    ],
)
def test_an_onnx_graph_computes_what_the_ensemble_predicts(tmp_path, name, pooling, recalibrate):
    model, y = make(name, TERMS["CI-LS"])
    whole = dt.Ensemble(model, 2, random_state=1, pooling=pooling, recalibrate=recalibrate)
    whole.fit(X, y, validation=0.3 if recalibrate else None)
    path = dt.export(whole, tmp_path / "whole.onnx")
    feed = tensors_of(whole.module_, name)
    np.testing.assert_allclose(run(path, feed), expected(whole, name), atol=1e-5, rtol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == ["whole.onnx"]


def test_a_single_model_with_images_is_exported(tmp_path):
    rng = np.random.default_rng(1)
    data = {"image": rng.random((30, 8, 8)).astype(np.float32), "x": rng.normal(size=30)}
    terms = [dt.CI(dt.networks.CNN((3,), dense=(4,), dropout=0.1), "image"), dt.LS("x")]
    model = dt.Polr(terms, training=FAST, random_state=1).fit(data, np.arange(30) % 3)
    feed = model.module_.inputs(data)
    np.testing.assert_allclose(
        run(dt.export(model, tmp_path / "m.onnx"), feed), model.predict_proba(data), atol=1e-5
    )


def program_of(module, name):
    """Return what ``torch.export`` makes of a module for any number of rows, and the tensors of 50 rows."""
    rows = {key: {0: torch.export.Dim("n", min=2)} for key in tensors_of(module, name)}
    program = torch.export.export(module, (tensors_of(module, name),), dynamic_shapes=(rows,)).module()
    return program, {key: value[:50] for key, value in tensors_of(module, name).items()}


@pytest.mark.parametrize("name", ["Polr", "Colr", "Coxph", "Cotram"])
def test_torch_export_of_the_module(name):
    model, y = make(name, TERMS["SI-CS-LS"])
    program, tensors = program_of(model.fit(X, y).module_, name)
    np.testing.assert_allclose(program(tensors).detach(), expected(model, name)[:50], atol=1e-6)


@pytest.mark.parametrize("name", ["Polr", "Polr-probit", "Logit", "nominal", "Colr", "Coxph", "Cotram"])
def test_torch_export_of_an_ensemble(name):
    model, y = make(name, TERMS["CI-LS"])
    whole = dt.Ensemble(model, 3, random_state=1, weights=[0.3, 0.0, 0.7]).fit(X, y)
    module = whole.module_
    program, tensors = program_of(module, name)
    np.testing.assert_allclose(program(tensors).detach(), expected(whole, name)[:50], atol=1e-6)
    at, traced = ({key: one.clone().requires_grad_() for key, one in tensors.items()} for _ in range(2))
    torch.testing.assert_close(program(traced), module(at), atol=1e-12, rtol=1e-12)
    for function, given in ((module, at), (program, traced)):
        output = function(given)
        (output if output.ndim == 1 else output[:, 0]).sum().backward()
    for key, one in at.items():
        torch.testing.assert_close(traced[key].grad, one.grad, atol=1e-9, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:recalibration needs predictions that tell")  # outcomes of other rows
@pytest.mark.parametrize("pooling", ["transformation", "linear", "log-linear-density"])
@pytest.mark.parametrize("slope", ["common", "threshold"])
def test_torch_export_of_recalibrated_pools(pooling, slope):
    members = [dt.Polr([dt.LS(*columns)]).fit(X, GRADES) for columns in ("ab", "bc")]
    moves = [Recalibration(slope).fit(one.predict_distribution(X), np.roll(GRADES, 1)) for one in members]
    if slope == "threshold":
        moves[0].intercept_ = (
            moves[0].intercept_[::-1].copy()
        )  # thresholds cross, as for rows unlike those of the fit
    module = onnx_graph.PooledModule([one.module_ for one in members], [0.3, 0.7], pooling, moves)
    assert pooling in module.plain_pools
    program, tensors = program_of(module, "Polr")
    each = [move.apply(one.predict_distribution(X)) for one, move in zip(members, moves, strict=True)]
    wanted = dt.pool(each, method=pooling, weights=[0.3, 0.7]).pmf()[:50]
    np.testing.assert_allclose(program(tensors).detach(), wanted, atol=1e-12)
    moves[0].latent_ = dt.latent.get("normal")
    assert not module.plain_pools  # of h on another scale only the pool itself knows


@pytest.mark.parametrize("lifetimes", [True, False])
def test_h_outside_the_sample_space_is_infinite_in_the_module_and_what_is_made_of_it(lifetimes, tmp_path):
    y = np.linspace(0.3, 2.5, len(X))
    model = (dt.Coxph if lifetimes else dt.Colr)([dt.LS("a")]).fit(
        X, dt.Surv.right(y, y > 0) if lifetimes else y
    )
    at = np.where(np.arange(len(X)) % 2, y, -np.inf if not lifetimes else 0.0)
    h = np.asarray(model.predict_distribution(X).trafo(at))
    assert np.isneginf(h[::2]).all()
    module = model.module_
    tensors = module.inputs(X, y)
    tensors["y"] = torch.as_tensor(at)
    np.testing.assert_allclose(module(tensors).detach(), h, atol=1e-12)
    both = dt.Ensemble.from_members(
        [model, model], weights=[1.0, 0.0]
    ).module_  # nothing of infinity is nothing
    for one in (module, both):
        program = torch.export.export(one, (module.inputs(X, y),)).module()
        np.testing.assert_allclose(program(tensors).detach(), h, atol=1e-12)
    np.testing.assert_allclose(run(dt.export(model, tmp_path / "m.onnx"), tensors), h, atol=1e-6)
    tensors = {key: one.clone().requires_grad_() for key, one in tensors.items()}
    h = module(tensors)
    h[torch.isfinite(h)].sum().backward()
    assert all(torch.isfinite(one.grad).all() for one in tensors.values())


ON_LINE = [name for name in MODELS if name not in ONLY_CLASSES]
PROBS = [0.1, 0.5, 0.8]


def slopes(function, tensors, name, step=1e-4):
    """Return finite differences of a function of rows, shape (n, Q), in one of its tensors."""
    up, down = ({**tensors, name: tensors[name] + side * step} for side in (1, -1))
    return (function(up) - function(down)).detach() / (2 * step)


@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("name", ON_LINE)
def test_quantiles_of_a_module_and_their_gradients(name, pooled):
    model, y = make(name, TERMS["CI-LS"])
    module = model.fit(X, y).module_  # networks in float32: everything after them is not
    wanted = model.predict_distribution(X).quantile(PROBS)
    found = module.quantile(module.inputs(X), PROBS).detach()
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    model.set_params(training=FAST.replace(dtype="float64"))  # as finite differences need it
    model = (dt.Ensemble(model, 2, random_state=1, weights=[0.3, 0.7]) if pooled else model).fit(X, y)
    module = model.module_
    tensors = module.inputs(X)
    assert "y" not in tensors
    wanted = model.predict_distribution(X).quantile(PROBS)
    found = module.quantile(tensors, PROBS)
    np.testing.assert_allclose(found.detach(), wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(module.distribution(tensors).quantile(0.5).detach(), wanted[:, 1], rtol=1e-9)
    if name == "Cotram":
        assert not found.requires_grad
        return
    leaves = {key: one.clone().requires_grad_() for key, one in tensors.items()}
    found = module.quantile(leaves, PROBS)
    for q, prob in enumerate(PROBS):
        each = torch.autograd.grad(found[:, q].sum(), list(leaves.values()), retain_graph=True)
        for key, gradient in zip(leaves, each, strict=True):
            differences = slopes(lambda given, at=prob: module.quantile(given, at)[:, 0], tensors, key)
            near = (gradient - differences).abs() <= 1e-5 * (1 + differences.abs())
            assert near.double().mean() > 0.95  # a kink of the network may lie between the two points
            assert gradient.abs().max() > 1e-3


def test_quantiles_of_pools_and_of_models_without_columns():
    y = np.linspace(0.3, 2.5, len(X))
    members = [dt.Colr([dt.LS("a")]).fit(X, y), dt.Colr([dt.LS("b"), dt.Scale("c")], order=3).fit(X, y)]
    for pooling in ("linear", "log-linear", "transformation", "quantile"):
        whole = dt.Ensemble.from_members(members, pooling=pooling)
        module = whole.module_
        tensors = {key: one.requires_grad_() for key, one in module.inputs(X).items()}
        found = module.quantile(tensors, PROBS)
        np.testing.assert_allclose(found.detach(), whole.predict_distribution(X).quantile(PROBS), rtol=1e-9)
        slope = torch.autograd.grad(found[:, 2].sum(), tensors["c"])[0]
        differences = slopes(lambda given, of=module: of.quantile(given, 0.8)[:, 0], tensors, "c")
        torch.testing.assert_close(slope, differences, atol=1e-6, rtol=1e-6)
    alone = dt.Colr([dt.SI()]).fit(X, y)
    wanted = alone.predict_distribution(X[:1]).quantile(PROBS)
    np.testing.assert_allclose(alone.module_.quantile({}, PROBS).detach(), wanted, rtol=1e-9)


def test_quantiles_of_classes_and_h_without_outcomes_are_refused():
    classes = dt.Polr([dt.LS("a")]).fit(X, GRADES)
    for model in (classes, dt.Ensemble.from_members([classes, classes])):
        with pytest.raises(
            UnsupportedError, match=r"got classes; use their probabilities, module_\(inputs\)"
        ):
            model.module_.quantile(model.module_.inputs(X), 0.5)
    numbers = dt.Colr([dt.LS("a")]).fit(X, np.linspace(0.3, 2.5, len(X)))
    for model in (numbers, dt.Ensemble.from_members([numbers, numbers])):
        module = model.module_
        with pytest.raises(InvalidInputError, match=r"tensor 'y', got none; pass module_.inputs\(X, y\), or"):
            module(module.inputs(X))
        with pytest.raises(InvalidInputError, match="a tensor for each of a, got none for a"):
            module.distribution({"y": torch.ones(3)})
        with pytest.raises(InvalidInputError, match="between 0 and 1"):
            module.quantile(module.inputs(X), 1.5)


def test_what_cannot_be_exported(tmp_path, monkeypatch):
    model, y = make("Colr", TERMS["CI-LS"])
    whole = dt.Ensemble(model, 2, random_state=1, pooling="linear").fit(X, y)
    with pytest.raises(
        UnsupportedError, match=r"a graph can hold the transformation pool here .* got 'linear'"
    ):
        dt.export(whole, tmp_path / "m.onnx")
    with pytest.raises(InvalidTypeError, match=r"export needs a fitted deeptram model .* got str; fit one"):
        dt.export("model", tmp_path / "m.onnx")
    exact = dt.Lm([dt.LS("a")]).fit(X, Z)
    for path in (None, 3, tmp_path / "no" / "m.onnx"):
        with pytest.raises(InvalidInputError, match="path must name a file in a folder that is there, got"):
            dt.export(exact, path)
    foreign = dt.Ensemble.from_members([LogisticRegression().fit(X, Z > 0)])
    with pytest.raises(
        UnsupportedError, match="needs models of deeptram, got LogisticRegression as member 0"
    ):
        _ = foreign.module_
    monkeypatch.setattr(onnx_graph, "PACKAGES", ("onnx", "no_such_package"))
    with pytest.raises(
        MissingDependencyError, match=r"got no no_such_package; run pip install 'deeptram\[export\]'"
    ):
        dt.export(whole, tmp_path / "m.onnx")
    monkeypatch.undo()
    whole.set_params(pooling="transformation")
    monkeypatch.setattr(onnx_graph, "TOLERANCE", -1.0)
    with pytest.raises(UnsupportedError, match="must compute what the model computes, got a difference of"):
        dt.export(whole, tmp_path / "m.onnx")


def in_onnxruntime(path, module, name):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    known = {one.name for one in session.get_inputs()}
    feed = {key: value.numpy() for key, value in tensors_of(module, name).items() if key in known}
    return session.run(None, feed)[0]


@pytest.mark.parametrize("name", MODELS)
def test_models_without_networks_are_modules_and_graphs(name, tmp_path):
    model, y = make(name, [dt.LS("a", "b", "c")])
    module = model.fit(X, y).module_
    wanted = expected(model, name)
    np.testing.assert_allclose(module(tensors_of(module, name)).detach().numpy(), wanted, atol=1e-12)
    dt.export(model, tmp_path / "m.onnx")
    np.testing.assert_allclose(in_onnxruntime(tmp_path / "m.onnx", module, name), wanted, atol=1e-6)


def test_strata_scales_and_pools_without_networks_are_graphs(tmp_path):
    grades = np.arange(len(X)) % 3
    table = X.assign(site=np.where(np.arange(len(X)) % 2, "p", "q"), year=2000 + 5 * X["a"])
    table = table.assign(kind=np.array(["u", "v", "w"])[np.arange(len(X)) // 2 % 3])
    model = dt.Polr([dt.SI("site"), dt.LS("year", "kind"), dt.Scale("b")]).fit(table, grades)
    other = dt.Polr([dt.LS("year", "c")]).fit(table, grades)
    both = dt.Ensemble.from_members([model, other], weights=[0.3, 0.7])
    dt.export(both, tmp_path / "m.onnx")
    module = both.module_
    feed = {key: value.numpy() for key, value in module.inputs(table).items()}
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, feed)[0], both.predict_proba(table), atol=1e-7)
    told = {key: json.loads(text) for key, text in session.get_modelmeta().custom_metadata_map.items()}
    assert told["levels"] == [0, 1, 2]
    assert told["inputs"]["year"] is None
    assert told["inputs"]["kindw"] == {"column": "kind", "level": "w"}
    assert list(told["inputs"]["site"]["levels"]) == ["p", "q"]


def test_networks_in_double_precision_are_graphs(tmp_path):
    model, y = make("Polr", TERMS["CI-LS"])
    model.set_params(training=FAST.replace(dtype="float64"))
    dt.export(model.fit(X, y), tmp_path / "m.onnx")
    found = in_onnxruntime(tmp_path / "m.onnx", model.module_, "Polr")
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-7)


def test_a_baseline_that_varies_or_is_infinite_is_no_module():
    grades = np.arange(len(X)) % 3
    with pytest.raises(UnsupportedError, match="finite and the same for all x, got Varying; use predict"):
        _ = dt.Polr([dt.LS("a"), dt.Varying("b")]).fit(X, grades).module_
    with (
        pytest.warns(EmptyClassWarning),
        pytest.raises(UnsupportedError, match="got an infinite baseline"),
    ):
        _ = dt.Polr(levels=[0, 1, 2, 3]).fit(X, grades).module_


def exported(model, path, table, y=None):
    """Return what onnxruntime computes for some rows."""
    session = onnxruntime.InferenceSession(dt.export(model, path), providers=["CPUExecutionProvider"])
    known = {one.name for one in session.get_inputs()}
    tensors = model.module_.inputs(table, y)
    return session.run(None, {key: one.numpy() for key, one in tensors.items() if key in known})[0]


GRADES = np.arange(len(X)) % 3
HALVES = (slice(0, None, 2), slice(1, None, 2))


@pytest.mark.parametrize("formula", ["bs(b, df=4)", "scale(b)", "a + poly(b, 2)"])
def test_members_that_learned_their_columns_differently_have_inputs_of_their_own(formula, tmp_path):
    members = [dt.Polr([dt.LS(formula)]).fit(X[half], GRADES[half]) for half in HALVES]
    both = dt.Ensemble.from_members(members)
    within = X[X["b"].between(-1, 1)]
    wanted = both.predict_proba(within)
    module = both.module_
    np.testing.assert_allclose(module(module.inputs(within)).detach().numpy(), wanted, atol=1e-12)
    assert any(name.endswith("(member 1)") for name in module.shapes)
    assert "a (member 1)" not in module.shapes  # a column as it is in X means the same to all
    np.testing.assert_allclose(exported(both, tmp_path / "m.onnx", within), wanted, atol=1e-9)
    same = dt.Ensemble.from_members([members[0], members[0]]).module_
    assert not any(name.endswith("(member 1)") for name in same.shapes)


def test_strata_are_codes_of_each_member(tmp_path):
    years = np.random.default_rng(0).choice([2001, 2005, 2010], len(X))
    rows, later = X.assign(g=years), years > 2001
    first = dt.Polr([dt.SI("g"), dt.LS("b")]).fit(rows, GRADES)
    second = dt.Polr([dt.SI("g")]).fit(rows[later], GRADES[later])
    third = dt.Polr([dt.LS("g", "b")]).fit(rows, GRADES)
    whole = dt.Ensemble.from_members([first, second, third])
    found = exported(whole, tmp_path / "m.onnx", rows[later])
    np.testing.assert_allclose(found, whole.predict_proba(rows[later]), atol=1e-9)


def test_columns_that_are_named_like_other_inputs_are_refused():
    y = np.linspace(0.3, 2.5, len(X))
    with pytest.raises(
        UnsupportedError, match="one input 'y' for the outcome, got a column of that name; re"
    ):
        _ = dt.Colr([dt.LS("y", "b")]).fit(X.assign(y=X["a"]), y).module_
    rows = X.assign(g=np.arange(len(X)) % 2)
    terms = [dt.SI("g"), dt.CS(NET, "g", "b")]
    with pytest.raises(
        UnsupportedError, match="one input 'g' for codes of strata, got a column of that name"
    ):
        _ = dt.Polr(terms, training=FAST, random_state=1).fit(rows, GRADES).module_
    with pytest.raises(UnsupportedError, match="needs at least one input, got a model without any"):
        _ = dt.Polr([dt.SI()]).fit(X, GRADES).module_
    module = dt.Colr([dt.LS("a")]).fit(X, y).module_
    with pytest.raises(InvalidInputError, match="same number of rows"):
        module.inputs(X, y[:3])


@pytest.mark.parametrize("latent", ["logistic", "cloglog", "loglog"])
@pytest.mark.parametrize("pooling", ["transformation", "linear", "log-linear-density"])
def test_pools_of_members_that_disagree_far_out(latent, pooling, tmp_path):
    outcomes = {"a": GRADES, "b": GRADES[::-1]}
    members = [dt.Polr([dt.LS(name)], latent=latent).fit(X, y) for name, y in outcomes.items()]
    both = dt.Ensemble.from_members(members, pooling=pooling)
    far = X.assign(a=40 * X["a"], b=-40 * X["b"])
    for rows in (X, far):
        found = exported(both, tmp_path / "m.onnx", rows)
        np.testing.assert_allclose(found, both.predict_proba(rows), atol=1e-9)


def test_members_of_different_latents_and_outcomes(tmp_path):
    members = [dt.Polr([dt.LS("a")], latent=name).fit(X, GRADES) for name in ("logit", "probit", "cloglog")]
    both = dt.Ensemble.from_members(members, pooling="linear")
    np.testing.assert_allclose(exported(both, tmp_path / "m.onnx", X), both.predict_proba(X), atol=1e-6)
    both.set_params(pooling="log-linear-density")
    with pytest.raises(
        UnsupportedError, match=r"can hold the linear pool here .* latents: logistic, normal, min"
    ):
        dt.export(both, tmp_path / "n.onnx")
    assert not (tmp_path / "n.onnx").exists()
    fewer = dt.Polr([dt.LS("a")]).fit(X[GRADES > 0], GRADES[GRADES > 0])
    with pytest.raises(UnsupportedError, match=r"must have one outcome, got \['1', '2'\] of member 1, \['0'"):
        _ = dt.Ensemble.from_members([members[0], fewer]).module_
