"""Coverage of the intervals of ``Ensemble.coef_table``: what to add to the variance within members.

Samples of a model with a smooth effect of z, which a small network learns, and a linear effect of x, which is
correlated with z; ordinal and right-censored outcomes. To each sample ten members are trained, of which the
first three are an ensemble of their own, and 30 bags. For the 95 % interval of the effect of x from four
standard errors this counts how often it holds the truth, and its mean width:

* ``within``: W, the mean of the members' variances given their networks;
* ``mean``: W + B sum w^2, B as it enters the variance of the mean;
* ``total``: W + B (:func:`deeptram.ensemble.coefficients.total_variance`);
* ``bags``: B of members trained on bootstrap samples, ``Ensemble(members="bags")``, with t quantiles.

Run ``python benchmarks/coverage.py --out FILE [--repetitions 400]``; a JSON object per sample is added to
the file, and samples that are there already are not drawn again. The last lines on the screen are the table.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import deeptram as dt
from deeptram.ensemble.coefficients import between_variance

BETA, ROWS, MEMBERS, BAGS, Z = 0.8, 200, (3, 10), 30, 1.959964
SETTINGS = {  # how much the seeds matter: training that comes to rest, training that does not
    "settled": {"epochs": 25, "batch_size": 50, "learning_rate": 0.03},
    "restless": {"epochs": 10, "batch_size": 20, "learning_rate": 0.2},
}


def draw(outcome, rng):
    """Return a sample: z, x and the outcome."""
    z = rng.uniform(-2, 2, size=ROWS)
    x = 0.5 * z + rng.normal(scale=0.8, size=ROWS)
    shift = BETA * x + 0.6 * z**2
    X = pd.DataFrame({"x": x, "z": z})
    if outcome == "ordinal":
        return X, np.digitize(shift + rng.logistic(size=ROWS), [-1.0, 0.5, 2.0])
    times, limit = np.exp((shift + np.log(rng.exponential(size=ROWS))) / 1.5), rng.exponential(6.0, size=ROWS)
    return X, dt.Surv.right(np.minimum(times, limit), times <= limit)


def members_of(outcome, setting, number):
    """Return coefficients and variances of ten members trained on sample ``number``, and those of bags."""
    X, y = draw(outcome, np.random.default_rng([number, outcome == "ordinal"]))
    terms = [dt.CS(dt.networks.MLP((16,)), "z"), dt.LS("x")]
    training = dt.Training(progress=False, **SETTINGS[setting])
    model = (
        dt.Polr(terms, training=training)
        if outcome == "ordinal"
        else dt.Coxph(terms, order=3, training=training)
    )
    ensemble = dt.Ensemble(model, max(MEMBERS), strategy="stacked", random_state=number).fit(X, y)
    bags = dt.Ensemble(model, BAGS, strategy="stacked", members="bags", random_state=number).fit(X, y)
    return (
        ensemble.member_coefficients()["x"].tolist(),
        [float(member.shift_vcov_.iloc[0, 0]) for member in ensemble.members_],
        bags.member_coefficients()["x"].tolist(),
    )


def _row(line, name, coef, half, ratio):
    return {
        **{key: line[key] for key in ("setting", "outcome")},
        "members": len(coef),
        "interval": name,
        "coverage": 100 * (abs(coef.mean() - BETA) <= half),
        "width": 2 * half,
        "bias": coef.mean() - BETA,
        "B/W": ratio,
    }


def summary(lines):
    """Return coverage and mean width of each interval, by setting, outcome and number of members."""
    rows = []
    for line in lines:
        for m in MEMBERS:
            coef, inside = np.array(line["coef"])[:m], float(np.mean(line["within"][:m]))
            between = float(between_variance(coef, np.full(m, 1 / m)))
            for name, variance in (
                ("within", inside),
                ("mean", inside + between / m),
                ("total", inside + between),
            ):
                rows.append(_row(line, name, coef, Z * np.sqrt(variance), between / inside))
        coef, inside = np.array(line["bags"]), float(np.mean(line["within"]))
        spread = float(coef.std(ddof=1))
        rows.append(_row(line, "bags", coef, stats.t.ppf(0.975, len(coef) - 1) * spread, spread**2 / inside))
    by = ["setting", "outcome", "members", "interval"]
    table = pd.DataFrame(rows).groupby(by, sort=False)
    return table.mean().assign(samples=table.size())


def main() -> None:
    """Draw the samples that are missing and show the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    if arguments.out.is_file():
        lines = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    done = {(line["setting"], line["outcome"], line["sample"]) for line in lines}
    with arguments.out.open("a") as file:
        for number in range(arguments.repetitions):
            for setting in arguments.settings:
                for outcome in ("ordinal", "survival"):
                    if (setting, outcome, number) in done:
                        continue
                    began = time.perf_counter()
                    coef, within, bags = members_of(outcome, setting, number)
                    line = {"setting": setting, "outcome": outcome, "sample": number, "coef": coef}
                    line |= {"within": within, "bags": bags}
                    lines.append({**line, "seconds": time.perf_counter() - began})
                    print(json.dumps(lines[-1]), file=file, flush=True)
    print(summary(lines).round(3).to_string())


if __name__ == "__main__":
    main()
