"""`robotrials annotate`: when placements happened, found in telemetry, checked against the operator, reviewed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import DetailsOption, FormatOption, print_card, print_table, say
from robotrials.cli.source import SeedOption, StorePath, WhereOption, parse_where
from robotrials.errors import InputError, NotEstimable, RobotrialsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI

    from robotrials.measure.annotate import Labelled, Settings, Zones
    from robotrials.record import Store

annotate_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help='Time the events in recorded episodes, and compare the sources.'
)
SettingsOption = Annotated[
    Path | None,
    typer.Option('--settings', help='A TOML file with [zones], [detector] and [rules].', show_default=False),
]
ByOption = Annotated[str, typer.Option('--by', help='Who does this; for the log.')]


@annotate_app.command('detect')
def detect(
    store: StorePath, settings: SettingsOption = None, where: WhereOption = None, by: ByOption = '',
    form: FormatOption = 'text',
) -> None:  # fmt: skip
    """Find releases in the telemetry of every episode, and compare the counts with the operator's.

    The detector's accounts are added to the store's log. Where the counts agree, an episode is validated automatically;
    the rest wait for review (`robotrials annotate queue`).

    Example: `robotrials annotate detect runs/may --settings cell.toml`
    """
    from robotrials.measure.annotate import scan, statuses
    from robotrials.measure.safety import store_pairs
    from robotrials.record import read_store
    from robotrials.show.record import standing_table

    opened, filters = read_store(store), parse_where(where) or None
    zones, chosen = _settings(opened, settings)
    episodes = tuple(opened.episodes(where=filters))
    opened.annotate(scan(store_pairs(opened, where=filters, episodes=episodes), zones, chosen), by=by)
    print_table(standing_table(statuses(episodes, opened.annotations())), form)


@annotate_app.command('queue')
def queue(
    store: StorePath, where: WhereOption = None, details: DetailsOption = False, form: FormatOption = 'text'
) -> None:
    """List the episodes that wait for a reviewer, and the state of all others.

    Example: `robotrials annotate queue runs/may`
    """
    from robotrials.measure.annotate import LabelStanding, statuses
    from robotrials.record import read_store
    from robotrials.show.record import queue_card, queue_table, standing_table

    opened = read_store(store)
    standings = statuses(opened.episodes(where=parse_where(where) or None), opened.annotations())
    waiting = [s for s in standings if s.standing in (LabelStanding.WAITING, LabelStanding.NOT_SCANNED)]
    tables = [standing_table(standings), queue_table(waiting)]
    print_card(lambda: queue_card(standings, waiting), lambda: tables, form, details=details)


@annotate_app.command('assess')
def assess_store(
    store: StorePath,
    settings: SettingsOption = None,
    where: WhereOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Compare the detector with episodes whose placements are timed: precision, recall, timing error, by object.

    Example: `robotrials annotate assess runs/labelled`
    """
    from robotrials.measure.annotate import assess, assess_settings
    from robotrials.record import read_store
    from robotrials.show.record import assessment_card, assessment_table

    opened = read_store(store)
    zones, chosen = _settings(opened, settings)
    labelled = _labelled(opened, zones, parse_where(where) or None)
    groups = sorted({e.episode.stratum or e.episode.task for e in labelled})
    assessments = {
        name: assess(assess_settings(chosen, [e for e in labelled if (e.episode.stratum or e.episode.task) == name]))
        for name in groups
    }
    assessments['all'] = assess(assess_settings(chosen, labelled))
    sheet = assessment_table(assessments, by='object')
    if form != 'text':
        print_table(sheet, form)
        return
    card = assessment_card(assessments['all'], n_objects=len(groups))
    print_card(lambda: card, lambda: [sheet], details=details)


@annotate_app.command('calibrate')
def calibrate_store(
    store: StorePath,
    output: Annotated[Path, typer.Option('--output', '-o', help='Where the settings go (TOML).')],
    settings: SettingsOption = None,
    learn: Annotated[
        bool, typer.Option('--learn', help='Also train a small classifier, saved with the thresholds.')
    ] = False,
    where: WhereOption = None,
    form: FormatOption = 'text',
) -> None:
    """Tune the detector's thresholds on episodes whose placements are timed.

    The printed numbers come from held-out episodes.

    Example: `robotrials annotate calibrate runs/labelled -o cell.toml`
    """
    from robotrials.measure.annotate import calibrate
    from robotrials.measure.annotate.calibrate import settings_text
    from robotrials.record import read_store
    from robotrials.show.document import write_file
    from robotrials.show.record import assessment_table

    opened = read_store(store)
    zones, begun = _settings(opened, settings)
    calibration = calibrate(_labelled(opened, zones, parse_where(where) or None), start=begun, learn=learn)
    kept = output.with_suffix('.classifier.json') if calibration.settings.classifier is not None else None
    if kept is not None and calibration.settings.classifier is not None:
        write_file(kept, calibration.settings.classifier.as_json())
    write_file(output, settings_text(zones, calibration.settings, classifier=kept.name if kept else ''))
    rows = {'before': calibration.before, 'calibrated, held out': calibration.held_out}
    print_table(assessment_table(rows, by='settings'), form)
    typer.echo(f'{output} written', err=True)


@annotate_app.command('agreement')
def agreement(store: StorePath, form: FormatOption = 'text') -> None:
    """How closely two reviewers agree, on the episodes that both have marked.

    Example: `robotrials annotate agreement runs/may`
    """
    from robotrials.measure.annotate import agreements
    from robotrials.record import read_store
    from robotrials.show.record import agreement_table

    print_table(agreement_table(agreements(read_store(store).annotations())), form)


@annotate_app.command('robustness')
def robustness(
    store: StorePath,
    jitter: Annotated[
        list[float] | None,
        typer.Option('--jitter', help='Standard deviation (s) of random shifts of the marks; repeatable.'),
    ] = None,
    trials: Annotated[int, typer.Option(help='Random shifts for each jitter.')] = 20,
    seed: SeedOption = None,
    where: WhereOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Does the ranking depend on who timed the placements? By source of the times, and with random errors in them.

    Example: `robotrials annotate robustness runs/may`
    """
    from robotrials.record import read_store
    from robotrials.show.record import label_card, label_tables
    from robotrials.verdict.analysis.labels import label_robustness
    from robotrials.verdict.analysis.quality import is_open_trial

    opened = read_store(store)
    if is_open_trial(opened):
        opened.log_look('annotate robustness', seen='time')
    spread = label_robustness(
        opened, where=parse_where(where) or None, jitters_s=tuple(jitter or (0.1, 0.5, 1.0)), n_trials=trials,
        seed=seed or 0,
    )  # fmt: skip
    print_card(lambda: label_card(spread), lambda: label_tables(spread), form, details=details)
    say(spread.statement)


@annotate_app.command('weights')
def weights(
    store: StorePath,
    file: Annotated[Path, typer.Argument(help='CSV: episode_id, t_s, weight_kg.', show_default=False)],
    item_kg: Annotated[float, typer.Option(help='Weight of one item.')],
    by: ByOption = '',
    form: FormatOption = 'text',
) -> None:
    """Take the readings of a scale under the target bin as events of source `sensor`.

    Example: `robotrials annotate weights runs/may scale.csv --item-kg 0.035`
    """
    from robotrials.measure.annotate import ScaleOptions, statuses, weigh
    from robotrials.measure.annotate.detector import read_weights
    from robotrials.record import read_store
    from robotrials.show.record import standing_table

    opened = read_store(store)
    episodes = {e.episode_id: e for e in opened.episodes()}
    options = ScaleOptions(item_kg=item_kg)
    rows = []
    for name, (times_s, weights_kg) in read_weights(file).items():
        if name not in episodes:
            raise InputError(f'{file}: no episode {name} in {store}; `robotrials store ls` lists them')
        try:
            rows.append(weigh(episodes[name], times_s, weights_kg, options))
        except RobotrialsError as error:
            raise InputError(f'{file}: episode {name}: {error}') from error
    opened.annotate(rows, by=by)
    print_table(standing_table(statuses(episodes.values(), opened.annotations())), form)


def _settings(store: Store, path: Path | None) -> tuple[Zones, Settings]:
    """Zones and settings: from a file, or those of the embedded cell for its own trials."""
    from robotrials.measure.annotate import Settings, Zones
    from robotrials.measure.annotate.calibrate import read_settings

    zones, chosen = read_settings(path) if path is not None else (None, Settings())
    if zones is not None:
        return zones, chosen
    if _host_name(store) == 'tabletop':
        from robotrials.measure.annotate import Zone
        from robotrials.worlds.cell.scene import BIN_INNER_M, SOURCE_CENTER_M, TARGET_CENTER_M

        source, target = (Zone(center_m=c, size_m=BIN_INNER_M) for c in (SOURCE_CENTER_M, TARGET_CENTER_M))
        return Zones(source=source, target=target), chosen
    raise InputError(
        'where is the target? give --settings FILE with [zones.source] and [zones.target], each with center_m = [x, y] '
        'and size_m = [x, y] in metres, as the tool positions are recorded'
    )


def _host_name(store: Store) -> str:
    try:
        return str(json.loads(store.trial.plan)['host']['use'])
    except (ValueError, LookupError, TypeError):  # no plan, or one of somebody else
        return ''


def _labelled(store: Store, zones: Zones, where: dict[str, list[object]] | None) -> Sequence[Labelled]:
    """The valid episodes whose placements are all timed, with telemetry."""
    from robotrials.measure.annotate import Labelled, LabelStanding, read_telemetry, status_of, with_marks

    annotations = store.annotations()
    labelled, missing = [], ''
    for episode, trajectory in store.trajectories(where=where):
        own = annotations.get(episode.key, ())
        known = (LabelStanding.TIMED, LabelStanding.REVIEWED)
        is_known = episode.items_placed == 0 or status_of(episode, own).standing in known
        if not episode.is_valid or not is_known:
            continue
        try:
            chosen = zones.of(episode.labels)
            labelled.append(Labelled(with_marks(episode, own), read_telemetry(trajectory), chosen))
        except RobotrialsError as error:
            missing = str(error)
    if not labelled:
        raise NotEstimable(f'{store.path}: no episode has both timed placements and telemetry; {missing}'.rstrip('; '))
    return labelled


@annotate_app.command('review')
def review(
    store: StorePath,
    by: Annotated[str, typer.Option('--by', help='Who reviews; two names on the same episodes can be compared.')],
    blinded: Annotated[bool, typer.Option(help='Show neither policies nor what others have marked.')] = True,
    everything: Annotated[
        bool, typer.Option('--everything', help='Offer every episode, not only those that wait for review.')
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help='Where to listen on this machine; 0: any free port.')
    ] = 8767,
    browser: Annotated[bool, typer.Option(help='Open a browser window.')] = True,
) -> None:
    """Mark what the detector could not settle, with film, timeline and telemetry, from the keyboard.

    Example: `robotrials annotate review runs/may --by ann`
    """
    from robotrials.cli.explore import open_pages
    from robotrials.record import read_store

    def pages() -> FastAPI:
        from robotrials.service.review import create_review

        return create_review(read_store(store), by=by, blinded=blinded, everything=everything)

    open_pages(pages, title=f'review of {store}', port=port, browser=browser)
