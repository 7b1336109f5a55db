"""`robotrials gate`: exit codes, the comment, the numbers in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.verdict.analysis.pair import plain_store, rollouts, store_of

WIDE = ('--margin-success', 0.15, '--margin-time', 0.3)


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('gate')
    plain_store(path / 'base', 0.85, seed=1, n=120)
    plain_store(path / 'same', 0.85, seed=7, n=120)
    plain_store(path / 'bad', 0.4, seed=3, n=60)
    plain_store(path / 'few', 0.85, seed=5, n=5)
    return path


def test_exit_codes_say_pass_worse_not_enough_and_wrong_input(folder: Path) -> None:
    base = ('--baseline', folder / 'base')
    assert 'PASS: pi is no worse than the baseline on success and speed.' in robotrials(
        'gate', folder / 'same', *base, *WIDE
    )
    assert 'FAIL: pi is worse than the baseline on success' in robotrials('gate', folder / 'bad', *base, code=1)
    assert 'NOT SHOWN: not enough episodes: ' in robotrials('gate', folder / 'few', *base, code=3)
    assert 'same store' in robotrials('gate', folder / 'base', *base, code=2)
    assert "no endpoint 'sped'" in robotrials('gate', folder / 'same', *base, '--require', 'sped', code=2)
    assert "did you mean 'markdown'" in robotrials('gate', folder / 'same', *base, '--format', 'markdow', code=2)
    assert 'no such folder' in robotrials('gate', folder / 'none', *base, code=2)


def test_the_comment_is_short_markdown_and_says_how_to_repeat_it(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / 'deep' / 'comment.md'
    printed = robotrials('gate', folder / 'few', '-b', folder / 'base', '-f', 'markdown', '-o', out, code=3)
    text = out.read_text(encoding='utf-8')
    assert text in printed
    lines = text.splitlines()
    assert lines[0].startswith('**robotrials gate: NOT SHOWN: not enough episodes: ')
    assert sum(line.startswith('|') for line in lines) == 2 + 3
    assert len(lines) < 20
    for said in (
        'paired by start state',
        'Left out of pi (baseline): 345 without a partner.',
        'Safety: missing: candidate and baseline: no trajectory',
        'no plan, store',
        'Reproduce: `robotrials gate',
    ):
        assert said in text


def test_json_holds_the_numbers_of_the_text(folder: Path) -> None:
    base = ('--baseline', folder / 'base')
    found = json.loads(robotrials('gate', folder / 'few', *base, '-f', 'json', code=3))
    assert (found['verdict'], found['exit_code']) == ('NOT SHOWN', 3)
    text = ' '.join(robotrials('gate', folder / 'few', *base, code=3).split())
    assert found['headline'] in text
    success = found['endpoints'][0]
    assert f'{100 * success["low"]:+.1f} points' in text
    assert found['more_episodes']['total'] == found['more_episodes']['new'] + found['more_episodes']['reference']


def test_required_endpoints_alone_decide(folder: Path) -> None:
    printed = robotrials('gate', folder / 'same', '-b', folder / 'base', *WIDE, '--require', 'success,safety', code=3)
    assert 'NOT SHOWN: safety cannot be judged' in printed
    assert 'speed' not in printed.replace('--details', '')
    robotrials('gate', folder / 'same', '-b', folder / 'base', *WIDE, '--require', 'success')


def test_the_analysis_line_is_in_every_form_and_several_candidates_are_asked_for(folder: Path, tmp_path: Path) -> None:
    line = 'Analysis: none was declared, so the documented defaults apply, but for tau_s = 30. Used: tau 30 s; '
    for form in ('text', 'markdown', 'json'):
        asked = ('gate', folder / 'few', '-b', folder / 'base', '--tau', 30, '-f', form, '--details')
        printed = ' '.join(robotrials(*asked, code=3).split())
        assert line in printed.replace('\\_', '_')
    rng = np.random.default_rng(0)
    store_of(tmp_path / 's', rollouts(rng, 'x', 0.8, n=3), rollouts(rng, 'y', 0.8, n=3))
    assert 'name one with --policy' in robotrials('gate', tmp_path / 's', '-b', folder / 'base', code=2)


def test_where_narrows_both_stores(folder: Path) -> None:
    printed = robotrials(
        'gate', folder / 'same', '-b', folder / 'base', '--where', 'stratum=spoon', '-f', 'json', code=3
    )
    assert json.loads(printed)['cells'] == ['spoon']


def test_a_worse_endpoint_says_by_how_much_at_least(folder: Path) -> None:
    printed = robotrials('gate', folder / 'bad', '-b', folder / 'base', code=1)
    assert 'worse by at least' in printed


def test_a_worse_pace_whose_size_is_uncertain_is_not_given_a_negative_least_size() -> None:
    from robotrials.show.gate import finding_text
    from robotrials.verdict.analysis.gate import GateEndpoint, GateFinding

    slower = GateEndpoint(
        name='speed', measure='RMST(60 s)', finding=GateFinding.WORSE, margin=0.1, estimate=1.107, low=0.357, high=2.572
    )
    assert finding_text(slower) == 'worse, by an uncertain amount'


def test_names_do_not_break_the_comment(tmp_path: Path) -> None:
    from robotrials.record import Episode, Outcome, Store

    name = 'a|b`c`\n<script>*x*'
    for folder, longer_s in (('new', 0.0), ('old', 0.1)):
        store = Store.create(tmp_path / folder)
        store.append([
            Episode(
                policy=name, task='t|`\n', outcome=Outcome.SUCCESS, duration_s=5 + i + longer_s, seed=i, time_cap_s=30.0
            )
            for i in range(4)
        ])  # fmt: skip
    asked = ('gate', tmp_path / 'new', '-b', tmp_path / 'old', '--policy', name)
    printed = robotrials(*asked, '-f', 'markdown', code=3)
    assert '<script>' not in printed.replace('--policy', '').split('- Reproduce')[0]
    assert all(line.startswith(('**', '|', '- ')) for line in printed.splitlines() if line)
    assert '- Reproduce: ``robotrials gate' in printed
    assert 'in one cell (' in printed
    assert all(line == line.strip() or line.startswith(' ') for line in robotrials(*asked, code=3).splitlines())


def test_an_empty_choice_names_what_was_asked(folder: Path) -> None:
    printed = robotrials('gate', folder / 'few', '-b', folder / 'base', '--where', 'seed=999', code=2)
    assert 'no episode matches seed=999; see what there is with' in printed


def test_a_file_with_several_policies_is_named_as_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / 'r.csv'
    file.write_text('policy,task,success\n' + ''.join(f'{p},t,{k % 2}\n' for p in 'xy' for k in range(4)))
    printed = robotrials('gate', file, '-b', file, code=2)
    assert f'Error: {file}: wanted one policy as the candidate, found 2 (x, y)' in ' '.join(printed.split())
