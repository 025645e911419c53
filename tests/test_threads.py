"""What threads share: torch's own threads, its global generator, the filters of warnings, and forks."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import deeptram as dt
from deeptram import _threads
from deeptram._threads import one_thread
from deeptram.fitting.deep.seeds import Stream, seeded

N_THREADS = 8


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_one_thread_inside_and_as_before_outside_also_after_an_error():
    with one_thread() as outside:
        assert (torch.get_num_threads(), outside) == (1, 2)
    assert torch.get_num_threads() == 2

    def fail() -> None:
        with one_thread():
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_nothing_happens_when_not_wanted():
    with one_thread(wanted=False):
        assert torch.get_num_threads() == 2


class Noisy(nn.Module):
    """Draws from torch's global generator in every training pass."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return self.linear(x + 0.1 * torch.randn_like(x) if self.training else x)


def noisy(in_shape, out_features):
    return Noisy(in_shape[0], out_features)


def flip(images):
    return torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(-1), images)


def small_data(n=60):
    rng = np.random.default_rng(2)
    X = {"image": rng.normal(size=(n, 1, 6, 6)).astype(np.float32), "a": rng.normal(size=n)}
    return {**X, "b": rng.normal(size=n)}, (X["a"] + rng.logistic(size=n) > 0).astype(int)


QUICK = dt.Training(epochs=2, batch_size=20, progress=False)
MODELS = {
    "dropout": dt.Logit([dt.CS(dt.networks.MLP((8,), dropout=0.5), "b"), dt.LS("a")], training=QUICK),
    "noise of its own": dt.Logit([dt.CS(noisy, "b"), dt.LS("a")], training=QUICK),
    "augmentation": dt.Logit(
        [dt.CI(dt.networks.CNN((2,), dense=(4,)), "image"), dt.LS("a")], training=QUICK.replace(augment=flip)
    ),
}


def fit(name, seed):
    X, y = small_data()
    return dt.Logit(MODELS[name].terms, training=MODELS[name].training, random_state=seed).fit(X, y)


def weights_of(models):
    return [torch.cat([p.detach().ravel() for p in model.model_.parameters()]) for model in models]


def same(first, second):
    return [torch.equal(a, b) for a, b in zip(weights_of(first), weights_of(second), strict=True)]


@pytest.fixture
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("frequent_switches")
def test_fits_in_eight_threads_equal_those_one_after_the_other(name):
    seeds = range(N_THREADS)
    alone = [fit(name, seed) for seed in seeds]
    with ThreadPoolExecutor(N_THREADS) as threads:
        together = list(threads.map(lambda seed: fit(name, seed), seeds))
    assert all(same(alone, together))
    assert not any(same(alone[1:], alone[:-1]))


@pytest.mark.usefixtures("frequent_switches")
def test_members_in_joblibs_threads_equal_those_one_after_the_other():
    X, y = small_data()
    model = MODELS["dropout"]
    sequential = dt.Ensemble(model, N_THREADS, random_state=1, strategy="sequential").fit(X, y)
    with joblib.parallel_config(backend="threading", n_jobs=N_THREADS):
        threaded = dt.Ensemble(model, N_THREADS, random_state=1, strategy="parallel").fit(X, y)
    assert all(same(sequential.members_, threaded.members_))


@pytest.mark.usefixtures("frequent_switches")
def test_global_states_stay_as_they_were(monkeypatch):
    """Nothing catches warnings but one thread at a time, so the filters cannot be left behind."""
    unguarded = []
    enter = warnings.catch_warnings.__enter__

    def guarded(self):
        if not _threads._lock._is_owned():
            unguarded.append(sys._getframe(1).f_code.co_filename)
        return enter(self)

    monkeypatch.setattr(warnings.catch_warnings, "__enter__", guarded)
    X, y = small_data()
    frame = pd.DataFrame({name: X[name] for name in "ab"})

    def work(seed):
        fit(list(MODELS)[seed % 3], seed).predict_proba(X)
        dt.Logit([dt.LS("a + bs(b, df=4)")]).fit(frame, y).score(frame, y)
        dt.Logit().fit(frame.to_numpy(), y)
        dt.Ensemble(MODELS["dropout"], 2, random_state=seed, strategy="stacked").fit(X, y, validation=0.2)

    def states():
        numpy_state = np.random.get_state()  # noqa: NPY002
        return torch.get_rng_state().tolist(), numpy_state[1].tolist(), warnings.filters[:]

    work(N_THREADS)  # what other packages do when they are first imported is not ours
    before, shown = states(), warnings.showwarning
    with ThreadPoolExecutor(N_THREADS) as threads:
        list(threads.map(work, range(N_THREADS)))
    assert states() == before
    assert warnings.showwarning is shown
    assert set(unguarded) == set()


def test_a_stream_goes_on_where_it_ended_and_leaves_the_rest_alone():
    before = torch.get_rng_state()
    with seeded(5):
        expected = torch.rand(4)
    stream, drawn = Stream(5), []
    for _ in range(4):
        with stream.drawing():
            drawn.append(torch.rand(1))
        torch.rand(3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.cat(drawn), expected)
    assert torch.equal(torch.get_rng_state(), before)


def _in_child(queue):
    queue.put((torch.get_num_threads(), weights_of([fit("augmentation", 1)])[0].numpy()))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_computes_after_its_parent_did():
    expected = weights_of([fit("augmentation", 1)])[0].numpy()  # convolutions: on both threads
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=_in_child, args=(queue,), daemon=True)
    child.start()
    try:
        threads, found = queue.get(timeout=60)
    finally:
        child.kill()
        child.join()
    assert threads == 1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
