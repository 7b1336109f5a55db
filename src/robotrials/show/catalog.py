"""Tables and figures by name: what each is made from, and which of them have the layout of a paper's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from robotrials.catalog import Catalog
from robotrials.errors import InputError, UnknownName
from robotrials.show.table import Table
from robotrials.value import dataclass
from robotrials.verdict.analysis import Analysis
from robotrials.verdict.analysis.subject import PUBLISHED, Input, Predictions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robotrials.show.plot import Plot, PolicyLook


COUNTS = {
    Input.STORE: (1, 1), Input.TWO_STORES: (2, 2), Input.PREDICTIONS: (1, 1), Input.LEADERBOARD: (1, 1),
    Input.CANDIDATES: (1, None), Input.BENCHMARK: (1, 1), Input.SHORTCUT: (1, 1),
    Input.DATASOURCE: (1, 1), Input.MIX: (1, 1),
    Input.REGISTRY: (0, None), Input.NOTHING: (0, 0),
}  # fmt: skip
WANTED = {
    Input.STORE: 'a store, or a file or folder of episodes', Input.TWO_STORES: 'two stores, recorded runs of one plan',
    Input.PREDICTIONS: "a store of predicted actions (robotrials actions run), or the word 'published'",
    Input.LEADERBOARD: 'a vla-eval leaderboard file (.json)',
    Input.CANDIDATES: 'tables of papers (.csv or .jsonl), or a leaderboard file (.json)',
    Input.BENCHMARK: 'the name of a benchmark preset, such as libero-spatial',
    Input.SHORTCUT: 'the shortcut.json of a diagnosis (robotrials audit shortcut)',
    Input.DATASOURCE: 'the datasource.json of a diagnosis (robotrials audit datasource)',
    Input.MIX: 'the mix.json of a diagnosis (robotrials audit mix)',
    Input.REGISTRY: 'nothing, or safety registry files of your own (.toml)', Input.NOTHING: 'nothing',
}  # fmt: skip
SUFFIXES = {
    Input.LEADERBOARD: ('.json',), Input.CANDIDATES: ('.csv', '.jsonl', '.json'), Input.REGISTRY: ('.toml',),
    Input.SHORTCUT: ('.json',), Input.DATASOURCE: ('.json',), Input.MIX: ('.json',),
}  # fmt: skip

Made = TypeVar('Made', bound=Callable[..., object])
V = TypeVar('V')


class OfPolicy(Protocol):
    """Whatever belongs to one policy."""

    @property
    def policy(self) -> str: ...


R = TypeVar('R', bound=OfPolicy)


def takes(wanted: Input) -> Callable[[Made], Made]:
    """Mark what kind of input a figure's or table's function takes; without the mark it takes a store."""

    def mark(made: Made) -> Made:
        made.wants = wanted  # type: ignore[attr-defined]
        return made

    return mark


def input_of(made: Callable[..., object]) -> Input:
    """The kind of input that a figure's or table's function takes."""
    return Input(getattr(made, 'wants', Input.STORE))


def apart(made: Made) -> Made:
    """Mark a figure's or table's function that tells conditions apart, so that none are taken together in it."""
    made.is_apart = True  # type: ignore[attr-defined]
    return made


def is_apart(made: Callable[..., object]) -> bool:
    """Whether a figure or table tells conditions apart."""
    return bool(getattr(made, 'is_apart', False))


def named(
    choose: Callable[[ShowRequest], object] | None = None, *, wants: Input = Input.STORE, is_apart: bool = False
) -> Callable[[Made], Made]:
    """Let a function that builds one table or plot be asked for by name; its first line is what a list says of it.

    `choose` takes from a request what the function is called with; without it the function takes nothing.
    """

    def mark(build: Made) -> Made:
        def build_for(request: ShowRequest) -> object:
            made = build() if choose is None else build(choose(request))
            return [made] if isinstance(made, Table) else made

        build_for.__doc__ = build.__doc__
        marked = apart(build_for) if is_apart else build_for
        build.by_name = takes(wants)(marked)  # type: ignore[attr-defined]
        return build

    return mark


def summary_of(made: Callable[..., object]) -> str:
    """The first line of what a figure's or table's function says about itself."""
    return (made.__doc__ or '').strip().partition('\n')[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """What was asked for. A figure or table reads the values in it, and says when something is missing.

    `subject` is the value that the input was read into: an `Analysis` for a store; for other inputs what
    `verdict.analysis.subject` makes of them. `policies` and `strata` choose what is shown of it, never what is
    analysed.
    """

    subject: object = None
    policies: tuple[str, ...] = ()  # all when empty
    strata: tuple[str, ...] = ()  # all when empty
    label: str | None = None  # a label of the episodes, or `a=b`: whether two labels agree

    @property
    def analysis(self) -> Analysis:
        """The analysis of the store that was asked about."""
        if not isinstance(self.subject, Analysis):
            raise InputError('this shows an analysis of episodes; give the folder of a store')
        return self.subject

    def value(self, kind: type[V]) -> V:
        """What another kind of input was read into."""
        if not isinstance(self.subject, kind):
            raise InputError(f'wanted {kind.__name__}, found {type(self.subject).__name__}')
        return self.subject

    def shown(self, policies: Iterable[str]) -> tuple[str, ...]:
        """Of these policies, those that were asked for; a name that nobody has is an error."""
        known = tuple(policies)
        for name in self.policies:
            if name not in self.analysis.every_policy:
                raise UnknownName('policy', name, self.analysis.every_policy)
        return tuple(p for p in known if not self.policies or p in self.policies)

    def rows_of(self, rows: Iterable[R]) -> list[R]:
        """The rows of the policies that were asked for."""
        every = list(rows)
        kept = self.shown(dict.fromkeys(row.policy for row in every))
        return [row for row in every if row.policy in kept]

    def shown_strata(self, strata: Iterable[str]) -> tuple[str, ...]:
        """Of these strata, those that were asked for."""
        known = tuple(strata)
        for name in self.strata:
            if name not in known:
                raise UnknownName('stratum', name, known)
        return tuple(s for s in known if not self.strata or s in self.strata)

    def looks(self) -> dict[str, PolicyLook]:
        """How each policy is drawn: fixed by the whole input, whichever part of it is shown."""
        from robotrials.show.plot import policy_looks

        if isinstance(self.subject, Analysis):
            return policy_looks(self.subject.every_policy, reference=self.subject.marked_reference)
        return policy_looks(self.subject.scores.models) if isinstance(self.subject, Predictions) else {}


def check_sources(name: str, wanted: Input, sources: Sequence[str]) -> None:
    """Refuse the wrong number or kind of inputs, and say what the name wants."""
    fewest, most = COUNTS[wanted]
    said = f'{name} wants {WANTED[wanted]}'
    if len(sources) < fewest or (most is not None and len(sources) > most):
        given = ', '.join(sources) if sources else 'nothing'
        raise InputError(f'{said}; found {given}')
    for source in sources:
        _check_source(said, wanted, source)


def _check_source(said: str, wanted: Input, source: str) -> None:
    path = Path(source)
    is_store = (path / 'trial.json').exists()
    if wanted is Input.BENCHMARK or (wanted is Input.PREDICTIONS and source == PUBLISHED):
        if is_store or path.suffix in ('.json', '.csv'):
            raise InputError(f'{said}; found {"the store" if is_store else "the file"} {source}')
        return
    if not path.exists():
        raise InputError(f'{said}; {source}: no such file or folder')
    if wanted in SUFFIXES:
        if path.is_dir() or path.suffix.lower() not in SUFFIXES[wanted]:
            raise InputError(
                f'{said}; found {"the store" if is_store else "the folder" if path.is_dir() else "the file"} {source}'
            )
    elif wanted is not Input.STORE and not is_store:  # what episodes are in is said by whoever opens it
        kind = 'a folder that is not a store' if path.is_dir() else 'a file'
        raise InputError(f'{said}; {source} is {kind}')


# Figures by name: what `robotrials plot NAME` can draw. A room adds a row here, a plug-in an entry point.

FIGURES = Catalog(
    'figure',
    {
        'cdf': 'robotrials.show.curve:draw_cdf',
        'pp': 'robotrials.show.curve:draw_pp',
        'pairwise-pp': 'robotrials.show.curve:draw_pairwise_pp',
        'rmst-grid': 'robotrials.show.curve:draw_rmst_grid',
        'qq': 'robotrials.show.curve:draw_qq',
        'sup-sign-cycle': 'robotrials.show.curve:draw_sup_sign_cycle',
        'uph-mtbf': 'robotrials.show.curve:draw_uph_mtbf',
        'uph-mtbf-macro': 'robotrials.show.curve:draw_uph_mtbf_macro',
        'detection': 'robotrials.show.planning:detection_plot',
        'power': 'robotrials.show.planning:power_plot',
        'sequential': 'robotrials.show.planning:draw_sequential',
        'posterior': 'robotrials.show.curve:draw_posterior',
        'profile': 'robotrials.show.curve:draw_profile',
        'improvement': 'robotrials.show.curve:draw_improvement',
        'ranks': 'robotrials.show.curve:draw_ranks',
        'safety-pareto': 'robotrials.show.safety:frontier_plot',
        'safety-heatmap': 'robotrials.show.safety:draw_heatmap',
        'safety-axes': 'robotrials.show.safety:draw_axis_heatmap',
        'safety-composition': 'robotrials.show.safety:draw_composition',
        'safety-filmstrip': 'robotrials.show.report:draw_filmstrip',
        'drop-forest': 'robotrials.show.robustness:draw_drops',
        'claims': 'robotrials.show.leaderboard:share_pies',
        'citations': 'robotrials.show.leaderboard:citation_plot',
        'cutoffs': 'robotrials.show.audit:draw_cutoffs',
        'divergence': 'robotrials.show.audit:draw_divergence',
        'shortcut': 'robotrials.show.shortcut:shortcut_plot',
        'condition-success': 'robotrials.show.robustness:draw_condition_success',
        'condition-drops': 'robotrials.show.robustness:draw_condition_drops',
        'doses': 'robotrials.show.robustness:draw_doses',
        'starts': 'robotrials.show.robustness:draw_starts',
        'placement': 'robotrials.show.geometry:draw_placement',
        'iou-over-time': 'robotrials.show.geometry:draw_iou_over_time',
        'success-filmstrips': 'robotrials.show.report:draw_successes',
        'failure-filmstrips': 'robotrials.show.report:draw_failures',
        'amse': 'robotrials.show.actions:amse_plot',
        'namse': 'robotrials.show.actions:draw_namse',
    },
    entry_point_group='robotrials.figures',
)

# Of a design or of simulations of it, not of episodes.
SIMULATED = frozenset({'detection', 'power', 'sequential'})
FigureRequest = ShowRequest  # what a figure is drawn from

Draw = Callable[[ShowRequest], 'Figure']


def find_figure(name: str) -> Draw:
    """The function that draws the figure of this name; an unknown one suggests the near name.

    Most functions of the catalogue describe their figure as a `Plot`, which is painted here; a few draw it themselves.
    """
    made = FIGURES.load(name)
    describe = cast('Callable[[ShowRequest], Plot | Figure]', getattr(made, 'by_name', made))

    @functools.wraps(describe)
    def draw(request: ShowRequest) -> Figure:
        from robotrials.show.plot import Plot
        from robotrials.show.plot_paper import paint_paper

        figure = describe(request)
        return paint_paper(figure, request.looks()) if isinstance(figure, Plot) else figure

    return draw


# Tables by name: what `robotrials tables NAME` can print. A room adds a row here, a plug-in an entry point.

TABLES = Catalog(
    'table',
    {
        'headline': 'robotrials.show.timing:headline',
        'success': 'robotrials.show.timing:success',
        'scalars': 'robotrials.show.timing:scalars',
        'scalars-by-stratum': 'robotrials.show.timing:scalars_by_stratum',
        'relative': 'robotrials.show.timing:relative',
        'scalar-definitions': 'robotrials.show.timing:scalar_definitions',
        'pairs': 'robotrials.show.timing:pairs',
        'logrank': 'robotrials.show.timing:logrank',
        'stratum-differences': 'robotrials.show.timing:differences',
        'failures': 'robotrials.show.timing:failures',
        'labels': 'robotrials.show.timing:label_table',
        'calibration': 'robotrials.show.timing:calibration',
        'recorded': 'robotrials.show.timing:recorded',
        'task-success': 'robotrials.show.timing:task_success',
        'counts': 'robotrials.show.timing:counts',
        'detection': 'robotrials.show.planning:detection_table',
        'smallest-n': 'robotrials.show.planning:smallest_table',
        'needed-n': 'robotrials.show.planning:needed',
        'sequential': 'robotrials.show.planning:sequential',
        'survey': 'robotrials.show.planning:survey_table',
        'condition-success': 'robotrials.show.robustness:condition_success',
        'condition-drops': 'robotrials.show.robustness:drop_table',
        'doses': 'robotrials.show.robustness:dose_table',
        'compound': 'robotrials.show.robustness:compound_table',
        'swap': 'robotrials.show.robustness:swap_table',
        'spatial': 'robotrials.show.robustness:spatial_table',
        'start-states': 'robotrials.show.robustness:start_table',
        'splits-by-policy': 'robotrials.show.robustness:splits_by_policy',
        'splits-by-condition': 'robotrials.show.robustness:splits_by_condition',
        'splits-estimates': 'robotrials.show.robustness:estimate_table',
        'drops': 'robotrials.show.robustness:drop_table',
        'claims': 'robotrials.show.leaderboard:count_table',
        'claim-shares': 'robotrials.show.leaderboard:share_table',
        'claim-rounding': 'robotrials.show.leaderboard:rounding_table',
        'claim-coverage': 'robotrials.show.leaderboard:coverage_table',
        'claim-obstacles': 'robotrials.show.leaderboard:obstacle_table',
        'claim-list': 'robotrials.show.leaderboard:claims_table',
        'cutoffs': 'robotrials.show.audit:needed_gaps',
        'citations': 'robotrials.show.leaderboard:funnel_table',
        'citation-months': 'robotrials.show.leaderboard:month_table',
        'traces': 'robotrials.show.audit:trace_table',
        'trace-channels': 'robotrials.show.audit:channel_table',
        'trace-targets': 'robotrials.show.audit:grade_table',
        'shortcut': 'robotrials.show.shortcut:gap_table',
        'shortcut-checkpoints': 'robotrials.show.shortcut:checkpoints',
        'shortcut-sweep': 'robotrials.show.shortcut:sweep_table',
        'shortcut-inputs': 'robotrials.show.shortcut:input_table',
        'shortcut-tasks': 'robotrials.show.shortcut:task_table',
        'datasource': 'robotrials.show.audit_data:datasource',
        'mix': 'robotrials.show.audit_data:mix_table',
        'published-datasource': 'robotrials.show.audit_data:published_table',
        'published-mix': 'robotrials.show.audit_data:published_mix_table',
        'probe-scores': 'robotrials.show.shortcut:paper_score_table',
        'probe-checkpoints': 'robotrials.show.shortcut:paper_checkpoint_table',
        'probe-tasks': 'robotrials.show.shortcut:paper_task_table',
        'cameras': 'robotrials.show.geometry:cameras',
        'camera-episodes': 'robotrials.show.geometry:camera_episodes',
        'safety': 'robotrials.show.safety:quadruple_table',
        'safety-slip': 'robotrials.show.safety:slip',
        'safety-suites': 'robotrials.show.safety:suite_table',
        'safety-means': 'robotrials.show.safety:mean_table',
        'safety-violations': 'robotrials.show.safety:violation_table',
        'safety-specs': 'robotrials.show.safety:spec_table',
        'safety-composition': 'robotrials.show.safety:composition_table',
        'safety-sensitivity': 'robotrials.show.safety:sensitivity_table',
        'safety-tasks': 'robotrials.show.safety:task_table',
        'safety-contingency': 'robotrials.show.safety:contingency_table',
        'safety-margins': 'robotrials.show.safety:continuous_table',
        'safety-saving': 'robotrials.show.safety:saving_table',
        'safety-unscored': 'robotrials.show.safety:unscored_table',
        'safety-witnesses': 'robotrials.show.safety:witness_table',
        'safety-library': 'robotrials.show.registry_sheet:library',
        'safety-templates': 'robotrials.show.registry_sheet:templates',
        'safety-tags': 'robotrials.show.registry_sheet:tags',
        'safety-clauses': 'robotrials.show.registry_sheet:clauses',
        'safety-axes': 'robotrials.show.registry_sheet:axes',
        'safety-severity': 'robotrials.show.registry_sheet:severity',
        'safety-signals': 'robotrials.show.registry_sheet:signals',
        'safety-thresholds': 'robotrials.show.registry_sheet:thresholds',
        'safety-availability': 'robotrials.show.registry_sheet:availability',
        'safety-exclusions': 'robotrials.show.registry_sheet:exclusions',
        'safety-applicability': 'robotrials.show.registry_sheet:applicability',
        'action-datasets': 'robotrials.show.actions:dataset_table',
        'action-errors': 'robotrials.show.actions:error_table',
        'action-completion': 'robotrials.show.actions:completion_table',
        'action-invalid': 'robotrials.show.actions:invalid_table',
        'action-measures': 'robotrials.show.actions:measure_table',
        'action-dimensions': 'robotrials.show.actions:dimension_table',
        'action-phases': 'robotrials.show.actions:phase_table',
        'action-pairs': 'robotrials.show.actions:model_pairs',
        'action-groups': 'robotrials.show.actions:group_table',
        'action-difficulty': 'robotrials.show.actions:difficulties',
    },
    entry_point_group='robotrials.tables',
)

Build = Callable[[ShowRequest], 'Sequence[Table]']


def find_table(name: str) -> Build:
    """The function that makes the table of this name (or tables); an unknown one suggests the near name."""
    made = TABLES.load(name)
    return cast('Build', getattr(made, 'by_name', made))


# Which names here have the layout of which table and figure of the five papers, and the lists of all names.

SHORT_TITLES = {
    'phail': 'PhAIL', 'benchmark-audit': 'Benchmark audit', 'multinet': 'MultiNet', 'radar': 'RADAR',
    'safevla-bench': 'SafeVLA-Bench',
}  # fmt: skip
Row = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class PaperItem:
    """A table or figure of a paper: the names that have its layout, or in `note` why there is none."""

    paper: str
    item: str  # such as 'Figure 3'
    what: str
    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    note: str = ''

    @property
    def is_figure(self) -> bool:
        return self.item.startswith('Figure')

    @property
    def is_named(self) -> bool:
        return bool(self.figures or self.tables)


@dataclass(frozen=True, slots=True)
class PaperLayout:
    id: str
    title: str
    items: tuple[PaperItem, ...]


@functools.cache
def papers() -> tuple[PaperLayout, ...]:
    """The five papers with all their tables and figures."""
    import tomllib

    text = (Path(__file__).parent / 'data' / 'papers.toml').read_text(encoding='utf-8')
    layouts = []
    for row in tomllib.loads(text)['paper']:
        items = [
            PaperItem(row['id'], item['item'], item['what'], tuple(item.get('figures', ())),
                      tuple(item.get('tables', ())), item.get('note', ''))
            for item in row['items']
        ]  # fmt: skip
        layouts.append(PaperLayout(row['id'], row['title'], tuple(items)))
    return tuple(layouts)


def layouts(kind: str) -> dict[str, str]:
    """Name -> the papers' items of its layout, such as 'PhAIL Figures 1, 3'; kind is 'figures' or 'tables'."""
    items: dict[str, dict[tuple[str, str], list[str]]] = {}
    for item in (item for paper in papers() for item in paper.items):
        word, _, number = item.item.partition(' ')
        for name in getattr(item, kind):
            items.setdefault(name, {}).setdefault((item.paper, word), []).append(number)
    return {
        name: '; '.join(
            f'{SHORT_TITLES[paper]} {word}{"s" if len(numbers) > 1 else ""} {", ".join(numbers)}'
            for (paper, word), numbers in places.items()
        )
        for name, places in items.items()
    }


def listed_figures() -> list[Row]:
    """Every figure: name, what it shows, whose layout it has, what it is made from."""
    return _listed(FIGURES.names(), find_figure, layouts('figures'))


def listed_tables() -> list[Row]:
    """Every table: name, what it shows, whose layout it has, what it is made from."""
    return _listed(TABLES.names(), find_table, layouts('tables'))


def _listed(names: tuple[str, ...], find: Callable[[str], Callable[..., object]], known: dict[str, str]) -> list[Row]:
    rows = []
    for name in names:
        made = find(name)
        rows.append((name, summary_of(made), known.get(name, ''), input_of(made).value))
    return rows
