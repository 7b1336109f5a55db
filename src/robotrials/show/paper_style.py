"""How wide a figure stands in a paper, and in which font: presets of venues, and widths as an author says them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from robotrials.errors import InputError, UnknownName

COLUMN_WIDTH_IN = 3.35
PAGE_WIDTH_IN = 6.9
FONTS = ('sans', 'serif')
POINT_IN = 1 / 72.27  # TeX's point, which \the\columnwidth answers in
UNITS_IN = {'in': 1.0, 'pt': POINT_IN, 'mm': 1 / 25.4, 'cm': 1 / 2.54, '': 1.0}
NARROWEST_IN, WIDEST_IN = 1.5, 40.0


@dataclass(frozen=True, slots=True)
class Venue:
    """The widths of a paper's column and of its text block, and the font that suits its pages."""

    title: str
    column_in: float
    page_in: float
    font: str
    font_size_pt: float


VENUES = {
    'plain': Venue('no venue in particular', COLUMN_WIDTH_IN, PAGE_WIDTH_IN, 'sans', 8.0),
    'ieee': Venue('IEEEtran, two columns (252 pt and 516 pt)', 252 * POINT_IN, 516 * POINT_IN, 'serif', 8.0),
    'acm': Venue('acmart sigconf, two columns', 241.14749 * POINT_IN, 506.295 * POINT_IN, 'serif', 8.0),
    'icml': Venue('ICML, two columns', 3.25, 6.75, 'serif', 8.0),
    'neurips': Venue('NeurIPS and ICLR, one column', 5.5, 5.5, 'serif', 9.0),
    'jmlr': Venue('JMLR, one column', 6.0, 6.0, 'serif', 9.0),
    'lncs': Venue('Springer LNCS, one column', 122 / 25.4, 122 / 25.4, 'serif', 8.0),
    'nature': Venue('Nature, 89 mm and 183 mm', 89 / 25.4, 183 / 25.4, 'sans', 7.0),
}


@dataclass(frozen=True, slots=True)
class FigureStyle:
    """Width and height in inches (None: the figure's natural ones), the font, and the size of its text."""

    width_in: float | None = None
    height_in: float | None = None
    font: str = 'sans'
    font_size_pt: float = 8.0

    def __post_init__(self) -> None:
        if self.font not in FONTS:
            raise UnknownName('font', self.font, FONTS)
        if not 4 <= self.font_size_pt <= 40:
            raise InputError(f'font size is {self.font_size_pt:g} points, wanted 4 to 40')
        for name, value in (('width', self.width_in), ('height', self.height_in)):
            if value is not None and not NARROWEST_IN <= value <= WIDEST_IN:
                raise InputError(f'{name} is {value:.3g} inches, wanted {NARROWEST_IN:g} to {WIDEST_IN:g}')


def find_venue(name: str) -> Venue:
    """The preset of this name; an unknown one suggests the near name."""
    if name not in VENUES:
        raise UnknownName('style', name, VENUES)
    return VENUES[name]


def parse_length_in(text: str) -> float:
    """Inches from `3.5`, `3.5in`, `252pt` (TeX points), `89mm` or `8.9cm`."""
    match = re.fullmatch(r'\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(in|pt|mm|cm|)\s*', text)
    if match is None:
        raise InputError(f'{text!r} is no length; wanted column, page, or a number such as 3.5, 252pt or 89mm')
    return float(match[1]) * UNITS_IN[match[2]]


def figure_style(
    venue: str = '', *, width: str = '', height: str = '', font: str = '', font_size_pt: float | None = None
) -> FigureStyle:
    """The style that the words of a command line ask for; a venue without a width means its column."""
    chosen = find_venue(venue or 'plain')
    widths = {'column': chosen.column_in, 'page': chosen.page_in, '': chosen.column_in if venue else None}
    return FigureStyle(
        width_in=widths[width] if width in widths else parse_length_in(width),
        height_in=parse_length_in(height) if height else None,
        font=font or chosen.font,
        font_size_pt=chosen.font_size_pt if font_size_pt is None else font_size_pt,
    )
