"""Mutate valid files of every reader for a stated number of minutes, in processes that may die: `make fuzz`.

Each reader has a seed that it reads. Bits are flipped, bytes are set, ranges are cut, repeated and swapped; a mutant is
read in a forked child, as the child of `robotrials.record.foreign` would. What kills a child, or hangs it, is kept, and
then given to the reader as users run it: there it has to be an error in words (an escape is a failure of this tool).

    python tools/fuzz.py --minutes 2 --reader parquet --reader bundle --keep /tmp/found
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # seeds come from the makers of the tests

from robotrials.errors import RobotrialsError
from robotrials.record import Episode, Store, Trajectory

SECONDS_PER_MUTANT = 10
MEMORY_BYTES = 6 << 30
ROUND = 500
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


@dataclasses.dataclass(frozen=True)
class Reader:
    """What is fuzzed: a seed, how its file is called, how it is read where it may crash, and how users read it."""

    name: str
    seed: Callable[[Path], bytes]
    suffix: str
    read: Callable[[Path], object]  # may crash
    use: Callable[[Path], object] | None = None  # must not; None: Python alone, so that nothing may crash


# --- seeds


EPISODE = Episode(policy='p', task='t', outcome='success', duration_s=3.0, time_cap_s=9.0, seed=1)


def _steps() -> Trajectory:
    return Trajectory(time_s=np.arange(1, 21) / 10, joint_position_rad=np.random.default_rng(0).normal(size=(20, 3)))


def _bundle(folder: Path) -> bytes:
    from robotrials.service.platform.bundle import _to_parquet

    return _to_parquet(EPISODE, _steps())


def _whole_bundle(folder: Path) -> bytes:
    from robotrials.service.platform.bundle import pack_bundle

    return pack_bundle(EPISODE, trajectory=None, media={f'faults/{EPISODE.episode_id}-0.txt': b'x' * 40})


def _table(folder: Path, suffix: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        'policy': ['a', 'b'] * 6, 'task': ['t'] * 12, 'success': [True, False] * 6,
        'duration_s': [float(i) for i in range(12)], 'seed': list(range(12)),
    }  # fmt: skip
    path = folder / f'seed{suffix}'
    if suffix == '.parquet':
        pq.write_table(pa.table(columns), path, compression='zstd')
    elif suffix == '.xlsx':
        import openpyxl

        book = openpyxl.Workbook()
        for row in [list(columns), *zip(*columns.values(), strict=True)]:
            book.active.append(list(row))
        book.save(path)
    elif suffix == '.csv':
        rows = [','.join(columns), *(','.join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text('\n'.join(rows) + '\n')
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text('\n'.join(map(json.dumps, rows)) + '\n')
    return path.read_bytes()


def _hdf5(folder: Path) -> bytes:
    from tests.formats.test_hdf5 import make_libero

    return make_libero(folder / 'seed.hdf5', demos=2).read_bytes()


def _recording(folder: Path) -> bytes:
    from tests.formats.test_vla_eval import DONE
    from tests.formats.vla_eval_files import write_recording

    rows = [{**DONE, 'episode_id': n} for n in range(3)]
    return write_recording(folder / 'recording-run.sqlite', rows, generation='0.8').read_bytes()


def _mcap(folder: Path) -> bytes:
    from rosbags.rosbag2 import StoragePlugin
    from tests.formats.test_ros import arm_messages, write_bag

    bag = write_bag(folder / 'bag', arm_messages()[:40], storage=StoragePlugin.MCAP)
    return next(bag.glob('*.mcap')).read_bytes()


def _states(folder: Path) -> bytes:
    from robotrials.record.footage import FilmStates

    return FilmStates(np.arange(6), np.random.default_rng(0).normal(size=(6, 9)), '{}').to_bytes()


def _film(folder: Path) -> bytes:
    from robotrials.record.footage import encode_film

    frames = [np.full((32, 48, 3), 10 * n, np.uint8) for n in range(12)]
    return encode_film(frames, range(1, 13), control_rate_hz=10.0)


def _png(folder: Path) -> bytes:
    from PIL import Image

    sink = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)).save(sink, 'PNG')
    return sink.getvalue()


def _moment(folder: Path) -> bytes:
    from robotrials.record.footage import View, pack_views
    from robotrials.record.trajectory import Camera

    camera = Camera('wrist', np.diag([40.0, 40.0, 1.0]), np.eye(4), width_px=16, height_px=12)
    view = View(np.zeros((12, 16, 3), np.uint8), np.ones((12, 16), np.float32), camera, 0.5)
    return pack_views({'wrist': view})


def _record(folder: Path) -> bytes:
    from robotrials.formats.rlds import write_records

    write_records(folder / 'seed.tfrecord', [os.urandom(40), b'x' * 90])
    return (folder / 'seed.tfrecord').read_bytes()


def _entry(folder: Path) -> bytes:
    store = Store.create(folder / 's')
    store.append([EPISODE], trajectories={EPISODE.key: _steps()})
    return max((store.path / 'log').iterdir()).read_bytes()


# --- readers


OPTIONS = {'defaults': {'policy': 'p', 'task': 't', 'outcome': 'success'}}


def _import_here(path: Path, name: str, **options: Any) -> None:
    from robotrials.formats.catalog import open_here
    from robotrials.formats.imported import ImportOptions

    for recording in open_here(path, ImportOptions(**options), name=name).recordings():
        with tempfile.TemporaryDirectory() as folder:
            for number, medium in enumerate(recording.media.values()):
                if not isinstance(medium, Path):
                    medium.write(Path(folder) / f'{number}.mp4')


def _import(path: Path, name: str, **options: Any) -> None:
    from robotrials.formats.catalog import open_source
    from robotrials.formats.imported import ImportOptions

    for _ in open_source(path, ImportOptions(**options), name=name).recordings():
        pass


def _importer(name: str, seed: Callable[[Path], bytes], suffix: str, format_name: str, **options: Any) -> Reader:
    """A reader of `robotrials import`: recognising is left out, which would be most of the time."""
    use = None if suffix in ('.csv', '.jsonl') else partial(_import, name=format_name, **options)
    return Reader(name, seed, suffix, partial(_import_here, name=format_name, **options), use)


def _unpack_here(path: Path) -> None:
    from robotrials.service.platform.bundle import unpacked_trajectory

    with path.open('rb') as stream:
        for _ in unpacked_trajectory(source=stream, most_bytes=256 << 20):
            pass


def _unpack(path: Path) -> None:
    from robotrials.service.platform.bundle import pack_bundle, unpack_bundle
    from robotrials.wire import pack, unpack

    unpack_bundle(pack({**unpack(pack_bundle(EPISODE)), 'trajectory': path.read_bytes()}))


def _unpack_whole(path: Path) -> None:
    from robotrials.service.platform.bundle import unpack_bundle

    unpack_bundle(path.read_bytes())


def _read_states(path: Path) -> None:
    from robotrials.record.footage import read_states

    read_states(path)


def _read_film(path: Path) -> None:
    from robotrials.formats.video import opened_video
    from robotrials.record.footage import film_times

    film_times(path)
    with opened_video(path) as container:
        for frame in container.decode(container.streams.video[0]):
            frame.to_ndarray(format='rgb24')


def _read_image(path: Path) -> None:
    from robotrials.formats.video import decode_pixels

    decode_pixels(path.read_bytes(), channels=3, dtype='uint8', where='x')


def _read_moment(path: Path) -> None:
    from robotrials.record.footage import check_moment, unpack_views

    check_moment(path.read_bytes(), where='x', most_bytes=1 << 30)
    unpack_views(path.read_bytes(), where='x')


def _read_entry(path: Path) -> None:
    from robotrials.record.part import parse_entry

    parse_entry(path.read_bytes(), where='x')


def _read_records(path: Path) -> None:
    from robotrials.formats.rlds import read_records

    for _ in read_records(path):
        pass


READERS = {
    reader.name: reader
    for reader in (
        Reader('bundle', _bundle, '.parquet', _unpack_here, _unpack),
        Reader('upload', _whole_bundle, '.bundle', _unpack_whole),
        _importer('parquet', lambda f: _table(f, '.parquet'), '.parquet', 'table'),
        _importer('xlsx', lambda f: _table(f, '.xlsx'), '.xlsx', 'table'),
        _importer('hdf5', _hdf5, '.hdf5', 'robomimic', defaults={'policy': 'p'}),
        _importer('sqlite', _recording, '.sqlite', 'vla-eval'),
        _importer('mcap', _mcap, '.mcap', 'ros', **OPTIONS),
        Reader('image', _png, '.png', _read_image),
        _importer('csv', lambda f: _table(f, '.csv'), '.csv', 'table'),
        _importer('jsonl', lambda f: _table(f, '.jsonl'), '.jsonl', 'table'),
        Reader('tfrecord', _record, '.tfrecord', _read_records),
        Reader('states', _states, '.npz', _read_states),
        Reader('film', _film, '.mp4', _read_film),
        Reader('moment', _moment, '.zip', _read_moment),
        Reader('entry', _entry, '.json', _read_entry),
    )
}


# --- mutation


def mutated(seed: bytes, rng: np.random.Generator) -> bytes:
    """The seed with one to four changes of a few kinds; most are small, because parsers look at the first thing."""
    data = bytearray(seed)
    for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
        at = int(rng.integers(len(data)))
        kind = rng.integers(6)
        if kind <= 1:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            data[at] = int(rng.choice(INTERESTING))
        elif kind == 3:
            data[at : at + 4] = struct.pack('<I', int(rng.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, len(data)])))[
                : len(data) - at
            ]
        elif kind == 4:
            del data[at : at + int(rng.integers(1, 9))]
        else:
            other = int(rng.integers(len(data)))
            data[at:at] = data[other : other + int(rng.integers(1, 17))]
        if not data:
            return b'\0'
    return bytes(data)


@dataclasses.dataclass
class Tally:
    executions: int = 0
    refused: int = 0  # errors in our words
    read: int = 0  # taken as sound
    odd: Counter[str] = dataclasses.field(default_factory=Counter)  # errors that are not ours, by class
    deaths: Counter[str] = dataclasses.field(default_factory=Counter)  # of children, by signal
    found: dict[str, bytes] = dataclasses.field(default_factory=dict)  # what killed or hung one


def fuzz(reader: Reader, *, seconds: float, seed: int, folder: Path) -> Tally:
    """Read mutants in children until the time is up."""
    whole = reader.seed(folder)
    path = folder / f'mutant{reader.suffix}'
    path.write_bytes(whole)
    reader.read(path)  # a seed that is not read would make every mutant look refused
    tally, end, number = Tally(), time.monotonic() + seconds, 0
    shared = mmap.mmap(-1, 4096)
    while time.monotonic() < end:
        pid = os.fork()
        if not pid:
            _child(reader, whole, path, shared, first=number, seed=seed, end=end)
        _, status = os.waitpid(pid, 0)
        done, refused, read, n_odd = struct.unpack('=4q', shared[:32])
        tally.executions += done - number
        tally.refused += refused
        tally.read += read
        for name in bytes(shared[32 : 32 + 4000]).split(b'\0')[0].decode().split('|')[:n_odd]:
            tally.odd[name] += 1
        if os.WIFSIGNALED(status):
            tally.executions += 1
            killed_by = signal.Signals(os.WTERMSIG(status)).name
            tally.deaths['hang' if killed_by == 'SIGALRM' else killed_by] += 1
            data = mutated(whole, np.random.default_rng([seed, done]))
            tally.found[f'{reader.name}-{hashlib.sha256(data).hexdigest()[:12]}{reader.suffix}'] = data
            done += 1
        number = done
    return tally


def _child(reader: Reader, whole: bytes, path: Path, shared: mmap.mmap, *, first: int, seed: int, end: float) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    refused = read = 0
    odd: list[str] = []
    for number in range(first, first + ROUND):
        shared[:32] = struct.pack('=4q', number, refused, read, len(odd))
        text = '|'.join(odd).encode()[:3900]
        shared[32 : 33 + len(text)] = text + b'\0'
        if time.monotonic() > end:
            break
        path.write_bytes(mutated(whole, np.random.default_rng([seed, number])))
        signal.alarm(SECONDS_PER_MUTANT)
        try:
            reader.read(path)
            read += 1
        except (RobotrialsError, MemoryError):
            refused += 1
        except Exception as error:
            odd.append(type(error).__name__)
    else:
        shared[:32] = struct.pack('=4q', number + 1, refused, read, len(odd))
    os._exit(0)


def escapes(reader: Reader, tally: Tally, folder: Path) -> Iterator[str]:
    """Which of the found ones are no error in words where users would read them."""
    for name, data in tally.found.items():
        path = folder / name
        path.write_bytes(data)
        if reader.use is None:
            yield name
            continue
        try:
            reader.use(path)
        except RobotrialsError:
            continue
        except Exception as error:
            yield f'{name} ({type(error).__name__})'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, default=1.0, help='for each reader')
    parser.add_argument('--reader', action='append', choices=sorted(READERS), help='only this one; repeat')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--keep', type=Path, help='a folder for what killed or hung a child')
    options = parser.parse_args()
    n_escaped = 0
    print('reader      minutes  executions     read  refused  other errors         deaths of children   escaped')
    for name in options.reader or READERS:
        reader = READERS[name]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            tally = fuzz(reader, seconds=60 * options.minutes, seed=options.seed, folder=folder)
            gone = list(escapes(reader, tally, folder))
        n_escaped += len(gone)
        odd = ', '.join(f'{k} {n}' for k, n in tally.odd.most_common(3)) or '-'
        deaths = ', '.join(f'{k} {n}' for k, n in sorted(tally.deaths.items())) or '-'
        counts = f'{tally.executions:11,d} {tally.read:8,d} {tally.refused:8,d}'
        print(f'{name:11s} {options.minutes:7.2f} {counts}  {odd:20s} {deaths:20s} {len(gone):7d}', flush=True)
        for line in gone:
            print(f'  escaped: {line}', flush=True)
        if options.keep is not None and tally.found:
            options.keep.mkdir(parents=True, exist_ok=True)
            for file, data in tally.found.items():
                (options.keep / file).write_bytes(data)
    return 1 if n_escaped else 0


if __name__ == '__main__':
    sys.exit(main())
