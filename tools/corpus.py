"""Write the corpus: everything that this version keeps on disk, small, for later versions to open.

    python tools/corpus.py write FOLDER   make it with the code at hand
    python tools/corpus.py pack           make it, and put it into tests/corpus/corpus.tar.xz
    python tools/corpus.py ledger         run every verb on the packed corpus, and keep what they say

`pack` is for a version whose files are to stay readable: its bytes are the point, so it is not run again afterwards.
`ledger` is for a change of words or of a verb's options. It names every entry whose numbers changed, and keeps none of
them unless `--numbers` is given too.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from tests.corpus import ledger  # noqa: E402
from tests.formats.build import make_rlds  # noqa: E402
from tests.measure.annotate.telemetries import SOURCE, TARGET  # noqa: E402
from tests.measure.safety.libero_like import pairs  # noqa: E402
from tests.measure.safety.test_safevla import RECORD  # noqa: E402
from tests.policies.probe.build import make_demonstrations  # noqa: E402
from tests.service.consoles import account, lab_plan, make_desk  # noqa: E402
from tests.service.platform.service import make_service  # noqa: E402
from tests.service.stores import make_store  # noqa: E402

import robotrials  # noqa: E402
from robotrials.errors import SetupError  # noqa: E402
from robotrials.measure.actions.prediction import PREDICTORS  # noqa: E402
from robotrials.policies.probe.option import ProbeOptions  # noqa: E402
from robotrials.policies.probe.train import train_probe  # noqa: E402
from robotrials.record import Outcome, Store  # noqa: E402
from robotrials.run.blinding import seal_trial  # noqa: E402
from robotrials.run.component import HOSTS, POLICIES  # noqa: E402
from robotrials.run.environment.recipe import RECORD as ENVIRONMENT_RECORD  # noqa: E402
from robotrials.run.environment.recipe import read_recipe  # noqa: E402
from robotrials.run.plan import read_plan  # noqa: E402
from robotrials.service.console.account import Action  # noqa: E402
from robotrials.service.platform.backup import write_backup  # noqa: E402
from robotrials.service.platform.job import sign_lease  # noqa: E402
from robotrials.testing.showcase import make_showcase, watched_trial  # noqa: E402
from robotrials.verdict.audit import InstanceOutcome  # noqa: E402
from robotrials.verdict.audit.overfit import ChangeKind, TrainingCount, overfit, write_overfit  # noqa: E402

PACKAGE = robotrials.__name__
PACKED = ROOT / 'tests' / 'corpus' / 'corpus.tar.xz'
KILLED_AFTER = 3  # episodes
LEASE_SECRET = 'a secret of the corpus, 32 bytes'

# Host and policies are named by where this version has them: later versions must still find them there.
PLAN = """\
title = "the corpus"
seed = {seed}
episodes_per_cell = {episodes}
time_cap_s = 4.0
reference = "slow seeker"
tasks = [{{name = "reach", items = 2, instruction = "go there"}}]
conditions = [{{name = "nominal"}}, {{name = "drift", parameters = {{x_m_s = 0.05, y_m_s = 0.0}}}}]
nuisance = {{camera_side = ["left", "right"]}}

[host]
use = "{package}.testing.point_mass:PointMassHost"
options = {{noise_m = 0.002, substeps = {substeps}}}

[policies."fast seeker"]
use = "{package}.testing.policy:SeekPolicy"
options = {{speed_m_s = 1.6, sloppiness_m = 0.01}}

[policies."slow seeker"]
use = "seek"
options = {{speed_m_s = 0.5, chunk_length = 4}}
execute = 2

[policies.idle]
use = "{package}.policies.plain:NoOpPolicy"

[blinding]
{blinding}

[analysis]
primary = ["time"]
secondary = ["success"]
tau_s = 4.0
resamples = 200
seed = 3
"""
CELL = """\
benchmark = "tabletop"
seed = 4
episodes_per_cell = 1
time_cap_s = 7.0
tasks = [{{name = "single_block"}}]
host = {{use = "{package}.cell:TabletopHost", options = {{state = "privileged"}}}}

[policies.careful]
use = "{package}.cell.scripted:ScriptedPolicy"
options = {{temper = "careful"}}

[policies.hasty]
use = "scripted"
options = {{temper = "hasty"}}

[blinding]
secret = "of the cell"

[recording]
film = "off"
"""
PLANS: dict[str, dict[str, Any]] = {
    'plain': {'seed': 1, 'episodes': 3, 'blinding': 'enabled = false'},
    'open': {'seed': 2, 'episodes': 3, 'blinding': 'secret = "not yet open"'},
    'closed': {'seed': 3, 'episodes': 5, 'blinding': 'secret = "opened once"'},
    'sealed': {'seed': 4, 'episodes': 2, 'blinding': ''},
    'sealed-closed': {'seed': 5, 'episodes': 2, 'blinding': ''},
    'running': {'seed': 6, 'episodes': 5, 'blinding': 'secret = "still running"', 'substeps': 600},
    'running-sealed': {'seed': 7, 'episodes': 2, 'blinding': ''},
}
ZONES = f"""\
[zones.source]
center_m = [{SOURCE[0]}, {SOURCE[1]}]
size_m = [0.3, 0.26]

[zones.target]
center_m = [{TARGET[0]}, {TARGET[1]}]
size_m = [0.3, 0.26]
"""
RECIPE = """\
about = "a tiny environment"
requirements = ["numpy==2.2.1", "msgpack==1.1.0"]
imports = ["numpy"]
"""
BIBLIOGRAPHY = """\
@article{{one, title = {{First}}, journal = {{arXiv preprint arXiv:2512.03227}}, year = 2025}}
@misc{{two, title = {{Second}}, eprint = {{2601.01234}}, archiveprefix = {{arXiv}},
  {package}_usage = {{reports-results}}, {package}_evidence = {{Table 4}}}}
"""


def verb(*words: object) -> None:
    """Run a verb in the present folder; it must succeed."""
    answer = ledger.run_verb([str(word) for word in words])
    if answer['code'] != 0:
        raise SystemExit(f'{words}: {answer}')


def write(folder: Path) -> None:
    """The corpus, in a folder that is made for it."""
    folder.mkdir(parents=True)
    before = Path.cwd()
    os.chdir(folder)  # every path in the corpus is relative
    try:
        for part in (write_trials, write_killed, write_console, write_stores, write_exports, write_actions,
                     write_platform, write_probe, write_environment, write_files):  # fmt: skip
            part()
            print(part.__name__, flush=True)
        make_showcase(Path('showcase'))
        watched_trial(Path('showcase/cameras'))
    finally:
        os.chdir(before)


def write_trials() -> None:
    """Trials of every state of blinding: none, open, closed, sealed, and sealed and closed."""
    Path('plans').mkdir()
    for name, values in PLANS.items():
        text = PLAN.format(**{'package': PACKAGE, 'substeps': 1, **values})
        Path(f'plans/{name}.toml').write_text(text, encoding='utf-8')
    Path('plans/cell.toml').write_text(CELL.format(package=PACKAGE), encoding='utf-8')
    for name in ('plain', 'open', 'closed'):
        verb('run', f'plans/{name}.toml', '--store', f'stores/{name}', '--operator', 'kim', '--workers', 1)
    verb('close', 'plans/closed.toml', '--store', 'stores/closed', '--by', 'ann')
    for number, name in enumerate(('sealed', 'sealed-closed', 'running-sealed')):
        seal_trial(read_plan(f'plans/{name}.toml'), f'roles/{name}', secret=bytes([number + 1]) * 32)
        stop = ('--stop-after', 4) if name == 'running-sealed' else ()
        verb('run', f'roles/{name}/operator.json', '--arms', f'roles/{name}/arms.json', '--store', f'stores/{name}',
             '--operator', 'kim', '--workers', 1, *stop)  # fmt: skip
    close_sealed('sealed-closed')
    verb('run', 'plans/cell.toml', '--store', 'stores/cell', '--operator', 'kim', '--workers', 1)


def close_sealed(name: str) -> None:
    verb('close', f'roles/{name}/operator.json', '--allocation', f'roles/{name}/allocation.json', '--store',
         f'stores/{name}', '--by', 'ann')  # fmt: skip


def write_killed() -> None:
    """A trial whose process was killed between two episodes, or within one."""
    command = [sys.executable, '-m', f'{PACKAGE}.cli', 'run', 'plans/running.toml', '--store', 'stores/running',
               '--operator', 'kim', '--workers', '1']  # fmt: skip
    paths = os.pathsep.join((str(Path(robotrials.__file__).parents[1]), str(ROOT)))
    running = subprocess.Popen(
        command, env={**os.environ, 'PYTHONPATH': paths}, stdout=subprocess.DEVNULL, start_new_session=True
    )
    while running.poll() is None and len(list(Path('stores/running/episodes').glob('*.parquet'))) < KILLED_AFTER:
        time.sleep(0.01)
    if running.poll() is not None:
        raise SystemExit('the trial ended before it was killed; give it more substeps')
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def write_console() -> None:
    """A real robot's trial at the console: two episodes recorded, one drafted."""
    allocation = seal_trial(lab_plan(), 'roles/console', secret=bytes([9]) * 32)
    desk = make_desk(allocation.operator_plan, Path('stores/console'))
    keys = [task['key'] for task in desk.state()['assignments'][:3]]
    for number, key in enumerate(keys):
        kind = 'draft' if number == 2 else 'record'
        sent = {'kind': kind, 'id': f'{number:032x}', 'key': key, 'account': account()}
        desk.act(Action.model_validate({**sent, 'revision': 1} if kind == 'draft' else sent))


def write_stores() -> None:
    """Stores that no trial made: with films and edits, from a table, from records of others."""
    make_store(Path('stores/films'))
    ids = sorted(e.episode_id for e in Store.open('stores/films').episodes())
    verb('store', 'edit', 'stores/films', ids[0], 'set', 'reason=the spoon slipped', '--why', 'film', '--by', 'ann')
    verb('store', 'edit', 'stores/films', ids[1], 'drop', '--why', 'wrong spoon', '--by', 'ann')
    Path('zones.toml').write_text(ZONES, encoding='utf-8')
    verb('annotate', 'detect', 'stores/films', '--settings', 'zones.toml', '--by', 'ann')
    rng = np.random.default_rng(8)
    with Path('rollouts.csv').open('w', newline='', encoding='utf-8') as file:
        rows = csv.writer(file)
        rows.writerow(['policy', 'task', 'success', 'duration_s', 'seed'])
        for policy, task, seed in itertools.product(('act', 'pi0'), ('pick', 'stack'), range(12)):
            is_success = rng.random() < (0.8 if policy == 'pi0' else 0.5)
            rows.writerow([policy, task, int(is_success), round(float(rng.uniform(5, 30)), 3), seed])
    verb('import', 'rollouts.csv', '--to', 'stores/csv')
    records = [{**RECORD, 'episode_id': f'ep_{n:03}', 'success': n % 2 == 0} for n in range(4)]
    Path('records.json').write_text(json.dumps(records), encoding='utf-8')
    verb('import', 'records.json', '--to', 'stores/safevla', '--set', 'policy=pi0')
    made = pairs()[:20]
    Store.create('stores/libero').append([e for e, _ in made], trajectories={e.key: t for e, t in made})


def write_exports() -> None:
    Path('exports').mkdir()
    for form, source, policy in ledger.EXPORTS:
        verb('export', source, '--to', form, '--out', f'exports/{form}', '--where', f'policy={policy}')
    verb('store', 'export', 'stores/closed', '-o', 'exports/closed.csv')
    verb('store', 'export', 'stores/closed', '-o', 'exports/closed.parquet')


def write_actions() -> None:
    dataset = make_rlds(Path('actions/data'), train=12, test=0, with_image=False)
    verb('actions', 'split', '--dataset', dataset, '--out', 'actions/split.json', '--seed', 7, '--share', 0.25)
    for model in ('mean', f'{PACKAGE}.actions.baseline:make_nearest'):
        verb('actions', 'run', '--dataset', dataset, '--model', model, '--out', 'actions/store', '--split',
             'actions/split.json')  # fmt: skip


def write_platform() -> None:
    """A platform's folder with its database: one submission is evaluated, one half; and its backup."""
    tokens = {}
    with make_service(Path('platform/lab')) as service:
        service.benchmark()
        tokens['kim'] = kim = service.token('kim', 'submitter', 'reader')
        worker, outcomes = service.worker(), itertools.cycle((Outcome.SUCCESS, Outcome.FAILURE))
        service.run_all(service.submit(kim), kim, worker, outcomes)
        half = service.submit(kim, 'half')
        lease = service.lease(half, kim)
        assert lease is not None
        worker.finish(lease['lease_id'])
        tokens |= {'admin': service.admin, 'half': half, 'now': service.clock.now,
                   'worker': worker.token, 'cell': worker.name}  # fmt: skip
        write_backup(service.platform.config, Path('platform/lab.tar'))
    token = sign_lease(LEASE_SECRET.encode(), lease_id='l1', worker_id='w1', job_id='j1', expires_at=4e9)
    tokens |= {'lease': token, 'lease_secret': LEASE_SECRET}
    Path('platform/tokens.json').write_text(json.dumps(tokens, indent=1), encoding='utf-8')


def write_probe() -> None:
    """Demonstrations, a training that was begun, and the card of a checkpoint; its weights would need PyTorch."""
    made = make_demonstrations(Path('probe/demonstrations'), episodes=4)
    with contextlib.suppress(SetupError):  # no environment to train in: the folder is claimed, and nothing is trained
        train_probe(made, ProbeOptions(steps=20, hidden=(8,), channels=(2, 2, 2)), 'probe/training')
    card = json.loads(Path('probe/training/training.json').read_text(encoding='utf-8'))
    folder = Path('probe/step-000020')
    folder.mkdir()
    card |= {'sizes': {'state': 3, 'action': 3, 'tasks': 2}, 'statistics': {'state_mean': [0.0, 0.0, 0.0]}, 'step': 20}
    (folder / 'probe.json').write_text(json.dumps(card, indent=1), encoding='utf-8')
    (folder / 'model.safetensors').write_bytes(b'')


def write_environment() -> None:
    """The user's cache with one made environment, and the recipe that it is of."""
    Path('recipes').mkdir()
    Path('recipes/tiny.toml').write_text(RECIPE, encoding='utf-8')
    digest = ledger.digest_of(read_recipe('recipes/tiny.toml'))
    folder = Path('cache') / PACKAGE / 'environments' / f'tiny-{digest}'
    folder.mkdir(parents=True)
    record = {'created_at': '2026-01-01T00:00:00+00:00', 'packages': {'numpy': '2.2.1'}}
    (folder / ENVIRONMENT_RECORD).write_text(json.dumps(record), encoding='utf-8')
    (folder / 'bin').mkdir()
    (folder / 'bin' / 'python').touch()


def write_files() -> None:
    Path('papers.bib').write_text(BIBLIOGRAPHY.format(package=PACKAGE), encoding='utf-8')
    Path('drops.csv').write_text('label,calibration,altered\nlight,60/80,41/80\nbackground,60/80,58/80\n')
    for name, chance in (('old', 0.5), ('new', 0.75)):
        rng = np.random.default_rng(len(name))
        lines = [f't{t},{s},{int(rng.random() < chance)}' for t, s in itertools.product(range(4), range(10))]
        Path(f'{name}.csv').write_text('\n'.join(['task,sample,success', *lines]) + '\n')
    calibration = {policy: outcomes(successes) for policy, successes in (('act', 30), ('pi0', 38))}
    altered = {policy: outcomes(successes) for policy, successes in (('act', 12), ('pi0', 36))}
    lost = overfit(
        calibration, {'light': (ChangeKind.ALTERED, altered)}, host='point-mass', task='reach',
        rng=np.random.default_rng(0), n_resamples=100,
        training=TrainingCount(total=100, counts={'official': 41}, basis='words'),
    )  # fmt: skip
    write_overfit(lost, Path('overfit.json'))
    targets = {
        kind: dict(catalog.builtin)
        for kind, catalog in (('hosts', HOSTS), ('policies', POLICIES), ('predictors', PREDICTORS))
    }
    Path('targets.json').write_text(json.dumps(targets, indent=1))


def outcomes(successes: int) -> list[InstanceOutcome]:
    return [
        InstanceOutcome(
            'reach', f'instance={n % 8} repeat={n // 8}', int(n < successes), start=f'reach instance={n % 8}'
        )
        for n in range(40)
    ]


# --- packing


def pack(folder: Path) -> None:
    """One archive in a fixed order, with nobody's name in it."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ''
        entry.mtime = 0
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode='w') as archive:
        for path in sorted(folder.rglob('*')):
            archive.add(path, path.relative_to(folder), recursive=False, filter=plain)
    PACKED.write_bytes(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    print(f'{PACKED}: {PACKED.stat().st_size:,} bytes')


def keep_ledger(*, numbers: bool) -> None:
    """Run everything on the packed corpus; entries whose numbers changed are kept only if that is wanted."""
    before = ledger.read_kept() if ledger.KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as drafts:
        facts = ledger.all_facts(Path(drafts))
    for name, fact in facts.items():
        if name in before and (why := ledger.difference(before[name], fact)):
            print(f'{name}: {why}')
            if ledger.numbers_of(before[name]) != ledger.numbers_of(fact) and not numbers:
                facts[name] = before[name]
    ledger.KEPT.write_bytes(lzma.compress(json.dumps(facts, indent=1, sort_keys=True).encode()))
    print(f'{ledger.KEPT}: {len(facts)} entries, {ledger.KEPT.stat().st_size:,} bytes')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=('write', 'pack', 'ledger'))
    parser.add_argument('folder', nargs='?', type=Path)
    parser.add_argument('--numbers', action='store_true', help='ledger: keep changed numbers too')
    asked = parser.parse_args()
    if asked.what == 'write':
        if asked.folder is None:
            parser.error('write wants a folder')
        write(asked.folder)
    elif asked.what == 'pack':
        if PACKED.exists():
            parser.error(f'{PACKED} is there, and its bytes are the point; move it away first')
        with tempfile.TemporaryDirectory() as drafts:
            write(Path(drafts) / 'corpus')
            pack(Path(drafts) / 'corpus')
    else:
        keep_ledger(numbers=asked.numbers)


if __name__ == '__main__':
    main()
