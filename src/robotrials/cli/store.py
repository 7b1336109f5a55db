"""`robotrials store ...`: look at a store, check it, correct it, join it, export it."""

from __future__ import annotations

import getpass
import json
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import FormatOption, print_table, print_tables
from robotrials.cli.source import StorePath, WhereOption, parse_where
from robotrials.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robotrials.record import Store
    from robotrials.record.log import Signing
    from robotrials.record.part import Entry

store_app = typer.Typer(no_args_is_help=True, help='Inspect, check, correct, merge and export a store.')


@store_app.command('ls')
def list_episodes(
    store: StorePath,
    where: WhereOption = None,
    attempts: Annotated[bool, typer.Option('--all', help='Every attempt, including dropped episodes.')] = False,
    limit: Annotated[int, typer.Option(min=0, help='Maximum number of rows; 0 for all.')] = 50,
    form: FormatOption = 'text',
) -> None:
    """List episodes, one per line.

    Example: `robotrials store ls runs/may --where policy=act --where outcome=timeout`
    """
    from robotrials.record import read_store
    from robotrials.show.record import episode_table

    episodes = read_store(store).episodes(
        where=parse_where(where), attempts='all' if attempts else 'counted', dropped=attempts
    )
    listed = list(islice(episodes, limit)) if limit else list(episodes)
    more = limit > 0 and next(iter(episodes), None) is not None
    note = f'the first {limit}; --limit 0 shows all' if more else ''
    if not listed:
        note = 'no episode matches' + ('' if attempts else ', of those that count; --all looks at every attempt')
    print_table(episode_table(listed, title=str(store), note=note), form)


@store_app.command('summary')
def summary(
    stores: Annotated[
        list[Path], typer.Argument(help='The folders of the stores, such as those of shards.', show_default=False)
    ],
    where: WhereOption = None,
    form: FormatOption = 'text',
) -> None:
    """Count the episodes in every design cell of one or more stores of any size, in constant memory.

    Example: `robotrials store summary runs/shard-*`
    """
    from robotrials.record.counted import summarize_stores
    from robotrials.show.table import Column, table
    from robotrials.stats import wilson

    summaries = summarize_stores(stores, where=parse_where(where) or None)
    rows: list[list[str | int | float | None]] = []
    for (policy, task, stratum, condition), cell in sorted(summaries.items()):
        interval = wilson(cell.n_success, cell.n_valid) if cell.n_valid else None
        rows.append([
            policy, task, stratum or None, condition, cell.n_valid, cell.n_success, interval.low if interval else None,
            interval.high if interval else None, cell.mean_success_s, cell.success_quantile_s(0.5), cell.n_invalid,
        ])  # fmt: skip
    columns: list[str | Column] = [
        'policy', 'task', 'stratum', 'condition', 'valid', 'success', Column('95 % from', '.3f'), Column('to', '.3f'),
        Column('mean time to success (s)', '.2f'), Column('median (s)', '.3g'), 'invalid',
    ]  # fmt: skip
    print_table(table(f'{len(stores)} stores' if len(stores) > 1 else str(stores[0]), columns, rows), form)


def find_id(store: Store, start: str) -> str:
    """The one id that starts so; none or several is an error that lists them."""
    ids = sorted({e.episode_id for part in store.parts() for e in store.recorded(part)})
    candidates = [start] if start in ids else [i for i in ids if i.startswith(start)]
    if len(candidates) == 1:
        return candidates[0]
    several = f'{len(candidates)} start with it: {", ".join(candidates[:5])}' if candidates else 'none starts with it'
    raise InputError(f'{store.path}: wanted one episode {start!r}, {several}; `robotrials store ls` lists them')


@store_app.command('show')
def show_episode(
    store: StorePath, episode_id: Annotated[str, typer.Argument(help="The episode's id, or the start of it.")]
) -> None:
    """Show everything that is known about one episode: every attempt, events, edits, trajectory, provenance.

    Example: `robotrials store show runs/may 3f2a`
    """
    from robotrials.formats.export import episode_row
    from robotrials.record import read_store

    opened = read_store(store)
    chosen = find_id(opened, episode_id)
    episodes = opened.episodes(where={'episode_id': chosen}, attempts='all', dropped=True)
    edits = opened.edits()
    documents = []
    for episode in episodes:
        trajectory = opened.trajectory(episode)
        values = {
            **episode_row(episode),
            'is_dropped': edits.is_dropped(*episode.key),
            'edits': [
                f'{e.at} {e.by}: {e.operation}{f" {e.field}={e.value}" if e.field else ""} ({e.why})'
                for e in edits.by_episode.get(episode.episode_id, ())
            ],
            'trajectory_steps': trajectory.n_steps if trajectory is not None else None,
            'provenance': opened.provenance(episode.provenance_id).as_json() if episode.provenance_id else None,
        }
        documents.append({k: v for k, v in values.items() if v not in (None, '', [], {})})
    document = documents[0] if len(documents) == 1 else documents
    typer.echo(json.dumps(document, indent=1, ensure_ascii=False))


@store_app.command('attach')
def attach_recordings(
    store: StorePath,
    files: Annotated[
        list[Path], typer.Argument(help='Telemetry that `robotrials import` reads, and films.', show_default=False)
    ],
    offset: Annotated[
        float | None, typer.Option('--offset-s', help='How far their clock is ahead (s), if it was measured.')
    ] = None,
    in_order: Annotated[
        bool, typer.Option('--in-order', help='Recordings without a clock belong to the episodes in order.')
    ] = False,
    mapping: Annotated[
        list[str] | None,
        typer.Option('--map', '-m', help='SIGNAL=/topic.field where neither the plan nor a preset knows; repeatable.'),
    ] = None,
    known: Annotated[str, typer.Option('--known', help='A file of what is known of the scenes, for RGB-D views.')] = '',
    calibration: Annotated[str, typer.Option('--calibration', help='A file of RGB-D camera poses.')] = '',
    rgbd: Annotated[str, typer.Option('--rgbd', help='RGB-D views per second, such as 5.')] = '',
    world: Annotated[str, typer.Option('--world', help='The frame of tf that is the world.')] = '',
    depth_unit_m: Annotated[str, typer.Option('--depth-unit-m', help='The unit of 16-bit depth (m).')] = '',
    dry_run: Annotated[bool, typer.Option('--dry-run', help='Say what would be joined, and write nothing.')] = False,
    by: Annotated[str, typer.Option('--by', help='Who does this; for the log.')] = '',
) -> None:
    """Join telemetry and films, by their clocks, to episodes recorded without them, such as a console's.

    The offset between the clocks and their drift are estimated and printed; where they cannot be determined, nothing is
    written. The creation_time in a film's file says when it began. RGB-D cameras of a bag become views for `geometry
    score`, described by the plan's host if it is an arm behind a rosbridge, whose options also say which topic is
    which, or otherwise by --set, as for `robotrials import`.

    Example: `robotrials store attach runs/may bags/2026-05-04 overview.mp4`
    """
    from robotrials.cli.importing import parse_pairs
    from robotrials.formats.attach import plan_attachment
    from robotrials.record import read_store
    from robotrials.show.record import attachment_table
    from robotrials.worlds.recorded import recorded_rig

    given = {'known': known, 'calibration': calibration, 'rgbd': rgbd, 'world': world, 'depth_unit_m': depth_unit_m}
    opened = read_store(store)
    plan = plan_attachment(
        opened,
        files,
        offset_s=offset,
        in_order=in_order,
        rig=recorded_rig(opened),
        columns=parse_pairs(mapping, '--map'),
        settings={name: text for name, text in given.items() if text},
    )
    print_table(attachment_table(plan), 'text')
    count = 0 if dry_run else plan.write(by=by)
    for note in plan.notes:
        typer.echo(note, err=True)
    if not dry_run:
        typer.echo(f'{store}: {count} episodes have a trajectory now')


@store_app.command('tables')
def tables(store: StorePath, form: FormatOption = 'text') -> None:
    """Count outcomes for each policy and stratum, and what was left out.

    Example: `robotrials store tables runs/may --format markdown`
    """
    from robotrials.record import read_store
    from robotrials.show.record import count_tables

    opened = read_store(store)
    edits = opened.edits()
    dropped = sum(edits.is_dropped(*e.key) for e in opened.episodes(dropped=True, events=False))
    print_tables(count_tables(opened.episodes(), n_dropped=dropped), form)


@store_app.command('verify')
def verify(
    store: StorePath,
    head: Annotated[str, typer.Option(help='A head noted earlier, or its start: it must still be in the log.')] = '',
    form: FormatOption = 'text',
) -> None:
    """Check every byte against the commit log; exit with 1 if anything is damaged, missing or changed, naming it.

    Example: `robotrials store verify runs/may --head 3f2ab81c9d0e`
    """
    from robotrials.record.verify import verify_store
    from robotrials.show.record import finding_table

    result = verify_store(store, head=head)
    if result.findings or form != 'text':
        print_table(finding_table(result.findings, root=store), form)
    counted = f'{result.n_episodes} episodes, {result.n_events} events, {result.n_trajectories} trajectories'
    typer.echo(f'{"clean" if result.is_clean else "DAMAGED"}: {counted}', err=form != 'text')
    for line in _signed(result.signings):
        typer.echo(line, err=form != 'text')
    if result.head:
        typer.echo(f'head {result.head}', err=form != 'text')
    if not result.is_clean:
        raise typer.Exit(1)


def _signed(signings: Sequence[Signing]) -> list[str]:
    """Who signed what, a line for each name and key."""
    total = sum(s.n_entries for s in signings)
    if not any(s.key for s in signings):
        return [f'unsigned: nobody signed any of its {total} entries'] if total else []
    lines = []
    for s in signings:
        closings = f', {s.n_closings} of them the closing' if s.n_closings else ''
        whose = f'by the key of {s.owner}' if s.owner else f'by key {s.key[:12]}, whose owner is not known here'
        lines.append(f'{s.n_entries} entries of {s.by} signed {whose if s.key else "by nobody"}{closings}')
    return lines


@store_app.command('key')
def key(
    trust: Annotated[
        str, typer.Option(help='The owner of the key PUBLIC: from now on verify checks their entries against it.')
    ] = '',
    public: Annotated[str, typer.Option(help='With --trust: the public key, as printed by their `store key`.')] = '',
) -> None:
    """Print your public key, creating it the first time: from then on every entry that you write is signed with it.

    The key is in ~/.config/robotrials/key, or at the path in ROBOTRIALS_KEY, as for a cell. Keep a copy: there is no
    other.

    Example: `robotrials store key --trust kim --public 3f2a...`
    """
    from robotrials.record.log import key_path, known_path, make_key, own_public, trust_key

    if bool(trust) != bool(public):
        raise InputError('whose key is it, and which? robotrials store key --trust NAME --public KEY')
    if trust:
        trust_key(trust, public)
        typer.echo(f'{known_path()}: {public[:12]} is {trust}')
        return
    path = key_path()
    if not path.exists():
        typer.echo(make_key(path))
        typer.echo(f'{path}: a new key; your entries from now on are signed with it', err=True)
        return
    typer.echo(own_public())


@store_app.command('edit')
def edit(
    store: StorePath,
    episode_id: Annotated[str, typer.Argument(help="The episode's id, or the start of it.")],
    operation: Annotated[str, typer.Argument(help='set, drop or undrop.')],
    assignment: Annotated[str, typer.Argument(help='For set: FIELD=VALUE (an empty value removes it).')] = '',
    why: Annotated[str, typer.Option(help='The reason; it stays in the log.', prompt=True, show_default=False)] = '',
    by: Annotated[str, typer.Option(help='Who does this; default: the login name.')] = '',
    attempt: Annotated[int | None, typer.Option(help='Which attempt; default: the one that counts.')] = None,
    approved_by: Annotated[
        str, typer.Option('--approved-by', help='Who approves it; required once the trial is closed.')
    ] = '',
) -> None:
    """Correct a field, drop an episode, or undo that. The recording stays as it is; edits are applied on top of it.

    An edit applies to one attempt: after `set outcome=invalid` or `drop`, `robotrials run` runs the episode again. Once
    the trial is closed, a second person must approve it, and every number is also given as it was at closing.

    Example: `robotrials store edit runs/may 3f2ab81c9d0e44a2b1c3d4e5 set outcome=invalid --why "camera unplugged"`
    """
    from robotrials.record import read_store
    from robotrials.record.episode import PARSERS, TEXT_FIELDS, parse_field

    name, separator, text = assignment.partition('=')
    if operation == 'set' and not separator:
        raise InputError(f'set wants FIELD=VALUE, found {assignment!r}')
    if name and name not in PARSERS:
        raise UnknownName('field of an episode', name, PARSERS)
    value = parse_field(name, text) if name else None
    if value is None and name in TEXT_FIELDS:
        value = ''
    opened = read_store(store)
    episode_id = find_id(opened, episode_id)
    done = opened.edit(
        episode_id, operation, by=by or getpass.getuser(), why=why, attempt=attempt, field=name, value=value,
        approved_by=approved_by,
    )  # fmt: skip
    typer.echo(f'{done.at} {done.by}: {done.operation} {assignment} on {episode_id} attempt {done.attempt}')


@store_app.command('log')
def log(
    store: StorePath,
    limit: Annotated[int, typer.Option(min=0, help='Maximum number of entries, newest first; 0 for all.')] = 20,
    form: FormatOption = 'text',
) -> None:
    """List the commit log: what was added, changed or looked at, by whom and when. The last line is the head.

    Example: `robotrials store log runs/may --limit 0`
    """
    from robotrials.record import read_store
    from robotrials.show.table import table

    opened = read_store(store)
    entries = opened.ledger().entries
    listed = entries[-limit:] if limit else entries
    rows = [[name[:12], entry.at, entry.by, entry.kind.value, _told(entry)] for name, entry in listed]
    note = f'the last {limit} of {len(entries)}; --limit 0 shows all' if len(listed) < len(entries) else ''
    print_table(table(f'{store}: commit log', ['entry', 'at', 'by', 'what', 'detail'], rows, note=note), form)
    typer.echo(f'head {opened.head()}', err=form != 'text')


def _told(entry: Entry) -> str:
    body = entry.body
    parts = [f'{sum(p["rows"] for p in body["parts"])} episodes'] if body.get('parts') else []
    parts += [f'{e["operation"]} {e.get("field", "")}'.strip() + f' ({e["why"]})' for e in body.get('edits', ())]
    parts += [str(body[name]) for name in ('verb', 'seen', 'role', 'event', 'why') if body.get(name)]
    return ', '.join(parts)


@store_app.command('adopt')
def adopt(
    store: StorePath,
    by: Annotated[str, typer.Option(help='Who does this; default: the login name.')] = '',
    why: Annotated[str, typer.Option(help='A reason to put on record.')] = '',
) -> None:
    """Give a store of an older version a commit log. Its content is taken as it is.

    Example: `robotrials store adopt runs/2025`
    """
    from robotrials.record import read_store
    from robotrials.record.maintain import adopt_store

    adopt_store(store, by=by, why=why)
    typer.echo(f'{store}: now has a commit log; head {read_store(store).head()}')


@store_app.command('repair')
def repair(
    store: StorePath,
    why: Annotated[str, typer.Option(help='The reason; it stays in the log.', prompt=True, show_default=False)] = '',
    by: Annotated[str, typer.Option(help='Who does this; default: the login name.')] = '',
) -> None:
    """Move damaged files to quarantine/ and record what is lost, so that the rest can be read.

    Repairing recovers nothing; `robotrials store merge STORE COPY` recovers what an intact copy has.

    Example: `robotrials store repair runs/may --why "disk error on the 3rd"`
    """
    from robotrials.record.verify import repair_store

    done = repair_store(store, by=by or getpass.getuser(), why=why)
    for name, held in done.lost.items():
        typer.echo(f'lost: {name} ({held})')
    for kind, names in (
        ('log file set aside', done.log_files), ('log entry gone', done.entries),
        ('regained', done.regained), ('restored', done.restored),
    ):  # fmt: skip
        for name in names:
            typer.echo(f'{kind}: {name}')
    if done.is_empty:
        typer.echo(f'{store}: nothing to repair')


@store_app.command('merge')
def merge(target: StorePath, sources: Annotated[list[Path], typer.Argument(help='Stores to merge.')]) -> None:
    """Merge other stores into TARGET, created if necessary. Repeating it adds nothing; on a conflict nothing is merged.

    Example: `robotrials store merge runs/all runs/monday runs/tuesday`
    """
    from robotrials.record import read_store
    from robotrials.record.maintain import merge_stores, merge_target
    from robotrials.verdict.analysis.selection import names_in, one_name

    merge_target(target, [read_store(source) for source in sources])
    for source in sources:
        done = merge_stores(target, source)
        typer.echo(
            f'{source}: {done.added} episodes added, {done.already_there} already there, {done.edits_added} edits added'
        )
    for (benchmark, task), known in sorted(one_name(names_in(read_store(target))).items()):
        note = f'note: {benchmark} {task!r} is {" ".join(known)}, which has another name here too'
        typer.echo(f'{note}; analyses take them as one task, and the record keeps both names')


@store_app.command('compact')
def compact(store: StorePath) -> None:
    """Rewrite many small files as a few large ones. Safe while others read and write.

    Example: `robotrials store compact runs/may`
    """
    from robotrials.record.maintain import compact_store

    done = compact_store(store)
    typer.echo(
        f'{done.parts_before} parts became {done.parts_after}; {done.leftovers_removed} leftovers removed. What was '
        'replaced stays an hour for those who are reading it; a later compaction removes it'
    )


@store_app.command('export')
def export(
    store: StorePath,
    output: Annotated[Path, typer.Option('--output', '-o', help='A file ending in .csv, .jsonl or .parquet.')],
    where: WhereOption = None,
) -> None:
    """Write the episodes that count as one table, with edits applied; `robotrials import` can read it back.

    Example: `robotrials store export runs/may -o may.csv`
    """
    from robotrials.formats.export import to_table
    from robotrials.record import read_store

    count = to_table(read_store(store).episodes(where=parse_where(where)), output)
    typer.echo(f'{output}: {count} episodes')


@store_app.command('film')
def film(
    store: StorePath,
    episodes: Annotated[
        list[str] | None, typer.Argument(help='Ids, or their starts; default: all that match --where.')
    ] = None,
    to: Annotated[Path, typer.Option('--output', '-o', help='A folder for the films; created if necessary.')] = Path(
        'films'
    ),
    size: Annotated[str, typer.Option(help='Width and height in pixels.')] = '640x480',
    rate_hz: Annotated[
        float, typer.Option('--rate-hz', help='Frames per second, up to the rate at which states were kept.')
    ] = 20.0,
    cameras: Annotated[
        list[str] | None, typer.Option('--camera', help="Repeatable; default: the policy's camera and an overview.")
    ] = None,
    where: WhereOption = None,
) -> None:
    """Render films of episodes again, at any size, from their kept states. The store is not changed.

    Example: `robotrials store film runs/may 3f2a --size 1280x960 --camera front --to films`
    """
    from robotrials.record import read_store
    from robotrials.run.plan import FilmOptions
    from robotrials.run.refilm import filming_host, refilm
    from robotrials.verdict.analysis.selection import asked_for

    sides = re.fullmatch(r'(\d{1,5})x(\d{1,5})', size)
    if sides is None:
        raise InputError(f'--size is {size!r}, wanted width and height such as 640x480')
    options = FilmOptions(cameras=tuple(cameras or ()), size_px=(int(sides[1]), int(sides[2])), rate_hz=rate_hz)
    opened = read_store(store)
    wanted = parse_where(where)
    if episodes:
        wanted['episode_id'] = [find_id(opened, start) for start in episodes]
    chosen = list(opened.episodes(where=wanted, events=False))
    if not chosen:
        raise InputError(f'{store}: no episode {asked_for(wanted)}')
    to.mkdir(parents=True, exist_ok=True)
    with filming_host(opened) as host:
        for episode in chosen:
            for made in refilm(opened, episode, host, to, options=options):
                typer.echo(f'{made.path}: {made.n_frames} frames of camera {made.camera}')
