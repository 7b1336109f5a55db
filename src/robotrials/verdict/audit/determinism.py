"""How far a rerun reproduces: two recorded runs of one plan, step by step, graded on the targets of Appendix B."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.record import Contacts, Episode, Provenance, Store, Trajectory, read_store
from robotrials.record.folder import inside, is_inside
from robotrials.stats import Interval, Wald, newcombe, paired_wald
from robotrials.stats.interval import FloatArray

Frames = Mapping[str, NDArray[Any]]  # camera -> (T, H, W, 3)


class Channel(enum.StrEnum):
    """What is compared, in the order in which a difference travels through the loop."""

    STATE = 'simulator state'
    CONTACTS = 'contacts'
    PIXELS = 'pixels'
    ACTION_RAW = 'raw action'
    ACTION_PROCESSED = 'processed action'
    REWARD = 'reward'
    DONE = 'done'
    LENGTH = 'length'
    SUCCESS = 'success'


@dataclass(frozen=True, slots=True, eq=False)
class TraceComparison:
    """One pair of rollouts. A channel that both recorded is compared; the others are listed as not recorded.

    `first` holds the first step at which a channel differs, for those that do. `growth` holds, for each step that both
    have, the L-infinity distance of state and actions and the mean absolute pixel difference where frames were given.
    """

    episode_id: str
    task: str
    compared: tuple[Channel, ...]
    missing: tuple[Channel, ...]
    first: Mapping[Channel, int]
    growth: Mapping[Channel, FloatArray]
    steps: tuple[int, int]
    success: tuple[bool | None, bool | None]
    score: tuple[float | None, float | None]
    open_loop_suspected: bool = False

    @property
    def is_bitwise_equal(self) -> bool:
        """Whether nothing that was recorded differs; it says nothing of what was not."""
        return not self.first

    @property
    def is_outcome_equal(self) -> bool:
        return self.success[0] == self.success[1] and self.score[0] == self.score[1]


def compare_trajectories(
    a: Trajectory,
    b: Trajectory,
    *,
    episodes: tuple[Episode, Episode] | None = None,
    frames: tuple[Frames, Frames] | None = None,
) -> TraceComparison:
    """Compare two rollouts bit by bit over their common steps; NaN equals NaN.

    `frames` are the rendered images by camera, where they were kept: only they give a pixel difference, recorded frame
    hashes give its first step.
    """
    steps = min(a.n_steps, b.n_steps)
    differences = {
        channel: differs for channel, compare in CHANNELS.items() if (differs := compare(a, b, steps)) is not None
    }
    pixels = _pixels_differ(a, b, steps, frames)
    if pixels is not None:
        differences[Channel.PIXELS] = pixels
    first = {channel: int(np.argmax(differs)) for channel, differs in differences.items() if differs.any()}
    if a.n_steps != b.n_steps:
        first[Channel.LENGTH] = steps
    success, score = _outcomes(episodes)
    if success[0] != success[1] or score[0] != score[1]:
        first[Channel.SUCCESS] = steps - 1
    compared = [c for c in Channel if c in differences or c is Channel.LENGTH or (c is Channel.SUCCESS and episodes)]
    growth = {c: g for c, column in GROWING.items() if (g := _distance(a, b, column, steps)) is not None}
    if frames is not None:
        growth[Channel.PIXELS] = _pixel_distance(frames, steps)
    return TraceComparison(
        episode_id=episodes[0].episode_id if episodes else '',
        task=episodes[0].task if episodes else '',
        compared=tuple(compared),
        missing=tuple(c for c in Channel if c not in compared),
        first={c: first[c] for c in Channel if c in first},
        growth=growth,
        steps=(a.n_steps, b.n_steps),
        success=success,
        score=score,
        open_loop_suspected=_is_open_loop(first, differences),
    )


GROWING = {
    Channel.STATE: 'simulator_state',
    Channel.ACTION_RAW: 'action_raw',
    Channel.ACTION_PROCESSED: 'action_processed',
}


def _column_differs(name: str) -> Callable[[Trajectory, Trajectory, int], NDArray[np.bool_] | None]:
    def differs(a: Trajectory, b: Trajectory, steps: int) -> NDArray[np.bool_] | None:
        x, y = getattr(a, name), getattr(b, name)
        if x is None or y is None:
            return None
        x, y = np.asarray(x)[:steps], np.asarray(y)[:steps]
        if x.shape != y.shape:
            raise InputError(f'{name} has widths {x.shape[1:]} and {y.shape[1:]}; the two runs record different things')
        unequal = _bits_differ(x, y)
        return np.asarray(unequal.reshape(steps, -1).any(axis=1))

    return differs


def _bits_differ(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Unequal bits, but for NaN, whose payload says nothing; 0.0 and -0.0 differ."""
    if x.dtype.kind != 'f' or y.dtype.kind != 'f':
        return np.asarray(x != y)
    unequal = (x != y) | (np.signbit(x) != np.signbit(y))
    return np.asarray(unequal & ~(np.isnan(x) & np.isnan(y)))


def _contacts_differ(a: Trajectory, b: Trajectory, steps: int) -> NDArray[np.bool_] | None:
    if a.contacts is None or b.contacts is None:
        return None
    x, y = _contact_rows(a.contacts, steps), _contact_rows(b.contacts, steps)
    return np.array([p != q for p, q in zip(x, y, strict=True)], dtype=np.bool_)


def _contact_rows(contacts: Contacts, steps: int) -> list[list[tuple[str, str, float]]]:
    """Each step's contacts in one order, whichever body came first."""
    return [
        sorted((min(body, other), max(body, other), force) for body, other, force in contacts.at(i))
        for i in range(steps)
    ]


CHANNELS: Mapping[Channel, Callable[[Trajectory, Trajectory, int], NDArray[np.bool_] | None]] = {
    Channel.STATE: _column_differs('simulator_state'),
    Channel.CONTACTS: _contacts_differ,
    Channel.ACTION_RAW: _column_differs('action_raw'),
    Channel.ACTION_PROCESSED: _column_differs('action_processed'),
    Channel.REWARD: _column_differs('reward'),
    Channel.DONE: _column_differs('done'),
}


def _pixels_differ(
    a: Trajectory, b: Trajectory, steps: int, frames: tuple[Frames, Frames] | None
) -> NDArray[np.bool_] | None:
    """Whether any camera's frame differs at each step: by the frames where given, else by their recorded hashes."""
    if frames is not None:
        x, y = _shared_cameras(frames)
        columns = [(_frames(x[c], c, steps) != _frames(y[c], c, steps)).reshape(steps, -1).any(axis=1) for c in x]
    else:
        cameras = sorted(a.frame_hash.keys() & b.frame_hash.keys())
        columns = [np.asarray(a.frame_hash[c])[:steps] != np.asarray(b.frame_hash[c])[:steps] for c in cameras]
    return np.any(columns, axis=0) if columns else None


def _shared_cameras(frames: tuple[Frames, Frames]) -> tuple[Frames, Frames]:
    cameras = sorted(frames[0].keys() & frames[1].keys())
    if not cameras:
        raise InputError(f'no camera has frames in both runs: {sorted(frames[0])} and {sorted(frames[1])}')
    return {c: frames[0][c] for c in cameras}, {c: frames[1][c] for c in cameras}


def _frames(images: NDArray[Any], camera: str, steps: int) -> NDArray[Any]:
    if np.ndim(images) not in (3, 4) or len(images) < steps:
        raise InputError(f'frames of {camera!r} have shape {np.shape(images)}, wanted ({steps} or more, H, W, 3)')
    return np.asarray(images)[:steps]


def _distance(a: Trajectory, b: Trajectory, column: str, steps: int) -> FloatArray | None:
    """L-infinity distance at each step."""
    x, y = getattr(a, column), getattr(b, column)
    if x is None or y is None:
        return None
    distances = np.abs(np.asarray(x, dtype=np.float64)[:steps] - np.asarray(y, dtype=np.float64)[:steps])
    return np.asarray(np.nan_to_num(distances, nan=0.0).reshape(steps, -1).max(axis=1, initial=0.0))


def _pixel_distance(frames: tuple[Frames, Frames], steps: int) -> FloatArray:
    """Mean absolute pixel difference at each step, over all cameras that both runs have."""
    x, y = _shared_cameras(frames)
    distances = [
        np.abs(_frames(x[c], c, steps).astype(np.float64) - _frames(y[c], c, steps)).reshape(steps, -1).mean(axis=1)
        for c in x
    ]
    return np.asarray(np.mean(distances, axis=0))


def _outcomes(
    episodes: tuple[Episode, Episode] | None,
) -> tuple[tuple[bool | None, bool | None], tuple[float | None, float | None]]:
    if episodes is None:
        return (None, None), (None, None)
    return (episodes[0].is_success, episodes[1].is_success), (episodes[0].score, episodes[1].score)


def _is_open_loop(first: Mapping[Channel, int], differences: Mapping[Channel, NDArray[np.bool_]]) -> bool:
    """Actions that stay equal to the last bit while pixels differ for long look replayed, not answered."""
    actions = [c for c in (Channel.ACTION_RAW, Channel.ACTION_PROCESSED) if c in differences]
    if not actions or Channel.PIXELS not in first or any(c in first for c in actions):
        return False
    differing = int(differences[Channel.PIXELS].sum())
    return differing >= OPEN_LOOP_STEPS


OPEN_LOOP_STEPS = 50


FrameProvider = Callable[[Episode], Frames | None]
Run = Store | Path | str | Iterable[tuple[Episode, Trajectory | None]]


class ReproductionTarget(enum.StrEnum):
    """Appendix B.1, from the most exacting to the least."""

    BITWISE = 'bitwise determinism'
    OUTCOME = 'per-episode outcome agreement'
    AGGREGATE = 'aggregate-score agreement'
    STATISTICAL = 'protocol and statistical reproducibility'


class Grade(enum.StrEnum):
    MET = 'met'
    NOT_MET = 'not met'
    NOT_SHOWN = 'not shown'  # the record can't say


class RepeatControl(enum.StrEnum):
    """The same-machine repeat, without which a divergence can't be laid to the hardware."""

    MISSING = 'missing'
    IDENTICAL = 'bitwise identical'
    DIVERGED = 'diverged'


@dataclass(frozen=True, slots=True)
class Graded:
    target: ReproductionTarget
    grade: Grade
    evidence: str


@dataclass(frozen=True, slots=True)
class MetadataCheck:
    """One item that B.3 asks for: there in both runs, and whether it is the same."""

    item: str
    recorded_a: bool
    recorded_b: bool
    is_same: bool | None  # None where one run lacks it


@dataclass(frozen=True, slots=True, eq=False)
class RunComparison:
    """Two runs of the same plan: every shared episode, the grades, the control and the metadata."""

    name: str
    contrast: str
    traces: tuple[TraceComparison, ...]
    outcomes: tuple[tuple[Episode, Episode], ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    control: RepeatControl
    control_channels: tuple[Channel, ...]
    difference: Wald  # mean outcome of B minus A over shared episodes, two-sided
    metadata: tuple[MetadataCheck, ...]
    grades: tuple[Graded, ...]
    is_closed_loop: bool | None  # None: nobody said

    @property
    def missing_metadata(self) -> tuple[str, ...]:
        return tuple(m.item for m in self.metadata if not (m.recorded_a and m.recorded_b))

    @property
    def n_unmatched(self) -> int:
        """Episodes of either run that the other lacks."""
        return len(self.only_a) + len(self.only_b)

    def diverged(self, channel: Channel) -> tuple[TraceComparison, ...]:
        return tuple(t for t in self.traces if channel in t.first)

    def first_step(self, channel: Channel) -> int | None:
        """The earliest divergence of a channel over all episodes; None if it never diverged."""
        return min((t.first[channel] for t in self.traces if channel in t.first), default=None)


def compare_traces(
    run_a: Run,
    run_b: Run,
    *,
    control: Run | None = None,
    closed_loop: bool | None = None,
    frames: tuple[FrameProvider, FrameProvider] | None = None,
    provenance: tuple[Provenance | None, Provenance | None] | None = None,
    name: str = '',
    contrast: str = '',
    level: float = 0.95,
) -> RunComparison:
    """Compare two recorded runs of one plan, step by step, and grade them on the four reproduction targets.

    A run is a store (or its path) or an iterable of (episode, trajectory or None). `control` repeats run A on the same
    machine. `closed_loop` says whether the policy answered its own observations in both runs: an open-loop replay of an
    action log is no evidence. `frames` give (T, H, W, 3) images by camera for an episode; a store's image folders under
    media/<episode_id>/<camera>/ are read without being asked.
    """
    a, b = _recorded(run_a, 'A'), _recorded(run_b, 'B')
    shared = [key for key in a.episodes if key in b.episodes]
    if not shared:
        raise NotEstimable('the two runs share no episode id; they must be runs of the same plan')
    if frames is not None:
        a, b = dataclasses.replace(a, frames=frames[0]), dataclasses.replace(b, frames=frames[1])
    traces = tuple(_traces(shared, a, b))
    outcomes = tuple((a.episodes[key], b.episodes[key]) for key in shared)
    control_state, control_channels = _control(a, control)
    scores = [np.array([_value(pair[i]) for pair in outcomes]) for i in (0, 1)]
    difference = paired_wald(scores[1] - scores[0], level) if len(shared) > 1 else _single(scores, level)
    origins = provenance or (a.provenance, b.provenance)
    comparison = RunComparison(
        name=name,
        contrast=contrast or _contrast(origins),
        traces=traces,
        outcomes=outcomes,
        only_a=tuple(sorted(a.episodes.keys() - b.episodes.keys())),
        only_b=tuple(sorted(b.episodes.keys() - a.episodes.keys())),
        control=control_state,
        control_channels=control_channels,
        difference=difference,
        metadata=check_metadata(*origins),
        grades=(),
        is_closed_loop=False if any(t.open_loop_suspected for t in traces) and closed_loop is None else closed_loop,
    )
    return dataclasses.replace(comparison, grades=grade(comparison))


def grade(run: RunComparison) -> tuple[Graded, ...]:
    """The four targets; what the record can't show is said to be not shown, never met."""
    return tuple(
        Graded(target, *effect)
        for target, effect in (
            (ReproductionTarget.BITWISE, _grade_bitwise(run)),
            (ReproductionTarget.OUTCOME, _grade_outcome(run)),
            (ReproductionTarget.AGGREGATE, _grade_aggregate(run)),
            (ReproductionTarget.STATISTICAL, _grade_statistical(run)),
        )
    )


B3_ITEMS: Mapping[str, str] = {
    'checkpoint': 'checkpoint', 'code revision': 'code_revision', 'command': 'command', 'config': 'config',
    'seeds': 'seeds', 'initial states': 'initial_states', 'wrappers': 'wrappers', 'normalization': 'normalization',
    'action postprocessing': 'action_postprocessing', 'success parsing': 'success_parsing', 'CPU': 'cpu', 'GPU': 'gpu',
    'driver': 'driver', 'CUDA': 'cuda', 'PyTorch': 'torch', 'simulator versions': 'simulator',
    'environment identifiers': 'environment_id',
}  # fmt: skip


def check_metadata(a: Provenance | None, b: Provenance | None) -> tuple[MetadataCheck, ...]:
    """Check off what Appendix B.3 asks for, in both runs; per-episode outcomes are there, since they were read."""
    checks = []
    for item, name in B3_ITEMS.items():
        x, y = (getattr(p, name) if p is not None else '' for p in (a, b))
        checks.append(MetadataCheck(item, bool(x), bool(y), x == y if x and y else None))
    return (*checks, MetadataCheck('per-episode outcomes', True, True, None))


def media_frames(root: Path, episode: Episode) -> Frames | None:
    """Images under media/<episode_id>/<camera>/, one PNG or NPY a step in the order of names; None without any."""
    folder = root / 'media' / episode.episode_id
    if not is_inside(episode.episode_id) or not inside(root, f'media/{episode.episode_id}').is_dir():
        return None
    cameras = {}
    for camera in sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()):
        files = sorted(p for p in camera.iterdir() if p.suffix.lower() in ('.png', '.npy') and not p.is_symlink())
        if files:
            cameras[camera.name] = np.stack([_read_image(path) for path in files])
    return cameras or None


def _read_image(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    if path.suffix.lower() == '.npy':
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.uint8)
    from matplotlib import image

    return np.round(np.asarray(image.imread(path)) * 255).astype(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class _Recorded:
    """A run as it is read: episodes at once, trajectories and frames one at a time."""

    episodes: Mapping[str, Episode]
    trajectory: Callable[[Episode], Trajectory | None]
    frames: FrameProvider
    provenance: Provenance | None


def _recorded(run: Run, which: str) -> _Recorded:
    if isinstance(run, Path | str):
        run = read_store(run)
    if isinstance(run, Store):
        store = run
        episodes = _by_id(store.episodes(), which)
        ids = sorted({e.provenance_id for e in episodes.values() if e.provenance_id})
        unknown = [Provenance()] if ids and not all(e.provenance_id for e in episodes.values()) else []
        origin = _common([*(store.provenance(name) for name in ids), *unknown])
        return _Recorded(episodes, store.trajectory, lambda e: media_frames(store.path, e), origin)
    pairs = list(run)
    traces = {e.key: t for e, t in pairs}
    return _Recorded(_by_id((e for e, _ in pairs), which), lambda e: traces[e.key], lambda _: None, None)


def _common(origins: Sequence[Provenance]) -> Provenance | None:
    """What a run was made with: where its parts differ, all of them; an item that a part lacks is not recorded."""
    if not origins:
        return None
    if len(origins) == 1:
        return origins[0]
    made: dict[str, Any] = {}
    for name in {*B3_ITEMS.values()}:
        values = [str(getattr(origin, name)) for origin in origins]
        made[name] = ' and '.join(sorted(set(values))) if all(values) else ''
    return dataclasses.replace(origins[0], **made)


def _by_id(episodes: Iterable[Episode], which: str) -> dict[str, Episode]:
    by_id: dict[str, Episode] = {}
    for episode in episodes:
        if episode.is_valid:
            if episode.episode_id in by_id:
                raise InputError(f'run {which} has episode {episode.episode_id} twice; wanted one valid attempt each')
            by_id[episode.episode_id] = episode
    if not by_id:
        raise NotEstimable(f'run {which} has no valid episodes')
    return by_id


def _traces(shared: Sequence[str], a: _Recorded, b: _Recorded) -> Iterator[TraceComparison]:
    for key in shared:
        episodes = (a.episodes[key], b.episodes[key])
        trace_a, trace_b = a.trajectory(episodes[0]), b.trajectory(episodes[1])
        if trace_a is None or trace_b is None:
            continue
        images = (a.frames(episodes[0]), b.frames(episodes[1]))
        frames = (images[0], images[1]) if images[0] is not None and images[1] is not None else None
        yield compare_trajectories(trace_a, trace_b, episodes=episodes, frames=frames)


def _control(a: _Recorded, control: Run | None) -> tuple[RepeatControl, tuple[Channel, ...]]:
    if control is None:
        return RepeatControl.MISSING, ()
    repeat = _recorded(control, 'control')
    traces = list(_traces([k for k in a.episodes if k in repeat.episodes], a, repeat))
    if not traces:
        raise NotEstimable('the control shares no recorded trajectory with run A; repeat run A on the same machine')
    channels = tuple(c for c in Channel if any(c in t.first for t in traces))
    return (RepeatControl.DIVERGED if channels else RepeatControl.IDENTICAL), channels


def _contrast(provenances: tuple[Provenance | None, Provenance | None]) -> str:
    hardware = [' + '.join(filter(None, (p.cpu, p.gpu))) if p is not None else '' for p in provenances]
    if not all(hardware):
        return 'hardware not recorded'
    return f'same hardware: {hardware[0]}' if hardware[0] == hardware[1] else f'{hardware[0]} versus {hardware[1]}'


def _value(episode: Episode) -> float:
    return float(episode.is_success) if episode.score is None else episode.score


def _single(scores: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float64]]], level: float) -> Wald:
    """One episode has no spread to estimate: the widest interval there is."""
    gap = float(scores[1][0] - scores[0][0])
    return Wald(gap, float('inf'), 0.0, 1.0, 'two-sided', Interval(float('-inf'), float('inf')), (1,))


def _grade_bitwise(run: RunComparison) -> tuple[Grade, str]:
    if not run.traces:
        return Grade.NOT_SHOWN, 'no trajectory was recorded in both runs'
    differing = [t for t in run.traces if not t.is_bitwise_equal]
    if differing:
        return Grade.NOT_MET, f'{len(differing)} of {len(run.traces)} recorded episode pairs diverge'
    missing = [c for c in Channel if any(c in t.missing for t in run.traces)]
    if missing:
        named = ', '.join(missing)
        return Grade.NOT_SHOWN, f'equal in all that was recorded, but not recorded: {named}'
    unseen = len(run.outcomes) - len(run.traces)
    if unseen:
        return (
            Grade.NOT_SHOWN,
            f'{len(run.traces)} episode pairs are equal, but {unseen} have no trajectory in both runs',
        )
    if run.n_unmatched:
        return Grade.NOT_SHOWN, f'{len(run.traces)} episode pairs are equal, but {_partner_caveat(run)}'
    if run.is_closed_loop is not True:
        return Grade.NOT_SHOWN, f'equal in every channel, but {_loop_caveat(run)}'
    return Grade.MET, f'{len(run.traces)} episode pairs are equal in every channel'


def _grade_outcome(run: RunComparison) -> tuple[Grade, str]:
    unequal = [a.episode_id for a, b in run.outcomes if _value(a) != _value(b)]
    total = len(run.outcomes)
    if unequal:
        named = ', '.join(unequal[:3]) + (', ...' if len(unequal) > 3 else '')
        return Grade.NOT_MET, f'{len(unequal)} of {total} episodes end differently ({named})'
    if run.is_closed_loop is not True:
        return Grade.NOT_SHOWN, f'{total} of {total} episodes end alike, but {_loop_caveat(run)}'
    if run.n_unmatched:
        return Grade.NOT_SHOWN, f'{total} of {total} shared episodes end alike, but {_partner_caveat(run)}'
    return Grade.MET, f'{total} of {total} episodes end alike'


def _grade_aggregate(run: RunComparison) -> tuple[Grade, str]:
    means = [sum(_value(pair[i]) for pair in run.outcomes) / len(run.outcomes) for i in (0, 1)]
    text = f'{means[0]:.4g} and {means[1]:.4g} over {len(run.outcomes)} shared episodes'
    if run.difference.estimate != 0:
        return Grade.NOT_MET, text
    if run.is_closed_loop is not True:
        return Grade.NOT_SHOWN, f'{text}, but {_loop_caveat(run)}'
    if run.n_unmatched:
        return Grade.NOT_SHOWN, f'{text}, but {_partner_caveat(run)}'
    return Grade.MET, text


def _grade_statistical(run: RunComparison) -> tuple[Grade, str]:
    interval = _statistical_interval(run)
    text = f'difference {run.difference.estimate:+.4g}, interval {interval}'
    if not interval.contains(0.0):
        return Grade.NOT_MET, f'{text} excludes zero'
    reasons = []
    if run.is_closed_loop is not True:
        reasons.append(_loop_caveat(run))
    if run.missing_metadata:
        reasons.append(f'not recorded in both runs: {", ".join(run.missing_metadata)}')
    if run.n_unmatched:
        reasons.append(_partner_caveat(run))
    if reasons:
        return Grade.NOT_SHOWN, f'{text} holds zero, but protocol fidelity is open: {"; ".join(reasons)}'
    return Grade.MET, f'{text} holds zero, and the protocol is documented'


def _statistical_interval(run: RunComparison) -> Interval:
    """The paired interval; with no spread at all, Newcombe's for two independent rates, which keeps a width."""
    values = [(_value(a), _value(b)) for a, b in run.outcomes]
    if run.difference.standard_error > 0 or any(v not in (0.0, 1.0) for pair in values for v in pair):
        return run.difference.interval
    n = len(values)
    return newcombe(int(sum(b for _, b in values)), n, int(sum(a for a, _ in values)), n)


def _partner_caveat(run: RunComparison) -> str:
    return f'{len(run.only_a)} and {len(run.only_b)} episodes have no partner'


def _loop_caveat(run: RunComparison) -> str:
    if run.is_closed_loop is False:
        suspected = any(t.open_loop_suspected for t in run.traces)
        why = ' (actions stay equal while pixels differ)' if suspected else ''
        return f'an open-loop replay is no evidence{why}'
    return 'nobody said that both runs were closed-loop'
