"""Hosts and policies by name: built in, installed under an entry point, or ``module:attribute``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from robotrials.catalog import Catalog
from robotrials.errors import InputError, UnknownName
from robotrials.run.condition import AppliedCondition, draw_entry, share_condition
from robotrials.run.convention import ControlMode, HostSpec, Target, check_conventions
from robotrials.run.film import check_filming
from robotrials.run.host import REQUIRED, Ability, Host, HostLike, as_host
from robotrials.run.limit import Limiter
from robotrials.run.maker import check_maker
from robotrials.run.plan import ConditionEntry, HostEntry, PolicyEntry, TrialPlan, Waiting
from robotrials.run.seam import Action, FittedPolicy, Policy, Setup
from robotrials.run.views import check_viewing

HOSTS = Catalog(
    'host',
    {
        'gymnasium': 'robotrials.worlds.gymnasium:gymnasium_host',
        'lerobot-robot': 'robotrials.worlds.lerobot_robot:lerobot_robot_host',
        'libero': 'robotrials.worlds.libero:libero_host',
        'point-mass': 'robotrials.testing.point_mass:PointMassHost',
        'replay': 'robotrials.worlds.replay:ReplayHost',
        'robocasa': 'robotrials.worlds.robosuite:robocasa_host',
        'robosuite': 'robotrials.worlds.robosuite:robosuite_host',
        'rosbridge': 'robotrials.worlds.rosbridge:RosbridgeHost',
        'tabletop': 'robotrials.worlds.cell:TabletopHost',
    },
    'robotrials.hosts',
)
POLICIES = Catalog(
    'policy',
    {
        'demonstration': 'robotrials.policies.plain:DemonstrationPolicy',
        'function': 'robotrials.policies.function:FunctionPolicy',
        'groot': 'robotrials.policies.groot:GrootPolicy',
        'lerobot': 'robotrials.policies.lerobot:LeRobotPolicy',
        'lerobot-server': 'robotrials.policies.lerobot_server:LeRobotServerPolicy',
        'libero-scripted': 'robotrials.worlds.libero.scripted:ScriptedLiberoPolicy',
        'lookup': 'robotrials.study.lookup:LookupPolicy',
        'no_op': 'robotrials.policies.plain:NoOpPolicy',
        'openpi': 'robotrials.policies.openpi:OpenPiPolicy',
        'openvla': 'robotrials.policies.openvla:OpenVlaPolicy',
        'positronic': 'robotrials.policies.positronic:PositronicPolicy',
        'probe': 'robotrials.policies.probe:ProbePolicy',
        'random': 'robotrials.policies.plain:RandomPolicy',
        'replay': 'robotrials.policies.replay:ReplayPolicy',
        'roboarena': 'robotrials.policies.roboarena:RoboArenaPolicy',
        'scripted': 'robotrials.worlds.cell.scripted:ScriptedPolicy',
        'seek': 'robotrials.testing.policy:SeekPolicy',
        'sighted': 'robotrials.worlds.cell.sighted:SightedPolicy',
        'vla-eval': 'robotrials.policies.vla_eval:VlaEvalPolicy',
        'vlm': 'robotrials.policies.vlm:VlmPolicy',
    },
    'robotrials.policies',
)


def open_host(entry: HostEntry) -> Host:
    """Make the host that a plan names."""
    return as_host(_make(HOSTS, entry.use, entry.options, methods=REQUIRED))


def open_policy(entry: PolicyEntry) -> Policy:
    """Make the policy that a plan names."""
    if entry.is_human:
        raise InputError('an arm of this plan is a person (use = "human"); run it with `robotrials console STORE`')
    made = _make(POLICIES, entry.use, entry.options, methods=('start',))
    if not isinstance(made, Policy):
        raise InputError(f'policy {entry.use} has not both of spec and start')
    return made


def _make(catalog: Catalog, use: str, options: Mapping[str, Any], *, methods: Sequence[str]) -> object:
    maker = catalog.load(use)
    if not callable(maker):
        raise InputError(f'{catalog.kind} {use} is a {type(maker).__name__}, wanted a class or function that makes one')
    check_maker(catalog.kind, use, maker, methods=methods)
    try:
        signature(maker).bind(**options)
    except TypeError as error:
        names = ', '.join(signature(maker).parameters) or 'none'
        raise InputError(
            f'{catalog.kind} {use} does not take these options: {error}; its options are: {names}'
        ) from error
    except ValueError:
        pass  # a maker in C without a signature
    try:
        return maker(**options)
    except TypeError as error:
        raise InputError(f'{catalog.kind} {use} does not take these options: {error}') from error


def check_host_fits(plan: TrialPlan, host: HostLike) -> None:
    """Raise InputError if the host cannot do what the plan asks of it."""
    host = as_host(host)
    spec = host.spec
    waits = plan.is_late
    is_velocity = spec.action.control_mode is ControlMode.JOINT_VELOCITY
    if (
        waits
        and plan.loop.latency.waiting is Waiting.REPEAT
        and spec.action.target is not Target.DELTA
        and not is_velocity
    ):
        raise InputError(
            f"host {spec.name} takes position targets, and a position is kept, not repeated; say waiting = 'keep'"
        )
    check_spec_fits(plan, spec)
    for cell in plan.cells():
        host.check_cell(cell.task.name, stratum=cell.stratum.name, items=cell.items)
    for entry in plan.conditions:
        for rung in entry.rungs():
            applied = check_condition_fits(rung, host)
            waits = waits or applied.is_late
    if waits and spec.action.target is not Target.DELTA and Ability.HOLD not in host.abilities:
        raise InputError(
            f'host {spec.name} takes absolute targets and has no hold(), so it cannot be held while a policy thinks; '
            'give it hold(), or run with latency mode none in virtual time'
        )
    start: Action | None = None
    if Ability.HOLD in host.abilities:
        import numpy as np

        start = np.zeros(spec.action.width)
    Limiter(plan.loop.limits, spec.action, dt_s=1.0 / spec.control_rate_hz, start=start)
    check_filming(plan.recording, host)
    check_viewing(plan, host)


def check_spec_fits(plan: TrialPlan, spec: HostSpec) -> None:
    """Raise InputError if a host of this spec lacks a task of the plan, or if nobody can bring a condition about."""
    for task in plan.tasks:
        if spec.tasks and task.name not in spec.tasks:
            raise UnknownName(f'task of host {spec.name}', task.name, spec.tasks)
    for entry in plan.conditions:
        for rung in entry.rungs():
            share_condition(_drawn(rung, spec), spec)


def _drawn(entry: ConditionEntry, spec: HostSpec) -> Setup:
    name, parameters = draw_entry(entry, seed=0)
    if not parameters and name not in ('nominal', *spec.conditions):
        raise UnknownName(f'condition that host {spec.name} can bring about', name, spec.conditions)
    return Setup(task='', seed=0, condition=name, condition_parameters=parameters)


def check_condition_fits(entry: ConditionEntry, host: HostLike) -> AppliedCondition:
    """Raise InputError if neither the host nor the loop can bring a declared condition about."""
    return AppliedCondition.of(_drawn(entry, host.spec), as_host(host))


def check_policy_fits(
    plan: TrialPlan, host: HostLike, policy: Policy, *, name: str, shown: str, entry: PolicyEntry | None = None
) -> None:
    """Raise InputError, naming both sides, if a policy and the host do not fit; `shown` is the name to say.

    `entry` is what is behind a code of an operator's plan.
    """
    if isinstance(policy, FittedPolicy):
        policy.fit(host.spec)
    check_conventions(host.spec, policy.spec, policy_name=shown)
    execute = (entry or plan.policies[name]).execute
    if execute is not None and execute > policy.spec.chunk_length:
        raise InputError(
            f'policy {shown}: execute is {execute}, more than the {policy.spec.chunk_length} actions of its chunks'
        )
