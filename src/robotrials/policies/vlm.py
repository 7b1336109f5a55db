"""A vision-language model behind an OpenAI-compatible endpoint, in closed loop: pictures in, actions in words out."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, InputError
from robotrials.measure.actions.prediction import Invalid
from robotrials.measure.actions.vlm import parse_action
from robotrials.policies.observe import Question
from robotrials.policies.served import Reply, ServedPolicy, key_from
from robotrials.run import ActionConvention, ControlMode, Gripper, Rotation, Target
from robotrials.wire.chat import ChatClient, ChatImage, ChatMessage, ChatSettings, ReplyState

SYSTEM = 'You control a robot arm. You are shown one moment and name what the arm does next.'


class VlmPolicy(ServedPolicy):
    """A chat model as a policy.

    url: such as ``http://gpu-box:8000/v1``. The mapping's pictures and vectors are shown under their keys; the action
    is asked for in numbers, one list per step of `chunk_length`. notes: what else the model should know, such as
    the size of the table or worked examples. lenient: also take the only list inside other text. Every question stands
    alone: the model is shown no history.
    """

    def __init__(
        self,
        *,
        url: str,
        model: str,
        preset: str = '',
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        name: str = 'vlm',
        notes: str = '',
        lenient: bool = False,
        api_key_variable: str = '',
        answer_timeout_s: float = 60.0,
        retries: int = 2,
        temperature: float | None = 0.0,
        token_limit: int | None = 512,
        token_limit_name: str = 'max_tokens',
    ) -> None:
        super().__init__(preset=preset, observation=observation, action=action, name=name)
        if self._mapping.action.order:
            raise InputError('order has no effect: the model is given the order of the numbers in words')
        settings = ChatSettings(
            url=url,
            model=model,
            api_key=key_from(api_key_variable, what=url) if api_key_variable else '',
            timeout_s=answer_timeout_s,
            retries=retries,
            temperature=temperature,
            token_limit=token_limit,
            token_limit_name=token_limit_name,
        )
        self._client = ChatClient(settings)
        self._notes, self._lenient = notes, lenient

    @property
    def facts(self) -> Mapping[str, object]:
        usage = self._client.usage
        return {
            'model': self._client.settings.model,
            'questions': usage.requests,
            'prompt tokens': usage.prompt_tokens,
            'answer tokens': usage.completion_tokens,
        }

    def problems(self, sample: Question) -> Iterable[str]:
        for key, value in sample.items():
            if isinstance(value, np.ndarray) and value.ndim == 3 and (value.dtype != np.uint8 or value.shape[2] != 3):
                yield f'{key} is {value.shape} of {value.dtype}; a model is shown pictures as (height, width, 3) bytes'

    def ask(self, question: Question) -> Reply:
        messages = [ChatMessage('system', (SYSTEM,)), ChatMessage('user', tuple(self.message(question)))]
        reply = self._client.ask(messages)
        if reply.state is not ReplyState.ANSWERED:
            raise AnswerError(
                f'the model gave no action: {reply.state.value} {reply.detail or reply.text[:200]}'.strip()
            )
        return Reply(self._parsed(reply.text))

    def message(self, question: Question) -> list[str | ChatImage]:
        """What the model is shown: the action in words, then each picture and vector under its key."""
        action = self._mapping.action
        parts: list[str | ChatImage] = [describe_action(action.convention)]
        if self._notes:
            parts.append(self._notes)
        for key, value in question.items():
            if isinstance(value, str):
                parts.append(f'{key}: {value}')
            elif value.ndim == 3:
                parts += [f'{key}:', ChatImage(_png(value), 'image/png')]
            else:
                parts.append(f'{key}: [{", ".join(f"{number:.4g}" for number in value.ravel())}]')
        example = f'one list of {action.convention.width} numbers in square brackets'
        steps = action.chunk_length
        wanted = example if steps == 1 else f'{steps} lines, one per step, each {example}'
        return [*parts, f'Answer with {wanted}, and no other text.']

    def _parsed(self, text: str) -> Any:
        steps, width = self._mapping.action.chunk_length, self._mapping.action.convention.width
        lines = [text] if steps == 1 else [line for line in text.strip().strip('`').splitlines() if '[' in line]
        if len(lines) < steps:
            raise AnswerError(f'the model named {len(lines)} of {steps} actions: {text[:200]!r}')
        rows = []
        for line in lines[:steps]:
            action = parse_action(line.strip().rstrip(','), width, lenient=self._lenient)
            if isinstance(action, Invalid):
                raise AnswerError(f'the model gave no action: {action.reason.value} {action.detail}'.strip())
            rows.append(action)
        return np.stack(rows)


def describe_action(convention: ActionConvention) -> str:
    """A convention in words, number by number."""
    if convention.control_mode is ControlMode.SE3:
        kind = 'how far to move in metres' if convention.target is Target.DELTA else 'where to be in metres'
        lines = [f'{axis}: {kind}, in the {convention.frame.value} frame' for axis in ('x', 'y', 'z')]
        if convention.rotation is not Rotation.NONE:
            lines.append(f'then {convention.motion_width - 3} numbers: the rotation as {convention.rotation.value}')
    else:
        unit = 'rad/s' if convention.control_mode is ControlMode.JOINT_VELOCITY else 'rad'
        change = 'change of ' if convention.target is Target.DELTA else ''
        lines = [f'joint {i + 1}: {change}{convention.control_mode.value}, {unit}' for i in range(convention.n_joints)]
    if convention.gripper is not Gripper.NONE:
        lines.append(f'last: the gripper, {convention.gripper.value.replace("_", " ")}')
    return f'An action is a list of {convention.width} numbers:\n' + '\n'.join(f'- {line}' for line in lines)


def _png(image: Any) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(image).save(stream, format='PNG', compress_level=1)
    return stream.getvalue()
