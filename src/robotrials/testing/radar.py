"""Episodes with the counts of RADAR's Table 3: what a store of that trial would hold, as far as the table tells."""

from __future__ import annotations

from robotrials.record import Episode, Outcome

SPLITS = (('SingleBlock', 4), ('TwoBlock', 10), ('ThreeBlock', 10), ('Spatial', 8))
Cell = tuple[int, float | None, float | None]  # successes, mean IoU and mean translational error (cm) of successes
NONE: Cell = (0, None, None)
TABLE_3: dict[str, tuple[Cell, ...]] = {
    'nominal': ((4, 0.5216, 1.08), (4, 0.4608, 1.88), (6, 0.4816, 1.67), (3, 0.1261, 3.8)),
    'light': ((2, 0.5676, 0.97), NONE, (2, 0.4365, 1.95), NONE),
    'robot_state': ((4, 0.5145, 1.13), (3, 0.5072, 1.33), (5, 0.4584, 1.74), NONE),
    'instruction': ((3, 0.3351, 2.26), (2, 0.3849, 2.85), NONE, NONE),
    'background': (NONE, NONE, NONE, NONE),
    'sensor_noise': ((2, 0.3677, 1.93), (1, 0.3972, 1.52), (1, 0.4713, 1.68), NONE),
    'exposure+': ((1, 0.5409, 1.02), NONE, (1, 0.4411, 1.92), NONE),
    'exposure-': ((1, 0.5743, 0.76), NONE, (1, 0.4027, 2.36), NONE),
}


def radar_episodes(policy: str = 'pi0.5') -> list[Episode]:
    """Every success has its split's mean IoU; failures have none, as in the paper. Scenes are not shared."""
    found = []
    for number, (condition, cells) in enumerate(TABLE_3.items()):
        for (split, n), (successes, iou, error_cm) in zip(SPLITS, cells, strict=True):
            for i in range(n):
                is_good = i < successes
                labels = {}
                if is_good and error_cm is not None:
                    labels = {'score_kind': 'iou_3d', 'translation_error_m': repr(error_cm / 100)}
                found.append(
                    Episode(
                        policy=policy,
                        task=split,
                        stratum=split,
                        outcome=Outcome.SUCCESS if is_good else Outcome.FAILURE,
                        duration_s=30.0,
                        condition=condition,
                        condition_parameters={} if condition == 'nominal' else {'severity': 1.0},
                        seed=100 * number + i,
                        score=iou if is_good else None,
                        max_score=1.0 if is_good else None,
                        labels=labels,
                    )
                )
    return found
