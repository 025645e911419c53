"""MNIST as in the paper, with cutpoint increments exp(gamma) next to softplus(gamma).

The text of the paper makes cutpoints from the raw outputs of the network by sums of softplus(gamma), and so
does deeptram. The published numbers are lower than softplus gives after 30 epochs at a learning rate of
1e-5. With exp(gamma) large distances between cutpoints come from small gammas, and training is quicker. This
script trains the same members, from the same start and in the same order of rows, either way.

    python examples/mnist_increments.py --data DIR [--increments exp] [--seeds 1 2] [--epochs 30] [--n-jobs 2]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import joblib
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

import deeptram as dt
from deeptram.paper.splits import paper_splits

BATCH_SIZE = 512
LEARNING_RATE = 1e-5


def cutpoints(raw: Tensor, increments: str) -> tuple[Tensor, Tensor]:
    """Return the cutpoints (n, K-1) and their distances (n, K-2)."""
    gaps = torch.exp(raw[:, 1:]) if increments == "exp" else softplus(raw[:, 1:])
    return torch.cumsum(torch.cat([raw[:, :1], gaps], dim=1), dim=1), gaps


def nll(raw: Tensor, codes: Tensor, increments: str) -> Tensor:
    """Return the mean negative log-likelihood of the proportional-odds model with these raw outputs."""
    h, gaps = cutpoints(raw, increments)
    between = logsigmoid(h[:, 1:]) + logsigmoid(-h[:, :-1]) + torch.log(-torch.expm1(-gaps))
    log_prob = torch.cat([logsigmoid(h[:, :1]), between, logsigmoid(-h[:, -1:])], dim=1)
    return -log_prob.gather(1, codes[:, None]).mean()


def member(data: Path, increments: str, seed: int, epochs: int) -> np.ndarray:
    """Train one member on split 1; return h of the test part, at the epoch best on the validation part."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    loaded, split = dt.datasets.load_mnist(data), paper_splits("mnist")[0]
    images = torch.from_numpy(np.array(loaded.X["image"])).unsqueeze(1).float().div_(255)
    codes = torch.from_numpy(np.array(loaded.codes))
    train, validation, test = (
        torch.from_numpy(np.array(rows)) for rows in (split.train, split.validation, split.test)
    )
    network = dt.networks.paper_mnist((1, 28, 28), 9).to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, eps=1e-7)

    def raw(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([network(images[some]) for some in rows.split(1000)])

    best, kept = np.inf, np.empty(0)
    for epoch in range(1, epochs + 1):
        for some in train[torch.randperm(len(train))].split(BATCH_SIZE):
            adam.zero_grad()
            nll(network(images[some]), codes[some], increments).backward()
            adam.step()
        loss = float(nll(raw(validation), codes[validation], increments))
        if loss < best:
            best, kept = loss, cutpoints(raw(test), increments)[0].double().numpy()
        print(f"{increments}, seed {seed}, epoch {epoch}: validation NLL {loss:.4f}", flush=True)
    return kept


def main() -> None:
    """Train the members, and print the test scores of their average and their pools."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DEEPTRAM_DATA"))
    parser.add_argument("--increments", choices=("softplus", "exp"), default="exp")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--n-jobs", type=int, default=1)
    wanted = parser.parse_args()
    tasks = (joblib.delayed(member)(wanted.data, wanted.increments, s, wanted.epochs) for s in wanted.seeds)
    members = [dt.Predictive.from_trafo(h) for h in joblib.Parallel(n_jobs=wanted.n_jobs)(tasks)]
    truth = dt.datasets.load_mnist(wanted.data).codes[paper_splits("mnist")[0].test]
    pools = {method: dt.pool(members, method=method) for method in ("linear", "log-linear", "transformation")}
    named = {f"seed {s}": one for s, one in zip(wanted.seeds, members, strict=True)}
    table = dt.evaluate({**named, "average": members, **pools}, truth, metrics=["nll", "accuracy"], n_boot=0)
    print(table.pivot(index="name", columns="metric", values="estimate").round(4).to_string())


if __name__ == "__main__":
    main()
