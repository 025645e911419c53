"""Where exact fits of many rows start."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
import deeptram.fitting.exact.fit as fit_module


@pytest.mark.parametrize("repaired", ["start", "retry"])
def test_a_level_of_one_row_is_fitted_though_the_start_did_not_see_it(repaired, monkeypatch):
    # every tenth row gives the start; where the only row of a level is not among them, its estimate is anything
    if repaired == "retry":
        monkeypatch.setattr(fit_module, "_tells_of_all", lambda part, found: True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=200_000)
    grades = np.digitize(0.5 * x + rng.logistic(size=200_000), [-2.0, -0.5, 1.0, 3.0])
    for n, row in ((100_000, 99_998), (60_000, 59_996)):
        table, y = pd.DataFrame({"x": x[:n], "rare": (np.arange(n) == row).astype(float)}), grades[:n]
        found, alone = (dt.Polr([dt.LS(*names)]).fit(table, y) for names in (["x", "rare"], ["x"]))
        assert found.converged_
        assert found.coef_["x"] == pytest.approx(alone.coef_["x"], abs=1e-3)
        assert alone.loglik_ < found.loglik_ < alone.loglik_ + 3  # one parameter for one row
