from __future__ import annotations

from collections.abc import Iterator

import pytest

from minisgl import LLM


@pytest.fixture(scope="session")
def smollm2() -> Iterator[LLM]:
    with LLM("smollm2", dtype="float32", num_page_override=16384) as llm:
        yield llm
        llm.cache_manager.check_integrity()
