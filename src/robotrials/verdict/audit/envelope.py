"""The exact range of the paired Wald denominator that two top-line counts leave open.

Q = sum over tasks of (s_t - d_t^2 / S), with d_t and s_t the sum and the sum of squares of a task's paired score
differences. T tasks, S samples a task, scores 0..R; A and A + L are the two total scores. Everything is in integers,
as S Q. Derivations: docs/concepts/topline-envelope.md. The oracle is tests/verdict/audit/dynamic_program.py.
"""

from __future__ import annotations

from robotrials.errors import InputError


def scaled_q_low(gap: int, *, samples: int) -> int:
    """The least S Q of any paired table with this count gap: r (S - r), r = |L| mod S (Appendix C.3)."""
    residue = abs(gap) % samples
    return residue * (samples - residue)


def scaled_q_high(count_a: int, gap: int, *, tasks: int, samples: int, max_score: int = 1) -> int:
    """The greatest S Q of any paired table with totals A and A + L (Appendix C.4), by the cheapest exact form.

    O(1) for binary scores and for one task; otherwise a dynamic program over a window whose size depends on R only.
    Q does not change when the two policies are swapped, so a negative gap is read from the other side.
    """
    if gap < 0:
        count_a, gap = count_a + gap, -gap
    most = max_score * tasks * samples
    if not 0 <= count_a <= most - gap:
        raise InputError(f'counts {count_a} and {count_a + gap} do not both lie in 0..{most} (R T S)')
    if max_score == 1:
        return _binary(count_a, gap, tasks, samples)
    headroom = min(count_a, most - count_a - gap)
    if tasks == 1:
        return _one_task(headroom, gap, samples, max_score)
    from robotrials.verdict.audit.window import windowed_q_high

    return windowed_q_high(headroom, gap, tasks=tasks, samples=samples, max_score=max_score)


def _binary(count_a: int, gap: int, tasks: int, samples: int) -> int:
    excess = abs(2 * count_a + gap - samples * tasks)
    k, r = divmod(gap, tasks)
    odd = r if (k - samples) % 2 == 0 else tasks - r
    return samples * (samples * tasks - excess) - balanced_squares(gap, tasks) - max(0, odd - excess)


def _one_task(headroom: int, gap: int, samples: int, max_score: int) -> int:
    down = min(headroom, most_downward(gap, samples, max_score))
    return samples * (packed(gap + down, max_score) + packed(down, max_score)) - gap * gap


def balanced_squares(total: int, parts: int) -> int:
    """The least sum of squares of `parts` integers with this sum: as equal as can be."""
    k, r = divmod(total, parts)
    return parts * k * k + r * (2 * k + 1)


def packed(movement: int, max_score: int) -> int:
    """The greatest sum of squares of parts in 0..R that sum to `movement`: q R^2 + r^2 (Pi_R of the paper)."""
    whole, rest = divmod(movement, max_score)
    return whole * max_score * max_score + rest * rest


def most_downward(gap: int, samples: int, max_score: int) -> int:
    """The greatest j with ceil((L + j) / R) + ceil(j / R) <= S, for 0 <= L <= R S."""
    whole, rest = divmod(gap, max_score)
    free = samples - whole
    if rest == 0:
        return max_score * (free // 2)
    pairs, left = divmod(free - 1, 2)
    return pairs * max_score + (max_score - rest if left else 0)


def relaxed_q_high(count_a: int, gap: int, *, tasks: int, samples: int, max_score: int = 1) -> int:
    """An upper bound of `scaled_q_high` that is concave in the gap, so that it can be searched by halves.

    S R min(2 A + L, 2 (R N - A) - L) - E(L): whole movements only, and the gap spread evenly over the tasks.
    """
    most = max_score * tasks * samples
    movement = min(2 * count_a + gap, 2 * (most - count_a) - gap)
    return samples * max_score * movement - balanced_squares(gap, tasks)
