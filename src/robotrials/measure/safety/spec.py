"""A safety specification: a clause, its threshold and severe anchor, and the tags that decide where it applies."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from typing import NoReturn

from robotrials.errors import InputError, UnknownName
from robotrials.measure.safety.formula import Formula, event_names, signal_names
from robotrials.measure.safety.parse import parse_stl
from robotrials.value import dataclass

PLACEHOLDER = '{threshold}'


class Tier(enum.StrEnum):
    SAFE = 'safe'  # scored: enters Safety, SBU and VSI
    ALTERNATE = 'alternate'  # another threshold of a scored family
    REPORT = 'report'  # diagnosed and reported, never scored
    PHASE = 'phase'  # scoped to one phase of the episode; scored on request


class Severity(enum.StrEnum):
    """How far past the threshold is how bad, on 0 to 1."""

    RATIO = 'ratio'  # Eq. (1): (signal - threshold) / severe
    ANCHORED = 'anchored'  # (signal - threshold) / (severe - threshold): 1 exactly at the severe anchor

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UnknownName('severity scale', str(value), [scale.value for scale in cls])


class Phase(enum.StrEnum):
    WHOLE = 'whole'
    APPROACH = 'approach'  # before the first grip
    TRANSPORT = 'transport'  # gripped and lifted
    RELEASE = 'release'  # after the last transport
    LABELLED = 'labelled'  # where the record's own label of the phase fits `phase_label`


@dataclass(frozen=True, slots=True)
class Spec:
    """One threshold instantiation of one constraint family."""

    id: str
    family: str
    tier: Tier
    stl: str  # with {threshold} where the threshold stands
    threshold: float
    unit: str
    severe: float | None = None  # None for a binary hard stop
    is_binary: bool = False
    axis: str = ''
    phase: Phase = Phase.WHOLE
    phase_label: str = ''  # of a labelled phase: a name, or a pattern with * and ?
    requires_all: frozenset[str] = frozenset()
    invalid_if_any: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    threshold_source: str = ''
    severe_source: str = ''

    def __post_init__(self) -> None:
        check_spec(self)

    @property
    def clause(self) -> str:
        """The STL text with the threshold in its place."""
        return self.stl.replace(PLACEHOLDER, repr(float(self.threshold)))

    @property
    def formula(self) -> Formula:
        return _parsed(self.clause)

    @property
    def signals(self) -> tuple[str, ...]:
        return _names(self.clause)[0]

    @property
    def events(self) -> frozenset[str]:
        """The signals that the clause reads as 0/1 events."""
        return _names(self.clause)[1]

    @property
    def k(self) -> float | None:
        """K of Table 17: the severe anchor over the threshold; None for a binary hard stop."""
        return None if self.severe is None else self.severe / self.threshold

    def depth(self, margin: float, *, severity: Severity | str = Severity.RATIO) -> float:
        """The depth d of Eq. (1) for a robustness margin, on 0 to 1; a violated hard stop is 1."""
        if margin >= 0:
            return 0.0
        if self.severe is None:
            return 1.0
        if Severity(severity) is Severity.ANCHORED:
            return min(1.0, -margin / (self.severe - self.threshold))
        excess = max(0.0, -margin / self.threshold)
        return min(1.0, excess / (self.severe / self.threshold))

    def with_threshold(self, threshold: float, *, severe: float | None) -> Spec:
        """The same family at another threshold, with the severe anchor that goes with it."""
        return dataclasses.replace(self, threshold=threshold, severe=severe)


@functools.lru_cache(maxsize=512)
def _parsed(clause: str) -> Formula:
    return parse_stl(clause)


@functools.lru_cache(maxsize=512)
def _names(clause: str) -> tuple[tuple[str, ...], frozenset[str]]:
    formula = _parsed(clause)
    return signal_names(formula), event_names(formula)


def check_spec(spec: Spec) -> None:
    """Raise InputError, naming the field, if the spec contradicts itself."""
    if not spec.unit:
        raise InputError(f'spec {spec.id!r}: threshold {spec.threshold:g} has no unit')
    if not spec.threshold > 0:
        raise InputError(f'spec {spec.id!r}: threshold is {spec.threshold}, wanted > 0 (put the sign into the formula)')
    if PLACEHOLDER not in spec.stl:
        raise InputError(f'spec {spec.id!r}: stl {spec.stl!r} does not say where {PLACEHOLDER} goes')
    if (spec.phase is Phase.LABELLED) != bool(spec.phase_label):
        raise InputError(f'spec {spec.id!r}: a phase_label goes with phase = "labelled", and only with it')
    if spec.is_binary and spec.severe is not None:
        raise InputError(f'spec {spec.id!r}: a binary hard stop has no severe anchor, found {spec.severe:g}')
    if not spec.is_binary:
        if spec.severe is None:
            raise InputError(f'spec {spec.id!r}: severe is missing; state the anchor, or is_binary = true')
        if not math.isfinite(spec.severe):
            raise InputError(f'spec {spec.id!r}: severe is {spec.severe}, wanted a finite anchor')
        if not spec.severe > spec.threshold:
            where = (
                f'severe anchor {spec.severe:g} {spec.unit} is not above the threshold {spec.threshold:g} {spec.unit}'
            )
            raise InputError(f'spec {spec.id!r}: {where}')
    _ = spec.formula
