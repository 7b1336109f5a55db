"""Where work is done: on this machine, or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from robotrials.run.ray_crew import RayOptions

ENGINES = ('local', 'ray')
EngineOption = Annotated[
    str, typer.Option('--engine', help='local, or ray: large resampling on a Ray cluster, with the same numbers.')
]
AddressOption = Annotated[
    str | None,
    typer.Option('--address', help='For --engine ray: the cluster, such as auto.', show_default='this machine'),
]


def ray_options(
    engine: str, address: str | None, resources: list[str] | None = None, *, policy_servers: int = 0
) -> RayOptions | None:
    """What the options of an engine say; None for the local one."""
    from robotrials.errors import InputError, UnknownName

    if engine not in ENGINES:
        raise UnknownName('engine', engine, ENGINES)
    if engine == 'local':
        if address is not None or resources or policy_servers:
            raise InputError('--address, --resource and --policy-servers are about a Ray cluster; add --engine ray')
        return None
    from robotrials.run.ray_crew import RayOptions

    amounts = {'CPU': 1.0, 'GPU': 0.0}
    for text in resources or ():
        name, _, amount = text.partition('=')
        try:
            amounts[name] = float(amount)
        except ValueError:
            raise InputError(f'--resource is {text!r}, wanted NAME=AMOUNT, such as robot_cell=1') from None
    cpus, gpus = amounts.pop('CPU'), amounts.pop('GPU')
    if policy_servers:  # the policy's share of a GPU is where the policy is
        return RayOptions(address, cpus=cpus, resources=amounts, policy_servers=policy_servers, server_gpus=gpus)
    return RayOptions(address, cpus=cpus, gpus=gpus, resources=amounts)


def resampled_on(engine: str, address: str | None) -> AbstractContextManager[None]:
    """Within it, large resampling is done on the engine asked for."""
    from contextlib import contextmanager

    options = ray_options(engine, address)

    @contextmanager
    def connected() -> Iterator[None]:
        if options is None:
            yield
            return
        from robotrials.measure.timing.resample import farmed
        from robotrials.run.ray_crew import ray_cluster

        with ray_cluster(options) as ray, farmed(ray):
            yield

    return connected()
