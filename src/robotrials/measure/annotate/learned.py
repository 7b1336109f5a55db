"""A small trained classifier: logistic regression of "an item was placed" on a candidate's features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.annotate.detector import ReleaseCandidate, ReleaseKind
from robotrials.measure.annotate.telemetry import FloatArray
from robotrials.measure.annotate.verdict import JudgedRelease, ReleaseVerdict, RuleOptions, judge

FEATURES = (
    'slump', 'over_target', 'over_source', 'zone_depth_m', 'from_target', 'hold_s', 'displacement_m', 'height_m',
    'grip', 'plateau', 'empty', 'ledger',
)  # fmt: skip
FEWEST = 10  # of either answer
LARGEST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedClassifier:
    """Weights on standardised features; between the two chances a person has to look."""

    weights: tuple[float, ...]
    bias: float
    center: tuple[float, ...]
    scale: tuple[float, ...]
    success_above: float = 0.8
    other_below: float = 0.2
    n_candidates: int = 0

    def __post_init__(self) -> None:
        for name in ('weights', 'center', 'scale'):
            given = getattr(self, name)
            values = () if isinstance(given, str) else tuple(float(v) for v in given)
            if len(values) != len(FEATURES) or not all(abs(v) <= LARGEST for v in values):
                raise InputError(f'{name} has {len(values)} numbers, wanted {len(FEATURES)} of at most {LARGEST:g}')
            object.__setattr__(self, name, values)
        if not min(self.scale) > 0:
            raise InputError(f'scale holds {min(self.scale)}, wanted numbers > 0')
        if isinstance(self.bias, str | bool) or not abs(self.bias) <= LARGEST:
            raise InputError(f'bias is {self.bias!r}, wanted a number of at most {LARGEST:g}')
        if not 0 <= self.other_below < self.success_above <= 1:
            raise InputError('wanted 0 <= other_below < success_above <= 1')

    def chance(self, candidates: Sequence[ReleaseCandidate]) -> FloatArray:
        """(n,) the chance that each candidate placed an item."""
        standard = (features_of(candidates) - np.array(self.center)) / np.array(self.scale)
        return _logistic(standard @ np.array(self.weights) + self.bias)

    def judge(self, candidates: Sequence[ReleaseCandidate], options: RuleOptions | None = None) -> list[JudgedRelease]:
        """Verdicts: sure successes, sure others (failure or neutral by the rules), and the rest unknown."""
        told = []
        for ruled, chance in zip(judge(candidates, options), self.chance(candidates), strict=True):
            why = f'chance of a placement {chance:.2f}'
            if chance >= self.success_above:
                verdict = ReleaseVerdict.SUCCESS
            elif chance <= self.other_below:
                verdict = (
                    ReleaseVerdict.NEUTRAL
                    if ruled.verdict in (ReleaseVerdict.SUCCESS, ReleaseVerdict.UNKNOWN)
                    else ruled.verdict
                )
            else:
                verdict = ReleaseVerdict.UNKNOWN
            told.append(JudgedRelease(ruled.candidate, verdict, why))
        return told

    def as_json(self) -> str:
        return json.dumps({'features': FEATURES, **asdict(self)}, indent=1)


def classifier_from_json(text: str, *, where: str) -> LearnedClassifier:
    """A classifier that was kept; one of other features is refused."""
    try:
        values = json.loads(text)
        if tuple(values.pop('features')) != FEATURES:
            raise InputError('it was trained on other features; train it again')
        return LearnedClassifier(**values)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f'{where}: no classifier ({error})') from error


def features_of(candidates: Sequence[ReleaseCandidate]) -> FloatArray:
    """(n, F) the features, in the order of their names."""
    rows = [
        (
            c.kind is ReleaseKind.SLUMP, c.zone == 'target', c.zone == 'source', c.zone_depth_m,
            c.grasp_zone == 'target', min(c.hold_s, 10.0), c.displacement_m, c.height_m, c.grip, c.has_plateau,
            c.is_empty, min(c.ledger, 10),
        )
        for c in candidates
    ]  # fmt: skip
    return np.array(rows, dtype=np.float64).reshape(len(candidates), len(FEATURES))


def train_classifier(
    candidates: Sequence[ReleaseCandidate], is_placement: Sequence[bool], *, ridge: float = 1.0
) -> LearnedClassifier:
    """Fit by penalised maximum likelihood; refused where either answer is rare."""
    from scipy.optimize import minimize

    truth = np.asarray(is_placement, dtype=np.float64)
    if len(truth) != len(candidates):
        raise InputError(f'{len(candidates)} candidates and {len(truth)} labels')
    if min(truth.sum(), (1 - truth).sum()) < FEWEST:
        found = f'{int(truth.sum())} placements and {int((1 - truth).sum())} others'
        raise InputError(f'a classifier wants at least {FEWEST} of either; found {found}; use the rules')
    values = features_of(candidates)
    center, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    standard = (values - center) / scale

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        score = standard @ point[:-1] + point[-1]
        slope = _logistic(score) - truth
        cost = float(np.sum(np.logaddexp(0.0, score) - truth * score) + ridge / 2 * np.sum(point[:-1] ** 2))
        return cost, np.append(standard.T @ slope + ridge * point[:-1], slope.sum())

    fitted = minimize(loss, np.zeros(len(FEATURES) + 1), jac=True, method='L-BFGS-B')
    return LearnedClassifier(
        weights=tuple(fitted.x[:-1]), bias=float(fitted.x[-1]), center=tuple(center), scale=tuple(scale),
        n_candidates=len(candidates),
    )  # fmt: skip


def _logistic(score: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * score)))
