"""Bags of RGB-D cameras by rosbags' own writers: ROS 2 (sqlite3, MCAP), ROS 1, and RealSense's SDK layout."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from robotrials.record.footage import View

ROS1, ROS2 = get_typestore(Stores.ROS1_NOETIC), get_typestore(Stores.ROS2_HUMBLE)
ROS1.register(get_types_from_msg('geometry_msgs/TransformStamped[] transforms\n', 'tf2_msgs/msg/TFMessage'))
START_NS = 1_700_000_000_000_000_000
FRAME_NS = 33_333_333
Rows = list[tuple[str, str, int, Any]]


class Messages:
    """Messages of one version of ROS."""

    def __init__(self, *, is_ros1: bool = False) -> None:
        self.is_ros1, self.store = is_ros1, ROS1 if is_ros1 else ROS2

    def kind(self, name: str) -> Any:
        return self.store.types[name]

    def header(self, stamp_ns: int, frame: str) -> Any:
        stamp = self.kind('builtin_interfaces/msg/Time')(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
        header = self.kind('std_msgs/msg/Header')
        return header(0, stamp, frame) if self.is_ros1 else header(stamp, frame)

    def image(self, pixels: np.ndarray[Any, Any], encoding: str, stamp_ns: int, frame: str) -> Any:
        rows = np.ascontiguousarray(pixels)
        return self.kind('sensor_msgs/msg/Image')(
            self.header(stamp_ns, frame), rows.shape[0], rows.shape[1], encoding, 0, rows[0].nbytes,
            rows.view(np.uint8).ravel(),
        )  # fmt: skip

    def packed(self, content: bytes, form: str, stamp_ns: int, frame: str) -> Any:
        data = np.frombuffer(content, np.uint8)
        return self.kind('sensor_msgs/msg/CompressedImage')(self.header(stamp_ns, frame), form, data)

    def info(self, k: np.ndarray[Any, Any], shape: tuple[int, int], *, lens: tuple[float, ...] = (0.0,) * 5,
             model: str = 'plumb_bob', stamp_ns: int = START_NS, frame: str = '') -> Any:  # fmt: skip
        roi = self.kind('sensor_msgs/msg/RegionOfInterest')(0, 0, 0, 0, False)
        return self.kind('sensor_msgs/msg/CameraInfo')(
            self.header(stamp_ns, frame), *shape, model, np.array(lens), np.array(k, float).ravel(),
            np.eye(3).ravel(), np.zeros(12), 0, 0, roi,
        )  # fmt: skip

    def transform(self, matrix: np.ndarray[Any, Any]) -> Any:
        x, y, z, w = quaternion(matrix[:3, :3])
        vector = self.kind('geometry_msgs/msg/Vector3')(*map(float, matrix[:3, 3]))
        return self.kind('geometry_msgs/msg/Transform')(vector, self.kind('geometry_msgs/msg/Quaternion')(x, y, z, w))

    def tf(self, child: str, parent: str, matrix: np.ndarray[Any, Any], stamp_ns: int = START_NS) -> Any:
        stamped = self.kind('geometry_msgs/msg/TransformStamped')(
            self.header(stamp_ns, parent), child, self.transform(matrix)
        )
        return self.kind('tf2_msgs/msg/TFMessage')([stamped])

    def joints(self, i: int, stamp_ns: int) -> Any:
        values = np.array([float(i), -float(i)])
        return self.kind('sensor_msgs/msg/JointState')(self.header(stamp_ns, ''), ['a', 'b'], values, values, values)

    def write(
        self, path: Path, rows: Rows, *, storage: StoragePlugin = StoragePlugin.MCAP, unit_m: float = 0.0
    ) -> Path:
        """`unit_m`: appended to RealSense's images of depth, as its SDK does, without a word in the definition."""
        writer: Any = Writer1(path) if self.is_ros1 else Writer2(path, version=9, storage_plugin=storage)
        with writer:
            connections: dict[str, Any] = {}
            for topic, name, at, message in sorted(rows, key=lambda row: row[2]):
                if topic not in connections:
                    connections[topic] = writer.add_connection(topic, name, typestore=self.store)
                raw = (
                    self.store.serialize_ros1(message, name)
                    if self.is_ros1
                    else self.store.serialize_cdr(message, name)
                )
                tail = struct.pack('<f', unit_m) if unit_m and topic.endswith('/image/data') else b''
                writer.write(connections[topic], at, bytes(raw) + tail)
        return path


def quaternion(turn: np.ndarray[Any, Any]) -> tuple[float, float, float, float]:
    from scipy.spatial.transform import Rotation

    x, y, z, w = Rotation.from_matrix(turn).as_quat().tolist()
    return x, y, z, w


def millimetres(depth_m: np.ndarray[Any, Any], unit_m: float = 0.001) -> np.ndarray[Any, Any]:
    return np.nan_to_num(depth_m / unit_m, nan=0, posinf=0).clip(0, 65535).round().astype('<u2')


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format='PNG')
    return stream.getvalue()


def driver_rows(
    ros: Messages, start: Mapping[str, View], end: Mapping[str, View], *, frames: int = 6, skew_ns: int = 4_000_000,
    is_compressed: bool = False, has_tf: bool = True,
) -> Rows:  # fmt: skip
    """What a ROS driver with aligned depth publishes; the scene changes halfway."""
    rows: Rows = []
    image, packed = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
    for i in range(frames + 1):
        at = START_NS + i * FRAME_NS
        rows.append(('/joint_states', 'sensor_msgs/msg/JointState', at, ros.joints(i, at)))
    for name, first in start.items():
        frame = f'{name}_color_optical_frame'
        k, pose = first.camera.intrinsics_px, first.camera.world_from_camera
        assert k is not None
        assert pose is not None
        if has_tf:
            rows.append(('/tf_static', 'tf2_msgs/msg/TFMessage', START_NS, ros.tf(frame, 'base_link', pose)))
        info = ros.info(k, first.depth_m.shape, frame=frame)  # type: ignore[arg-type]
        rows.append((f'/{name}/color/camera_info', 'sensor_msgs/msg/CameraInfo', START_NS, info))
        for i in range(frames):
            view = first if i < frames / 2 else end[name]
            at = START_NS + i * FRAME_NS
            depth, base = millimetres(view.depth_m), f'/{name}/aligned_depth_to_color/image_raw'
            if is_compressed:
                rows.append((f'/{name}/color/image_raw/compressed', packed, at,
                             ros.packed(png(view.rgb), 'rgb8; png compressed', at, frame)))  # fmt: skip
                content = struct.pack('<iff', 0, 0.0, 0.0) + png(depth)
                rows.append((f'{base}/compressedDepth', packed, at + skew_ns,
                             ros.packed(content, '16UC1; compressedDepth png', at + skew_ns, frame)))  # fmt: skip
            else:
                rows.append((f'/{name}/color/image_raw', image, at, ros.image(view.rgb, 'rgb8', at, frame)))
                rows.append((base, image, at + skew_ns, ros.image(depth, '16UC1', at + skew_ns, frame)))
    return rows


def sdk_rows(
    ros: Messages, view: View, *, depth_m: np.ndarray[Any, Any], depth_k: np.ndarray[Any, Any],
    color_from_depth: np.ndarray[Any, Any], unit_m: float = 0.0001, frames: int = 4, option: str = 'Depth Units',
    frame: str = '', model: str = 'Brown Conrady',
) -> Rows:  # fmt: skip
    """A file as RealSense's SDK records it: depth is the reference, and colour stands beside it.

    Topics, encodings, times from 0 on and what is written once at 1 ns are those of librealsense's ros_writer.cpp and
    ros_file_format.h.
    """
    depth, color = '/device_0/sensor_0/Depth_0', '/device_0/sensor_1/Color_0'
    k = view.camera.intrinsics_px
    assert k is not None
    once, kind = 1, ros.kind
    info = 'sensor_msgs/msg/CameraInfo'
    rows: Rows = [
        ('/file_version', 'std_msgs/msg/UInt32', once, kind('std_msgs/msg/UInt32')(3)),
        (f'{depth}/info/camera_info', info, once, ros.info(depth_k, depth_m.shape, model=model)),  # type: ignore[arg-type]
        (f'{color}/info/camera_info', info, once,
         ros.info(k, view.depth_m.shape, model='Inverse Brown Conrady')),  # type: ignore[arg-type]
        (f'{depth}/tf/0', 'geometry_msgs/msg/Transform', once, ros.transform(np.eye(4))),
        (f'{color}/tf/0', 'geometry_msgs/msg/Transform', once, ros.transform(color_from_depth)),
    ]  # fmt: skip
    if option:
        value = kind('std_msgs/msg/Float32')(unit_m)
        rows.append((f'/device_0/sensor_0/option/{option}/value', 'std_msgs/msg/Float32', once, value))
    for i in range(frames):
        at, stamp = 1_000_000 + i * FRAME_NS, START_NS + i * FRAME_NS
        pixels = millimetres(depth_m, unit_m)
        image = 'sensor_msgs/msg/Image'
        rows.append((f'{depth}/image/data', image, at, ros.image(pixels, 'mono16', stamp, frame)))
        rows.append((f'{color}/image/data', image, at + 2_000_000, ros.image(view.rgb, 'rgb8', stamp, frame)))
    return rows
