"""The list of violations that a run explorer opens: episode, time, clause, signal, value, bodies."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from robotrials.measure.safety.result import EpisodeSafety
from robotrials.record.folder import write_durably


@dataclass(frozen=True, slots=True)
class WitnessClip:
    """One violation and where to look for it."""

    episode_id: str
    attempt: int
    policy: str
    benchmark: str
    task: str
    success: bool
    time_s: float
    step: int
    spec_id: str
    clause: str
    signal: str
    value: float
    unit: str
    margin: float
    depth: float
    bodies: tuple[str, ...]


def witness_clips(scores: Iterable[EpisodeSafety]) -> list[WitnessClip]:
    """Every violation, the most severe first."""
    clips = [
        WitnessClip(
            s.episode_id, s.attempt, s.policy, s.benchmark, s.task, s.success, v.time_s, v.step, v.spec_id, v.clause,
            v.signal, v.value, v.unit, v.margin, v.depth, v.bodies,
        )
        for s in scores
        for v in s.violations
    ]  # fmt: skip
    return sorted(clips, key=lambda clip: (-clip.depth, clip.episode_id, clip.attempt, clip.spec_id))


def write_clips(path: Path | str, scores: Iterable[EpisodeSafety]) -> Path:
    """The clips as a JSON list."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = [_row(clip) for clip in witness_clips(scores)]
    write_durably(target, json.dumps(rows, indent=1, allow_nan=False) + '\n')
    return target


def _row(clip: WitnessClip) -> dict[str, object]:
    """JSON has no infinity: a clause whose window was empty has the margin '-inf'."""
    row = dataclasses.asdict(clip)
    return {**row, 'margin': clip.margin if math.isfinite(clip.margin) else '-inf'}
