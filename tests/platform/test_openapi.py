"""Schemathesis over the OpenAPI description: whatever is sent, the answer is one that is described, and never a 500."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.platform.service import Service, make_service

with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

pytestmark = pytest.mark.filterwarnings('ignore')


@pytest.fixture(scope='module')
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp('openapi') / 'p'
    with make_service(folder, quota={'requests_per_minute': 10_000_000, 'open_submissions': 10_000}) as service:
        service.benchmark()
        yield service


@pytest.fixture(scope='module')
def tokens(filled: Service) -> dict[str, str]:
    return {scope: filled.token(scope, scope) for scope in ('submitter', 'worker', 'operator')}


@pytest.fixture
def api(filled: Service) -> schemathesis.schemas.BaseSchema:
    return schemathesis.openapi.from_asgi('/api/v1/openapi.json', filled.client.app)


schema = schemathesis.pytest.from_fixture('api')


@schema.parametrize()
@settings(
    max_examples=8, phases=[Phase.generate], deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_whatever_is_sent_gets_an_answer_that_is_described(
    case: schemathesis.Case, filled: Service, tokens: dict[str, str]
) -> None:
    path = case.operation.path
    scope = 'worker' if path.startswith(('/api/v1/leases', '/api/v1/workers')) else 'admin'
    if path.startswith('/api/v1/submissions') and 'priority' not in path:
        scope = 'submitter'
    if path in ('/api/v1/workers/{worker_id}/{wanted}', '/api/v1/queue') or (path, case.method) == (
        '/api/v1/workers',
        'GET',
    ):
        scope = 'operator'
    token = filled.admin if scope == 'admin' else tokens[scope]
    response = case.call(headers={'Authorization': f'Bearer {token}'})
    case.validate_response(response, checks=[not_a_server_error, status_code_conformance, response_schema_conformance])
