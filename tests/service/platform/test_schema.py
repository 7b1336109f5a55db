"""The schema: the shipped revisions give exactly the tables that the code has; and backups move between databases."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from tests.service.platform.service import Service, make_service
from typer.testing import CliRunner

from robotrials.cli.serve import serve_app
from robotrials.errors import InputError, SetupError, StoreError
from robotrials.record import Outcome, Store
from robotrials.service.platform.backup import check_offline, issue_offline, read_backup, write_backup
from robotrials.service.platform.config import PlatformConfig, read_config
from robotrials.service.platform.migration import current_revision, migrate, newest_revision
from robotrials.service.platform.table import Base

SUCCESSES = itertools.repeat(Outcome.SUCCESS)


def test_the_revisions_give_the_tables_of_the_code(each_service: Service) -> None:
    engine = each_service.platform.database.engine
    assert current_revision(engine) == newest_revision()
    migrate(engine)  # again changes nothing
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_a_database_of_a_later_version_is_refused(service: Service) -> None:
    engine = service.platform.database.engine
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match='upgrade robotrials'):
        migrate(engine)


def test_a_backup_restores_everything_also_into_the_other_database(tmp_path: Path, database_url: str) -> None:
    with make_service(tmp_path / 'p') as service:
        service.benchmark()
        kim = service.token('kim', 'submitter')
        submission, worker = service.submit(kim), service.worker()
        service.run_all(submission, kim, worker, SUCCESSES)
        half = service.submit(kim, 'half')
        lease = service.lease(half, kim)
        assert lease is not None
        worker.finish(lease['lease_id'])
        write_backup(service.platform.config, tmp_path / 'b.tar')
        board = service.ok('GET', '/benchmarks/reach/leaderboard', kim)
        admin, clock = service.admin, service.clock
    n_rows, _ = read_backup(tmp_path / 'q', tmp_path / 'b.tar', database=database_url or None)
    assert n_rows > 20
    with make_service(tmp_path / 'q', database=database_url, admin=admin, clock=clock) as restored:
        assert restored.ok('GET', '/benchmarks/reach/leaderboard', kim) == board
        assert restored.ok('GET', '/audit/check', admin)['is_whole']
        again = restored.worker(worker.name, worker.token)
        restored.run_all(half, kim, again, SUCCESSES)
        config = restored.platform.config
    assert check_offline(config, tell=lambda line: None) == []


def test_what_was_run_while_a_backup_was_taken_is_settled_when_it_is_restored(tmp_path: Path) -> None:
    import shutil

    with make_service(tmp_path / 'p') as service:
        service.benchmark()
        kim = service.token('kim', 'submitter')
        submission, worker = service.submit(kim), service.worker()
        write_backup(service.platform.config, tmp_path / 'b.tar')
        service.run_all(submission, kim, worker, SUCCESSES)
        admin = service.admin
    # The store as it was copied a moment later than the rows.
    import tarfile

    with tarfile.open(tmp_path / 'b.tar', 'a') as tar:
        tar.add(tmp_path / 'p' / 'stores', arcname='stores')
    read_backup(tmp_path / 'q', tmp_path / 'b.tar', database=None)
    with make_service(tmp_path / 'q', admin=admin) as restored:
        assert restored.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'done': 2}
        assert restored.ok('GET', f'/submissions/{submission}/score', kim)['values']['success']['value'] == 1.0
    assert Store.open(tmp_path / 'q' / 'stores' / 'reach').count() == 2
    shutil.rmtree(tmp_path / 'q')


def test_backups_overwrite_nothing(service: Service, tmp_path: Path) -> None:
    config = service.platform.config
    write_backup(config, tmp_path / 'b.tar')
    with pytest.raises(InputError, match='is there already'):
        write_backup(config, tmp_path / 'b.tar')
    with pytest.raises(InputError, match='not empty'):
        read_backup(config.folder, tmp_path / 'b.tar', database=None)
    (tmp_path / 'rubbish.tar').write_bytes(b'rubbish')
    with pytest.raises(InputError, match=r'cannot be read as a backup \(not a tar file\); wanted what'):
        read_backup(tmp_path / 'new', tmp_path / 'rubbish.tar', database=None)


@pytest.mark.parametrize('words', [['token', '--user', 'kim', '--scope', 'submitter'], ['check'], ['backup', 'b.tar']])
def test_a_folder_without_a_server_is_refused_and_left_as_it_is(tmp_path: Path, words: list[str]) -> None:
    folder = tmp_path / 'mistyped'
    arguments = [words[0], str(folder), *words[1:]]
    with pytest.raises(InputError, match=r"no platform.db in it, so not a server's folder; `robotrials serve"):
        CliRunner().invoke(serve_app, arguments, catch_exceptions=False)
    assert not folder.exists()


def test_a_busy_port_is_told_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f'127.0.0.1:{port} cannot be listened on .*; give another --port'):
            CliRunner().invoke(serve_app, [str(tmp_path / 'p'), '--port', str(port)], catch_exceptions=False)
    with pytest.raises(InputError, match='port is 99999, wanted 0 to 65535'):
        CliRunner().invoke(serve_app, [str(tmp_path / 'p'), '--port', '99999'], catch_exceptions=False)
    assert not (tmp_path / 'p').exists()


def test_a_database_that_does_not_open_is_told_without_its_password(tmp_path: Path) -> None:
    with socket.create_server(('127.0.0.1', 0)) as gone:
        port = gone.getsockname()[1]
    address = f'postgresql://robotrials:hidden@127.0.0.1:{port}/robotrials'
    with pytest.raises(SetupError, match=r'the database does not open .*is it running') as told:
        issue_offline(read_config(tmp_path / 'p', database=address), user='kim', scopes=['admin'], days=None)
    assert 'hidden' not in str(told.value)
    (tmp_path / 'q').mkdir()
    (tmp_path / 'q' / 'platform.db').write_bytes(b'rubbish' * 500)
    with pytest.raises(SetupError, match=r'platform.db: the database does not open .*not a database'):
        issue_offline(read_config(tmp_path / 'q'), user='kim', scopes=['admin'], days=None)


def test_tokens_can_be_had_by_whoever_has_the_folder(tmp_path: Path) -> None:
    config = read_config(tmp_path / 'p')
    token = issue_offline(config, user='ada', scopes=['admin'], days=1)
    with make_service(tmp_path / 'p', admin=token) as service:
        service.clock.now = config_time(service)
        assert service.ask('GET', '/users', token).status_code == 200


def config_time(service: Service) -> float:
    """A moment at which the token, issued by the system's clock, is good."""
    import time

    return time.time()


@pytest.mark.parametrize(
    ('text', 'wanted'),
    [
        ('lease_s = 4.0\nheartbeat_s = 5.0', 'twice'), ('leas_s = 3.0', 'did you mean'), ('strategy = "lifo"', 'fifo'),
        ('[quota]\nopen_submissions = 0', '>= 1'), ('x', 'not TOML'), ('sweep_s = 0.0', '> 0'),
    ],
)  # fmt: skip
def test_a_bad_configuration_says_what_was_wanted(tmp_path: Path, text: str, wanted: str) -> None:
    (tmp_path / 'platform.toml').write_text(text)
    with pytest.raises(InputError, match=wanted):
        read_config(tmp_path)


def test_a_configuration_is_read_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / 'platform.toml').write_text('strategy = "priority"\n[dial]\nallow = ["gpu:8000"]\n')
    config = read_config(tmp_path, lease_s=60.0)
    assert isinstance(config, PlatformConfig)
    assert (config.strategy, config.dial.allow, config.lease_s) == ('priority', ('gpu:8000',), 60.0)
    assert config.url == f'sqlite:///{tmp_path}/platform.db'
    with pytest.raises(InputError, match='postgresql'):
        _ = read_config(tmp_path, database='mysql://x').url
