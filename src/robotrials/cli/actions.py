"""`robotrials actions ...`: how well does a model predict recorded actions, with no robot at all?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import DetailsOption, FormatOption, print_card, print_table, print_tables
from robotrials.errors import InputError

if TYPE_CHECKING:
    from robotrials.formats.space import FloatArray
    from robotrials.measure.actions.evaluate import ActionRun
    from robotrials.show.answer import Card
    from robotrials.show.table import Table


# `robotrials actions convert`: actions of a file in another convention.


def convert(
    actions: Annotated[Path, typer.Argument(help='Actions, one row per timestep: .npy or .csv.', show_default=False)],
    out: Annotated[Path, typer.Option('--output', '-o', help='Where to write them: .npy or .csv.', show_default=False)],
    step: Annotated[
        list[str] | None,
        typer.Option('--step', '-s', help='A conversion, such as ternary-gripper:6; repeatable.'),
    ] = None,
    statistics: Annotated[
        str, typer.Option('--statistics', help='The file holds statistics: write them for openpi, openvla or lerobot.')
    ] = '',
    space: Annotated[Path | None, typer.Option(help='A JSON file that describes the action space.')] = None,
    space_out: Annotated[Path | None, typer.Option(help='Write the converted space here.')] = None,
    inverse: Annotated[bool, typer.Option('--inverse', help='Undo the steps instead, if they are lossless.')] = False,
) -> None:
    """Convert actions between conventions: grippers, ranges, axis orders, dimensions.

    Steps: binary-gripper:I[:AT], ternary-gripper:I, continuous-gripper:I[:LOW:HIGH], torque-gripper:I:LOW:HIGH,
    unnormalize:FILE, normalize:FILE, reorder:ORDER[:SIGNS], select:INDICES, drop-terminate. FILE holds statistics as
    openpi, OpenVLA or LeRobot write them.

    Example: `robotrials actions convert said.npy --step unnormalize:stats.json --step binary-gripper:6 -o out.npy`
    """
    from robotrials.formats.space import read_space
    from robotrials.measure.actions.prediction import parse_conversions

    if statistics:
        from robotrials.formats.space import read_norm_stats, spell

        if step or inverse or space is not None:
            raise InputError('--statistics writes a file of statistics anew; leave out --step, --inverse and --space')
        out.write_text(json.dumps(spell(read_norm_stats(actions), statistics), indent=2) + '\n', encoding='utf-8')
        typer.echo(f'wrote {out}', err=True)
        return
    if not step:
        raise InputError('wanted --step CONVERSION, or --statistics openpi|openvla|lerobot for a file of statistics')
    known = read_space(space) if space is not None else None
    if space_out is not None and known is None:
        raise InputError('--space-out needs the space to start from: --space FILE')
    chain = parse_conversions(step, space=known)
    applied = chain.inverse if inverse else chain
    if applied is None:
        raise InputError(f'{", ".join(step)}: a step loses numbers and cannot be undone')
    write_actions(out, applied(read_actions(actions)))
    if known is not None and space_out is not None:
        space_out.write_text(json.dumps(chain.space(known).as_json(), indent=1) + '\n', encoding='utf-8')
    typer.echo(f'wrote {out}', err=True)


def read_actions(path: Path) -> FloatArray:
    """Actions (T, D) of a .npy or .csv file; a first line of names is passed over."""
    import numpy as np

    try:
        if path.suffix == '.npy':
            values = np.load(path, allow_pickle=False)
        elif path.suffix == '.csv':
            first = path.read_text(encoding='utf-8').partition('\n')[0]
            has_names = any(c.isalpha() and c not in 'eEnNaAiIfF' for c in first)
            values = np.loadtxt(path, delimiter=',', skiprows=int(has_names), ndmin=2)
        else:
            raise InputError(f'{path}: wanted .npy or .csv')
        values = np.asarray(values, dtype=np.float64)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'{path}: not readable as actions ({error})') from error
    if values.ndim != 2 or not values.size:
        raise InputError(f'{path}: actions of shape {values.shape}, wanted (T, D)')
    return values


def write_actions(path: Path, actions: FloatArray) -> None:
    import numpy as np

    if path.suffix == '.npy':
        np.save(path, actions)
    elif path.suffix == '.csv':
        np.savetxt(path, actions, delimiter=',', fmt='%.17g')
    else:
        raise InputError(f'{path}: wanted .npy or .csv')


actions_app = typer.Typer(
    no_args_is_help=True, help='Score how well models predict recorded actions: datasets, splits, runs, reports.'
)

actions_app.command('convert')(convert)

DatasetArgument = Annotated[Path, typer.Argument(help='An RLDS/TFDS or LeRobotDataset folder.', show_default=False)]
FloatingOption = Annotated[
    bool, typer.Option('--floating-only', help='Leave out boolean and integer action parts, as the paper does.')
]
FeatureOption = Annotated[
    list[str] | None,
    typer.Option('--feature', help='ROLE=FEATURE for a LeRobot folder with other names: action=acts, state=obs.'),
]
SplitOption = Annotated[
    Path | None, typer.Option('--split', help='A split file written by `robotrials actions split`.')
]


@actions_app.command('datasets')
def datasets(form: FormatOption = 'text') -> None:
    """List the datasets of the paper's Tables 1 and 3.

    Example: `robotrials actions datasets --format csv`
    """
    from robotrials.measure.actions.split import load_datasets
    from robotrials.show.actions import dataset_table

    print_table(dataset_table(load_datasets().values()), form)


@actions_app.command('fetch')
def fetch(
    name: Annotated[str, typer.Argument(help='The registered name, such as jaco_play.')],
    to: Annotated[Path, typer.Option('--output', '-o', help='The folder to download into.')],
    version: Annotated[str | None, typer.Option(help='The version; default: the newest.')] = None,
    split: Annotated[str | None, typer.Option(help='Only the shards of this split.')] = None,
    host: Annotated[str | None, typer.Option(help='Another server with the same layout.')] = None,
) -> None:
    """Download a dataset from the public bucket; existing files are kept, and an interrupted download resumes.

    Example: `robotrials actions fetch jaco_play --to data --split test`
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from robotrials.formats.fetch import BUCKET_HOST, RemoteFile, fetch_dataset

    def wanted(file: str) -> bool:
        return split is None or '.tfrecord' not in file or f'-{split}.tfrecord' in file

    columns = ('{task.description}', BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)

        def started(files: list[RemoteFile]) -> None:
            bar.update(task, total=sum(f.size for f in files))

        folder = fetch_dataset(
            name, to, version=version, host=host or BUCKET_HOST, only=wanted, started=started,
            progress=lambda _, size: bar.advance(task, size),
        )  # fmt: skip
    typer.echo(f'{folder}')


@actions_app.command('split')
def split_dataset(
    dataset: DatasetArgument,
    out: Annotated[Path, typer.Option('--output', '-o', help='The split file to write (JSON).')],
    seed: Annotated[int, typer.Option(help='Seed, for datasets without their own evaluation split.')] = 0,
    share: Annotated[float, typer.Option(help='The fraction of episodes to evaluate, for such datasets.')] = 0.1,
    test_split: Annotated[str | None, typer.Option(help='Evaluate this split of the dataset.')] = None,
    feature: FeatureOption = None,
    form: FormatOption = 'text',
) -> None:
    """Write a file of the episodes to evaluate: the dataset's own test split, or a seeded one.

    Example: `robotrials actions split data/toto -o toto-split.json --seed 7`
    """
    from robotrials.formats.dataset import open_dataset
    from robotrials.measure.actions.split import make_split, write_split
    from robotrials.show.actions import split_table

    split = make_split(
        open_dataset(dataset, names=_features(feature)), seed=seed, test_share=share, test_split=test_split
    )
    write_split(split, out)
    print_table(split_table(split), form)


@actions_app.command('curate')
def curate_datasets(
    descriptions: Annotated[Path, typer.Argument(help='JSON: a list of dataset descriptions.')],
    form: FormatOption = 'text',
) -> None:
    """Apply the paper's curation rule to dataset descriptions, and print a reason for each.

    Example: `robotrials actions curate datasets.json`
    """
    from robotrials.measure.actions.split import curate, read_descriptions
    from robotrials.show.actions import curation_table

    print_table(curation_table(curate(read_descriptions(descriptions))), form)


@actions_app.command('run')
def run(
    dataset: DatasetArgument,
    model: Annotated[
        str,
        typer.Option(
            '--model',
            '-m',
            help='mean, nearest, clone, vlm,url=...,model=..., policy,plan=...,policy=..., or module:function,key=...',
        ),
    ],
    out: Annotated[Path, typer.Option('--output', '-o', help='The store to add to; created if it does not exist.')],
    split: SplitOption = None,
    seed: Annotated[int, typer.Option(help='Seed of the split, if none is given, and of the model.')] = 0,
    space: Annotated[Path | None, typer.Option(help='A JSON file that describes the action space.')] = None,
    rate_hz: Annotated[float | None, typer.Option(help='Control rate, where the dataset has no times.')] = None,
    limit: Annotated[int | None, typer.Option(help='Only this many of the evaluated episodes, from the first.')] = None,
    floating_only: FloatingOption = False,
    feature: FeatureOption = None,
    convert: Annotated[
        list[str] | None,
        typer.Option('--convert', help="A step from the model's convention to the dataset's; see `actions convert`."),
    ] = None,
) -> None:
    """Predict every timestep of the evaluated episodes. Run it again to resume where it stopped.

    Example: `robotrials actions run data/jaco_play --model nearest -o runs/offline`
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    from robotrials.formats.dataset import open_dataset
    from robotrials.formats.space import read_space
    from robotrials.measure.actions.evaluate import RunCount, prepare, run_actions
    from robotrials.measure.actions.prediction import AdaptedPredictor, parse_conversions
    from robotrials.measure.actions.split import make_split, read_split
    from robotrials.measure.actions.vlm import VlmPredictor

    opened = open_dataset(dataset, floating_only=floating_only, names=_features(feature))
    chosen = make_split(opened, seed=seed) if split is None else read_split(split)
    described = read_space(space) if space else opened.space
    predictor, statistics = prepare(opened, chosen, model, seed=seed, space=described)
    asked = predictor
    if convert:
        steps, size = parse_conversions(convert), described.size
        predictor, model = AdaptedPredictor(predictor, size, tuple(range(size)), steps), ' | '.join([model, *convert])
    total = min(len(chosen.test), limit) if limit is not None else len(chosen.test)
    columns = ('{task.description}', BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f'{opened.name}: {predictor.name}', total=total)

        def progress(count: RunCount) -> None:
            bar.update(task, completed=count.evaluated + count.already_there + count.faults)

        done = run_actions(
            opened, predictor, out, split=chosen, statistics=statistics, space=described, control_rate_hz=rate_hz,
            limit=limit, model_spec=model, progress=progress,
        )  # fmt: skip
    typer.echo(
        f'{out}: {done.evaluated} episodes predicted ({done.timesteps} timesteps, {done.invalid} invalid answers), '
        f'{done.already_there} already there, {done.faults} broken'
    )
    if isinstance(asked, VlmPredictor):
        used = asked.usage
        cost = 'unknown (give prompt_price and completion_price)' if used.cost is None else f'{used.cost:.4f}'
        typer.echo(
            f'{used.requests} requests, {used.cached} from the cache, {used.retries} retries, '
            f'{used.prompt_tokens} prompt and {used.completion_tokens} completion tokens, cost {cost}'
        )
        if used.faults:
            typer.echo('attempts that broke: ' + ', '.join(f'{n} {kind}' for kind, n in sorted(used.faults.items())))


def _features(pairs: list[str] | None) -> dict[str, str]:
    from robotrials.cli.importing import parse_pairs

    return parse_pairs(pairs, '--feature')


@actions_app.command('report')
def report(
    store: Annotated[Path | None, typer.Argument(help='The store with predicted actions.')] = None,
    invalid: Annotated[str, typer.Option(help='How invalid answers are scored: random, worst or exclude.')] = 'random',
    tolerance: Annotated[
        float | None, typer.Option(help='Also count completion within this tolerance per dimension.')
    ] = None,
    resamples: Annotated[int, typer.Option(help='Bootstrap draws of whole episodes; 0 for no intervals.')] = 1000,
    seed: Annotated[int, typer.Option(help='For the bootstrap and the random choice.')] = 0,
    in_pretraining: Annotated[
        list[str] | None, typer.Option(help='A dataset in the pretraining mix; repeatable.')
    ] = None,
    published: Annotated[
        bool, typer.Option('--published', help="Print the paper's own Tables 2 and 4 instead.")
    ] = False,
    closed_loop: Annotated[
        Path | None, typer.Option(help='A store of trials of the same policies, to compare offline error with success.')
    ] = None,
    figures: Annotated[Path | None, typer.Option(help='Also save the figures into this folder.')] = None,
    figure_format: Annotated[str, typer.Option(help='svg, pdf or png.')] = 'svg',
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Report runs: Tables 2 and 4, invalid answers, every measure, verdicts, pretraining groups, difficulty.

    Example: `robotrials actions report runs/offline --invalid exclude --figures figures`
    """
    from robotrials.measure.actions.compare import build_report, difficulty, group_scores, published_scores
    from robotrials.measure.actions.evaluate import read_runs
    from robotrials.show.actions import (
        action_card,
        completion_table,
        difficulty_table,
        error_table,
        group_table,
        report_tables,
    )

    card: Card | None = None
    if published:
        scores = published_scores()
        tables = [
            error_table(scores, title='Table 2 (published)'),
            completion_table(scores, title='Table 4 (published)'),
            group_table(group_scores(scores)),
            difficulty_table(difficulty(scores), scores.titles),
        ]
    elif store is None:
        raise InputError('wanted a store, or --published')
    else:
        marks = dict.fromkeys(in_pretraining or [], True)
        runs = read_runs(store)
        built = build_report(
            runs, invalid=invalid, tolerance=tolerance, in_pretraining=marks, n_resamples=resamples, seed=seed
        )
        scores, tables, card = built.scores, report_tables(built), action_card(built)
        if closed_loop is not None:
            tables += _agreements(runs, closed_loop, invalid=invalid, seed=seed, resamples=resamples)
    if card is None:
        print_tables(tables, form)
    else:
        answer = card
        print_card(lambda: answer, lambda: tables, form, details=details or closed_loop is not None)
    if figures is not None:
        from robotrials.show.actions import amse_plot, namse_plot
        from robotrials.show.figure import save_figure
        from robotrials.show.plot import policy_looks
        from robotrials.show.plot_paper import paint_paper

        looks = policy_looks(scores.models)
        saved = [save_figure(paint_paper(amse_plot(scores), looks), figures / f'amse.{figure_format}')]
        for model in scores.models:
            name = ''.join(c if c.isalnum() or c in '-_.' else '-' for c in model)
            target = figures / f'namse-{name}.{figure_format}'
            saved.append(save_figure(paint_paper(namse_plot(scores, model), looks), target))
        typer.echo(f'saved {", ".join(map(str, saved))}', err=True)


def _agreements(runs: list[ActionRun], store: Path, *, invalid: str, seed: int, resamples: int) -> list[Table]:
    """One table for each dataset."""
    import numpy as np

    from robotrials.measure.actions.compare import compare_offline
    from robotrials.record import read_store
    from robotrials.show.actions import agreement_table

    episodes = list(read_store(store).episodes())
    datasets = dict.fromkeys(run.dataset for run in runs)
    streams = np.random.default_rng(seed).spawn(len(datasets))
    return [
        agreement_table(compare_offline(
            [run for run in runs if run.dataset == name], episodes, rng=stream, invalid=invalid, seed=seed,
            n_resamples=max(resamples, 1),
        ))
        for name, stream in zip(datasets, streams, strict=True)
    ]  # fmt: skip
