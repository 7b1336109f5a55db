"""Fuzz the parsers that are Python alone, by coverage: `make fuzz-python`. Whatever comes, they read or refuse it.

Each parser runs in a process of its own under atheris, from a valid seed, for a stated number of minutes. An error that
is none of robotrials' own is a finding: it is printed with the input, which is kept.

    python tools/fuzz_python.py --minutes 2 --parser plan --keep .fuzz
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

LONGEST = 4096
SLOWEST_S = 10

PLAN = """seed = 7
host = {use = 'point-mass', options = {control_rate_hz = 20.0}}
tasks = ['reach', {name = 'far', items = 2}]
time_cap_s = 5.0
episodes_per_cell = 3
watchdog = {policy_s = 60.0}
[[conditions]]
name = 'drift'
"""
EDIT = {'episode_id': 'e', 'attempt': 0, 'field': 'outcome', 'value': 'failure', 'by': 'kim',
        'at': '2026-01-01T00:00:00', 'reason': 'seen on film'}  # fmt: skip
SEEDS: Mapping[str, bytes] = {
    'plan': PLAN.encode(),
    'stl': b'always[0, 2.5] (force_n < 30.0 and not (speed > 1e-1)) -> eventually[0, 5] (done >= 1)',
    'entry': b'{"schema":1,"kind":"add","at":"2026-01-01T00:00:00+00:00","by":"kim","parents":[],"parts":[]}\n',
    'edit': json.dumps(EDIT).encode() + b'\n',
    'table': b'policy;task;success;duration_s\na;t;1;2,5\nb;t;0;3,75\n',
    'token': b'v1.WyJsIiwidyIsImoiLDEuMCwibiJd.AAAA',
    'message': b'\x82\xa4type\xa6action\xa4step\x00',
}


def _plan(data: bytes) -> None:
    from robotrials.service.platform.job import read_benchmark

    read_benchmark(data.decode('utf-8', 'replace'))


def _stl(data: bytes) -> None:
    from robotrials.measure.safety.formula import parse_stl

    parse_stl(data.decode('utf-8', 'replace'))


def _entry(data: bytes) -> None:
    from robotrials.record.part import parse_entry

    parse_entry(data, where='x')


def _edit(data: bytes) -> None:
    from robotrials.record.ledger import listed_edits

    with tempfile.NamedTemporaryFile(suffix='.jsonl') as file:
        file.write(data)
        file.flush()
        listed_edits(Path(file.name))


def _table(data: bytes) -> None:
    from robotrials.formats.catalog import open_here
    from robotrials.formats.imported import ImportOptions

    with tempfile.NamedTemporaryFile(suffix='.csv') as file:
        file.write(data)
        file.flush()
        list(open_here(Path(file.name), ImportOptions(), name='table').recordings())


def _token(data: bytes) -> None:
    from robotrials.service.platform.job import read_lease

    read_lease(b'0123456789abcdef', data.decode('latin-1'), worker_id='w', now_s=0.0)


def _message(data: bytes) -> None:
    from robotrials.service.platform.link import CLIENT_LIMITS, MessageType, decode, policy_spec_from_map, read_action

    kind, fields = decode(data, limits=CLIENT_LIMITS)
    if kind is MessageType.POLICY:
        policy_spec_from_map(fields.get('spec'))
    elif kind is MessageType.ACTION:
        read_action(fields, step=0)


PARSERS: Mapping[str, Callable[[bytes], None]] = {
    'plan': _plan, 'stl': _stl, 'entry': _entry, 'edit': _edit, 'table': _table, 'token': _token, 'message': _message,
}  # fmt: skip


def fuzz_here(name: str, arguments: list[str]) -> None:
    """Fuzz one parser in this process until libFuzzer ends it."""
    import atheris  # type: ignore[import-not-found]  # in an environment of its own

    with atheris.instrument_imports(include=['robotrials', 'tomllib', 'json', 'csv']):
        from robotrials.errors import RobotrialsError

        parse = PARSERS[name]
        with contextlib.suppress(RobotrialsError):
            parse(SEEDS[name])  # imports what is to be instrumented

    def once(data: bytes) -> None:
        with contextlib.suppress(RobotrialsError):  # an error in words
            parse(data)

    atheris.Setup([sys.argv[0], *arguments], once)
    atheris.Fuzz()


def fuzz(name: str, *, minutes: float, keep: Path | None) -> tuple[int, str]:
    """Executions, and what was found ('' if nothing was)."""
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place, 'corpus')
        corpus.mkdir()
        (corpus / 'seed').write_bytes(SEEDS[name])
        options = [f'-max_total_time={int(60 * minutes)}', f'-max_len={LONGEST}', f'-timeout={SLOWEST_S}',
                   f'-artifact_prefix={place}/', '-print_final_stats=1', str(corpus)]  # fmt: skip
        command = [sys.executable, __file__, '--inside', name, *options]
        ran = subprocess.run(command, capture_output=True, text=True, errors='replace', check=False)
        counted = re.search(r'stat::number_of_executed_units:\s*(\d+)', ran.stderr)
        for file in Path(place).glob('*-*'):  # crash-..., timeout-..., oom-...
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f'{name}-{file.name}').write_bytes(file.read_bytes())
    return int(counted[1]) if counted else 0, '' if ran.returncode == 0 else ran.stderr[-2000:]


def main() -> int:
    if sys.argv[1:2] == ['--inside']:
        fuzz_here(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, default=1.0, help='for each parser')
    parser.add_argument('--parser', action='append', choices=sorted(PARSERS), help='only this one; repeat')
    parser.add_argument('--keep', type=Path, help='a folder for inputs that were neither read nor refused')
    options = parser.parse_args()
    n_found = 0
    for name in options.parser or PARSERS:
        executions, finding = fuzz(name, minutes=options.minutes, keep=options.keep)
        verdict = 'FOUND' if finding else '-'
        print(f'{name:8s} {options.minutes:6.2f} min {executions:10,d} executions  {verdict}', flush=True)
        n_found += bool(finding)
        if finding:
            print(finding, flush=True)
    return 1 if n_found else 0


if __name__ == '__main__':
    sys.exit(main())
