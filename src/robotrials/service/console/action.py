"""What a page asks of the desk, and how it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robotrials.errors import RobotrialsError, StoreError
from robotrials.service.console.account import TEXT, Account


class Action(BaseModel):
    """What a page asks for. `id` is of the episode under way for all but an undo, which has its own."""

    model_config = ConfigDict(extra='forbid')
    kind: Literal['draft', 'record', 'withdraw', 'undo']
    id: str = Field(pattern='^[0-9a-f]{32}$')
    key: str = Field(pattern='^[0-9a-f]{8,64}/[0-9]{1,6}$')
    revision: int = Field(default=0, ge=0)
    account: Account | None = None
    why: str = Field(default='', max_length=TEXT)

    @property
    def name(self) -> str:
        """What it is answered under, once."""
        return f'{self.kind} {self.id}'


class Refusal(RobotrialsError):  # noqa: N818 - reads as the fact it states
    """An action that cannot be carried out; `field` is where the page says so."""

    def __init__(self, why: str, *, field: str = '', is_conflict: bool = False) -> None:
        super().__init__(why)
        self.field, self.is_conflict = field, is_conflict


def read_action(body: Mapping[str, Any], *, where: Path) -> Action:
    """An action back from the journal."""
    try:
        return Action.model_validate(body)
    except ValidationError as error:
        told = error.errors()[0]['msg']
        raise StoreError(f'{where}: an action that this version does not know ({told})') from error


def parse_key(key: str) -> tuple[str, int]:
    """The episode's id and attempt, of the form that pages use."""
    episode_id, _, attempt = key.partition('/')
    return episode_id, int(attempt)
