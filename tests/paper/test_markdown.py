"""Results as Markdown, and a page in which they are replaced."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import entr, expit

from deeptram.errors import FileFormatError
from deeptram.paper import aggregate, make_study, run_study
from deeptram.paper.members import load_member
from deeptram.paper.protocols import published_metrics
from deeptram.paper.report import replace_block, results_markdown, run_command
from deeptram.paper.views import RunView

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def text(digits_report):
    return results_markdown(digits_report, n_boot=40)


def rows(text, first):
    """Return the cells of the table whose header begins with a word."""
    lines = text[text.index(f"| {first}") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_it_says_what_was_run(text):
    assert "`deeptram reproduce digits --preset quick --epochs 2" in text
    assert "Preset `quick` (changed: epochs 2), split 1 of 6; 10 members, all finished" in text
    assert "Not in the paper: there are no published numbers." in text
    assert re.search(r"(\d+) of \1 held", text)


def test_the_numbers_are_those_of_the_table(text, view):
    table = rows(text, "model | weights")
    assert table[0] == ["model", "weights", "method", "NLL", "RPS", "quadratic weighted κ", "accuracy"]
    assert len(table) == 2 + 2 + 4 * 8
    metrics = view.tables.metrics
    chosen = metrics[(metrics["metric"] == "nll") & metrics["split"].isna() & (metrics["model"] == "CI")]
    value = chosen[(chosen["method"] == "transformation") & (chosen["weights"] == "tuned")].iloc[0]
    cell = next(row[3] for row in table if row[:3] == ["CI", "tuned", "transformation"])
    assert cell == f"{value['estimate']:.4f} ({value['lower']:.4f} to {value['upper']:.4f})"


def test_recalibrated_members_have_a_small_table_of_their_own(text, view):
    part = text[text.index("With every member recalibrated") :]
    table = rows(part, "model | weights")
    assert table[0] == ["model", "weights", "method", "NLL", "calibration slope"]
    metrics = view.tables.metrics
    of_model = metrics[(metrics["model"] == "CI") & metrics["split"].isna() & (metrics["metric"] == "nll")]
    value = of_model[(of_model["method"] == "linear") & (of_model["weights"] == "tuned")].iloc[0]
    cell = next(row[3] for row in table if row[:3] == ["CI", "tuned", "linear"])
    assert cell.startswith(f"{value['estimate_recalibrated']:.4f} ({value['lower_recalibrated']:.4f} to")


def test_recalibrated_pools_have_another_one(text, view):
    table = rows(text[text.index("With every pool recalibrated") :], "model | weights")
    metrics = view.tables.metrics
    chosen = metrics[(metrics["model"] == "CI") & metrics["split"].isna()]
    value = chosen[(chosen["method"] == "transformation") & (chosen["weights"] == "equal")]
    value = value[value["metric"] == "calibration_slope"].iloc[0]
    cell = next(row[4] for row in table if row[:3] == ["CI", "equal", "transformation"])
    assert cell.startswith(f"{value['estimate_pool_recalibrated']:.4f} (")


def test_calibration_has_a_table(text, view):
    table = rows(text[text.index("Calibration in the large (ideal: 0)") :], "model | weights")
    assert table[0] == ["model", "weights", "method", "calibration in the large", "calibration slope"]
    row = next(row for row in table if row[:3] == ["CI-LS", "equal", "transformation"])
    metrics = view.tables.metrics.query(
        "model == 'CI-LS' and method == 'transformation' and weights == 'equal'"
    )
    for metric, cell in zip(("citl", "calibration_slope"), row[3:], strict=True):
        own = metrics[(metrics["metric"] == metric) & metrics["split"].isna()].iloc[0]
        assert cell.replace("−", "-").startswith(f"{own['estimate']:.4f} (")


def test_what_members_disagree_about_has_a_table(text, run, view):
    table = rows(text[text.index("What members disagree about") :], "model | split")
    pairs = [(unit, load_member(run, unit, len(view.config["levels"]))) for unit in run.study().units()]
    members = [one.predictions["test"] for unit, one in pairs if unit.model == "CI-LS"]
    h = np.stack([one.trafo() for one in members])
    sd, mean = h.std(axis=0, ddof=1), h.mean(axis=0)
    width = (expit(mean + 2 * sd) - expit(mean - 2 * sd)).mean()
    p = np.stack([one.pmf() for one in members])
    total, within = entr(p.mean(axis=0)).sum(axis=1).mean(), entr(p).sum(axis=2).mean()
    share = f"{100 * (total - within) / total:.0f} %"
    expected = [*(f"{np.quantile(sd, q):.2f}" for q in (0.5, 0.9)), f"{width:.3f}", share]
    assert next(row for row in table if row[0] == "CI-LS") == ["CI-LS", "1", *expected]
    assert not any(row[0] == "SI-LS" for row in table)


def test_tuned_weights_have_a_table(text, view):
    table = rows(text[text.index("Tuned weights of") :], "model | split")
    weights = view.tables.weights
    own = weights[(weights["model"] == "CI") & (weights["method"] == "transformation")]["weight"]
    row = next(row for row in table if row[0] == "CI")
    assert row == ["CI", "1", ", ".join(f"{w:.2f}" for w in own), f"{(own > 1e-8).sum()} of {len(own)}"]


def test_log_odds_ratios_split_by_split(small_run, text):
    table = rows(results_markdown(small_run.path, n_boot=40).split("Split by split:")[1], "model | variable")
    assert table[0] == ["model", "variable", "split 1", "split 2"]
    found = aggregate(small_run.path, n_boot=40).coefficients.query(
        "weights == 'equal' and variable == 'x_5'"
    )
    for model, method in (("SI-LS", "single"), ("CI-LS", "transformation")):
        own = found[(found["model"] == model) & (found["method"] == method)].dropna(subset="split")
        row = next(row for row in table if row[:2] == [model, "x_5"])
        assert row[2:] == [f"{value:.3f}" for value in own.sort_values("split")["estimate"]]
    assert "Split by split:" not in text  # of one split they are those above


def test_ensembles_of_every_size_have_a_table(text, view):
    table = rows(text, "model | m ")
    assert table[0][:4] == ["model", "m", "linear", "linear, best"]
    metrics = view.tables.metrics
    value = metrics.query("model == 'CI' and metric == 'nll' and method == 'linear' and weights == 'equal'")
    cells = next(row for row in table if row[:2] == ["CI", "2"])
    assert cells[2] == cells[3] == f"{value['estimate'].iloc[0]:.4f}"


def test_coefficients_stand_beside_the_simulated_ones(text):
    table = rows(text, "model | variable")
    assert table[0] == ["model", "variable", "log odds-ratio", "simulated", "members drawn"]
    assert [row[3] for row in table if row[:2] == ["CI-LS", "x_5"]] == ["0.405"]


def test_intervals_of_drawn_members_stand_beside_the_total_ones(text, view):
    table = rows(text, "model | variable")
    found = view.rows("coefficients", "nll", weights="equal", variable="x_5").set_index("model")
    own = found.loc["CI-LS"]
    assert [row[4] for row in table if row[:2] == ["CI-LS", "x_5"]] == [
        f"{own['lower']:.3f} to {own['upper']:.3f}"
    ]
    assert [row[4] for row in table if row[:2] == ["SI-LS", "x_5"]] == [""]  # has no members


def test_published_means_are_those_of_the_same_splits(data_dir, tmp_path):
    study = make_study("melanoma", "paper", models=["SI-LS"], losses=["nll"], splits=[2, 3])
    run_study(study, tmp_path / "melanoma", directory=data_dir)
    text = results_markdown(tmp_path / "melanoma", n_boot=0)
    published = published_metrics().query(
        "dataset == 'melanoma' and model == 'SI-LS' and loss == 'nll' and metric == 'nll'"
    )
    mean = published[published["split"].isin([2, 3])]["estimate"].mean()
    cells = rows(text, "model | weights")[2]
    smallest, largest = published["estimate"].min(), published["estimate"].max()
    assert cells[3:5] == [f"{mean:.4f}", f"{mean:.4f} [{smallest:.4f}–{largest:.4f}]"]
    far = [float(number) for number in re.findall(r"\d\.\de-\d\d", text)]
    assert len(far) == 2
    assert max(far) < 1e-6


def test_the_command_of_a_run_can_be_given_again(text):
    command = re.search(r"`deeptram (reproduce digits .*) --out RUN`", text).group(1).split()
    assert "--members" in command
    exact = make_study("digits", "quick", models=["SI", "SI-LS"], splits=[1])
    words = run_command(RunView(exact, None, {})).split()
    assert "--members" not in words  # refused without networks


def test_a_block_is_replaced_and_the_rest_stays():
    page = "# Results\n\nbefore\n\n<!-- run: a -->\nold\n<!-- end of run: a -->\n\nafter\n"
    new = replace_block(page, "a", "new\n")
    assert new == "# Results\n\nbefore\n\n<!-- run: a -->\n\nnew\n\n<!-- end of run: a -->\n\nafter\n"
    assert replace_block(new, "a", "new\n") == new


def test_a_block_without_an_end_is_refused():
    with pytest.raises(FileFormatError, match=r"must end with '<!-- end of run: a -->', got no such line"):
        replace_block("<!-- run: a -->\nold\n", "a", "new\n")


def test_the_script_fills_a_page(digits_report, tmp_path, monkeypatch, capsys):
    page = tmp_path / "results.md"
    spec = importlib.util.spec_from_file_location("results_page", EXAMPLES / "results_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["x", str(digits_report), "--page", str(page), "--n-boot", "40"])
    for _ in range(2):  # the second time changes nothing
        module.main()
        written = page.read_text(encoding="utf-8")
        assert written.startswith("# Results\n\n## digits-report\n\n<!-- run: digits-report -->\n")
        assert written.count("<!-- run:") == 1
    assert "digits-report: written" in capsys.readouterr().out
