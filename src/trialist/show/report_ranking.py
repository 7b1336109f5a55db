"""A report's sections on speed and success: ranking, curves, what is resolved, failures, cells and tasks."""

from __future__ import annotations

from collections.abc import Sequence

from trialist.analysis import Absent, Ranking
from trialist.analysis.pairs import AllPairs, TimingComparison
from trialist.show.document import Block, EpisodeFilter, Missing, Section, TableBlock, paragraph, section
from trialist.show.table import Cell, Column, Table, table, without_empty
from trialist.show.timing import ends, failure_tables
from trialist.timing import Verdict
from trialist.timing.scalar import scalar_label

RANKING_DEFINITIONS = {
    'letters': 'letters', 'RMST (s)': 'rmst', 'RMST low': 'interval', 'RMST high': 'interval', 'HRT (%)': 'hrt',
    'HRT low': 'interval', 'HRT high': 'interval', 'success (%)': 'success', 'success low': 'success',
    'success high': 'success', 'median (s)': 'median', 'hard failure (%)': 'hard-failure',
    'intervention (%)': 'intervention', 'episodes': 'episode', 'invalid': 'invalid',
}  # fmt: skip


def missing(what: str, absent: Absent) -> Missing:
    return Missing(what, absent.reason, absent.remedy)


def of_policy(policy: str, ranking: Ranking | None = None, **more: str) -> EpisodeFilter:
    """The filter of a policy's episodes, of the ranked condition where one was taken out of several."""
    chosen = {'policy': (policy,)} | {name: (value,) for name, value in more.items()}
    return chosen | ({'condition': (ranking.condition,)} if ranking is not None and ranking.condition else {})


def ranking_table(ranking: Ranking) -> Table:
    """Every policy with what it is ranked by; the reference first, then the lowest macro RMST."""
    letters = {} if isinstance(ranking.pairs, Absent) else ranking.pairs.letters
    rows: list[tuple[Cell, ...]] = []
    for policy in ranking.policies:
        score, count = ranking.scores[policy], ranking.successes[policy, '']
        rmst, hrt = score.macro['rmst_s'], ranking.relative.get(policy)
        relative: tuple[Cell, ...] = (None, None, None)
        if policy == ranking.reference:
            relative = (100.0, None, None)
        elif hrt is not None and hrt.value is not None:
            relative = (100 * hrt.value, *ends(hrt.macro.percentile, 100.0))
        hard = score.macro['hard_failure'].value
        rows.append((
            policy, letters.get(policy), rmst.value, *ends(rmst.percentile), *relative, 100 * count.rate,
            *ends(count.interval, 100.0), score.pooled['median_s'].value, None if hard is None else 100 * hard,
            100 * score.intervention_rate, score.n_episodes, score.n_invalid,
        ))  # fmt: skip
    numeric = {'episodes', 'invalid', 'letters'}
    names = ['policy', *RANKING_DEFINITIONS]
    columns = [name if name in numeric or name == 'policy' else Column(name, '.1f') for name in names]
    note = (
        f'RMST is the mean over strata, capped at {ranking.tau_s:g} s ({ranking.tau_reason}); median over all '
        'operations. '
        + (f'HRT is relative to {ranking.reference}. ' if ranking.reference else 'No HRT: no policy is marked as the '
        'reference. ')
        + ('Policies that share a letter are not told apart.' if letters else '')
        + _width_note(ranking)
    ).rstrip()  # fmt: skip
    return without_empty(table('Ranking by time to success', columns, rows, note=note))


def _width_note(ranking: Ranking) -> str:
    """A word on intervals that resampling can't widen."""
    found = [score.macro['rmst_s'].percentile for score in ranking.scores.values()]
    if not any(interval is not None and interval.width == 0 for interval in found):
        return ''
    return ' An interval of no width says that these episodes do not vary, not that the mean is sure.'


def table_block(
    key: str, shown: Table, definitions: dict[str, str], *, episodes: Sequence[EpisodeFilter | None] = (),
    policy: str = 'policy', stratum: str = '', is_folded: bool = False,
) -> TableBlock:  # fmt: skip
    """A block that keeps only the definitions of columns that the table has."""
    names = {c.name for c in shown.columns}
    return TableBlock(
        key, shown, {k: v for k, v in definitions.items() if k in names}, tuple(episodes),
        policy if policy in names else '', stratum if stratum in names else '', is_folded,
    )  # fmt: skip


def ranking_blocks(ranking: Ranking) -> list[Block]:
    shown = ranking_table(ranking)
    filters = [of_policy(policy, ranking) for policy in ranking.policies]
    blocks: list[Block] = [table_block('ranking-table', shown, RANKING_DEFINITIONS, episodes=filters)]
    for name, n in ranking.unscored.items():
        told = 'its only episode is invalid' if n == 1 else f'none of its {n} episodes is valid'
        blocks.append(Missing(name, told, 'run it again'))
    blocks += [
        Missing(f'Comparisons of {name}', 'it shares no stratum with some other policy', 'run both on the same')
        for name in ranking.apart
    ]
    short = {name: end_s for name, end_s in ranking.followed_to_s.items() if end_s < ranking.tau_s}
    if short:
        told = ', '.join(f'{name} {end_s:g} s' for name, end_s in short.items())
        blocks.append(
            paragraph(
                f'Watched for less than {ranking.tau_s:g} s in some stratum: {told}. Beyond, a curve is held flat.'
            )
        )
    return blocks


PAIR_DEFINITIONS = {
    'verdict': 'verdict', 'macro KS': 'macro-ks', 'p': 'macro-ks', 'p (Holm)': 'holm',
    'RMST advantage (s)': 'advantage', 'RMST low': 'interval', 'RMST high': 'interval',
    'success advantage (points)': 'advantage', 'success low': 'interval', 'success high': 'interval',
    'N needed': 'needed', 'N low': 'needed', 'N high': 'needed',
}  # fmt: skip


def pair_table(ranking: Ranking, pairs: AllPairs) -> Table:
    """Every pair: the verdict, the gate, the advantages of a over b, and the episodes that would resolve it."""
    rows: list[tuple[Cell, ...]] = []
    at_tau = f'chance_{ranking.tau_s:g}s'
    for c, p in zip(pairs.comparisons, pairs.p_holm, strict=True):
        time, done = c.advantages['rmst_s'], c.advantages[at_tau]
        needed = c.needed if c.verdict is Verdict.UNRESOLVED else None
        rows.append((
            c.policy_a, c.policy_b, f'{c.better} better' if c.better else c.verdict.value, c.ks.statistic,
            c.ks.p_value, p, time.value, *ends(time.percentile), None if done.value is None else 100 * done.value,
            *ends(done.percentile, 100.0), None if needed is None else needed.n,
            *ends(None if needed is None else needed.interval),
        ))  # fmt: skip
    forms = {'macro KS': '.3f', 'p': '.3g', 'p (Holm)': '.3g', 'N needed': '.0f', 'N low': '.0f', 'N high': '.0f'}
    columns: list[str | Column] = ['a', 'b', 'verdict']
    columns += [Column(name, forms.get(name, '+.1f')) for name in PAIR_DEFINITIONS if name != 'verdict']
    note = (
        f'A positive advantage favours a. Success is F({ranking.tau_s:g} s). N is episodes a cell for 80 % power, for '
        'pairs '
        'that are not resolved.'
    )
    return without_empty(table('Every pair of policies', columns, rows, note=note))


def resolution_section(ranking: Ranking) -> Section:
    if isinstance(ranking.pairs, Absent):
        return section('resolution', 'What the data resolve', [missing('Comparisons', ranking.pairs)])
    pairs = ranking.pairs
    blocks: list[Block] = [_verdict_list(c) for c in pairs.comparisons if c.verdict is Verdict.UNRESOLVED]
    if not blocks:
        blocks = [paragraph(f'{_all_pairs(pairs)} told apart at alpha = {pairs.alpha:g} after Holm.')]
    filters = [{'policy': (c.policy_a, c.policy_b)} for c in pairs.comparisons]
    shown = pair_table(ranking, pairs)
    blocks.append(table_block('pair-table', shown, PAIR_DEFINITIONS, episodes=filters))
    blocks.append(table_block('advantage-table', advantage_table(pairs), {'advantage': 'advantage'}, is_folded=True))
    dropped = sorted({s for c in pairs.comparisons for s in c.ks.dropped})
    if dropped:
        blocks.append(
            Missing('Strata left out of some pairs', f'only one policy was run on {", ".join(dropped)}', 'run both')
        )
    return section('resolution', 'What the data resolve, and what they do not', blocks)


def _all_pairs(pairs: AllPairs) -> str:
    return 'The pair is' if len(pairs.comparisons) == 1 else f'All {len(pairs.comparisons)} pairs are'


def _verdict_list(c: TimingComparison) -> Block:
    return paragraph(c.sentence)


def advantage_table(pairs: AllPairs) -> Table:
    """Every scalar of every pair, oriented so that positive favours a."""
    rows = [
        (c.policy_a, c.policy_b, scalar_label(name), e.value, *ends(e.percentile), _favours(name, c))
        for c in pairs.comparisons
        for name, e in c.advantages.items()
    ]
    columns: list[str | Column] = [
        'a',
        'b',
        'scalar',
        Column('advantage', '+.4g'),
        Column('low', '+.4g'),
        Column('high', '+.4g'),
        'favours',
    ]
    return table('Every scalar of every pair', columns, rows)


def _favours(name: str, c: TimingComparison) -> str | None:
    if name in c.favouring_a:
        return c.policy_a
    return c.policy_b if name in c.favouring_b else None


FAILURE_DEFINITIONS = {
    'operations': 'operation', 'episodes': 'episode', 'ghost share %': 'ghost', 'hard failure %': 'hard-failure',
    '1 - F(tau) %': 'curve', 'success %': 'success', 'safety stop %': 'intervention', 'invalid': 'invalid',
}  # fmt: skip


def failure_blocks(ranking: Ranking) -> list[Block]:
    by_operation, by_episode = failure_tables(ranking.failures)
    filters = [of_policy(m.policy, ranking) for m in ranking.failures]
    return [
        table_block('failure-operations', by_operation, FAILURE_DEFINITIONS, episodes=filters),
        table_block('failure-episodes', by_episode, FAILURE_DEFINITIONS, episodes=filters),
    ]


CELL_DEFINITIONS = {
    'stratum': 'stratum', 'episodes': 'episode', 'success (%)': 'success', 'success low': 'success',
    'success high': 'success', 'RMST (s)': 'rmst', 'RMST low': 'interval', 'RMST high': 'interval',
    'HRT (%)': 'hrt', 'median (s)': 'median',
}  # fmt: skip


def cell_block(ranking: Ranking) -> TableBlock:
    """One row a cell."""
    rows: list[tuple[Cell, ...]] = []
    filters: list[EpisodeFilter] = []
    field = 'task' if set(ranking.strata) <= {task for _, task in ranking.by_task} else 'stratum'
    for stratum in ranking.strata:
        for policy in ranking.policies:
            count, found = ranking.successes.get((policy, stratum)), ranking.scores[policy].cells.get(stratum)
            if count is None or found is None:
                continue
            rmst, relative = found['rmst_s'], ranking.relative.get(policy)
            hrt = relative.per_stratum.get(stratum) if relative is not None else None
            rows.append((
                stratum, policy, count.n, 100 * count.rate, *ends(count.interval, 100.0), rmst.value,
                *ends(rmst.percentile), 100 * hrt.value if hrt is not None and hrt.value is not None else None,
                found['median_s'].value,
            ))  # fmt: skip
            filters.append(of_policy(policy, ranking, **{field: stratum}))
    columns: list[str | Column] = ['stratum', 'policy']
    columns += [name if name == 'episodes' else Column(name, '.1f') for name in CELL_DEFINITIONS if name != 'stratum']
    shown = table('Every cell', columns, rows, note='A cell is one policy in one stratum.')
    return table_block('cell-table', shown, CELL_DEFINITIONS, episodes=filters, stratum='stratum', is_folded=True)


def task_block(ranking: Ranking) -> TableBlock | None:
    """One row a task and policy; None where tasks are the strata themselves."""
    tasks = sorted({task for _, task in ranking.by_task})
    if set(tasks) <= set(ranking.strata):
        return None
    rows: list[tuple[Cell, ...]] = []
    filters: list[EpisodeFilter] = []
    for task in tasks:
        for policy in ranking.policies:
            count = ranking.by_task.get((policy, task))
            if count is not None:
                rows.append((task, policy, count.n, count.successes, 100 * count.rate, *ends(count.interval, 100.0)))
                filters.append(of_policy(policy, ranking, task=task))
    columns: list[str | Column] = ['task', 'policy', 'episodes', 'successes']
    columns += [Column(name, '.1f') for name in ('success (%)', 'success low', 'success high')]
    shown = table('Success by task', columns, rows, note='Wilson score intervals.')
    definitions = CELL_DEFINITIONS | {'successes': 'success'}
    return table_block('task-table', shown, definitions, episodes=filters, is_folded=len(rows) > 24)
