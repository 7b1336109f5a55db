"""Roles apart: whoever runs a sealed trial can't tell who is who from anything but what the robot does."""

from __future__ import annotations

import dataclasses
import itertools
import json
import stat
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.cli.command import robotrials
from tests.run.plans import make_plan
from tests.run.test_blinding import leaks

from robotrials.errors import InputError
from robotrials.record import Outcome, Store, read_store
from robotrials.record.blinding import ALL_ARMS, WITHHELD_COLUMNS, arm_codes, close_envelope, open_envelope, public_key
from robotrials.record.verify import verify_store
from robotrials.run import TrialPlan, close_trial, run_trial
from robotrials.run.blinding import Allocation, Arms, blinding_of, derived_seed, read_allocation, read_arms, seal_trial
from robotrials.run.closing import measured_leakage
from robotrials.run.engine import trial_state
from robotrials.run.fault import read_fault
from robotrials.run.plan import read_plan
from robotrials.run.schedule import Slot, private_folder, rotate, trial_slots
from robotrials.run.seam import Chunk, Observation, Setup
from robotrials.run.station import Context
from robotrials.testing.policy import SeekPolicy

NAMES = ('zebrafinch-large', 'quokka-mini')
EPISODES = 12
STUDIED = 200  # episodes of each of two arms


class TellingPolicy(SeekPolicy):
    """Acts as the other does, and differs in everything else: its latency, its errors, its words."""

    def __init__(self, *, checkpoint: str, says_time: bool) -> None:
        super().__init__(speed_m_s=0.8)
        self.checkpoint, self.says_time = checkpoint, says_time

    def start(self, setup: Setup, *, seed: int) -> Any:
        session = super().start(setup, seed=seed)
        if setup.instance == 3:
            raise (MemoryError if self.says_time else ValueError)(f'{self.checkpoint} ' * (50 if self.says_time else 1))
        return _Timed(session, says_time=self.says_time)


class _Timed:
    def __init__(self, session: Any, *, says_time: bool) -> None:
        self._session, self._says_time = session, says_time

    def act(self, observation: Observation) -> Chunk:
        chunk: Chunk = self._session.act(observation)
        return Chunk(chunk.actions, inference_s=0.0 if self._says_time else None)


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> TrialPlan:
    monkeypatch.setitem(sys.modules, 'telling_module', sys.modules[__name__])
    policies = {
        name: {
            'use': 'telling_module:TellingPolicy',
            'options': {'checkpoint': f'hub-{name}', 'says_time': name == NAMES[0]},
        }
        for name in NAMES
    }
    return make_plan(
        policies=policies, reference=NAMES[1], episodes_per_cell=EPISODES, title=f'{NAMES[0]} against {NAMES[1]}',
        loop={'latency': {'mode': 'measured'}}, faults={'attempts': 1},
    )  # fmt: skip


def sealed_run(plan: TrialPlan, folder: Path) -> tuple[Allocation, Store]:
    sealed = seal_trial(plan, folder / 'sealed')
    operator = read_plan(folder / 'sealed' / 'operator.json')
    assert operator == sealed.operator_plan
    run_trial(operator, folder / 's', workers=0, arms=folder / 'sealed' / 'arms.json')
    return sealed, Store.open(folder / 's')


def true_slots(sealed: Allocation) -> dict[str, Slot]:
    """Episode id -> slot, for who has the key of the order."""
    context = Context.of(sealed.operator_plan, arms=Arms({}, sealed.rotation))
    return {context.planned(slot).episode_id: slot for slot in context.slots()}


def true_arms(sealed: Allocation, store: Store) -> dict[tuple[str, int], str]:
    slots = true_slots(sealed)
    return {e.key: slots[e.episode_id].policy for e in store.episodes(attempts='all')}


def test_the_three_files_hold_what_each_role_may_know(plan: TrialPlan, tmp_path: Path) -> None:
    sealed = seal_trial(plan, tmp_path)
    text = (tmp_path / 'operator.json').read_text()
    assert not any(word in text for word in (*NAMES, 'hub-', 'telling_module', sealed.secret.hex()))
    assert all(code in text for code in sealed.codes.values())
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(f'"{name}"' in (tmp_path / 'arms.json').read_text() for name in NAMES)
    assert read_allocation(tmp_path / 'allocation.json') == sealed
    with pytest.raises(InputError, match='sealed once'):
        seal_trial(plan, tmp_path)
    for name, found in (('allocation', "the statistician's allocation"), ('arms', 'a list of arms')):
        with pytest.raises(InputError, match=f'{name}.json: {found}, and no plan .*wanted trial.toml or operator.json'):
            read_plan(tmp_path / f'{name}.json')
    other = seal_trial(plan, tmp_path / 'other')
    assert other.codes != sealed.codes, 'the secret is random'
    with pytest.raises(InputError, match='not the arms of this plan'):
        read_arms(sealed.operator_plan, tmp_path / 'other' / 'arms.json')
    with pytest.raises(InputError, match='--arms'):
        run_trial(sealed.operator_plan, tmp_path / 's', workers=0)


def test_nothing_a_sealed_run_writes_names_a_policy_and_closing_opens_all(plan: TrialPlan, tmp_path: Path) -> None:
    sealed, store = sealed_run(plan, tmp_path)
    assert len({e.policy for e in store.episodes()}) == 2 * EPISODES, 'what stands for an arm changes every time'
    assert leaks(store.path) == []
    crashed = [e for e in store.episodes() if e.outcome is Outcome.INVALID]
    assert {e.reason for e in crashed} == {'policy fault'}
    assert all(t.inference_latency_s is None and t.action_raw is None for _, t in store.trajectories())
    with pytest.raises(InputError, match='only the statistician'):
        read_fault(store, crashed[0])
    with pytest.raises(InputError, match='allocation that the statistician keeps'):
        close_trial(sealed.operator_plan, store.path, by='kim')
    arms = close_trial(sealed.operator_plan, store.path, by='kim', allocation=sealed)
    assert {(a.policy, a.code, a.is_reference) for a in arms} == {
        (name, code, name == NAMES[1]) for name, code in sealed.codes.items()
    }
    assert {e.policy for e in store.episodes()} == set(NAMES)
    assert {e.policy for e in store.episodes() if e.is_reference} == {NAMES[1]}
    assert all(t.inference_latency_s is not None and t.action_raw is not None for _, t in store.trajectories())
    assert 'hub-' in (read_fault(store, crashed[0]) or '')
    record = store.unblindings().by_trial[sealed.operator_plan.hash]
    assert record.signature
    assert record.why.startswith('complete')
    assert verify_store(store.path).findings == ()


def test_verbs_show_no_arm_of_an_open_trial_but_to_a_board_on_record(plan: TrialPlan, tmp_path: Path) -> None:
    sealed, store = sealed_run(plan, tmp_path)
    view = read_store(store.path)
    assert {e.policy for e in view.episodes()} == {ALL_ARMS}
    with pytest.raises(InputError, match='cannot be picked by policy'):
        list(view.episodes(where={'policy': next(iter(sealed.codes.values()))}))
    assert view.provenance(next(view.episodes()).provenance_id).cpu == ''
    listed = robotrials('store', 'ls', store.path, '--all')
    assert not any(code in listed for code in sealed.codes.values())
    refused = robotrials('--board', 'dr-lee', 'store', 'ls', store.path, code=2)
    assert '--board-key arms.json' in refused
    key = ('--board-key', tmp_path / 'sealed' / 'arms.json')
    as_board = robotrials('--board', 'dr-lee', *key, 'store', 'ls', store.path)
    assert all(code in as_board for code in sealed.codes.values())
    (look,) = store.looks()
    assert (look.by, look.role) == ('dr-lee', 'board')
    close_trial(sealed.operator_plan, store.path, by='kim', allocation=sealed)
    assert {e.policy for e in view.episodes()} == set(NAMES)


# --- guessing


def operator_features(root: Path) -> dict[tuple[str, int], dict[str, float]]:
    """Everything that a file of an open trial says of each episode, as numbers; behaviour left out.

    Left out: what the robot did and when (poses, states, actions taken, events, steps, durations, outcomes).
    """
    behaviour = {
        'duration_s', 'steps', 'outcome', 'success', 'items_placed', 'items_lost', 'score', 'is_unrecoverable',
        'policy', 'episode_id', 'attempt', 'scene', 'time_s',
    }  # fmt: skip
    features: dict[tuple[str, int], dict[str, float]] = {}
    for path in sorted((root / 'episodes').iterdir()) + sorted((root / 'trajectories').iterdir()):
        for row in pq.read_table(path).to_pylist():
            own = features.setdefault((row['episode_id'], row['attempt']), {})
            for name, value in row.items():
                stem = name.partition(':')[0]
                if stem in behaviour or stem in ('action_processed', 'ee_pose', 'done') or stem.startswith('extra/'):
                    continue
                own.update(_numbers(name, value))
    for path in (p for p in (root / 'media').rglob('*') if p.is_file()):
        episode_id, _, rest = path.name.partition('-')
        own = features[(episode_id, int(rest.partition('.')[0]))]
        own[f'{path.parent.name} {"".join(path.suffixes)} size'] = float(path.stat().st_size)
    return features


def _numbers(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, list):
        array = np.array([np.nan if v is None else v for v in value], dtype=float)
        known = array[np.isfinite(array)]
        return {
            f'{name} known': float(len(known) / max(len(array), 1)),
            f'{name} mean': float(known.mean()) if len(known) else -1.0,
        }
    text = json.dumps(value, default=str)
    return {f'{name} value': float(zlib.crc32(text.encode()) % 100_003), f'{name} length': float(len(text))}


def best_guess(features: dict[tuple[str, int], dict[str, float]], labels: dict[tuple[str, int], bool]) -> float:
    """The largest share of episodes that one threshold on one feature puts into the right arm."""
    keys = [key for key in features if key in labels]
    truth = np.array([labels[key] for key in keys])
    best = 0.5
    for name in sorted({n for own in features.values() for n in own}):
        values = np.array([features[key].get(name, -2.0) for key in keys])
        for cut in np.unique(values):
            right = float(((values >= cut) == truth).mean())
            best = max(best, right, 1 - right)
    return best


def chance_of(features: dict[tuple[str, int], dict[str, float]], labels: dict[tuple[str, int], bool]) -> float:
    """The most that the best guess reaches when labels are shuffled: with many features, luck alone goes far."""
    rng = np.random.default_rng(0)
    keys, values = list(labels), np.array(list(labels.values()))
    guesses = [best_guess(features, dict(zip(keys, rng.permutation(values).tolist(), strict=True))) for _ in range(50)]
    return max(guesses)


def test_arms_can_not_be_guessed_from_the_files_better_than_by_chance(plan: TrialPlan, tmp_path: Path) -> None:
    sealed, store = sealed_run(plan, tmp_path)
    labels = {key: code == sealed.codes[NAMES[0]] for key, code in true_arms(sealed, store).items()}
    features = operator_features(store.path)
    assert len(features) == 2 * EPISODES
    guess, chance = best_guess(features, labels), chance_of(features, labels)
    assert guess <= chance + 0.05, f'{guess:.2f} right, {chance:.2f} by luck'
    # The same attack on a trial without roles apart finds them out: it can see what it looks for.
    run_trial(plan, tmp_path / 'open', workers=0)
    opened = Store.open(tmp_path / 'open')
    first = min(e.policy for e in opened.episodes())
    told = {e.key: e.policy == first for e in opened.episodes(attempts='all')}
    assert best_guess(operator_features(opened.path), told) > 0.9


def test_codes_do_not_follow_from_the_store_or_the_operators_plan_for_who_knows_the_names(
    plan: TrialPlan, tmp_path: Path
) -> None:
    import hashlib
    import hmac

    sealed, store = sealed_run(plan, tmp_path)
    codes = set(sealed.codes.values())
    operator = sealed.operator_plan.as_json()
    public = [operator.encode(), plan.as_json().encode(), plan.hash.encode(), store.trial.store_id.encode(), b'']
    public += [bytes.fromhex(v) for v in (sealed.operator_plan.blinding.commitment, sealed.operator_plan.blinding.arms)]
    keys = [key for a, b in itertools.product(public, public) for key in (a, hmac.digest(a, b, 'sha256'), a + b)]
    keys += [hashlib.sha256(key).digest() for key in keys]
    keys += [hmac.digest(p, b'robotrials blinding', 'sha256') for p in public]
    # All of them: one short code may be hit by luck, since the secret is drawn anew in every run.
    assert not any(set(arm_codes(NAMES, key).values()) == codes for key in keys)
    assert set(arm_codes(NAMES, sealed.secret).values()) == codes


def test_an_envelope_opens_for_its_secret_alone() -> None:
    public = public_key(b'one')
    sealed = close_envelope(public, b'text', label='a')
    assert open_envelope(b'one', sealed, label='a') == b'text'
    assert close_envelope(public, b'text', label='a') != sealed
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for secret, envelope, label in [
        (b'two', sealed, 'a'),
        (b'one', sealed, 'b'),
        (b'one', changed, 'a'),
        (b'one', b'', 'a'),
    ]:
        with pytest.raises(InputError, match=r'open|sealed'):
            open_envelope(secret, envelope, label=label)
    assert set(WITHHELD_COLUMNS) >= {'inference_latency_s', 'action_raw'}


# --- concealed allocation


def test_the_order_ahead_cannot_be_predicted_from_the_operators_file(plan: TrialPlan, tmp_path: Path) -> None:
    """The attack that used to tell all assignments before the first ran: the order followed from operator.json."""
    big = dataclasses.replace(plan, episodes_per_cell=24)
    sealed = seal_trial(big, tmp_path)
    operator = read_plan(tmp_path / 'operator.json')
    truth = [slot.policy for slot in trial_slots(operator, rotation=sealed.rotation)]
    assert len(truth) == 48
    with pytest.raises(InputError, match=r'concealed: its key is in arms\.json'):
        trial_slots(operator)
    guesses = []
    for key in (blinding_of(operator).key, operator.hash.encode(), bytes.fromhex(operator.blinding.rotation), b''):
        rng = np.random.default_rng(derived_seed(key, 'rotation', operator.seed, bits=63))
        guesses.append([slot.policy for slot in rotate(operator, rng, key=key)])
    right = [sum(a == b for a, b in zip(guess, truth, strict=True)) for guess in guesses]
    # 42 or more of 48 fair coins come up in less than one of ten million; all 48 were predicted before.
    assert max(right) < 42, f'{right} of 48 assignments predicted'
    # Nor do ids of the record give arms away to who tries the few codes there are.
    run_trial(operator, tmp_path / 's', workers=0, arms=tmp_path / 'arms.json', stop_after=8)
    for episode in Store.open(tmp_path / 's').episodes():
        assert all(
            episode.replace(policy=code, episode_id='').episode_id != episode.episode_id for code in operator.policies
        )


def test_a_concealed_run_shows_nothing_of_a_block_until_it_is_whole(plan: TrialPlan, tmp_path: Path) -> None:
    sealed = seal_trial(plan, tmp_path / 'sealed')
    seen: list[tuple[int, dict[str, int], set[str]]] = []

    def report(progress: Any) -> None:
        seen.append((progress.n_valid, dict(progress.per_arm), {e.episode_id for e in Store.open(root).episodes()}))

    root, arms = tmp_path / 's', tmp_path / 'sealed' / 'arms.json'
    run_trial(sealed.operator_plan, root, workers=0, arms=arms, report=report)
    slots = true_slots(sealed)
    before: set[str] = set()
    for n_valid, per_arm, ids in seen:
        assert per_arm == {}
        new = [slots[i] for i in ids - before]
        assert len({s.block for s in new}) == 1
        assert len({sum(s.policy == code for s in new) for code in sealed.codes.values()}) == 1, 'arms equally often'
        assert n_valid <= len(ids)
        before = ids
    assert len(before) == 2 * EPISODES
    assert stat.S_IMODE(private_folder(root).stat().st_mode) == 0o700


def test_a_killed_concealed_run_resumes_and_loses_nothing(plan: TrialPlan, tmp_path: Path) -> None:
    """Stopped three times in the midst of a block, by an exception that nothing catches."""
    sealed = seal_trial(plan, tmp_path / 'sealed')
    arms, root = tmp_path / 'sealed' / 'arms.json', tmp_path / 's'
    commit = Context.commit
    stored: list[str] = []

    def interrupted(self: Context, store: Store, episode: Any, **rest: Any) -> None:
        commit(self, store, episode, **rest)
        stored.append(episode.episode_id)
        if len(stored) % 3 == 0:
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Context, 'commit', interrupted)
            with pytest.raises(KeyboardInterrupt):
                run_trial(sealed.operator_plan, root, workers=0, arms=arms)
    done = run_trial(sealed.operator_plan, root, workers=0, arms=arms)
    assert done.is_complete
    episodes = list(Store.open(root).episodes(attempts='all'))
    assert {e.episode_id for e in episodes} == set(true_slots(sealed))
    assert len(episodes) == 2 * EPISODES
    assert trial_state(sealed.operator_plan, Store.open(root), rotation=sealed.rotation).is_complete
    assert verify_store(root).findings == ()
    close_trial(sealed.operator_plan, root, by='kim', allocation=sealed)
    assert not root.with_name('s.private').exists()
    assert verify_store(root).findings == ()


class SlowPolicy(SeekPolicy):
    """Acts as the other does, and thinks longer."""

    def __init__(self, *, thinks_s: float) -> None:
        super().__init__(speed_m_s=0.8)
        self.thinks_s = thinks_s

    def start(self, setup: Setup, *, seed: int) -> Any:
        return _Slow(super().start(setup, seed=seed), self.thinks_s)


class _Slow:
    def __init__(self, session: Any, thinks_s: float) -> None:
        self._session, self._thinks_s = session, thinks_s

    def act(self, observation: Observation) -> Chunk:
        time.sleep(self._thinks_s)
        chunk: Chunk = self._session.act(observation)
        return chunk


@pytest.mark.parametrize('episodes', [10, pytest.param(STUDIED, marks=pytest.mark.study)])
def test_arms_whose_answers_are_4_ms_apart_are_guessed_at_chance(
    episodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classifier has every number of every row, and names, sizes and times of every file, in nanoseconds."""
    monkeypatch.setitem(sys.modules, 'slow_module', sys.modules[__name__])
    policies = {
        name: {'use': 'slow_module:SlowPolicy', 'options': {'thinks_s': thinks_s}}
        for name, thinks_s in zip(NAMES, (0.001, 0.005), strict=True)
    }
    plan = make_plan(policies=policies, reference=NAMES[1], episodes_per_cell=episodes)
    sealed, store = sealed_run(plan, tmp_path)
    files, everything = measured_leakage(store, sealed)
    assert files.n == 2 * episodes
    limit = episodes + 3.3 * (episodes / 2) ** 0.5  # one in a thousand by luck
    assert files.n_right <= limit, f'{files} by {files.telling}'
    assert everything.n_right <= limit, 'they act alike'
    arms = close_trial(sealed.operator_plan, store.path, by='kim', allocation=sealed)
    assert {a.n_valid for a in arms} == {episodes}
    assert store.unblindings().by_trial[sealed.operator_plan.hash].leakage == (files, everything)
    if episodes == STUDIED:
        # The same classifier finds the arms of the same trial when each episode enters the store by itself.
        monkeypatch.setattr('robotrials.run.engine.spool_of', lambda *_, **__: None)
        sealed, store = sealed_run(plan, tmp_path / 'unpadded')
        (told, _) = measured_leakage(store, sealed)
        assert told.n_right > limit, f'{told} by {told.telling}'
