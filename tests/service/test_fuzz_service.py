"""An OpenAPI fuzzer reads /openapi.json, and sends what it says, and what it does not say: no 500, and every answer as
it is documented. DIBS_EXAMPLES=200 looks further."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator

import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import Running, running

from dibs.service.routes import LINES

EXAMPLES = int(os.environ.get("DIBS_EXAMPLES", 1))
IDS = st.one_of(st.sampled_from(["a", "b", 5]), st.text(max_size=5), st.integers(-(2**64), 2**64))
EXPRESSIONS = st.one_of(st.sampled_from(["a = 1", "a > 0 OR b LIKE 'x%'", "a ="]), st.text(max_size=20))
ROWS = st.one_of(
    st.dictionaries(st.sampled_from(["a", "b", "c.d"]), st.one_of(st.integers(), st.floats(), st.text(), st.none())),
    st.fixed_dictionaries(
        {"id": IDS, "expression": EXPRESSIONS}, optional={"weight": st.floats(), "remove": st.booleans()}
    ),
    st.none() | st.booleans() | st.text(),
)


def line_of(row: object) -> bytes:
    try:
        return orjson.dumps(row)
    except TypeError:  # integers of more than 64 bits, lone surrogates
        return b'{"a": 123456789012345678901234567890}'


schemathesis.openapi.media_type(LINES, st.lists(ROWS, max_size=5).map(lambda rows: b"\n".join(map(line_of, rows))))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("fuzz") / "searches", open=True) as found:
        yield found


def test_no_request_makes_it_fail(api: Running) -> None:
    schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json").exclude(path_regex="stream")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 25
    asked: Counter[int] = Counter()
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    for number, operation in enumerate(operations):
        for mode in modes if EXAMPLES > 1 else modes[number % 2 :][:1]:  # what is sent wrongly takes long to make up

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            def ask(case: schemathesis.Case) -> None:
                answer = case.call(timeout=30)
                asked[answer.status_code] += 1
                checks = [
                    not_a_server_error,
                    status_code_conformance,
                    content_type_conformance,
                    response_schema_conformance,
                ]
                case.validate_response(answer, checks=checks)

            with contextlib.suppress(Unsatisfiable):  # where nothing can be sent that is wrong
                ask()
    assert asked[200] > 10 and asked[400] > 2, asked
    assert not any(status >= 500 for status in asked)
