"""How a plan is run: the tables of options, each checked by itself."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import field

from robotrials.errors import InputError, near_miss
from robotrials.value import dataclass

LONGEST_LATENCY_S = 86_400.0
MOST_JITTER = 10.0


class Scenes(enum.StrEnum):
    MATCHED = 'matched'  # every policy meets the same start states
    INDEPENDENT = 'independent'


class Grouping(enum.StrEnum):
    """What is kept together in a session, to spare changeovers; blocks are shuffled inside a group."""

    NONE = 'none'
    TASK = 'task'
    STRATUM = 'stratum'


class Clock(enum.StrEnum):
    VIRTUAL = 'virtual'  # time is the count of control steps
    WALL = 'wall'


class LatencyMode(enum.StrEnum):
    NONE = 'none'  # the world waits for the policy
    MEASURED = 'measured'  # the world moves on for as long as the policy really took
    INJECTED = 'injected'  # the world moves on for as long as the plan says


class Waiting(enum.StrEnum):
    """What the arm does until a new answer arrives."""

    KEEP = 'keep'  # play out the queue, then keep the last position target
    REPEAT = 'repeat'  # play out the queue, repeat the last motion for `repeat_s`, then hold still
    CONTINUE = 'continue'  # play out the queue, then hold still; asks as HOLD does
    HOLD = 'hold'  # take the first `execute` actions of an answer, then hold still until the next


class Asking(enum.StrEnum):
    """When the policy is given an observation."""

    STREAM = 'stream'  # one is sent at every control tick, and it takes the newest that has arrived when it is free
    REQUEST = 'request'  # one is sent when `execute` actions of the last answer were taken, and the arm waits for it


class UnderWay(enum.StrEnum):
    """Whether a policy is told which of its commands were not yet carried out when it was shown the world."""

    TOLD = 'told'
    UNTOLD = 'untold'


class FaultOutcome(enum.StrEnum):
    INVALID = 'invalid'
    FAILURE = 'failure'


class StoppingRule(enum.StrEnum):
    NONE = 'none'
    SEQUENTIAL = 'sequential'


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTarget:
    """What the trial must be able to see: the episodes per cell follow from it."""

    difference: float
    power: float = 0.8
    alpha: float = 0.05
    discordance: float | None = None  # for matched scenes
    success_rate: float | None = None  # for independent scenes: of the worse policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationOptions:
    max_rounds_per_block: int = 3  # a block holds every policy 1 to this many times
    sessions: int = 1
    fixtures: tuple[str, ...] = ()
    grouping: Grouping = Grouping.NONE

    def __post_init__(self) -> None:
        for name in ('max_rounds_per_block', 'sessions'):
            if getattr(self, name) < 1:
                raise InputError(f'{name} is {getattr(self, name)}, wanted >= 1')
        if len(set(self.fixtures)) != len(self.fixtures):
            raise InputError('fixtures are named twice')


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySpread:
    """A latency drawn anew for every question, uniform between two bounds."""

    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.high_s <= LONGEST_LATENCY_S:
            bounds = f'low_s is {self.low_s} and high_s {self.high_s}'
            raise InputError(f'{bounds}, wanted 0 <= low_s <= high_s <= {LONGEST_LATENCY_S:g}')


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions:
    """The three parts of the time from an observation to its action: network, inference, transport to the arm.

    The rest says what the wires do to messages, what the arm does meanwhile, and what the policy knows of it.
    """

    mode: LatencyMode = LatencyMode.NONE
    network_s: float | LatencySpread = 0.0
    inference_s: float | LatencySpread = 0.0
    transport_s: float | LatencySpread = 0.0
    waiting: Waiting = Waiting.KEEP
    repeat_s: float = 0.2  # how long the last motion is repeated under `waiting = "repeat"`
    asking: Asking | None = None  # not given: request under hold and continue, stream otherwise
    retry_s: float = 1.0  # a request without an answer for so long is put again
    under_way: UnderWay = UnderWay.TOLD
    jitter: float = 0.0  # of injected parts: each times a log-normal factor of mean 1 and this standard deviation
    loss: float = 0.0  # the chance that a message is lost, an observation or an answer
    reorder: bool = True  # a late message may be overtaken; false: it holds up those behind it

    def __post_init__(self) -> None:
        for name in ('network_s', 'inference_s', 'transport_s'):
            value = getattr(self, name)
            if not isinstance(value, LatencySpread) and not 0 <= value <= LONGEST_LATENCY_S:
                raise InputError(f'{name} is {value}, wanted 0 to {LONGEST_LATENCY_S:g}')
            if self.mode is not LatencyMode.INJECTED and value != 0.0:
                raise InputError(f"{name} is given and mode is {self.mode}; injected latencies want mode = 'injected'")
        if self.jitter and self.mode is not LatencyMode.INJECTED:
            raise InputError(f"jitter is given and mode is {self.mode}; it wants mode = 'injected'")
        if self.loss and self.mode is LatencyMode.NONE:
            raise InputError("loss is given and mode is none; it wants mode = 'injected' or 'measured'")
        if not 0 <= self.jitter <= MOST_JITTER:
            raise InputError(f'jitter is {self.jitter}, wanted 0 to {MOST_JITTER:g}')
        if not self.repeat_s >= 0:
            raise InputError(f'repeat_s is {self.repeat_s}, wanted >= 0')
        if not 0 <= self.loss < 1:
            raise InputError(f'loss is {self.loss}, wanted a chance below 1')
        if not self.retry_s > 0:
            raise InputError(f'retry_s is {self.retry_s}, wanted > 0')

    @property
    def asks(self) -> Asking:
        if self.asking is not None:
            return self.asking
        return Asking.REQUEST if self.waiting in (Waiting.HOLD, Waiting.CONTINUE) else Asking.STREAM


LATER_LATENCY_KEYS = ('repeat_s', 'asking', 'retry_s', 'under_way', 'jitter', 'loss', 'reorder')


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Bounds on the motion part of actions, one number for all or one each, in the action's units a second."""

    velocity: float | tuple[float, ...] | None = None
    acceleration: float | tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    clock: Clock = Clock.VIRTUAL
    latency: LatencyOptions = field(default_factory=LatencyOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    deadline_s: float | None = None  # an answer that took longer (wall clock) is late

    def __post_init__(self) -> None:
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise InputError(f'deadline_s is {self.deadline_s}, wanted > 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogOptions:
    """Seconds of silence after which a call is cut off and its worker killed."""

    policy_s: float = 60.0
    host_s: float = 60.0
    start_s: float = 900.0  # loading hosts and policies
    thinking_s: float | None = None  # of all of a policy's answers in one episode together; None: no budget

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is not None and value <= 0:
                raise InputError(f'{f.name} is {getattr(self, f.name)}, wanted > 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions:
    """How often a slot is tried, and what a policy's own faults count as."""

    attempts: int = 3
    policy_crash: FaultOutcome = FaultOutcome.INVALID
    policy_hang: FaultOutcome = FaultOutcome.INVALID
    policy_late: FaultOutcome = FaultOutcome.FAILURE
    policy_answer: FaultOutcome = FaultOutcome.FAILURE  # not finite, or of a wrong shape

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InputError(f'attempts is {self.attempts}, wanted >= 1')


class StoppingScore(enum.StrEnum):
    SUCCESS = 'success'
    PROMPTNESS = 'promptness'  # time-to-success: the mean over items of 1 - min(T, tau_s) / tau_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingOptions:
    rule: StoppingRule = StoppingRule.NONE
    score: StoppingScore = StoppingScore.SUCCESS
    tau_s: float | None = None  # of promptness; each task's own time cap when not given
    alpha: float = 0.05
    smallest_difference: float | None = None
    look_every_rounds: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError(f'alpha is {self.alpha}, wanted between 0 and 1')
        if self.look_every_rounds < 1:
            raise InputError(f'look_every_rounds is {self.look_every_rounds}, wanted >= 1')
        if self.tau_s is not None and not self.tau_s > 0:
            raise InputError(f'tau_s is {self.tau_s}, wanted > 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class FilmOptions:
    """How episodes are filmed: the cameras (the policy's and an overview unless named), their size and rate."""

    cameras: tuple[str, ...] = ()
    size_px: tuple[int, ...] = (160, 120)  # width, height
    rate_hz: float = 5.0
    draw: bool = True  # else only the states are kept

    def __post_init__(self) -> None:
        sides = self.size_px
        if len(sides) != 2 or any(s % 2 or not 16 <= s <= most for s, most in zip(sides, (1280, 960), strict=True)):
            raise InputError(
                f'size_px is {list(sides)}, wanted even width and height such as [160, 120], at most [1280, 960]'
            )
        if not 0 < self.rate_hz <= 1000:
            raise InputError(f'rate_hz is {self.rate_hz}, wanted frames per second above 0')
        if len(set(self.cameras)) != len(self.cameras):
            raise InputError(f'cameras are {list(self.cameras)}, wanted each once')


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """What is kept of an episode. Hosts that can draw are filmed unless `film` is "off" (or false).

    With "later" only the states are kept that films can be drawn from.
    """

    trajectories: bool = True
    frame_hashes: bool = False
    simulator_state: bool = False
    film: FilmOptions | bool | str | None = None
    rgbd: str | float = 'ends'  # RGB-D of a host with cameras: ends (start and end), off, or so often per second too

    def __post_init__(self) -> None:
        if isinstance(self.film, str):
            words: dict[str, FilmOptions | bool] = {'on': True, 'off': False, 'later': FilmOptions(draw=False)}
            if self.film not in words:
                raise InputError(f'film is {self.film!r}: {near_miss(self.film, words)}, or a table of its options')
            object.__setattr__(self, 'film', words[self.film])
        rate = self.rgbd
        if isinstance(rate, str) and rate not in ('ends', 'off'):
            raise InputError(f"rgbd is {rate!r}, wanted 'ends', 'off' or a number of views per second")
        if not isinstance(rate, str):
            if not 0 < rate <= 100:
                raise InputError(f'rgbd is {rate}, wanted a rate above 0 and up to 100 per second')
            object.__setattr__(self, 'rgbd', float(rate))

    @property
    def filming(self) -> FilmOptions | None:
        """How to film, if at all. Without a trajectory there is nothing that a film could belong to."""
        if self.film is False or not self.trajectories:
            return None
        return self.film if isinstance(self.film, FilmOptions) else FilmOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindingOptions:
    enabled: bool = True
    secret: str = ''  # makes codes and hash unguessable even for one who guesses the rest of the plan
    # Of an operator's plan, made by `robotrials seal`: its policies are codes, and nothing here leads back to names.
    commitment: str = ''  # binds it to the statistician's secret and whole plan
    arms: str = ''  # SHA-256 of the file that says how to reach each code
    public_key: str = ''  # closes what only the statistician may read
    rotation: str = ''  # commits to the key of the order, which lies with the machine; '' in older trials

    @property
    def is_sealed(self) -> bool:
        return bool(self.commitment)

    @property
    def is_concealed(self) -> bool:
        """Whether nothing in this plan tells which arm comes when."""
        return bool(self.rotation)
