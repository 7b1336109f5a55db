"""Scores by the cameras as a file beside a store's episodes: with their origin, and never in place of anything.

The recorded outcome stays the host's. A projection names the method and the digest of every view it was made from; a
score whose views or method differ is not used, and worked out again. A projection of one episode may be kept with it,
where its views are: whoever ran it scored it.
"""

from __future__ import annotations

import datetime as dt
import enum
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from robotrials.errors import InputError, RobotrialsError, StoreError
from robotrials.measure.geometry.camera_score import METHOD, CameraScore, score_episode, unscored
from robotrials.measure.geometry.mask import MASKS, pack_masks, segmenter, unpack_masks
from robotrials.measure.geometry.view import view_from_camera
from robotrials.record import Episode, Outcome, Store
from robotrials.record.blinding import coarse_reason
from robotrials.record.footage import END, FOLDER, KNOWN, START, KeptViews, kept_views, read_known, unpack_views
from robotrials.record.part import LoggedFile
from robotrials.record.projection import Kept, key_of, version_of
from robotrials.value import dataclass, read_table, without_nulls

CODE = ('robotrials.measure.geometry',)  # that makes a score, beside what every projection rests on
PREFIX = 'projections/camera-scores-'
OWN_SCORE = f'{FOLDER}/score.json'  # a projection of one episode, kept with its views
VIEWS = (KNOWN, START, END)  # that a score is made from
MOST_BYTES = 256 << 20
MOST_OWN_BYTES = 1 << 20
Key = tuple[str, int]


class Rescoring(enum.Enum):
    """Which views are scored when scores are asked for."""

    ALL = 'all'  # anew, whatever was kept
    MISSING = 'missing'  # those without a kept score that holds
    NONE = 'none'  # kept scores are read, and nothing else is done: a server answers many


@dataclass(frozen=True, slots=True)
class _Row:
    episode_id: str
    attempt: int
    views: str
    score: CameraScore


@dataclass(frozen=True, slots=True)
class _ScoreFile:
    method: str
    made_at: str
    by: str
    scores: tuple[_Row, ...]


def score_kept(kept: KeptViews | None) -> CameraScore:
    """The score of an episode's kept views; without them it is unscored, with why."""
    if kept is None:
        return unscored('no RGB-D was kept')
    if not kept.has_ends:
        return _without_ends(kept)
    try:
        packed = kept.file(MASKS)
        masks, by = (None, '') if packed is None else unpack_masks(packed, where=str(kept.folder / MASKS))
        score = score_episode(kept.moment(START), kept.moment(END), kept.known(), masks=masks)
        return replace(score, masks_by=by)
    except StoreError as error:
        return unscored(f'the views cannot be read: {error}')
    except RobotrialsError as error:
        return unscored(str(error))


def _without_ends(kept: KeptViews) -> CameraScore:
    if kept.file(START) is not None and kept.file(END) is not None:
        return unscored('nothing is known of the scene; import it again with --set known=FILE.json')
    note = kept.folder / FOLDER / 'end.txt'
    why = note.read_text(encoding='utf-8', errors='replace')[:200] if note.is_file() else 'the episode broke off'
    return unscored(f'no RGB-D of the end: {why}')


def score_files(files: Mapping[str, bytes]) -> CameraScore:
    """The score of an episode that is in no store yet, from its files by their names within the episode."""
    start, end, known = files[START], files[END], files[KNOWN]
    try:
        masks, by = unpack_masks(files[MASKS], where=MASKS) if MASKS in files else (None, '')
        score = score_episode(
            unpack_views(start, where=START), unpack_views(end, where=END), read_known(known, where=KNOWN), masks=masks
        )
        return replace(score, masks_by=by)
    except RobotrialsError as error:
        return unscored(str(error))


def ruled_out(episode: Episode) -> str:
    """Why an episode is a failure by the rules of its trial, wherever the objects came to lie; '' if it is not.

    A policy that crashes, or has to be stopped, cannot be made a success by what the cameras see afterwards, nor can
    what they do not see then raise its bounds.
    """
    if episode.outcome is Outcome.SAFETY_STOP:
        return 'it ended in a safety stop'
    is_fault = episode.outcome is Outcome.FAILURE and coarse_reason(episode.reason) == 'policy fault'
    return "it ended by the policy's own fault" if is_fault else ''


def segment_store(
    store: Store, episodes: Iterable[Episode], spec: str, *, by: str, advance: Callable[[int, int], None] | None = None
) -> int:
    """Keep masks of every object with a shape beside the views of the end, by a segmenter; how many episodes got some.

    Episodes that have masks keep them. The segmenter is asked for an object by its name.
    """
    ask = segmenter(spec)
    wanted = [e for e in episodes if e.is_valid]
    n = 0
    for number, episode in enumerate(wanted):
        kept = kept_views(store.path / 'media', *episode.key)
        if kept is not None and kept.has_ends and kept.file(MASKS) is None:
            objects = [o.name for o in kept.known().objects if o.shape]
            views = [view_from_camera(v.camera, v.rgb, depth_m=v.depth_m) for v in kept.moment(END).values()]
            if objects:
                masks = {name: {view.name: ask(view, name) for view in views} for name in objects}
                folder = _folder(episode).removeprefix('media/')
                store.add_media(f'{folder}/{MASKS}', pack_masks(masks, by=f'{by} {spec}'.strip()), by=by)
                n += 1
        if advance is not None:
            advance(number + 1, len(wanted))
    return n


def views_digest(store: Store, episode: Episode) -> str:
    """What stands for an episode's views at start and end; empty where there are none."""
    folder, ledger = _folder(episode), store.ledger()
    logged = [ledger.file(f'{folder}/{name}') for name in VIEWS]
    masks = ledger.file(f'{folder}/{MASKS}')
    return _digest(['' if f is None else f.sha256 for f in logged] + ([] if masks is None else [masks.sha256]))


def _folder(episode: Episode) -> str:
    return f'media/episodes/{episode.episode_id}-{episode.attempt}'


def _digest(digests: Iterable[str]) -> str:
    joined = ' '.join(digests)
    return hashlib.sha256(joined.encode()).hexdigest()[:32] if joined.strip() else ''


def camera_scores(
    store: Store, episodes: Iterable[Episode], *, advance: Callable[[int, int], None] | None = None,
    rescoring: Rescoring = Rescoring.MISSING,
) -> dict[Key, CameraScore]:  # fmt: skip
    """The camera score of every valid episode: one that was kept and still holds, or worked out now.

    An episode that is a failure by the rules of its trial is one by its cameras, too.
    """
    wanted = [e for e in episodes if e.is_valid]
    known = {} if rescoring is Rescoring.ALL else read_projections(store)
    scores: dict[Key, CameraScore] = {}
    with Kept() as cache:
        for number, episode in enumerate(wanted):
            score = _camera_score(store, episode, known, rescoring, cache)
            why = ruled_out(episode)
            scores[episode.key] = replace(score, success=False, confidence=1.0, reason=why) if why else score
            if advance is not None:
                advance(number + 1, len(wanted))
    return scores


def _camera_score(
    store: Store, episode: Episode, known: Mapping[tuple[str, int, str], CameraScore], rescoring: Rescoring, cache: Kept
) -> CameraScore:
    if digest := views_digest(store, episode):
        if (score := known.get((*episode.key, digest))) is not None:
            return score
        if rescoring is not Rescoring.ALL and (score := own_score(store, episode, digest)) is not None:
            return score
    kept = kept_views(store.path / 'media', *episode.key)
    if rescoring is Rescoring.NONE and kept is not None and kept.has_ends:
        return unscored(f'its views are not scored by {METHOD}; to score them, run: robotrials geometry score --write')
    return score_kept(kept) if kept is None or not kept.has_ends else _scored_once(kept, rescoring, cache)


def _scored_once(kept: KeptViews, rescoring: Rescoring, cache: Kept) -> CameraScore:
    """The score of views as the user's cache has it, under the digest of the bytes that are there now; else anew."""
    try:
        contents = [*(kept.content(name) for name in VIEWS), kept.file(MASKS) or b'']
        digests = [hashlib.sha256(content).hexdigest() for content in contents]
    except StoreError:
        return score_kept(kept)  # which says why
    key = key_of(version_of('camera scores', CODE), *digests)
    values = None if rescoring is Rescoring.ALL else cache.get(key)
    if values is not None:
        return read_table(CameraScore, without_nulls(values), where='a kept camera score')
    score = score_kept(kept)
    cache.put(key, asdict(score))
    return score


def own_score(store: Store, episode: Episode, digest: str) -> CameraScore | None:
    """The score that is kept with the episode, if it is of these views and of this method."""
    name = f'{_folder(episode)}/{OWN_SCORE}'
    logged = store.ledger().file(name)
    if logged is None:
        return None
    try:
        rows = read_scores(_logged(store, name, logged, most_bytes=MOST_OWN_BYTES), where=name)
    except StoreError as error:
        return unscored(f'its score cannot be read: {error}')
    return next((r.score for r in rows if (r.episode_id, r.attempt, r.views) == (*episode.key, digest)), None)


def pack_own_score(episode: Episode, files: Mapping[str, bytes], score: CameraScore, *, by: str) -> bytes:
    """A projection of one episode, to be kept with its views as `OWN_SCORE`."""
    names = (*VIEWS, *([MASKS] if MASKS in files else []))
    digest = _digest([hashlib.sha256(files[name]).hexdigest() if name in files else '' for name in names])
    return _pack([_Row(*episode.key, digest, score)], by=by)


def _pack(rows: Iterable[_Row], *, by: str) -> bytes:
    made = _ScoreFile(METHOD, dt.datetime.now(dt.UTC).isoformat(timespec='seconds'), by, tuple(rows))
    return json.dumps(asdict(made), sort_keys=True, separators=(',', ':'), allow_nan=False).encode()


def write_projection(store: Store, episodes: Iterable[Episode], scores: Mapping[Key, CameraScore], *, by: str) -> Path:
    """Put the scores beside the episodes, as a new file that the log vouches for."""
    content = _pack((_Row(*e.key, views_digest(store, e), scores[e.key]) for e in episodes if e.key in scores), by=by)
    name = f'{PREFIX}{hashlib.sha256(content).hexdigest()[:12]}.json'
    return store.add_media(name, content, by=by)


def read_projections(store: Store) -> dict[tuple[str, int, str], CameraScore]:
    """Scores by episode, attempt and digest of views, of every projection of this method that the log vouches for."""
    scores: dict[tuple[str, int, str], CameraScore] = {}
    for name, logged in sorted(store.ledger().files.items()):
        if name.startswith(f'media/{PREFIX}'):
            content = _logged(store, name, logged, most_bytes=MOST_BYTES)
            for row in read_scores(content, where=str(store.path / name)):
                scores[row.episode_id, row.attempt, row.views] = row.score
    return scores


def _logged(store: Store, name: str, logged: LoggedFile, *, most_bytes: int) -> bytes:
    """A file as the log vouches for it."""
    path = store.file(name)
    try:
        content = path.read_bytes() if logged.n_bytes <= most_bytes else b''
    except OSError as error:
        raise StoreError(f'{path}: cannot be read ({error.strerror})') from error
    if hashlib.sha256(content).hexdigest() != logged.sha256:
        raise StoreError(f'{path}: is not what was logged; run: robotrials store verify')
    return content


def read_scores(content: bytes, *, where: str) -> tuple[_Row, ...]:
    """The rows of a projection; none of one by another method."""
    try:
        values = json.loads(content)
        if not isinstance(values, dict) or values.get('method') != METHOD:
            return ()
        return read_table(_ScoreFile, without_nulls(values), where=where).scores
    except (ValueError, RecursionError, InputError) as error:
        raise StoreError(f'{where}: not a projection of camera scores ({error})') from error
