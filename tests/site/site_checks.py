"""Open every page of the built site in Chromium and look for what a reader would stumble over.

``python tests/site/site_checks.py build/site`` prints each finding and ends with 1 if there is one: pictures and
fields without a name, text with too little contrast, headings that skip a level, pages wider than the window,
messages in the console, requests to the network; in light and dark, at three widths. The search has to find.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from headless_browser import Browser, find_browser

WIDTHS = (1400, 800, 390)
SCHEMES = ("light", "dark")

# Returns a list of sentences. Contrast is that of WCAG 2.1, level AA; backgrounds are those of the nearest
# ancestor that has one.
LOOK = r"""
(() => {
  const found = [];
  const say = (what, element) => found.push(`${what}: ${(element.outerHTML || "").slice(0, 110)}`);
  const visible = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.getClientRects().length;
  const name = (e) => (e.getAttribute("aria-label") || e.getAttribute("title") || e.innerText || "").trim()
    || [...e.querySelectorAll("img[alt], svg[aria-label]")].map((i) => i.alt || i.getAttribute("aria-label")).join("");
  if (!document.documentElement.lang) found.push("the page has no language");
  if (document.querySelectorAll("h1").length !== 1) found.push("the page has not exactly one h1");
  const alternatives = new Map();
  for (const image of document.querySelectorAll("article img")) {
    if (!image.alt || image.alt === "figure") say("picture without alternative text", image);
    if (alternatives.has(image.alt)) say("two pictures with one alternative text", image);
    alternatives.set(image.alt, image);
    if (!image.complete || !image.naturalWidth) say("picture that does not load", image);
  }
  for (const svg of document.querySelectorAll("article svg[role=img]"))
    if (!svg.getAttribute("aria-label")) say("drawing without a label", svg);
  for (const link of document.querySelectorAll("a[href], button"))
    if (visible(link) && !name(link)) say("link or button without a name", link);
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (visible(field) && !name(field) && !field.labels.length && !field.placeholder) say("field without a label", field);
  let last = 1;
  for (const heading of document.querySelectorAll("article :is(h1, h2, h3, h4, h5)")) {
    const level = Number(heading.tagName[1]);
    if (level > last + 1) say(`heading after level ${last}`, heading);
    last = level;
  }
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((c, k) => c * top[3] + below[k] * (1 - top[3])).concat(1);
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color[3]) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, k) => {
    const v = c[k] / 255;
    return sum + weight * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
  const seen = new Set();
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const element = words.currentNode.parentElement;
    if (!words.currentNode.textContent.trim() || !visible(element) || element.closest("[aria-hidden=true], .headerlink, script, style")) continue;
    const style = getComputedStyle(element);
    const key = [style.color, element.className, element.tagName, element.parentElement.className].join("|");
    if (seen.has(key)) continue;
    seen.add(key);
    let opacity = 1;
    for (let e = element; e; e = e.parentElement) opacity *= Number(getComputedStyle(e).opacity);
    const back = behind(element), color = rgba(style.color);
    color[3] *= opacity;
    const [a, b] = [light(over(color, back)), light(back)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const needed = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < needed - 0.01) say(`contrast ${contrast.toFixed(2)} of "${words.currentNode.textContent.trim().slice(0, 30)}"`, element);
  }
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 1) found.push(`the page is ${wide} pixels wider than the window`);
  return found;
})()
"""

# Colours and places are read at once after a change of the width: nothing may be under way.
STILL = """
document.head.append(Object.assign(document.createElement("style"), { textContent: "* { transition: none !important }" }))
"""

SEARCH = r"""
(async () => {
  document.querySelector("[data-md-toggle=search]").click();
  const field = document.querySelector("[data-md-component=search-query]");
  field.focus();
  field.value = "proportional hazards";
  field.dispatchEvent(new Event("keyup"));
  field.dispatchEvent(new Event("input", { bubbles: true }));
  for (let k = 0; k < 100; k++) {
    await new Promise((done) => setTimeout(done, 100));
    const n = document.querySelectorAll(".md-search-result__item").length;
    if (n) return n;
  }
  return 0;
})()
"""


def findings(site: Path, pages: list[Path]) -> Iterator[str]:
    """Yield one sentence for everything that is wrong in a built site, its search included.

    Parameters
    ----------
    site : Path
        The folder of ``index.html``.
    pages : list of Path
    """
    yield from page_findings(site, pages)
    with _browser() as browser:
        browser.open(site / "index.html")
        if not browser.evaluate(SEARCH):
            yield "index.html: the search finds nothing for 'proportional hazards'"


def page_findings(site: Path, pages: list[Path]) -> Iterator[str]:
    """Yield one sentence for everything that is wrong on some pages, in every width and scheme."""
    for scheme in SCHEMES:
        with _browser() as browser:  # a new one: the site remembers the scheme it was first seen in
            wanted = {"name": "prefers-color-scheme", "value": scheme}
            browser.call("Emulation.setEmulatedMedia", features=[wanted])
            for page in pages:
                browser.open(page, WIDTHS[0], 900)
                browser.evaluate(STILL)
                for width in WIDTHS:
                    browser.resize(width, 900, mobile=width < 500)
                    for sentence in browser.evaluate(LOOK) or []:
                        yield f"{page.relative_to(site)}, {width} px, {scheme}: {sentence}"
            for message in dict.fromkeys(browser.complaints):
                yield f"the console says ({scheme}): {message}"
            for address in dict.fromkeys(browser.requests):
                if not address.startswith(("file:", "data:", "about:")):
                    yield f"a page asks the network ({scheme}) for {address}"


def _browser() -> Browser:
    program = find_browser()
    if program is None:
        raise SystemExit("Chromium must be installed, got none; see `make browser`")
    return Browser(program)


def main() -> None:
    """Check the site named on the command line."""
    site = Path(sys.argv[1]).resolve()
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    found = list(findings(site, pages))
    print(*found, sep="\n")
    print(f"{len(pages)} pages, {len(WIDTHS)} widths, {len(SCHEMES)} colour schemes: {len(found)} findings")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
