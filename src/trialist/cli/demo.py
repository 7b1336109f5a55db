"""`trialist demo`: a real blinded trial in the embedded cell, from the plan to the verdicts, with no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trialist.cli.output import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trialist.analysis import Ranking, SafetyPart, TrialReport
    from trialist.analysis.pairs import AllPairs
    from trialist.episodes import Episode
    from trialist.safety import SafetySummary

TAU_S = 60.0
MARK = '.trialist-demo'
FAST, SLOW = 'hasty', 'careful'


def demo(
    to: Annotated[Path, typer.Option('--to', help='Where to put plan, store and figures; made new.')] = Path('demo'),
    episodes: Annotated[int, typer.Option(help='Episodes of each policy with each of the four object types.')] = 5,
    workers: Annotated[int, typer.Option(help='Processes.')] = 2,
    seed: Annotated[int, typer.Option(help='Another seed draws other scenes and another order.')] = 1,
) -> None:
    """Run a blinded trial of four scripted policies and a scripted reference, close it, score it, and say what holds.

    Example: `trialist demo --to /tmp/demo`
    """
    from trialist.cli.close import close
    from trialist.cli.plan import plan
    from trialist.cli.run import run
    from trialist.episodes.verify import verify_store

    trial, store = prepare(to, episodes=episodes, seed=seed), to / 'store'
    typer.echo('1. The plan, declared before the first rollout\n')
    plan(trial)
    typer.echo('2. The blinded run: simulated physics, scripted policies that read the true state\n')
    run(trial, store=store, workers=workers, operator='demo')
    typer.echo('\n3. Closing: who was who\n')
    close(trial, store=store, by='demo')
    checked = verify_store(store)
    typer.echo(f'store verify: {"clean" if checked.is_clean else "DAMAGED"}, {checked.n_episodes} episodes\n')
    report(to, store, seed=seed)


def prepare(to: Path, *, episodes: int, seed: int) -> Path:
    """A fresh folder with the plan in it; only an earlier demo is ever removed."""
    import shutil
    from importlib import resources

    from trialist.errors import InputError

    if to.exists():
        if not (to / MARK).exists():
            raise InputError(f'{to}: is there and is not an earlier demo; give another folder with --to')
        shutil.rmtree(to)
    to.mkdir(parents=True)
    (to / MARK).touch()
    text = (resources.files('trialist.cell') / 'demo.toml').read_text(encoding='utf-8')
    text = text.replace('episodes_per_cell = 5', f'episodes_per_cell = {episodes}')
    text = text.replace('seed = 1', f'seed = {seed}')
    trial = to / 'trial.toml'
    trial.write_text(text, encoding='utf-8')
    return trial


def report(to: Path, store: Path, *, seed: int) -> None:
    """Score, compare, look at safety, write the report; then the three sentences."""
    from trialist.analysis import ReportOptions, build_report
    from trialist.cli.report import write_document
    from trialist.episodes import read_store
    from trialist.show.report import trial_document
    from trialist.show.safety import quadruple_table
    from trialist.show.timing import all_pairs_table, headline_table

    typer.echo('4. Time to success, verdicts and safety\n')
    found = build_report(read_store(store), ReportOptions(tau_s=TAU_S, seed=seed, n_resamples=2000))
    ranking, pairs, safety = demo_parts(found)
    print_table(
        headline_table(
            list(ranking.scores.values()), ranking.relative, tau_s=ranking.tau_s, n_resamples=found.options.n_resamples,
            reference=ranking.reference,
        )
    )  # fmt: skip
    print_table(all_pairs_table(pairs))
    print_table(quadruple_table(safety.summary))
    write_document(trial_document(found), 'html', to / 'report.html')
    typer.echo('\nWhat to take away\n')
    for number, sentence in enumerate(sentences(found.episodes, pairs, safety.summary), start=1):
        typer.echo(f'{number}. {sentence}')
    typer.echo(f'\nOpen {to / "report.html"} in a browser. The record is {store}, the plan {to / "trial.toml"}.')


def demo_parts(found: TrialReport) -> tuple[Ranking, AllPairs, SafetyPart]:
    """The parts that the demo's trial always has."""
    from trialist.analysis import Absent

    if isinstance(found.ranking, Absent) or isinstance(found.ranking.pairs, Absent) or isinstance(found.safety, Absent):
        raise AssertionError('a demo trial has a ranking, pairs and safety')
    return found.ranking, found.ranking.pairs, found.safety


def sentences(episodes: Sequence[Episode], pairs: AllPairs, safety: SafetySummary) -> list[str]:
    """What a person should take away; each is read off the results, and says so where they do not hold it."""
    from trialist.timing import Verdict, cohorts, success_curve

    arms = cohorts(episodes)
    told = {frozenset((c.policy_a, c.policy_b)): c for c in pairs.comparisons}
    lines = [told[frozenset((FAST, SLOW))].sentence]
    parts = []
    for name in (FAST, SLOW):
        curve = success_curve(arms[name].pooled.durations_s, arms[name].pooled.observed)
        rate = safety.cell(name, 'tabletop').safety
        median = 'no median' if curve.median_s is None else f'a median of {curve.median_s:.1f} s an item'
        parts.append(f'{name} has {median}, loses {curve.hard_failure:.0%}, and {rate.count} of {rate.n} episodes safe')
    lines.append('Speed, reliability and safety are three questions: ' + '; '.join(parts) + '.')
    apart = [c for c, p in zip(pairs.comparisons, pairs.p_holm, strict=True) if p < pairs.alpha]
    near = [c for c in pairs.comparisons if c not in apart]
    told_apart = f'After correction for {len(pairs.comparisons)} pairs, {len(apart)} are told apart'
    if near:
        named = ', '.join(f'{c.policy_a} and {c.policy_b}' for c in near)
        lines.append(f'{told_apart}; unresolved at this number of episodes: {named}.')
    else:
        winners = sum(c.verdict is Verdict.BETTER for c in apart)
        lines.append(f'{told_apart}, {winners} of them with a winner: being different is not being better.')
    return lines
