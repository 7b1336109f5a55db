"""Predicted beside recorded actions, answers that are no action, and the named ways to score those."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.space import ActionSpace, FloatArray

BoolArray = NDArray[np.bool_]


class InvalidReason(enum.StrEnum):
    """Why an answer is no action (MultiNet section 4.1 names the middle four)."""

    EMPTY = 'empty'
    NO_LIST = 'no_list'  # no list of numbers in it
    WRONG_SIZE = 'wrong_size'
    TEXT_ELEMENT = 'text_element'
    MIXED_TEXT = 'mixed_text'  # a list inside other text
    NOT_SCALAR = 'not_scalar'
    NOT_FINITE = 'not_finite'
    UNPREDICTABLE = 'unpredictable'  # the model says that it can't act on this observation
    # Stores keep the place of a reason in this list: new ones go to the end.
    REFUSED = 'refused'
    CONTENT_FILTER = 'content_filter'  # a filter stepped in, before or after the model
    CUT_OFF = 'cut_off'  # the token limit ended the answer before it was an action


@dataclass(frozen=True, slots=True)
class Invalid:
    """An answer that is not a valid action."""

    reason: InvalidReason
    detail: str = ''


Prediction = FloatArray | Invalid


class InvalidChoice(enum.StrEnum):
    """How an invalid answer is scored."""

    RANDOM = 'random'  # uniform in [0, 1), seeded: the paper's way
    WORST = 'worst'  # the end of each dimension's range that is farther from the recorded action
    EXCLUDE = 'exclude'  # the timestep is left out


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PredictedEpisode:
    """What was predicted and what was recorded, (T, D) each.

    A row of NaN is an invalid answer; a column of NaN is a dimension that the model does not predict.
    """

    episode_id: str
    predicted: FloatArray
    target: FloatArray

    def __post_init__(self) -> None:
        for name in ('predicted', 'target'):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if self.target.ndim != 2 or self.target.size == 0:
            raise InputError(f'{self.episode_id}: target of shape {self.target.shape}, wanted (T, D) and not empty')
        if self.predicted.shape != self.target.shape:
            raise InputError(
                f'{self.episode_id}: predicted {self.predicted.shape} and target {self.target.shape} differ'
            )
        if not np.isfinite(self.target).all():
            raise InputError(f'{self.episode_id}: the recorded actions hold NaN or infinity')
        if np.isinf(self.predicted).any():
            raise InputError(
                f'{self.episode_id}: predicted actions hold infinity; an answer like that is invalid (NaN)'
            )
        missing = np.isnan(self.predicted[~self.invalid])
        if missing.size and (missing != missing[0]).any():
            raise InputError(f'{self.episode_id}: a dimension is predicted in some rows and NaN in others')

    @property
    def invalid(self) -> BoolArray:
        """Which timesteps have no valid answer, (T,)."""
        rows: BoolArray = np.asarray(np.isnan(self.predicted).all(axis=1))
        return rows

    @property
    def n_steps(self) -> int:
        return int(self.target.shape[0])

    @property
    def dimensions(self) -> tuple[int, ...] | None:
        """Which dimensions are predicted; None where every answer is invalid."""
        valid = self.predicted[~self.invalid]
        return None if not len(valid) else tuple(np.flatnonzero(~np.isnan(valid[0])).tolist())

    def select(self, dimensions: Sequence[int]) -> PredictedEpisode:
        chosen = list(dimensions)
        return dataclasses.replace(self, predicted=self.predicted[:, chosen], target=self.target[:, chosen])


def predicted_dimensions(episodes: Sequence[PredictedEpisode]) -> tuple[int, ...]:
    """The dimensions that every episode with a valid answer predicts; all of them if no answer is valid."""
    sizes = {e.target.shape[1] for e in episodes}
    if len(sizes) != 1:
        raise InputError(f'episodes of one run must share an action space, found {sorted(sizes)} dimensions')
    common = set(range(next(iter(sizes))))
    for episode in episodes:
        if episode.dimensions is not None:
            common &= set(episode.dimensions)
    if not common:
        raise InputError('no dimension is predicted in every episode')
    return tuple(sorted(common))


def resolve_invalid(
    episode: PredictedEpisode, choice: InvalidChoice | str, *, seed: int = 0, space: ActionSpace | None = None
) -> tuple[PredictedEpisode, BoolArray]:
    """The episode with its invalid rows filled by the named choice, and which timesteps are scored, (T,).

    The random fill depends on the seed and the episode's id alone, so that it is the same in any order of episodes.
    """
    choice = InvalidChoice(choice)
    invalid = episode.invalid
    if not invalid.any():
        return episode, np.ones(episode.n_steps, dtype=bool)
    if choice is InvalidChoice.EXCLUDE:
        return episode, ~invalid
    filled = episode.predicted.copy()
    if choice is InvalidChoice.RANDOM:
        rng = np.random.default_rng([seed, *_words(episode.episode_id)])
        filled[invalid] = rng.random(episode.target.shape)[invalid]
    else:
        filled[invalid] = _farthest(episode.target, space)[invalid]
    unpredicted = np.isnan(episode.predicted[~invalid]).any(axis=0) if (~invalid).any() else np.zeros(0, dtype=int)
    if unpredicted.size:
        filled[:, unpredicted] = np.nan
    return dataclasses.replace(episode, predicted=filled), np.ones(episode.n_steps, dtype=bool)


def _farthest(target: FloatArray, space: ActionSpace | None) -> FloatArray:
    if space is None:
        raise InputError("invalid='worst' needs the action space with its ranges")
    if space.size != target.shape[1]:
        raise InputError(f'an action space of {space.size} dimensions for actions of {target.shape[1]}')
    low, high = space.ranges()
    return np.where(np.abs(target - low) > np.abs(target - high), low, high)


def _words(text: str) -> list[int]:
    digest = hashlib.sha256(text.encode()).digest()
    return [int.from_bytes(digest[i : i + 4], 'little') for i in (0, 4, 8, 12)]


def as_row(prediction: Prediction, size: int) -> NDArray[Any]:
    """A prediction as a row of `size` numbers; NaN throughout if it is invalid."""
    if isinstance(prediction, Invalid):
        return np.full(size, np.nan)
    row = np.asarray(prediction, dtype=np.float64)
    if row.shape != (size,):
        raise InputError(f'a predictor gave an action of shape {row.shape}, wanted ({size},)')
    return row
