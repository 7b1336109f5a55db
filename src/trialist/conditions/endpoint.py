"""Paraphrases by a language model behind an OpenAI-compatible endpoint, cached, and checked before they are used."""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trialist.conditions.lexicon import Sameness, compare_meaning
from trialist.errors import InputError, NotEstimable, SetupError

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
    """Ask `base_url`/chat/completions for paraphrases; keep answers in a file, so that a trial can be repeated.

    A candidate is used when the lexicon finds it the same; when words outside the lexicon decide, the model is asked to
    judge it; a candidate that the lexicon finds different is never used.
    """

    base_url: str
    model: str
    cache: Path
    api_key: str = field(default='', repr=False)
    timeout_s: float = 60.0
    n_candidates: int = 8

    @property
    def name(self) -> str:
        return f'endpoint:{self.model}'

    def paraphrase(self, instruction: str, *, severity: float, seed: int) -> str:
        """One accepted paraphrase, chosen by the seed; NotEstimable when the model gave none that keeps the meaning."""
        manner = MANNERS[min(int(severity * len(MANNERS)), len(MANNERS) - 1)]
        candidates = _string_list(
            self._answer(ASK.format(n=self.n_candidates, manner=manner, instruction=instruction)), self.base_url
        )
        accepted = [text for text in dict.fromkeys(candidates) if self._is_accepted(instruction, text)]
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
            said = self._answer(JUDGE.format(canonical=canonical, candidate=candidate))
            return re.match(r'\W*yes\b', said.lower()) is not None
        return verdict is Sameness.SAME

    def _answer(self, prompt: str) -> str:
        key = hashlib.sha256(json.dumps([self.base_url, self.model, prompt]).encode()).hexdigest()
        known = _read_cache(self.cache)
        if key in known:
            return known[key]
        text = self._ask(prompt)
        _append_cache(self.cache, key, text)
        return text

    def _ask(self, prompt: str) -> str:
        body = {'model': self.model, 'temperature': 0, 'messages': [{'role': 'user', 'content': prompt}]}
        headers = {'Content-Type': 'application/json'}
        if self.api_key:
            headers['Authorization'] = f'Bearer {self.api_key}'
        url = self.base_url.rstrip('/') + '/chat/completions'
        if not url.startswith(('http://', 'https://')):
            raise InputError(f'base_url must begin with http:// or https://, found {self.base_url!r}')
        request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers, method='POST')
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                answer: Any = json.load(response)
            return str(answer['choices'][0]['message']['content'])
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(300).decode(errors='replace')
            raise SetupError(f'{url} answered {error.code}: {told}') from error
        except (OSError, ValueError) as error:
            raise SetupError(f'{url}: no usable answer ({error}); is the endpoint running?') from error
        except (KeyError, IndexError, TypeError) as error:
            raise SetupError(
                f'{url}: the answer has no choices[0].message.content; is it OpenAI-compatible?'
            ) from error


def _string_list(answer: str, where: str) -> list[str]:
    """The JSON list in a model's answer, with or without a code fence round it."""
    match = re.search(r'\[.*\]', answer, flags=re.DOTALL)
    try:
        found = json.loads(match.group()) if match else None
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise SetupError(f'{where}: wanted a JSON list of strings, found {answer[:200]!r}')
    return found


def _read_cache(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    known = {}
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines()):
        try:
            row = json.loads(line)
            known[str(row['key'])] = str(row['answer'])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f'{path} line {number + 1}: not a cached answer; delete the line or the file') from error
    return known


def _append_cache(path: Path, key: str, answer: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('a', encoding='utf-8') as file:
        file.write(json.dumps({'key': key, 'answer': answer}, ensure_ascii=False) + '\n')
        file.flush()
        os.fsync(file.fileno())
