"""Families of tasks on robosuite are data, and what is wrong with them is found before a simulator is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.measure.safety import load_registry
from robotrials.worlds.robosuite import family_names, read_family, robocasa_host, robosuite_host


def test_robocasa_has_the_tasks_of_the_safety_registry() -> None:
    registry = load_registry()
    wanted = {*registry.tasks('robocasa-365'), *registry.tasks('robocasa-pnp')}
    assert set(read_family('robocasa').tasks) == wanted


@pytest.mark.parametrize('name', family_names())
def test_families_are_whole(name: str) -> None:
    family = read_family(name)
    assert family.control_rate_hz == 20.0
    for task, entry in family.tasks.items():
        assert family.task(task) is entry
        assert entry.instruction or family.imports  # a kitchen says its words itself


def test_mistakes_are_found_outside() -> None:
    with pytest.raises(UnknownName, match="did you mean 'wrist'"):
        robosuite_host(cameras=['wrst'])
    with pytest.raises(UnknownName, match="no task named 'Lyft'"):
        read_family('robosuite').task('Lyft')
    with pytest.raises(UnknownName, match="did you mean 'robosuite'"):
        robosuite_host(benchmark='robosuit')
    with pytest.raises(InputError, match='image_size'):
        robosuite_host(image_size=[64])
    with pytest.raises(InputError, match='step_cap'):
        robosuite_host(step_cap=0)
    with pytest.raises(InputError, match=r'no-such-recipe\.toml: no such file; wanted a recipe'):
        robocasa_host(environment='no-such-recipe.toml')


def test_a_family_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / 'mine.toml'
    file.write_text('control_rate_hz = 20.0\nstep_cap = 9\nrobot = "Sawyer"\n[tasks.Lift]\ntargets = ["cube"]\n')
    assert read_family(str(file)).task('Lift').targets == ('cube',)
    file.write_text('control_rate_hz = 20.0\nstep_cap = 9\nrobt = "Sawyer"\n[tasks.Lift]\n')
    with pytest.raises(InputError, match="did you mean 'robot'"):
        read_family(str(file))
