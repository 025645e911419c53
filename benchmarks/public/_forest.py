"""What a random forest says about a row, as columns of a transformation model.

Trees see jumps and near copies of rows, for which a smooth network needs many steps; the network turns what
they say into a distribution. Trees describe training rows that they have not seen, and all describe new ones.
"""

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesRegressor

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def forest_columns(
    X: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, trees: int, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return mean, standard deviation and quantiles of the trees' predictions for the rows of X and of new.

    Leaves hold single rows, so that the trees' predictions are draws of the outcome among alike rows.
    """
    forest = ExtraTreesRegressor(trees, bootstrap=True, random_state=seed).fit(X.to_numpy(), y)
    known, unknown = (
        np.stack([tree.predict(rows.to_numpy(np.float32)) for tree in forest.estimators_])
        for rows in (X, new)
    )
    for tree, seen in enumerate(forest.estimators_samples_):
        known[tree, seen] = np.nan
    return _columns(known), _columns(unknown)


def _columns(predicted: np.ndarray) -> pd.DataFrame:
    found = {"forest_mean": np.nanmean(predicted, axis=0), "forest_sd": np.nanstd(predicted, axis=0)}
    quantiles = np.nanquantile(predicted, LEVELS, axis=0)
    return pd.DataFrame(found | {f"forest_{level}": q for level, q in zip(LEVELS, quantiles, strict=True)})
