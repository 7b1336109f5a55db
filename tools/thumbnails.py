"""Draw every named figure small, and write the pages that list figures, tables and the papers they come from.

Run: python tools/thumbnails.py (pictures and pages), or with --pages (pages alone).
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / 'docs' / 'images' / 'figures'
REFERENCE = ROOT / 'docs' / 'reference'
WIDTH_PX = 320
LARGEST_BYTES = 25_000
SOURCE_WORDS = {
    'store': 'STORE', 'two stores': 'RUN_A RUN_B', 'predictions': 'STORE', 'leaderboard': 'leaderboard.json',
    'candidates': 'papers.csv', 'benchmark': 'libero-spatial', 'shortcut': 'shortcut.json',
    'datasource': 'datasource.json', 'mix': 'mix.json', 'registry': '', 'nothing': '',
}  # fmt: skip


def draw_pictures(folder: Path, names: list[str] | None = None) -> list[Path]:
    """One PNG a figure, from inputs made with fixed seeds."""
    from PIL import Image

    from robotrials.show.catalog import FIGURES, find_figure
    from robotrials.show.figure import COLUMN_WIDTH_IN, FigureStyle, styled
    from robotrials.testing.showcase import make_showcase, showcase_request

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with tempfile.TemporaryDirectory() as made:
        case = make_showcase(Path(made))
        for name in names or FIGURES.names():
            draw = find_figure(name)
            with styled(FigureStyle(width_in=COLUMN_WIDTH_IN)):
                figure = draw(showcase_request(case, name, draw, n_resamples=400))
                buffer = io.BytesIO()
                figure.savefig(buffer, format='png', dpi=2 * WIDTH_PX / COLUMN_WIDTH_IN)
            picture = Image.open(buffer).convert('RGB')
            height = round(picture.height * WIDTH_PX / picture.width)
            small = picture.resize((WIDTH_PX, height), Image.Resampling.LANCZOS)
            path = folder / f'{name}.png'
            for colors in (64, 32, 16, 8):
                small.quantize(colors, method=Image.Quantize.MAXCOVERAGE, kmeans=1).save(path, optimize=True)
                if path.stat().st_size <= LARGEST_BYTES:
                    break
            written.append(path)
    return written


def command(verb: str, name: str, wanted: str) -> str:
    return ' '.join(filter(None, ('robotrials', verb, name, SOURCE_WORDS[wanted])))


def figures_page() -> str:
    from robotrials.show.catalog import listed_figures

    rows = []
    for name, what, layout, wanted in listed_figures():
        cells = (f'![{name}](../images/figures/{name}.png)', f'`{name}`', what, layout or '—')
        rows.append(f'| {" | ".join(cells)} | `{command("plot", name, wanted)}` |')
    return _page(
        'Figures by name',
        'Drawn from simulated inputs, at the width of a paper column. `robotrials plot --list` prints the same list; '
        '[how to put results in a paper](../how-to/put-results-in-a-paper.md) has widths and fonts, and '
        '[the papers](papers.md) says which of their figures have no name and why.',
        ['| picture | name | what it shows | layout of | command |', '|---|---|---|---|---|', *rows],
    )


def tables_page() -> str:
    from robotrials.show.catalog import listed_tables

    rows = [
        f'| `{name}` | {what} | {layout or "—"} | `{command("tables", name, wanted)}` |'
        for name, what, layout, wanted in listed_tables()
    ]
    return _page(
        'Tables by name',
        'Each in the forms text, json, csv, markdown and latex. `robotrials tables --list` prints the same list.',
        ['| name | what it shows | layout of | command |', '|---|---|---|---|', *rows],
    )


def papers_page() -> str:
    from robotrials.show.catalog import papers

    lines = []
    for paper in papers():
        lines += [f'## {paper.title}', '', '| item | what it shows | name here | remark |', '|---|---|---|---|']
        for item in paper.items:
            names = [f'plot `{n}`' for n in item.figures] + [f'tables `{n}`' for n in item.tables]
            lines.append(f'| {item.item} | {item.what} | {", ".join(names) or "none"} | {item.note} |')
        lines.append('')
    everything = [item for paper in papers() for item in paper.items]
    counted = []
    for word, is_figure in (('figures', True), ('tables', False)):
        some = [i for i in everything if i.is_figure is is_figure]
        counted.append(f'{sum(i.is_named for i in some)} of {len(some)} {word}')
    return _page(
        'The papers, table by table and figure by figure',
        f'{" and ".join(counted)} of the five papers have a name here; the remark says why the others have none. '
        'A name has the layout of the item, filled with your data: [figures](figures.md), [tables](tables.md).',
        lines[:-1],
    )


def _page(title: str, lead: str, lines: list[str]) -> str:
    return '\n'.join([f'# {title}', '', lead, '', *lines, ''])


PAGES = {'figures.md': figures_page, 'tables.md': tables_page, 'papers.md': papers_page}


def main() -> None:
    if '--pages' not in sys.argv:
        written = draw_pictures(PICTURES, [a for a in sys.argv[1:] if not a.startswith('-')] or None)
        sizes = [path.stat().st_size for path in written]
        print(f'{len(written)} pictures, {sum(sizes) / 1000:.0f} kB, the largest {max(sizes) / 1000:.0f} kB')
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding='utf-8')


if __name__ == '__main__':
    main()
