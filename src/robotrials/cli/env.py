"""`robotrials env`: isolated environments for hosts and policies whose packages cannot live beside robotrials's."""

from __future__ import annotations

from typing import Annotated

import typer

from robotrials.cli.output import FormatOption, print_table
from robotrials.errors import UnknownName

env_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help='Create and check isolated environments.')
EnvironmentName = Annotated[str, typer.Argument(help='A name from `env ls`, or a recipe file.', show_default=False)]


@env_app.command('ls')
def ls(form: FormatOption = 'text') -> None:
    """List the environments that can be created, and those that exist.

    Example: `robotrials env ls`
    """
    from robotrials.run.environment import environments, read_recipe, recipe_names
    from robotrials.show.table import table

    there = {(environment.name, environment.digest): environment for environment in environments()}
    rows: list[list[str | int | float | None]] = []
    for name in recipe_names():
        recipe = read_recipe(name)
        environment = there.pop((name, recipe.digest), None)
        state = 'not made' if environment is None else ('made' if environment.is_complete else 'unfinished')
        rows.append(
            [
                name,
                state,
                environment.created_at.replace('+00:00', 'Z') or None if environment else None,
                str(environment.folder) if environment else None,
                recipe.about,
            ]
        )
    rows += [
        [
            old.name,
            'older' if old.is_complete else 'unfinished',
            old.created_at.replace('+00:00', 'Z') or None,
            str(old.folder),
            None,
        ]
        for old in there.values()
    ]
    print_table(table('environments', ['environment', 'state', 'made at', 'folder', 'what for'], rows), form)


@env_app.command('create')
def create(
    name: EnvironmentName,
    anew: Annotated[bool, typer.Option('--anew', help='Create it again even if it exists.')] = False,
) -> None:
    """Create an environment, complete an interrupted one, or repair a broken one; this downloads packages.

    Example: `robotrials env create lerobot`
    """
    from rich.console import Console

    from robotrials.run.environment import environments
    from robotrials.run.environment.create import check_environment, create_environment, repair_environment
    from robotrials.run.environment.recipe import read_recipe

    recipe = read_recipe(name)
    is_made = any((e.name, e.digest) == (recipe.name, recipe.digest) and e.is_complete for e in environments())
    console = Console(stderr=True)
    with console.status(f'checking {name}') as status:
        problems = check_environment(recipe) if is_made and not anew else []
        if problems:
            console.print(f'{name} is broken, and is created again: {"; ".join(problems)}', markup=False)
        make = repair_environment if anew or problems else create_environment
        environment = make(recipe, progress=lambda line: status.update(f'making {name}: {line}'))
    typer.echo(f'{name} is at {environment.folder}')


@env_app.command('check')
def check(name: EnvironmentName) -> None:
    """Compare an environment with its recipe, and try its imports.

    Example: `robotrials env check lerobot`
    """
    from robotrials.run.environment.create import check_environment
    from robotrials.run.environment.recipe import read_recipe

    problems = check_environment(read_recipe(name))
    if not problems:
        typer.echo(f'{name} is sound')
        return
    for problem in problems:
        typer.echo(f'{name}: {problem}', err=True)
    raise typer.Exit(1)


@env_app.command('doctor')
def doctor(
    names: Annotated[
        list[str] | None, typer.Argument(help='Check only these environments.', show_default=False)
    ] = None,
    form: FormatOption = 'text',
) -> None:
    """Check what hosts need here: graphics, drivers, environments, assets, caches, disk space, and limits on parsers.

    Every problem comes with the command that fixes it; the exit code is 1 if something must be fixed.

    Example: `robotrials env doctor libero`
    """
    from rich.console import Console

    from robotrials.run.environment.doctor import FindingState, examine
    from robotrials.show.table import table

    with Console(stderr=True).status('looking') as status:
        findings = examine(names or (), progress=lambda what: status.update(f'looking at {what}'))
    rows: list[list[str | int | float | None]] = [
        [f.subject, f.item, f.state.value, f.found, f.mend or None] for f in findings
    ]
    rows.append(_walls())
    print_table(table('doctor', ['subject', 'item', 'state', 'found', 'to mend it'], rows), form)
    if any(f.state is FindingState.PROBLEM for f in findings):
        raise typer.Exit(1)


def _walls() -> list[str | int | float | None]:
    """Whether foreign files are read inside walls here, found out by trying."""
    from robotrials.record.foreign import held_walls

    walls = held_walls()
    gone = [name for name, holds in walls.items() if not holds]
    words = f'no limit on {", ".join(gone)}' if gone else f'bounded: {", ".join(walls)}'
    mend = 'a kernel with Landlock and seccomp' if gone else None
    return ['foreign files', 'parsers', 'warning' if gone else 'ok', words, mend]


@env_app.command('remove')
def remove(
    name: EnvironmentName,
    older: Annotated[bool, typer.Option('--older', help='Delete only the versions of older recipes.')] = False,
) -> None:
    """Delete an environment and its older versions.

    Example: `robotrials env remove lerobot`
    """
    from robotrials.run.environment import environments, read_recipe, recipe_names
    from robotrials.run.environment.create import remove_environment

    kept = read_recipe(name).digest if older else ''
    there = environments()
    wanted = name.rpartition('/')[2].removesuffix('.toml')  # as a recipe file is called, it may be gone by now
    known = {*recipe_names(), *(environment.name for environment in there)}
    if wanted not in known:
        raise UnknownName('environment', wanted, known)
    chosen = [environment for environment in there if environment.name == wanted and environment.digest != kept]
    for environment in chosen:
        remove_environment(environment.folder)
        typer.echo(f'removed {environment.folder}')
    if not chosen:
        typer.echo(f'no {"older " if older else ""}environment named {wanted} is there')
