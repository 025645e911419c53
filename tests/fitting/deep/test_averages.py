"""Averages of weights: torch's own implementation, and the mean of the states they are to be the mean of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel

import deeptram as dt
from deep_models import FAST, table
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.fitting.deep.smoothing import WeightAverage


def test_swa_is_that_of_torch_running_averages_of_layers_too():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).train()
    reference = AveragedModel(model, use_buffers=True)
    own = WeightAverage({**dict(model.named_parameters()), **dict(model.named_buffers())}, "swa", 0.5)
    for epoch in range(1, 7):
        model(torch.randn(20, 3) + epoch)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        own.end_step()  # which is no matter to it
        own.end_epoch(epoch / 6)
        if epoch > 3:
            reference.update_parameters(model)
    assert own.count == 3
    for name, value in reference.module.state_dict().items():
        if name != "1.num_batches_tracked":
            torch.testing.assert_close(own.averages[name], value)


@pytest.mark.parametrize("strategy", ["stacked", "sequential"])
def test_swa_is_the_mean_of_the_weights_after_the_last_epochs(strategy):
    X, z = table()

    def weights(epochs, **settings):
        training = FAST.replace(epochs=epochs, restore_best=False, **settings)
        model = dt.Colr([dt.CS(dt.networks.MLP((5,)), "b", "c"), dt.LS("a")], training=training)
        ensemble = dt.Ensemble(model, 2, strategy=strategy, random_state=1).fit(X, z)
        return [
            {name: value.numpy() for name, value in member.model_.state_dict().items()}
            for member in ensemble.members_
        ]

    third, fourth, averaged = weights(3), weights(4), weights(4, average="swa", average_from=0.5)
    for one, two, mean in zip(third, fourth, averaged, strict=True):
        for name in ("beta", "intercept.free", "shifts.0.net.0.weight"):
            assert not np.allclose(one[name], two[name])
            np.testing.assert_allclose(mean[name], (one[name] + two[name]) / 2, atol=1e-6)


def test_before_it_begins_the_weights_are_themselves():
    weight = torch.ones(1)
    average = WeightAverage({"w": weight}, "swa")
    weight.fill_(3.0)
    average.end_epoch(0.75)
    with average.applied():
        assert weight.item() == 3.0


def test_settings_of_averages_are_checked():
    with pytest.raises(UnknownNameError, match="average must be one of"):
        dt.Training(average="ema")
    with pytest.raises(InvalidInputError, match=r"average_from must lie in \[0, 1\), got 1.0"):
        dt.Training(average="swa", average_from=1.0)
    assert dt.Training.from_dict(dt.Training(average="swa").to_dict()) == dt.Training(average="swa")
