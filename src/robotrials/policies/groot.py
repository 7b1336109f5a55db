"""GR00T's inference servers: ZeroMQ request and reply, msgpack, three generations of frames.

`kill`, which stops the server, is never sent.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError, SetupError
from robotrials.policies.mapping import ServedOptions, check_moments
from robotrials.policies.observe import Question
from robotrials.policies.served import MAX_TOLD, Reply, ServedPolicy, decoded, key_from, map_answer
from robotrials.run import Setup
from robotrials.run.seam import enum_value
from robotrials.wire.array import pack_groot, unpack_groot
from robotrials.wire.link import Deadline, keep_trying
from robotrials.wire.request import RequestLink

PING_S = 2.0


class Generation(enum.StrEnum):
    AUTO = 'auto'  # by whether the server knows `reset`
    N1_5 = 'n1.5'
    N1_6 = 'n1.6'  # and later


class GrootForm(enum.StrEnum):
    NESTED = 'nested'  # N1.6 and later
    FLAT = 'flat'  # N1.5, and the simulation wrapper of later ones


class GrootPolicy(ServedPolicy):
    """A GR00T server as a policy.

    Keys of the mapping are ``video.NAME``, ``state.NAME`` and, for the prompt, ``language.KEY`` (or ``annotation...``
    on flat servers). action_keys: the parts of an action in the convention's order, by default the server's.
    token_variable: the environment variable with the server's token. The request socket is replaced whenever an
    exchange did not end well.
    """

    def __init__(
        self,
        *,
        url: str,
        name: str = 'groot',
        generation: str = 'auto',
        form: str = '',
        action_keys: Sequence[str] = (),
        token_variable: str = '',
        **common: Unpack[ServedOptions],
    ) -> None:
        super().__init__(name=name, **common)
        self.url = url
        self._token = key_from(token_variable, what=url) if token_variable else ''
        self._generation: Generation = enum_value(Generation, generation, 'generation')
        self._form: GrootForm | None = enum_value(GrootForm, form, 'form') if form else None
        self._action_keys = tuple(action_keys)
        self._link: RequestLink | None = None
        self._modalities: Mapping[str, Mapping[Any, Any]] = {}
        self._is_ready = False
        self._timed: frozenset[str] = frozenset()  # keys whose values have a time axis of their own

    def connect(self) -> None:
        if not self._is_ready:
            keep_trying(self._ping, what=f'{self.url}: the GR00T server', timeout_s=self._connect_s)
            self._modalities = _read_modalities(self.url, self.call('get_modality_config', takes_input=False))
            self._generation = self._find_generation()
            self._is_ready = True

    def _ping(self, deadline: Deadline) -> None:
        try:
            answer = self.call('ping', takes_input=False, timeout_s=min(PING_S, deadline.left_s()))
        except (RigError, NoAnswer) as error:
            raise ConnectionError(str(error)) from error  # it may still be loading
        if map_answer(self.url, answer).get('status') != 'ok':
            raise ConnectionError(f'ping was answered with {str(answer)[:200]}')

    def _find_generation(self) -> Generation:
        if self._generation is not Generation.AUTO:
            return self._generation
        try:
            self.call('reset', {'options': None})
        except RemoteError as error:
            if 'reset' in str(error) or 'endpoint' in str(error).lower():
                return Generation.N1_5
            raise
        return Generation.N1_6

    @property
    def form(self) -> GrootForm:
        default = GrootForm.FLAT if self._generation is Generation.N1_5 else GrootForm.NESTED
        return self._form or default

    @property
    def facts(self) -> Mapping[str, object]:
        self.connect()
        keys = {f'{name} keys': list(part.get('modality_keys', [])) for name, part in self._modalities.items()}
        return {'generation': self._generation.value, 'form': self.form.value, **keys}

    def problems(self, sample: Question) -> Iterable[str]:
        for modality in ('video', 'state'):
            yield from self._modality_problems(modality, sample)
        steps = self._modalities.get('action', {}).get('delta_indices')
        if isinstance(steps, list) and len(steps) < self._mapping.action.chunk_length:
            yield f'chunk_length is {self._mapping.action.chunk_length}, the server gives {len(steps)} steps'

    def _modality_problems(self, modality: str, sample: Question) -> Iterator[str]:
        config = self._modalities.get(modality)
        if config is None:
            return
        wanted = {_bare(modality, key) for key in config.get('modality_keys', [])}
        given = {_bare(modality, key) for key in sample if key.startswith(f'{modality}.')}
        for name in sorted(wanted - given):
            yield f'the server wants {modality}.{name}, which the mapping does not send'
        for name in sorted(given - wanted):
            yield f'the mapping sends {modality}.{name}, the server knows {", ".join(sorted(wanted)) or "none"}'

    def moments(self) -> Mapping[str, tuple[int, ...]]:
        """As the server's `delta_indices` have them; the present one alone needs none."""
        entry = self._mapping.observation
        by_key: dict[str, tuple[int, ...]] = {}
        for key in (*entry.images, *entry.state):
            modality = key.partition('.')[0]
            steps = self._modalities.get(modality, {}).get('delta_indices')
            wanted = tuple(steps) if isinstance(steps, list) and steps else (0,)
            check_moments(f'{key}, as the server wants them,', wanted)
            if key in entry.moments and tuple(entry.moments[key]) != wanted:
                raise InputError(f'moments of {key} are {list(entry.moments[key])}, the server wants {list(wanted)}')
            if wanted != (0,):
                by_key[key] = wanted
        self._timed = frozenset(by_key)
        return by_key

    def begin(self, setup: Setup, *, seed: int) -> None:
        self.connect()
        if self._generation is not Generation.N1_5:
            self.call('reset', {'options': None})

    def ask(self, question: Question) -> Reply:
        return self.ask_many([question])[0]

    def ask_many(self, questions: Sequence[Question]) -> list[Reply]:
        """Several questions as one batch; N1.5 has no batch, so there they go one after another."""
        if self._generation is Generation.N1_5 and len(questions) > 1:
            return [self.ask(question) for question in questions]
        observation = self._observation(questions)
        is_old = self._generation is Generation.N1_5
        answer = self.call('get_action', observation if is_old else {'observation': observation, 'options': None})
        if isinstance(answer, list | tuple):
            if len(answer) != 2:
                raise AnswerError(f'{self.url}: an answer of {len(answer)} parts, wanted actions and info')
            answer = answer[0]
        chunks = self._chunks(map_answer(self.url, answer), len(questions))
        return [Reply(chunk) for chunk in chunks]

    def _observation(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Arrays get a batch and a time axis (N1.5: time alone)."""
        is_old = self._generation is Generation.N1_5
        flat: dict[str, Any] = {}
        for key in questions[0]:
            values = [question[key] for question in questions]
            if isinstance(values[0], str):
                flat[key] = values if self.form is GrootForm.FLAT else [[text] for text in values]
            else:
                has_time = key in self._timed
                arrays = np.stack([np.asarray(value) if has_time else np.asarray(value)[None] for value in values])
                flat[key] = arrays[0] if is_old else arrays
        if self.form is GrootForm.FLAT:
            return {key.removeprefix('language.'): value for key, value in flat.items()}
        nested: dict[str, Any] = {}
        for key, value in flat.items():
            outer, _, name = key.partition('.')
            nested.setdefault(outer, {})[name] = value
        return nested

    def _chunks(self, answer: Mapping[Any, Any], n: int) -> NDArray[Any]:
        """The parts of the actions side by side, (B, T, A)."""
        parts = {_bare('action', str(key)): value for key, value in answer.items()}
        listed = self._modalities.get('action', {}).get('modality_keys', [])
        names = self._action_keys or [_bare('action', key) for key in listed] or list(parts)
        missing = [name for name in names if _bare('action', name) not in parts]
        if missing:
            raise AnswerError(f'{self.url}: an answer without {", ".join(missing)}; it gave {", ".join(parts)[:200]}')
        arrays = [self._part(name, parts[_bare('action', name)], n) for name in names]
        if len({array.shape[:2] for array in arrays}) != 1:
            raise AnswerError(f'{self.url}: parts of an action with unequal shapes {[a.shape for a in arrays]}')
        return np.concatenate(arrays, axis=2)

    def _part(self, name: str, value: object, n: int) -> NDArray[Any]:
        array = value if isinstance(value, np.ndarray) else np.asarray(None)
        if array.dtype.kind not in 'fiu':
            raise AnswerError(f'{self.url}: {name} is of {array.dtype}, wanted an array of numbers')
        if self._generation is Generation.N1_5 and array.ndim < 3:
            array = array[None] if array.ndim == 2 else array[None, :, None]
        if array.ndim != 3 or array.shape[0] != n:
            raise AnswerError(f'{self.url}: {name} of shape {array.shape}, wanted ({n}, steps, numbers)')
        return array

    def call(
        self, endpoint: str, data: object = None, *, takes_input: bool = True, timeout_s: float | None = None
    ) -> Any:
        """One exchange with an endpoint of the server."""
        if endpoint == 'kill':
            raise ValueError('kill stops the server; it is never sent')
        if self._link is None:
            self._link = RequestLink(self.url, limits=self._limits)
        request: dict[str, Any] = {'endpoint': endpoint}
        if takes_input:
            request['data'] = data
        if self._token:
            request['api_token'] = self._token
        frame = self._link.ask(pack_groot(request), timeout_s=timeout_s or self._answer_s)
        if frame == b'ERROR':
            raise RemoteError(f'{self.url}: the server answered ERROR to {endpoint}')
        answer = decoded(self.url, lambda: unpack_groot(frame, limits=self._limits))
        if isinstance(answer, Mapping) and 'error' in answer:
            message = str(answer['error'])[:MAX_TOLD]
            if 'unauthorized' in message.lower():
                raise SetupError(f'{self.url}: {message}; give the token by token_variable')
            raise RemoteError(f'{self.url}: {endpoint} failed: {message}')
        return answer

    def close(self) -> None:
        link, self._link, self._is_ready = self._link, None, False
        if link is not None:
            link.close()


def _bare(modality: str, key: str) -> str:
    return key.removeprefix(f'{modality}.')


def _read_modalities(where: str, answer: object) -> Mapping[str, Mapping[Any, Any]]:
    """Modality -> its configuration, as far as it is one."""
    config = map_answer(where, answer)
    modalities: dict[str, Mapping[Any, Any]] = {}
    for name, part in config.items():
        if isinstance(part, Mapping):
            keys = part.get('modality_keys', [])
            if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
                raise AnswerError(f'{where}: modality {str(name)[:40]} has no list of keys')
            modalities[str(name)] = part
    return modalities
