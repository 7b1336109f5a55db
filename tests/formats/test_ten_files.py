"""Ten files that a lab has, each imported by one command."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.cli.command import robotrials

from robotrials.record import Episode, EventKind, Outcome, Store

DATA = Path(__file__).with_name('data')
LOG = 'EVAL-libero_spatial-openvla_oft-2026_05_12-10_11_12--joint.txt'


def imported(tmp_path: Path, name: str, *options: str) -> tuple[list[Episode], str]:
    printed = robotrials('import', DATA / name, '--to', tmp_path / 'store', *options)
    assert '0 already there' in printed
    store = Store.open(tmp_path / 'store')
    again = robotrials('import', DATA / name, '--to', tmp_path / 'store', *options)
    assert f'0 episodes added, {store.count()} already there' in again
    return list(store.episodes()), printed


def outcomes(episodes: list[Episode]) -> dict[str, int]:
    return dict(Counter(e.outcome.value for e in episodes))


def test_a_table_with_steps_and_seeds(tmp_path: Path) -> None:
    episodes, printed = imported(tmp_path, 'steps.csv')
    assert (len(episodes), outcomes(episodes)) == (40, {'success': 25, 'failure': 15})
    assert all(e.duration_s is None and e.steps is not None and e.seed is not None for e in episodes)
    assert all(e.instance is None for e in episodes)
    assert '15 failures end at exactly 300 steps: a cap? --set step_cap=300' in printed
    assert '--rate-hz N turns them into seconds' in printed


def test_a_rate_and_a_cap_turn_steps_into_seconds_and_time_outs(tmp_path: Path) -> None:
    episodes, printed = imported(tmp_path, 'steps.csv', '--rate-hz', '20', '--set', 'step_cap=300')
    assert outcomes(episodes) == {'success': 25, 'timeout': 15}
    assert all(e.duration_s == (e.steps or 0) / 20 and e.time_cap_s == 15.0 for e in episodes)
    assert 'a cap?' not in printed


def test_counts_become_episodes_without_start_or_time(tmp_path: Path) -> None:
    episodes, printed = imported(tmp_path, 'counts.csv')
    wins = Counter((e.policy, e.task) for e in episodes if e.is_success)
    assert wins == {('act', 'pick'): 11, ('act', 'place'): 7, ('pi0', 'pick'): 17, ('pi0', 'place'): 14}
    assert len(episodes) == 80
    assert {dict(e.labels)['from'] for e in episodes} == {'counts'}
    assert {(e.seed, e.instance, e.duration_s, e.steps, e.repeat) for e in episodes} == {(None, None, None, None, 0)}
    assert 'nothing is paired or timed' in printed


def test_a_german_protocol(tmp_path: Path) -> None:
    episodes, printed = imported(tmp_path, 'protokoll.csv')
    assert [(e.policy, e.outcome.value, e.duration_s) for e in episodes] == [
        ('act', 'failure', 120.0), ('act', 'success', 83.0), ('pi05', 'success', 58.0), ('pi05', 'failure', 120.0),
    ]  # fmt: skip
    assert [e.score for e in episodes] == pytest.approx([0.667, 1, 1, 0.333])
    assert {e.max_score for e in episodes} == {1.0}
    assert episodes[3].reason == ''
    assert "'66,7%' is 0.667" in printed


def test_an_export_with_a_byte_order_mark_and_decimal_commas(tmp_path: Path) -> None:
    episodes, _ = imported(tmp_path, 'excel-export.csv')
    assert [e.score for e in episodes] == pytest.approx([0.835, 1.0, 0.5, 1.0])
    assert [e.duration_s for e in episodes] == [41.2, 38.0, 60.0, 59.5]
    assert [e.outcome.value for e in episodes] == ['failure', 'success', 'failure', 'success']


def test_nested_lines(tmp_path: Path) -> None:
    episodes, _ = imported(tmp_path, 'nested.jsonl')
    assert {(e.policy, e.task) for e in episodes} == {('pi05', 'stack blocks')}
    assert [e.seed for e in episodes] == [100, 101, 102, 103, 104, 105]
    assert episodes[0].labels['run.policy.ckpt'] == 'step_30000'


def test_eval_info_of_lerobot(tmp_path: Path) -> None:
    episodes, printed = imported(tmp_path, 'eval_info.json', '--set', 'policy=smolvla')
    assert outcomes(episodes) == {'success': 4, 'failure': 2}
    assert {e.labels['from'] for e in episodes} == {'counts'}
    assert 'nothing is paired' in printed


def test_one_row_per_item(tmp_path: Path) -> None:
    episodes, _ = imported(tmp_path, 'items.csv', '--group-by', 'policy,task,episode')
    assert [(e.items, e.items_placed, e.items_lost) for e in episodes] == [
        (4, 3, 1), (4, 4, 0), (4, 3, 0), (4, 4, 0), (4, 4, 0), (4, 3, 0),
    ]  # fmt: skip
    assert [e.kind for e in episodes[0].events].count(EventKind.DROP_OUTSIDE) == 1
    assert episodes[1].outcome is Outcome.SUCCESS


def test_items_without_groups_are_asked_for(tmp_path: Path) -> None:
    failed = robotrials('import', DATA / 'items.csv', '--to', tmp_path / 's', code=2)
    assert 'One row per item? --group-by policy,task,episode' in failed


def test_lists_of_placement_times(tmp_path: Path) -> None:
    episodes, printed = imported(tmp_path, 'placements.csv')
    assert [e.outcome.value for e in episodes] == ['success', 'failure', 'failure', 'failure']
    assert '3 failures end at exactly 60 s: a time cap? --set time_cap_s=60' in printed
    assert [len(e.events) for e in episodes] == [4, 3, 3, 2]


def test_a_spreadsheet_with_merged_headings(tmp_path: Path) -> None:
    episodes, printed = imported(tmp_path, 'results.xlsx')
    assert [(e.policy, e.stratum, e.outcome.value, e.duration_s) for e in episodes] == [
        ('act', 'cup', 'success', 31.5), ('act', 'towel', 'failure', 60.0), ('pi05', 'cup', 'success', 22.0),
        ('pi05', 'towel', 'failure', 60.0),
    ]  # fmt: skip
    assert "sheet 'Results'" in printed
    assert 'lines above the header' in printed


def test_a_text_log(tmp_path: Path) -> None:
    episodes, printed = imported(tmp_path, LOG)
    assert outcomes(episodes) == {'success': 5, 'failure': 2, 'invalid': 1}
    assert {(e.policy, e.benchmark) for e in episodes} == {('openvla_oft--joint', 'libero-spatial')}
    assert sorted(e.instance or 0 for e in episodes) == [0, 0, 1, 1, 2, 2, 3, 3]
    (broken,) = [e for e in episodes if not e.is_valid]
    assert broken.reason == 'CUDA error: out of memory'
    assert 'counts episodes that broke as failures' in printed


def test_the_source_and_the_account_are_in_the_provenance(tmp_path: Path) -> None:
    episodes, _ = imported(tmp_path, 'results.xlsx')
    provenance = Store.open(tmp_path / 'store').provenance(episodes[0].provenance_id)
    assert provenance.imported is not None
    assert (provenance.imported.format, provenance.imported.source) == ('table', 'results.xlsx')
    assert len(provenance.imported.sha256) == 64
    assert '2 episodes: failure' in provenance.imported.kept
    assert '2 lines above the header: no row of the table' in provenance.imported.dropped
    robotrials('store', 'verify', tmp_path / 'store')  # exit code 0: whole


def test_a_mapping_is_saved_and_used_again(tmp_path: Path) -> None:
    first = tmp_path / 'may.csv'
    first.write_text('who,what,ok,secs\nact,pick,1,3\n')
    mapping = tmp_path / 'map.json'
    options = ('--map', 'policy=who', '--map', 'task=what', '--map', 'success=ok', '--map', 'duration_s=secs')
    robotrials('import', first, '--dry-run', *options, '--save-map', mapping)
    assert json.loads(mapping.read_text())['map']['policy'] == 'who'
    second = tmp_path / 'june.csv'
    second.write_text('who,what,ok,secs\npi0,pick,0,9\n')
    robotrials('import', second, '--to', tmp_path / 's', '--map-file', mapping)
    (episode,) = Store.open(tmp_path / 's').episodes()
    assert (episode.policy, episode.duration_s) == ('pi0', 9.0)


def test_a_dry_run_prints_the_record_and_writes_nothing(tmp_path: Path) -> None:
    printed = robotrials('import', DATA / 'steps.csv', '--to', tmp_path / 's', '--dry-run')
    assert '40 episodes, the first 10' in printed
    assert not (tmp_path / 's').exists()


def test_the_list_names_every_format() -> None:
    printed = robotrials('import', '--list')
    for name in ('table', 'vla-eval', 'lerobot-eval', 'libero-log', 'safevla', 'simpler-env', 'calvin', 'inspect'):
        assert name in printed
