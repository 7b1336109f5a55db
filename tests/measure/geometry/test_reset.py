from __future__ import annotations

import numpy as np
import pytest
from tests.measure.geometry.test_reconstruct import BLUE, RED, block, views_of

from robotrials.errors import InputError
from robotrials.measure.geometry import ObjectModel, check_reset
from robotrials.testing.scene import PaintedBox

SIZE = (0.04, 0.06, 0.03)
PLAN = {'red': block(0.05, 0.0, yaw=0.3, size=SIZE), 'blue': block(-0.08, 0.06, size=SIZE)}
MODELS = [ObjectModel('red', RED, SIZE), ObjectModel('blue', BLUE, SIZE)]


def seen(red, blue) -> list:
    return views_of([PaintedBox(b, c) for b, c in ((red, RED), (blue, BLUE)) if b is not None])


def test_a_scene_as_planned_may_start() -> None:
    check = check_reset(seen(PLAN['red'], PLAN['blue']), PLAN, models=MODELS)
    assert check.is_as_planned
    assert check.reason == ''
    assert all(c.iou is not None and c.iou > 0.8 for c in check.objects)


@pytest.mark.parametrize(
    ('red', 'fault'),
    [(block(0.08, 0, yaw=0.3, size=SIZE), 'moved'), (block(0.05, 0, yaw=1.0, size=SIZE), 'turned'), (None, 'missing')],
)
def test_a_scene_that_is_not_says_what_is_wrong(red: object, fault: str) -> None:
    check = check_reset(seen(red, PLAN['blue']), PLAN, models=MODELS)
    assert not check.is_as_planned
    assert [c.fault for c in check.objects] == [fault, None]
    assert check.reason.startswith(f'reset: red {fault}')


def test_a_half_turn_of_a_block_is_no_fault() -> None:
    turned = block(0.05, 0, yaw=0.3 + np.pi, size=SIZE)
    assert check_reset(seen(turned, PLAN['blue']), PLAN, models=MODELS).is_as_planned


def test_an_object_without_a_model_is_refused() -> None:
    with pytest.raises(InputError, match='no model of red'):
        check_reset([], PLAN, models=MODELS[1:])
