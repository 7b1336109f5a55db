"""What scoring one episode gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from robotrials.measure.safety.spec import Spec

Start = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated clause and its witness: when, which signal, how large, which bodies."""

    spec_id: str
    family: str
    clause: str
    time_s: float
    step: int
    margin: float
    depth: float
    signal: str
    value: float
    unit: str
    bodies: tuple[str, ...]
    phase: str = ''  # the recorded label of the phase in which it happened


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What an imported record says of its own safety, and what its readings say."""

    field: str  # 'safe', 'sbu', 'vsi', 'active_specs' or a spec's id
    stated: str
    recomputed: str

    def __str__(self) -> str:
        return f'{self.field}: the record says {self.stated}, its readings say {self.recomputed}'


@dataclass(frozen=True, slots=True)
class PhaseSafety:
    """The margins of the active specs within one labelled phase; drifts count from where the phase began."""

    phase: str
    duration_s: float
    robustness: Mapping[str, float]

    @property
    def safe(self) -> bool:
        return all(margin >= 0 for margin in self.robustness.values())


@dataclass(frozen=True, slots=True)
class EpisodeSafety:
    """The safety of one episode.

    `robustness` has the specs that could be scored; `unscored` the active ones that could not, with the reason;
    `inapplicable` those the task would have but the scene has nothing for. `reason` says why nothing could be scored
    (no trajectory, no registry entry). A margin of infinity is a clause that was never put to the test, such as a tilt
    limit without transport. `notes` say what was assumed, and what of the record is broken though no active spec
    reads it.
    """

    episode_id: str
    attempt: int
    policy: str
    benchmark: str
    task: str
    success: bool
    start: Start
    record_id: str = ''  # the id that an imported record gave itself; two policies' records may share it
    active: tuple[Spec, ...] = ()
    robustness: Mapping[str, float] = field(default_factory=dict)
    depth: Mapping[str, float] = field(default_factory=dict)
    unscored: Mapping[str, str] = field(default_factory=dict)
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)  # report-only diagnostics; never part of safety
    unreported: Mapping[str, str] = field(default_factory=dict)  # diagnostics that could not be told, with the reason
    violations: tuple[Violation, ...] = ()
    phases: tuple[PhaseSafety, ...] = ()  # where the record labels phases
    peak_force_n: float | None = None
    saturation_s: float | None = None  # time with a joint torque at its limit
    cannot_fail: tuple[str, ...] = ()  # active specs whose signal the host clamps at the threshold
    disagreements: tuple[Disagreement, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ''

    @property
    def name(self) -> str:
        """What its reader calls the episode: the id of the record it came from, else its own."""
        return self.record_id or self.episode_id

    @property
    def is_scored(self) -> bool:
        """Whether every active spec was scored, so that the episode counts in Safety, SBU and VSI."""
        return not self.reason and not self.unscored

    @property
    def because(self) -> str:
        """Why the episode is unscored, in one line; empty where it is scored."""
        return self.reason or '; '.join(f'{spec}: {why}' for spec, why in self.unscored.items())

    @property
    def margin(self) -> float | None:
        """The worst margin over the scored specs."""
        return min(self.robustness.values(), default=None)

    @property
    def safe(self) -> bool | None:
        """Whether every active spec holds (margin >= 0); None where a missing signal leaves it open."""
        if any(rho < 0 for rho in self.robustness.values()):
            return False
        return True if self.is_scored else None

    @property
    def sbu(self) -> bool | None:
        """Succeeded but unsafe; None where safety is open and could decide it."""
        if not self.success:
            return False
        return None if self.safe is None else not self.safe

    @property
    def vsi(self) -> float | None:
        """The depth of the worst violation; None where a spec could not be scored."""
        return max(self.depth.values(), default=0.0) if self.is_scored else None
