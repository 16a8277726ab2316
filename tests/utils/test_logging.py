import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from minisgl.env import ENV
from minisgl.utils.logging import get_logger, install_handler


@pytest.fixture(autouse=True)
def _restore_handlers() -> Iterator[None]:
    root = logging.getLogger("minisgl")
    before = (list(root.handlers), root.level, root.propagate)
    yield
    root.handlers[:], root.level, root.propagate = before


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_the_library_prints_nothing_by_itself():
    done = run_python("from minisgl.utils.logging import get_logger; get_logger('minisgl.x').error('lost')")
    assert done.stdout + done.stderr == ""


def test_the_installed_handler_shows_messages_of_the_level_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ENV.LOG_LEVEL, "value", "INFO")
    install_handler()
    get_logger("minisgl.engine").info("resolved")
    get_logger("minisgl.engine").debug("detail")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "INFO minisgl.engine: resolved" in captured.err
    assert "detail" not in captured.err


def test_installing_twice_does_not_print_twice(capsys: pytest.CaptureFixture[str]):
    install_handler()
    install_handler()
    get_logger("minisgl.engine").warning("once")
    assert capsys.readouterr().err.count("once") == 1


def test_a_logger_outside_the_package_is_refused():
    with pytest.raises(AssertionError, match="outside"):
        get_logger("__main__")
