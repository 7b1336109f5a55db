"""Control rates and step caps that a benchmark fixes, so that its steps can be told in seconds."""

from __future__ import annotations

from collections.abc import Mapping

# Steps per second. LIBERO and RoboCasa run robosuite at control_freq 20; CALVIN at 30; DROID's controller at 15.
RATES_HZ: Mapping[str, float] = {'libero': 20.0, 'robocasa': 20.0, 'calvin': 30.0, 'droid': 15.0}
# Steps after which OpenVLA's and vla-eval's runners cut an episode; others differ (LeRobot: 280 on spatial).
LIBERO_STEP_CAPS: Mapping[str, int] = {
    'libero_spatial': 220, 'libero_object': 280, 'libero_goal': 300, 'libero_10': 520, 'libero_90': 400,
}  # fmt: skip


def known_rate_hz(name: str) -> float | None:
    """The control rate of a benchmark by its name, such as `libero_spatial`, or None."""
    plain = name.lower()
    return next((rate for part, rate in RATES_HZ.items() if part in plain), None)


def libero_suite(name: str) -> str | None:
    """The LIBERO suite that a name ends in or contains (`LIBEROBenchmark_libero_10`), the longest that fits."""
    plain = name.lower().replace('-', '_').replace('libero_long', 'libero_10')
    fitting = [suite for suite in LIBERO_STEP_CAPS if suite in plain]
    return max(fitting, key=len) if fitting else None
