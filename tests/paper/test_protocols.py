"""The protocol against the paper's Table 1 and the facts behind it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from torch import nn

from deeptram import Tram, networks
from deeptram.fitting.deep import gradient
from deeptram.fitting.deep.gradient import make_optimizer
from deeptram.paper import PRESETS, PROTOCOLS, Unit, make_study
from deeptram.paper.members import model_terms
from deeptram.paper.protocols import N_BOOT
from deeptram.paper.splits import paper_splits

TABLE_1 = {
    "mnist": ("ordinal", {"CI"}),
    "melanoma": ("binary", {"SI", "SI-LS", "CI", "CI-LS"}),
    "utkface": ("ordinal", {"SI", "SI-LS", "SI-CS", "SI-CS-LS", "CI", "CI-LS"}),
}
# learning rate, batch size, epochs, warm start, standardised columns, validation and test share
FACTS = {
    "mnist": (1e-5, 512, 30, False, True, 0.1, 0.1),  # it has no columns
    "melanoma": (1e-4, 64, 90, True, False, 0.2, 0.2),
    "utkface": (1e-4, 32, 150, True, False, 0.2, 0.2),
}


@pytest.mark.parametrize("dataset", TABLE_1)
def test_table_1(dataset):
    outcome, models = TABLE_1[dataset]
    assert PROTOCOLS[dataset].outcome == outcome
    assert set(PROTOCOLS[dataset].models) == models


def test_the_model_of_mnist_has_the_published_number_of_parameters(monkeypatch, rng):
    """The network alone, as in the paper: the constant beside a complex intercept is not trained."""
    trained = []

    def make(parameters, training):
        named = list(parameters)
        trained.extend(p.numel() for _, p in named if p.requires_grad)
        return make_optimizer(named, training)

    monkeypatch.setattr(gradient, "make_optimizer", make)
    study = make_study("mnist", "paper")
    training = dataclasses.replace(study.training_of(Unit("CI", "nll", 1, 1), 40), epochs=1)
    model = Tram(model_terms("CI", study.protocol), outcome="ordinal", training=training, random_state=1)
    images, digits = rng.random((40, 1, 28, 28)), np.arange(40) % 10
    model.fit({"image": images[:30]}, digits[:30], validation=({"image": images[30:]}, digits[30:]))
    assert sum(trained) == 159_144


@pytest.mark.parametrize("dataset", FACTS)
def test_paper_preset_trains_as_the_authors_did(dataset):
    study = make_study(dataset, "paper")
    training, protocol = study.training, study.protocol
    found = (training.learning_rate, training.batch_size, training.epochs, training.warm_start)
    assert (*found, training.standardize, protocol.p_val, protocol.p_test) == FACTS[dataset]
    assert (training.optimizer, training.schedule, training.patience) == ("adam", None, None)
    assert training.adam_epsilon == 1e-7  # of Keras
    assert study.one_adam
    assert training.restore_best
    assert (study.splits, study.n_members, study.losses) == ((1, 2, 3, 4, 5, 6), 5, ("nll", "rps"))
    assert study.pixels == (None if dataset == "mnist" else 128)


@pytest.mark.parametrize(
    ("split", "member", "start"), [(1, 1, 0), (1, 2, 2820), (1, 3, 5640), (2, 1, 5 * 2820), (6, 5, 29 * 2820)]
)
def test_one_adam_counts_through_members_and_splits(split, member, start):
    """30 epochs of 94 batches, five members of every split, one after the other."""
    study = make_study("mnist", "paper")
    n_train = {len(one.train) for one in paper_splits("mnist")}
    assert n_train == {48_000}
    training = study.training_of(Unit("CI", "nll", split, member), 48_000)
    assert training.adam_start == start
    assert training.replace(adam_start=0) == study.training


@pytest.mark.parametrize("preset", ["modern", "quick"])
@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_other_presets_have_an_adam_for_each_member(dataset, preset):
    study = make_study(dataset, preset)
    model = study.models[-1]
    assert not study.one_adam
    trainings = [study.training_of(Unit(model, "nll", split, 2), 1000) for split in (1, 2)]
    assert [one.adam_start for one in trainings] == [0, 0]
    assert all((one.augment is not None) == bool(study.augment) for one in trainings)


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_modern_keeps_splits_and_networks(dataset):
    paper, modern = make_study(dataset, "paper"), make_study(dataset, "modern")
    assert dataclasses.replace(modern.protocol, network=paper.protocol.network) == paper.protocol
    nets = [networks.from_dict(one.protocol.network)((3, 16, 16), 3) for one in (paper, modern)]
    weights = [[tuple(one.shape) for one in net.parameters()] for net in nets]
    assert weights[0] == weights[1]
    rates = [[one.p for one in net if isinstance(one, nn.Dropout)] for net in nets]
    dense = {"melanoma": 2, "ham10000": 2, "utkface": 2}.get(dataset, 0)
    assert rates[1] == [0.3] * dense  # after dense layers as published, between convolutions none
    assert len(rates[0]) > dense or dense == 0
    assert (modern.splits, modern.pixels) == (paper.splits, paper.pixels)
    assert modern.training.learning_rate == 1e-3
    assert modern.training.epochs < paper.training.epochs


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_quick_is_smaller(dataset):
    paper, quick = make_study(dataset, "paper"), make_study(dataset, "quick")
    assert len(quick.splits) < len(paper.splits)
    assert quick.n_members < paper.n_members
    assert quick.training.epochs < make_study(dataset, "modern").training.epochs
    assert N_BOOT["quick"] < N_BOOT["paper"]


@pytest.mark.parametrize("dataset", PROTOCOLS)
def test_networks_exist_and_columns_have_units(dataset):
    protocol = PROTOCOLS[dataset]
    assert callable(networks.from_dict(protocol.network))
    assert set(protocol.linear) == set(protocol.units)
    assert all(dataset in PRESETS[preset] for preset in PRESETS)


def test_brier_is_rps_for_binary_outcomes():
    assert make_study("melanoma", losses=["brier"]).losses == ("rps",)


def test_models_and_losses_come_in_the_order_of_the_paper():
    study = make_study("utkface", models=["CI", "SI"], losses=["rps", "nll"], splits=[3, 1, 3])
    assert (study.models, study.losses, study.splits) == (("SI", "CI"), ("nll", "rps"), (1, 3))


def test_changes_are_noted():
    study = make_study("utkface", "modern", pixels=32, training={"epochs": 3, "batch_size": 64})
    assert study.changed == {"pixels": 32, "epochs": 3}
