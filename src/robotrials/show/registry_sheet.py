"""Tables of the safety registry by name: what is scored, where it applies, by which thresholds."""

from __future__ import annotations

from collections.abc import Sequence

from robotrials.measure.safety import Registry, Spec, Tier
from robotrials.measure.safety.signal import SIGNAL_UNITS
from robotrials.show.catalog import named
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.analysis.subject import Input

THRESHOLD = Column('threshold', 'g')
# The registry that was read: the built-in one, or files of one's own after it.
of_registry = named(lambda r: r.value(Registry), wants=Input.REGISTRY)


@of_registry
def library(registry: Registry) -> Table:
    """The scored safety families by axis, with their main threshold and where it comes from."""
    rows = [(s.axis, s.family, s.threshold, s.unit, s.threshold_source) for s in _safe(registry)]
    return table('Safety library', ['axis', 'family', THRESHOLD, 'unit', 'basis'], rows)


@of_registry
def templates(registry: Registry) -> Table:
    """Task templates and the safe specs that each activates when every signal is there."""
    total = len(_safe(registry))
    rows = []
    for template in registry.templates.values():
        active = registry.template_active(template.id)
        rows.append((template.id, template.meaning, f'{len(active)}/{total}', ', '.join(s.family for s in active)))
    return table('Task templates', ['template', 'meaning', 'active', 'specs'], rows)


@of_registry
def tags(registry: Registry) -> Table:
    """The vocabulary of tags by class."""
    known: dict[str, list[str]] = {}
    for tag, kind in registry.tags.items():
        known.setdefault(kind, []).append(tag)
    return table('Tags', ['class', 'tags'], [(kind, ', '.join(tagged)) for kind, tagged in known.items()])


@of_registry
def clauses(registry: Registry) -> Table:
    """Every spec with its tier, the signals it reads and its clause in signal temporal logic."""
    specs = sorted(registry.specs, key=lambda s: list(Tier).index(s.tier))
    rows = [(s.tier.value, s.axis or None, s.id, ', '.join(s.signals), s.clause) for s in specs]
    return table('Clauses', ['tier', 'axis', 'spec', 'signals', 'clause'], rows)


@of_registry
def axes(registry: Registry) -> Table:
    """The axes of safety and the families scored on each."""
    grouped: dict[str, list[str]] = {}
    for spec in _safe(registry):
        grouped.setdefault(spec.axis, []).append(spec.family)
    rows = [(axis, ', '.join(dict.fromkeys(families))) for axis, families in grouped.items()]
    return table('Axes of safety', ['axis', 'families'], rows)


@of_registry
def severity(registry: Registry) -> Table:
    """Threshold, severe magnitude and their ratio K of every scored or alternate spec, for VSI."""
    rows: list[Sequence[Cell]] = [
        (s.id, s.threshold, s.severe, s.unit, s.k, s.severe_source or None)
        for s in registry.specs
        if s.tier in (Tier.SAFE, Tier.ALTERNATE)
    ]
    columns: list[str | Column] = ['spec', THRESHOLD, Column('severe', 'g'), 'unit', Column('K', '.2f'), 'anchor']
    return table('Severity', columns, rows, note='A dash: a binary hard stop, whose depth is 1.')


@of_registry
def signals(registry: Registry) -> Table:
    """The signals derived from a trajectory, their units, and the specs that read them."""
    readers: dict[str, list[str]] = {}
    for spec in registry.specs:
        for name in spec.signals:
            readers.setdefault(name, []).append(spec.id)
    units = {**SIGNAL_UNITS, **registry.signal_units}
    rows = [(name, unit, ', '.join(readers.get(name, [])) or None) for name, unit in units.items()]
    return table('Signals', ['signal', 'unit', 'read by'], rows)


@of_registry
def thresholds(registry: Registry) -> Table:
    """The main and the alternate thresholds of every scored family, with their sources."""
    rows = []
    for main in _safe(registry):
        others = [s for s in registry.specs if s.family == main.family and s.tier is Tier.ALTERNATE]
        rows.append((
            main.axis, main.family, main.threshold, main.unit,
            ', '.join(f'{s.threshold:g} {s.unit}' for s in others) or None, main.threshold_source,
        ))  # fmt: skip
    columns: list[str | Column] = ['axis', 'family', THRESHOLD, 'unit', 'alternate', 'source']
    return table('Thresholds', columns, rows)


@of_registry
def availability(registry: Registry) -> Table:
    """Which scored families each benchmark records the signals for."""
    signal_tags = {tag for tag, kind in registry.tags.items() if kind == 'signal'}
    benchmarks = list(registry.benchmarks.values())
    rows: list[Sequence[Cell]] = []
    for spec in _safe(registry):
        needed, spoilt = spec.requires_all & signal_tags, spec.invalid_if_any & signal_tags
        rows.append([
            spec.axis, spec.family, ', '.join(sorted(needed)) or None,
            *(needed <= b.signal_tags and not spoilt & b.signal_tags for b in benchmarks),
        ])  # fmt: skip
    columns = ['axis', 'family', 'signals', *(b.id for b in benchmarks)]
    return table('Signals by benchmark', columns, rows, note='Task and object tags decide the rest.')


@of_registry
def exclusions(registry: Registry) -> Table:
    """Which tags switch a scored spec off: what a task asks for is no violation."""
    rows = []
    for spec in _safe(registry):
        for tag in sorted(spec.invalid_if_any):
            holders = [
                f'{e.benchmark}/{e.id}' for e in registry.entries if tag in registry.resolved_tags(e.benchmark, e.id)
            ]
            listed = ', '.join(holders[:3]) + (f' and {len(holders) - 3} more' if len(holders) > 3 else '')
            rows.append((spec.family, tag, len(holders), listed or None))
    return table('Exclusions', ['family', 'switched off by', 'tasks', 'such as'], rows)


@of_registry
def applicability(registry: Registry) -> Table:
    """Every task with its template and the scored families that do not apply to it."""
    rows: list[Sequence[Cell]] = []
    for entry in registry.entries:
        decisions = registry.explain(entry.benchmark, entry.id)
        off = [d.spec.family for d in decisions if not d.is_active]
        said = entry.instruction or entry.goal or entry.name
        rows.append((
            entry.benchmark, entry.id, said or None, ' + '.join(entry.components), len(decisions) - len(off),
            ', '.join(off) or None,
        ))  # fmt: skip
    columns = ['benchmark', 'task', 'goal', 'template', 'active', 'not applicable']
    return table('Applicability by task', columns, rows)


def _safe(registry: Registry) -> list[Spec]:
    return [s for s in registry.specs if s.tier is Tier.SAFE]
