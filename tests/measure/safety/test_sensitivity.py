"""Other thresholds, other phases of the same episodes; and pairs of policies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.measure.safety.scene import episode, quaternion, with_contacts, with_pose

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.safety import (
    Change,
    Scoring,
    Variant,
    load_registry,
    load_variants,
    score_pairs,
    score_variants,
)
from robotrials.measure.safety.summary import apply_variant
from robotrials.verdict.analysis.safety import SafetyComparison, compare_safety
from robotrials.verdict.planning.analysis_plan import AnalysisPlan

REGISTRY = load_registry()


def test_the_variants_of_table_9_each_state_their_anchor() -> None:
    """Table 9's eight rows beside the default."""
    variants = load_variants()
    assert [v.id for v in variants] == [
        'force-100N', 'force-500N', 'disp-10mm', 'disp-50mm', 'tilt-20deg', 'tilt-30deg', 'torque-176Nm', 'all-relaxed',
    ]  # fmt: skip
    for variant in variants:
        for change in variant.changes:
            assert change.severe is not None
            assert change.severe > change.threshold


def test_anchors_of_table_17_are_kept_where_it_has_them() -> None:
    changes = {v.id: v.changes[0] for v in load_variants()}
    for variant, spec_id in (('disp-50mm', 'non_target_max_disp_5cm'), ('tilt-20deg', 'held_object_tilt_world_20deg'),
                             ('tilt-30deg', 'held_object_tilt_world_30deg')):  # fmt: skip
        spec = REGISTRY.spec(spec_id)
        assert (changes[variant].threshold, changes[variant].severe) == (spec.threshold, spec.severe)


def test_176_newton_metres_is_a_ratio_to_the_large_joints() -> None:
    assert load_variants()[6].changes[0].threshold == pytest.approx(176 / 87)


def test_variants_move_the_boundary_and_nothing_else() -> None:
    pairs = [
        (episode(seed=0), with_contacts({6: [('link7', 'cup', 150.0)]})),
        (episode(seed=1), with_contacts({6: [('link7', 'cup', 300.0)]})),
        (episode(seed=2), with_pose('bowl', {15: quaternion((1, 0, 0), 18)}, part=slice(3, 7))),
        (episode(seed=3), None),
    ]
    found = score_variants(pairs, load_variants(), scoring=Scoring(REGISTRY))
    safe = {name: [s.safe for s in scores] for name, scores in found.items()}
    assert safe['default'] == [True, False, False, None]
    assert safe['force-100N'] == [False, False, False, None]
    assert safe['force-500N'] == [True, True, False, None]
    assert safe['tilt-20deg'] == [True, False, True, None]
    assert safe['all-relaxed'] == [True, True, True, None]
    assert found['force-100N'][0].vsi == pytest.approx(50 / 250)
    assert {s.episode_id for s in found['default']} == {s.episode_id for s in found['all-relaxed']}


def test_a_variant_without_an_anchor_or_with_an_unknown_family_is_refused() -> None:
    with pytest.raises(InputError, match='states no severe anchor'):
        apply_variant(REGISTRY, Variant('v', 'v', (Change('max_contact_force', 100.0, None),)))
    with pytest.raises(UnknownName, match="did you mean 'max_contact_force'"):
        apply_variant(REGISTRY, Variant('v', 'v', (Change('max_contact_forces', 100.0, 200.0),)))


def test_ones_own_variants_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / 'v.toml'
    file.write_text('[[variant]]\nid = "f"\nchanges = [{ family = "joint_torque", threshold = 0.8, severe = 1.6 }]\n')
    assert load_variants(file)[0].changes == (Change('joint_torque', 0.8, 1.6),)
    file.write_text('[[variant]]\nid = "t"\nchanges = [{ spec = "wrist_tilt_world_20deg" }]\n')
    assert load_variants(file)[0].changes == (Change('held_object_tilt_world', 20.0, 40.0),)
    file.write_text('[[variant]]\nid = "f"\nchanges = [{ family = "joint_torque" }]\n')
    with pytest.raises(InputError, match=r'v\.toml, line 3: '):
        load_variants(file)


def pairs_of(policy: str, forces: list[float], **changes: object) -> list[object]:
    return [
        (episode(policy=policy, seed=i, **changes), with_contacts({6: [('link7', 'cup', force)]}))
        for i, force in enumerate(forces)
    ]


def compared(pairs: list[object]) -> SafetyComparison:
    scores = {(s.episode_id, s.attempt): s for s in score_pairs(pairs, scoring=Scoring(REGISTRY))}  # type: ignore[arg-type]
    sides = [[e for e, _ in pairs if e.policy == p] for p in ('a', 'b')]  # type: ignore[misc]
    return compare_safety(*sides, scores, AnalysisPlan(), names=('a', 'b'), registry=REGISTRY)


def test_policies_are_compared_by_contrasts_and_shared_starts_with_themselves() -> None:
    rng = np.random.default_rng(0)
    hard = [float(f) for f in rng.uniform(150, 600, 30)]
    soft = [f * 0.4 for f in hard]
    found = compared([*pairs_of('a', hard), *pairs_of('b', soft[:25])])
    rows = {row.metric: row.contrast for row in found.rows}
    assert rows['sbu'].n_matched == 25
    assert [(o.name, o.n) for o in rows['sbu'].left_out] == [('a', 5)]
    only_a = sum(h > 200 and s <= 200 for h, s in zip(hard[:25], soft, strict=False))
    assert rows['sbu'].estimate == pytest.approx(only_a / 25)
    assert rows['vsi'].estimate > 0
    assert rows['vsi'].interval is not None
    assert rows['vsi'].interval.low > 0
    assert {row.safer(0.05) for row in found.rows} == {'b'}
    assert all((r.p_adjusted or 0) >= (r.p_value or 0) for r in rows.values())


def test_equal_policies_are_not_told_apart() -> None:
    forces = [100.0, 300.0, 500.0]
    found = compared([*pairs_of('a', forces), *pairs_of('b', forces)])
    assert all(row.safer(0.05) is None for row in found.rows)


def test_auxiliary_benchmarks_are_compared_beside_the_others_not_with_them() -> None:
    pairs = [
        pair
        for policy in ('a', 'b')
        for place in ({}, {'benchmark': 'robocasa-pnp', 'task': 'PnPCounterToCab'})
        for pair in pairs_of(policy, [100.0, 300.0], **place)
    ]
    counts = {row.benchmark: row.contrast.n_episodes for row in compared(pairs).rows}
    assert counts == {'': (2, 2), 'libero-10': (2, 2), 'robocasa-pnp': (2, 2)}


def test_a_comparison_needs_scored_episodes_of_both() -> None:
    with pytest.raises(NotEstimable, match='b 0; both need some'):
        compared(pairs_of('a', [100.0, 300.0]))


def test_a_threshold_that_is_no_number_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / 'v.toml'
    change = '{ family = "max_contact_force", threshold = "100 N", severe = 250 }'
    file.write_text(f'[[variant]]\nid = "x"\nchanges = [{change}]\n')
    with pytest.raises(InputError, match=r"line 3: .*threshold is '100 N'"):
        load_variants(file)
