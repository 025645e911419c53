"""Five tabular members with learning rates, weight decays and dropout of their own: one pass against loops.

Plain PyTorch is what one writes without deeptram: the same networks, loss and optimiser, ``DataLoader``,
torch's default number of threads, one member after the other, each with its own settings. Data, epochs and
batch size are those of ``benchmarks/training.py``; that both reach the same losses is part of the result.

    python benchmarks/own_settings.py [--rows 20000] [--epochs 3] [--repeats 3]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from training import make_task, own_loss, plain_loss, plain_nll

from deeptram.fitting.deep.seeds import member_seed
from deeptram.fitting.deep.stacked import fit_stacked
from deeptram.fitting.deep.training import Training
from deeptram.model.deep import row_parameters_of
from deeptram.model.terms import CI, Spec
from deeptram.networks import MLP

RATES = [5e-4, 1e-3, 1e-3, 2e-3, 2e-3]
DECAYS = [0.0, 0.0, 0.1, 0.01, 0.1]
DROPOUTS = [0.0, 0.1, 0.0, 0.1, 0.2]


def plain_fit(x, y, n_classes, epochs, batch_size, rate, decay, dropout, seed):
    """Train one member as one would without deeptram."""
    torch.manual_seed(seed)
    net = MLP((64, 64), dropout=dropout)(tuple(x.shape[1:]), n_classes - 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=decay)
    loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)
    net.train()
    for _ in range(epochs):
        for rows, codes in loader:
            optimizer.zero_grad()
            loss = plain_nll(net(rows), codes)
            loss.backward()
            optimizer.step()
    return net.eval()


def main() -> None:
    """Time both and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="of the timings; the median counts")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(options.rows, 20))
    signal = X[:, 0] + np.sin(2 * X[:, 1]) * X[:, 2] + 0.5 * X[:, 3] ** 2
    y = np.digitize(signal + rng.logistic(size=options.rows), np.linspace(-3, 4, 6))
    training = Training(
        epochs=options.epochs, batch_size=256, optimizer="adamw", warm_start=False, progress=False
    )
    task = make_task(MLP((64, 64)), X, y, training)
    own = list(zip(RATES, DECAYS, DROPOUTS, strict=True))
    tasks = [
        dataclasses.replace(
            task,
            spec=Spec.of([CI(MLP((64, 64), dropout=dropout))]),
            training=training.replace(learning_rate=rate, weight_decay=decay),
        )
        for rate, decay, dropout in own
    ]
    seeds = [member_seed(0, m) for m in range(len(own))]
    x, codes = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    plain_seconds, own_seconds = [], []
    for _ in range(options.repeats):
        started = time.perf_counter()
        nets = [
            plain_fit(x, codes, 7, options.epochs, 256, *settings, seed)
            for settings, seed in zip(own, seeds, strict=True)
        ]
        plain_seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        fits = fit_stacked(tasks, seeds)
        own_seconds.append(time.perf_counter() - started)
    parameters = row_parameters_of([fit.model for fit in fits], X, task.matrices)
    report = {
        "benchmark": "own_settings",
        "ratio": statistics.median(plain_seconds) / statistics.median(own_seconds),
        "target": 4.0,
        "plain_seconds": plain_seconds,
        "deeptram_seconds": own_seconds,
        "plain_losses": [plain_loss(net, x, codes) for net in nets],
        "deeptram_losses": [own_loss(task, each) for each in parameters],
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg(),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
