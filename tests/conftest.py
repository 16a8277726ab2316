"""What holds for every test: a thread a core, and neither a global context nor a log's settings left over."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import torch

from minisgl.core import reset_global_ctx
from minisgl.utils.logging import ROOT

pytest_plugins = ["support.instruction_sets"]
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported; see kernel/triton/conftest.py


@pytest.fixture(autouse=True)
def _no_global_context() -> Iterator[None]:
    yield
    reset_global_ctx()


@pytest.fixture
def threads_as_before() -> Iterator[None]:
    """As many threads compute after the test as before it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """A command that is run here sets the log up for its own process, after which pytest would hear nothing or more."""
    before = [(logger, [*logger.handlers], logger.level, logger.propagate) for logger in _loggers()]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    found = logging.root.manager.loggerDict.items()
    return [logger for name, logger in found if isinstance(logger, logging.Logger) and name.partition(".")[0] == ROOT]
