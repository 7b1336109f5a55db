"""`robotrials demo`: a real blinded trial in the embedded cell, from the plan to the verdicts, with no download."""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.errors import InputError, SetupError
from robotrials.old_name import DEMO_MARK

if TYPE_CHECKING:
    from robotrials.verdict.analysis import Analysis

MARK = DEMO_MARK
BASIS, WORSE, FASTER, SIMILAR, UNSAFE = 'steady', 'drifting', 'hasty', 'forgetful', 'rough'
NO_FILMS = '\n[recording]\nfilm = "off"\n'


def demo(
    to: Annotated[Path, typer.Option('--output', '-o', help='Where to put plan, store and figures; created.')] = Path(
        'demo'
    ),
    episodes: Annotated[int, typer.Option(help='Episodes of each policy with each of the four object types.')] = 6,
    workers: Annotated[int, typer.Option(help='Processes.')] = 2,
    seed: Annotated[int, typer.Option(help='A different seed draws different scenes and a different order.')] = 1,
) -> None:
    """Run a blinded trial of five scripted policies and a scripted reference, score it, and print the verdicts.

    Example: `robotrials demo --to /tmp/demo`
    """
    from robotrials.cli.run import shown_progress
    from robotrials.record.verify import verify_store
    from robotrials.run import close_trial, read_plan, run_trial
    from robotrials.worlds.cell.scene import load_mujoco

    load_mujoco()  # what is missing is said before anything is written
    trial, store = prepare(to, episodes=episodes, seed=seed), to / 'store'
    plan = read_plan(trial)
    policies = [name for name in plan.policies if name != plan.reference]
    typer.echo(f'1. Plan    {", ".join(policies)} and a reference, all scripted, move items from bin to bin.')
    typer.echo(f'           What may be claimed is declared first: {trial}, hash {plan.hash[:12]}.')
    typer.echo('2. Run     Blinded, in random order, from the same starts; simulated physics.')
    with shown_progress() as progress:
        done = run_trial(plan, store, workers=workers, operator='demo', report=progress)
    typer.echo(f'           {done.n_valid} of {done.n_total} episodes are valid; nobody saw which policy was which.')
    arms = close_trial(plan, store, by='demo')
    checked = verify_store(store)
    typer.echo(f'3. Close   {", ".join(f"{a.code} = {a.policy}" for a in arms[:2])}, ...')
    state = 'clean' if checked.is_clean else 'DAMAGED'
    typer.echo(f'           The record is {state}: {checked.n_episodes} episodes in {store}.')
    typer.echo('4. Score   Success, time, items lost, safety and what the cameras saw ...')
    lessons = report(to, store)
    typer.echo(f'           Everything on one page: {to / "report.html"}')
    typer.echo('\nWhat it found\n')
    for number, sentence in enumerate(lessons, start=1):
        typer.echo(f'{number}. {sentence}')
    typer.echo('\nTry next\n')
    for command in next_commands(to):
        typer.echo(f'  {command}')


def prepare(to: Path, *, episodes: int, seed: int, cameras: bool = True) -> Path:
    """A fresh folder with the plan in it, without cameras and films if so asked; only an earlier demo is removed."""
    if to.exists():
        if not (to / MARK).exists():
            raise InputError(f'{to}: exists, and is not an earlier demo; give another folder with --to')
        shutil.rmtree(to)
    to.mkdir(parents=True)
    (to / MARK).touch()
    text = (resources.files('robotrials.worlds.cell') / 'demo.toml').read_text(encoding='utf-8')
    text = text.replace('episodes_per_cell = 6', f'episodes_per_cell = {episodes}')
    text = text.replace('\nseed = 1\n', f'\nseed = {seed}\n')
    text = _as_drawable(text) if cameras else _without_cameras(text) + NO_FILMS
    trial = to / 'trial.toml'
    trial.write_text(text, encoding='utf-8')
    return trial


def _as_drawable(text: str) -> str:
    """The plan without its cameras on a machine that cannot draw; it says so."""
    from robotrials.worlds.cell.camera import working_backend

    try:
        working_backend()
    except SetupError as error:
        typer.echo(f'No scores from cameras: {error}\n', err=True)
        return _without_cameras(text)
    return text


def _without_cameras(text: str) -> str:
    text = text.replace('watchers = ["front", "side", "gallery"]', 'watchers = []')
    return text.replace('success = "both"', 'success = "host"')


def report(to: Path, store: Path) -> list[str]:
    """Score, compare, look at safety, write the report; returns what to take away."""
    from robotrials.cli.source import open_analysis
    from robotrials.measure.geometry.projection import write_projection
    from robotrials.show.document import render_document, write_file
    from robotrials.show.report import trial_document
    from robotrials.verdict.analysis import Absent

    analysis = open_analysis(store)
    opened = analysis.selection.store
    if opened is not None and not isinstance(analysis.camera_scores, Absent):
        write_projection(opened, analysis.episodes, analysis.camera_scores, by='demo')
    write_file(to / 'report.html', render_document(trial_document(analysis, folder=to), 'html'))
    return sentences(analysis)


def sentences(analysis: Analysis) -> list[str]:
    """What a person should take away; each is read off the results, and says so where they do not hold it."""
    from robotrials.show.phrase import decision_sentence
    from robotrials.verdict.analysis import present

    pairs = present(analysis.pairs)
    verdicts = [decision_sentence(pairs, BASIS, other) for other in (WORSE, FASTER, SIMILAR)]
    return [*verdicts, _unsafe_success(analysis), *_cameras(analysis)]


def _unsafe_success(analysis: Analysis) -> str:
    """Successes that the safety specifications call unsafe, and what success and speed alone would have said."""
    from robotrials.verdict.analysis import present

    summary = present(analysis.safety).summary
    rough, basis = (summary.cell(name, 'tabletop') for name in (UNSAFE, BASIS))
    peaks = [c.peak_force_n.value for c in (rough, basis) if c.peak_force_n is not None]
    force = f' (mean peak force {peaks[0]:.0f} N against {peaks[1]:.0f} N)' if len(peaks) == 2 else ''
    unsafe = rough.unsafe_given_success
    return (
        f'Unsafe success: {UNSAFE} succeeds in {rough.success.count} of {rough.n} episodes, {BASIS} in '
        f'{basis.success.count} of {basis.n}; {unsafe.count} of {unsafe.n} successes of {UNSAFE} were unsafe{force}.'
    )


def _cameras(analysis: Analysis) -> list[str]:
    """How far success by cameras can be relied on here."""
    from robotrials.verdict.analysis import Absent

    part = analysis.cameras
    if isinstance(part, Absent) or part.agreement.value is None:
        return []
    agreed, c = part.agreement, part.confusion
    return [
        f'Scored from cameras alone, {agreed.count} of {agreed.n} episodes agree with the simulator '
        f'({100 * part.agreement.value:.0f} %); {c.n - c.n_scored} could not be scored, and count neither way.'
    ]


def next_commands(to: Path) -> list[str]:
    """Three commands to try next, as they can be pasted where the demo was started."""
    program = Path(sys.executable).with_name('robotrials')
    call = 'robotrials' if shutil.which('robotrials') or not program.exists() else typed_path(program)
    store, figure = shlex.quote(str(to / 'store')), shlex.quote(str(to / 'safety.svg'))
    return [
        f'{call} compare {store} {BASIS} {FASTER}',
        f'{call} safety {store}',
        f'{call} plot safety-pareto {store} -o {figure}',
    ]


def typed_path(path: Path) -> str:
    """A path as one would type it here: relative where it lies below this folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
