"""`robotrials demo`: a real blinded trial in the embedded cell, from the plan to the verdicts, with no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import print_table
from robotrials.old_name import DEMO_MARK

if TYPE_CHECKING:
    from robotrials.verdict.analysis import Analysis, Comparisons
    from robotrials.verdict.analysis.price import WinnerPrice

MARK = DEMO_MARK
FAST, SLOW = 'hasty', 'careful'


def demo(
    to: Annotated[Path, typer.Option('--output', '-o', help='Where to put plan, store and figures; made new.')] = Path(
        'demo'
    ),
    episodes: Annotated[int, typer.Option(help='Episodes of each policy with each of the four object types.')] = 6,
    workers: Annotated[int, typer.Option(help='Processes.')] = 2,
    seed: Annotated[int, typer.Option(help='Another seed draws other scenes and another order.')] = 2026,
) -> None:
    """Run a blinded trial of four scripted policies and a scripted reference, close it, score it, and say what holds.

    Example: `robotrials demo --to /tmp/demo`
    """
    from robotrials.cli.close import close
    from robotrials.cli.plan import plan
    from robotrials.cli.run import run
    from robotrials.record.verify import verify_store

    trial, store = prepare(to, episodes=episodes, seed=seed), to / 'store'
    typer.echo('1. The plan, declared before the first rollout\n')
    plan(trial)
    typer.echo('2. The blinded run: simulated physics, scripted policies that read the true state\n')
    run(trial, store=store, workers=workers, operator='demo')
    typer.echo('\n3. Closing: who was who\n')
    close(trial, store=store, by='demo')
    checked = verify_store(store)
    typer.echo(f'store verify: {"clean" if checked.is_clean else "DAMAGED"}, {checked.n_episodes} episodes\n')
    report(to, store)


def prepare(to: Path, *, episodes: int, seed: int) -> Path:
    """A fresh folder with the plan in it; only an earlier demo is ever removed."""
    import shutil
    from importlib import resources

    from robotrials.errors import InputError

    if to.exists():
        if not (to / MARK).exists():
            raise InputError(f'{to}: is there and is not an earlier demo; give another folder with --to')
        shutil.rmtree(to)
    to.mkdir(parents=True)
    (to / MARK).touch()
    text = (resources.files('robotrials.worlds.cell') / 'demo.toml').read_text(encoding='utf-8')
    text = text.replace('episodes_per_cell = 6', f'episodes_per_cell = {episodes}')
    text = text.replace('\nseed = 2026\n', f'\nseed = {seed}\n')
    text = _as_drawable(text)
    trial = to / 'trial.toml'
    trial.write_text(text, encoding='utf-8')
    return trial


def _as_drawable(text: str) -> str:
    """The plan without its cameras on a machine that cannot draw; it says so."""
    from robotrials.errors import SetupError
    from robotrials.worlds.cell.camera import working_backend

    try:
        working_backend()
    except SetupError as error:
        typer.echo(f'No scores from cameras: {error}\n', err=True)
        return text.replace('watchers = ["front", "side", "gallery"]', 'watchers = []').replace(
            'success = "both"', 'success = "host"'
        )
    return text


def report(to: Path, store: Path) -> None:
    """Score, compare, look at safety, write the report; then what to take away."""
    from robotrials.cli.report import write_document
    from robotrials.cli.source import open_analysis
    from robotrials.measure.geometry.projection import write_projection
    from robotrials.show.cameras import confusion_table, rate_table
    from robotrials.show.pair_table import decision_table
    from robotrials.show.report import trial_document
    from robotrials.show.report_pairs import pair_table
    from robotrials.show.report_ranking import ranking_table
    from robotrials.show.safety import quadruple_table
    from robotrials.verdict.analysis import Absent, present

    typer.echo('4. Time to success, verdicts and safety, as the plan declared\n')
    analysis = open_analysis(store)
    opened = analysis.selection.store
    if opened is not None and not isinstance(analysis.camera_scores, Absent):
        write_projection(opened, analysis.episodes, analysis.camera_scores, by='demo')
    pairs = present(analysis.pairs)
    print_table(ranking_table(analysis, present(analysis.ranking)))
    print_table(decision_table(pairs, present(analysis.frame).policies))
    for found in pairs.tested:
        print_table(pair_table(found))
    print_table(quadruple_table(present(analysis.safety).summary))
    if not isinstance(analysis.cameras, Absent):
        print_table(confusion_table(analysis.cameras))
        print_table(rate_table(analysis.cameras))
    write_document(trial_document(analysis, folder=to), 'html', to / 'report.html')
    typer.echo('\nWhat to take away\n')
    for number, sentence in enumerate(sentences(analysis), start=1):
        typer.echo(f'{number}. {sentence}')
    typer.echo(f'\nOpen {to / "report.html"} in a browser. The record is {store}, the plan {to / "trial.toml"}.')


def sentences(analysis: Analysis) -> list[str]:
    """What a person should take away; each is read off the results, and says so where they do not hold it."""
    from robotrials.show.verdict_text import decision_sentence, pair_sentence
    from robotrials.verdict.analysis import present

    pairs, frame = present(analysis.pairs), present(analysis.frame)
    told = [decision_sentence(pairs, FAST, SLOW)]
    told += [pair_sentence(e.pair(FAST, SLOW), e, n_strata=len(frame.strata)) for e in pairs.tested]
    told += [_three_questions(analysis), _resolved(pairs), _price(present(analysis.price))]
    return [*told, *_cameras(analysis)]


def _cameras(analysis: Analysis) -> list[str]:
    """How far success by cameras can be relied on here."""
    from robotrials.verdict.analysis import Absent

    part = analysis.cameras
    if isinstance(part, Absent) or part.agreement.value is None:
        return []
    agreed, c = part.agreement, part.confusion
    return [
        f'Scored from cameras alone, {agreed.count} of {agreed.n} episodes agree with the simulator '
        f'({100 * part.agreement.value:.0f} %); {c.n - c.n_scored} could not be scored, and count as nothing.'
    ]


def _three_questions(analysis: Analysis) -> str:
    """Speed, reliability and safety of the fast and the slow policy."""
    from robotrials.verdict.analysis import present

    ranking, rates, safety = present(analysis.ranking), present(analysis.success), present(analysis.safety)
    parts = []
    for name in (FAST, SLOW):
        score, success = ranking.scores[name], rates.counts[name, '']
        median, lost = score.pooled['median_s'].value, score.macro['hard_failure'].value
        pace = 'no median time' if median is None else f'a median of {median:.1f} s per item'
        loses = 'an unknown share of items' if lost is None else f'{100 * lost:.0f} % of items'
        safe = safety.summary.cell(name, 'tabletop').safety
        parts.append(
            f'{name} has {pace}, loses {loses}, succeeds in {success.count} of {success.n} episodes and is safe in '
            f'{safe.count} of {safe.n}'
        )
    return f'Speed, reliability and safety are three questions: {"; ".join(parts)}.'


def _resolved(pairs: Comparisons) -> str:
    """In how many pairs one is better, how many are trade-offs, how many are open."""
    from robotrials.stats.dominance import PairVerdict

    won, traded = (
        sum(d.verdict is kind for d in pairs.decisions) for kind in (PairVerdict.BETTER, PairVerdict.TRADE_OFF)
    )
    n = len(pairs.decisions)
    rest, trade_offs = n - won - traded, 'is a trade-off' if traded == 1 else 'are trade-offs'
    return (
        f'In {won} of {n} pairs one policy is better, {traded} {trade_offs}, '
        f'{rest} {"is" if rest == 1 else "are"} not resolved: that does not make two policies equal.'
    )


def _price(price: WinnerPrice) -> str:
    return f'With {price.n_tests} tests nothing can be claimed below {price.per_policy} {price.unit}s per policy.'
