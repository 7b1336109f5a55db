"""Which formats there are, and which one a file or a folder has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from robotrials.catalog import Catalog
from robotrials.errors import InputError, SetupError
from robotrials.formats.imported import Format, Imported, ImportOptions

FORMATS = Catalog(
    'format',
    {
        'calvin': 'robotrials.formats.calvin:CALVIN',
        'folder': 'robotrials.formats.folder:FOLDER',
        'inspect': 'robotrials.formats.inspect_log:INSPECT_LOG',
        'inspect-robots': 'robotrials.formats.inspect_robots:INSPECT_ROBOTS',
        'lerobot': 'robotrials.formats.lerobot_format:LEROBOT',
        'lerobot-eval': 'robotrials.formats.lerobot_eval:LEROBOT_EVAL',
        'libero-log': 'robotrials.formats.libero_log:LIBERO_LOG',
        'libero-plus': 'robotrials.formats.libero_plus:LIBERO_PLUS',
        'mcap': 'robotrials.formats.mcap_read:MCAP',
        'openpi-droid': 'robotrials.formats.droid_csv:DROID_CSV',
        'positronic': 'robotrials.formats.positronic:POSITRONIC',
        'rlds': 'robotrials.formats.rlds_format:RLDS',
        'robochallenge': 'robotrials.formats.robochallenge:ROBOCHALLENGE',
        'robomimic': 'robotrials.formats.hdf5_format:ROBOMIMIC_FORMAT',
        'ros': 'robotrials.formats.ros_format:ROS',
        # By name alone: `safety` reads it, and this room may not import that one.
        'safevla': 'robotrials.cli.safevla_format:SAFEVLA',
        'score-matrix': 'robotrials.formats.score_matrix:SCORE_MATRIX',
        'simpler-env': 'robotrials.formats.simpler_env:SIMPLER_ENV',
        'table': 'robotrials.formats.table:TABLE',
        'vla-eval': 'robotrials.formats.vla_eval:VLA_EVAL',
    },
    entry_point_group='robotrials.formats',
)
# The formats of ours that recognise a file of this suffix: reading one needs no other.
BY_SUFFIX = {'.csv': frozenset({'openpi-droid', 'table'}), '.tsv': frozenset({'table'})}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A format that takes the source for its own, and how sure it is."""

    format: Format
    confidence: float


def known_formats(path: Path | None = None) -> Iterator[Format]:
    """Every format that can be loaded, or may recognise `path`; one whose package is broken is left to `--as`."""
    likely = BY_SUFFIX.get(path.suffix.lower()) if path is not None and path.is_file() else None
    for name in FORMATS.names():
        if likely is not None and name in FORMATS.builtin and name not in likely:
            continue
        try:
            yield load_format(name)
        except (InputError, SetupError):
            continue


def load_format(name: str) -> Format:
    """The format of this name, or of a literal ``module:attribute``."""
    found = FORMATS.load(name)
    for attribute in ('name', 'summary', 'recognise', 'read'):
        if not hasattr(found, attribute):
            raise SetupError(f'{name}: {found!r} has no {attribute!r}; wanted an object like robotrials.formats.Format')
    return found  # type: ignore[return-value]  # checked above, as far as can be


def candidates(path: Path) -> list[Candidate]:
    """The formats that recognise the source, surest first."""
    sure = [(format_, format_.recognise(path)) for format_ in known_formats(path)]
    found = [Candidate(format_, confidence) for format_, confidence in sure if confidence is not None]
    return sorted(found, key=lambda c: (-c.confidence, c.format.name))


def detect(path: Path) -> Format:
    """The format of a file or folder by its content; InputError lists what could be read where nothing fits."""
    if not path.exists():
        raise InputError(f'{path}: no such file or folder')
    if (path / 'trial.json').is_file():
        raise InputError(f'{path}: already a store; `robotrials store merge` brings one store into another')
    found = candidates(path)
    if not found:
        kind = 'folder' if path.is_dir() else 'file'
        raise InputError(
            f'{path}: a {kind} of no known format; known: {", ".join(FORMATS.names())} '
            '(`robotrials import --list` says what each one reads; --as NAME insists on one)'
        )
    if len(found) > 1 and found[0].confidence == found[1].confidence:
        names = ' and '.join(c.format.name for c in found if c.confidence == found[0].confidence)
        raise InputError(f'{path}: could be {names}; say which with --as')
    return found[0].format


def open_source(path: Path, options: ImportOptions, *, name: str = '') -> Imported:
    """Open a file or folder as the named format, or what it is recognised as; binary ones in another process."""
    from robotrials.formats.contained import is_text, open_contained

    if not path.exists():
        raise InputError(f'{path}: no such file or folder')
    return (open_here if is_text(path) else open_contained)(path, options, name=name)


def open_here(path: Path, options: ImportOptions, *, name: str = '') -> Imported:
    """The same in this process, whatever the bytes do to it: for text, and for the process that may die of it."""
    return (load_format(name) if name else detect(path)).read(path, options)
