"""The report in a browser: it opens without complaints, draws its figures, answers the mouse, and prints."""

from __future__ import annotations

import re
import sys

import pytest

from headless_browser import Browser, find_browser

FIGURES = (
    "performance",
    "relative",
    "calibration",
    "calibration-metrics",
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


def point_of(page, figure, trace):
    """Bring a figure into view and return where on the screen the first point of a trace is."""
    page.evaluate(
        f"document.getElementById('{figure}').scrollIntoView({{behavior: 'instant', block: 'center'}})"
    )
    return page.evaluate(f"""(() => {{
        const plot = document.getElementById('{figure}'), box = plot.getBoundingClientRect();
        const trace = plot._fullData.findIndex({trace});
        const {{xaxis, yaxis}} = plot._fullLayout, data = plot._fullData[trace];
        const axes = [plot._fullLayout[data.xaxis.replace('x', 'xaxis')], plot._fullLayout[data.yaxis.replace('y', 'yaxis')]];
        return [
            box.left + axes[0]._offset + axes[0].d2p(data.x[0]), box.top + axes[1]._offset + axes[1].d2p(data.y[0]),
            data.x[0],
        ];
    }})()""")


def hover_text(page, figure):
    """Return what hovering shows, after the time it takes to appear."""
    return page.evaluate(f"""new Promise(resolve => {{
        const end = Date.now() + 5000;
        (function look() {{
            const texts = [...document.querySelectorAll('#{figure} .hoverlayer .hovertext')];
            if (texts.length || Date.now() > end) resolve(texts.map(t => t.textContent).join(' '));
            else setTimeout(look, 30);
        }})();
    }})""")


def test_it_asks_for_nothing_but_itself(page, digits_report):
    addresses = [address for address in page.requests if not address.startswith("data:")]
    assert addresses == [(digits_report / "report.html").resolve().as_uri()]


def test_figures_are_drawn(page):
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    drawn = page.evaluate("""Object.fromEntries([...document.querySelectorAll('.js-plotly-plot')].map(plot => [
        plot.id,
        [plot.querySelectorAll('path').length, plot.querySelector('.main-svg').getBoundingClientRect().width],
    ]))""")
    assert set(drawn) == {f"{name}-nll" for name in FIGURES}
    for name, (paths, width) in drawn.items():
        assert paths > 10, name
        assert width > 350, name


def test_hovering_shows_numbers(page):
    x, y, value = point_of(
        page, "performance-nll", "t => t.name == 'transformation ensemble' && t.showlegend"
    )
    page.hover(x, y)
    said = hover_text(page, "performance-nll")
    assert f"{value:.4f}" in said
    assert "transformation ensemble" in said
    assert re.search(r"\(\d+\.\d{4} to \d+\.\d{4}\)", said)


def test_hovering_over_coefficients_shows_the_interval(page):
    x, y, value = point_of(page, "coefficients-nll", "t => t.name == 'SI-LS' && t.showlegend")
    page.hover(x, y)
    said = hover_text(page, "coefficients-nll")
    assert f"{value:.4f}" in said
    assert "over all splits" in said


def test_the_legend_switches_single_members_on(page):
    seen = "document.getElementById('performance-nll')._fullData.filter(t => t.name == 'single members')[0].visible"
    assert page.evaluate(seen) == "legendonly"
    page.evaluate(
        "document.getElementById('performance-nll').scrollIntoView({behavior: 'instant', block: 'center'})"
    )
    x, y = page.evaluate("""(() => {
        const entries = [...document.querySelectorAll('#performance-nll .legend .traces')];
        const entry = entries.find(e => e.textContent.includes('single members'));
        const box = entry.querySelector('.legendtoggle').getBoundingClientRect();
        return [box.left + 10, box.top + box.height / 2];
    })()""")
    page.click(x, y)
    changed = page.evaluate(f"""new Promise(resolve => {{
        const end = Date.now() + 5000;
        (function look() {{
            const now = {seen};
            if (now === true || Date.now() > end) resolve(now);
            else setTimeout(look, 30);
        }})();
    }})""")
    assert changed is True


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
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
    assert 4 <= pages <= 20
    size = [float(number) for number in re.search(rb"/MediaBox\s*\[([^\]]*)\]", content)[1].split()]
    assert size[2:] == pytest.approx([595, 842], abs=2)  # A4
    folded = page.evaluate("[...document.querySelectorAll('details')].filter(d => !d.open).length")
    assert folded == 0
