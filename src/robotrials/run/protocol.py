"""Protocol facts: what a host says of its own rules, so that two results can be told to be about the same thing."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

HASH_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolFacts:
    """The rules of a host. None and '' mean that the host does not know.

    `step_cap` is the benchmark's own, in control steps; the plan's time cap is what ends an episode. `assets_note` says
    what is wrong with the assets, and is shown in every report; empty means that they are the originals, or that the
    host has none.
    """

    benchmark: str
    control_rate_hz: float
    step_cap: int | None = None
    settling_steps: int | None = None
    initial_states: str = ''  # how an instance becomes a start state, with a hash of what it is read from
    success_predicate: str = ''
    success_source: str = ''  # hash of the predicate's source
    success_at_reset: str = ''  # what a start state that already meets the predicate counts as
    assets: str = ''  # hash
    assets_note: str = ''
    simulator: str = ''
    packages: Mapping[str, str] = field(default_factory=dict)
    render_flags: Mapping[str, str] = field(default_factory=dict)

    def stated(self) -> dict[str, str]:
        """Everything but packages and render flags that is known, as text, by name."""
        apart = ('packages', 'render_flags')
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in apart}
        return {n: f'{v:g}' if isinstance(v, float) else str(v) for n, v in values.items() if v not in (None, '')}


def source_hash(*things: object) -> str:
    """A hash of the source of functions or classes, as they stand in their files."""
    text = '\n'.join(inspect.getsource(thing) for thing in things)  # type: ignore[arg-type]
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]
