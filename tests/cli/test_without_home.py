"""An installation that cannot be written to, without HOME, as a service has it: verbs work and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.measure.safety.scene import lifted

from robotrials.record import Episode, Outcome, Store

VERBS = tuple(map(str.split, (
    'compare r.csv', 'compare store', 'score store', 'tables needed-n store',
    'gate store --baseline store --policy p1 --baseline-policy p0', 'plot cdf store -o {out}/f.svg',
    'report store -o {out}/r.html', 'store verify store', 'store ls store', 'doctor store', 'power size',
    'export store --to table --out {out}/e.csv', 'watch store --once', 'robustness c.csv',
    'tables headline store --format json', 'doctor r.csv', 'compare recorded', 'safety recorded',
    'safety explain libero-10/task_4', 'report recorded -o {out}/recorded.html', 'tables safety-specs recorded',
    'audit topline 90 95 --tasks 10 --samples 50', 'actions datasets', 'tables action-errors published', 'policies ls',
    'env ls', 'store log recorded', 'store verify recorded',
)))  # fmt: skip
SCORES = ('compare recorded', 'safety recorded', 'report recorded', 'tables safety-specs')
# Only the folder of temporary files can be written to, as under ProtectSystem=strict and PrivateTmp=yes; root too.
WALLED = """
import ctypes, sys
from pathlib import Path
from robotrials.record.foreign import PR_SET_NO_NEW_PRIVS, _landlock
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
_landlock(libc, Path(sys.argv.pop(1)))
try:
    Path('written').touch()
except OSError:
    from robotrials.cli import run_command
    run_command()
else:
    sys.exit('no Landlock')
"""


@pytest.fixture(scope='module')
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('lab')
    rows = ''.join(f'p{p},pick,{i},{(i + p) % 3 != 0:d},{5 + i % 7 + p}\n' for p in range(2) for i in range(20))
    (folder / 'r.csv').write_text(f'policy,task,seed,success,duration_s\n{rows}')
    lines = [f'{line},{c}' for c in ('nominal', 'dark') for line in rows.splitlines()]
    (folder / 'c.csv').write_text('\n'.join(['policy,task,seed,success,duration_s,condition', *lines, '']))
    subprocess.run([sys.executable, '-m', 'robotrials', 'import', 'r.csv', '--to', 'store'], cwd=folder, check=True)
    episodes = [
        Episode(
            policy=f'p{k % 2}', task='task_4', benchmark='libero-10', seed=k // 2, duration_s=5.0, time_cap_s=20.0,
            outcome=Outcome.SUCCESS if k % 3 else Outcome.FAILURE,
        )
        for k in range(12)
    ]  # fmt: skip
    Store.create(folder / 'recorded').append(episodes, trajectories={e.key: lifted(20) for e in episodes})
    (folder / 'out').mkdir()
    return folder


@pytest.mark.skipif(not sys.platform.startswith('linux'), reason='Landlock is of Linux')
@pytest.mark.parametrize('arguments', VERBS, ids=lambda a: '-'.join(a[:2]))
def test_verbs_that_ask_need_a_folder_of_temporary_files_alone(lab: Path, arguments: list[str]) -> None:
    """No HOME, an installation, a store and a working folder that cannot be written to; what was not kept is said."""
    environment = {'PATH': os.environ['PATH'], 'TMPDIR': str(lab / 'out'), 'PYTHONPYCACHEPREFIX': str(lab / 'out')}
    stores = ('store', 'recorded')
    before = {p: p.stat().st_mtime_ns for name in stores for p in (lab / name).rglob('*')}
    words = [word.format(out=lab / 'out') for word in arguments]
    command = [sys.executable, '-c', WALLED, str(lab / 'out'), *words]
    ran = subprocess.run(command, cwd=lab, env=environment, capture_output=True, text=True)
    if ran.stderr.endswith('no Landlock\n'):
        pytest.skip('a kernel without Landlock')
    assert ran.returncode in ((0, 1, 3) if arguments[0] == 'gate' else (0,)), ran.stderr
    assert 'Traceback' not in ran.stderr
    assert ('Scores were not kept' in ran.stderr) == (' '.join(arguments).startswith(SCORES)), ran.stderr
    assert {p: p.stat().st_mtime_ns for name in stores for p in (lab / name).rglob('*')} == before


@pytest.mark.parametrize('arguments', [['compare', 'r.csv'], ['safety', 'recorded']], ids=lambda a: a[0])
def test_verbs_work_where_no_folder_can_be_made_at_home(lab: Path, arguments: list[str]) -> None:
    nowhere = '/proc/nowhere'  # where nobody can make a folder, not even root
    environment = {'PATH': os.environ['PATH'], 'HOME': nowhere, 'XDG_CACHE_HOME': nowhere, 'XDG_CONFIG_HOME': nowhere}
    ran = subprocess.run(
        [sys.executable, '-m', 'robotrials', *arguments], cwd=lab, env=environment, capture_output=True, text=True
    )
    assert (ran.returncode, 'Traceback' in ran.stderr) == (0, False), ran.stderr


def test_the_units_of_a_service_are_those_that_systemd_takes(tmp_path: Path) -> None:
    """`systemd-analyze verify`, with our command where the units expect it."""
    analyze = shutil.which('systemd-analyze')
    if analyze is None:
        pytest.skip('no systemd here')
    units = Path(__file__).parents[2] / 'deploy'
    command = Path(sys.executable).with_name('robotrials')
    for unit in (*units.glob('*.service'), *units.glob('*.timer')):
        text = unit.read_text(encoding='utf-8').replace('/opt/robotrials/bin/robotrials', str(command))
        (tmp_path / unit.name.replace('@.', '@cell-1.')).write_text(text)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    ran = subprocess.run([analyze, 'verify', *map(str, files)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, '')
    broken = tmp_path / 'robotrials-server.service'
    broken.write_text(broken.read_text().replace('ExecStart=', 'ExecBegin='))
    ran = subprocess.run([analyze, 'verify', str(broken)], capture_output=True, text=True, check=False)
    assert ran.returncode or 'ExecBegin' in ran.stderr, 'the check finds a mistake'
