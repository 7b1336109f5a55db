"""Once a trial is closed its outcome is known: an edit then needs a second person, and every number says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import robotrials, words

from robotrials.record import Episode, Store, Unblinding
from robotrials.record.blinding import write_unblinding
from robotrials.record.maintain import merge_stores
from robotrials.verdict.analysis import analyse

CLOSING = Unblinding(trial_id='may', by='kim', at='2026-01-01', policies={'A': 'act', 'B': 'pi'})


def made(path: Path) -> Store:
    store = Store.create(path, trial_id='may')
    store.append(
        Episode(
            trial_id='may', policy=policy, task='t', outcome='success' if seed % 2 else 'failure', duration_s=4.0,
            time_cap_s=9.0, seed=seed,
        )
        for policy in 'AB'
        for seed in range(8)
    )  # fmt: skip
    return store


def failed(store: Store, policy: str) -> str:
    return next(e.episode_id for e in store.episodes() if e.policy == policy and not e.is_success)


@pytest.fixture
def closed(tmp_path: Path) -> Store:
    store = made(tmp_path / 's')
    store.edit(failed(store, 'A'), 'set', by='ana', why='seen again', field='outcome', value='success')
    write_unblinding(store.path, CLOSING)
    return store


def edit(store: Store, episode_id: str, *options: str, code: int = 0) -> str:
    arguments = ('set', 'outcome=success', '--by', 'ana', '--why', 'seen again', *options)
    return robotrials('store', 'edit', store.path, episode_id, *arguments, code=code)


def test_an_edit_after_closing_needs_a_second_person(closed: Store) -> None:
    episode_id, head = failed(closed, 'pi'), closed.head()
    told = edit(closed, episode_id, code=2)
    assert 'the trial was closed by kim at 2026-01-01; an edit after closing needs a second name' in told
    assert 'ana cannot approve an edit of ana' in edit(closed, episode_id, '--approved-by', ' Ana ', code=2)
    for disguise in (
        'a\u200bna',
        '\uff41\uff4e\uff41',
        'ana\u00a0',
    ):  # what cannot be seen, wide letters, a space that does not break
        assert 'cannot approve an edit of ana' in edit(closed, episode_id, '--approved-by', disguise, code=2)
    assert closed.head() == head
    edit(closed, episode_id, '--approved-by', 'kim')
    assert closed.late_edits()[0].approved_by == 'kim'


def test_what_was_edited_before_closing_is_not_called_late(closed: Store) -> None:
    assert closed.late_edits() == ()
    assert 'POST-CLOSING' not in robotrials('score', closed.path)


@pytest.mark.parametrize('verb', ['score', 'compare', 'report'])
def test_numbers_say_what_they_were_at_the_closing(closed: Store, verb: str, tmp_path: Path) -> None:
    edit(closed, failed(closed, 'pi'), '--approved-by', 'kim')
    output = tmp_path / 'r.md'
    told = ' '.join(robotrials(verb, closed.path, *(('--output', output) if verb == 'report' else ())).split())
    told += output.read_text() if output.exists() else ''
    assert 'POST-CLOSING: 1 edit after the trial was closed: ana, approved by kim (1).' in told
    assert 'pi: 4 of 8 succeeded, 4.0 s on average at the closing, 5 of 8 succeeded, 4.0 s on average now' in told


def test_a_clock_that_was_put_back_does_not_hide_an_edit(closed: Store, tmp_path: Path) -> None:
    """An edit in a copy that was made before the closing, merged in afterwards, is not what the closing knew."""
    copy = made(tmp_path / 'copy')
    edited = copy.edit(failed(copy, 'B'), 'set', by='eve', why='x', field='outcome', value='success')
    merge_stores(closed.path, copy.path)
    assert [e.by for e in closed.late_edits()] == ['eve']
    told = words('score', closed.path)
    assert 'eve, approved by nobody (1)' in told
    assert edited.approved_by == ''


def test_it_is_among_the_cautions_that_a_board_shows(closed: Store) -> None:
    edit(closed, failed(closed, 'pi'), '--approved-by', 'kim')
    assert any('POST-CLOSING: 1 edit' in caution for caution in analyse(closed.path).cautions)
