"""Paraphrases by a language model behind an OpenAI-compatible endpoint, checked before they are used or kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from robotrials.errors import InputError, NotEstimable
from robotrials.run.conditions.instruction import Sameness, Thing, compare_meaning, keeps_references
from robotrials.value import dataclass
from robotrials.wire.chat import ChatClient, ChatFault, ChatMessage, ChatReply, ChatSettings, FaultKind, ReplyState

ASK = (
    'Reword this instruction for a robot in {n} different ways. Keep exactly the same meaning: the same action, the '
    'same objects told apart by the same attributes, the same spatial relation. {manner} Answer with a JSON list of '
    'strings and nothing else.\nInstruction: {instruction}'
)
JUDGE = (
    'Do these two instructions ask a robot for exactly the same thing: same action, same objects, same spatial '
    'relation? Answer yes or no.\n1. {canonical}\n2. {candidate}'
)
MANNERS = ('Change only a word or two.', 'Change most of the words.', 'Use quite another sentence and uncommon words.')


@dataclass(frozen=True, slots=True)
class EndpointParaphraser:
    """Ask a chat model for paraphrases; keep usable answers in a folder, so that a trial can be repeated.

    A candidate is used when the lexicon finds it the same; when words outside the lexicon decide, the model is asked to
    judge it; a candidate that the lexicon finds different is never used.
    """

    settings: ChatSettings
    n_candidates: int = 8
    client: ChatClient = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'client', ChatClient(self.settings))

    @property
    def name(self) -> str:
        return f'endpoint:{self.settings.model}'

    def paraphrase(self, instruction: str, *, severity: float, seed: int, things: Sequence[Thing] | None = None) -> str:
        """One accepted paraphrase, chosen by the seed; NotEstimable when the model gave none that keeps the meaning."""
        manner = MANNERS[min(int(severity * len(MANNERS)), len(MANNERS) - 1)]
        said = self._answer(
            ASK.format(n=self.n_candidates, manner=manner, instruction=instruction), _string_list, 'a list of strings'
        )
        candidates = _string_list(said) or []
        clear = [text for text in dict.fromkeys(candidates) if keeps_references(instruction, text, things)]
        accepted = [text for text in clear if self._is_accepted(instruction, text)]
        if not accepted:
            raise NotEstimable(
                f'{self.name}: none of {len(candidates)} paraphrases of {instruction!r} kept its meaning: '
                f'{candidates[:3]}'
            )
        return accepted[seed % len(accepted)]

    def _is_accepted(self, canonical: str, candidate: str) -> bool:
        if not candidate.strip() or candidate.strip().lower() == canonical.strip().lower():
            return False
        verdict = compare_meaning(canonical, candidate)
        if verdict is Sameness.UNKNOWN:
            said = self._answer(JUDGE.format(canonical=canonical, candidate=candidate), _yes_or_no, 'yes or no')
            return _yes_or_no(said) == 'yes'
        return verdict is Sameness.SAME

    def _answer(self, prompt: str, read: Callable[[str], object], wanted: str) -> str:
        """The answer if it reads as what is wanted; only then is it kept."""

        def is_usable(reply: ChatReply) -> bool:
            return reply.state is ReplyState.ANSWERED and read(reply.text) is not None

        reply = self.client.ask([ChatMessage('user', (prompt,))], is_usable=is_usable)
        if not is_usable(reply):
            text = reply.detail or reply.text[:200]
            raise ChatFault(FaultKind.NOT_CHAT, f'{self.settings.url}: wanted {wanted}, found {reply.state}: {text!r}')
        return reply.text


def make_endpoint(options: Mapping[str, str]) -> EndpointParaphraser:
    """From options in words: url, model and cache (required); key_env, timeout, retries, temperature, token_limit,
    token_limit_name, candidates.
    """
    known = ('url', 'model', 'cache', 'key_env', 'timeout', 'retries', 'temperature', 'token_limit',
             'token_limit_name', 'candidates')  # fmt: skip
    for name in ('url', 'model', 'cache'):
        if name not in options:
            raise InputError(f'the endpoint paraphraser needs {name}=...; found {sorted(options) or "no option"}')
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InputError(f'the endpoint paraphraser knows no option {unknown[0]!r}; known: {", ".join(known)}')
    try:
        settings = ChatSettings(
            url=options['url'], model=options['model'], cache=Path(options['cache']),
            api_key=os.environ.get(options.get('key_env', 'OPENAI_API_KEY'), ''),
            timeout_s=float(options.get('timeout', '60')), retries=int(options.get('retries', '5')),
            temperature=float(options.get('temperature', '0')), token_limit=int(options.get('token_limit', '1024')),
            token_limit_name=options.get('token_limit_name', 'max_tokens'),
        )  # fmt: skip
        return EndpointParaphraser(settings, int(options.get('candidates', '8')))
    except ValueError as error:
        raise InputError(f'the endpoint paraphraser: {error}') from error


def _string_list(answer: str) -> list[str] | None:
    """The JSON list of strings in a model's answer, with or without a code fence round it; None without one."""
    match = re.search(r'\[.*\]', answer, flags=re.DOTALL)
    try:
        texts = json.loads(match.group()) if match else None
    except (ValueError, RecursionError):
        return None
    return texts if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts) else None


def _yes_or_no(answer: str) -> str | None:
    match = re.match(r'\W*(yes|no)\b', answer.lower())
    return match.group(1) if match else None
