"""What an earlier version wrote opens, resumes and says the same; and what is written today still bears the old marks.

The corpus was made by `tools/corpus.py`, and is not made again: see tests/corpus/README.md.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tarfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mcap.reader import make_reader
from tests.corpus import ledger
from tests.service.platform.service import make_service

import robotrials
from robotrials.catalog import load_attribute
from robotrials.errors import InputError, SetupError
from robotrials.measure.actions.prediction import PREDICTORS
from robotrials.policies.probe import read_demonstrations
from robotrials.policies.probe.option import read_options
from robotrials.policies.probe.policy import read_card
from robotrials.policies.probe.train import train_probe
from robotrials.record import Store, read_store
from robotrials.run.component import HOSTS, POLICIES
from robotrials.run.engine import run_trial
from robotrials.run.environment.recipe import environments, find_environment, read_recipe
from robotrials.run.plan import read_plan
from robotrials.service.platform.backup import write_backup
from robotrials.service.platform.job import LeaseGuard

CATALOGS = {'hosts': HOSTS, 'policies': POLICIES, 'predictors': PREDICTORS}
VARIABLES = [f'{name.upper()}_ENVIRONMENTS' for name in (ledger.OLD, robotrials.__name__)]


@pytest.fixture(scope='module')
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ledger.unpack(tmp_path_factory.mktemp('corpus'))


@pytest.fixture
def corpus(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy of the corpus, as the present folder; its cache is the user's."""
    folder = shutil.copytree(archive, tmp_path / 'corpus')
    monkeypatch.setenv('XDG_CACHE_HOME', str(folder / 'cache'))
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope='module')
def kept() -> dict[str, Any]:
    return ledger.read_kept()


def differences(kept: dict[str, Any], found: dict[str, Any]) -> dict[str, str]:
    told = {name: ledger.difference(kept[name], fact) if name in kept else 'not kept' for name, fact in found.items()}
    return {name: why for name, why in told.items() if why}


def test_every_verb_says_what_it_said(corpus: Path, kept: dict[str, Any]) -> None:
    found = ledger.verb_facts(ledger.is_quick)
    assert differences(kept, found) == {}
    assert {name for name in kept if name.startswith('verb ')} == {f'verb {name}' for name in ledger.invocations()}


@pytest.mark.crash
def test_the_long_tables_say_what_they_said(corpus: Path, kept: dict[str, Any]) -> None:
    assert differences(kept, ledger.verb_facts(lambda name: not ledger.is_quick(name))) == {}


def test_an_interrupted_trial_goes_on_with_the_ids_seeds_and_arms_it_would_have_had(
    corpus: Path, kept: dict[str, Any]
) -> None:
    found = ledger.trial_facts()
    assert differences(kept, found) == {}
    for name in ('running', 'running-sealed'):
        begun = {(e['id'], e['attempt']) for e in ledger.episode_facts(f'stores/{name}')}
        whole = {(e['id'], e['attempt']) for e in found[f'resumed {name}']}
        assert begun < whole


def test_a_platform_and_its_backup_open_and_finish_what_was_submitted(corpus: Path, kept: dict[str, Any]) -> None:
    Path('again').mkdir()
    found = ledger.platform_facts()
    assert differences(kept, found) == {}
    assert found['platform lab episodes'] == found['platform restored episodes']
    tokens = json.loads(Path('platform/tokens.json').read_text())
    guard = LeaseGuard(tokens['lease_secret'].encode(), worker_id='w1')
    assert guard.admit(tokens['lease'], now_s=1_800_000_000.0).lease_id == 'l1'


def test_the_console_goes_on_from_its_journal(corpus: Path, kept: dict[str, Any]) -> None:
    Path('again').mkdir()
    assert differences(kept, ledger.console_facts()) == {}


def test_a_sealed_trial_opens_with_its_allocation(corpus: Path) -> None:
    coded = {e.policy for e in Store.open('stores/sealed').episodes()}
    before = len(ledger.episode_facts('stores/sealed'))
    sealed = [set(steps) for steps in ledger.trajectory_facts('stores/sealed')]
    arguments = ['close', 'roles/sealed/operator.json', '--allocation', 'roles/sealed/allocation.json', '--store',
                 'stores/sealed', '--by', 'ann']  # fmt: skip
    assert ledger.run_verb(arguments)['code'] == 0
    opened = list(read_store('stores/sealed').episodes())
    assert {e.policy for e in opened} == {'fast seeker', 'slow seeker', 'idle'}.difference(coded)
    assert len(opened) == before
    columns = [set(steps) for steps in ledger.trajectory_facts('stores/sealed')]
    assert all(found > hidden for found, hidden in zip(columns, sealed, strict=True))  # also what was in envelopes


@pytest.mark.parametrize('kind', CATALOGS)
def test_what_a_saved_plan_names_is_what_the_catalogue_has(corpus: Path, kind: str) -> None:
    targets: dict[str, str] = json.loads(Path('targets.json').read_text())[kind]
    assert targets
    for name, target in targets.items():
        assert target.startswith(f'{ledger.OLD}.')
        assert load_attribute(target) is CATALOGS[kind].load(name), target


def test_a_saved_plan_keeps_its_own_words(corpus: Path) -> None:
    """A plan's hash covers the names in it, so what they resolve to is found when they are used."""
    plan = read_plan('plans/open.toml')
    assert plan.host.use == f'{ledger.OLD}.testing.point_mass:PointMassHost'
    assert plan.hash == Store.open('stores/open').trial.plan_hash


def test_plug_ins_of_the_old_groups_are_found(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path('plugin-1.0.dist-info').absolute()
    folder.mkdir()
    (folder / 'METADATA').write_text('Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n')
    target = f'{ledger.OLD}.testing.point_mass:PointMassHost'
    (folder / 'entry_points.txt').write_text(f'[{ledger.OLD}.hosts]\nborrowed = {target}\n')
    monkeypatch.syspath_prepend(str(folder.parent))
    assert 'borrowed' in HOSTS.names()
    assert HOSTS.load('borrowed') is HOSTS.load('point-mass')


# --- environments and probes


def test_an_environment_in_the_old_cache_is_found(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = ledger.digest_of(read_recipe('recipes/tiny.toml'))
    assert find_environment('tiny', digest).packages == {'numpy': '2.2.1'}
    assert [found.name for found in environments()] == ['tiny']
    monkeypatch.setenv('XDG_CACHE_HOME', str(corpus / 'nowhere'))
    assert environments() == ()
    monkeypatch.setenv(VARIABLES[0], str(corpus / 'cache' / ledger.OLD / 'environments'))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # the old variable may be said to be old
        assert [found.name for found in environments()] == ['tiny']


def test_demonstrations_and_a_probe_are_still_taken_up(corpus: Path) -> None:
    made = read_demonstrations('probe/demonstrations')
    made.verify()
    record = json.loads(Path('probe/training/training.json').read_text())
    assert made.digest == record['data_digest']
    options = read_options(record['options'])
    assert options.digest == record['options_digest']
    with pytest.raises(
        SetupError, match='probe'
    ):  # the folder is ours to go on in, and only the environment is missing
        train_probe(made, options, 'probe/training')
    with pytest.raises(InputError, match='other options'):
        train_probe(made, read_options({**record['options'], 'steps': 21}), 'probe/training')
    card, _, _ = read_card(Path('probe/step-000020'))
    assert card['data_digest'] == made.digest


# --- what is written today


def test_a_new_store_bears_the_marks_of_the_old_one(corpus: Path) -> None:
    run_trial(read_plan('plans/plain.toml'), 'new', workers=0, operator='kim', stop_after=2)
    assert _marks(Path('new')) == _marks(Path('stores/plain'))


def _marks(store: Path) -> dict[str, Any]:
    """The names of formats and keys that a reader goes by."""
    facts = json.loads((store / 'trial.json').read_text())
    entries = [json.loads(path.read_text()) for path in sorted((store / 'log').iterdir())]
    parts = [path for kind in ('episodes', 'trajectories') for path in (store / kind).glob('*.parquet')]
    return {
        'format': facts['format'],
        'plan': facts['plan_hash'],
        'log': sorted({entry['format'] for entry in entries}),
        'parquet': sorted({key for path in parts for key in pq.read_metadata(path).metadata or {}}),
    }


STATISTICS = r'dataset_statistics\.json|norm_stats\.json|videos/'  # and films, which datasets hold by now


@pytest.mark.parametrize(('form', 'source', 'policy'), ledger.EXPORTS)
def test_an_export_is_what_it_was(corpus: Path, form: str, source: str, policy: str) -> None:
    told = ledger.run_verb(['export', source, '--to', form, '--out', 'exported', '--where', f'policy={policy}'])
    assert told['code'] == 0, told
    before, now = _files(Path('exports') / form), _files(Path('exported'))
    is_added = re.compile({'lerobot': STATISTICS, 'lerobot-v2.1': STATISTICS}.get(form, '$^'))
    assert list(before) == [name for name in now if name in before or not is_added.match(name)]
    if form == 'mcap':  # its metadata grew: every message, and all that was said of the episode, is there
        for name in now:
            messages, facts = _mcap(now[name])
            messages_before, facts_before = _mcap(before[name])
            assert messages == messages_before
            assert all(facts[record].items() >= held.items() for record, held in facts_before.items())
    elif form == 'rerun':  # times of the recording are in it
        assert all(ledger.OLD.encode() in content for content in now.values())
    else:
        changed = [name for name in before if now[name] != before[name]]
        if form == 'lerobot':  # its index names films by now
            changed = [name for name in changed if name.startswith('data/')]
        assert changed == []


def _mcap(content: bytes) -> tuple[list[tuple[str, str, int, bytes]], dict[str, dict[str, str]]]:
    reader = make_reader(io.BytesIO(content))
    messages = [
        (schema.name if schema else '', channel.topic, message.log_time, message.data)
        for schema, channel, message in reader.iter_messages()
    ]
    return messages, {m.name: m.metadata for m in reader.iter_metadata()}


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()}


def test_a_new_backup_bears_the_marks_of_the_old_one(corpus: Path) -> None:
    tokens = json.loads(Path('platform/tokens.json').read_text())
    with make_service(Path('platform/lab'), admin=tokens['admin']) as service:
        write_backup(service.platform.config, Path('new.tar'))
    assert _head('new.tar')['format'] == _head('platform/lab.tar')['format']


def _head(archive: str) -> dict[str, Any]:
    with tarfile.open(archive) as opened:
        member = opened.extractfile('backup.json')
        assert member is not None
        found: dict[str, Any] = json.load(member)
        return found


def test_no_renaming_reaches_the_name_in_the_corpus() -> None:
    assert len(ledger.OLD) == 8
    assert ledger.normalised(f'run {ledger.OLD} store ls, or {robotrials.__name__} 0.1.0') == (
        'run PROGRAM store ls, or PROGRAM VERSION'
    )
    assert ledger.normalised(f'{ledger.OLD}-store') == f'{ledger.OLD}-store'
    assert sys.modules[robotrials.__name__] is robotrials
