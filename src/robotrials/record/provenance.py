"""Where an episode came from: what someone needs to rerun it and to judge a discrepancy.

The fields follow the artifact list of the benchmark audit's Appendix B.3: checkpoint, code, command, configuration,
seeds, initial states, wrappers, normalisation, action post-processing, success parsing, hardware, driver, CUDA,
PyTorch, simulator and environment identifiers.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from robotrials.errors import RecordError
from robotrials.record.episode import digest
from robotrials.value import dataclass

RENDER_VARIABLES = ('MUJOCO_GL', 'PYOPENGL_PLATFORM', 'EGL_DEVICE_ID', 'CUDA_VISIBLE_DEVICES', 'DISPLAY')
WATCHED_PACKAGES = (
    'robotrials', 'numpy', 'scipy', 'torch', 'jax', 'mujoco', 'robosuite', 'hf-libero', 'libero', 'robocasa',
    'gymnasium', 'lerobot', 'openpi-client', 'transformers', 'ray', 'sapien', 'mani-skill', 'metaworld',
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCard:
    """What is known of a policy's making; an empty field is unknown."""

    policy: str
    checkpoint: str = ''
    training_data: str = ''
    training_steps: int | None = None
    frozen_parts: str = ''
    state_representation: str = ''
    action_representation: str = ''
    chunk_length: int | None = None
    image_resolution_px: tuple[int, int] | None = None
    notes: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRecord:
    """Where imported episodes came from, and what of it was kept or dropped and why."""

    format: str
    source: str
    sha256: str
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Versions, hashes, hardware, drivers, seeds and render flags of one run; empty means unknown."""

    command: str = ''
    config: str = ''
    checkpoint: str = ''
    code_revision: str = ''
    code_is_dirty: bool | None = None
    seeds: str = ''
    initial_states: str = ''
    wrappers: str = ''
    normalization: str = ''
    action_postprocessing: str = ''
    success_parsing: str = ''
    environment_id: str = ''
    simulator: str = ''
    cpu: str = ''
    gpu: str = ''
    driver: str = ''
    cuda: str = ''
    torch: str = ''
    operating_system: str = ''
    python: str = ''
    packages: Mapping[str, str] = field(default_factory=dict)
    render_flags: Mapping[str, str] = field(default_factory=dict)
    policy_cards: tuple[PolicyCard, ...] = ()
    imported: ImportRecord | None = None
    protocol: Mapping[str, str] = field(default_factory=dict)  # what the host states of its own rules, by name

    @property
    def provenance_id(self) -> str:
        """The hash of the content: equal provenance is kept once, whoever writes it."""
        return digest(self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        values = dataclasses.asdict(self)
        values['packages'] = dict(self.packages)
        values['render_flags'] = dict(self.render_flags)
        values['protocol'] = dict(self.protocol)
        for name in ('imported', 'protocol'):
            if not values[name]:
                del values[name]  # so that ids stay what they were before there was such a field
        return json.loads(json.dumps(values))  # type: ignore[no-any-return]  # tuples become lists, as when read back

    def missing(self) -> tuple[str, ...]:
        """The fields that are still unknown, by name."""
        names = (f.name for f in dataclasses.fields(self) if f.name not in ('imported', 'protocol'))
        return tuple(name for name in names if getattr(self, name) in ('', None, (), {}))


def provenance_from_json(values: Mapping[str, Any], *, where: str) -> Provenance:
    """Parse what `as_json` wrote; unknown or mistyped fields are named."""
    known = {f.name for f in dataclasses.fields(Provenance)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise RecordError(f'{where}: unknown provenance fields {", ".join(unknown)}')
    cards = []
    for number, card in enumerate(values.get('policy_cards', ())):
        try:
            resolution = card.get('image_resolution_px')
            cards.append(PolicyCard(**{**card, 'image_resolution_px': tuple(resolution) if resolution else None}))
        except TypeError as error:
            raise RecordError(f'{where}: policy_cards[{number}]: {error}') from error
    return Provenance(**{**values, 'policy_cards': tuple(cards), 'imported': _import_record(values, where)})


def _import_record(values: Mapping[str, Any], where: str) -> ImportRecord | None:
    found = values.get('imported')
    if found is None:
        return None
    try:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
        return ImportRecord(**fields)
    except (TypeError, AttributeError) as error:
        raise RecordError(f'{where}: imported: {error}') from error


def collect_provenance(*, packages: Iterable[str] = WATCHED_PACKAGES, folder: Path | None = None) -> Provenance:
    """What this process can see of itself: versions, git state of `folder`, hardware, drivers, render flags."""
    revision = _output_of(['git', 'rev-parse', 'HEAD'], folder)
    status = _output_of(['git', 'status', '--porcelain'], folder)
    gpu = _output_of(['nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader'], None)
    found = _installed(packages)
    return Provenance(
        command=' '.join(sys.argv),
        code_revision=revision,
        code_is_dirty=bool(status) if revision else None,
        cpu=_cpu_name(),
        gpu='; '.join(line.split(',')[0].strip() for line in gpu.splitlines()),
        driver='; '.join(sorted({line.split(',')[-1].strip() for line in gpu.splitlines()})),
        torch=found.get('torch', ''),
        simulator=', '.join(f'{n} {found[n]}' for n in ('mujoco', 'robosuite', 'sapien') if n in found),
        operating_system=platform.platform(),
        python=platform.python_version(),
        packages=found,
        render_flags={name: os.environ[name] for name in RENDER_VARIABLES if name in os.environ},
    )


def _installed(packages: Iterable[str]) -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _output_of(command: list[str], folder: Path | None) -> str:
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ''
    return ran.stdout.strip() if ran.returncode == 0 else ''


def _cpu_name() -> str:
    try:
        for line in Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
