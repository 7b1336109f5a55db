"""Install the newest release of every peer, try robotrials against it, and write down what works.

python tools/drift.py [NAME ...]     all peers by default; of the others the rows of the last run are kept

A peer that lives in an environment of the tests (tools/peer_environments.py) gets its newest release there; a peer that
users get by `robotrials env create` is tried in that recipe with the newest release in place of the pinned one. Then
the tests that run the peer's own code run against it: they write files and serve policies with it, read and run them
with ours. The table is docs/reference/compatibility.md; the exit code is 1 if anything that was tried fails.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peer_environments import PEERS, ROOT, make_peer, peer_folder

from robotrials.errors import RobotrialsError
from robotrials.run.environment import read_recipe
from robotrials.run.environment.create import create_environment, find_python

TABLE = ROOT / 'docs' / 'reference' / 'compatibility.md'
FOLDER = peer_folder() / 'drift'
TEST_S = 3600.0
COLUMNS = ('peer', 'what runs with its own code', 'version tested', 'newest seen', 'on', 'verdict')


@dataclass(frozen=True, slots=True)
class Peer:
    """A package, what of ours meets it, and the tests that run its own code; `recipe` is the environment of users."""

    package: str
    what: str
    tests: tuple[str, ...]
    peer: str = ''
    recipe: str = ''

    @property
    def pinned(self) -> str:
        """The version that the tests of every day run with."""
        lines: Sequence[str] = PEERS.get(self.peer, ())
        if self.recipe:
            recipe = read_recipe(self.recipe)
            lines = (*recipe.requirements, *recipe.without_dependencies)
        return next(line.partition('==')[2] for line in lines if same_name(line, self.package))


def same_name(line: str, package: str) -> bool:
    named = re.split(r'[\[=]', line)[0]
    return re.sub(r'[-_.]+', '-', named).lower() == re.sub(r'[-_.]+', '-', package).lower()


GYM = 'tests/worlds/test_gymnasium_benchmarks.py'
ALL = (
    Peer('vla-eval', 'model server, client, recording database',
         ('tests/policies/test_vla_eval.py', 'tests/formats/test_vla_eval.py'), peer='vla-eval'),
    Peer('openpi-client', 'client, packing',
         ('tests/policies/test_openpi.py::test_openpis_own_client_is_served_and_packs_the_same_bytes',
          'tests/policies/test_openpi.py::test_a_server_with_openpis_own_encoder_is_understood'), peer='openpi'),
    Peer('positronic-model-server', 'model server',
         ('tests/policies/test_positronic.py::test_its_own_server_is_asked',), peer='positronic-model-server'),
    Peer('inspect-ai', '.eval logs',
         ('tests/formats/test_peer_logs.py::test_a_log_that_inspect_writes_is_imported',), peer='inspect-ai'),
    Peer('inspect-robots', 'logs and action files',
         ('tests/formats/test_peer_logs.py::test_a_log_that_inspect_robots_writes_is_imported',),
         peer='inspect-robots'),
    Peer('lerobot', 'ACT, diffusion and SmolVLA checkpoints; a SmolVLA on the cell',
         ('tests/policies/test_lerobot.py',), recipe='lerobot-0.6'),
    Peer('metaworld', 'episodes', (GYM,), recipe='metaworld'),
    Peer('gymnasium-robotics', 'episodes', (GYM,), recipe='gymnasium-robotics'),
    Peer('gym-pusht', 'episodes', (GYM,), recipe='gym-pusht'),
    Peer('gym-aloha', 'episodes', (GYM,), recipe='gym-aloha'),
    Peer('robosuite', 'episodes', ('tests/worlds/test_robosuite_episodes.py',), recipe='robosuite'),
    Peer('hf-libero', 'episodes, bit by bit as its own loop', ('tests/worlds/test_libero.py',), recipe='libero'),
)  # fmt: skip
# Tests that concern a peer, where a file holds those of several.
ONLY: Mapping[str, str] = {
    'vla-eval': 'its_own or batched_by_its_server or harness_records or aggregate_hold', 'lerobot': '0.6',
    'metaworld': 'meta_world', 'gymnasium-robotics': 'fetch', 'gym-pusht': 'push_t', 'gym-aloha': 'aloha',
}  # fmt: skip


def newest_of(package: str, python: Path) -> str:
    """The newest release that the package index has for a Python."""
    command = [str(python), '-m', 'pip', 'index', 'versions', package, '--disable-pip-version-check']
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    named = re.search(r'\(([^()]+)\)', ran.stdout)
    if named is None:
        raise RobotrialsError(f'the package index gave no version of {package}')
    return named[1]


def renewed(text: str, package: str, version: str) -> str:
    """A recipe's file with another version of one package, and without the constraints that held the old one."""
    text = re.sub(r'constraints = \[.*?\]\n', '', text, flags=re.DOTALL)
    lines = []
    for line in text.splitlines():
        named = re.match(r'\s*"([^"=]+)==', line)
        is_it = named is not None and same_name(named[1], package)
        lines.append(re.sub(r'==[^"]+', f'=={version}', line) if is_it else line)
    return '\n'.join(lines) + '\n'


def prepare(peer: Peer, newest: str) -> None:
    """Make the environment with the newest release."""
    if peer.peer:
        make_peer(peer.peer)
        return
    instead = FOLDER / 'recipes' / f'{peer.recipe}.toml'
    instead.unlink(missing_ok=True)
    if newest != peer.pinned:
        ours = ROOT / 'src' / 'robotrials' / 'run' / 'environment' / 'recipes' / f'{peer.recipe}.toml'
        instead.write_text(renewed(ours.read_text(encoding='utf-8'), peer.package, newest), encoding='utf-8')
    create_environment(read_recipe(peer.recipe))


def tried(peer: Peer) -> str:
    """Run the tests; the verdict in words."""
    report = FOLDER / f'{peer.package}.xml'
    report.unlink(missing_ok=True)
    only = ['-k', ONLY[peer.package]] if peer.package in ONLY else []
    command = [sys.executable, '-m', 'pytest', '-q', '-m', '', '-p', 'no:cacheprovider', f'--junitxml={report}', *only]
    subprocess.run(
        [*command, *peer.tests], cwd=ROOT, env={**os.environ, 'CI': 'true'}, capture_output=True, timeout=TEST_S
    )
    return verdict(report.read_text(encoding='utf-8')) if report.exists() else 'FAILS: the tests did not start'


def verdict(report: str) -> str:
    """What a test report amounts to: what was skipped shows nothing, and is no success."""
    cases = list(ElementTree.fromstring(report).iter('testcase'))
    failed = [case for case in cases if case.find('failure') is not None or case.find('error') is not None]
    skipped = [case for case in cases if case.find('skipped') is not None]
    if failed:
        return f'FAILS: {len(failed)} of {len(cases)}: ' + ', '.join(str(case.get('name')) for case in failed[:4])
    if skipped or not cases:
        return f'FAILS: {len(skipped)} of {len(cases)} tests could not run'
    return f'works ({len(cases)} tests)'


def row_of(peer: Peer) -> tuple[str, ...]:
    """Try one peer."""
    seen, tested, said = '?', '-', ''
    try:
        python = (
            Path(sys.executable) if peer.peer else find_python('.'.join(map(str, read_recipe(peer.recipe).version)))
        )
        seen = newest_of(peer.package, python)
        prepare(peer, seen)
        tested = seen if peer.recipe else installed(peer)
        said = tried(peer)
    except subprocess.CalledProcessError as error:
        said = f'FAILS: {last_line(str(error.stderr or error.stdout))}'
    except (RobotrialsError, subprocess.TimeoutExpired, OSError) as error:
        said = f'FAILS: {last_line(str(error))}'
    if seen not in ('?', peer.pinned):
        said += f'; every day {peer.pinned} is tested'
    return (peer.package, peer.what, tested, seen, dt.date.today().isoformat(), said)


def installed(peer: Peer) -> str:
    ask = f'import importlib.metadata as m; print(m.version({peer.package!r}))'
    ran = subprocess.run(
        [str(make_peer(peer.peer)), '-c', ask], check=True, capture_output=True, text=True, timeout=300
    )
    return ran.stdout.strip()


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and 'WARNING' not in line]
    return (lines or ['no message'])[-1][:200].replace('|', '/')


def kept_rows(text: str) -> dict[str, tuple[str, ...]]:
    """The rows of a written table, by peer."""
    rows = [tuple(cell.strip() for cell in line.strip('|').split('|')) for line in text.splitlines() if line[:1] == '|']
    return {row[0]: row for row in rows if len(row) == len(COLUMNS) and row[0] not in ('peer', '---')}


def page(rows: Mapping[str, tuple[str, ...]]) -> str:
    """The document."""
    known = [rows.get(peer.package, (peer.package, peer.what, '-', '-', '-', 'not tried yet')) for peer in ALL]
    lines = ['| ' + ' | '.join(row) + ' |' for row in (COLUMNS, ('---',) * len(COLUMNS), *known)]
    return (
        '# Compatibility with peers\n\n'
        'What robotrials was tried with, by `make drift`: the newest release of each peer is installed into an\n'
        "environment of its own, the peer's own code writes a file, serves a policy or runs a world, and robotrials\n"
        'reads it, asks it or runs in it. Every row has the day it was tried. GR00T, OpenVLA, RoboArena, LIBERO-Plus,\n'
        'LIBERO-PRO, RoboCasa, CALVIN and SimplerEnv are on no package index: no release of theirs can be tried.\n\n'
        + '\n'.join(lines)
        + '\n'
    )


def main(names: Sequence[str]) -> int:
    unknown = set(names) - {peer.package for peer in ALL}
    if unknown:
        raise SystemExit(f'no peer named {", ".join(sorted(unknown))}; known: {", ".join(p.package for p in ALL)}')
    os.environ.update(
        ROBOTRIALS_NEWEST='1', ROBOTRIALS_PEERS=str(FOLDER / 'peers'), ROBOTRIALS_RECIPES=str(FOLDER / 'recipes')
    )
    os.environ.setdefault('ROBOTRIALS_ENVIRONMENTS', str(FOLDER / 'environments'))
    (FOLDER / 'recipes').mkdir(parents=True, exist_ok=True)
    rows = kept_rows(TABLE.read_text(encoding='utf-8')) if TABLE.exists() else {}
    chosen = [peer for peer in ALL if not names or peer.package in names]
    for peer in chosen:
        if peer.peer:
            shutil.rmtree(FOLDER / 'peers' / peer.peer, ignore_errors=True)
        rows[peer.package] = row_of(peer)
        print(*rows[peer.package], sep=' | ', flush=True)
        TABLE.write_text(page(rows), encoding='utf-8')
    return int(any('FAILS' in rows[peer.package][-1] for peer in chosen))


if __name__ == '__main__':
    raise SystemExit(main(sys.argv[1:]))
