"""The detector on episodes that it was not tuned on; the table in docs/concepts/annotation.md is made by the tool."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.test_documents import tool

from robotrials.errors import InputError
from robotrials.measure.annotate import assess
from robotrials.measure.annotate.calibrate import match_marks
from robotrials.stats import wilson

PAGE = Path(__file__).resolve().parents[3] / 'docs' / 'concepts' / 'annotation.md'


def test_marks_of_one_episode_are_not_independent() -> None:
    """Ten missed marks of forty: of ten episodes one each, or all of two and a half."""
    spread = [match_marks([1.0, 5.0, 9.0, 13.0], [1.0, 5.0, 9.0])] * 10
    bunched = [match_marks([1.0, 5.0, 9.0, 13.0], [])] * 2 + [match_marks([1.0, 5.0, 9.0, 13.0], [1.0, 5.0])]
    bunched += [match_marks([1.0, 5.0, 9.0, 13.0], [1.0, 5.0, 9.0, 13.0])] * 7
    even, uneven = assess(spread).recall, assess(bunched).recall
    assert even is not None
    assert uneven is not None
    assert wilson(30, 40).width < even.width < uneven.width / 1.4


def test_the_detector_is_not_assessed_on_the_seed_it_was_tuned_on(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='tuned on'):
        tool('annotation_table').record(tmp_path / 's', seed=tool('annotation_table').TUNED_SEED, episodes=1)


@pytest.mark.study
def test_fresh_episodes_are_detected_as_the_documents_say(tmp_path: Path) -> None:
    """A third seed, every object and policy: precision and recall agree with the page's, within both intervals."""
    made = tool('annotation_table')
    made.record(tmp_path / 's', seed=31337, episodes=2, workers=2)
    rows = {(row[0], row[1]): row for row in made.table_rows(made.read_recorded(tmp_path / 's'))}
    printed = [[cell.strip() for cell in line.split('|')[1:-1]] for line in PAGE.read_text().splitlines()]
    known = {(row[0], row[1]): row for row in printed if len(row) == len(made.COLUMNS) and row[1] == 'all'}
    assert set(known) == {(noise, 'all') for noise in made.NOISE}
    for key, row in known.items():
        for column in (4, 5):
            (low, high), (other_low, other_high) = (ends(r[column]) for r in (row, rows[key]))
            assert max(low, other_low) <= min(high, other_high), (key, row[column], rows[key][column])


def ends(cell: str) -> tuple[float, ...]:
    return tuple(map(float, re.findall(r'[\d.]+', cell.partition('[')[2])))
