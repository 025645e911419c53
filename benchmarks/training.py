"""Training and prediction of five members: deeptram against plain PyTorch, ratios in one run.

Plain PyTorch is what one writes without deeptram: the same networks, loss and optimiser, ``DataLoader``,
torch's default number of threads, one member after the other. Both get the same data, epochs and batch size;
that both reach the same loss is part of the result.

* tabular: n = 20,000, p = 20, hidden layers 64-64, batch 256, ordinal outcome with a complex intercept.
* images: the MNIST network of the paper, batch 512, on a subset of MNIST (``DEEPTRAM_DATA``) or of
  scikit-learn's digits enlarged to 28 x 28. deeptram trains in processes of one thread each, which are
  started before the clock.
* prediction: row parameters of 100,000 rows from a float64 table, against five bare forward passes on a
  tensor that is ready.

Run ``python benchmarks/training.py [--out FILE]`` on an otherwise idle machine (a few minutes on two cores);
``--quick`` is a smoke test. The result is one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import logsigmoid, softplus
from torch.utils.data import DataLoader, TensorDataset

from deeptram import latent
from deeptram.fitting.deep.gradient import DeepTask, fit_deep
from deeptram.fitting.deep.seeds import member_seed
from deeptram.fitting.deep.stacked import fit_stacked
from deeptram.fitting.deep.training import Training
from deeptram.model import Design, Outcome, OutcomeSettings
from deeptram.model.deep import row_parameters_of
from deeptram.model.terms import CI, Spec
from deeptram.networks import MLP, paper_mnist
from deeptram.predictive.kinds import build_predictive

LOGISTIC = latent.get("logistic")


# -- plain PyTorch --------------------------------------------------------------------------------


def plain_nll(gamma: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Mean NLL of an ordinal model with cumulative-softplus cutpoints, in its three log-sigmoids."""
    theta = torch.cumsum(torch.cat([gamma[:, :1], softplus(gamma[:, 1:])], dim=1), dim=1)
    inner = logsigmoid(theta[:, 1:]) + logsigmoid(-theta[:, :-1]) + logsigmoid(gamma[:, 1:])
    log_pmf = torch.cat([logsigmoid(theta[:, :1]), inner, logsigmoid(-theta[:, -1:])], dim=1)
    return -log_pmf.gather(1, codes[:, None]).mean()


def plain_fit(factory, x, y, n_classes, training, seed):
    """Train one member as one would without deeptram."""
    torch.manual_seed(seed)
    net = factory(tuple(x.shape[1:]), n_classes - 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=training.learning_rate)
    loader = DataLoader(TensorDataset(x, y), batch_size=training.batch_size, shuffle=True)
    net.train()
    for _ in range(training.epochs):
        for images, codes in loader:
            optimizer.zero_grad()
            loss = plain_nll(net(images), codes)
            loss.backward()
            optimizer.step()
    return net.eval()


def plain_loss(net, x, y) -> float:
    """Loss on all rows after training."""
    with torch.inference_mode():
        pieces = [plain_nll(net(a), b) * len(b) for a, b in zip(x.split(1000), y.split(1000), strict=True)]
    return float(sum(pieces)) / len(y)


# -- deeptram -------------------------------------------------------------------------------------


def make_task(factory, X, y, training) -> DeepTask:
    """Return the same model as a task: CI, ordinal, no warm start."""
    spec = Spec.of([CI(factory)])
    outcome, encoded = Outcome.fit(OutcomeSettings("ordinal"), y)
    design, matrices = Design.fit(spec, X)
    return DeepTask(spec, design, outcome, LOGISTIC, "nll", matrices, encoded, X, training=training)


def own_loss(task, parameters) -> float:
    """Loss on all rows after training."""
    levels = task.outcome.levels
    pred = build_predictive("ordinal", parameters, task.outcome.basis, task.latent, levels=levels)
    return -float(np.mean(pred.log_prob(np.asarray(levels)[task.encoded.codes])))


def one_thread_fit(task, seed):
    """Train one member in a process of one thread."""
    torch.set_num_threads(1)
    return fit_deep(task, seed)


def parallel_fit(task, seeds, jobs, pool):
    """Train full rounds of members in one-thread processes, and what is left over with all threads."""
    rounds = len(seeds) - len(seeds) % jobs if len(seeds) > jobs else 0
    fits = pool(joblib.delayed(one_thread_fit)(task, seed) for seed in seeds[:rounds])
    return [*fits, *(fit_deep(task, seed) for seed in seeds[rounds:])]


# -- the three comparisons ------------------------------------------------------------------------


def compared(name, plain_seconds, own_seconds, plain_losses, own_losses, target):
    """Return one comparison as a dict; losses agree when their means differ by less than the members do."""
    spread = max(statistics.pstdev(plain_losses), statistics.pstdev(own_losses))
    difference = statistics.fmean(own_losses) - statistics.fmean(plain_losses)
    ratio = statistics.median(plain_seconds) / statistics.median(own_seconds)
    return {
        "name": name,
        "plain_seconds": plain_seconds,
        "deeptram_seconds": own_seconds,
        "ratio": ratio,
        "target": target,
        "reached": ratio >= target,
        "plain_loss": statistics.fmean(plain_losses),
        "deeptram_loss": statistics.fmean(own_losses),
        "loss_difference_in_member_sd": difference / spread if spread else 0.0,
    }


def tabular(options):
    """Stacked members against five loops."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(options.rows, 20))
    signal = X[:, 0] + np.sin(2 * X[:, 1]) * X[:, 2] + 0.5 * X[:, 3] ** 2
    y = np.digitize(signal + rng.logistic(size=options.rows), np.linspace(-3, 4, 6))
    training = Training(epochs=options.epochs, batch_size=256, warm_start=False, progress=False)
    factory, seeds = MLP((64, 64)), [member_seed(0, m) for m in range(options.members)]
    task = make_task(factory, X, y, training)
    x, codes = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    plain_seconds, own_seconds = [], []
    for _ in range(options.repeats):
        started = time.perf_counter()
        nets = [plain_fit(factory, x, codes, 7, training, seed) for seed in seeds]
        plain_seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        fits = fit_stacked(task, seeds)
        own_seconds.append(time.perf_counter() - started)
    parameters = row_parameters_of([fit.model for fit in fits], X, task.matrices)
    result = compared(
        "tabular MLP, stacked",
        plain_seconds,
        own_seconds,
        [plain_loss(net, x, codes) for net in nets],
        [own_loss(task, p) for p in parameters],
        3.5,
    )
    return result, task, fits, nets


def images(options):
    """One-thread processes with channels-last against five loops."""
    pixels, labels, source = digits_28(options.images)
    training = Training(epochs=options.image_epochs, batch_size=512, warm_start=False, progress=False)
    X = {"image": pixels}
    task = make_task(paper_mnist, X, labels, training)
    seeds = [member_seed(1, m) for m in range(options.members)]
    x, codes = torch.as_tensor(pixels[:, None] / np.float32(255)), torch.as_tensor(labels)
    jobs = options.jobs or max(1, os.cpu_count() or 1)
    plain_seconds, own_seconds = [], []
    with joblib.Parallel(n_jobs=jobs) as pool:
        started = time.perf_counter()
        pool(joblib.delayed(one_thread_fit)(small(task), 0) for _ in range(jobs))
        start_up = time.perf_counter() - started
        for _ in range(options.repeats):
            started = time.perf_counter()
            nets = [plain_fit(paper_mnist, x, codes, 10, training, seed) for seed in seeds]
            plain_seconds.append(time.perf_counter() - started)
            started = time.perf_counter()
            fits = parallel_fit(task, seeds, jobs, pool)
            own_seconds.append(time.perf_counter() - started)
    parameters = row_parameters_of([fit.model for fit in fits], X, task.matrices)
    result = compared(
        f"CNN of the paper on {source}, {jobs} processes of one thread",
        plain_seconds,
        own_seconds,
        [plain_loss(net, x, codes) for net in nets],
        [own_loss(task, p) for p in parameters],
        1.6,
    )
    return {**result, "start_up_seconds": start_up}


def small(task):
    """Return a task of a few rows, to warm a process up."""
    training = task.training.replace(epochs=1)
    rows = np.unique(task.encoded.codes, return_index=True)[1]
    X = {"image": task.X["image"][rows]}
    return make_task(paper_mnist, X, task.encoded.codes[rows], training)


def prediction(options, task, fits, nets):
    """Row parameters of all members against bare forward passes."""
    X = np.random.default_rng(2).normal(size=(options.predicted, 20))
    x = torch.as_tensor(X, dtype=torch.float32)
    models = [fit.model for fit in fits]
    plain_seconds, own_seconds = [], []
    for _ in range(3 * options.repeats):
        started = time.perf_counter()
        with torch.inference_mode():
            for net in nets:
                net(x)
        plain_seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        for parameters in row_parameters_of(models, X, task.design.matrices(X)):
            build_predictive(
                "ordinal", parameters, task.outcome.basis, task.latent, levels=task.outcome.levels
            )
        own_seconds.append(time.perf_counter() - started)
    ratio = statistics.median(plain_seconds) / statistics.median(own_seconds)
    return {
        "name": f"prediction of {options.predicted} rows x {len(models)} members",
        "plain_seconds": plain_seconds,
        "deeptram_seconds": own_seconds,
        "ratio": ratio,
        "target": 1.0,
        "reached": ratio >= 1.0,
    }


def digits_28(n: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return n images (n, 28, 28) as bytes with their labels: MNIST where it is, else enlarged digits."""
    folder = Path(os.environ.get("DEEPTRAM_DATA", "")) / "mnist"
    if (folder / "train-images-idx3-ubyte.gz").is_file():
        with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
            pixels = np.frombuffer(file.read(16 + n * 784)[16:], dtype=np.uint8).reshape(-1, 28, 28)
        with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
            labels = np.frombuffer(file.read(8 + n)[8:], dtype=np.uint8).astype(np.int64)
        return pixels.copy(), labels, "MNIST"
    data = load_digits()
    rows = np.random.default_rng(0).integers(0, len(data.target), n)
    enlarged = np.kron(data.images[rows] * (255 / 16), np.ones((1, 3, 3))).astype(np.uint8)
    return np.pad(enlarged, ((0, 0), (2, 2), (2, 2))), data.target[rows], "enlarged digits"


def main() -> None:
    """Run the comparisons and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images", type=int, default=6144)
    parser.add_argument("--image-epochs", type=int, default=2)
    parser.add_argument("--predicted", type=int, default=100_000)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="of the timings; the median counts")
    parser.add_argument("--jobs", type=int, help="processes for the images; default one per core")
    parser.add_argument("--only", choices=["tabular", "images"], help="leave the other comparison out")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test, not a measurement")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.rows, options.epochs, options.images, options.image_epochs = 2000, 1, 1024, 1
        options.predicted, options.repeats = 5000, 1
    results = []
    if options.only != "images":
        print("tabular ...", file=sys.stderr)
        result, task, fits, nets = tabular(options)
        results += [result, prediction(options, task, fits, nets)]
    if options.only != "tabular":
        print("images ...", file=sys.stderr)
        results.append(images(options))
    report = {
        "benchmark": "training",
        "quick": options.quick,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load_average": os.getloadavg(),
        "results": results,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
