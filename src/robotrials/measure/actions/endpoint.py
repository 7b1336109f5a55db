"""A prompt put to a chat model, and its reply as text or as the named reason why there is none."""

from __future__ import annotations

from robotrials.measure.actions.parse import parse_action
from robotrials.measure.actions.prediction import Invalid, InvalidReason, Prediction
from robotrials.measure.actions.prompt import Prompt
from robotrials.wire.chat import ChatClient, ChatMessage, ChatReply, ReplyState

REASONS = {
    ReplyState.REFUSED: InvalidReason.REFUSED,
    ReplyState.FILTERED: InvalidReason.CONTENT_FILTER,
    ReplyState.EMPTY: InvalidReason.EMPTY,
}


def prompt_messages(prompt: Prompt) -> tuple[ChatMessage, ...]:
    """The messages of a prompt."""
    return ChatMessage('system', (prompt.system,)), ChatMessage('user', prompt.parts)


def ask_action(client: ChatClient, prompt: Prompt, *, size: int, lenient: bool = False) -> Prediction:
    """The action that the model states, or why it states none; ChatFault where the way to the model broke."""
    return action_of(client.ask(prompt_messages(prompt)), size=size, lenient=lenient)


def action_of(reply: ChatReply, *, size: int, lenient: bool = False) -> Prediction:
    """The action of a reply. An answer that was cut off counts if it is a whole action all the same."""
    if reply.state in REASONS:
        return Invalid(REASONS[reply.state], reply.detail[:80])
    found = parse_action(reply.text, size, lenient=lenient)
    if reply.state is ReplyState.CUT_OFF and isinstance(found, Invalid):
        return Invalid(InvalidReason.CUT_OFF, found.detail)
    return found
