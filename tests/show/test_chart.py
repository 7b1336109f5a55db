"""Charts: every mark carries its policy and values, odd numbers are drawn or told, text can't break out."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.show.gallery import POLICIES, STRATA, chart_blocks, plots, step_block

from robotrials.errors import InputError
from robotrials.show.document import Chart
from robotrials.show.plot import Axis, Bar, Curve, GuideLine, Layer, Plot, Point, Tile, facets, policy_colors
from robotrials.show.plot_page import paint_page
from robotrials.show.plot_paper import paint_paper
from robotrials.show.svg import MOST_BAND_STEPS, MOST_STEPS, LinearScale, policy_marks, scale_over, thin

CHARTS = [step_block(POLICIES, STRATA), *chart_blocks(POLICIES, STRATA)]
HOSTILE = '<script>alert("x")</script> & \'quoted\' \x00\n中文 ' + 'n' * 100


def parsed(chart: Chart) -> list[ET.Element]:
    return [ET.fromstring(panel.svg) for panel in chart.panels]


@pytest.mark.parametrize('chart', CHARTS, ids=lambda c: c.key)
def test_every_mark_carries_its_policy_and_its_values(chart: Chart) -> None:
    for svg in parsed(chart):
        marks = [e for e in svg.iter() if e.get('class', '').split()[:1] == ['mark']]
        assert marks
        assert {m.get('data-policy') for m in marks} == set(POLICIES)
        assert all((m.findtext('title') or '').strip() for m in marks)


@pytest.mark.parametrize('chart', CHARTS, ids=lambda c: c.key)
def test_chart_has_words_numbers_and_a_name(chart: Chart) -> None:
    assert re.search(r'\d', chart.alt)
    assert all(policy in chart.alt for policy in POLICIES)
    assert chart.table.rows
    for svg in parsed(chart):
        assert svg.get('role') == 'img'
        assert svg.get('aria-label')
        assert svg.findtext('desc')


@pytest.mark.parametrize('plot', plots(POLICIES, STRATA), ids=lambda p: p.key)
def test_what_a_page_shows_can_be_printed_in_a_paper(plot: Plot) -> None:
    """One description, two painters: the same axes and the same rows."""
    (axes, *_) = paint_paper(plot).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == (plot.x.label, plot.y.label)
    rows = {layer.at if isinstance(layer, Bar) else layer.row for layer in plot.facets[0].layers
            if isinstance(layer, Bar | Tile)}  # fmt: skip
    assert rows <= {label.get_text() for label in axes.get_yticklabels()}


def painted(*layers: Layer, y_label: str = '', x_max: float | None = None, label: str = '') -> Chart:
    """A chart of these layers alone; with a name for y they stand on two axes."""
    x = Axis('x', None if x_max is None else (0.0, x_max))
    return paint_page(Plot('k', 't', facets({label: layers}), x, Axis(y_label)))


def every_chart(policy: str, value: float | None, other: float | None) -> list[Chart]:
    """Each kind of chart with one policy and the same odd numbers everywhere."""
    curve = Curve(
        policy, [1.0, 2.0], [0.5, value or 0.0], [other, value], [value, other], is_step=True, censored=[1.5]
    )  # fmt: skip
    row = Point(policy, value, None, other, value, letters=policy, group=policy)
    point = Point(policy, value, other, other, value, value, other, is_front=True)
    line = Curve(policy, [0.0, 1.0], [value, other], [other, None], [value, None], has_whiskers=True)
    bars = [Bar(policy, policy, value, policy), Bar(policy, policy, other, 'other', 3)]
    tiles = [Tile(policy, policy, value, policy), Tile(policy, 'other', other)]
    rule = [] if other is None else [GuideLine(x=other)]
    x, y = Axis(policy), Axis(policy)
    return [
        paint_page(plot)
        for plot in (
            Plot('a', policy, facets({policy: [curve]}), x, y),
            Plot('b', policy, facets([row, *rule]), x),
            Plot('c', policy, facets([point, point]), x, y),
            Plot('d', policy, facets(bars), x),
            Plot('e', policy, facets(tiles)),
            Plot('f', policy, facets([line]), Axis(policy, names={0.0: policy}), Axis(policy, (0.0, 1.0))),
        )
    ]


NUMBERS = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1)


@given(value=NUMBERS, other=NUMBERS)
def test_any_number_is_drawn_or_told(value: float | None, other: float | None) -> None:
    for chart in every_chart('act', value, other):
        for panel in chart.panels:
            ET.fromstring(panel.svg)
            drawn = re.sub(r'<title>.*?</title>|<desc>.*?</desc>|aria-label="[^"]*"', '', panel.svg)
            assert not re.search(r'="[^"]*\b(nan|inf|None)\b', drawn)


def test_hostile_names_are_only_text() -> None:
    for chart in every_chart(HOSTILE, 0.5, 0.7):
        for panel in chart.panels:
            assert '<script' not in panel.svg
            svg = ET.fromstring(panel.svg)
            owner = next(e for e in svg.iter() if e.get('data-policy'))
            assert 'alert("x")' in owner.attrib['data-policy']


EMPTY: list[Callable[[], Chart]] = [
    lambda: painted(y_label='y'),
    lambda: painted(Curve('a', [], [], is_step=True), y_label='y', label='p'),
    lambda: painted(Curve('a', [], [], has_whiskers=True), y_label='y'),
    painted,
    lambda: painted(Bar('a', 'a', None)),
    lambda: painted(Tile('a', 's', None)),
    lambda: paint_page(Plot('k', 't', facets({}), Axis('x'))),
]


@pytest.mark.parametrize('make', EMPTY)
def test_nothing_to_draw_is_still_a_chart(make: Callable[[], Chart]) -> None:
    chart = make()
    assert len(chart.panels) == 1
    assert parsed(chart)


def test_mapping_gives_a_panel_a_label_on_one_axis() -> None:
    chart = paint_page(Plot('k', 't', facets({'a': [Point('p', 1.0)], 'b': [Point('p', 9.0)]}), Axis('x')))
    assert [p.label for p in chart.panels] == ['a', 'b']
    ticks = [[e.text for e in svg.iter() if e.get('class') == 'tick'] for svg in parsed(chart)]
    assert ticks[0] == ticks[1]
    assert chart.table.columns[0].name == 'panel'


def test_open_interval_ends_in_an_arrow_and_absent_in_a_dash() -> None:
    def dots(row: Point) -> int:
        [svg] = parsed(painted(Point('p', 0.0, None, -1.0, 1.0), row))
        return sum(e.get('class') == 'dot' for e in svg.iter())

    assert dots(Point('q', 0.0, None, -1.0, 1.0)) == 2
    assert dots(Point('q', 0.0, None, -math.inf, 1.0)) == 3
    assert dots(Point('q', 0.0, None, -math.inf, math.inf)) == 4
    assert dots(Point('q', None)) == 1


def step_values(path: str) -> list[tuple[int, int]]:
    """Corners of a path of h and v steps."""
    found = re.fullmatch(r'M(-?\d+) (-?\d+)((?:[hv]-?\d+)*)', path)
    assert found is not None
    x, y = int(found[1]), int(found[2])
    corners = [(x, y)]
    for command, by in re.findall(r'([hv])(-?\d+)', found[3]):
        x, y = (x + int(by), y) if command == 'h' else (x, y + int(by))
        corners.append((x, y))
    return corners


@given(st.lists(st.floats(0.001, 59), min_size=1, max_size=1000, unique=True))
def test_thinned_curve_stays_within_a_step_of_the_curve(times: list[float]) -> None:
    times = sorted(times)
    chance = [(k + 1) / len(times) for k in range(len(times))]
    chart = painted(Curve('a', times, chance, [c / 2 for c in chance], chance, is_step=True), y_label='y', x_max=60.0)
    [path] = re.findall(r'class="curve" d="([^"]*)"', chart.panels[0].svg)
    corners = step_values(path)
    assert len(corners) <= 2 * MOST_STEPS + 6
    assert corners[0] == (0, 1000)
    assert corners[-1] == (1000, 0)
    [band] = re.findall(r'class="band" d="([^"]*)"', chart.panels[0].svg)
    assert len(re.findall('v', band)) <= 2 * MOST_BAND_STEPS + 4
    for probe in range(3, 60, 7):
        truth = sum(t <= probe for t in times) / len(times)
        drawn = 1 - min((y for x, y in corners if x <= probe / 60 * 1000), default=1000) / 1000
        near = [sum(t <= at for t in times) / len(times) for at in (probe - 0.07, probe + 0.07)]
        assert min(near) - 1 / MOST_STEPS - 0.002 <= drawn <= max(near) + 0.002
        assert min(near) <= truth <= max(near)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=400))
def test_thinning_keeps_the_ends(points: list[tuple[float, float]]) -> None:
    kept = thin(points, 50)
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]


def test_band_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match='1 of low for 2 times'):
        painted(Curve('a', [1.0, 2.0], [0.1, 0.2], [0.1], [0.3, 0.3], is_step=True), y_label='y')


def test_forty_one_panels_of_eight_curves_stay_small() -> None:
    block = step_block(tuple(f'policy_{i}' for i in range(8)), tuple(f'task {i}' for i in range(40)), n=300)
    assert sum(len(p.svg) for p in block.panels) < 2_000_000


def test_twenty_policies_differ_by_colour_dash_or_marker() -> None:
    colors = policy_colors([f'p{i:02d}' for i in range(20)], reference='p00')
    marks = policy_marks(colors)
    assert len({(colors[p], marks[p].dash, marks[p].marker) for p in colors}) == 20
    assert len({(marks[p].dash, marks[p].marker) for p in list(colors)[:8]}) == 8
    assert marks['p00'].is_reference


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_round_and_inside(low: float, span: float) -> None:
    scale = LinearScale(low, low + span)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 9
    slack = 1e-6 * (abs(low) + span)
    assert all(scale.low - slack <= t <= scale.high + slack for t in ticks) or ticks == [scale.low]


def test_scale_of_equal_values_has_room() -> None:
    scale = scale_over([3.0, 3.0, None, math.nan, math.inf])
    assert scale.low < 3.0 < scale.high


def test_grid_prints_the_number_in_each_cell_and_hatches_absent_ones() -> None:
    [svg] = parsed(painted(Tile('a', 's', 0.123), Tile('a', 't', None), Tile('b', 's', 1.0)))
    said = [e.text for e in svg.iter() if e.tag == 'text']
    assert said == ['0.12', '—', '1.00', '—']
    assert sum(e.get('class') == 'none' for e in svg.iter()) == 2


def test_stacked_parts_are_told_apart_by_hatching() -> None:
    chart = next(c for c in CHARTS if c.key == 'modes')
    [svg] = parsed(chart)
    hatches = [e.get('d') for e in svg.iter() if e.get('class', '').startswith('hatch')]
    assert len(set(hatches)) == len(hatches) == 5  # and one plain
