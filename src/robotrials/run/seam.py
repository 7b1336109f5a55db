"""The seams of an episode: what passes between host and policy, and who acts. Where it happens is `run.host`.

A policy may also be a `FittedPolicy` or a `ClosablePolicy`; nothing else is ever asked of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.record import Event
from robotrials.record.episode import ParameterValue
from robotrials.record.trajectory import Camera
from robotrials.run.convention import HostSpec, PolicySpec

if TYPE_CHECKING:  # a host inside another environment has numpy alone
    from robotrials.record.film import FilmStates

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
    past: Mapping[int, Observation] = field(default_factory=dict)  # the earlier steps that the policy's spec asks for


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


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a control step: from substep `start` on the arm follows `action`, until the next part begins.

    The action is complete at substep `ends`, which may lie in a later control step: of a displacement so much is
    carried out as substeps of it pass, and a target is to be reached by then.
    """

    start: int
    action: Action
    ends: int


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
