"""Reported scores from a file: every mistake is named with its line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from robotrials.errors import InputError, NotEstimable
from robotrials.verdict.audit.reported import ScoreKind, best_score, foundation_score, of_protocol, read_reported

GOOD = """policy,parameters,score,unit,protocol,kind,source
OpenVLA,7B,84.7,percent,libero-spatial,foundation,arXiv 2406.09246
pi0+T-MEE,2.3B,99.8,percent,libero-spatial,other,a paper
with rewards,7B,99.9,percent,libero-spatial,rl-finetuned,a paper
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / 'scores.csv'
    path.write_text(text, encoding='utf-8')
    return path


def test_the_best_is_the_highest_without_reinforcement_learning(tmp_path: Path) -> None:
    scores = of_protocol(read_reported(written(tmp_path, GOOD)), 'libero-spatial')
    best, foundation = best_score(scores, 1), foundation_score(scores)
    assert best is not None
    assert foundation is not None
    assert (best.policy, foundation.policy) == ('pi0+T-MEE', 'OpenVLA')
    assert best.mean(1) == Fraction(998, 1000)
    assert [s.kind for s in scores] == [ScoreKind.FOUNDATION, ScoreKind.OTHER, ScoreKind.RL_FINETUNED]


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        (('84.7', '184.7'), 'line 2: score is 184.7, wanted 0 to 100'),
        (('84.7', 'high'), 'line 2: score'),
        (('84.7', 'nan'), 'line 2: score'),
        (('99.8,percent', '99.8,percents'), "line 3: unit is 'percents'"),
        (('other', 'others'), "line 3: kind is 'others'.*did you mean 'other'"),
        (('unit', 'units'), "line 1: no column 'unit'"),
        (('source', 'sauce'), "line 1: no column is called 'sauce': did you mean 'source'"),
        (('pi0+T-MEE', 'OpenVLA'), 'line 3: OpenVLA on libero-spatial stands in .* line 2 too'),
        (('pi0+T-MEE', ''), 'line 3: policy is empty'),
        (('arXiv 2406.09246', 'arXiv, 2406'), 'line 2: the number of cells'),
        (('84.7', '84.7%'), "line 2: score is '84.7%'"),
        (('84.7', '1e-999999999'), 'line 2: score is'),
        (('84.7', '8_4'), "line 2: score is '8_4'"),
        (('pi0+T-MEE', 'openvla'), 'line 3: openvla on libero-spatial stands in .* line 2 too'),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_reported(written(tmp_path, GOOD.replace(*change, 1)))


@pytest.mark.parametrize(
    ('tasks', 'samples', 'said'),
    [('9' * 5000, '50', 'wanted a whole number'), ('10', '', 'wanted both or neither'), ('²', '5', 'a whole number')],
)
def test_counts_behind_a_score_are_whole_and_come_together(tmp_path: Path, tasks: str, samples: str, said: str) -> None:
    text = f'policy,score,unit,kind,tasks,samples\na,90,percent,other,{tasks},{samples}\n'
    with pytest.raises(InputError, match=said):
        read_reported(written(tmp_path, text))


@pytest.mark.parametrize('sign', [';', '\t'])
def test_another_separator_is_named(tmp_path: Path, sign: str) -> None:
    with pytest.raises(InputError, match='wanted commas'):
        read_reported(written(tmp_path, GOOD.replace(',', sign)))


def test_a_row_without_a_protocol_is_not_left_out(tmp_path: Path) -> None:
    """It could be the best, and the probe would stand nearer to what is left."""
    scores = read_reported(written(tmp_path, GOOD + 'nobody,1B,100.0,percent,,other,a paper\n'))
    with pytest.raises(InputError, match='line 5: nobody names no protocol'):
        of_protocol(scores, 'libero-spatial')


def test_two_foundation_policies_are_refused(tmp_path: Path) -> None:
    scores = read_reported(written(tmp_path, GOOD.replace('other', 'foundation')))
    with pytest.raises(InputError, match='mark the most cited one'):
        foundation_score(scores)


def test_an_unknown_protocol_suggests_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'libero-spatial'"):
        of_protocol(read_reported(written(tmp_path, GOOD)), 'libero-spacial')


def test_no_rows_and_no_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotEstimable, match='no rows'):
        read_reported(written(tmp_path, GOOD.splitlines()[0] + '\n'))
    with pytest.raises(InputError, match='cannot be read'):
        read_reported(tmp_path / 'absent.csv')


def test_a_score_above_the_full_one_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace('84.7,percent', '5.2,score')
    with pytest.raises(InputError, match='more than the full score of 5'):
        read_reported(written(tmp_path, text))[0].mean(5)
