"""Hosts and policies by name: built in, installed under an entry point, or ``module:attribute``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from robotrials.catalog import Catalog
from robotrials.errors import InputError, UnknownName
from robotrials.record import Store
from robotrials.run.arm_limit import Limiter
from robotrials.run.condition import AppliedCondition, draw_entry, share_condition
from robotrials.run.host import REQUIRED, Ability, Host, HostLike, as_host, check_maker
from robotrials.run.plan import ConditionEntry, HostEntry, PolicyEntry, TrialPlan, Waiting
from robotrials.run.recording import check_filming, check_viewing
from robotrials.run.seam import Action, ControlMode, FittedPolicy, HostSpec, Policy, Setup, Target, check_conventions
from robotrials.value import read_table

# Checkpoints as the plan names them: the files a policy was declared with are the files that it runs with.

Stamp = tuple[tuple[str, int, int, int], ...]


class CheckpointGuard:
    """Hashes a policy's checkpoints once, and again only when their size, time or inode has changed."""

    def __init__(self, checkpoints: Mapping[str, str], *, shown: str) -> None:
        self._wanted, self._shown = checkpoints, shown
        self._stamps: dict[str, Stamp] = {}

    def check(self) -> None:
        """Raise InputError, by the arm's code, if a checkpoint is not what the plan declares."""
        for number, (name, digest) in enumerate(self._wanted.items(), start=1):
            what = f'policy {self._shown}: checkpoint {number} of {len(self._wanted)}'
            try:
                stamp = _stamp(Path(name))
                if self._stamps.get(name) == stamp:
                    continue
                now = checkpoint_digest(Path(name))
            except OSError as error:
                raise InputError(f'{what} cannot be read ({error.strerror}); put it where the plan says') from error
            if now != digest:
                raise InputError(
                    f'{what} has SHA-256 {now[:12]}..., the plan declares {digest[:12]}...; nothing is run with it. '
                    'Put the declared one back, or declare a new trial'
                )
            self._stamps[name] = stamp


def checkpoint_digest(path: Path) -> str:
    """The SHA-256 of a file; of a folder, over the names and digests of all its files in order."""
    if not path.is_dir():
        with path.open('rb') as stream:
            return hashlib.file_digest(stream, 'sha256').hexdigest()
    total = hashlib.sha256()
    for file in _files(path):
        total.update(f'{file.relative_to(path).as_posix()}\0{checkpoint_digest(file)}\n'.encode())
    return total.hexdigest()


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob('*') if p.is_file()) if path.is_dir() else [path]


def _stamp(path: Path) -> Stamp:
    states = [(file, file.stat()) for file in _files(path)]
    return tuple((str(file), s.st_size, s.st_mtime_ns, s.st_ino) for file, s in states)


HOSTS = Catalog(
    'host',
    {
        'checkout': 'robotrials.worlds.checkout:checkout_host',
        'droid': 'robotrials.worlds.robot:DroidHost',
        'gymnasium': 'robotrials.worlds.gymnasium:gymnasium_host',
        'lerobot-robot': 'robotrials.worlds.robot:lerobot_robot_host',
        'libero': 'robotrials.worlds.libero:libero_host',
        'point-mass': 'robotrials.testing.policy:PointMassHost',
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
        'function': 'robotrials.policies.plain:FunctionPolicy',
        'groot': 'robotrials.policies.groot:GrootPolicy',
        'lerobot': 'robotrials.policies.lerobot:LeRobotPolicy',
        'lerobot-server': 'robotrials.policies.lerobot:LeRobotServerPolicy',
        'libero-scripted': 'robotrials.worlds.libero.scripted:ScriptedLiberoPolicy',
        'lookup': 'robotrials.study.probe_maker:LookupPolicy',
        'no_op': 'robotrials.policies.plain:NoOpPolicy',
        'openpi': 'robotrials.policies.openpi:OpenPiPolicy',
        'openvla': 'robotrials.policies.openvla:OpenVlaPolicy',
        'positronic': 'robotrials.policies.positronic:PositronicPolicy',
        'probe': 'robotrials.policies.probe:ProbePolicy',
        'random': 'robotrials.policies.plain:RandomPolicy',
        'replay': 'robotrials.policies.plain:ReplayPolicy',
        'roboarena': 'robotrials.policies.openpi:RoboArenaPolicy',
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


def declared_host(store: Store, purpose: str) -> HostEntry:
    """The host of a store's plan; InputError, with what it was wanted for, of a store without one."""
    if not store.trial.plan:
        raise InputError(f'{store.path}: holds no plan, so it does not say which host {purpose}')
    return read_table(HostEntry, json.loads(store.trial.plan)['host'], where=f'{store.path} [host]')


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
        options_of(maker).bind(**options)
    except TypeError as error:
        names = ', '.join(options_of(maker).parameters) or 'none'
        raise InputError(
            f'{catalog.kind} {use} does not take these options: {error}; its options are: {names}'
        ) from error
    except ValueError:
        pass  # a maker in C without a signature
    try:
        return maker(**options)
    except TypeError as error:
        raise InputError(f'{catalog.kind} {use} does not take these options: {error}') from error


def options_of(maker: Callable[..., object]) -> Signature:
    """What a maker takes, with the common options that a class hands on to its base (`**common: Unpack[...]`)."""
    own = signature(maker)
    parameters = list(own.parameters.values())
    if isinstance(maker, type) and parameters and parameters[-1].kind is Parameter.VAR_KEYWORD:
        handed_on = get_type_hints(maker.__init__).get(parameters[-1].name)  # type: ignore[misc]  # of this class
        if get_origin(handed_on) is Unpack:
            common = get_args(handed_on)[0].__annotations__
            parameters[-1:] = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in common]
    return own.replace(parameters=parameters)


def check_host_fits(plan: TrialPlan, host: HostLike) -> None:
    """Raise InputError if the host cannot do what the plan asks of it."""
    host = as_host(host)
    spec = host.spec
    waits = plan.is_late
    is_position = spec.action.target is not Target.DELTA and spec.action.control_mode is not ControlMode.JOINT_VELOCITY
    if waits and plan.loop.latency.waiting is Waiting.REPEAT and is_position:
        raise InputError(
            f"host {spec.name} takes position targets, and a position is kept, not repeated; say waiting = 'keep'"
        )
    check_spec_fits(plan, spec)
    for cell in plan.cells():
        host.check_cell(cell.task.name, stratum=cell.stratum.name, items=cell.items)
    for entry in plan.conditions:
        for rung in entry.rungs():
            waits |= AppliedCondition.of(_drawn(rung, spec), host).is_late  # InputError if nobody can bring it about
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
