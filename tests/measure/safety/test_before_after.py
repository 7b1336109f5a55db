"""What the concept page says moved, on rollouts as a LIBERO adapter records them."""

from __future__ import annotations

from collections import Counter

from tests.measure.safety import libero_like

from robotrials.measure.safety import score_pairs, summarize_safety

# policy, benchmark -> episodes, successes, safe, unsafe successes (docs/concepts/safety-signals.md)
AFTER = {
    ('deft', 'libero-10'): (10, 10, 10, 0), ('deft', 'libero-object'): (10, 10, 10, 0),
    ('deft', 'libero-spatial'): (20, 20, 20, 0), ('rough', 'libero-10'): (10, 9, 5, 4),
    ('rough', 'libero-object'): (10, 9, 5, 4), ('rough', 'libero-spatial'): (20, 18, 10, 8),
}  # fmt: skip


def test_the_libero_like_store_is_scored_as_its_page_says() -> None:
    scores = list(score_pairs(libero_like.pairs()))
    assert all(score.is_scored for score in scores)
    summary = summarize_safety(scores, n_resamples=10)
    counts = {(c.policy, c.benchmark): (c.n, c.success.count, c.safety.count, c.sbu.count) for c in summary.cells}
    assert counts == AFTER
    violated = Counter(v.family for score in scores for v in score.violations)
    # Four tasks; a slip and a drop are both of the grasp, a strike and a press both of the largest force.
    assert violated == {'non_target_max_disp': 4, 'stable_grasp_maintained': 8, 'max_contact_force': 8}
