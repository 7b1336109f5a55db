"""LIBERO as a host: the benchmark's own protocol, with safety signals, in an environment of its own."""

from __future__ import annotations

from collections.abc import Sequence

from robotrials.errors import UnknownName
from robotrials.old_name import setting
from robotrials.worlds.arm.signal import check_pictures
from robotrials.worlds.arm.watch import check_watchers
from robotrials.worlds.isolated import IsolatedHost
from robotrials.worlds.libero.host import LiberoHost
from robotrials.worlds.libero.suite import CAMERAS, SUITES, VARIABLE, find_suite

__all__ = ['CAMERAS', 'SUITES', 'find_suite', 'libero_host']

RENDERERS = ('egl', 'osmesa')


def libero_host(
    *,
    suite: str = 'libero-spatial',
    cameras: Sequence[str] = (),
    image_size: Sequence[int] = (256, 256),
    assets: str = '',
    render: str = 'egl',
    state: str = 'proprioception',
    seed: int = 0,
    step_cap: int | None = None,
    instrumented: bool = True,
    watchers: Sequence[str] = (),
    oracle_masks: bool = False,
    environment: str = 'libero',
    start_timeout_s: float = 300.0,
    timeout_s: float | None = None,
) -> IsolatedHost[LiberoHost]:
    """One suite of LIBERO; its tasks are ``task_0`` and so on, its start states the benchmark's own, by instance.

    cameras: of ``agentview`` and ``wrist``, as the benchmark gives them (upside down); none by default, which is ten
    times as fast. assets: the folder of LIBERO's assets; by default ROBOTRIALS_LIBERO_ASSETS, or where LIBERO
    itself downloads them to. render: the GL back-end. state: ``proprioception`` (8 numbers) or ``privileged``. seed: of
    LIBERO's generator, which places the fixtures; 0 is the published evaluations'. step_cap: the suite's own by
    default. instrumented: measure safety signals. watchers: RGB-D cameras whose views are kept to be scored, of
    ``front``, ``left``, ``right``, ``top``, ``steep`` and ``low``. oracle_masks: keep the simulation's own ids as their
    masks, which every score then says. start_timeout_s: for imports and for making the host. A call may take as long
    as the plan's ``watchdog.host_s`` says; timeout_s is a stricter limit of one's own.
    """
    find_suite(suite)
    check_pictures(cameras, CAMERAS, image_size, of='LIBERO')
    if render not in RENDERERS:
        raise UnknownName('renderer', render, RENDERERS)
    options = {
        'suite': suite, 'cameras': list(cameras), 'image_size': list(image_size),
        'assets': assets or setting(VARIABLE) or '', 'state': state, 'seed': seed, 'step_cap': step_cap,
        'instrumented': instrumented,
        'watchers': list(check_watchers(watchers, has_oracle_masks=oracle_masks)), 'oracle_masks': oracle_masks,
    }  # fmt: skip
    return IsolatedHost(
        environment=environment,
        host='robotrials.worlds.libero.host:LiberoHost',
        options=options,
        variables={'MUJOCO_GL': render, 'PYOPENGL_PLATFORM': render},
        start_timeout_s=start_timeout_s,
        timeout_s=timeout_s,
    )
