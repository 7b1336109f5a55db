"""Whether the episodes of an analysis are about the same thing, as far as their hosts say: protocol and assets."""

from __future__ import annotations

from collections.abc import Sequence

from robotrials.record import Provenance

Origins = Sequence[tuple[Provenance, int]]  # each with its number of episodes
ASSETS_NOTE = 'assets_note'


def comparability_cautions(origins: Origins) -> tuple[str, ...]:
    """What makes results not comparable, with others or among themselves; empty where nothing is known to."""
    total = sum(n for _, n in origins)
    notes: dict[str, int] = {}
    for origin, n in origins:
        note = origin.protocol.get(ASSETS_NOTE, '')
        if note:
            notes[note] = notes.get(note, 0) + n
    told = [f'{_share(n, total)} run with {note}.' for note, n in notes.items()]
    for benchmark in dict.fromkeys(o.protocol['benchmark'] for o, _ in origins if 'benchmark' in o.protocol):
        differing = protocol_differences([o for o in origins if o[0].protocol.get('benchmark') == benchmark])
        if differing:
            told.append(f'Episodes of {benchmark} follow different protocols: {"; ".join(differing)}.')
    return tuple(told)


def protocol_differences(origins: Origins) -> list[str]:
    """The facts that origins state differently, each with its values and how many episodes have them."""
    names = dict.fromkeys(name for origin, _ in origins for name in origin.protocol if name != ASSETS_NOTE)
    found = []
    for name in names:
        counts: dict[str, int] = {}
        for origin, n in origins:
            value = origin.protocol.get(name, 'not stated')
            counts[value] = counts.get(value, 0) + n
        if len(counts) > 1:
            values = ', '.join(f'{value} ({n:,} episodes)' for value, n in counts.items())
            found.append(f'{name.replace("_", " ")} is {values}')
    return found


def _share(n: int, total: int) -> str:
    if n == total:
        return 'All episodes were'
    return f'{n:,} of {total:,} episodes {"was" if n == 1 else "were"}'
