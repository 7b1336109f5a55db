from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from robotrials.errors import InputError, NotEstimable, RigError
from robotrials.run.condition import draw_entry
from robotrials.run.conditions import draw_condition
from robotrials.run.conditions.instruction import (
    EndpointParaphraser,
    Instruction,
    RuleParaphraser,
    Sameness,
    compare_meaning,
    load_paraphraser,
    meaning,
)
from robotrials.run.plan import ConditionEntry
from robotrials.wire.chat import ChatSettings

SAY = 'Pick up the red block'
SENTENCES = [
    'Pick up the red block and put it in the target place.',
    'put the red block behind the cylinder as seen from the gripper',
    'Stack the green block on top of the blue block.',
    'Move the yellow bowl to the left of the plate',
    'insert the peg into the slot',
    'put the white mug between the two red blocks',
]


@pytest.mark.parametrize('text', ['Grasp the crimson cube', 'Retrieve the scarlet object'])
def test_the_papers_own_paraphrases_mean_the_same(text: str) -> None:
    """The examples of section 3.2."""
    assert compare_meaning(SAY, text) is Sameness.SAME


@pytest.mark.parametrize(
    'text',
    [
        'Pick up the blue block', 'Push the red block', 'Pick up the red cylinder', 'Pick up the object',
        'Pick up the red block and the blue block', 'Pick up the block', 'Grasp the crimson cube on the plate',
    ],
)  # fmt: skip
def test_another_meaning_is_found(text: str) -> None:
    assert compare_meaning(SAY, text) is Sameness.DIFFERENT


def test_order_is_meaning() -> None:
    assert compare_meaning('stack red on blue', 'pile scarlet onto azure') is Sameness.SAME
    assert compare_meaning('stack red on blue', 'stack blue on red') is Sameness.DIFFERENT


def test_strange_words_are_not_decided() -> None:
    assert compare_meaning(SAY, 'Pick up the ruddy block') is Sameness.UNKNOWN
    assert compare_meaning(SAY, 'Pick up the ruddy blue block') is Sameness.DIFFERENT


def test_words_outside_the_lexicon_stand_for_themselves() -> None:
    assert meaning('fold the towel') == ('"fold"', '"towel"')
    assert compare_meaning('fold the towel', 'please fold the towel') is Sameness.SAME
    with pytest.raises(InputError, match='means something'):
        compare_meaning('the', 'a')


@pytest.mark.parametrize('sentence', SENTENCES)
def test_rules_reword_and_keep_the_meaning(sentence: str) -> None:
    texts = {RuleParaphraser().paraphrase(sentence, severity=s, seed=i) for s in (0.3, 0.6, 1.0) for i in range(15)}
    assert len(texts) > 5
    for text in texts:
        assert text != sentence
        assert compare_meaning(sentence, text) is Sameness.SAME


def test_a_higher_severity_replaces_more() -> None:
    def replaced(severity: float) -> float:
        kept = [set(SENTENCES[0].lower().split()) & set(p.lower().split()) for p in
                (RuleParaphraser().paraphrase(SENTENCES[0], severity=severity, seed=i) for i in range(20))]  # fmt: skip
        return -sum(map(len, kept))

    assert replaced(0.1) < replaced(1.0)


def test_a_sentence_without_known_words_is_refused() -> None:
    with pytest.raises(InputError, match='endpoint'):
        RuleParaphraser().paraphrase('fold the towel', severity=1.0, seed=0)


class Endpoint(BaseHTTPRequestHandler):
    """A model that answers with fixed paraphrases, and judges `ruddy` to be red."""

    asked: list[dict[str, object]] = []  # noqa: RUF012 - shared by the handler's instances on purpose
    answers = '```json\n["Grab the blue block", "Pick up the ruddy block", "Grasp the crimson cube"]\n```'
    status = 200

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        Endpoint.asked.append({**body, 'path': self.path, 'authorization': self.headers.get('Authorization')})
        prompt = body['messages'][0]['content']
        said = ('Yes.' if 'ruddy' in prompt else 'No.') if prompt.startswith('Do these') else Endpoint.answers
        self.send_response(Endpoint.status)
        self.end_headers()
        self.wfile.write(json.dumps({'choices': [{'message': {'content': said}}]}).encode())

    def log_message(self, *_: object) -> None: ...


def asking(url: str, cache: Path, **changes: Any) -> EndpointParaphraser:
    return EndpointParaphraser(ChatSettings(url=url, model='tiny', cache=cache, **{'retries': 0, **changes}))


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Endpoint, 'asked', [])
    server = ThreadingHTTPServer(('127.0.0.1', 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f'http://127.0.0.1:{server.server_port}/v1'
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_endpoints_paraphrases_are_checked_cached_and_recorded(endpoint: str, tmp_path: Path) -> None:
    paraphraser = asking(endpoint, tmp_path / 'cache', api_key='k')
    texts = {paraphraser.paraphrase(SAY, severity=1.0, seed=s) for s in range(4)}
    assert texts == {'Pick up the ruddy block', 'Grasp the crimson cube'}  # never the blue block
    assert len(Endpoint.asked) == 2  # the paraphrases and one judgement; the rest came from the cache
    assert Endpoint.asked[0]['path'] == '/v1/chat/completions'
    assert Endpoint.asked[0]['authorization'] == 'Bearer k'
    drawn = draw_condition('instruction', 1.0, seed=1, instruction=SAY, paraphraser=paraphraser)
    assert getattr(drawn, 'source') == 'endpoint:tiny'  # noqa: B009
    assert 'api_key' not in repr(paraphraser)


def test_a_cached_trial_needs_no_endpoint(endpoint: str, tmp_path: Path) -> None:
    first = asking(endpoint, tmp_path / 'c').paraphrase(SAY, severity=1.0, seed=0)
    asked = len(Endpoint.asked)
    assert asking(endpoint, tmp_path / 'c').paraphrase(SAY, severity=1.0, seed=0) == first
    assert len(Endpoint.asked) == asked


def test_paraphrases_that_all_change_the_meaning_are_not_used(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endpoint, 'answers', '["Pick up the blue block"]')
    with pytest.raises(NotEstimable, match='kept its meaning'):
        asking(endpoint, tmp_path / 'c').paraphrase(SAY, severity=1.0, seed=0)


def test_an_endpoint_that_is_not_there_or_says_nonsense_is_a_fault_and_nothing_of_it_is_kept(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RigError, match='no connection'):
        asking('http://127.0.0.1:9', tmp_path / 'c').paraphrase(SAY, severity=1, seed=0)
    with pytest.raises(InputError, match='http://'):
        asking('file:///etc', tmp_path / 'c')
    monkeypatch.setattr(Endpoint, 'answers', 'I cannot do that')
    with pytest.raises(RigError, match='wanted a list of strings'):
        asking(endpoint, tmp_path / 'c').paraphrase(SAY, severity=1, seed=0)
    monkeypatch.setattr(Endpoint, 'status', 500)
    with pytest.raises(RigError, match='500'):
        asking(endpoint, tmp_path / 'd').paraphrase(SAY, severity=1, seed=0)
    monkeypatch.undo()
    assert not [p for p in tmp_path.rglob('*') if p.is_file()]
    assert asking(endpoint, tmp_path / 'c').paraphrase(SAY, severity=1, seed=0)


def test_a_damaged_cache_is_asked_again(endpoint: str, tmp_path: Path) -> None:
    first = asking(endpoint, tmp_path).paraphrase(SAY, severity=1.0, seed=0)
    for path in tmp_path.rglob('*.json'):
        path.write_text('{"text": ')
    assert asking(endpoint, tmp_path).paraphrase(SAY, severity=1.0, seed=0) == first


def test_a_paraphraser_can_be_named_in_words(endpoint: str, tmp_path: Path) -> None:
    spec = f'endpoint,url={endpoint},model=tiny,cache={tmp_path},retries=0'
    drawn = draw_condition('instruction', 1.0, seed=1, instruction='', paraphraser=spec)
    assert isinstance(drawn, Instruction)
    assert (drawn.is_said, drawn.source) == (False, spec)
    assert drawn.say(SAY).source == 'endpoint:tiny'
    assert load_paraphraser('rules').name == 'rules'
    for wrong, reason in (
        ('endpont', 'did you mean'), ('endpoint,url=http://x', 'needs model'), ('rules,x=1', 'no options'),
        (f'{spec},x=1', "no option 'x'"), ('endpoint,url', 'wanted NAME'),
    ):  # fmt: skip
        with pytest.raises(InputError, match=reason):
            load_paraphraser(wrong)


def test_a_plan_names_its_paraphraser_and_keeps_its_hash_without_one() -> None:
    plain = ConditionEntry('instruction', severity=0.5)
    named = ConditionEntry('instruction', severity=0.5, paraphraser='rules')
    assert draw_entry(named, seed=3)[1]['source'] == 'rules'
    assert draw_entry(plain, seed=3)[1]['source'] == ''
    with pytest.raises(InputError, match='goes with instruction'):
        ConditionEntry('light', severity=0.5, paraphraser='rules')
