"""`robotrials import` of robomimic and LIBERO demonstrations: HDF5 with `data/demo_<i>`.

Demonstrations are taken by number, not by text (demo_10 comes after demo_9). `env_args`, the BDDL file and the problem
go to the provenance, because the same file name means different worlds in different versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, install_hint, load_optional
from robotrials.formats.imported import (
    CERTAIN,
    ImportAccount,
    Imported,
    ImportOptions,
    Recording,
    refuse_unused,
)
from robotrials.formats.rollout import (
    Assignment,
    CameraClip,
    RolloutRecorder,
    SourceRollout,
    account_signals,
    assign,
    camera_question,
    import_rollouts,
    take_signals,
)
from robotrials.formats.video import FrameClip
from robotrials.record import Provenance

SUFFIXES = ('.hdf5', '.h5')
SIGNATURE = b'\x89HDF\r\n\x1a\n'
DEMO = re.compile(r'demo_(\d+)')
KNOWN = {
    'action_raw': 'actions', 'reward': 'rewards', 'done': 'dones', 'simulator_state': 'states',
    'joint_position_rad': 'obs/joint_states', 'ee_pose': 'obs/ee_states',
}  # fmt: skip
ROBOMIMIC = {'joint_position_rad': 'obs/robot0_joint_pos', 'ee_pose': 'obs/robot0_eef_pose'}
POSE_PARTS = ('obs/robot0_eef_pos', 'obs/robot0_eef_quat')  # x y z, and a quaternion x y z w
POSE = 'obs/robot0_eef_pose'
DEFAULT_RATE_HZ = 20.0  # robosuite's control frequency where env_args do not state one
ATTRIBUTES = ('env_args', 'problem_info', 'bddl_file_name', 'bddl_file_content', 'macros_image_convention')


class Hdf5Format:
    """Demonstrations as robomimic and LIBERO keep them."""

    name = 'robomimic'
    summary = 'robomimic or LIBERO demonstrations: HDF5 with data/demo_<i>'

    def recognise(self, path: Path) -> float | None:
        try:
            with path.open('rb') as stream:
                return CERTAIN if path.suffix in SUFFIXES and stream.read(8) == SIGNATURE else None
        except OSError:
            return None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='HDF5 demonstrations', takes=('columns', 'answers', 'rate_hz'))
        ledger = ImportAccount()
        with opened(path) as file:
            facts = file_facts(file, path)
            numbers = demo_numbers(file, path)
            assignments = _assignments(file, numbers[0], options, path)
        rate_hz = _rate(facts, options, ledger)
        source = _Hdf5Source(path, numbers, assignments, facts, rate_hz, options, ledger)
        source.account()
        origin = Provenance(
            environment_id=facts.environment, config=json.dumps(dict(facts.texts)) if facts.texts else '',
            success_parsing='a reward of 1 or more at any step',
        )  # fmt: skip
        return import_rollouts(
            self.name, source.recordings, assignments, sources=(path,), options=options, ledger=ledger, origin=origin
        )


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The open file; what HDF5 itself complains of is named by its path."""
    h5py = load_optional('h5py', f'{path}: reading HDF5 needs h5py: {install_hint("hdf5")}')
    try:
        with h5py.File(path, 'r') as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:
        if isinstance(error, KeyError) and 'Unable to' not in str(error):  # h5py's word for damage inside
            raise
        raise InputError(f'{path}: damaged, cut short or not HDF5 ({error})') from error


def demo_numbers(file: Any, path: Path) -> tuple[int, ...]:
    """The numbers of the demonstrations, in order."""
    if 'data' not in file:
        raise InputError(
            f'{path}: no group "data"; found {", ".join(map(_text, file)) or "nothing"}. Wanted data/demo_<i>'
        )
    numbers = sorted(int(match[1]) for name in file['data'] if (match := DEMO.fullmatch(_text(name))))
    if not numbers:
        raise InputError(
            f'{path}: no data/demo_<i> in it; found {", ".join(map(_text, list(file["data"])[:5])) or "nothing"}'
        )
    stated = file['data'].attrs.get('num_demos')
    if stated is not None and int(stated) != len(numbers):
        raise InputError(f'{path}: num_demos is {int(stated)}, and {len(numbers)} demonstrations are there; not whole')
    return tuple(numbers)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the file says of the world its demonstrations come from."""

    texts: Mapping[str, str]
    instruction: str
    environment: str
    control_rate_hz: float | None


def file_facts(file: Any, path: Path) -> Facts:
    """The attributes of a file of demonstrations, read."""
    attributes = file['data'].attrs if 'data' in file else {}
    texts = {name: _text(attributes[name]) for name in ATTRIBUTES if name in attributes}
    arguments = _json(texts.get('env_args', ''), path, 'env_args')
    problem = _json(texts.get('problem_info', ''), path, 'problem_info')
    instruction = problem.get('language_instruction', '')
    if isinstance(instruction, list):
        instruction = ' '.join(instruction)
    kwargs = arguments.get('env_kwargs') or {}
    rate = kwargs.get('control_freq')
    environment = str(arguments.get('env_name') or arguments.get('problem_name') or attributes.get('env_name', ''))
    return Facts(texts, str(instruction).strip('"'), environment, float(rate) if rate else None)


def task_name(facts: Facts, path: Path) -> str:
    """The task of a file: its BDDL file's, its environment's, or its own name."""
    name = facts.texts.get('bddl_file_name', '')
    return Path(name).stem or facts.environment or path.stem.removesuffix('_demo')


def _text(value: Any) -> str:
    return value.decode('utf-8', 'replace') if isinstance(value, bytes) else str(value)


def _json(text: str, path: Path, name: str) -> dict[str, Any]:
    try:
        values = json.loads(text) if text else {}
    except ValueError as error:
        raise InputError(f'{path}: data.attrs[{name!r}] is not JSON ({error})') from error
    return values if isinstance(values, dict) else {}


def _rate(facts: Facts, options: ImportOptions, ledger: ImportAccount) -> float:
    if options.rate_hz is not None:
        return options.rate_hz
    if facts.control_rate_hz is not None:
        ledger.note(f'steps became seconds by control_freq = {facts.control_rate_hz:g} Hz of env_args')
        return facts.control_rate_hz
    ledger.hint(
        f'env_args state no control_freq: {DEFAULT_RATE_HZ:g} steps per second are assumed, as robosuite has it '
        '(--rate-hz says otherwise)'
    )
    return DEFAULT_RATE_HZ


def _assignments(file: Any, number: int, options: ImportOptions, path: Path) -> tuple[Assignment, ...]:
    demo = file[f'data/demo_{number}']
    if 'actions' not in demo:
        raise InputError(f'{path}: data/demo_{number} has no "actions"; found {", ".join(map(_text, demo))}')
    names = {
        key: tuple(map(str, range(int(np.prod(shape[1:])))))
        for key, shape, dtype in _datasets(demo)
        if not _is_camera(shape, dtype) and len(shape) in (1, 2)
    }
    if all(part in names for part in POSE_PARTS):
        names[POSE] = tuple('0123456')
    known = {**KNOWN, **{k: v for k, v in ROBOMIMIC.items() if v in names}}
    if len(names.get(known['ee_pose'], ())) not in (6, 7):
        del known['ee_pose']
    return assign(names, mapped=options.columns, known=known)


def _column(demo: Any, key: str) -> NDArray[Any] | None:
    if key == POSE and all(part in demo for part in POSE_PARTS):
        place, turn = (np.asarray(demo[part]) for part in POSE_PARTS)
        return np.concatenate([place, turn[:, [3, 0, 1, 2]]], axis=1)
    return np.asarray(demo[key]) if key in demo else None


def _datasets(demo: Any) -> list[tuple[str, tuple[int, ...], Any]]:
    """The datasets of a demonstration but `next_obs`, which is `obs` one step later."""
    datasets: list[tuple[str, tuple[int, ...], Any]] = []

    def visit(name: str, item: Any) -> None:
        if hasattr(item, 'shape') and len(item.shape) and not name.startswith('next_obs'):
            datasets.append((name, item.shape, item.dtype))

    demo.visititems(visit)
    return datasets


def _is_camera(shape: Sequence[int], dtype: Any) -> bool:
    return len(shape) == 4 and shape[-1] in (1, 3) and dtype == np.uint8


@dataclass(frozen=True, slots=True)
class _Hdf5Source:
    path: Path
    numbers: tuple[int, ...]
    assignments: tuple[Assignment, ...]
    facts: Facts
    rate_hz: float
    options: ImportOptions
    ledger: ImportAccount

    @property
    def is_upright(self) -> bool:
        return self.facts.texts.get('macros_image_convention', 'opencv') != 'opengl'

    @property
    def cameras(self) -> tuple[str, ...]:
        with opened(self.path) as file:
            demo = file[f'data/demo_{self.numbers[0]}']
            return tuple(key for key, shape, dtype in _datasets(demo) if _is_camera(shape, dtype))

    def account(self) -> None:
        account_signals(self.assignments, {}, self.ledger)
        with opened(self.path) as file:
            demo = file[f'data/demo_{self.numbers[0]}']
            taken = {a.place.key for a in self.assignments}
            for key, shape, dtype in _datasets(demo):
                if key not in taken and not _is_camera(shape, dtype):
                    self.ledger.drop(key, None, why=f'{dtype} {shape[1:]} per step has no place in a trajectory')
            if 'next_obs' in demo:
                self.ledger.drop('next_obs', None, why='obs, one step later')
            if self.cameras and not self.is_upright:
                self.ledger.note('pictures are stored upside down (macros_image_convention opengl), and were turned')
            if 'model_file' in demo.attrs:
                self.ledger.drop('model_file', None, why='the whole scene as XML for every demonstration')
            for name in file.get('mask', ()):
                self.ledger.note(f'mask/{name} names {len(file["mask"][name])} demonstrations')

    def recordings(self) -> Iterator[Recording]:
        recorder = RolloutRecorder(
            kind='an HDF5 file of demonstrations', options=self.options, source=self.path, ledger=self.ledger,
            benchmark='libero' if 'bddl_file_name' in self.facts.texts else '',
        )  # fmt: skip
        with opened(self.path) as file:
            cameras = self.cameras if camera_question().answer(self.options) == 'keep' else ()
            for number in self.numbers:
                yield recorder.record(self._rollout(file, number, cameras))

    def _rollout(self, file: Any, number: int, cameras: Sequence[str]) -> SourceRollout:
        where = f'{self.path}: data/demo_{number}'
        demo = file[f'data/demo_{number}']
        columns: dict[str, NDArray[Any]] = {}
        for assignment in self.assignments:
            key = assignment.place.key
            values = _column(demo, key)
            if values is None:
                raise InputError(f'{where}: no {key!r}, which demo_{self.numbers[0]} has; the file is not whole')
            columns[key] = values
        steps = len(columns['actions'] if 'actions' in columns else np.asarray(demo['actions']))
        uneven = next((key for key, values in columns.items() if len(values) != steps), None)
        if uneven is not None:
            raise InputError(f'{where}: {uneven} has {len(columns[uneven])} steps, actions {steps}')
        stated = demo.attrs.get('num_samples')
        if stated is not None and int(stated) != steps:
            raise InputError(f'{where}: num_samples is {int(stated)}, actions have {steps} steps; cut short')
        rewarded = np.flatnonzero(columns['rewards'] >= 1) if 'rewards' in columns else None
        return SourceRollout(
            where=where, number=number, time_s=np.arange(steps) / self.rate_hz, duration_s=steps / self.rate_hz,
            signals=take_signals(self.assignments, columns, where=where), task=task_name(self.facts, self.path),
            instruction=self.facts.instruction,
            success=None if rewarded is None else bool(len(rewarded)),
            success_t_s=(int(rewarded[0]) + 1) / self.rate_hz if rewarded is not None and len(rewarded) else None,
            labels={'demo': str(number)}, control_rate_hz=self.rate_hz,
            cameras={_short(key): self._camera(demo, key, where) for key in cameras},
        )  # fmt: skip

    def _camera(self, demo: Any, key: str, where: str) -> CameraClip:
        if key not in demo:
            raise InputError(f'{where}: no {key!r}, which other demonstrations have; the file is not whole')
        frames = np.asarray(demo[key])
        upright = frames if self.is_upright else frames[:, ::-1]
        return CameraClip(FrameClip(tuple(upright), self.rate_hz), frames.shape[2], frames.shape[1])


def _short(key: str) -> str:
    return key.removeprefix('obs/').removesuffix('_rgb').removesuffix('_image')


ROBOMIMIC_FORMAT = Hdf5Format()
