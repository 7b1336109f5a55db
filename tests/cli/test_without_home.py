"""An installation that cannot be written to, without HOME, as a service has it: verbs work and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VERBS = tuple(map(str.split, (
    'compare r.csv', 'compare store', 'score store', 'tables needed-n store',
    'gate store --baseline store --policy p1 --baseline-policy p0', 'plot cdf store -o {out}/f.svg',
    'report store -o {out}/r.html', 'store verify store', 'store ls store', 'doctor store', 'power size',
    'export store --to table --out {out}/e.csv', 'watch store --once', 'robustness c.csv',
    'tables headline store --format json', 'doctor r.csv',
)))  # fmt: skip


@pytest.fixture(scope='module')
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('lab')
    rows = ''.join(f'p{p},pick,{i},{(i + p) % 3 != 0:d},{5 + i % 7 + p}\n' for p in range(2) for i in range(20))
    (folder / 'r.csv').write_text(f'policy,task,seed,success,duration_s\n{rows}')
    lines = [f'{line},{c}' for c in ('nominal', 'dark') for line in rows.splitlines()]
    (folder / 'c.csv').write_text('\n'.join(['policy,task,seed,success,duration_s,condition', *lines, '']))
    subprocess.run([sys.executable, '-m', 'robotrials', 'import', 'r.csv', '--to', 'store'], cwd=folder, check=True)
    (folder / 'out').mkdir()
    (folder / 'bare').mkdir()
    return folder


@pytest.mark.parametrize('arguments', VERBS, ids=lambda a: '-'.join(a[:2]))
def test_verbs_work_without_a_home(lab: Path, arguments: list[str]) -> None:
    """No HOME, no cache folder that could be made, and no bytecode written."""
    nowhere = '/proc/nowhere'  # where nobody can make a folder, not even root
    environment = {
        'PATH': os.environ['PATH'], 'PYTHONDONTWRITEBYTECODE': '1', 'HOME': nowhere, 'XDG_CACHE_HOME': nowhere,
        'XDG_CONFIG_HOME': nowhere,
    }  # fmt: skip
    before = {p: p.stat().st_mtime_ns for p in (lab / 'store').rglob('*')}
    bare = {k: v for k, v in environment.items() if not k.startswith(('HOME', 'XDG'))}
    for out, env in (('out', environment), ('bare', bare)):
        words = [word.format(out=lab / out) for word in arguments]
        ran = subprocess.run(
            [sys.executable, '-m', 'robotrials', *words], cwd=lab, env=env, capture_output=True, text=True
        )
        wanted = (0, 1, 3) if arguments[0] == 'gate' else (0,)
        assert ran.returncode in wanted, ran.stderr
        assert 'Traceback' not in ran.stderr
    assert {p: p.stat().st_mtime_ns for p in (lab / 'store').rglob('*')} == before


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
