"""Scores by the cameras as a file beside a store's episodes: with their origin, and never in place of anything.

The recorded outcome stays the host's. A projection names the method and the digest of every view it was made from; a
score whose views or method differ is not used, and worked out again.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from trialist.declaration import read_table, without_nulls
from trialist.episodes import Episode, Store
from trialist.episodes.rgbd import END, FOLDER, KNOWN, START, KeptViews, kept_views
from trialist.errors import InputError, StoreError, TrialistError
from trialist.geometry.camera_score import METHOD, CameraScore, score_episode, unscored

PREFIX = 'projections/camera-scores-'
MOST_BYTES = 256 << 20
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Row:
    episode_id: str
    attempt: int
    views: str
    score: CameraScore


@dataclass(frozen=True, slots=True)
class _File:
    method: str
    made_at: str
    by: str
    scores: tuple[_Row, ...]


def score_kept(kept: KeptViews | None) -> CameraScore:
    """The score of an episode's kept views; without them it is unscored, with why."""
    if kept is None:
        return unscored('no RGB-D was kept')
    if not kept.has_ends:
        told = kept.folder / FOLDER / 'end.txt'
        why = told.read_text(encoding='utf-8', errors='replace')[:200] if told.is_file() else 'the episode broke off'
        return unscored(f'no RGB-D of the end: {why}')
    try:
        return score_episode(kept.moment(START), kept.moment(END), kept.known())
    except StoreError as error:
        return unscored(f'the views cannot be read: {error}')
    except TrialistError as error:
        return unscored(str(error))


def views_digest(store: Store, episode: Episode) -> str:
    """What stands for an episode's views at start and end; empty where there are none."""
    folder = f'media/episodes/{episode.episode_id}-{episode.attempt}'
    ledger = store.ledger()
    found = [ledger.file(f'{folder}/{name}') for name in (KNOWN, START, END)]
    told = ' '.join('' if f is None else f.sha256 for f in found)
    return hashlib.sha256(told.encode()).hexdigest()[:32] if told.strip() else ''


def camera_scores(
    store: Store, episodes: Iterable[Episode], *, advance: Callable[[int, int], None] | None = None, fresh: bool = False
) -> dict[Key, CameraScore]:
    """The camera score of every valid episode: from a projection that still holds, or worked out now."""
    wanted = [e for e in episodes if e.is_valid]
    known = {} if fresh else read_projections(store)
    found: dict[Key, CameraScore] = {}
    media = store.path / 'media'
    for number, episode in enumerate(wanted):
        digest = views_digest(store, episode)
        score = known.get((*episode.key, digest)) if digest else None
        if score is None:
            score = score_kept(kept_views(media, *episode.key))
        found[episode.key] = score
        if advance is not None:
            advance(number + 1, len(wanted))
    return found


def write_projection(store: Store, episodes: Iterable[Episode], scores: Mapping[Key, CameraScore], *, by: str) -> Path:
    """Put the scores beside the episodes, as a new file that the log vouches for."""
    rows = tuple(_Row(*e.key, views_digest(store, e), scores[e.key]) for e in episodes if e.key in scores)
    made = _File(METHOD, dt.datetime.now(dt.UTC).isoformat(timespec='seconds'), by, rows)
    content = json.dumps(asdict(made), sort_keys=True, separators=(',', ':'), allow_nan=False).encode()
    name = f'{PREFIX}{hashlib.sha256(content).hexdigest()[:12]}.json'
    return store.add_media(name, content, by=by)


def read_projections(store: Store) -> dict[tuple[str, int, str], CameraScore]:
    """Scores by episode, attempt and digest of views, of every projection of this method that the log vouches for."""
    found: dict[tuple[str, int, str], CameraScore] = {}
    for name, logged in sorted(store.ledger().files.items()):
        if not name.startswith(f'media/{PREFIX}'):
            continue
        path = store.path / name
        try:
            content = path.read_bytes() if logged.n_bytes <= MOST_BYTES else b''
        except OSError as error:
            raise StoreError(f'{path}: cannot be read ({error.strerror})') from error
        if hashlib.sha256(content).hexdigest() != logged.sha256:
            raise StoreError(f'{path}: is not what was logged; run: trialist store verify')
        try:
            values = json.loads(content)
            if not isinstance(values, dict) or values.get('method') != METHOD:
                continue
            made = read_table(_File, without_nulls(values), where=str(path))
        except (json.JSONDecodeError, InputError) as error:
            raise StoreError(f'{path}: not a projection of camera scores ({error})') from error
        for row in made.scores:
            found[row.episode_id, row.attempt, row.views] = row.score
    return found
