"""A plan is declared, checked, hashed, and refused when it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import robotrials as command
from tests.run.plans import FAST, SLOW, make_plan

from robotrials.errors import InputError, StoreError
from robotrials.run import read_plan, run_trial, summarize_plan
from robotrials.run.component import check_host_fits, open_policy
from robotrials.run.host import Host
from robotrials.run.plan import PolicyEntry, plan_from_json
from robotrials.run.recording import check_viewing
from robotrials.testing.policy import PointMassHost
from robotrials.worlds.cell import TabletopHost

MINIMAL = """
seed = 3
host = "point-mass"
tasks = ["reach"]
episodes_per_cell = 5
time_cap_s = 10
[policies]
a = "seek"
b = {use = "seek", options = {speed_m_s = 0.9}}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / 'trial.toml'
    path.write_text(text)
    return path


def test_a_short_file_is_a_whole_plan(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, MINIMAL))
    assert [cell.name for cell in plan.cells()] == ['reach / nominal']
    assert plan.policies['b'].options == {'speed_m_s': 0.9}


@pytest.mark.parametrize(
    ('old', 'new', 'message'),
    [
        ('seed = 3', 'sead = 3', "no key 'sead': did you mean 'seed'"),
        ('use = "seek"', 'us = "seek"', "policies.b: no key 'us': did you mean 'use'"),
        ('episodes_per_cell = 5', '', 'either episodes_per_cell or a \\[power\\] target'),
        ('time_cap_s = 10', 'time_cap_s = 10\ntime_cap_per_item_s = 3', 'either time_cap_s or time_cap_per_item_s'),
        ('time_cap_s = 10', 'time_cap_per_item_s = 3', 'task reach has no items'),
        ('time_cap_s = 10', 'time_cap_s = -1', 'the time cap is -1.0 s, wanted > 0'),
        ('seed = 3', 'seed = 3\nreference = "c"', "no policy \\(the reference\\) named 'c'"),
        ('seed = 3', 'seed = "x"', "seed is 'x', wanted a whole number"),
        ('seed = 3', 'seed = 3\nscenes = "matchd"', "scenes is 'matchd': did you mean 'matched'"),
        ('tasks = ["reach"]', 'tasks = ["reach", "reach"]', 'task reach is declared twice'),
        ('tasks = ["reach"]', 'tasks = ["reach"]\nnuisance = {side = ["left"]}', 'wanted two or more different levels'),
        ('[policies]', '[loop.latency]\nnetwork_s = 0.1\n[policies]', "injected latencies want mode = 'injected'"),
        ('seed = 3', 'seed = = 3', 'not TOML'),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = MINIMAL.replace(old, new)
    with pytest.raises(InputError, match=message) as caught:
        read_plan(written(tmp_path, text))
    assert 'trial.toml' in str(caught.value)


def test_layout_and_order_do_not_change_the_hash_and_every_value_does(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, MINIMAL))
    shuffled = MINIMAL.replace('seed = 3', '').replace('time_cap_s = 10', 'time_cap_s = 10.0 # s\nseed = 3')
    assert read_plan(written(tmp_path, shuffled)).hash == plan.hash
    for old, new in [('seed = 3', 'seed = 4'), ('0.9', '0.91'), ('= 5', '= 6'), ('"reach"', '"lift"')]:
        assert read_plan(written(tmp_path, MINIMAL.replace(old, new))).hash != plan.hash


def test_a_plan_survives_the_way_to_a_worker() -> None:
    plan = make_plan(nuisance={'side': ['l', 'r']}, strata=['a', {'name': 'b', 'items': 1}])
    assert plan_from_json(plan.as_json()) == plan
    assert plan_from_json(plan.as_json()).hash == plan.hash


def test_caps_per_item_follow_the_items() -> None:
    plan = make_plan(time_cap_s=None, time_cap_per_item_s=30.0, strata=['a', {'name': 'b', 'items': 5}])
    assert [cell.time_cap_s for cell in plan.cells()] == [60.0, 150.0]


def test_a_power_target_gives_the_rules_number_spread_over_the_cells() -> None:
    plan = make_plan(episodes_per_cell=None, power={'difference': 0.05, 'discordance': 0.1}, strata=['a', 'b'])
    assert plan.episodes_in_a_cell() == 153  # 305 pairs by McNemar's mid-p (Connor's formula has 312) over two cells
    assert summarize_plan(plan).n_episodes == 153 * 2 * 2
    assert summarize_plan(plan).resolvable_difference == pytest.approx(0.05, abs=1e-3)


def test_a_power_target_without_its_assumption_is_refused() -> None:
    with pytest.raises(InputError, match='wants discordance'):
        make_plan(episodes_per_cell=None, power={'difference': 0.05}).episodes_in_a_cell()
    with pytest.raises(InputError, match='wants success_rate'):
        make_plan(episodes_per_cell=None, power={'difference': 0.05}, scenes='independent').episodes_in_a_cell()


def test_a_run_under_a_changed_plan_is_refused_and_says_what_changed(tmp_path: Path) -> None:
    run_trial(make_plan(), tmp_path / 's', workers=0, stop_after=1)
    with pytest.raises(StoreError, match=r'another plan.*changed: time_cap_s'):
        run_trial(make_plan(time_cap_s=5.0), tmp_path / 's', workers=0)
    other = make_plan(policies={FAST: 'seek', SLOW: {'use': 'seek', 'options': {'speed_m_s': 0.6}}})
    with pytest.raises(StoreError, match='changed: policies, reference or blinding') as caught:
        run_trial(other, tmp_path / 's', workers=0)
    assert FAST not in str(caught.value)
    assert str(caught.value).endswith('; name another store')


def test_a_store_in_which_a_mistake_ended_the_run_may_be_removed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='does not take these options'):
        run_trial(
            make_plan(policies={FAST: 'seek', SLOW: {'use': 'seek', 'options': {'sped': 1}}}), tmp_path / 's', workers=0
        )
    with pytest.raises(StoreError, match='no episode was run under it: remove it, or name another store'):
        run_trial(make_plan(), tmp_path / 's', workers=0)


def test_a_name_in_the_open_parts_of_a_blinded_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='would unblind the trial'):
        run_trial(make_plan(tasks=[f'reach with {FAST}']), tmp_path / 's', workers=0)
    with pytest.raises(InputError, match='holds the name of a policy'):
        run_trial(make_plan(), tmp_path / SLOW, workers=0)


def test_an_unknown_host_condition_or_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no host named 'point-mas': did you mean 'point-mass'"):
        run_trial(make_plan(host='point-mas'), tmp_path / 'a', workers=0)
    with pytest.raises(InputError, match="no condition that host point-mass can bring about named 'drifft'"):
        run_trial(make_plan(conditions=['drifft']), tmp_path / 'b', workers=0)
    with pytest.raises(InputError, match='does not take these options'):
        run_trial(make_plan(host={'use': 'point-mass', 'options': {'colour': 1}}), tmp_path / 'c', workers=0)


def test_a_missing_option_is_named_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match="'temper'; its options are: temper"):
        open_policy(PolicyEntry('scripted'))


def test_a_policy_card_is_declared_with_the_policy_and_a_wrong_field_is_named(tmp_path: Path) -> None:
    card = '{checkpoint = "step 30000", image_resolution_px = [224, 224]}'
    text = MINIMAL.replace('a = "seek"', f'a = {{use = "seek", card = {card}}}')
    plan = read_plan(written(tmp_path, text))
    assert plan.policies['a'].card == {'checkpoint': 'step 30000', 'image_resolution_px': [224, 224]}
    assert plan_from_json(plan.as_json()) == plan
    with pytest.raises(InputError, match="did you mean 'checkpoint'"):
        read_plan(written(tmp_path, text.replace('checkpoint', 'checkpont')))


@pytest.mark.parametrize(
    ('card', 'said'),
    [
        ('{checkpoint = 5}', 'checkpoint is 5, wanted text'),
        ('{notes = 2026-05-27}', 'notes is .*wanted text'),
        ('{chunk_length = "x"}', 'wanted a whole number'),
        ('{chunk_length = true}', 'wanted a whole number'),
        ('{training_steps = nan}', 'wanted a whole number'),
        ('{image_resolution_px = 5}', 'wanted width and height'),
        ('{image_resolution_px = [1, 2, 3]}', 'wanted width and height'),
    ],
)
def test_a_value_that_a_card_can_not_hold_is_named(tmp_path: Path, card: str, said: str) -> None:
    text = MINIMAL.replace('a = "seek"', f'a = {{use = "seek", card = {card}}}')
    with pytest.raises(InputError, match=said):
        read_plan(written(tmp_path, text))


@pytest.mark.parametrize('value', ['nan', '-inf', '2026-05-27', '[1, nan]'])
def test_a_value_that_can_not_be_hashed_is_named(tmp_path: Path, value: str) -> None:
    text = MINIMAL.replace('a = "seek"', f'a = {{use = "seek", options = {{speed = {value}}}}}')
    with pytest.raises(InputError, match=r'policies\.a\.options\.speed'):
        read_plan(written(tmp_path, text))


def test_every_policy_of_the_catalogue_says_what_it_is() -> None:
    from robotrials.cli.policies import ABOUT
    from robotrials.run.component import POLICIES

    assert set(POLICIES.builtin) <= set(ABOUT)


def test_a_task_that_the_host_does_not_know_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no task of host tabletop named 'single_blok': did you mean 'single_block'"):
        run_trial(make_plan(host='tabletop', tasks=['single_blok']), tmp_path / 's', workers=0)


@pytest.mark.parametrize(
    ('latency', 'match'),
    [
        ({'network_s': -1}, 'network_s is -1.0, wanted 0 to 86400'),
        ({'network_s': 1e308}, 'network_s is 1e.308, wanted 0 to 86400'),
        ({'network_s': {'low_s': 0, 'high_s': 1e308}}, 'high_s 1e.308, wanted'),
        ({'jitter': 1e200}, 'jitter is 1e.200, wanted 0 to 10'),
        ({'inference_s': 10**400}, 'inference_s'),
        ({'repeat_s': 10**400}, 'repeat_s is inf, wanted a finite number'),
    ],
)
def test_latencies_that_no_episode_can_meet_are_refused(latency: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        make_plan(loop={'latency': {'mode': 'injected', **latency}})


def test_success_by_cameras_is_refused_where_no_view_could_be_kept(tmp_path: Path) -> None:
    text = f'{MINIMAL}\n[analysis]\nsuccess = "reconstruction"\n'
    with pytest.raises(InputError, match=r"recording.rgbd is 'off', so that no view would be kept"):
        read_plan(written(tmp_path, f'{text}[recording]\nrgbd = "off"\n'))
    plan = read_plan(written(tmp_path, text))
    for blind in (PointMassHost(), TabletopHost(cameras=('front',), watchers=())):
        with pytest.raises(InputError, match=f'host {blind.spec.name} keeps no calibrated RGB-D views.* say success'):
            check_viewing(plan, blind)
    check_viewing(plan, TabletopHost(cameras=('front',)))
    beside = read_plan(written(tmp_path, text.replace('"reconstruction"', '"both"')))
    check_viewing(beside, PointMassHost())  # the host's own success counts
    with pytest.raises(InputError, match='keeps no calibrated RGB-D views'):
        check_host_fits(plan, PointMassHost())


def promised_host() -> Host:
    return PointMassHost()


def unsaid_host():  # type: ignore[no-untyped-def]
    return PointMassHost()


def test_plan_refuses_success_by_cameras_in_another_environment_without_opening_it(tmp_path: Path) -> None:
    text = f'{MINIMAL}\n[analysis]\nsuccess = "reconstruction"\n'
    for use in ('libero', 'robosuite', 'robocasa', 'point-mass'):
        path = written(tmp_path, text.replace('point-mass', use))
        assert f'host {use} keeps no calibrated RGB-D views' in command('plan', path, code=2)
    for use in ('promised_host', 'unsaid_host'):  # only an open host can tell
        path = written(tmp_path, text.replace('point-mass', f'tests.run.test_plan:{use}'))
        assert 'plan hash' in command('plan', path)
    assert 'plan hash' in command('plan', written(tmp_path, MINIMAL.replace('point-mass', 'libero')))
    watched = text.replace('"point-mass"', '{use = "libero", options = {watchers = ["top"]}}')
    assert 'plan hash' in command('plan', written(tmp_path, watched))
