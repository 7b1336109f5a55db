"""The seams: where an episode happens, and who acts in it.

`Host` and `Policy` are all that a trial needs. What a host can do beyond that it shows by also having the methods of
`PreparedHost`, `PlannedHost`, `InstructingHost`, `NamingHost`, `HoldingHost`, `SubstepHost`, `ReportingHost`,
`MeasuredHost`, `DescribedHost`, `FilmingHost`, `ViewingHost`, `ClosableHost` or `robotrials.run.protocol.StatedHost`;
nothing else is ever asked of it. A policy may likewise be a `FittedPolicy` or a `ClosablePolicy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.record import Event, Outcome, Scene
from robotrials.record.episode import ParameterValue
from robotrials.record.trajectory import Camera
from robotrials.run.convention import HostSpec, PolicySpec

if TYPE_CHECKING:  # a host inside another environment has numpy alone
    from robotrials.record.film import FilmStates
    from robotrials.record.rgbd import KnownScene, View
    from robotrials.run.conditions import Thing
    from robotrials.run.plan import FilmOptions

FloatArray = NDArray[np.floating[Any]]
Action = FloatArray  # (A,), as the ActionConvention says


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What the host shows at `t_s` seconds after the reset. The arrays are the receiver's: the host keeps none."""

    t_s: float
    state: FloatArray  # (S,)
    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)  # camera -> (H, W, 3)
    depth_m: Mapping[str, FloatArray] = field(default_factory=dict)  # camera -> (H, W), along the optical axis
    cameras: Mapping[str, Camera] = field(default_factory=dict)  # calibration as it stands at t_s
    under_way: FloatArray | None = None  # (m, A): the policy's commands not carried out at t_s; None: it is not told


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A policy's answer: h actions to be taken one a control step, and how long the model itself thought, if known."""

    actions: FloatArray  # (h, A)
    inference_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What an episode is to be, for both sides; it names no policy."""

    task: str
    seed: int
    instruction: str = ''
    stratum: str = ''
    condition: str = 'nominal'
    condition_parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    instance: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    items: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The host's own account of a finished episode; what it does not know is None."""

    success: bool | None = None
    score: float | None = None
    max_score: float | None = None
    items: int | None = None
    items_placed: int | None = None
    items_lost: int | None = None
    is_unrecoverable: bool | None = None
    reason: str = ''
    instruction: str = ''  # what was asked for in words, if the host drew it
    labels: Mapping[str, str] = field(default_factory=dict)  # what else it knows of the episode
    events: tuple[Event, ...] = ()


@runtime_checkable
class Host(Protocol):
    """Where an episode happens: a simulator, a robot cell, a replay."""

    @property
    def spec(self) -> HostSpec: ...

    def reset(self, task: str, *, seed: int) -> Observation:
        """Begin an episode; the same task and seed are the same start."""

    def step(self, action: Action) -> Observation:
        """Apply one action for one control step."""

    def outcome(self) -> Outcome | None:
        """The verdict, or None while the episode is still open."""


@runtime_checkable
class PreparedHost(Protocol):
    """A host that takes more than a task and a seed: condition, stratum, labels. Called before `reset`."""

    def prepare(self, setup: Setup) -> None: ...


@runtime_checkable
class PlannedHost(Protocol):
    """A host that knows which objects its tasks have. Asked for every cell of a plan, before the first episode."""

    def check_cell(self, task: str, *, stratum: str, items: int | None) -> None:
        """Raise InputError if no episode of this cell could be reset."""


@runtime_checkable
class InstructingHost(Protocol):
    """A host that draws what is asked for in words, anew for each episode; a plan's own instruction wins."""

    def instruction(self) -> str: ...


@runtime_checkable
class NamingHost(Protocol):
    """A host that can name what stands in its scene, so that a paraphrase does not fit two things."""

    def things(self) -> Sequence[Thing]: ...


@runtime_checkable
class HoldingHost(Protocol):
    """A host that can say which action keeps the arm where it is."""

    def hold(self) -> Action: ...


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a control step: from substep `start` on the arm follows `action`, until the next part begins.

    The action is complete at substep `ends`, which may lie in a later control step: of a displacement so much is
    carried out as substeps of it pass, and a target is to be reached by then.
    """

    start: int
    action: Action
    ends: int


@runtime_checkable
class SubstepHost(Protocol):
    """A host that can take up an action between two control ticks. Others take it up at the next tick."""

    @property
    def substeps(self) -> int:
        """How many substeps a control step has."""

    def step_through(self, parts: Sequence[Part]) -> Observation:
        """One control step of these parts; the first begins at substep 0. One part of full length is `step`."""


@runtime_checkable
class ReportingHost(Protocol):
    """A host that knows more than the outcome."""

    def report(self) -> HostReport: ...


@runtime_checkable
class MeasuredHost(Protocol):
    """A host with signals to record after every step, by the names of `robotrials.record.Trajectory`'s columns.

    Unknown names are recorded as extra signals. Reading them must not change the world.
    """

    def signals(self) -> Mapping[str, Any]: ...


@runtime_checkable
class DescribedHost(Protocol):
    """A host that can say what holds for the whole episode: roles of bodies, the target, cameras."""

    def scene(self) -> Scene: ...


@dataclass(frozen=True, slots=True, eq=False)
class Shot:
    """What one camera saw of an episode: a frame (H, W, 3) for each of the footage's steps, drawn when asked for."""

    camera: Camera  # named as the host names it, calibrated at the film's size
    frames: Iterable[NDArray[np.uint8]]


@dataclass(frozen=True, slots=True, eq=False)
class Footage:
    """An episode as its host can draw it. The shots are taken one after the other, before anything else is asked."""

    states: FilmStates
    shots: tuple[Shot, ...]


@runtime_checkable
class FilmingHost(Protocol):
    """A host that keeps the states of its episode and can draw them once it is over. Drawing changes no world."""

    @property
    def film_cameras(self) -> tuple[str, ...]:
        """The cameras that it can film with."""

    def film(self, options: FilmOptions, *, states: FilmStates | None = None) -> Footage:
        """The episode since the last reset, at the steps of `run.film.film_steps`; or `states` kept of another episode
        with the same start, whose steps are those to draw.
        """


@runtime_checkable
class ViewingHost(Protocol):
    """A host with calibrated RGB-D cameras that watch the scene, whatever the policy sees."""

    @property
    def has_views(self) -> bool:
        """Whether it has such cameras as it was opened."""

    def views(self, *, is_over: bool = False) -> Mapping[str, View]:
        """RGB-D of each camera as the world stands. Looking must not change the world.

        When the episode is over a rig drives its arm out of sight first, where it can.
        """

    def known_scene(self) -> KnownScene:
        """What is known of the scene from its plan: objects, goals, what stands fixed. Asked after the reset."""


@runtime_checkable
class ClosableHost(Protocol):
    """A host with something to release."""

    def close(self) -> None: ...


@runtime_checkable
class Session(Protocol):
    """One episode's worth of acting; nothing of it outlives the episode."""

    def act(self, observation: Observation) -> Chunk: ...


@runtime_checkable
class Policy(Protocol):
    """Who acts. Opened once by a worker; starts a session for every episode."""

    @property
    def spec(self) -> PolicySpec: ...

    def start(self, setup: Setup, *, seed: int) -> Session:
        """Begin an episode; `seed` is for the policy's own randomness."""


@runtime_checkable
class FittedPolicy(Protocol):
    """A policy that maps between its own conventions and a host's. Fitted before conventions are compared."""

    def fit(self, host: HostSpec) -> None:
        """Bind the mapping to a host; InputError says what does not fit. Afterwards `spec` is in the host's terms."""


@runtime_checkable
class ClosablePolicy(Protocol):
    """A policy (or a session) with something to release."""

    def close(self) -> None: ...
