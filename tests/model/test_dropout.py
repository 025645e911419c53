from __future__ import annotations

import numpy as np
import torch
from torch import nn

from deeptram.model.dropout import (
    DrawnMasks,
    MemberDropout,
    RecordedCalls,
    ReplayedMasks,
    draw_mask,
    set_stream,
    with_member_dropout,
)


def test_masks_have_the_rate_and_keep_the_mean():
    mask = draw_mask((200_000,), 0.3, np.random.SFC64(0), torch.zeros(1, dtype=torch.float64))
    assert abs(float((mask == 0).double().mean()) - 0.3) < 0.005
    assert abs(float(mask.mean()) - 1) < 0.01
    assert mask.dtype == torch.float64


def test_a_stream_belongs_to_its_generator():
    layer = MemberDropout(0.5).train()
    x = torch.ones(50)
    set_stream(layer, DrawnMasks(3))
    first = layer(x)
    before = torch.get_rng_state()
    set_stream(layer, DrawnMasks(3))
    assert torch.equal(first, layer(x))
    assert not torch.equal(first, layer(x))
    assert torch.equal(before, torch.get_rng_state())


def test_replayed_masks_are_the_drawn_ones():
    network = with_member_dropout(
        nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2), nn.Dropout(0.2))
    )
    x = torch.randn(6, 3)
    recorder, replay = RecordedCalls(), ReplayedMasks()
    set_stream(network, recorder)
    network(x)
    assert recorder.calls == [((6, 4), 0.5), ((6, 2), 0.2)]
    bits = np.random.SFC64(1)
    replay.load([draw_mask(shape, rate, bits, x) for shape, rate in recorder.calls])
    set_stream(network, replay)
    replayed = network(x)
    set_stream(network, DrawnMasks(1))
    assert torch.equal(replayed, network(x))


def test_evaluation_and_extreme_rates():
    x = torch.ones(5, 4)
    assert torch.equal(MemberDropout(0.9).eval()(x), x)
    assert torch.equal(MemberDropout(0.0).train()(x), x)
    assert torch.equal(MemberDropout(1.0).train()(x), 0 * x)


def test_without_stream_torch_draws():
    layer = MemberDropout(0.5).train()
    torch.manual_seed(0)
    first = layer(torch.ones(40))
    torch.manual_seed(0)
    assert torch.equal(first, layer(torch.ones(40)))
    assert set(first.tolist()) == {0.0, 2.0}


def test_channels_are_dropped_whole():
    layer = MemberDropout(0.5, channelwise=True).train()
    for stream in (None, DrawnMasks(0)):
        set_stream(layer, stream)
        channels = layer(torch.ones(4, 8, 3, 3)).flatten(2)
        assert torch.equal(channels.amin(dim=2), channels.amax(dim=2))
        assert set(channels.unique().tolist()) == {0.0, 2.0}


def test_layers_are_replaced_wherever_they_stand():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))})
            self.wide = nn.Dropout2d(0.2)

    network = with_member_dropout(Own())
    assert [layer.rate for layer in network.modules() if isinstance(layer, MemberDropout)] == [0.1, 0.2]
    assert network.wide.channelwise
    assert not any(isinstance(layer, (nn.Dropout, nn.Dropout2d)) for layer in network.modules())
    assert isinstance(with_member_dropout(nn.Dropout(0.3)), MemberDropout)


def test_masks_of_images_are_laid_out_with_channels_last():
    mask = draw_mask((5, 3, 4, 2), 0.5, np.random.SFC64(0), torch.zeros(1))
    assert mask.shape == (5, 3, 4, 2)
    assert mask.is_contiguous(memory_format=torch.channels_last)


def test_the_entries_of_a_mask_are_independent():
    mask = (draw_mask((400_000,), 0.3, np.random.SFC64(4), torch.zeros(1)) == 0).double() - 0.3
    for lag in (1, 2, 3, 4, 8):
        assert abs(float((mask[lag:] * mask[:-lag]).mean())) < 5 * 0.21 / 400_000**0.5
