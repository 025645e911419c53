"""``deeptram report``: one page that opens without a network, and what the command says to bad input."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from digits_report import digits_report as make_report

LOADING = {
    "script": "src",
    "link": "href",
    "image": "href",
    "iframe": "src",
    "source": "src",
    "object": "data",
}


class Page(HTMLParser):
    """What a page loads, its identifiers, links within, and its text by section."""

    def __init__(self):
        super().__init__()
        self.loaded, self.ids, self.links = [], set(), []
        self.text, self.images = {}, 0
        self._section, self._silent = "", 0

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.add(attributes.get("id"))
        self._silent += tag in ("script", "style")
        self.images += tag == "image"  # part of a drawing
        if tag == "section":
            self._section = attributes["id"]
        if tag == "a":
            self.links.append(attributes["href"])
        if LOADING.get(tag) in attributes:
            self.loaded.append(attributes[LOADING[tag]])

    def handle_endtag(self, tag):
        self._silent -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._silent:
            self.text[self._section] = self.text.get(self._section, "") + data


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    return make_report(tmp_path_factory)


@pytest.fixture(scope="module")
def page(digits_run):
    parsed = Page()
    parsed.feed((digits_run / "report.html").read_text(encoding="utf-8"))
    return parsed


def words(page, section):
    return " ".join(page.text[section].split())


def test_the_page_loads_nothing_from_elsewhere(page, digits_run):
    assert page.loaded
    assert all(address.startswith("data:") for address in page.loaded)
    assert all(address.startswith("#") for address in page.links)
    styles = re.findall(r"<style>(.*?)</style>", (digits_run / "report.html").read_text(), re.DOTALL)
    assert not any("@import" in style or "url(" in style for style in styles)


def test_links_within_the_page_lead_somewhere(page):
    assert {link.removeprefix("#") for link in page.links} <= page.ids


def test_what_was_run(page):
    said = words(page, "run")
    assert "Digits, 1,797 rows" in said
    assert "2 epochs" in said
    assert "against the preset: epochs = 2" in said
    assert "SI and SI-LS are fitted to their exact optimum" in said
    assert "Quick preset" in words(page, "")


def test_headline_has_all_models_with_intervals(page):
    said = words(page, "performance")
    for model in ("SI", "SI-LS", "SI-CS", "SI-CS-LS", "CI", "CI-LS"):
        assert model in said
    numbers = re.findall(r"\d\.\d{4} \(\d\.\d{4} to \d\.\d{4}\)", said)
    assert len(numbers) >= 4 * (2 + 4 * 8)  # metrics x (exact models and eight lines per ensemble)
    assert "40 paired bootstrap samples" in words(page, "results")
    assert re.search(
        r"CI-LS: the transformation ensemble has NLL \d\.\d{4}, better by \d\.\d{4}", words(page, "results")
    )


def test_coefficients_are_read_aloud(page):
    said = words(page, "coefficients")
    assert re.search(
        r"One unit of x_5 multiplies the odds of a higher digit by 1\.\d\d \(1\.\d\d to 1\.\d\d\)\.", said
    )
    assert "given the image" in said
    assert "0.405" in said  # the simulated effect


def test_guarantees_held(page):
    said = words(page, "guarantees")
    held, checks = map(int, re.search(r"(\d+) of (\d+) held", said).groups())
    assert held == checks > 0
    assert "Prop. 3" in said


def test_gallery_shows_images_with_distributions_and_bands(page, digits_run):
    said = words(page, "gallery")
    assert page.images >= 6
    assert "observed" in said
    source = (digits_run / "report.html").read_text(encoding="utf-8")
    bands = re.findall(r'data-tip="P\(Y ≤ (\d)\) = [01]\.\d{3} \([01]\.\d{3} to [01]\.\d{3}\)"', source)
    assert len(bands) == 10 * page.images


def test_figures_are_there(page):
    names = (
        "differences",
        "performance",
        "relative",
        "calibration",
        "calibration-metrics",
        "coefficients",
        "weights",
        "history",
    )
    assert {f"{name}-nll" for name in names} <= page.ids


def test_files_of_figures_are_there(digits_run):
    names = (
        "differences",
        "performance",
        "members",
        "relative",
        "calibration",
        "calibration-metrics",
        "coefficients",
        "weights",
    )
    for name in names:
        for suffix in ("png", "pdf"):
            assert (digits_run / "figures" / f"{name}-nll.{suffix}").stat().st_size > 5_000


def test_provenance(page):
    said = words(page, "provenance")
    assert (
        "deeptram reproduce digits --preset quick --epochs 2 --models SI SI-LS SI-CS SI-CS-LS CI CI-LS"
        in said
    )
    for name in ("python", "torch", "numpy", "deeptram", "Seed", "Machine"):
        assert name in said


def test_it_prints_where_the_page_is(digits_run, run):
    result = run("report", digits_run, "--n-boot", "40", "--no-figures")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(digits_run / "report.html")


def test_markdown_goes_to_stdout(digits_run, run):
    result = run("report", digits_run, "--n-boot", "40", "--markdown")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("`deeptram reproduce digits")
    assert "| CI-LS | tuned | transformation |" in result.stdout


def test_an_unfinished_run_is_reported_as_such(digits_run, run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(digits_run, copy)
    shutil.rmtree(copy / "members/nll/CI-LS/split-1/member-2")
    shutil.rmtree(copy / "members/nll/SI-CS")
    result = run("report", copy, "--n-boot", "0", "--no-figures", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    text = (copy / "report.html").read_text(encoding="utf-8")
    assert "Unfinished run:</b> 7 of 10 members" in text
    assert "Members that are missing (3)" in text
    assert "CI-LS, nll, split 1, member 2" in text


def test_no_folder(refused, tmp_path):
    message = refused("report", tmp_path / "nowhere")
    assert "must be the folder of a run" in message
    assert "deeptram reproduce" in message


def test_a_folder_that_is_no_run(refused, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    assert "must be the folder of a run" in refused("report", tmp_path)


def test_a_file_instead_of_a_folder(refused, tmp_path):
    (tmp_path / "file").write_text("hello")
    assert "must be the folder of a run" in refused("report", tmp_path / "file")


DAMAGED = {
    "cut": '{"study": ',
    "empty": "",
    "a list": "[]",
    "no study": "{}",
    "a study of nothing": '{"study": {}, "data": {}}',
    "a study that is text": '{"study": "none", "data": {}}',
    "not text": "\udcff\udcfe",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_configuration(content, refused, tmp_path):
    (tmp_path / "config.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    message = refused("report", tmp_path)
    assert "config.json" in message or "schema" in message


@pytest.mark.parametrize("key", ["protocol", "training", "models", "preset"])
def test_a_configuration_without_a_part(key, refused, digits_run, tmp_path):
    config = json.loads((digits_run / "config.json").read_text())
    del config["study"][key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "config.json must be readable" in refused("report", tmp_path)


@pytest.mark.parametrize("key", ["levels", "n_rows", "versions"])
def test_a_configuration_that_says_too_little(key, refused, digits_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(digits_run, copy)
    config = json.loads((copy / "config.json").read_text())
    del config[key]
    (copy / "config.json").write_text(json.dumps(config))
    shutil.rmtree(copy / "tables")
    message = refused("report", copy, "--n-boot", "0", "--no-figures")
    assert f"a run.{key} must be there" in message


def test_a_run_without_members(refused, digits_run, tmp_path):
    shutil.copy(digits_run / "config.json", tmp_path)
    message = refused("report", tmp_path)
    assert "must hold at least one finished member" in message


def test_a_damaged_member_is_named(refused, digits_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(digits_run, copy)
    path = copy / "members/nll/CI/split-1/member-1/tensors.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    message = refused("report", copy, "--n-boot", "7")
    assert str(path.parent) in message
    assert "delete it and make it again" in message


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--level", "1.5", "level must be"),
        ("--n-boot", "-3", "n_boot must be"),
        ("--n-jobs", "0", "n_jobs must be"),
    ],
)
def test_bad_options(option, value, sentence, refused, digits_run):
    assert sentence in refused("report", digits_run, option, value, "--no-figures")


@pytest.mark.parametrize("option", ["--figures", "--quiet"])
def test_markdown_draws_and_hides_nothing(option, refused, digits_run):
    message = refused("report", digits_run, "--markdown", option)
    assert f"--markdown prints and draws nothing, got {option} as well" in message


@pytest.mark.parametrize("name", ["data/tensors.safetensors", "config.json"])
def test_broken_folders_are_one_line(name, refused, digits_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(digits_run, copy)
    (copy / "tables" / "key.json").unlink()
    (copy / name).write_bytes((copy / name).read_bytes()[:60])
    message = refused("report", copy, "--n-boot", "0", "--no-figures")
    assert f"{name} must be readable, got" in message or "data' in which tensors.safetensors has" in message
