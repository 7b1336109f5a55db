"""Two scorers that share no code, on random records through every door: they agree on every margin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.measure.safety.doors import DOORS, LAYOUTS, Verdicts
from tests.measure.safety.random_record import Record, random_record
from tests.measure.safety.second_scorer import Second

WAYS = [('verb', layout) for layout in LAYOUTS] + [(door, 'lines') for door in DOORS if door != 'verb']


def records(n: int, *, seed: int) -> list[Record]:
    """Records of two policies that share ids."""
    rng = np.random.default_rng(seed)
    return [random_record(rng, number // 2, policy) for number, policy in zip(range(n), ('p', 'q') * n, strict=False)]


def differences(made: list[Record], verdicts: Verdicts) -> list[str]:
    found = []
    assert len(verdicts) == len(made)
    for record in made:
        second = Second(record)
        margins = second.margins()
        safe, vsi, told = verdicts[record['policy'], record['episode_id']]
        if told.keys() != margins.keys() or any(not close(float(told[n]), m) for n, m in margins.items()):  # type: ignore[arg-type]
            found.append(f'{record["policy"]} {record["episode_id"]}: {told}, second: {margins}')
        elif safe is not all(m >= 0 for m in margins.values()) or vsi != pytest.approx(second.vsi(), abs=1e-7):
            found.append(f'{record["policy"]} {record["episode_id"]}: {safe} {vsi}, second: {second.vsi()}')
    return found


def close(a: float, b: float) -> bool:
    return a == b or abs(a - b) < 1e-7


@pytest.mark.parametrize(('door', 'layout'), WAYS)
def test_both_scorers_agree_on_random_records(tmp_path: Path, door: str, layout: str) -> None:
    made = records(40, seed=11)
    assert differences(made, DOORS[door](LAYOUTS[layout](made, tmp_path), 'p')) == []


@pytest.mark.study
@pytest.mark.parametrize(('door', 'layout'), WAYS)
def test_both_scorers_agree_on_a_thousand_records_per_door(tmp_path: Path, door: str, layout: str) -> None:
    made = records(1000, seed=2026)
    assert differences(made, DOORS[door](LAYOUTS[layout](made, tmp_path), 'p')) == []


def test_the_second_scorer_finds_what_is_there() -> None:
    """It is no oracle that always agrees: of 100 random records some violate each family, and some none."""
    margins = [Second(record).margins() for record in records(100, seed=3)]
    violated = {name for row in margins for name, margin in row.items() if margin < 0}
    assert len(violated) == 6
    assert any(all(m >= 0 for m in row.values()) for row in margins)
