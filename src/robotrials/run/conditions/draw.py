"""Draw conditions by name, alone or jointly, and decide who brings each about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from robotrials.errors import InputError, UnknownName
from robotrials.run.conditions.background import Background, Distractor
from robotrials.run.conditions.camera import CameraShift, Exposure, Light, SensorNoise
from robotrials.run.conditions.condition import (
    APPLICATION_ORDER,
    CameraFrame,
    Condition,
    Disturbance,
    FrameCondition,
    Latency,
    compose,
    parts_of,
)
from robotrials.run.conditions.instruction import Instruction, Paraphraser
from robotrials.run.conditions.layout import Layout, RobotState
from robotrials.value import dataclass

# Who brings a condition about: the host, the frames on their way to the policy, the words, or the clock.
# A host declares the kinds it can bring about. What it can't is laid over its camera frames where a condition has a
# version for images; an instruction is said in other words; a latency is charged by the loop. Anything else is refused
# before the trial starts, so that no episode claims a condition that nobody applied.


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


# Draw conditions by name, ladders of severities, and chaos: a joint draw of all.

CHAOS = 'chaos'
CHAOS_SEVERITY = 0.25  # unless another is said: all kinds at once at 1 leave nothing of any policy
EITHER = (('exposure+', 'exposure-'), ('camera_moved', 'camera_bumped'))  # of each pair chaos draws one
_DRAWN = (Light, Background, Distractor, Layout, RobotState, SensorNoise, Disturbance, Latency)
_DRAWS: dict[str, Callable[..., Condition]] = {
    **{kind.KINDS[0]: kind.draw for kind in _DRAWN},
    'exposure+': partial(Exposure.draw, over=True),
    'exposure-': partial(Exposure.draw, over=False),
    'camera_bumped': partial(CameraShift.draw, is_stale=True),
    'camera_moved': partial(CameraShift.draw, is_stale=False),
}
KINDS = (*sorted(_DRAWS), 'instruction')


def draw_condition(
    name: str,
    severity: float | None = None,
    *,
    seed: int,
    instruction: str | None = None,
    paraphraser: Paraphraser | str | None = None,
    kinds: Sequence[str] | None = None,
) -> Condition:
    """A condition by its name: a kind, several joined by `+` signs (`light+latency`), or `chaos`.

    Without a severity it is `default_severity(name)`: 0.25 of chaos, 1 of all others.

    Chaos is a joint draw of every kind in `kinds` (all by default); it takes the instruction in only where one is
    given, and draws one of over- and under-exposure and one of a bumped and a moved camera. `exposure+` and `exposure-`
    keep their signs in a join (`light+exposure-`). An empty `instruction` is one that is not known yet: it is
    paraphrased once it is.
    """
    severity = default_severity(name) if severity is None else severity
    if name == CHAOS:
        return draw_chaos(severity, seed=seed, instruction=instruction, paraphraser=paraphraser, kinds=kinds)
    parts = [_draw_one(part, severity, seed, instruction, paraphraser) for part in _split(name)]
    return compose(*parts, name=name if len(parts) > 1 else '')


def default_severity(name: str) -> float:
    """The severity of a condition for which none is said."""
    return CHAOS_SEVERITY if name == CHAOS else 1.0


def draw_chaos(
    severity: float = CHAOS_SEVERITY,
    *,
    seed: int,
    instruction: str | None = None,
    paraphraser: Paraphraser | str | None = None,
    kinds: Sequence[str] | None = None,
) -> Condition:
    """All conditions at once, each at this severity, drawn jointly from one seed."""
    wanted = list(KINDS if kinds is None else kinds)
    for kind in wanted:
        if kind not in KINDS:
            raise UnknownName('condition', kind, KINDS)
    if instruction is None and kinds is None:
        wanted.remove('instruction')
    for first, second in EITHER:
        if {first, second} <= set(wanted):
            wanted.remove(second if seed % 2 else first)
    ordered = sorted(wanted, key=APPLICATION_ORDER.index)
    parts = [_draw_one(kind, severity, seed, instruction, paraphraser) for kind in ordered]
    return compose(*parts, name=CHAOS)


def is_drawable(name: str) -> bool:
    """Whether `draw_condition` knows the name."""
    return name == CHAOS or (bool(name) and all(part in KINDS for part in _split(name)))


def severity_ladder(
    name: str, severities: Sequence[float] = (0.25, 0.5, 0.75, 1.0), *, seed: int, instruction: str | None = None
) -> tuple[Condition, ...]:
    """One condition at rising severities, for a dose-response curve; the draw keeps its direction."""
    rising = sorted(set(severities))
    if list(severities) != rising or not rising:
        raise InputError(f'severities must rise, found {list(severities)}')
    return tuple(draw_condition(name, s, seed=seed, instruction=instruction) for s in rising)


def _draw_one(
    kind: str, severity: float, seed: int, instruction: str | None, paraphraser: Paraphraser | str | None
) -> Condition:
    if kind == 'instruction':
        if instruction is None:
            raise InputError('the condition instruction needs the canonical instruction; give instruction=...')
        return Instruction.draw(severity, seed=seed, canonical=instruction, paraphraser=paraphraser)
    if kind not in _DRAWS:
        raise UnknownName('condition', kind, (*KINDS, CHAOS))
    return _DRAWS[kind](severity, seed=seed)


def _split(name: str) -> list[str]:
    """`light+exposure++latency` is light, exposure+ and latency."""
    marked = name.replace('exposure+', 'exposure\0')
    return [part.replace('\0', '+') for part in marked.split('+') if part]
