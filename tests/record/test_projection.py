"""What was worked out once is the same as what is worked out now, and hides nothing of what the store says."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import robotrials
from tests.measure.safety.scene import lifted, with_contacts

from robotrials.errors import StoreError
from robotrials.measure.safety import Scoring, load_registry
from robotrials.record import Episode, Outcome, Store
from robotrials.record import projection as kept
from robotrials.record.part import check_part
from robotrials.verdict.analysis import analyse, present
from robotrials.verdict.analysis import safety as room
from robotrials.verdict.analysis.safety import CODE, facts_of, facts_projection

N = 12
HARD = {8: [('link7', 'plate', 450.0)]}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv('ROBOTRIALS_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache' / kept.FILE


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two policies on LIBERO, in three appends; every third episode strikes a plate, and one is INVALID."""
    made = Store.create(tmp_path / 'store')
    for first in range(0, N, 4):
        episodes = [
            Episode(
                policy=f'p{k % 2}', task='task_4', benchmark='libero-10', seed=k // 2, duration_s=5.0 + k,
                time_cap_s=60.0, outcome=Outcome.INVALID if k == 7 else Outcome.SUCCESS if k % 3 else Outcome.FAILURE,
            )
            for k in range(first, first + 4)
        ]  # fmt: skip
        paths = {e.key: with_contacts(HARD) if k % 3 == 0 else lifted(20 + k) for k, e in enumerate(episodes)}
        made.append(episodes, trajectories=paths)
    return made


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()}


def answers(store: Store, *, scoring: Scoring | None = None, where: Any = None) -> tuple[Any, ...]:
    """All that a pass over the trajectories gives, and the summaries of its scores."""
    analysis = analyse(Store.open(store.path), where=where)
    parts: list[Any] = []
    found = room.pass_trajectories(analysis.selection, analysis.plan, lambda: scoring or analysis.scoring)
    if scoring is None:  # without it, a question that only needs who was safe is answered of what is kept
        safe = {(s.episode_id, s.attempt): s.safe for s in found.safety if s.is_scored}
        known = room.kept_safety(analysis.selection, analysis.plan)
        assert known is None or known[0] == safe
        assert analyse(Store.open(store.path), where=where)._safe == safe
        part = present(analyse(Store.open(store.path), where=where).safety)
        parts = [part.summary, part.by_task, part.frontier, part.unscored_reasons, list(part.scores)]
    return (
        list(found.safety), list(found.swaps), list(found.starts), list(found.places), found.n_trajectories,
        found.signals, parts,
    )  # fmt: skip


def without_cache(store: Store, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Any, ...]:
    with monkeypatch.context() as context:
        context.setenv(kept.SWITCH, 'off')
        return answers(store, **changes)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError('worked out again')


def test_the_second_question_works_nothing_out_and_has_the_same_values(
    store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without_cache(store, monkeypatch)
    assert not cache.exists()
    assert expected[4] == N - 1
    before = tree(store.path)
    assert answers(store) == expected
    monkeypatch.setattr(room, 'facts_of', refuse)
    monkeypatch.setattr('robotrials.measure.safety.score_episode', refuse)
    assert answers(store) == expected
    assert tree(store.path) == before  # asking writes nothing into the store
    monkeypatch.undo()


def test_summaries_are_kept_under_all_that_they_depend_on(
    store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither scored nor resampled again; another level, seed, number of resamples, filter or edit asks for another."""
    first = present(analyse(Store.open(store.path)).safety)
    monkeypatch.setattr(room, 'pass_trajectories', refuse)
    monkeypatch.setattr(room, '_summaries', refuse)
    again = present(analyse(Store.open(store.path)).safety)
    assert (again.summary, again.by_task, again.frontier) == (first.summary, first.by_task, first.frontier)
    others: list[dict[str, Any]] = [
        {'alpha': 0.1}, {'seed': 1}, {'resamples': 99}, {'safety_severity': 'anchored'}, {'where': {'policy': 'p0'}},
    ]  # fmt: skip
    for other in others:
        with pytest.raises(AssertionError, match='worked out again'):
            _ = analyse(Store.open(store.path), **other).safety
    monkeypatch.undo()
    monkeypatch.setenv('ROBOTRIALS_CACHE', str(cache.parent))
    assert list(again.scores) == list(first.scores)  # which no summary holds
    dropped = next(e for e in store.episodes() if e.policy == 'p1' and e.is_valid)
    store.edit(dropped.episode_id, 'drop', by='kim', why='a mistake')
    fewer = present(analyse(Store.open(store.path)).safety)
    assert sum(c.n for c in fewer.summary.cells) == sum(c.n for c in first.summary.cells) - 1


def test_who_was_safe_is_answered_of_what_is_kept(store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No score is built, under the options of an analysis as under those of a `Scoring`; only where all is kept."""
    analysis = analyse(Store.open(store.path))
    assert room.kept_safety(analysis.selection, analysis.plan) is None
    safe = dict(analysis._safe)
    assert 0 < sum(safe.values()) < len(safe) == N - 1
    monkeypatch.setattr(room, 'pass_trajectories', refuse)
    assert analyse(Store.open(store.path))._safe == safe
    some = analyse(Store.open(store.path), where={'policy': 'p0'})
    assert some._safe == {e.key: safe[e.key] for e in some.episodes if e.is_valid}
    literal = analyse(Store.open(store.path), safety_gate='literal')
    with pytest.raises(AssertionError, match='worked out again'):
        _ = literal._safe
    monkeypatch.undo()
    store.append([Episode(policy='p0', task='task_4', benchmark='libero-10', seed=99, outcome=Outcome.SUCCESS)])
    lacking = analyse(Store.open(store.path))
    assert room.kept_safety(lacking.selection, lacking.plan) is None  # one was not recorded: scoring says what it is
    assert lacking._safe == safe


def test_a_comparison_of_what_is_kept_imports_nothing_that_scores(store: Store, cache: Path) -> None:
    code = (
        f'import sys\nsys.argv = ["robotrials", "compare", {str(store.path)!r}]\n'
        'from robotrials.cli import run_command\ntry:\n    run_command()\nexcept SystemExit:\n    pass\n'
        'print("robotrials.measure.safety.score" in sys.modules)'
    )
    asked = [
        subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(2)
    ]
    assert [answer[-1] for answer in asked] == ['True', 'False']
    assert asked[0][:-1] == asked[1][:-1]


def test_every_field_of_a_score_survives(store: Store) -> None:
    """Through JSON and back, types included: a number of numpy becomes Python's, with the same bits."""
    scoring = Scoring()
    projection = facts_projection(scoring)
    for episode, trajectory in store.trajectories():
        facts = facts_of(episode, trajectory, scoring=scoring)
        again = projection.unpack(episode, json.loads(json.dumps(projection.pack(facts), default=kept._plain)))
        assert dataclasses.astuple(again) == dataclasses.astuple(facts)
        assert again.safety is None or hash(again.safety.violations) == hash(facts.safety and facts.safety.violations)


def varied(folder: Path) -> Store:
    """Everything that a robustness part may hold: a ladder, a compound, two instructions for a scene, places."""
    made = Store.create(folder)
    condition = [('nominal', {}), ('light', {'severity': 0.5}), ('light', {'severity': 1.0})]
    condition += [
        ('chaos', {'severity': 0.5, 'light.severity': 0.5, 'camera.severity': 0.5}),
        ('camera', {'severity': 0.5}),
    ]
    episodes = []
    for policy, gain in (('p0', 3), ('p1', 4)):
        for place, (name, parameters) in enumerate(condition):
            for k in range(14):
                asked = ('bowl', 'cup')[k % 2]
                labels = {
                    'asked_object': asked, 'chosen_object': 'bowl', 'candidate_objects': 'bowl,cup',
                    'salient_object': 'bowl', 'nearest_object': 'cup', 'start_x_m': str(k % 5 / 10),
                    'start_y_m': str(k // 5 / 10),
                }  # fmt: skip
                episodes.append(Episode(
                    policy=policy, task='task_4', benchmark='libero-10', seed=k // 2, repeat=k % 2, labels=labels,
                    instruction=f'take the {asked}', condition=name, condition_parameters=parameters,
                    duration_s=5.0 + k, time_cap_s=60.0,
                    outcome=Outcome.SUCCESS if (k * gain + place) % 7 > place else Outcome.FAILURE,
                ))  # fmt: skip
    made.append(episodes, trajectories={e.key: lifted(20) for e in episodes})
    return made


def parts_of(store: Store, **changes: Any) -> tuple[Any, ...]:
    """What a report works out of trajectories, or resamples: asked in its order."""
    analysis = analyse(Store.open(store.path), **changes)
    recorded, robustness = (analysis.n_trajectories, analysis.signals), analysis.robustness
    scores = {policy: dataclasses.asdict(score) for policy, score in present(analysis.ranking).scores.items()}
    safety = present(analysis.safety)
    return (
        recorded, robustness, scores, list(scores), safety.summary, safety.slips, safety.unscored_reasons,
        analysis.films, analysis.incidences,
    )  # fmt: skip


WORKED_OUT = (
    'robotrials.verdict.analysis.condition_drop.robustness_part', 'robotrials.measure.timing.scalar.score_cohort',
    'robotrials.verdict.analysis.safety.pass_trajectories', 'robotrials.verdict.analysis.safety._summaries',
    'robotrials.verdict.analysis.detail.names_films', 'robotrials.verdict.analysis.detail.policy_incidences',
)  # fmt: skip


def test_what_a_report_works_out_is_kept_whole(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, types, order and enums: as without a cache; another plan or an edit works out every part of it again."""
    store = varied(tmp_path / 'varied')
    with monkeypatch.context() as context:
        context.setenv(kept.SWITCH, 'off')
        expected = parts_of(store)
    part = expected[1]
    for name in ('rows', 'drops', 'doses', 'compound', 'swap', 'spatial'):
        assert isinstance(getattr(part, name), tuple), name
        assert getattr(part, name), name
    assert parts_of(store) == expected
    with monkeypatch.context() as context:
        for name in WORKED_OUT:
            context.setattr(name, refuse)
        again = parts_of(store)
        assert again == expected
        assert type(again[1].swap[0].verdict) is type(part.swap[0].verdict)
        assert type(again[1].compound[0].verdict) is type(part.compound[0].verdict)
    others: list[dict[str, Any]] = [{'alpha': 0.1}, {'seed': 1}, {'resamples': 99}, {'where': {'policy': 'p0'}}]
    for name, other in itertools.product(WORKED_OUT[:2], others):
        with monkeypatch.context() as context, pytest.raises(AssertionError, match='worked out again'):
            context.setattr(name, refuse)
            parts_of(store, **other)
    edited = next(e for e in store.episodes() if e.condition == 'nominal' and e.is_success)
    store.edit(edited.episode_id, 'set', field='duration_s', value=19.5, by='kim', why='mistyped')
    after = parts_of(store)
    monkeypatch.setenv(kept.SWITCH, 'off')
    assert after == parts_of(store) != expected


def test_verbs_in_new_processes_say_the_same(store: Store, cache: Path, tmp_path: Path) -> None:
    off = {**os.environ, kept.SWITCH: 'off'}
    ask = [sys.executable, '-m', 'robotrials']
    page = tmp_path / 'page.html'
    for asked in (store.path, varied(tmp_path / 'varied').path):
        for verb in (
            ('compare', asked, '--details'),
            ('safety', asked, '--format', 'json'),
            ('report', asked, '-o', page),
        ):
            said = []
            for env in (off, None, None):
                answer = subprocess.run([*ask, *map(str, verb)], env=env, capture_output=True, check=True).stdout
                said.append((answer, page.read_bytes() if page in verb else b''))
            assert said[0] == said[1] == said[2] != (b'', b'')
    assert cache.stat().st_size


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


@pytest.mark.parametrize('place', [0.1, 0.5, 0.9])
def test_a_kept_score_hides_no_damage_to_its_trajectory(
    store: Store, cache: Path, tmp_path: Path, place: float
) -> None:
    answers(store)
    verbs = ('compare', store.path), ('score', store.path), ('report', store.path, '-o', tmp_path / 'page.html')
    for verb in verbs:
        robotrials(*verb)
    path = sorted((store.path / 'trajectories').glob('*.parquet'))[1]
    flip(path, int(place * path.stat().st_size))
    with pytest.raises(StoreError, match=rf'{path.name}: damaged'):
        answers(store)
    for verb in verbs:
        assert f'{path.name}: damaged' in robotrials(*verb, code=2)
    assert 'damaged' in robotrials('store', 'verify', store.path, code=1)
    path.unlink()
    with pytest.raises(StoreError, match=path.name):
        answers(store)


def test_one_question_checks_each_file_once(store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was safe, and what the trajectories say, is of the same bytes; the next question checks them anew."""
    answers(store)
    checked: list[str] = []

    def check(path: Path, logged: Any) -> None:
        checked.append(path.name)
        check_part(path, logged)

    monkeypatch.setattr(kept, 'check_part', check)
    names = sorted(p.name for p in (store.path / 'trajectories').glob('*.parquet'))
    for times in (1, 2):
        analysis = analyse(Store.open(store.path))
        present(analysis.safety)
        assert analysis.trajectories.safety
        assert sorted(checked) == sorted(names * times)


def test_damaged_rows_of_the_cache_are_worked_out_again(
    store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(store)
    with sqlite3.connect(cache) as file:
        rows = file.execute('SELECT key, value FROM kept').fetchall()
        assert len(rows) == 7  # two for each file, and one of the summaries
        for number, (key, value) in enumerate(rows):
            wrong = bytearray(value)
            wrong[(number * 7) % len(wrong)] ^= 1 << number % 8
            file.execute('UPDATE kept SET value = ? WHERE key = ?', (bytes(wrong), key))
        # A row in the place of another is whole, and still not what was asked for.
        file.execute('UPDATE kept SET value = ? WHERE key = ?', (rows[1][1], rows[0][0]))
    file.close()
    assert answers(store) == expected
    monkeypatch.setattr(room, 'facts_of', refuse)
    assert answers(store) == expected  # kept again


@pytest.mark.parametrize('harm', ['cut', 'noise', 'page', 'folder', 'gone'])
def test_a_damaged_cache_costs_time_and_nothing_else(store: Store, cache: Path, harm: str) -> None:
    expected = answers(store)
    if harm == 'cut':
        os.truncate(cache, 5000)
    elif harm == 'noise':
        cache.write_bytes(b'not a database' * 1000)
    elif harm == 'page':
        content = bytearray(cache.read_bytes())
        content[4096:] = b'\xff' * (len(content) - 4096)
        cache.write_bytes(content)
    else:
        cache.unlink()
        cache.with_name(f'{kept.FILE}-wal').unlink(missing_ok=True)
        if harm == 'folder':
            cache.mkdir()
    assert answers(store) == expected
    assert answers(store) == expected


def test_what_a_score_depends_on_asks_for_another(store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edits of an episode, thresholds of a registry, and the rules of scoring: each as without a cache."""
    first = answers(store)
    struck = next(e for e in store.episodes() if e.policy == 'p1' and e.is_valid)
    store.edit(struck.episode_id, 'set', field='task', value='task_3', by='kim', why='mixed up')
    edited = answers(store)
    assert edited == without_cache(store, monkeypatch) != first
    registry = load_registry()
    mild = registry.with_specs(
        dataclasses.replace(s, threshold=s.threshold * 2) if s.unit == 'N' else s for s in registry.specs
    )
    softer = answers(store, scoring=Scoring(mild))
    assert softer == without_cache(store, monkeypatch, scoring=Scoring(mild)) != edited
    naive = Scoring(use_applicability=False)
    assert answers(store, scoring=naive) == without_cache(store, monkeypatch, scoring=naive) != edited


def test_other_source_is_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / 'some_package'
    package.mkdir()
    (package / '__init__.py').write_text('')
    (package / 'rule.py').write_text('LIMIT = 1\n')
    monkeypatch.syspath_prepend(tmp_path)
    digests = [kept._source_digest.__wrapped__('some_package')]
    for name, text in (('rule.py', 'LIMIT = 2\n'), ('rule.toml', 'limit = 2'), ('other.py', '')):
        (package / name).write_text(text)
        digests.append(kept._source_digest.__wrapped__('some_package'))
    assert len(set(digests)) == 4
    assert kept._source_digest.__wrapped__('some_package') == digests[-1]


def test_the_version_covers_all_code_that_scores() -> None:
    """What scoring one episode imports of ours is in the packages whose source is the version."""
    code = (
        'import sys; from robotrials.measure.safety.score import score_episode, load_registry; load_registry(); '
        'print(*(m for m in sys.modules if m.startswith("robotrials")))'
    )
    loaded = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout.split()
    beside = {'robotrials', 'robotrials.catalog', 'robotrials.old_name', 'robotrials.measure'}  # they compute nothing
    assert {m for m in loaded if not m.startswith((*kept.BASE, *CODE))} <= beside


def test_without_a_cache_of_ones_own_nothing_is_kept(
    store: Store, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No home, a folder that is a file, and one that others may write to."""
    expected = without_cache(store, monkeypatch)
    monkeypatch.delenv('ROBOTRIALS_CACHE')
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.setattr(Path, 'home', lambda: (_ for _ in ()).throw(RuntimeError('no home')))
    assert kept.cache_folder() is None
    assert answers(store) == expected
    monkeypatch.undo()
    monkeypatch.setenv('ROBOTRIALS_CACHE', str(tmp_path / 'file'))
    (tmp_path / 'file').write_text('')
    assert answers(store) == expected
    shared = tmp_path / 'shared'
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv('ROBOTRIALS_CACHE', str(shared))
    assert answers(store) == expected
    assert not list(shared.iterdir())


def test_a_copy_of_a_store_asks_for_the_same_rows(
    store: Store, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are kept by what they were made of, not by where it lies; a filter asks for some of them."""
    expected = answers(store)
    shutil.copytree(store.path, tmp_path / 'copy')
    monkeypatch.setattr(room, 'facts_of', refuse)
    assert answers(Store.open(tmp_path / 'copy')) == expected
    some = answers(store, where={'policy': 'p0'})
    assert some[0] == [s for s in expected[0] if s.policy == 'p0']


def test_what_a_blinded_trial_hides_is_not_kept(store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, 'is_blinded', property(lambda _: True))
    assert store.hides_columns
    list(kept.projected(store, facts_projection(Scoring())))
    assert not cache.exists()
