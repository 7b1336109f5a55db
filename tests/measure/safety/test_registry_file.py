"""A registry file of one's own: added where it is right, refused with the line and the reason where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from robotrials.errors import InputError
from robotrials.measure.safety import load_registry

GOOD = """\
# A lab's own cell.
[[tag]]
id = "near_glass"
class = "mechanism"

[[signal]]
id = "glass_distance_m"
unit = "m"

[[spec]]
id = "keep_off_the_glass_5cm"
family = "keep_off_the_glass"
tier = "safe"
axis = "scene interaction"
stl = "always (glass_distance_m > {threshold})"
threshold = 0.05
severe = 0.06
unit = "m"
requires_all = ["near_glass"]
invalid_if_any = []

[[template]]
id = "shelf-pick"
tags = ["near_glass", "held_target"]

[[benchmark]]
id = "our-cell"
signal_tags = ["max_contact_force_signal"]

[[task]]
id = "shelf"
benchmark = "our-cell"
template = "shelf-pick"

[[task_family]]
pattern = "shelf_*"
benchmark = "our-cell"
components = ["shelf-pick", "pnp-basic"]
"""


def write(path: Path, text: str) -> Path:
    file = path / 'mine.toml'
    file.write_text(text, encoding='utf-8')
    return file


def line_of(text: str, words: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if words in line)


def test_a_file_adds_a_benchmark_a_task_and_a_spec(tmp_path: Path) -> None:
    registry = load_registry(write(tmp_path, GOOD))
    assert [spec.id for spec in registry.active('our-cell', 'shelf')] == ['keep_off_the_glass_5cm']
    assert 'max_contact_force' in {spec.family for spec in registry.active('our-cell', 'shelf_top')}
    assert len(registry.tasks('libero-goal')) == 10


@pytest.mark.parametrize(
    ('old', 'new', 'reason'),
    [
        ('requires_all = ["near_glass"]', 'requires_all = ["near_glas"]', "unknown tag 'near_glas'.*'near_glass'"),
        ('unit = "m"\nrequires', 'requires', 'threshold 0.05 has no unit'),
        ('severe = 0.06', 'severe = 0.04', 'severe anchor 0.04 m is not above the threshold 0.05 m'),
        ('id = "keep_off_the_glass_5cm"', 'id = "joint_torque"', "duplicate spec id 'joint_torque'.*limits.toml, line"),
        ('stl = "always (glass_distance_m >', 'stl = "always (glass_distanc_m >', "unknown signal 'glass_distanc_m'"),
        ('stl = "always (glass', 'stl = "allways (glass', 'STL formula, character'),
        ('{threshold})', '0.05)', 'does not say where'),
        ('unit = "m"\nrequires', 'unit = "mm"\nrequires', "unit is 'mm', but its signals are in m"),
        ('tier = "safe"', 'tier = "saef"', "tier is 'saef': did you mean 'safe'"),
        ('threshold = 0.05', 'threshold = "5 cm"', "threshold is '5 cm', wanted a number"),
        ('threshold = 0.05', 'treshold = 0.05', "no field 'treshold': did you mean 'threshold'"),
        ('severe = 0.06\n', '', 'severe is missing'),
        ('class = "mechanism"', 'class = "mechanics"', "class is 'mechanics'"),
        ('template = "shelf-pick"', 'template = "shelf-pik"', "no template 'shelf-pik': did you mean 'shelf-pick'"),
        ('template = "shelf-pick"', '', 'either a template or components'),
        ('signal_tags = ["max_contact_force_signal"]', 'signal_tags = ["held_target"]', 'a tag of class mechanism'),
        ('id = "shelf"\nbenchmark = "our-cell"', 'id = "shelf"\nbenchmark = "our-cel"', "no benchmark 'our-cel'"),
        ('[[task_family]]', '[[task_famly]]', "no table named 'task_famly'"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_the_line_and_the_reason(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    with pytest.raises(InputError, match=f'(?s)mine.toml, line [0-9]+: .*{reason}'):
        load_registry(write(tmp_path, text))


@pytest.mark.parametrize(
    ('old', 'new', 'at'),
    [
        ('requires_all = ["near_glass"]', 'requires_all = [\n  "near_glass",\n  "nope",\n]', 'requires_all'),
        ('severe = 0.06', 'severe = 0.04', 'severe = 0.04'),
        ('unit = "m"\nrequires', 'requires', 'threshold = 0.05'),
        ('id = "shelf"\n', 'id = "shelf"\nnote = 3\n', 'note = 3'),
        ('tags = ["near_glass", "held_target"]', 'tags = ["near_glass", "held_targets"]', 'held_targets'),
    ],
)  # fmt: skip
def test_the_line_is_that_of_the_fault(tmp_path: Path, old: str, new: str, at: str) -> None:
    text = GOOD.replace(old, new, 1)
    with pytest.raises(InputError, match=f'mine.toml, line {line_of(text, at)}: '):
        load_registry(write(tmp_path, text))


def test_duplicates_within_a_file_name_both_lines(tmp_path: Path) -> None:
    text = GOOD + '\n[[task]]\nid = "shelf"\nbenchmark = "our-cell"\ntemplate = "pnp-basic"\n'
    first, second = line_of(text, '[[task]]'), len(text.splitlines()) - 2
    with pytest.raises(InputError, match=f"line {second}: duplicate task id 'shelf'.*line {first}"):
        load_registry(write(tmp_path, text))


def test_what_is_no_toml_or_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'not TOML.*line 2'):
        load_registry(write(tmp_path, '[[tag]]\nid = \n'))
    with pytest.raises(InputError, match='cannot be read'):
        load_registry(tmp_path / 'none.toml')


def test_headers_inside_text_are_not_headers(tmp_path: Path) -> None:
    text = GOOD.replace('[[template]]', '[[template]]\nmeaning = """\n[[spec]]\nid = "x"\n"""', 1)
    broken = text.replace('severe = 0.06', 'severe = 0.01')
    load_registry(write(tmp_path, text))
    with pytest.raises(InputError, match=f'line {line_of(broken, "severe = 0.01")}: '):
        load_registry(write(tmp_path, broken))
