"""Schemathesis over the OpenAPI description: whatever is sent, the answer is one that is described, and never a 500."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.service.platform.service import make_service

with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

EXAMPLES = settings(
    max_examples=6, phases=[Phase.generate], deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


def scope_of(path: str, method: str) -> str:
    """Who may ask, so that requests get past the door."""
    place = path.removeprefix('/api/v1')
    if place in ('/workers/{worker_id}/{wanted}', '/queue') or (place, method.upper()) == ('/workers', 'GET'):
        return 'operator'
    if place.startswith(('/leases', '/workers')):
        return 'worker'
    return 'submitter' if place.startswith('/submissions') and 'priority' not in place else 'admin'


@pytest.mark.filterwarnings('ignore')
def test_whatever_is_sent_gets_an_answer_that_is_described(tmp_path: Path) -> None:
    quota = {'requests_per_minute': 10_000_000, 'open_submissions': 10_000, 'submissions_per_day': 10_000}
    with make_service(tmp_path / 'p', quota=quota) as service:
        service.benchmark()
        tokens = {scope: service.token(scope, scope) for scope in ('submitter', 'worker', 'operator')}
        tokens['admin'] = service.admin
        api = schemathesis.openapi.from_asgi('/api/v1/openapi.json', service.client.app)
        seen: list[tuple[str, str, int]] = []
        for result in api.get_all_operations():
            operation = result.ok()

            @EXAMPLES
            @given(case=operation.as_strategy())
            def holds(case: Any) -> None:
                token = tokens[scope_of(case.operation.path, case.method)]
                response = case.call(headers={'Authorization': f'Bearer {token}'})
                seen.append((case.method, case.operation.path, response.status_code))
                case.validate_response(response, checks=CHECKS)

            holds()
        assert len({(method, path) for method, path, _ in seen}) == 34
        assert not {status for _, _, status in seen} & {401, 429}
        assert service.ok('GET', '/audit/check', service.admin)['is_whole']
