"""A host keeps its abilities and its bits in every wrapper; a wrapper that loses either is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.substep_host import SUBSTEPS, TickHost

from robotrials.errors import InputError, RigError
from robotrials.record import Outcome
from robotrials.run import Observation, Setup
from robotrials.run.conditions import condition_parameters as parameters_of
from robotrials.run.conditions import draw_condition
from robotrials.run.host import declared_abilities
from robotrials.run.plan import FilmOptions
from robotrials.run.seam import StepPart
from robotrials.testing.policy import PointMassHost
from robotrials.worlds import Ability, Host, HostWrapper, as_host, check_host, check_wrapper
from robotrials.worlds.cell.checked import CELL_BOUNDS_M, CheckedHost, PlannedCell
from robotrials.worlds.checkout import CheckoutHost
from robotrials.worlds.conformance import WRAPPERS, LoopbackHost
from robotrials.worlds.wrapper import DisturbedHost, GuardedHost, Interrupts, ToolWorkspace

CELL = {'cameras': ('front', 'side'), 'image_size': (48, 64), 'state': 'privileged'}


class Plain:
    """Only what a host must have."""

    def __init__(self) -> None:
        self._host = PointMassHost()
        self.spec = self._host.spec

    def reset(self, task: str, *, seed: int) -> Observation:
        return self._host.reset(task, seed=seed)

    def step(self, action: Any) -> Observation:
        return self._host.step(action)

    def outcome(self) -> Outcome | None:
        return self._host.outcome()


def guarded(host: Any, workspace: ToolWorkspace | None = None) -> GuardedHost:
    return GuardedHost(host, interrupts=Interrupts(), workspace=workspace)


def test_the_cell_is_the_same_in_every_wrapper() -> None:
    cell = PlannedCell(**CELL)  # type: ignore[arg-type]
    try:
        assert set(Ability) - cell.abilities == {Ability.STOP}
        check_host(cell, task='two_block', steps=4)
    finally:
        cell.close()


def test_a_checked_cell_is_the_cell() -> None:
    cell = PlannedCell(cameras=('front', 'side'), image_size=(120, 160))
    try:
        check_wrapper(lambda host: CheckedHost(host, cell.planned, bounds_m=CELL_BOUNDS_M), cell, task='two_block')
    finally:
        cell.close()


@pytest.mark.parametrize('name', WRAPPERS)
def test_a_wrapper_around_a_wrapper_keeps_everything(name: str) -> None:
    for inner in WRAPPERS.values():
        check_wrapper(lambda host, inner=inner: WRAPPERS[name](inner(host)), PointMassHost(camera_px=8), task='reach')  # type: ignore[misc]


def test_four_methods_are_a_host() -> None:
    host = as_host(Plain())
    assert host.abilities == frozenset()
    assert (host.substeps, host.film_cameras, host.has_views, host.things()) == (1, (), False, None)
    check_host(Plain(), task='reach', steps=5)
    assert as_host(host) is host
    with pytest.raises(InputError, match='cannot bring about condition drift'):
        host.prepare(Setup(task='reach', seed=0, condition='drift'))
    with pytest.raises(InputError, match='cannot draw'):
        host.film(FilmOptions())
    with pytest.raises(InputError, match='object has not all of spec, reset, step and outcome'):
        as_host(object())


def test_a_plain_object_keeps_what_it_has_and_a_half_ability_is_none() -> None:
    host = as_host(TickHost())
    assert host.abilities == {Ability.HOLD, Ability.SIGNALS, Ability.SUBSTEPS}
    assert host.substeps == SUBSTEPS

    class Half(Plain):
        substeps = 10  # of its own, and no step_through

    assert as_host(Half()).abilities == frozenset()
    assert as_host(Half()).substeps == 1


class Forgetful(HostWrapper):
    """Knows less than the host inside."""

    @property
    def abilities(self) -> frozenset[Ability]:
        return super().abilities - {Ability.SUBSTEPS, Ability.THINGS}


class Boastful(HostWrapper):
    @property
    def abilities(self) -> frozenset[Ability]:
        return super().abilities | {Ability.STOP}


class Meddling(HostWrapper):
    """Changes the last bit of one signal."""

    def signals(self) -> Mapping[str, Any]:
        pose = np.array(self._host.signals()['ee_pose'])
        return {**self._host.signals(), 'ee_pose': np.nextafter(pose, np.inf)}


@pytest.mark.parametrize(
    ('wrap', 'message'),
    [
        (Forgetful, r'Forgetful around host tabletop: lost step_through, things'),
        (Boastful, r'Boastful around host tabletop: claims stop'),
        (Meddling, r'Meddling around host tabletop: signals\(\) 0, .*not as the host itself gives it'),
    ],
)
def test_a_wrapper_that_loses_boasts_or_meddles_is_named(wrap: Callable[[Host], Host], message: str) -> None:
    cell = PlannedCell()
    with pytest.raises(InputError, match=message):
        check_wrapper(wrap, cell, task='two_block')


def test_a_host_that_only_the_wrapper_can_break_is_caught() -> None:
    class Peculiar(PointMassHost):
        """Says of itself what no message can carry."""

        def things(self) -> Any:
            return frozenset({1})

    check_host(PointMassHost(), task='reach', steps=3)
    with pytest.raises(InputError, match=r'things\(\) gave frozenset.*cannot cross to another environment'):
        check_host(Peculiar(), task='reach', steps=3)


def test_parts_of_a_step_cross_as_they_are() -> None:
    inner = TickHost()
    host = LoopbackHost(inner)
    host.reset('any', seed=0)
    host.step_through([StepPart(0, np.array([1.0]), SUBSTEPS), StepPart(4, np.array([2.0]), 14)])
    assert inner.in_force == [1.0] * 4 + [2.0] * 6


def test_a_disturbed_part_of_a_step_is_disturbed() -> None:
    """A step in two parts shows what a whole step shows: the condition lies over both."""
    cell = PlannedCell(conditions=(), **CELL)  # type: ignore[arg-type]
    noise = draw_condition('sensor_noise', 1.0, seed=1)
    setup = Setup(
        task='two_block', seed=1, condition='sensor_noise', condition_parameters=parameters_of(noise)
    )  # fmt: skip
    host = DisturbedHost(cell)
    try:
        host.prepare(setup)
        host.reset('two_block', seed=1)
        rest, n = host.hold(), host.substeps
        seen = host.step_through([StepPart(0, rest, n), StepPart(5, rest, n)]).images['front']
        cell.reset('two_block', seed=1)
        plain = cell.step_through([StepPart(0, rest, n), StepPart(5, rest, n)]).images['front']
        assert not np.array_equal(seen, plain)
    finally:
        cell.close()


class Sliding(PointMassHost):
    """A point mass that takes actions over in ten substeps."""

    @property
    def substeps(self) -> int:
        return SUBSTEPS

    def step_through(self, parts: Sequence[StepPart]) -> Observation:
        ends = [*(part.start for part in parts[1:]), SUBSTEPS]
        shares = [(end - part.start) / SUBSTEPS for part, end in zip(parts, ends, strict=True)]
        return self.step(np.sum([s * p.action for s, p in zip(shares, parts, strict=True)], axis=0))


def test_a_guard_keeps_the_workspace_within_a_step_and_says_what_was_carried_out() -> None:
    host = guarded(Sliding(table_m=9.0), ToolWorkspace((-0.2, -0.2, -1.0), (0.2, 0.2, 1.0), slack_m=0.001))
    host.reset('reach', seed=1)
    for _ in range(12):
        fast, still = np.array([0.5, 0.0, 0.0]), np.zeros(3)
        host.step_through([StepPart(0, fast, SUBSTEPS), StepPart(5, still, SUBSTEPS)])
        assert host.signals()['ee_pose'][0] <= 0.2 + 1e-12
        assert abs(host.signals()['action_processed'][0]) < 0.2
    assert host.outcome() is None
    assert len(host.step_times_s) == 12


def test_a_guard_stops_within_a_step() -> None:
    interrupts = Interrupts()
    host = GuardedHost(Sliding(), interrupts=interrupts)
    start = host.reset('reach', seed=1)
    interrupts.stop.set()
    parts = [StepPart(0, np.ones(3), SUBSTEPS), StepPart(5, np.ones(3), SUBSTEPS)]
    np.testing.assert_array_equal(host.step_through(parts).state, start.state)
    assert host.outcome() is Outcome.SAFETY_STOP
    assert host.signals() == {}, 'an arm that was stopped is not asked'
    assert host.report().reason == 'emergency stop'
    interrupts.stop.clear()
    interrupts.lost.set()
    host.reset('reach', seed=1)
    with pytest.raises(RigError, match='taken the lease back'):
        host.step_through(parts)


def test_a_declaration_tells_what_a_host_can_do_without_opening_it() -> None:
    assert declared_abilities(Plain) == frozenset()
    assert Ability.VIEWS in (declared_abilities(PlannedCell) or ())
    for silent in (Host, HostWrapper, GuardedHost, LoopbackHost, None):
        assert declared_abilities(silent) is None


def test_the_base_class_is_not_a_host_by_itself() -> None:
    with pytest.raises(TypeError, match='abstract'):
        Host()  # type: ignore[abstract]


def test_a_wrapper_forwards_all_that_a_host_has() -> None:
    public = {name for name in vars(Host) if not name.startswith('_')} - {'forwards'}
    assert public <= set(vars(HostWrapper)), 'a new ability of hosts would be lost in every wrapper'


def test_no_wrapper_is_without_a_check() -> None:
    """Every wrapper is one of those that the kit puts around any host, or is a host of its own and checked as such."""
    own = {CheckedHost, CheckoutHost}
    ours = {kind for kind in HostWrapper.__subclasses__() if kind.__module__.startswith('robotrials.')}
    made = {type(wrap(PointMassHost())) for wrap in WRAPPERS.values()}
    assert ours - own <= made
    check_wrapper(
        lambda host: CheckoutHost(host, benchmark='calvin', checkout=Path('no-checkout')), PointMassHost(), task='reach'
    )
