"""robosuite 1.5 as a host, with safety signals, in an environment of its own; and RoboCasa, which stands on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robotrials.errors import InputError
from robotrials.worlds.arm.signal import check_pictures
from robotrials.worlds.isolated import IsolatedHost
from robotrials.worlds.robosuite.host import RobosuiteHost, family_names, read_family

__all__ = ['family_names', 'read_family', 'robocasa_host', 'robosuite_host']


def robosuite_host(
    *,
    benchmark: str = 'robosuite',
    robot: str = '',
    cameras: Sequence[str] = (),
    image_size: Sequence[int] = (256, 256),
    state: str = 'proprioception',
    step_cap: int | None = None,
    instrumented: bool = True,
    options: Mapping[str, Any] | None = None,
    environment: str = 'robosuite',
    start_timeout_s: float = 300.0,
    timeout_s: float | None = None,
) -> IsolatedHost[RobosuiteHost]:
    """The one-armed tasks of robosuite, by their names; start states are drawn from the seed.

    benchmark: the family of tasks, or a file that declares one. robot: the family's by default. cameras: as the family
    names them, upright; none by default. state: ``proprioception`` (8 numbers, as LIBERO's) or ``privileged``.
    step_cap: the family's by default. instrumented: measure safety signals. options: further arguments of
    ``robosuite.make``.
    """
    family = read_family(benchmark)
    check_pictures(cameras, family.cameras, image_size, of=benchmark)
    if step_cap is not None and step_cap < 1:
        raise InputError(f'step_cap is {step_cap}, wanted >= 1')
    from robotrials.run.environment.gl import drawing_variables

    return IsolatedHost(
        environment=environment,
        host='robotrials.worlds.robosuite.host:RobosuiteHost',
        options={
            'benchmark': benchmark, 'robot': robot, 'cameras': list(cameras), 'image_size': list(image_size),
            'state': state, 'step_cap': step_cap, 'instrumented': instrumented, 'options': dict(options or {}),
        },
        variables=drawing_variables(environment) if cameras else {},
        start_timeout_s=start_timeout_s,
        timeout_s=timeout_s,
    )  # fmt: skip


def robocasa_host(*, environment: str, start_timeout_s: float = 600.0, **options: Any) -> IsolatedHost[RobosuiteHost]:
    """RoboCasa-365's atomic tasks, in an environment with RoboCasa and its assets: a recipe file of yours.

    options: those of `robosuite_host`; its own `options` are further arguments of RoboCasa's kitchens, such as
    ``layout_ids`` and ``style_ids``.
    """
    return robosuite_host(
        **{**options, 'benchmark': 'robocasa'}, environment=environment, start_timeout_s=start_timeout_s
    )
