"""Size and power of ``dt.proportionality_test``, against Schoenfeld's residuals in lifelines.

Size: samples of models with proportional hazards or odds, or a normal shift (with right censoring,
orders 3 and 6, and an ordinal one), tested at 5 %. Power: hazard ratios that change with time, tested on the
same samples by deeptram and by ``lifelines.statistics.proportional_hazard_test``.

Run ``python benchmarks/proportionality.py [--repetitions 2000] [--out FILE]``; one JSON object per line. All
cases advance together; interrupted, what was done so far is printed.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter
from lifelines.statistics import proportional_hazard_test

import deeptram as dt

NOISE = {
    "Coxph": lambda rng, n: np.log(rng.exponential(size=n)),
    "Colr": lambda rng, n: rng.logistic(size=n),
    "BoxCox": lambda rng, n: rng.normal(size=n),
    "Polr": lambda rng, n: rng.logistic(size=n),
}


def covariates(rng, n):
    """Return a normal and a binary column."""
    return np.column_stack([rng.normal(size=n), rng.integers(0, 2, size=n)]).astype(float)


def null_p_values(name, n, order, rng):
    """Return the p-values of both columns and overall, for a sample in which effects are constant."""
    x = covariates(rng, n)
    z = NOISE[name](rng, n) + 0.5 * x[:, 0] - 0.5 * x[:, 1]
    if name == "Polr":
        return dt.proportionality_test(dt.Polr().fit(x, np.digitize(z, [-1.5, 0.0, 1.5])))["p"].tolist()
    time, limit = np.exp(z / 1.5), rng.exponential(4.0, size=n)
    y = dt.Surv.right(np.minimum(time, limit), time <= limit)
    return dt.proportionality_test(getattr(dt, name)(order=order).fit(x, y))["p"].tolist()


def changing_hazards(kind, rng, n):
    """Return covariates, times and events, sorted by time; the second column's hazard ratio changes."""
    x = covariates(rng, n)
    e, group = rng.exponential(size=n) * np.exp(-0.3 * x[:, 0]), x[:, 1] == 1
    ratio = np.where(group, np.exp(0.9), 1.0)
    time = {
        "Weibull shapes 1 and 1.35": e ** (1 / np.where(group, 1.35, 1.0)),
        "late effect": np.where(e < 0.5, e, 0.5 + (e - 0.5) / ratio),
        "early effect": np.where(e < 0.5 * ratio, e / ratio, 0.5 + e - 0.5 * ratio),
    }[kind]
    limit = rng.uniform(0, 3, size=n)
    order = np.argsort(np.minimum(time, limit))
    return x[order], np.minimum(time, limit)[order], (time <= limit)[order]


def power_p_values(kind, transform, n, rng):
    """Return the p-values of the second column by deeptram and by lifelines."""
    x, time, event = changing_hazards(kind, rng, n)
    ours = dt.proportionality_test(dt.Coxph().fit(x, dt.Surv.right(time, event)), transform=transform)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "time": time, "event": event})
    cox = CoxPHFitter().fit(frame, "time", "event")
    return ours["p"]["x1"], proportional_hazard_test(cox, frame, time_transform=transform).p_value[1]


class Case:
    """Samples of one kind, counted as they are tested."""

    def __init__(self, label, draw, repetitions) -> None:
        self.label, self.draw, self.repetitions = label, draw, repetitions
        self.rng = np.random.default_rng(list(json.dumps(label).encode()))
        self.done, self.rejected, self.seconds = 0, 0.0, 0.0

    def advance(self) -> None:
        """Test some more samples, a fortieth of all."""
        began = time.process_time()
        for _ in range(min(max(self.repetitions // 40, 1), self.repetitions - self.done)):
            self.rejected = self.rejected + (np.array(self.draw(self.rng)) < 0.05)
            self.done += 1
        self.seconds += time.process_time() - began

    def line(self) -> str:
        """Return what was found so far."""
        shares = (self.rejected / max(self.done, 1)).round(4).tolist()
        each = round(self.seconds / max(self.done, 1), 4)
        return json.dumps({**self.label, "samples": self.done, "rejected": shares, "seconds": each})


def cases(repetitions, power_repetitions):
    """Return everything that is measured."""
    found = []
    settings = [(name, order) for name in ("Coxph", "Colr", "BoxCox") for order in (3, 6)]
    for n in (300, 1000):
        for name, order in [*settings, ("Polr", None)]:
            label = {"size": name, "n": n, "order": order, "of": "x0, x1, overall"}
            found.append(Case(label, partial(null_p_values, name, n, order), repetitions))
    for kind in ("Weibull shapes 1 and 1.35", "late effect", "early effect"):
        for transform in ("rank", "log", "identity"):
            label = {"power": kind, "transform": transform, "n": 300, "of": "deeptram, lifelines"}
            found.append(Case(label, partial(power_p_values, kind, transform, 300), power_repetitions))
    return found


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--power-repetitions", type=int, default=500)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    measured = cases(arguments.repetitions, arguments.power_repetitions)
    try:
        while any(case.done < case.repetitions for case in measured):
            for case in measured:
                case.advance()
            if arguments.out is not None:
                arguments.out.write_text("".join(case.line() + "\n" for case in measured))
    finally:
        print(*(case.line() for case in measured), sep="\n")


if __name__ == "__main__":
    main()
