"""`robotrials serve`: run the platform's server, and look after its folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.cli.option import Group
from robotrials.errors import InputError

if TYPE_CHECKING:
    from robotrials.service.platform.config import PlatformConfig

FolderPath = Annotated[Path, typer.Argument(help="The server's folder: database, stores, platform.toml.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        '--database',
        envvar=['ROBOTRIALS_DATABASE', 'TRIALIST_DATABASE'],
        help='postgresql://USER@HOST/NAME.',
        show_default='SQLite in the folder',
    ),
]


class DefaultStart(Group):
    """`robotrials serve FOLDER` is `robotrials serve start FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] in ('--help', '-h'))
        return super().parse_args(ctx, args if is_named or not args else ['start', *args])


serve_app = typer.Typer(
    cls=DefaultStart,
    no_args_is_help=True,
    help='Run a benchmark as a service: `robotrials serve FOLDER`. The other commands maintain its folder.',
)


def _config_of_server(folder: Path, database: str | None) -> PlatformConfig:
    """The configuration of a folder that a server was started on; a mistyped one is refused, and nothing made in it."""
    from robotrials.service.platform.config import DATABASE, read_config

    config = read_config(folder, database=database)
    if not config.database and not (folder / DATABASE).exists():
        raise InputError(
            f"{folder}: no {DATABASE} in it, so not a server's folder; `robotrials serve {folder}` "
            'starts a server there, and --database names one on PostgreSQL'
        )
    return config


@serve_app.command()
def start(
    folder: FolderPath,
    host: Annotated[str, typer.Option(help='The address to listen on.')] = '127.0.0.1',
    port: Annotated[int, typer.Option(help='The port; 0 picks a free one.')] = 8080,
    database: DatabaseOption = None,
    allow_private: Annotated[
        list[str] | None,
        typer.Option(help='A network of private addresses where workers and policies may be, such as 127.0.0.0/8.'),
    ] = None,
) -> None:
    """Run the server until SIGTERM or Ctrl-C; current requests are finished first.

    The first start writes the token of the first admin into its folder. Example: `robotrials serve lab --port 8080`
    """
    from robotrials.service.platform.app import run_server
    from robotrials.service.platform.config import read_config

    config = read_config(folder, database=database)
    if allow_private:
        config = dataclasses.replace(config, private_addresses=(*config.private_addresses, *allow_private))
    run_server(config, host=host, port=port, tell=typer.echo)


@serve_app.command()
def migrate(folder: FolderPath, database: DatabaseOption = None) -> None:
    """Upgrade the database to this version's schema. `start` does so too.

    Example: `robotrials serve migrate lab`
    """
    from robotrials.service.platform.config import make_private_folder, read_config
    from robotrials.service.platform.database import Database, ServerClock
    from robotrials.service.platform.migration import current_revision, newest_revision
    from robotrials.service.platform.migration import migrate as bring

    config = read_config(folder, database=database)
    make_private_folder(config.folder)
    opened = Database(config.url, clock=ServerClock())
    before = current_revision(opened.engine) or 'nothing'
    bring(opened.engine)
    typer.echo(f'{before} -> {newest_revision()}')
    opened.close()


@serve_app.command()
def token(
    folder: FolderPath,
    user: Annotated[str, typer.Option(help='The user; added if new.')],
    scope: Annotated[list[str], typer.Option(help='admin, submitter, worker, operator or reader; several are fine.')],
    days: Annotated[
        float | None, typer.Option(help='How long it is valid, in days.', show_default='until revoked')
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Issue a token without a running server, given access to its folder.

    Example: `robotrials serve token lab --user kim --scope submitter`
    """
    from robotrials.service.platform.backup import issue_offline

    typer.echo(issue_offline(_config_of_server(folder, database), user=user, scopes=scope, days=days))


@serve_app.command()
def check(folder: FolderPath, database: DatabaseOption = None) -> None:
    """Check the audit trail and that every result the queue knows of is in its store. Exit code 1 if not.

    Example: `robotrials serve check lab`
    """
    from robotrials.service.platform.backup import check_offline

    problems = check_offline(_config_of_server(folder, database), tell=typer.echo)
    for problem in problems:
        typer.secho(problem, fg='red', err=True)
    if problems:
        raise typer.Exit(1)


@serve_app.command()
def backup(
    folder: FolderPath,
    archive: Annotated[Path, typer.Argument(help='The .tar file to write; it must not exist.')],
    database: DatabaseOption = None,
) -> None:
    """Write everything into one file. The server may keep running.

    Example: `robotrials serve backup lab lab-monday.tar`
    """
    from robotrials.service.platform.backup import write_backup

    n_rows, n_files = write_backup(_config_of_server(folder, database), archive)
    typer.echo(f'{archive}: {n_rows} rows, {n_files} files')


@serve_app.command()
def restore(
    folder: FolderPath,
    archive: Annotated[Path, typer.Argument(help='A file written by `backup`.')],
    database: DatabaseOption = None,
) -> None:
    """Restore a backup into a new folder (and an empty database); can also move from SQLite to PostgreSQL.

    Example: `robotrials serve restore lab-again lab-monday.tar`
    """
    from robotrials.service.platform.backup import read_backup

    n_rows, n_files = read_backup(folder, archive, database=database)
    typer.echo(f'{folder}: {n_rows} rows, {n_files} files')
