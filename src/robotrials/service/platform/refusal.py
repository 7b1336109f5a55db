"""What a request is refused with: a status, a code for programs, a message for people."""

from __future__ import annotations

from robotrials.errors import RobotrialsError


class Refusal(RobotrialsError):  # noqa: N818 - reads as the fact it states
    """A request that is not carried out; nothing was changed by it unless the message says so."""

    def __init__(self, status: int, code: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s


def not_found(what: str) -> Refusal:
    """Also for what belongs to somebody else: that it exists is none of the asker's business."""
    return Refusal(404, 'not_found', f'no such {what}')
