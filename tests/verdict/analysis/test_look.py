"""Looks at an open trial are counted, said and logged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import robotrials

from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.verdict.analysis import analyse


def open_trial(path: Path, *, rule: str = 'none') -> Store:
    plan = json.dumps({'stopping': {'rule': rule}, 'blinding': {'enabled': False}})
    store = Store.create(path, trial_id='t', plan_hash='h', plan=plan)
    store.append(
        Episode(
            policy=p, task='pick', seed=k, trial_id='t', outcome=Outcome.SUCCESS if (k + n) % 3 else Outcome.FAILURE,
            duration_s=2.0 + k, time_cap_s=60.0,
        )
        for n, p in enumerate(('a', 'b')) for k in range(12)
    )  # fmt: skip
    return store


def test_every_verb_on_an_open_trial_says_that_it_is_a_look_and_logs_it(tmp_path: Path) -> None:
    store = open_trial(tmp_path / 's')
    assert 'this is an interim look; 1 interim look on record' in ' '.join(
        robotrials('score', store.path, '--resamples', 20).split()
    )
    said = ' '.join(robotrials('compare', store.path, '--resamples', 20).split())
    assert 'this is an interim look; 2 interim looks on record' in said
    assert 'no declared rule allows stopping by results' in said
    looks = read_store(store.path).looks()
    assert [look.verb for look in looks] == ['score', 'compare']
    assert looks[0].options == {'resamples': '20'}
    assert looks[0].by  # who looked


def test_a_declared_rule_is_named(tmp_path: Path) -> None:
    store = open_trial(tmp_path / 's', rule='sequential')
    assert 'the declared rule (sequential) allows stopping by `robotrials watch`' in analyse(store).statement


def test_a_store_that_cannot_be_written_to_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_trial(tmp_path / 's')
    monkeypatch.setattr(Store, 'log_look', lambda *arguments, **options: False)
    assert 'it is unlogged' in robotrials('score', store.path, '--resamples', 20)


def test_episodes_without_a_plan_are_no_look(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([Episode(policy='a', task='t', outcome=Outcome.SUCCESS, duration_s=1.0)])
    assert 'look' not in analyse(store).statement
    robotrials('score', store.path, '--resamples', 20)
    assert read_store(store.path).looks() == ()
