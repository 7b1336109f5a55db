"""SimplerEnv's file trees: one video per episode, whose path is the only record.

<checkpoint>/<scene>/<control mode>/<env>[_<key>_<value>...]/rob_<x>_<y>_rot_<r>_<p>_<y>_rgb_overlay_<name|None>/
    <success|failure>_obj_<x>_<y>[_<stat>_<value>...].mp4   or   ..._obj_episode_<id>...
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from robotrials.errors import InputError
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    check_settable,
    refuse_unused,
)
from robotrials.formats.peek import MOST_FILES
from robotrials.record.episode import Episode, Outcome
from robotrials.record.identity import digest

_X = r'-?\d+(?:\.\d+)?(?:e-?\d+)?'
FOLDER = re.compile(rf'^rob_(?P<robot>{_X}_{_X})_rot_(?P<turn>{_X}_{_X}_{_X})_rgb_overlay_(?P<overlay>.+)$')
VIDEO = re.compile(
    rf'^(?P<verdict>success|failure)_obj_(?:episode_(?P<id>\d+)|(?P<object>{_X}_{_X}))(?P<stats>_.*)?\.mp4$'
)
ENV = re.compile(r'^(?P<task>.+?-v\d+)(?:_(?P<variant>.+))?$')
DEEPEST = 12


class SimplerEnvFormat:
    """A folder of SimplerEnv videos."""

    name = 'simpler-env'
    summary = 'SimplerEnv result trees: success_obj_*.mp4 and failure_obj_*.mp4 under rob_*_rgb_overlay_* folders'

    def recognise(self, path: Path) -> float | None:
        if not path.is_dir():
            return None
        return CERTAIN if next(_videos(path, most=20_000), None) is not None else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='SimplerEnv trees', takes=())
        check_settable(options, 'SimplerEnv trees', ('policy',))
        if next(_videos(path), None) is None:
            raise InputError(f'{path}: no success_obj_*.mp4 or failure_obj_*.mp4 under a rob_*_rgb_overlay_* folder')
        ledger, source = Ledger(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for video in _videos(path):
                episode = _episode(video, path, options, source)
                ledger.keep(f'episodes: {episode.outcome.value} ({episode.condition})')
                yield Recording(episode)
            ledger.note('a path holds no steps and no times, so nothing is timed')
            ledger.drop('videos', None, why='only their paths are read; they stay where they are')

        guesses = (
            FieldGuess('policy', 'the folder of the checkpoint'),
            FieldGuess('task', 'the folder of the environment, up to its version'),
            FieldGuess('condition', 'rgb_overlay', 'None: variant-aggregation; a name: visual-matching'),
            FieldGuess('instance', 'pose of robot and object, or the episode id', 'equal numbers are equal starts'),
        )
        # The record is the tree itself: its paths are hashed, not a hundred gigabytes of video.
        paths = digest([str(video.relative_to(path)) for video in _videos(path)])
        return Imported(
            format=self.name, sources=(path,), recordings=recordings, ledger=ledger, guesses=guesses, sha256=paths
        )


SIMPLER_ENV = SimplerEnvFormat()


def _videos(root: Path, *, most: int = MOST_FILES * 10) -> Iterator[Path]:
    """Videos of episodes, in order of their paths."""
    looked = 0
    for folder, names, files in os.walk(root):
        names.sort()
        here = Path(folder)
        if len(here.relative_to(root).parts) >= DEEPEST:
            names.clear()
        looked += len(files)
        if looked > most:
            return
        if FOLDER.match(here.name):
            yield from (here / name for name in sorted(files) if VIDEO.match(name))


def _episode(video: Path, root: Path, options: ImportOptions, source: str) -> Episode:
    parts = video.resolve().parts
    if len(parts) < 6:
        raise InputError(f'{video}: wanted <checkpoint>/<scene>/<control mode>/<env>/rob_.../ above it')
    checkpoint, scene, mode, env, place, name = parts[-6:]
    setting, verdict, task = FOLDER.match(place), VIDEO.match(name), ENV.match(env)
    if setting is None or verdict is None:
        raise InputError(f'{video}: not named as SimplerEnv names its videos')
    overlay = setting['overlay']
    start = [setting['robot'], setting['turn'], verdict['object'] or '']
    number = int(verdict['id']) if verdict['id'] else int(digest(start)[:13], 16)
    parameters = {'scene': scene, 'robot': setting['robot'], 'turn': setting['turn'], 'overlay': overlay}
    variant = task['variant'] if task and task['variant'] else ''
    is_success = verdict['verdict'] == 'success'
    labels = {'control_mode': mode, **_stats(verdict['stats'] or '')}
    return Episode(
        policy=options.defaults.get('policy', checkpoint), task=task['task'] if task else env, benchmark='simpler-env',
        trial_id=f'import:{source}', outcome=Outcome.SUCCESS if is_success else Outcome.FAILURE, success=is_success,
        condition='variant-aggregation' if overlay == 'None' else 'visual-matching', instance=number, labels=labels,
        condition_parameters={**parameters, **({'variant': variant} if variant else {})},
    )  # fmt: skip


def _stats(text: str) -> dict[str, str]:
    """`_moved_correct_True_n_lift_3` as pairs; a value is True, False or a number."""
    return {m[1]: m[2] for m in re.finditer(rf'_([A-Za-z][A-Za-z_]*?)_(True|False|{_X})(?=_|$)', text)}
