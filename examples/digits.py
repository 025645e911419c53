"""Read log odds-ratios beside an image: a transformation ensemble on the embedded digits.

python examples/digits.py            (the command ``deeptram demo --out DIR`` does this and more)
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import deeptram as dt


def main() -> None:
    """Fit, read and check the ensemble."""
    data = dt.datasets.load_digits()
    X, y = dict(data.X), data.y
    rng = np.random.default_rng(1)
    test = np.sort(rng.permutation(len(y))[:360])
    train = np.setdiff1d(np.arange(len(y)), test)
    X_train = {name: values[train] for name, values in X.items()}
    X_test = {name: values[test] for name, values in X.items()}

    covariates = [f"x_{j}" for j in range(1, 11)]
    model = dt.Polr(
        [dt.CI(dt.networks.MLP(hidden=(64,), dropout=0.3), "image"), dt.LS(*covariates)],
        training=dt.Training(epochs=60, batch_size=64, learning_rate=0.01),
    )
    ensemble = dt.Ensemble(model, n_members=5, random_state=1)
    ensemble.fit(X_train, y.iloc[train], validation=0.2)

    table = ensemble.coef_table(method="total")
    table.insert(0, "truth", pd.Series(data.info["beta"]))
    print(table.round(2).to_string())
    print(f"\naccuracy {np.mean(ensemble.predict(X_test) == np.asarray(y.iloc[test])):.3f}")
    print(ensemble.guarantees(X_test, y.iloc[test]))


if __name__ == "__main__":
    main()
