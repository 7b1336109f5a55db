"""A condition in one episode: drawn as the plan declares it, and brought about where the host does not do it itself.

The host takes what it declares. The rest is done here, on the way between host and policy: camera frames are disturbed,
the instruction is said in other words, and a latency is charged by the loop. What nobody can bring about is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from robotrials.errors import InputError
from robotrials.record.episode import ParameterValue
from robotrials.run.conditions import (
    NOMINAL,
    Application,
    CameraFrame,
    Compound,
    Condition,
    Delay,
    Thing,
    compose,
    condition_parameters,
    default_severity,
    draw_condition,
    is_drawable,
    parts_of,
    read_condition,
    share_out,
)
from robotrials.run.host import Ability, Host
from robotrials.run.plan import ConditionEntry
from robotrials.run.seam import HostSpec, Observation, Setup

Parameters = Mapping[str, ParameterValue]


def severity_of(entry: ConditionEntry) -> float:
    """The declared severity of one rung; where none is given that of the kind: 1, and 0.25 of chaos."""
    if isinstance(entry.severity, tuple):
        raise InputError(f'condition {entry.name} is a ladder; take one of its rungs')
    return default_severity(entry.name) if entry.severity is None else entry.severity


def draw_entry(entry: ConditionEntry, *, seed: int, instruction: str = '') -> tuple[str, Parameters]:
    """Name and parameters of a declared condition: drawn from the start state's seed, or the numbers of the plan.

    So every policy meets the same draw, and along a ladder the draw keeps its direction. An instruction that the plan
    does not state is paraphrased when the host has said it.
    """
    if entry.name == NOMINAL or entry.parameters or (entry.severity is None and not is_drawable(entry.name)):
        return entry.name, entry.parameters
    kinds = entry.kinds or None
    if entry.paraphraser:
        instruction = ''  # found when the episode begins: a model that does not answer breaks that episode alone
    drawn = draw_condition(
        entry.name, severity_of(entry), seed=seed, instruction=instruction, kinds=kinds,
        paraphraser=entry.paraphraser or None,
    )  # fmt: skip
    return entry.name, condition_parameters(drawn)


def share_condition(setup: Setup, spec: HostSpec) -> tuple[Condition | None, Application]:
    """An episode's condition (None: it is the host's own affair) and who does what of it.

    InputError for what neither a host of this spec nor the loop can bring about.
    """
    given = setup.condition_parameters
    is_ours = any(key.rsplit('.', 1)[-1] == 'severity' for key in given)
    condition = read_condition(setup.condition, given) if is_ours else None
    return condition, share_out(condition, spec.conditions, has_frames=bool(spec.images), charges_latency=True)


@dataclass(slots=True)
class _LastFrames:
    """The frames shown last, and what they were made of: a camera slower than the control rate shows one twice."""

    images: Mapping[str, object] = field(default_factory=dict)
    shown: Observation | None = None

    def again(self, observation: Observation) -> Observation | None:
        is_same = self.shown is not None and self.images.keys() == observation.images.keys()
        if not is_same or any(observation.images[name] is not image for name, image in self.images.items()):
            return None
        last = self.shown
        return dataclasses.replace(last, t_s=observation.t_s, state=observation.state) if last is not None else None


@dataclass(frozen=True, slots=True)
class AppliedCondition:
    """Who does what of an episode's condition. One that `run.conditions` does not have is the host's own affair."""

    name: str
    given: Parameters
    condition: Condition | None
    application: Application
    _last: _LastFrames = field(default_factory=_LastFrames, compare=False, repr=False)

    @classmethod
    def of(cls, setup: Setup, host: Host) -> AppliedCondition:
        """Share the condition of an episode out; InputError for what nobody can bring about."""
        name, given = setup.condition, setup.condition_parameters
        condition, application = share_condition(setup, host.spec)
        needs_host = bool(application.by_host) or (name != NOMINAL and condition is None)
        if needs_host and Ability.PREPARE not in host.abilities:
            raise InputError(f'host {host.spec.name} has no prepare(), so it cannot bring about condition {name}')
        return cls(name, given, condition, application)

    @property
    def is_late(self) -> bool:
        """Whether the loop has to charge a latency for it."""
        return self.application.by_clock is not None

    @property
    def parameters(self) -> Parameters:
        """What the record keeps: every drawn number, and the words."""
        return self.given if self.condition is None else condition_parameters(self.condition)

    @property
    def account(self) -> dict[str, str]:
        if self.condition is None:
            return {} if self.name == NOMINAL else {self.name: 'world'}
        return self.application.account()

    def host_setup(self, setup: Setup) -> Setup:
        """What the host is told: its own parts of the condition."""
        if self.condition is None or self.application.by_host == parts_of(self.condition):
            return setup
        if not self.application.by_host:
            return dataclasses.replace(setup, condition=NOMINAL, condition_parameters={})
        part = compose(*self.application.by_host)
        return dataclasses.replace(setup, condition=part.kind, condition_parameters=condition_parameters(part))

    def with_words(self, canonical: str, *, things: Sequence[Thing] | None = None) -> AppliedCondition:
        """The same, once the instruction is known, and clear among the things of the scene."""
        words = self.application.by_words
        if words is None or self.condition is None or words.is_said:
            return self
        said = words.say(canonical, things=things)
        condition: Condition = said
        if isinstance(self.condition, Compound):
            parts = tuple(said if part is words else part for part in self.condition.parts)
            condition = Compound(self.condition.name, parts)
        application = dataclasses.replace(self.application, by_words=said)
        return dataclasses.replace(self, condition=condition, application=application)

    def policy_setup(self, setup: Setup, canonical: str) -> Setup:
        """What the policy is told: the words as they are said, and no drawn number of the condition."""
        given = setup.condition_parameters if self.condition is None else {}
        return dataclasses.replace(
            setup, instruction=self.application.instruction(canonical), condition_parameters=given
        )

    def show(self, observation: Observation, *, step: int) -> Observation:
        """The observation as the policy sees it; a picture that is shown again keeps its noise."""
        if not self.application.by_frames:
            return observation
        frames = self._last.again(observation)
        if frames is None:
            frames = show_frames(self.application, observation, step=step)
            self._last.images, self._last.shown = observation.images, frames
        return frames

    def delay(self, step: int) -> Delay | None:
        """What the condition adds to the time between this step's observation and its action."""
        clock = self.application.by_clock
        return None if clock is None else clock.delay(step)


def show_frames(application: Application, observation: Observation, *, step: int) -> Observation:
    """Images, depth and reported camera poses disturbed; the state stays."""
    frames = []
    for name, image in observation.images.items():
        camera = observation.cameras.get(name)
        intrinsics = camera.intrinsics_px if camera is not None else None
        pose = camera.world_from_camera if camera is not None else None
        frames.append(CameraFrame(name, image, observation.depth_m.get(name), intrinsics, pose))
    seen = application.disturb(frames, step=step)
    cameras = {
        name: dataclasses.replace(camera, world_from_camera=pose)
        for name, camera in observation.cameras.items()
        if (pose := seen[name].world_from_camera) is not None
    }
    return dataclasses.replace(
        observation,
        images={name: frame.rgb for name, frame in seen.items()},
        depth_m={name: frame.depth_m for name, frame in seen.items() if frame.depth_m is not None},
        cameras=cameras,
    )
