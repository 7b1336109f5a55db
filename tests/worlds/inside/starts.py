"""Start states: the benchmark's own, fresh ones, and those under conditions."""

from __future__ import annotations

import json
import sys

from robotrials.errors import RobotrialsError
from robotrials.run.conditions import condition_parameters, draw_condition
from robotrials.run.seam import Setup
from robotrials.worlds.libero.host import LiberoHost
from robotrials.worlds.libero.start import CollisionCheck, Start, changed_state, goal_atoms

ASSETS = sys.argv[1]

host = LiberoHost(suite='libero-object', assets=ASSETS)


def start(condition='nominal', parameters=None, instance=0, seed=3):
    named = {'condition': condition, 'condition_parameters': parameters or {}}
    host.prepare(Setup(task='task_2', seed=seed, instance=instance, **named))
    host.reset('task_2', seed=seed)
    known = host.signals()
    objects = {name: pose[:3].tolist() for name, pose in known['body_pose'].items()}
    return {'objects': objects, 'joints': known['joint_position_rad'].tolist()}


def drawn(name, severity):
    return name, condition_parameters(draw_condition(name, severity, seed=3))


report = {
    'nominal': start(),
    'other_seed': start(seed=4),
    'instance': start(instance=1),
    'fresh': start('fresh_start'),
    'fresh_again': start('fresh_start'),
    'fresh_other': start('fresh_start', seed=4),
    'layout': start(*drawn('layout', 1.0)),
    'robot_state': start(*drawn('robot_state', 0.4)),
}
problem = host._env.env.parsed_problem
placed = [atom for atom in problem['initial_state'] if atom[0] == 'on' and atom[2] in problem['regions']]
report['regions'] = {atom[1]: problem['regions'][atom[2]]['ranges'][0] for atom in placed}


def refused(**given):
    try:
        host.prepare(Setup(task=given.pop('task', 'task_2'), seed=3, **given))
        host.reset('task_2', seed=3)
    except RobotrialsError as error:
        return str(error)


wrong = ({'instance': 50}, {'task': 'task_10'}, {'condition': 'rain'}, {'condition': 'layout'})
report['refused'] = [refused(**given) for given in wrong]
host.close()

# On this task most draws within the regions put the bowl into the plate.
spatial = LiberoHost(suite='libero-spatial', assets=ASSETS)
spatial.reset('task_0', seed=0)
env = spatial._env.env
root = env.sim.model._model.body_rootid[env.sim.model._model.geom_bodyid]
bowl, plate = (
    env.sim.model.body_name2id(env.objects_dict[name].root_body) for name in ('akita_black_bowl_1', 'plate_1')
)


def bowl_in_plate_m(seed):
    """Read from the simulation itself, right after the start state was set."""
    start_of = Start.of(Setup(task='task_0', seed=seed, condition='layout', condition_parameters=drawn_with(seed)))
    spatial._env.set_init_state(changed_state(env, spatial._init_state(0, 0), start_of))
    depths = [-c.dist for c in env.sim.data._data.contact if {root[g] for g in c.geom} == {bowl, plate}]
    return float(max(depths, default=0.0))


def drawn_with(seed):
    return condition_parameters(draw_condition('layout', 1.0, seed=seed))


report['checked_m'] = [bowl_in_plate_m(seed) for seed in range(10)]
look, CollisionCheck.clashes = CollisionCheck.clashes, lambda self, state: []
report['unchecked_m'] = [bowl_in_plate_m(seed) for seed in range(10)]
spatial.close()

# On this one a tenth of the draws starts the arm in the caddy.
study = LiberoHost(suite='libero-10', assets=ASSETS)
study.reset('task_5', seed=0)
env = study._env.env
arm = env.sim.model.body_name2id(env.robots[0].robot_model.root_body)
root = env.sim.model._model.body_rootid[env.sim.model._model.geom_bodyid]


def arm_in_anything_m(seed):
    """Read from the simulation itself; of the nominal start state it is 0."""
    given = condition_parameters(draw_condition('robot_state', 1.0, seed=seed))
    start_of = Start.of(Setup(task='task_5', seed=seed, condition='robot_state', condition_parameters=given))
    study._env.set_init_state(changed_state(env, study._init_state(5, 0), start_of))
    return float(max((-c.dist for c in env.sim.data._data.contact if arm in {root[g] for g in c.geom}), default=0.0))


report['arm_unchecked_m'] = [arm_in_anything_m(seed) for seed in range(40)]
CollisionCheck.clashes = look
report['arm_checked_m'] = [arm_in_anything_m(seed) for seed in range(40)]
study.close()
ninety = LiberoHost(suite='libero-90', assets=ASSETS)
ninety.reset('task_89', seed=0)
report['ninety'] = [ninety.instruction(), list(ninety.cast.targets), ninety.protocol().step_cap]
from libero.libero.envs.bddl_utils import robosuite_parse_problem  # noqa: E402 - LIBERO is set up first


def described(number):
    """Name, words, and how many objects the goal does not move, from LIBERO's own files."""
    task = ninety._benchmark.get_task(number)
    problem = robosuite_parse_problem(ninety._benchmark.get_task_bddl_file_path(number))
    objects = {name for names in problem['objects'].values() for name in names}
    return [task.name, task.language, len(objects - {atom[1] for atom in goal_atoms(problem['goal_state'])})]


report['ninety_tasks'] = [described(number) for number in range(90)]
print('RESULT' + json.dumps(report))
