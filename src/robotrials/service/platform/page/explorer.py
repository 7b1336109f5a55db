"""The explorer of one submission's episodes, for those who may see them, once its blinding has ended."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool

from robotrials.record import Store
from robotrials.service.explorer import create_explorer
from robotrials.service.platform.access import Scope
from robotrials.service.platform.benchmark import store_path
from robotrials.service.platform.download import open_facts
from robotrials.service.platform.page.visit import visitor_of
from robotrials.service.platform.refusal import Refusal, not_found
from robotrials.service.platform.server import Platform
from robotrials.service.platform.submission import find_submission
from robotrials.service.platform.table import Submission

MOST_KEPT = 16


class SubmissionExplorer:
    """Dispatches to an explorer that knows of nothing but one submission's episodes."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._kept: dict[tuple[str, str], FastAPI] = {}  # by submission and its benchmark's state
        self._lock = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        explorer = await run_in_threadpool(self._admitted, Request(scope))
        await explorer(scope, receive, send)

    def _admitted(self, request: Request) -> FastAPI:
        caller = visitor_of(request, self._platform).require(Scope.SUBMITTER, Scope.ADMIN)
        with self._platform.database.read() as session:
            submission = find_submission(session, caller, request.path_params['submission_id'])
            if submission.opened_at is None:
                raise Refusal(409, 'blinded', 'episodes can be seen when the blinding of this submission has ended')
            return self._explorer(submission)

    def _explorer(self, submission: Submission) -> FastAPI:
        benchmark = submission.benchmark
        key = submission.id, benchmark.state
        with self._lock:
            if key not in self._kept:
                path = store_path(self._platform.config.folder, benchmark)
                if not (path / 'trial.json').exists():
                    raise not_found('episode')
                while len(self._kept) >= MOST_KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[key] = create_explorer(
                    dataclasses.replace(Store.open(path), is_view=True), where={'policy': submission.policy},
                    beside={'back to the submission': f'/submission/{submission.id}'}, is_mounted=True,
                    shown=lambda episode: open_facts(benchmark, episode),
                )  # fmt: skip
            return self._kept[key]
