"""Draw the README's pictures of the demo: its success curves, and the top of its report.

    robotrials demo --to demo && python tools/demo_pictures.py demo

Needs playwright and a Chromium (ROBOTRIALS_CHROMIUM, else what is installed), as the tests of pages do.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from robotrials.show.catalog import ShowRequest, find_figure
from robotrials.show.figure import save_figure
from robotrials.verdict.analysis import analyse

IMAGES = Path(__file__).resolve().parent.parent / 'docs' / 'images'
WIDTH_PX = 1280
UNTIL = '#scoreboard'  # the picture ends below this section: the first screen
NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable')


def main() -> None:
    """Write demo-cdf.png and demo-report.png."""
    folder = Path(sys.argv[1])
    save_figure(find_figure('cdf')(ShowRequest(subject=analyse(folder / 'store'))), IMAGES / 'demo-cdf.png')
    shoot(folder / 'report.html', IMAGES / 'demo-report.png')


def shoot(report: Path, picture: Path) -> None:
    """The report's page from its top to the end of the scoreboard and the chart beside it."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get('ROBOTRIALS_CHROMIUM') or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=['--no-sandbox', '--disable-gpu'])
        page = browser.new_page(viewport={'width': WIDTH_PX, 'height': 900}, color_scheme='light')
        page.goto(report.resolve().as_uri())
        box = page.locator(UNTIL).bounding_box() or {'y': 1200.0, 'height': 0.0}
        clip = {'x': 0, 'y': 0, 'width': WIDTH_PX, 'height': box['y'] + box['height'] + 6}
        page.screenshot(path=str(picture), full_page=True, clip=clip)
        browser.close()


if __name__ == '__main__':
    main()
