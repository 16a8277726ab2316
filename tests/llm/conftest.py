from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tiny_model import make_tiny_model

from minisgl import LLM


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def llm(tiny: Path) -> Iterator[LLM]:
    with LLM(str(tiny), num_page_override=2048) as llm:
        yield llm
        llm.cache_manager.check_integrity()
