"""MNIST as in the paper: one member with Adam's count of steps at 0, and where an earlier member left it.

The authors train every member with the same optimiser object, whose count of steps goes on: the second
member starts at step 2,820 (30 epochs of 94 batches), so that the bias correction of Adam is practically
off while its moments start at zero. Early steps are up to 3.2 times as long, and after 30 epochs at a
learning rate of 1e-5 that decides how far a member has come.

    python examples/mnist_adam.py --data DIR [--starts 0 2820] [--epochs 30] [--seed 1]
"""

from __future__ import annotations

import argparse
import os

import deeptram as dt
from deeptram.paper.protocols import make_study
from deeptram.paper.splits import paper_splits


def main() -> None:
    """Train the same member from each start, and print its scores on the test part of split 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("DEEPTRAM_DATA"))
    parser.add_argument("--starts", nargs="+", type=int, default=[0, 2820])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    mnist, split = dt.datasets.load_mnist(wanted.data), paper_splits("mnist")[0]
    train, validation, test = (mnist.take(rows) for rows in (split.train, split.validation, split.test))
    training = make_study("mnist", "paper").training.replace(epochs=wanted.epochs, progress=True)
    for start in wanted.starts:
        model = dt.Tram(
            dt.CI(dt.networks.paper_mnist, "image"),
            outcome="ordinal",
            levels=mnist.levels,
            training=training.replace(adam_start=start),
            random_state=wanted.seed,
        )
        model.fit(train.X, train.y, validation=(validation.X, validation.y))
        pred = model.predict_distribution(test.X)
        nll, accuracy = dt.scores.nll(test.y, pred), dt.metrics.accuracy(test.y, pred)
        print(f"count of steps from {start}: test NLL {nll:.4f}, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
