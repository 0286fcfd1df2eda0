"""One service for the tests of a file: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serving import Running, running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("served") / "searches") as found:
        yield found
