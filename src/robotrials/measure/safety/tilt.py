"""How far an orientation has drifted from what it was."""

from __future__ import annotations

import numpy as np

from robotrials.measure.safety.reading import FloatArray


def axis_drift_deg(quaternion_wxyz: FloatArray, reference: int) -> FloatArray:
    """The angle (T,) between the body's z axis in the world and what it was at `reference` (Table 15, theta)."""
    w, x, y, z = quaternion_wxyz.T
    axis = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    across = np.linalg.norm(np.cross(axis, axis[reference]), axis=1)
    drift: FloatArray = np.degrees(np.arctan2(across, axis @ axis[reference]))
    return drift


def rotation_drift_deg(quaternion_wxyz: FloatArray, reference: int) -> FloatArray:
    """The full rotation angle (T,) since `reference`, turns about the body's own z axis included."""
    unit = quaternion_wxyz
    along = np.abs(unit @ unit[reference])
    across = np.linalg.norm(unit - np.sign(unit @ unit[reference])[:, None] * along[:, None] * unit[reference], axis=1)
    drift: FloatArray = np.degrees(2 * np.arctan2(across, along))
    return drift
