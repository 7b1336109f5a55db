"""The overfitting diagnostic from plan to reading, on a world where a change is known to hurt."""

import numpy as np
import pytest

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.policies.probe import DemonstrationWriter, EpisodeFacts
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.study.overfit import (
    OverfitChange,
    OverfitPlan,
    count_training,
    run_overfit,
    start_places,
    tabletop_changes,
)
from robotrials.value import read_toml
from robotrials.verdict.audit.overfit import DropReading, read_overfit

PLAN = """
task = "reach"
grid = 12
repeats = 2
fresh = 24
time_cap_s = 6.0

[host]
use = "point-mass"

[policies.seek]
use = "seek"

[[changes]]
name = "wind"
condition = "drift"
parameters = { x_m_s = 0.7 }

[[changes]]
name = "reversed instruction"
condition = "instruction"
severity = 1.0

[training]
total = 100
counts = { official = 40, wind = 35 }
basis = "demonstrations in wind, by their labels"
"""


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp('overfit')
    (folder / 'plan.toml').write_text(PLAN)
    plan = read_toml(OverfitPlan, folder / 'plan.toml')
    return plan, folder, run_overfit(plan, folder / 'work', workers=0)


def readings(found):
    return {row.change: found.reading(row) for row in found.rows}


def test_a_change_that_hurts_and_was_trained_on_is_overfitting_and_a_fresh_sample_is_not(run):
    _, _, found = run
    assert readings(found) == {'wind': DropReading.OVERFITTING, 'fresh sample': DropReading.NO_DROP}
    wind = next(row for row in found.rows if row.change == 'wind')
    assert (wind.n, wind.n_starts) == ((24, 24), (12, 12))
    assert wind.drop > 0.8


def test_the_starts_behind_each_drop_are_measured(run):
    """The wind keeps the grid's starts; a fresh sample draws its own, as widely."""
    _, _, found = run
    assert set(found.starts) == {'wind', 'fresh sample'}
    assert all('from the middle of the baseline starts the arm' in told for told in found.starts.values())
    assert found.still == ()


def test_what_the_host_cannot_change_is_said_and_not_counted(run):
    _, _, found = run
    assert list(found.missing) == ['reversed instruction']
    assert 'cannot bring about instruction' in found.missing['reversed instruction']


def test_it_resumes_and_its_file_is_the_result(run):
    plan, folder, found = run
    assert run_overfit(plan, folder / 'work', workers=0) == found
    assert read_overfit(folder / 'work' / 'overfit.json') == found


def test_a_policy_that_answers_wrongly_has_no_drop(tmp_path):
    """Counted as failures, its faults would look like overfitting wherever they happen more often."""
    faulty = PolicyEntry('robotrials.testing.policy:FaultyPolicy', {'fault': 'shape'})
    plan = OverfitPlan(task='reach', host=HostEntry('point-mass'), policies={'p': faulty}, grid=2, repeats=1, fresh=2)
    with pytest.raises(NotEstimable, match='came to nothing'):
        run_overfit(plan, tmp_path / 'work', workers=0)
    assert not (tmp_path / 'work' / 'overfit.json').exists()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'name': 'official', 'task': 'a'}, 'meaning of its own'),
        ({'name': 'both', 'task': 'a', 'condition': 'light'}, 'either a task or a condition'),
        ({'name': 'none'}, 'either a task or a condition'),
        ({'name': '../elsewhere', 'task': 'a'}, 'a folder has its name'),
    ],
)
def test_a_change_that_is_none_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        OverfitChange(**change)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (('wind = 35', 'wnd = 35'), "did you mean 'wind'"),
        (('name = "wind"', 'name = "fresh-sample"'), 'wanted each once, spaces as hyphens'),
        (('grid = 12', 'level = 1.5'), 'level must be'),
        (('grid = 12', 'least_share = -1.0'), 'least_share is -1.0'),
        (('condition = "drift"', 'condition = "dirft"'), "did you mean 'drift'"),
    ],
)
def test_a_mistake_in_the_plan_shows_before_anything_runs(tmp_path, change, message):
    path = tmp_path / 'plan.toml'
    path.write_text(PLAN.replace(*change, 1))
    with pytest.raises(InputError, match=message):
        run_overfit(read_toml(OverfitPlan, path), tmp_path / 'work', workers=0)
    assert not (tmp_path / 'work').exists()


def test_an_unknown_task_of_the_host_is_refused_before_anything_runs(tmp_path):
    plan = OverfitPlan(
        task='single_blok', host=HostEntry('tabletop'), policies={'p': PolicyEntry('no_op')},
        changes=tabletop_changes('x'),
    )  # fmt: skip
    with pytest.raises(UnknownName, match='single_block'):
        run_overfit(plan, tmp_path / 'work', workers=0)


def test_the_cells_own_changes_keep_the_start_states():
    names = [change.name for change in tabletop_changes('choose_red')]
    assert names == ['resampled poses', 'reversed instruction', 'changed support']


def test_demonstrations_are_counted_by_words_and_places(tmp_path):
    """Three demonstrations: one as the official condition begins, one in other words, one elsewhere."""
    from robotrials.policies.probe.collect import using_host
    from robotrials.study.evaluate import start_setups
    from robotrials.study.overfit import CALIBRATION, _runs, _start

    plan = OverfitPlan(
        task='choose_red', host=HostEntry('tabletop'), policies={'p': PolicyEntry('no_op')}, grid=2, fresh=0,
        changes=(OverfitChange(name='reversed instruction', task='choose_green'),),
    )  # fmt: skip
    runs, _ = _runs(plan)
    with using_host(plan.host) as host:
        places, words = _start(host, start_setups(runs[CALIBRATION])[0])
        action = host.spec.action
    poses = np.concatenate([np.concatenate([p, [1.0, 0, 0, 0]]) for p in places[:-1]])
    begins = np.concatenate([poses, places[-1]])
    assert start_places(begins) == pytest.approx(places)
    with DemonstrationWriter(tmp_path / 'd', action=action, control_rate_hz=20.0, source={}) as writer:
        for text, shift in ((words, 0.01), (words.replace('red', 'green'), 0.01), (words, 0.2)):
            start = begins.copy()
            start[-3] += shift
            writer.append(
                EpisodeFacts(task=text, instruction=text), images={}, state=np.zeros((2, 1)),
                action=np.zeros((2, action.width)), start_state=start,
            )  # fmt: skip
        made = writer.finish()
    counted = count_training(plan, made, runs)
    assert counted.total == 3
    assert dict(counted.counts) == {'official': 1, 'reversed instruction': 1}
