"""A trial's store: opened for its plan and no other, held by one runner, and which of its slots are meant."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from robotrials.errors import InputError, StoreError, UnknownName
from robotrials.record import Store, collect_provenance, read_store
from robotrials.record.bucket import store_root
from robotrials.record.folder import Folder, held_lock
from robotrials.run.blinding import Blinding, blinded_plan
from robotrials.run.schedule import Slot
from robotrials.run.station import Context

LOCK_WAIT_S = 10.0


def check_open(context: Context, store: Store) -> None:
    """Refuse a trial that was closed."""
    if context.plan.hash in store.unblindings().by_trial:
        raise StoreError(f'{store.path}: this trial is closed; nothing can be added to it')


def with_provenance(context: Context, store: Store) -> Context:
    """The context of episodes that are made on this machine now."""
    plan = context.plan
    provenance = dataclasses.replace(
        collect_provenance(), command='', config=f'plan {plan.hash}', seeds=f'plan seed {plan.seed}'
    )
    return dataclasses.replace(context, provenance_id=store.write_provenance(provenance))


def open_trial_store(context: Context, path: Path | str) -> Store:
    """The store of a trial, made if it is new; a store of another plan is refused, naming what differs."""
    root, plan = store_root(path), context.plan
    if plan.blinding.enabled and Blinding({}, b'', context.blinding.codes).scrub(str(root)) != str(root):
        raise InputError(f'the path of the store ({root}) holds the name of a policy; give another')
    public_plan = blinded_plan(plan, context.blinding)
    if (root / 'trial.json').exists():
        store = read_store(root)
        if store.trial.plan_hash != plan.hash:
            is_empty = next(iter(store.episodes()), None) is None
            raise StoreError(
                f'{root}: holds a trial under another plan ({_differences(store.trial.plan, public_plan)}); '
                + ('no episode was run under it: remove it, or ' if is_empty else '')
                + 'name another store'
            )
    title = context.blinding.hide(plan.title)
    return Store.create(root, trial_id=plan.hash, title=title, plan_hash=plan.hash, plan=public_plan)


def _differences(stored: str, ours: str) -> str:
    """Which keys of two plans differ; what is hidden in a stored plan can only be told by the hash."""
    try:
        theirs, mine = json.loads(stored), json.loads(ours)
    except json.JSONDecodeError:
        return 'which this version cannot read'
    changed = sorted(k for k in {*theirs, *mine} if theirs.get(k) != mine.get(k) and k != 'policies')
    if changed:
        return f'changed: {", ".join(changed)}'
    return 'changed: policies, reference or blinding'


def chosen_slots(slots: Sequence[Slot], *, fixture: str | None, session: str | None) -> list[Slot]:
    """The slots of one fixture and one session, where they are given."""
    for kind, wanted, known in (
        ('fixture', fixture, {s.fixture for s in slots}),
        ('session', session, {s.session for s in slots}),
    ):
        if wanted is not None and wanted not in known:
            raise UnknownName(f'{kind} of this plan', wanted, known - {''})
    return [s for s in slots if fixture in (None, s.fixture) and session in (None, s.session)]


@contextlib.contextmanager
def sole_runner(root: Path, share: str | None, *, division: str = 'fixtures') -> Iterator[None]:
    """Hold the right to run or to close: alone, or alone on one share of a division (a fixture, a shard of n).

    Two divisions of one trial, such as shards of 8 and of 16, have slots in common and exclude each other.
    """
    busy = 'another run of this trial is under way; wait for it to end'
    with contextlib.ExitStack() as stack:

        def hold(name: str, *, shared: bool = False) -> None:
            stack.enter_context(held_lock(root, name, shared=shared, wait_s=LOCK_WAIT_S, busy=busy))

        hold('.run.lock', shared=share is not None)
        if share is not None:
            own = f'.run.by-{division}.lock'
            hold(own, shared=True)
            for name in Folder(root).names(''):
                if name.startswith('.run.by-') and name != own:
                    other = name.removeprefix('.run.by-').removesuffix('.lock')
                    advice = f'a run by {other} is under way; wait for it to end, or run by {other} too'
                    with held_lock(root, name, wait_s=LOCK_WAIT_S, busy=advice):
                        pass
            part = hashlib.sha256(share.encode()).hexdigest()[:12]  # its name may hold any character
            hold(f'.run.{part}.lock')
        yield
