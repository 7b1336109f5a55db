"""What this code says of the corpus: every verb's output, the episodes of resumed trials, a platform's board.

Outputs are kept as they are, but for the program's own name, its version and the folder it ran in. Numbers, ids, hashes
and seeds are compared to the letter; only a float may differ in its last digits, as it does between processors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import lzma
import math
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from tests.service.consoles import make_desk
from tests.service.platform.service import PLAN as BENCHMARK
from tests.service.platform.service import TestClock, make_service

import robotrials
from robotrials.cli import main
from robotrials.record import Outcome, Store, read_store
from robotrials.run.engine import run_trial
from robotrials.run.environment import recipe as recipe_module
from robotrials.run.plan import read_plan
from robotrials.service.platform.backup import check_offline, read_backup
from robotrials.service.platform.job import Job, read_benchmark

HERE = Path(__file__).resolve().parent
KEPT = HERE / 'ledger.json.xz'
PACKED = HERE / 'corpus.tar.xz'
INVOCATIONS = HERE / 'invocations.json'
OLD = 'trial' + 'ist'  # the name under which the corpus was made; in two halves, so that no renaming finds it
NAMES = f'(?:{OLD}|{robotrials.__name__})'
PROGRAM = re.compile(rf'(?<![\w./-]){NAMES}(?![\w/:=-]|\.\w)')
VERSION = re.compile(r'\bPROGRAM v?\d+\.\d+[\w.+]*')
NUMBER = re.compile(r'-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?')
TOLERANCE = 1e-9
PYTHON, PLATFORM = (3, 11), 'linux'  # of the environment in the corpus
Fact = Any
RECORDED = ('plain', 'open', 'closed', 'sealed', 'sealed-closed', 'cell')
EXPORTS = (
    ('mcap', 'stores/films', 'quick'), ('lerobot', 'stores/films', 'quick'),
    ('lerobot-v2.1', 'stores/plain', 'fast seeker'), ('rerun', 'stores/plain', 'fast seeker'),
)  # fmt: skip


# --- the corpus


def unpack(folder: Path) -> Path:
    """The corpus in a folder; all of its paths are relative to it."""
    with lzma.open(PACKED) as stream, tarfile.open(fileobj=stream) as archive:
        archive.extractall(folder, filter='data')
    return folder


def digest_of(recipe: recipe_module.Recipe) -> str:
    """A recipe's digest on the Python that the corpus was made with."""
    with mock.patch.object(recipe_module, 'sys', SimpleNamespace(version_info=PYTHON, platform=PLATFORM)):
        return recipe.digest


# --- verbs


def invocations() -> dict[str, dict[str, Any]]:
    """Name -> the arguments, and the file that the verb writes, if it is that which counts."""
    read: dict[str, dict[str, Any]] = json.loads(INVOCATIONS.read_text(encoding='utf-8'))
    return read


def run_verb(arguments: list[str], file: str = '') -> dict[str, Any]:
    """The exit code of a verb, and what it printed or wrote; of a refusal, the error."""
    printed, complained, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, 'argv', [robotrials.__name__, *arguments]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complained),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    output = printed.getvalue() if code != 2 else complained.getvalue()
    if file and code != 2:
        output = Path(file).read_text(encoding='utf-8')
    return {'code': code, 'output': normalised(output)}


def normalised(text: str) -> str:
    """`text` without the program's name, its version and the present folder."""
    text = text.replace(str(Path.cwd()), 'FOLDER')
    return VERSION.sub('PROGRAM VERSION', PROGRAM.sub('PROGRAM', text))


def is_quick(name: str) -> bool:
    """Most tables of safety score the same trajectories anew, and are left to the longer part."""
    return not name.startswith('tables safety-')


def verb_facts(wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Fact]:
    return {f'verb {name}': run_verb(**given) for name, given in invocations().items() if wanted(name)}


# --- trials


def episode_facts(store: Path | str) -> list[dict[str, Any]]:
    """What a trial's plan and seeds decide of its episodes, and what came of them in virtual time."""
    found = sorted(Store.open(store).episodes(attempts='all'), key=lambda e: e.key)
    return [
        {
            'id': e.episode_id, 'attempt': e.attempt, 'policy': e.policy, 'task': e.task, 'condition': e.condition,
            'seed': e.seed, 'instance': e.instance, 'session': e.session, 'block': e.block,
            'labels': dict(sorted(e.labels.items())), 'outcome': str(e.outcome), 'duration_s': e.duration_s,
            'items_placed': e.items_placed, 'events': [[v.t_s, str(v.kind)] for v in e.events],
        }
        for e in found
    ]  # fmt: skip


def trajectory_facts(store: Path | str) -> list[dict[str, str]]:
    """A digest of every recorded column of every episode; of a closed trial also of those that were sealed."""
    opened = read_store(store)
    found = []
    for episode in sorted(opened.episodes(attempts='all'), key=lambda e: e.key):
        steps = opened.trajectory(episode)
        assert steps is not None, episode.key
        columns = {f.name: getattr(steps, f.name) for f in dataclasses.fields(steps)}
        columns |= {f'extra/{name}': values for name, values in steps.extra.items()}
        arrays = {name: values for name, values in columns.items() if isinstance(values, np.ndarray)}
        told = {name: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for name, a in arrays.items()}
        found.append({'id': episode.episode_id, **told})
    return found


def resumed(name: str, *, arms: str = '') -> list[dict[str, Any]]:
    """A copy of an interrupted trial, run to its end."""
    copy = Path('again') / name
    copy.parent.mkdir(exist_ok=True)
    shutil.copytree(Path('stores') / name, copy)
    plan = f'roles/{name}/operator.json' if arms else f'plans/{name}.toml'
    run_trial(read_plan(plan), copy, workers=0, operator='kim', arms=Path(arms) if arms else None)
    return episode_facts(copy)


def rerun(name: str) -> list[dict[str, Any]]:
    """A trial of the corpus from its beginning."""
    store = Path('anew') / name
    run_trial(read_plan(f'plans/{name}.toml'), store, workers=0, operator='kim')
    return episode_facts(store)


def trial_facts() -> dict[str, Fact]:
    parts: dict[str, Callable[[], Fact]] = {
        'resumed running': lambda: resumed('running'),
        'resumed running-sealed': lambda: resumed('running-sealed', arms='roles/running-sealed/arms.json'),
        'rerun plain': lambda: rerun('plain'),
        'rerun open': lambda: rerun('open'),
        **{f'trajectories {name}': partial(trajectory_facts, f'stores/{name}') for name in RECORDED},
    }
    return {name: make() for name, make in parts.items()}


# --- what is not a verb


def platform_facts() -> dict[str, Fact]:
    """A platform's folder and its backup: their boards, and a submission that was half evaluated brought to its end."""
    tokens = json.loads(Path('platform/tokens.json').read_text(encoding='utf-8'))
    shutil.copytree('platform/lab', 'again/lab')
    read_backup(Path('again/restored'), Path('platform/lab.tar'), database=None)
    found: dict[str, Fact] = {}
    for name in ('lab', 'restored'):
        clock = TestClock(tokens['now'])
        with make_service(Path('again') / name, clock=clock, admin=tokens['admin']) as service:
            found[f'platform {name} board'] = service.ok('GET', '/benchmarks/reach/leaderboard', tokens['kim'])
            assert service.ok('GET', '/audit/check', tokens['admin'])['is_whole']
            worker = service.worker(tokens['cell'], tokens['worker'])
            service.run_all(tokens['half'], tokens['kim'], worker, itertools.repeat(Outcome.SUCCESS))
            board = service.ok('GET', '/benchmarks/reach/leaderboard', tokens['kim'])
            found[f'platform {name} board at the end'] = {k: v for k, v in board.items() if k != 'head'}  # a time in it
            assert check_offline(service.platform.config, tell=lambda line: None) == []
        stores = sorted(path.parent for path in (Path('again') / name / 'stores').rglob('trial.json'))
        found[f'platform {name} episodes'] = [episode_facts(store) for store in stores]
    plan = read_benchmark(BENCHMARK).as_json()
    jobs = [Job(job_id='j', plan=plan, slot=slot, attempt=0, code='arm-1') for slot in range(2)]
    found['platform seeds'] = [[job.loop_seed, job.policy_seed, job.planned().episode_id] for job in jobs]
    return found


def console_facts() -> dict[str, Fact]:
    """The console over its journal: what is recorded and drafted, and which assignments come next."""
    for name in ('console', 'console.console'):
        shutil.copytree(f'stores/{name}', f'again/{name}')
    state = make_desk(read_plan('roles/console/operator.json'), Path('again/console')).state()
    return {'console': {key: value for key, value in state.items() if key != 'now_ms'}}


def all_facts(folder: Path) -> dict[str, Fact]:
    """The whole ledger, from a fresh copy of the corpus."""
    with contextlib.chdir(unpack(folder)):
        return verb_facts() | trial_facts() | platform_facts() | console_facts()


# --- comparing


def read_kept() -> dict[str, Fact]:
    kept: dict[str, Fact] = json.loads(lzma.decompress(KEPT.read_bytes()))
    return kept


def numbers_of(fact: Fact) -> list[str]:
    return NUMBER.findall(_text(fact))


def difference(kept: Fact, found: Fact) -> str:
    """Where two facts part, or ''; floats are the same within TOLERANCE."""
    a, b = _text(kept), _text(found)
    if a == b:
        return ''
    ours, theirs = NUMBER.split(a), NUMBER.split(b)
    x, y = NUMBER.findall(a), NUMBER.findall(b)
    for n, (left, right) in enumerate(zip(ours, theirs, strict=False)):
        if left != right:
            return f'kept ...{_near(ours, x, n)!r}, found ...{_near(theirs, y, n)!r}'
        if n < len(x) and n < len(y) and not _same(x[n], y[n]):
            return f'kept {x[n]} and found {y[n]} after ...{left[-80:]!r}'
    return '' if len(ours) == len(theirs) else f'kept {len(a)} characters, found {len(b)}'


def _near(words: list[str], numbers: list[str], n: int) -> str:
    before = words[n - 1][-60:] + numbers[n - 1] if n else ''
    return before + words[n][:160]


def _same(a: str, b: str) -> bool:
    if a == b:
        return True
    is_float = all(set(text) & set('.eE') for text in (a, b))
    return is_float and math.isclose(float(a), float(b), rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _text(fact: Fact) -> str:
    if isinstance(fact, dict) and 'code' in fact:
        return f'{fact["output"]}\nexit code {fact["code"]}'
    return json.dumps(fact, indent=1, sort_keys=True)
