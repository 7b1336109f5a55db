"""A run against an endpoint that misbehaves in every way: it finishes, and the counts add up."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
from tests.measure.actions.server import Answer, chat_answer, serve
from tests.measure.actions.test_endpoint import BROKEN, NAMED

from robotrials.measure.actions import ActionSpace, RecordedEpisode
from robotrials.measure.actions.evaluate import read_runs, run_actions
from robotrials.measure.actions.split import EvaluationSplit, action_statistics, make_split
from robotrials.measure.actions.vlm import VlmPredictor
from robotrials.record import read_store
from robotrials.wire.chat import ChatClient, ChatFaultKind, ChatSettings

STEPS = 4


class Recorded:
    """A dataset in memory: as many test episodes as there are ways to misbehave, and a good one between each two."""

    name = 'made'
    space = ActionSpace.from_names(['x'])

    def __init__(self, tests: int) -> None:
        self.splits = {'train': 2, 'test': tests}

    def episodes(self, split: str, *, only: object = None) -> list[RecordedEpisode]:
        count = range(self.splits[split])
        wanted = [i for i in count if only is None or i in only]  # type: ignore[operator]
        return [
            RecordedEpisode(
                dataset='made', split=split, index=i, actions=np.full((STEPS, 1), float(i)),
                instructions=(f'way {i}',), state={'s': np.arange(STEPS, dtype=float)[:, None]},
            )
            for i in wanted
        ]  # fmt: skip


WAYS: list[Answer | None] = []
for _, _, broken in BROKEN:
    WAYS += [broken, None]
for _, named, _ in NAMED:
    WAYS += [named, None]


def respond(request: BaseHTTPRequestHandler, body: bytes) -> Answer:
    """Step 2 of each odd episode goes wrong in its own way, as often as it is asked."""
    told = json.loads(body)['messages'][1]['content']
    words = ' '.join(part['text'] for part in told if part['type'] == 'text')
    way = int(words.split('way ')[1].split()[0])
    wrong = WAYS[way]
    return wrong if wrong is not None and '- s: [2]' in words else chat_answer('[0.5]')


def test_the_run_finishes_and_the_counts_add_up(tmp_path: Path) -> None:
    dataset = Recorded(len(WAYS))
    split: EvaluationSplit = make_split(dataset)  # type: ignore[arg-type]
    statistics = action_statistics(dataset.episodes('train'))
    with serve(respond) as url:
        settings = ChatSettings(url=f'{url}/v1', model='m', retries=1, timeout_s=30.0)
        client = ChatClient(settings, sleep=lambda _: None)
        predictor = VlmPredictor(client, space=dataset.space, concurrency=3)
        done = run_actions(dataset, predictor, tmp_path / 's', split=split, statistics=statistics)  # type: ignore[arg-type]
    assert done.faults == len(BROKEN)
    assert done.evaluated == len(WAYS) - len(BROKEN)
    assert done.timesteps == STEPS * done.evaluated
    assert done.invalid == len(NAMED)
    faults = Counter[str]()
    for _, kind, _ in BROKEN:
        faults[kind.value] += (
            1 if kind in (ChatFaultKind.REQUEST, ChatFaultKind.NOT_CHAT) else 2
        )  # one retry of the others
    assert client.usage.faults == faults
    (run,) = read_runs(tmp_path / 's')
    assert run.n_faults == len(BROKEN)
    assert run.reasons == Counter(reason for _, _, reason in NAMED)
    reasons = [e.reason for e in read_store(tmp_path / 's').episodes() if not e.is_valid]
    assert len(reasons) == len(BROKEN)
    assert all(reasons)
    assert threading.active_count() < 20
