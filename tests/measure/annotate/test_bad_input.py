"""Settings, scales, telemetry and accounts that are not what they should be: named, and never to a policy's good."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.measure.annotate.telemetries import ZONES
from tests.run.plans import make_plan

from robotrials.errors import InputError, NotEstimable, StoreError
from robotrials.measure.annotate import LabelStanding, ScaleOptions, scan, status_of, weigh, with_marks
from robotrials.measure.annotate.calibrate import FEATURES, classifier_from_json, read_settings
from robotrials.measure.annotate.detector import RuleOptions, read_weights
from robotrials.record import (
    Annotation,
    Episode,
    Event,
    EventKind,
    EventSource,
    Outcome,
    Store,
    Trajectory,
    read_store,
)
from robotrials.record.log import add_entry
from robotrials.record.part import EntryKind
from robotrials.record.verify import repair_store, verify_store
from robotrials.run import run_trial
from robotrials.verdict.analysis.labels import label_robustness

EPISODE = Episode(policy='a', task='pick', outcome=Outcome.TIMEOUT, duration_s=20.0, items=4, items_placed=2)
LONG = '1' + 400 * '0'
ZONE = '[zones.source]\ncenter_m = [0, 0]\nsize_m = [1, 1]\n[zones.target]\ncenter_m = {}\nsize_m = [1, 1]\n'
TIMES_S = np.arange(0, 20, 0.1)


@pytest.mark.parametrize(
    ('text', 'match'),
    [
        ('zones = 3', 'zones is 3, wanted a table'),
        (ZONE.format('[true, 0]'), r'zones.target: center_m is \[True, 0\]'),
        (ZONE.format(f'[{LONG}, 0]'), 'zones.target: center_m'),
        (f'[detector]\nhold_s = {LONG}', 'hold_s is inf'),
        ('[rules]\nedge_m = -1', 'edge_m is -1.0, wanted 0 to 10'),
        ('classifier = 3', 'classifier is 3, wanted the name of a file'),
        ('classifier = "\\u0000"', 'cannot be read'),
    ],
)
def test_bad_settings_are_named_with_their_file(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / 'cell.toml'
    path.write_text(text)
    with pytest.raises(InputError, match=match) as caught:
        read_settings(path)
    assert str(tmp_path) in str(caught.value)


def test_a_rule_cannot_be_switched_off_by_what_is_no_number() -> None:
    with pytest.raises(InputError, match='least_displacement_m is nan'):
        RuleOptions(least_displacement_m=float('nan'))


@pytest.mark.parametrize(
    'change',
    [{'scale': [0] * 12}, {'bias': 'a'}, {'bias': float('nan')}, {'weights': '123456789012'}, {'weights': [10**400]}],
)  # fmt: skip
def test_a_damaged_classifier_is_refused(change: dict[str, object]) -> None:
    ones = [1.0] * len(FEATURES)
    sound = {'features': FEATURES, 'weights': ones, 'bias': 0.0, 'center': ones, 'scale': ones}
    classifier_from_json(json.dumps(sound), where='c.json')
    with pytest.raises(InputError, match=r'c\.json: no classifier'):
        classifier_from_json(json.dumps({**sound, **change}), where='c.json')


@pytest.mark.parametrize(
    ('weights_kg', 'match'),
    [
        (np.full_like(TIMES_S, np.nan), '0 of 200 readings are numbers'),
        (TIMES_S, 'never stood still'),
        (np.where(TIMES_S > 5, 1e300, 0.0), 'more than 1000 items at once'),
        (np.where(TIMES_S > 5, 1e307, -1e307), 'more than 1000 items at once'),
    ],
)
def test_a_scale_that_says_nothing_counts_nothing(weights_kg: np.ndarray, match: str) -> None:
    with pytest.raises(InputError, match=match):
        weigh(EPISODE, TIMES_S.tolist(), weights_kg.tolist(), ScaleOptions(item_kg=0.03))


@pytest.mark.parametrize(
    ('content', 'match'),
    [
        (b'', 'no column'),
        (b'episode_id,t_s,weight_kg\n', 'no readings'),
        (b'episode_id,t_s,weight_kg\na,1\n', 'line 2: more or fewer fields'),
        (b'episode_id,t_s,weight_kg\na,1,2,3\n', 'line 2: more or fewer fields'),
        (b'episode_id,t_s,weight_kg\na,"' + 200_000 * b'x' + b'",2\n', 'field larger'),
        (b'episode_id;t_s;weight_kg\na;1;2\n', 'found: episode_id;t_s;weight_kg'),
    ],
)
def test_bad_tables_of_weights_are_named(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / 'scale.csv'
    path.write_bytes(content)
    with pytest.raises(InputError, match=match):
        read_weights(path)


def test_a_table_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / 'scale.csv'
    path.write_bytes(b'\xef\xbb\xbfepisode_id,t_s,weight_kg\na,1,2\na,2,\n')
    times_s, weights_kg = read_weights(path)['a']
    assert times_s == [1.0, 2.0]
    assert weights_kg[0] == 2.0
    assert np.isnan(weights_kg[1])


@pytest.mark.parametrize('dt_s', [0.05, 1e-9, 5e-324])
@pytest.mark.parametrize('n', [1, 50])
def test_one_odd_recording_does_not_keep_the_others_from_being_looked_at(n: int, dt_s: float) -> None:
    trajectory = Trajectory(
        time_s=np.arange(n) * dt_s, ee_pose=np.zeros((n, 7)), gripper_command=np.zeros(n), gripper_position=np.zeros(n)
    )
    [account] = scan([(EPISODE, trajectory)], ZONES)
    assert (account.count is None) == (n == 1)
    assert bool(account.note) == (n == 1)


def account(*times_s: float, count: int = 2, **changes: object) -> Annotation:
    events = tuple(Event(t, EventKind.PLACEMENT, EventSource.REVIEWER) for t in times_s)
    values = {'attempt': 0, 'source': EventSource.REVIEWER, 'by': 'ann', 'events': events, 'count': count, **changes}
    return Annotation(episode_id=EPISODE.episode_id, **values)


def test_an_account_whose_marks_are_not_its_count_is_not_believed() -> None:
    assert status_of(EPISODE, [account(1.0, 2.0)]).standing is LabelStanding.REVIEWED
    for odd in (account(), account(1.0, 2.0, 3.0), account(1.0, 500.0)):
        assert status_of(EPISODE, [odd]).standing is LabelStanding.WAITING
        assert with_marks(EPISODE, [odd]) == EPISODE


@pytest.mark.parametrize(
    'change', [{'count': True}, {'count': 2.5}, {'by': ' '}, {'by': 3}, {'note': '\ud800'}, {'source': 'nobody'}]
)
def test_accounts_that_could_not_be_read_again_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        account(1.0, **change)


@pytest.mark.parametrize('told', [3, [{}], [{'count': '2'}], [{'attempt': 10**400, 'events': [{'t_s': 10**400}]}]])
def test_an_entry_that_is_no_account_is_named_and_can_be_set_aside(tmp_path: Path, told: object) -> None:
    store = Store.create(tmp_path / 's')
    store.append([EPISODE])
    store.annotate([account(1.0, 2.0)])
    sound = account(1.0, 2.0).as_json()
    body = [{**sound, **one} if one else {} for one in told] if isinstance(told, list) else told
    add_entry(store.path, EntryKind.ANNOTATION, body={'annotations': body})
    with pytest.raises(StoreError, match=r'annotation.*robotrials store repair'):
        list(Store.open(store.path).episodes())
    [finding] = verify_store(store.path).findings
    assert 'annotation' in finding.detail
    done = repair_store(store.path, by='ann', why='it cannot be read')
    assert done.log_files == (finding.path.name,)
    assert verify_store(store.path).is_clean
    [kept] = Store.open(store.path).annotations()[EPISODE.key]
    assert kept.count == 2
    assert [e.episode_id for e in Store.open(store.path).episodes()] == [EPISODE.episode_id]


@pytest.mark.parametrize(
    'options', [{'n_trials': 0}, {'n_trials': 10**9}, {'jitters_s': [np.nan]}, {'jitters_s': [np.inf]}]
)
def test_absurd_jitters_are_refused(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match='trials with jitters of'):
        label_robustness(Store.create(tmp_path / 's'), **options)


def test_an_open_blinded_trial_has_no_ranking_to_question(tmp_path: Path) -> None:
    run_trial(make_plan(episodes_per_cell=1), tmp_path / 's', workers=0)
    with pytest.raises(NotEstimable, match='blinded and open'):
        label_robustness(read_store(tmp_path / 's'))
