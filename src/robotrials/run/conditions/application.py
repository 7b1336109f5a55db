"""Who brings a condition about: the host, the frames on their way to the policy, the words, or the clock.

A host declares the kinds it can bring about. What it can't is laid over its camera frames where a condition has a
version for images; an instruction is said in other words; a latency is charged by the loop. Anything else is refused
before the trial starts, so that no episode claims a condition that nobody applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from robotrials.errors import InputError
from robotrials.run.conditions.condition import CameraFrame, Condition, FrameCondition, parts_of
from robotrials.run.conditions.instruction import Instruction
from robotrials.run.conditions.physics import Latency


@runtime_checkable
class DisturbableHost(Protocol):
    """A host that can bring conditions about in its own world."""

    def applicable(self) -> frozenset[str]:
        """The kinds it can bring about."""

    def apply(self, condition: Condition) -> None:
        """Bring it about in the next episode; called before the reset, only with kinds that were declared."""


@dataclass(frozen=True, slots=True)
class Application:
    """A condition, shared out."""

    by_host: tuple[Condition, ...] = ()
    by_frames: tuple[FrameCondition, ...] = ()
    by_words: Instruction | None = None
    by_clock: Latency | None = None

    def instruction(self, canonical: str) -> str:
        """What the policy is told; a paraphrase of another instruction is an error."""
        return canonical if self.by_words is None else self.by_words.say(canonical).text

    def account(self) -> dict[str, str]:
        """Who applies each kind: the world, the frames, the words or the clock."""
        parts: list[tuple[Condition | None, str]] = [(c, 'world') for c in self.by_host]
        parts += [(c, 'frames') for c in self.by_frames]
        parts += [(self.by_words, 'words'), (self.by_clock, 'clock')]
        return {part.kind: who for part, who in parts if part is not None}

    def disturb(self, frames: Iterable[CameraFrame], *, step: int) -> dict[str, CameraFrame]:
        """Every frame disturbed, by camera."""
        disturbed = {}
        for frame in frames:
            for condition in self.by_frames:
                frame = condition.disturb(frame, step=step)
            disturbed[frame.camera] = frame
        return disturbed


def share_out(
    condition: Condition | None, applicable: Iterable[str] = (), *, has_frames: bool, charges_latency: bool
) -> Application:
    """Who applies each part; InputError that lists the parts that nobody can apply.

    A host's own version is preferred to one over frames: it is the real thing.
    """
    if condition is None:
        return Application()
    kinds = frozenset(applicable)
    by_host, by_frames, refused = [], [], []
    words, clock = None, None
    for part in parts_of(condition):
        if part.kind in kinds:
            by_host.append(part)
        elif isinstance(part, Instruction):
            words = part
        elif isinstance(part, Latency) and charges_latency:
            clock = part
        elif isinstance(part, FrameCondition) and has_frames:
            by_frames.append(part)
        else:
            refused.append(part.kind)
    if refused:
        raise InputError(
            f'condition {condition.kind}: nobody can bring about {", ".join(refused)}; the host declares '
            f'{", ".join(sorted(kinds)) or "nothing"}' + ('' if has_frames else ' and gives no camera frames')
        )
    return Application(tuple(by_host), tuple(by_frames), words, clock)


def frames_of(images: Mapping[str, object]) -> list[CameraFrame]:
    """Frames of plain images by camera, for hosts and datasets that have nothing else."""
    import numpy as np

    return [CameraFrame(camera, np.asarray(image)) for camera, image in images.items()]
