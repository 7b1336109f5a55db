"""Episodes for their submitters, once blinding has ended."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from robotrials.record import Episode, Store
from robotrials.run.station import media_folder
from robotrials.service.platform.benchmark import store_path
from robotrials.service.platform.bundle import pack_bundle
from robotrials.service.platform.refusal import not_found
from robotrials.service.platform.table import Benchmark, Submission


def open_facts(benchmark: Benchmark, episode: Episode) -> Episode:
    """An episode as its submitter may see it: while a benchmark takes submissions, nobody is told its start states."""
    return episode if benchmark.state == 'closed' else episode.replace(seed=None, instance=None)


def episode_bundle(folder: Path, submission: Submission, episode_id: str, *, attempt: int | None) -> bytes:
    """One attempt of a submission as a bundle, with its files."""
    path = store_path(folder, submission.benchmark)
    if not (path / 'trial.json').exists():
        raise not_found('episode')
    store = dataclasses.replace(Store.open(path), is_view=True)
    where = {'episode_id': episode_id, 'policy': submission.policy}
    found = list(store.episodes(attempts='counted' if attempt is None else 'all', where=where))
    chosen = next((e for e in found if attempt in (None, e.attempt)), None)
    if chosen is None:
        raise not_found('episode')
    own = f'media/{media_folder(chosen)}/'
    names = [name for name in store.ledger().wanted() if name.startswith(own)]
    media = {name.removeprefix('media/'): store.file(name).read_bytes() for name in names}
    shown = open_facts(submission.benchmark, chosen)
    return pack_bundle(shown, trajectory=store.trajectory(chosen), media=media)
