"""The report in a browser: it opens without complaints, draws its figures, answers the mouse, and prints."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

from deeptram.paper.gallery import gallery_what_if
from deeptram.pooling import pool
from deeptram.predictive.discrete import DiscretePredictive
from headless_browser import Browser, find_browser

FIGURES = (
    "differences",
    "differences-others",
    "performance",
    "relative",
    "calibration",
    "sizes",
    "calibration-metrics",
    "recalibrated",
    "recalibrated-pools",
    "coefficients",
    "weights",
    "history",
)
PROGRAM = find_browser()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(sys.platform == "win32", reason="the debugging pipe needs POSIX file descriptors"),
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this computer: `make browser` installs it"),
]


@pytest.fixture(scope="module")
def opened(digits_report):
    with Browser(PROGRAM) as one:
        one.open(digits_report / "report.html")
        yield one


@pytest.fixture
def page(opened):
    yield opened
    assert opened.complaints == []


def test_it_asks_for_nothing_but_itself(page, digits_report):
    addresses = [address for address in page.requests if not address.startswith("data:")]
    assert addresses == [(digits_report / "report.html").resolve().as_uri()]


def test_it_is_small(digits_report):
    assert (digits_report / "report.html").stat().st_size < 1_500_000


def test_figures_are_drawn(page):
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    drawn = page.evaluate("""Object.fromEntries([...document.querySelectorAll('figure')].map(figure => [
        figure.id,
        [...figure.querySelectorAll('.panel svg')].map(svg => [
            svg.querySelectorAll('path, use').length, svg.getBoundingClientRect().width,
        ]),
    ]))""")
    gallery = {name for name in drawn if name.startswith("gallery-")}
    assert gallery
    assert set(drawn) - gallery == {f"{name}-nll" for name in FIGURES}
    for name, panels in drawn.items():
        assert panels, name
        for paths, width in panels:
            assert paths > 8, name
            assert width > 200, name


def test_pointing_at_a_mark_shows_its_numbers(page):
    x, y, words = page.evaluate("""(() => {
        const mark = document.querySelector('#differences-nll [data-tip]');
        mark.scrollIntoView({behavior: 'instant', block: 'center'});
        const box = mark.getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2, mark.getAttribute('data-tip')];
    })()""")
    page.hover(x, y)
    assert re.fullmatch(r"linear: −\d\.\d{4} \(−\d\.\d{4} to −?\d\.\d{4}\), linear, over all splits", words)
    assert page.evaluate("document.getElementById('tip').hidden") is False
    assert page.evaluate("document.getElementById('tip').textContent") == words
    page.hover(5, 5)
    assert page.evaluate("document.getElementById('tip').hidden") is True


def test_tables_are_sorted_by_their_headers(page):
    column = "[...document.querySelectorAll('table.headline tbody tr')].map(r => r.cells[3].textContent)"
    before = page.evaluate(column)
    click = "document.querySelector('table.headline thead th:nth-child(4) button').click()"
    page.evaluate(click)
    numbers = [float(text.split()[0]) for text in page.evaluate(column)]
    assert numbers == sorted(numbers)
    assert page.evaluate("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    page.evaluate(click)
    numbers = [float(text.split()[0]) for text in page.evaluate(column)]
    assert numbers == sorted(numbers, reverse=True)
    assert sorted(page.evaluate(column)) == sorted(before)


def test_every_header_says_what_it_heads_and_every_figure_what_it_shows(page):
    assert page.evaluate("document.querySelectorAll('th:not([scope])').length") == 0
    texts = page.evaluate("""[...document.querySelectorAll('main svg:not([aria-hidden]), main img')]
        .map(one => one.getAttribute('aria-label') || one.getAttribute('alt'))""")
    assert all(texts)
    assert len(set(texts)) == len(texts)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(set(ids)) == len(ids)


def test_ink_and_paper_change_places_in_the_dark(page):
    colours = """(() => {
        const number = c => c.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 765;
        const label = document.querySelector('#differences-nll svg text');
        return [getComputedStyle(document.body).backgroundColor, getComputedStyle(label).fill].map(number);
    })()"""
    for mode, paper_is_lighter in (("light", True), ("dark", False)):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": mode}])
        paper, ink = page.evaluate(colours)
        assert (paper > ink) is paper_is_lighter
        assert abs(paper - ink) > 0.6
    page.call("Emulation.setEmulatedMedia", features=[])


@pytest.mark.parametrize("width", [360, 390, 768, 1280, 1920])
def test_no_screen_makes_the_page_scroll_sideways(page, width):
    page.resize(width, 800, mobile=width < 600)
    try:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        page.resize(1280, 900)


def test_links_lead_to_their_sections(page):
    page.evaluate("document.querySelector('nav a[href=\"#gallery\"]').click()")
    top = page.evaluate("""new Promise(resolve => {
        const end = Date.now() + 5000, place = () => document.getElementById('gallery').getBoundingClientRect().top;
        (function look() {
            if (place() < 120 || Date.now() > end) resolve(place());
            else setTimeout(look, 50);
        })();
    })""")
    assert 0 <= top < 120


def test_it_prints(page):
    content = page.pdf()
    assert content.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert 4 <= pages <= 24
    size = [float(number) for number in re.search(rb"/MediaBox\s*\[([^\]]*)\]", content)[1].split()]
    assert size[2:] == pytest.approx([595, 842], abs=2)  # A4
    folded = page.evaluate("[...document.querySelectorAll('details')].filter(d => !d.open).length")
    assert folded == 0


def test_what_if_shifts_the_stored_h_of_the_members(page, run, view, rng):
    name, made = gallery_what_if(run, view)
    assert name.endswith("LS")
    members = made.spec["members"]
    for row in (0, 3):
        change = rng.uniform(-2, 2, len(made.spec["inputs"]))
        settings = {one["name"]: float(v) for one, v in zip(made.spec["inputs"], change, strict=True)}
        told = page.evaluate(f"deeptramWhatIf.predict({json.dumps(settings)}, {row}, [], []).cdf")
        shifted = [
            DiscretePredictive.from_h(np.array(one["thetas"])[[row]] - change @ one["linear"]["coef"])
            for one in members
        ]
        np.testing.assert_allclose(told[0], pool(shifted, method="transformation").cdf()[0], atol=1e-9)
        for own, pred in zip(told[1:], shifted, strict=True):
            np.testing.assert_allclose(own, pred.cdf()[0], atol=1e-9)
