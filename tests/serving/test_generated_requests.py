"""Requests that schemathesis makes up from the OpenAPI schema: none is answered with 5xx."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from attnknn.serving.server import Server

from .samples import flowers, table

schemathesis = pytest.importorskip("schemathesis")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CASES = round(80 * float(os.environ.get("ATTNKNN_CHAOS", "1")))  # of each route and method
ALLOWED = {200, 202, 304, 400, 404, 405, 409, 413, 422}


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    with Server(flowers(), port=0, by="tester") as server:
        yield server


@pytest.fixture(scope="module")
def file(served: Server) -> str:
    """An uploaded file, which some requests name."""
    import json
    import urllib.request

    X, y = table()
    content = X.assign(kind=y).to_csv(index=False).encode()
    request = urllib.request.Request(
        served.url + "api/files?name=rows.csv&label_column=kind",
        content,
        {"content-type": "application/octet-stream"},
    )
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["id"])


def test_no_request_makes_the_server_fail(served: Server, file: str, record_property: Any) -> None:
    schema = schemathesis.openapi.from_url(served.url + "api/openapi.json")
    statuses: Counter[int] = Counter()
    failures = []
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=CASES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def try_case(case: Any, data: Any) -> None:
            if isinstance(case.body, dict) and "file" in case.body and data:
                case.body = {**case.body, "file": file}
            if case.path_parameters and "file_id" in case.path_parameters and case.method == "GET":
                case.path_parameters["file_id"] = file
            answer = case.call(base_url=served.url)
            statuses[answer.status_code] += 1
            if answer.status_code not in ALLOWED:
                failures.append((case.method, case.path, answer.status_code, case.body))

        from hypothesis import given
        from hypothesis import strategies as st

        given(operation.as_strategy(), st.booleans())(try_case)()
    assert not failures, failures[:3]
    record_property("chaos", {"test": "generated requests", "cases": statuses.total()})
    assert statuses.total() > 10 * CASES
    assert served.app.service.is_ready
