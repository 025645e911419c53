"""Tables of predictions on disk, and a way to run the command line on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from deeptram.cli.main import app

LEVELS = ["low", "mid", "high"]


@dataclass
class Tables:
    """Members' probabilities and outcomes of a test and a tuning set, also as files."""

    folder: Path
    members: dict[str, list[pd.DataFrame]]
    y: dict[str, np.ndarray]

    def write(self, part="test", form="proba", suffix=".csv", ids=None, name="m"):
        """Write the members' tables and return the paths."""
        paths = []
        for k, table in enumerate(self.members[part]):
            table = table if form == "proba" else table.cumsum(axis=1).assign(high=1.0)
            if ids is not None:
                table = table.assign(id=ids)
            paths.append(self.write_one(table, f"{part}_{name}{k}{suffix}"))
        return paths

    def write_one(self, table, name):
        """Write one table."""
        path = self.folder / name
        if path.suffix == ".parquet":
            table.to_parquet(path)
        else:
            table.to_csv(path, index=False)
        return str(path)

    def truth(self, part="test", suffix=".csv", **columns):
        """Write the outcomes and return the path."""
        return self.write_one(pd.DataFrame({**columns, "y": self.y[part]}), f"{part}_y{suffix}")


@pytest.fixture
def tables(tmp_path):
    rng = np.random.default_rng(3)
    members, y = {}, {}
    cut = np.array([-0.5, 1.0])
    for part, n in (("test", 60), ("tune", 50)):
        x = rng.normal(size=n)
        y[part] = np.array(LEVELS)[((x + rng.logistic(size=n))[:, None] > cut).sum(axis=1)]
        members[part] = []
        for slope in (0.3, 1.0, 2.0):
            h = cut - (slope * x + rng.normal(0, 0.4, n))[:, None]
            cdf = np.column_stack([np.zeros(n), 1 / (1 + np.exp(-h)), np.ones(n)])
            members[part].append(pd.DataFrame(np.diff(cdf, axis=1), columns=LEVELS))
    return Tables(tmp_path, members, y)


@pytest.fixture
def run():
    """Run the command line in this process; no bootstrap or figures unless asked for."""

    def call(*args, fast=True):
        extra = ["--n-boot", "0", "--no-figures"] if fast and args and args[0] == "pool" else []
        return CliRunner().invoke(app, [*map(str, args), *extra])

    return call


@pytest.fixture
def refused(run):
    """Run the command line, expect exit code 2 and one sentence on stderr, and return it."""

    def call(*args):
        result = run(*args)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert "Traceback" not in result.stderr
        return lines[0]

    return call
