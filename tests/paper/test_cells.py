"""Cells of runs: kept in one file, joined over runs, shown beside the published ones."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.paper import aggregate
from deeptram.paper.cells import (
    COLUMNS,
    cell_rows,
    cells_markdown,
    cells_of_run,
    chosen_cells,
    keep_cells,
    read_cells,
)
from deeptram.paper.figures import cell_figures
from deeptram.paper.protocols import make_study, published_metrics
from deeptram.paper.views import performance_view, view_of_run

EXAMPLES = Path(__file__).parents[2] / "examples"
METHODS = ("average", "linear", "log-linear", "transformation")


@pytest.fixture(scope="module")
def cells(small_run):
    return cells_of_run(small_run.path, n_boot=20)


def published_cells(split, shift=0.0, **about):
    """Return the published numbers of MNIST as if a run had found them, in one split."""
    table = published_metrics()
    table = table[(table["dataset"] == "mnist") & (table["split"] == split) & (table["loss"] == "nll")]
    wide = table[table["method"].isin(METHODS)]
    wide = wide.set_index(["model", "loss", "split", "weights", "method", "metric"])["estimate"].unstack()
    wide = wide.assign(nll=wide["nll"] + shift).reset_index()
    known = {
        "run": f"r{split}",
        "dataset": "mnist",
        "preset": "paper",
        "as_published": True,
        "seed": 0,
        **about,
    }
    return wide.assign(**known).reindex(columns=COLUMNS).astype({"pixels": "Int64", "member": "Int64"})


def rows(text):
    """Return the cells of the first table."""
    lines = [line for line in text.split("\n\n")[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_cells_are_the_numbers_of_the_splits(cells, small_run):
    metrics = aggregate(small_run.path, n_boot=20).metrics
    one = metrics[(metrics["split"] == 2) & (metrics["model"] == "CI-LS") & (metrics["metric"] == "rps")]
    chosen = cells[(cells["split"] == 2) & (cells["model"] == "CI-LS")]
    assert len(chosen) == len(one) == 2 * 4 + 2  # four methods with two kinds of weights, two members
    for row in one.itertuples():
        same = (chosen["weights"] == row.weights) & (chosen["method"] == row.method)
        same &= chosen["member"].isna() if pd.isna(row.member) else (chosen["member"] == row.member)
        assert chosen.loc[same.fillna(value=False), "rps"].item() == pytest.approx(row.estimate, abs=6e-7)
    pools = chosen[chosen["method"].isin(METHODS[1:])]
    assert pools["nll_pool_recalibrated"].notna().all()
    assert set(cells["run"]) == {"digits"}
    assert not cells["as_published"].any()


def test_a_file_keeps_the_cells_of_several_runs(cells, tmp_path):
    file = tmp_path / "cells.csv"
    pd.testing.assert_frame_equal(keep_cells(file, cells), cells)
    pd.testing.assert_frame_equal(read_cells(file), cells)
    both = keep_cells(file, cells.assign(run="again", seed=1))
    assert both["run"].value_counts().to_dict() == {"digits": len(cells), "again": len(cells)}
    keep_cells(file, cells[cells["split"] == 1])  # in place of those of the same run
    third = keep_cells(file, cells[cells["split"] == 1].assign(run="third", seed=1))  # and of the same cells
    half = len(cells) // 2
    assert third["run"].value_counts().to_dict() == {"digits": half, "again": half, "third": half}
    pd.testing.assert_frame_equal(read_cells(file), third)


def test_the_table_has_every_split_and_their_mean(cells):
    text = cells_markdown(cells, "digits", "quick")
    table = rows(text)
    assert table[0][:7] == [
        "model",
        "split",
        "average",
        "linear",
        "log-linear",
        "transformation (exact)",
        "tuned",
    ]
    assert [row[:2] for row in table[2:]] == [
        [model, split] for model in ("SI", "SI-LS", "CI-LS") for split in ("1", "2", "mean of 2")
    ]
    own = cells[(cells["model"] == "CI-LS") & (cells["method"] == "linear") & (cells["weights"] == "equal")]
    assert [row[3] for row in table[-3:]] == [f"{x:.4f}" for x in (*own["nll"], own["nll"].mean())]
    assert table[2][2:5] == ["", "", ""]  # an exact model has no members
    assert "published" not in text


def test_a_mean_is_of_all_its_splits_or_not_there(cells):
    some = cells.assign(calibration_slope=cells["calibration_slope"].where(cells["split"] == 1))
    table = rows(cells_markdown(some, "digits", "quick"))
    slope = table[0].index("slope")
    assert [bool(row[slope]) for row in table[-3:]] == [True, False, False]
    assert rows(cells_markdown(cells, "digits", "quick"))[-1][slope]


def test_seeds_have_a_column_where_there_are_others(cells):
    table = rows(cells_markdown(pd.concat([cells, cells.assign(seed=1)]), "digits", "quick"))
    assert table[0][2] == "seed"
    assert {row[2] for row in table[2:]} == {"0", "1"}
    assert rows(cells_markdown(cells.assign(seed=1), "digits", "quick"))[0][2] == "seed"  # not the usual one


def test_published_numbers_of_the_same_splits_stand_beside():
    both = pd.concat([published_cells(1), published_cells(3)])
    text = cells_markdown(both, "mnist", "paper")
    table = published_metrics().query("dataset == 'mnist' and loss == 'nll' and weights == 'equal'")
    six = table.query("metric == 'nll' and method == 'transformation'").set_index("split")["estimate"]
    ends = f"[{six.min():.4f}–{six.max():.4f}]"
    found = [row[5:7] for row in rows(text)[2:]]
    wanted = [six[1], six[3], (six[1] + six[3]) / 2]
    assert found == [[f"{value:.4f}", f"{value:.4f} {ends}"] for value in wanted]
    assert "the transformation pool is best in 2 of 2 cells; the order" in text
    assert "is that of the published means in 2." in text
    assert "Inside the range of the six published splits: 16 of 16 numbers" in text


def test_what_is_outside_the_published_range_or_in_another_order_is_counted():
    far = published_cells(1, shift=1.0)
    assert "published splits: 4 of 8 numbers" in cells_markdown(
        far, "mnist", "paper"
    )  # accuracies are inside
    turned = published_cells(1)
    turned.loc[turned["method"] == "transformation", "nll"] += 0.02
    text = cells_markdown(turned, "mnist", "paper")
    assert (
        "is best in 0 of 1 cells; the order of pools and average member is that of the published means in 0."
        in text
    )
    other = published_cells(1, as_published=False)
    assert "Inside the range" not in cells_markdown(other, "mnist", "paper")


def test_images_of_one_size_can_be_chosen():
    small, large = (published_cells(1, preset="modern", pixels=side) for side in (32, 64))
    both = pd.concat([small, large.assign(nll=np.arange(len(large)))])
    assert len(rows(cells_markdown(both, "mnist", "modern", 32))) == 3
    with pytest.raises(InvalidInputError, match="must have some of mnist with preset modern, got none"):
        cells_markdown(both, "mnist", "modern", 48)


def test_a_mean_is_over_all_splits_or_not_there():
    study, metrics = make_study("mnist", "paper"), ["nll", "citl"]
    some = published_cells(3)
    some["citl"] = np.nan
    rows = cell_rows(pd.concat([published_cells(1), some]), study, "nll", metrics)
    means = rows[rows["kind"] == "overall"]
    assert set(means["metric"]) == {"nll"}
    assert set(rows.loc[rows["kind"] == "split", "metric"]) == {"nll", "citl"}


def test_another_table_is_refused(tmp_path):
    file = tmp_path / "cells.csv"
    file.write_text("run,dataset\na,b\n", encoding="utf-8")
    with pytest.raises(
        FileFormatError, match=r"must have the columns of kept cells .* got others; delete it"
    ):
        read_cells(file)


def test_the_script_joins_cells_on_a_page(small_run, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("results_page", EXAMPLES / "results_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page, file = tmp_path / "page.md", tmp_path / "cells.csv"
    name = "cells digits quick"
    page.write_text(f"# P\n\n<!-- run: {name} -->\n<!-- end of run: {name} -->\n\nafter\n", encoding="utf-8")
    arguments = [str(small_run.path), "--page", str(page), "--cells", str(file), "--n-boot", "20"]
    monkeypatch.setattr(sys, "argv", ["x", *arguments])
    module.main()
    written = page.read_text(encoding="utf-8")
    assert cells_markdown(read_cells(file), "digits", "quick") in written
    monkeypatch.setattr(sys, "argv", ["x", *arguments[1:-2]])  # without a run: from the file alone
    module.main()
    assert page.read_text(encoding="utf-8") == written


@pytest.mark.parametrize("relative", [False, True])
def test_rows_of_cells_are_those_of_the_run(cells, small_run, relative):
    """Figures of cells show what the figures of their run do, but for intervals."""
    view, metrics = view_of_run(small_run.path, n_boot=20, level=0.95, n_jobs=1)[1], ("nll", "accuracy")
    keys = ["model", "weights", "method", "metric", "kind", "split", "member"]

    def estimates(table):
        return table.astype({"split": float, "member": float}).set_index(keys)["estimate"].sort_index()

    ours = estimates(cell_rows(cells, view.study, "nll", metrics, relative=relative))
    theirs = estimates(performance_view(view, "nll", metrics, relative=relative))
    pd.testing.assert_series_equal(ours, theirs, rtol=0, atol=3e-6)
    assert len(ours) > 20


def test_published_numbers_stand_beside_cells_unless_they_are_far_off():
    study = make_study("mnist", "paper")
    both = pd.concat([published_cells(1), published_cells(3)])
    rows = cell_rows(both, study, "nll", ["nll", "accuracy"])
    six = published_metrics()
    keep = (six["dataset"] == "mnist") & (six["loss"] == "nll") & (six["metric"] == "nll")
    six = six[keep & (six["weights"] == "equal") & (six["method"] == "linear")].set_index("split")["estimate"]
    shown = rows[(rows["weights"] == "equal") & (rows["method"] == "linear") & (rows["metric"] == "nll")]
    published = shown[shown["kind"] == "published"]
    assert published["estimate"].item() == pytest.approx(six[[1, 3]].mean())
    assert (published["smallest"].item(), published["largest"].item()) == (six.min(), six.max())
    mean = shown[shown["kind"] == "overall"]["estimate"].item()
    assert mean == pytest.approx(shown[shown["kind"] == "split"]["estimate"].mean())
    assert set(cell_rows(published_cells(1), study, "nll", ["nll"])["kind"]) == {"overall", "published"}
    far = cell_rows(both.assign(nll=both["nll"] - 0.5), study, "nll", ["nll", "accuracy"])
    kinds = far.groupby("metric")["kind"].agg(set)
    assert "published" not in kinds["nll"]
    assert "published" in kinds["accuracy"]


def test_cells_without_a_linear_model_have_no_relative_rows():
    rows = cell_rows(published_cells(1), make_study("mnist", "paper"), "nll", ["nll"], relative=True)
    assert rows.empty


def test_figures_of_cells(cells):
    study = make_study("digits", "quick")
    figures = {one.name: one for one in cell_figures(chosen_cells(cells, "digits", "quick"), study, "nll")}
    assert list(figures) == ["performance", "members", "relative", "calibration-metrics"]
    tables = {name: pd.concat([p.table for p in one.panels.panels]) for name, one in figures.items()}
    assert set(tables["performance"]["kind"]) == {"overall", "split"}
    assert set(tables["members"]["kind"]) == {"overall", "member"}
    assert "SI-LS" not in set(tables["relative"]["model"])
    narrow = figures["calibration-metrics"].panels.figure()
    narrow.draw_without_rendering()
    box, width = narrow.legends[0].get_window_extent(), narrow.bbox.width
    assert box.x0 >= 0
    assert box.x1 <= width
