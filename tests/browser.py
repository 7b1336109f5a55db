"""Pages opened in a real browser: what they log, what they ask of the network, whether they fit and can be read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.patience import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Driven
    from playwright.sync_api import Page

PHONE_PX, DESK_PX = 360, 1440
NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable')
FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-dev-shm-usage']
LEAST_CONTRAST = 4.5
MOST_LOADS = 10

# Widths of the page and its window, when two frames have let the page follow a change of its window.
WIDTHS = """
async () => {
  for (let n = 0; n < 2; n += 1) await new Promise((done) => { requestAnimationFrame(done); });
  return [document.documentElement.scrollWidth, window.innerWidth];
}
"""
# Every visible run of text with its contrast (WCAG 2) against what is painted under it.
CONTRAST = r"""
() => {
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const lum = c => .2126 * linear(c[0] / 255) + .7152 * linear(c[1] / 255) + .0722 * linear(c[2] / 255);
  const ground = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1) break;
    }
    return layers.reverse().reduce((below, above) => over(above, below), [255, 255, 255, 1]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.textContent.trim() || ['SCRIPT', 'STYLE', 'OPTION'].includes(element.tagName)) continue;
    if (['title', 'desc'].includes(element.tagName) || element.closest('[hidden]') || element.disabled) continue;
    if (!element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    const style = getComputedStyle(element);
    let text = element.ownerSVGElement ? style.fill : style.color, below = ground(element);
    const before = element.previousElementSibling;
    if (element.ownerSVGElement && before && before.tagName === 'rect') {
      const fill = getComputedStyle(before).fill;
      if (fill.startsWith('rgb')) below = over(parse(fill), below);
    }
    const [low, high] = [lum(over(parse(text), below)), lum(below)].sort((a, b) => a - b);
    const kind = element.tagName + '.' + (element.getAttribute('class') || '');
    found.push([(high + .05) / (low + .05), node.textContent.trim().slice(0, 40), kind]);
  }
  return found;
}
"""


def find_browser() -> str:
    """The browser's program (ROBOTRIALS_CHROMIUM, else what is installed); skips, or fails under CI, without one."""
    named = os.environ.get('ROBOTRIALS_CHROMIUM')
    path = named or next(filter(None, map(shutil.which, NAMES)), None)
    problem = '' if path else f'no browser found among {", ".join(NAMES)}; run tools/system_libraries.sh'
    try:
        import playwright  # noqa: F401
    except ImportError:
        problem = 'playwright is not installed; pip install playwright (its own browser download is not needed)'
    if not problem and path:
        return path
    if os.environ.get('CI') == 'true':
        pytest.fail(problem)
    pytest.skip(problem)


@dataclass(slots=True)
class Opened:
    """A page that is open, and what went wrong on it: errors it logged, addresses it asked for."""

    page: Page
    problems: list[str] = field(default_factory=list)

    def loaded(self, function: str) -> Any:
        """What a JavaScript function gives on a loaded page; a page that is just being left is not asked."""
        from playwright.sync_api import Error

        asked = f'() => document.readyState === "complete" ? ({function})() : null'
        for _ in range(MOST_LOADS):
            self.page.wait_for_load_state()
            try:
                found = self.page.evaluate(asked)
            except Error as error:
                if 'context was destroyed' not in error.message:
                    raise
                continue
            if found is not None:
                return found
        raise AssertionError(f'{self.page.url} was loaded {MOST_LOADS} times over')

    def check_fits(self) -> None:
        """Nothing went wrong, and the page is no wider than its window."""
        wide, window = self.loaded(WIDTHS)
        assert wide <= window, f'the page is {wide} px wide in a window of {window} px'
        assert self.problems == [], self.problems

    def check_contrast(self, least: float = LEAST_CONTRAST) -> None:
        found: list[tuple[float, str, str]] = self.loaded(CONTRAST)
        assert len(found) > 5, 'no text was measured'
        poor = sorted({(round(ratio, 2), kind, text) for ratio, text, kind in found if ratio < least})
        assert poor == [], poor

    def shot(self, name: str) -> None:
        """A picture of the whole page, if ROBOTRIALS_SCREENSHOTS names a folder."""
        folder = os.environ.get('ROBOTRIALS_SCREENSHOTS')
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.wait_for_load_state()
            self.page.screenshot(path=str(Path(folder) / f'{name}.png'), full_page=True)


@dataclass(frozen=True, slots=True)
class Browser:
    driven: Driven

    @contextmanager
    def open(
        self, path: Path, *, width: int = DESK_PX, scheme: str = 'light', script: bool = True, media: str = 'screen'
    ) -> Iterator[Opened]:
        """The HTML file in a fresh window; anything it asks for beside itself is refused and noted."""
        context = self.driven.new_context(
            viewport={'width': width, 'height': 900}, color_scheme=scheme, java_script_enabled=script,  # type: ignore[arg-type]
            reduced_motion='reduce',
        )  # fmt: skip
        try:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            opened = Opened(page)
            own = path.resolve().as_uri()

            def guard(route: Any) -> None:
                if route.request.url.split('#')[0] == own:
                    route.continue_()
                else:
                    opened.problems.append(f'asked for {route.request.url}')
                    route.abort()

            page.route('**/*', guard)
            page.on('pageerror', lambda error: opened.problems.append(f'page error: {error}'))
            page.on('console', lambda m: opened.problems.append(m.text) if m.type in ('error', 'warning') else None)
            page.on('dialog', lambda dialog: (opened.problems.append('a dialog opened'), dialog.dismiss()))
            page.emulate_media(media=media, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(own)
            yield opened
        finally:
            context.close()

    def check(self, path: Path, *, name: str = '') -> None:
        """Phone and desk, light and dark: no errors, no requests, no overflow, text that can be read."""
        for width in (PHONE_PX, DESK_PX):
            for scheme in ('light', 'dark'):
                with self.open(path, width=width, scheme=scheme) as opened:
                    opened.check_fits()
                    opened.check_contrast()
                    opened.shot(f'{name or path.stem}-{width}-{scheme}')


def new_page(browser: Browser) -> Page:
    """A page in a window of its own, which is waited for with patience and does not scroll by itself."""
    page = browser.driven.new_page(viewport={'width': 1200, 'height': 900}, reduced_motion='reduce')
    page.set_default_timeout(PATIENCE_MS)
    return page


@contextmanager
def launched() -> Iterator[Browser]:
    path = find_browser()
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        driven = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=PATIENCE_MS)
        try:
            yield Browser(driven)
        finally:
            driven.close()
