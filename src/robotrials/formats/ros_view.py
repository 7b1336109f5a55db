"""RGB-D views of ROS bags: which topics belong to one camera, which images to one moment, and where the camera stood.

Three layouts are known: topics of ROS drivers (/NAME/color/image_raw with /NAME/depth/image_raw or
/NAME/aligned_depth_to_color/image_raw), files that RealSense's SDK records (/device_0/sensor_0/Depth_0/image/data), and
whatever `--map view/NAME=COLOUR,DEPTH` names. Times are read first, images only for the moments that are kept, one
moment in memory at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.formats.bag import Bag
from robotrials.formats.imported import ImportAccount, ImportOptions
from robotrials.formats.ros_signal import (
    IMAGES,
    MILLIMETRE,
    SDK_TOPIC,
    TF,
    TRANSPORTS,
    Lens,
    TransformTree,
    as_mapping,
    image,
    info_topic,
    make_view,
    pose_numbers,
    read_lens,
    why_not_stamps,
)
from robotrials.record import Episode
from robotrials.record.footage import (
    END,
    KNOWN,
    START,
    CameraPose,
    View,
    moment_name,
    pack_views,
    read_camera_poses,
    read_scene,
)
from robotrials.value import dataclass

SKEW_NS = 34_000_000  # between colour and depth of one view: a frame at 30 per second, as the depth host has it
ACROSS_NS = 100_000_000  # between the cameras of one moment
MOST_MOMENTS = 4096
VIEW = 'view/'
SETTINGS = ('known', 'calibration', 'rgbd', 'world', 'depth_unit_m')
COLOR_OR_DEPTH = re.compile(r'colou?r|rgb|depth', re.IGNORECASE)
ALIGNED = re.compile(r'aligned|registered|depth_to_(colou?r|rgb)', re.IGNORECASE)
FLOAT, TRANSFORM = 'std_msgs/msg/Float32', 'geometry_msgs/msg/Transform'
Matrix = NDArray[np.float64]
Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DepthCamera:
    """The topics of one RGB-D camera."""

    name: str
    color: str
    depth: str

    @property
    def is_sdk(self) -> bool:
        return SDK_TOPIC.fullmatch(self.depth) is not None

    @property
    def is_aligned(self) -> bool:
        """Whether the topic's name says that depth lies on colour."""
        return ALIGNED.search(self.depth) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """What the user says of views: `--set known=`, `calibration=`, `rgbd=`, `world=`, `depth_unit_m=`."""

    known: str = ''  # the file of what is known of a scene; {task}, {seed}, {instance}, {bag} are the episode's
    calibration: str = ''  # the file of camera poses
    rate_hz: float | None = None  # of moments between start and end
    world: str = ''  # the frame of tf that is the world
    depth_unit_m: float | None = None
    topics: Mapping[str, str] = field(default_factory=dict)  # name -> COLOUR,DEPTH

    @property
    def is_asked(self) -> bool:
        """Whether views are wanted by name: what stands against them is then an error."""
        return self != ViewOptions()


def view_options(options: ImportOptions) -> ViewOptions:
    """The part of the options that is about views."""
    given = {name: options.defaults[name] for name in SETTINGS if name in options.defaults}
    topics = {k.removeprefix(VIEW): v for k, v in options.columns.items() if k.startswith(VIEW)}
    return ViewOptions(
        known=given.get('known', ''), calibration=given.get('calibration', ''), world=given.get('world', ''),
        rate_hz=_number(given, 'rgbd', most=100.0), depth_unit_m=_number(given, 'depth_unit_m', most=1.0),
        topics=topics,
    )  # fmt: skip


def _number(given: Mapping[str, str], name: str, *, most: float) -> float | None:
    if name not in given or (name == 'rgbd' and given[name] == 'ends'):
        return None
    try:
        value = float(given[name])
    except ValueError:
        value = -1.0
    if not 0 < value <= most:
        raise InputError(f'--set {name}={given[name]}, wanted a number above 0 and up to {most:g}')
    return value


def depth_cameras(bag: Bag, named: Mapping[str, str]) -> tuple[DepthCamera, ...]:
    """The RGB-D cameras of a bag: those that were named, or every colour topic that has a depth topic beside it."""
    if named:
        return tuple(_named_camera(bag, name, text) for name, text in named.items())
    color: dict[str, list[str]] = {}
    depth: dict[str, list[str]] = {}
    for topic, kind in sorted(bag.topics.items()):
        if kind in IMAGES and (place := _place(topic)) is not None:
            (depth if place[1] else color).setdefault(place[0], []).append(topic)
    return tuple(
        DepthCamera(
            prefix.strip('/').replace('/', '.') or 'camera', min(color[prefix], key=_rank), min(topics, key=_rank)
        )
        for prefix, topics in depth.items()
        if prefix in color
    )


def _named_camera(bag: Bag, name: str, text: str) -> DepthCamera:
    topics = [part.strip() for part in text.split(',')]
    if len(topics) != 2:
        raise InputError(f'--map {VIEW}{name}={text}, wanted {VIEW}NAME=COLOUR_TOPIC,DEPTH_TOPIC')
    for topic in topics:
        if bag.topics.get(topic) not in IMAGES:
            raise UnknownName(f'image topic of {bag.path} (for {VIEW}{name})', topic, _images(bag))
    return DepthCamera(name, *topics)


def _images(bag: Bag) -> list[str]:
    return [topic for topic, kind in bag.topics.items() if kind in IMAGES]


def _place(topic: str) -> tuple[str, bool] | None:
    """Whose image a topic has, and whether it is depth; None for infrared, and what says neither."""
    sdk = SDK_TOPIC.fullmatch(topic)
    if sdk is not None:
        return sdk['device'], sdk['kind'] == 'Depth'
    parts = topic.split('/')
    for number, part in enumerate(parts):
        if COLOR_OR_DEPTH.search(part) and not part.lower().startswith('compressed'):
            return '/'.join(parts[:number]), 'depth' in part.lower()
    return None


def _rank(topic: str) -> tuple[bool, bool, str]:
    """Depth that lies on colour first, then images as they are."""
    return ALIGNED.search(topic) is None, topic.endswith(TRANSPORTS), topic


# --- where a camera stood


@dataclass(frozen=True, slots=True, eq=False)
class Stand:
    """Where a camera stood at any time: at one pose, on the gripper, or in a tree of frames."""

    fixed: Matrix | None = None
    on_gripper: Matrix | None = None
    ee_pose: NDArray[Any] | None = None  # (T, 7), at the steps
    tree: TransformTree | None = None
    frame: str = ''
    root: str = ''
    stamped: bool = False

    def at(self, time_ns: int, steps_ns: Times) -> Matrix:
        if self.fixed is not None:
            return self.fixed
        if self.on_gripper is not None:
            assert self.ee_pose is not None
            place = max(int(np.searchsorted(steps_ns, time_ns, side='right')) - 1, 0)
            return _matrix(np.asarray(self.ee_pose[place], dtype=np.float64)) @ self.on_gripper
        assert self.tree is not None
        poses, known = self.tree.poses(self.frame, self.root, np.array([time_ns], dtype=np.int64), stamped=self.stamped)
        if not known[0]:
            raise InputError(f'tf: no pose of {self.frame!r} in {self.root!r} yet at {time_ns} ns')
        return _matrix(poses[0])


def _matrix(pose: NDArray[Any]) -> Matrix:
    """(4, 4) of x y z qw qx qy qz."""
    w, x, y, z = pose[3:] / np.linalg.norm(pose[3:])
    turn = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = turn, pose[:3]
    return matrix


def read_tree(bag: Bag) -> TransformTree:
    """Every transform of a bag."""
    tree = TransformTree()
    for message in bag.messages([topic for topic, kind in bag.topics.items() if kind == TF]):
        tree.add(message)
    return tree


# --- one camera of one bag


@dataclass(frozen=True, slots=True, eq=False)
class CameraFilm:
    """One camera's images in pairs, and what turns a pair into a view."""

    camera: DepthCamera
    lens: Lens
    stand: Stand
    unit_m: float | None  # None: as each image says
    time_ns: Times  # of colour, by the clock of the steps
    color_log_ns: Times
    depth_log_ns: Times
    depth_lens: Lens | None = None
    color_from_depth: Matrix | None = None

    def view(self, bag: Bag, number: int, *, steps_ns: Times) -> View:
        color = bag.message_at(self.camera.color, int(self.color_log_ns[number])).content
        depth = bag.message_at(self.camera.depth, int(self.depth_log_ns[number])).content
        stated = float(getattr(depth, 'depth_units', 0.0))
        unit_m = self.unit_m if self.unit_m is not None else stated if stated > 0 else MILLIMETRE
        time_ns = int(self.time_ns[number])
        try:
            return make_view(
                self.camera.name, as_mapping(color), as_mapping(depth), lens=self.lens, unit_m=unit_m,
                pose=self.stand.at(time_ns, steps_ns), t_s=(time_ns - int(steps_ns[0])) / 1e9,
                depth_lens=self.depth_lens, color_from_depth=self.color_from_depth,
            )  # fmt: skip
        except InputError as error:
            where = (
                f'{bag.path}: {self.camera.color} and {self.camera.depth}, {(time_ns - int(steps_ns[0])) / 1e9:.3f} s'
            )
            raise InputError(f'{where}: {error}. --answer cameras=leave imports the bag without pictures') from error


@dataclass(frozen=True, slots=True, eq=False)
class MomentClip:
    """One moment of every camera, read from the bag when it is written."""

    bag: Bag
    films: tuple[CameraFilm, ...]
    numbers: tuple[int, ...]  # of the pair of each camera
    steps_ns: Times

    def write(self, target: Path) -> None:
        views = {
            film.camera.name: film.view(self.bag, number, steps_ns=self.steps_ns)
            for film, number in zip(self.films, self.numbers, strict=True)
        }
        target.write_bytes(pack_views(views))


@dataclass(frozen=True, slots=True)
class TextClip:
    """A text that becomes a file."""

    text: str

    def write(self, target: Path) -> None:
        target.write_text(self.text, encoding='utf-8')


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ViewReader:
    """Makes the moments of one bag."""

    bag: Bag
    options: ViewOptions
    steps_ns: Times
    stamped: bool  # steps are timed by header stamps
    ee_pose: NDArray[Any] | None
    ledger: ImportAccount

    def moments(self, cameras: Sequence[DepthCamera]) -> dict[str, MomentClip]:
        """Start, end and what lies between at the rate that was asked for; empty, with the reason, where none is."""
        films = []
        for camera in cameras:
            try:
                films.append(self._film(camera))
            except InputError as error:
                if self.options.is_asked:
                    raise
                self.ledger.drop(f'RGB-D of {camera.name}', None, why=str(error))
        chosen = self._chosen(films) if films else []
        if len(chosen) < 2:
            if films:
                why = f'fewer than two moments with an image pair of each camera within {ACROSS_NS / 1e9:g} s'
                if self.options.is_asked:
                    raise InputError(f'{self.bag.path}: RGB-D: {why}')
                self.ledger.drop('RGB-D views', None, why=why)
            return {}
        names = [START, *(moment_name((t - int(self.steps_ns[0])) / 1e9) for t, _ in chosen[1:-1]), END]
        self.ledger.keep('moments of RGB-D', len(chosen), why=f'{len(films)} cameras each')
        return {
            name: MomentClip(self.bag, tuple(films), numbers, self.steps_ns)
            for name, (_, numbers) in zip(names, chosen, strict=True)
        }

    def _film(self, camera: DepthCamera) -> CameraFilm:
        bag, path = self.bag, self.bag.path
        infos = [info_topic(bag, topic) for topic in (camera.color, camera.depth)]
        lenses = [self._lens(topic) for topic in infos]
        if lenses[0] is None:
            raise InputError(f'{path}: no CameraInfo beside {camera.color}; a view needs the intrinsics of its camera')
        color, depth = bag.first(camera.color), bag.first(camera.depth)
        if color is None or depth is None:
            raise InputError(f'{path}: no image on {camera.color if color is None else camera.depth}')
        for topic, content in ((camera.color, color), (camera.depth, depth)):
            try:
                image(as_mapping(content))
            except InputError as error:
                raise InputError(f'{path}: {topic}: {error}') from error
        frames = [str(m.header.frame_id).lstrip('/') for m in (color, depth)]
        is_aligned = not camera.is_sdk and (camera.is_aligned or frames[0] == frames[1] or lenses[1] is None)
        between = None if is_aligned else self._color_from_depth(camera, frames)
        if not is_aligned and lenses[1] is None:
            raise InputError(f'{path}: no CameraInfo beside {camera.depth}, which is not aligned to colour')
        times = self._pairs(camera)
        return CameraFilm(
            camera, lenses[0], self._stand(camera, frames[0]), self._unit_m(camera), *times,
            depth_lens=None if is_aligned else lenses[1], color_from_depth=between,
        )  # fmt: skip

    def _lens(self, topic: str) -> Lens | None:
        content = self.bag.first(topic) if topic else None
        if content is None:
            return None
        try:
            return read_lens(as_mapping(content))
        except InputError as error:
            raise InputError(f'{self.bag.path}: {topic}: {error}') from error

    def _unit_m(self, camera: DepthCamera) -> float | None:
        """The step of whole-number depth: as said, as the SDK's option has it, else as each image says."""
        if self.options.depth_unit_m is not None:
            return self.options.depth_unit_m
        sdk = SDK_TOPIC.fullmatch(camera.depth)
        if sdk is None:
            return None
        option = f'{sdk["device"]}{sdk["sensor"]}/option/Depth Units/value'
        for topic in (option, option.replace(' ', '_')):
            content = self.bag.first(topic) if self.bag.topics.get(topic) == FLOAT else None
            if content is not None:
                unit_m = float(content.data)
                if not 0 < unit_m <= 1:
                    raise InputError(f'{self.bag.path}: {topic} is {unit_m} m, wanted a step above 0 and up to 1')
                self.ledger.note(f'{camera.name}: depth in steps of {unit_m:g} m ({topic})')
                return unit_m
        return None

    def _color_from_depth(self, camera: DepthCamera, frames: Sequence[str]) -> Matrix:
        if camera.is_sdk:
            # The SDK keeps, for every stream, what takes points of a reference into it.
            color, depth = (self._sdk_extrinsics(topic) for topic in (camera.color, camera.depth))
            return color @ np.linalg.inv(depth)
        try:
            tree = read_tree(self.bag)
            root = tree.root_of(frames[0])
            color, depth = (self._in_root(tree, frame, root) for frame in frames)
        except InputError as error:
            raise InputError(
                f'{self.bag.path}: {camera.depth} ({frames[1]!r}) is not aligned to {camera.color} ({frames[0]!r}), '
                f'and no transform lies between them: {error}. Record aligned depth, or /tf_static'
            ) from error
        return np.linalg.inv(color) @ depth

    def _in_root(self, tree: TransformTree, frame: str, root: str) -> Matrix:
        """Of frames of one camera, which do not move against each other."""
        if frame == root:
            return np.eye(4)
        last = np.array([2**62], dtype=np.int64)
        return _matrix(tree.poses(frame, root, last, stamped=self.stamped)[0][0])

    def _sdk_extrinsics(self, topic: str) -> Matrix:
        prefix = f'{topic.removesuffix("/image/data")}/tf/'
        topics = [t for t, kind in sorted(self.bag.topics.items()) if t.startswith(prefix) and kind == TRANSFORM]
        content = self.bag.first(topics[0]) if topics else None
        if content is None:
            raise InputError(f'{self.bag.path}: no extrinsics on {prefix}0; depth cannot be laid on colour')
        return _matrix(pose_numbers(content))

    def _stand(self, camera: DepthCamera, frame: str) -> Stand:
        if self.options.calibration:
            poses = read_camera_poses(Path(self.options.calibration))
            if camera.name not in poses:
                raise UnknownName(f'camera in {self.options.calibration}', camera.name, poses)
            return self._calibrated(poses[camera.name], camera.name)
        try:
            tree = read_tree(self.bag)
            root = self.options.world or tree.root_of(frame)
            tree.chain(frame, root)
        except InputError as error:
            raise InputError(
                f'{self.bag.path}: where camera {camera.name} stood is not in the bag ({error}); '
                '--set calibration=cameras.json gives it (robotrials geometry calibrate writes one)'
            ) from error
        self.ledger.note(f'{camera.name}: its pose is that of {frame} in {root} by tf')
        return Stand(tree=tree, frame=frame, root=root, stamped=self.stamped)

    def _calibrated(self, pose: CameraPose, name: str) -> Stand:
        if pose.world_from_camera:
            return Stand(fixed=pose.matrix)
        if self.ee_pose is None:
            raise InputError(f'{self.bag.path}: camera {name} rides on the gripper, and the bag has no ee_pose')
        return Stand(on_gripper=pose.matrix, ee_pose=self.ee_pose)

    def _pairs(self, camera: DepthCamera) -> tuple[Times, Times, Times]:
        """Times of colour on the clock of the steps, and the log times of both images, of every pair."""
        logs, stamps = zip(*(self._times(topic) for topic in (camera.color, camera.depth)), strict=True)
        by_stamp = all(len(s) and np.all(s > 0) and np.all(np.diff(s) > 0) for s in stamps)
        # One clock stamps both, if both lie alike against the time of logging.
        offsets = [np.median(s - log) for s, log in zip(stamps, logs, strict=True)] if by_stamp else [0, 0]
        clock = stamps if by_stamp and abs(offsets[0] - offsets[1]) <= 1e9 else logs
        color, depth = nearest_pairs(*clock)
        for what, total, n in (('colour', len(clock[0]), len(color)), ('depth', len(clock[1]), len(depth))):
            if total > n:
                other = 'depth' if what == 'colour' else 'colour'
                self.ledger.drop(
                    f'{what} images of {camera.name} as views', total - n,
                    why=f'no {other} image within {SKEW_NS / 1e9:g} s',
                )  # fmt: skip
        if not len(color):
            raise InputError(
                f'{self.bag.path}: no colour image on {camera.color} has a depth image on {camera.depth} within '
                f'{SKEW_NS / 1e9:g} s'
            )
        uses_stamps = self.stamped and not why_not_stamps(logs[0].tolist(), stamps[0].tolist())
        return (stamps if uses_stamps else logs)[0][color], logs[0][color], logs[1][depth]

    def _times(self, topic: str) -> tuple[Times, Times]:
        log_ns, stamp_ns = self.bag.stamps_ns(topic)
        return np.array(log_ns, dtype=np.int64), np.array(stamp_ns, dtype=np.int64)

    def _chosen(self, films: Sequence[CameraFilm]) -> list[tuple[int, tuple[int, ...]]]:
        """Time and the pairs' numbers of every moment that is kept."""
        slowest = min(films, key=lambda film: len(film.time_ns))
        steps = self.steps_ns
        last_ns = int(steps[-1]) + (int(np.median(np.diff(steps))) if len(steps) > 1 else 0)
        whole = []
        for time_ns in slowest.time_ns.tolist():
            numbers = [int(np.argmin(np.abs(film.time_ns - time_ns))) for film in films]
            off = [abs(int(film.time_ns[n]) - time_ns) for film, n in zip(films, numbers, strict=True)]
            if steps[0] <= time_ns <= last_ns and max(off) <= ACROSS_NS:
                whole.append((time_ns, tuple(numbers)))
        if self.options.rate_hz is None or len(whole) < 3:
            return [whole[0], whole[-1]] if len(whole) > 1 else whole
        between, due_ns = [], whole[0][0] + 1e9 / self.options.rate_hz
        for moment in whole[1:-1]:
            if moment[0] >= due_ns:
                between.append(moment)
                due_ns = moment[0] + 1e9 / self.options.rate_hz - SKEW_NS / 2
        if len(between) > MOST_MOMENTS - 2:
            raise InputError(
                f'{self.bag.path}: {len(between)} moments of RGB-D, wanted up to {MOST_MOMENTS}; lower rgbd'
            )
        return [whole[0], *between, whole[-1]]


def nearest_pairs(color_ns: Times, depth_ns: Times) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the images that are nearest to each other, both ways, and near enough."""
    if not len(color_ns) or not len(depth_ns):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    to_depth, to_color = _nearest(color_ns, depth_ns), _nearest(depth_ns, color_ns)
    number = np.arange(len(color_ns))
    is_pair = (to_color[to_depth] == number) & (np.abs(depth_ns[to_depth] - color_ns) <= SKEW_NS)
    return number[is_pair], to_depth[is_pair]


def _nearest(times: Times, others: Times) -> NDArray[np.int64]:
    order = np.argsort(others, kind='stable')
    place = np.searchsorted(others[order], times).clip(1, max(len(others) - 1, 1))
    before, after = order[place - 1], order[np.minimum(place, len(others) - 1)]
    nearest: NDArray[np.int64] = np.where(
        np.abs(others[before] - times) <= np.abs(others[after] - times), before, after
    )
    return nearest


def known_clip(options: ViewOptions, episode: Episode, bag: Bag) -> dict[str, TextClip]:
    """What is known of an episode's scene, as a file beside its views."""
    if not options.known:
        return {}
    given = {name: getattr(episode, name) for name in ('task', 'seed', 'instance', 'stratum')}
    return {KNOWN: TextClip(read_scene(options.known, {**given, 'bag': bag.path.stem}).as_json())}
