from pathlib import Path

import pytest

from minisgl.env import Env


def test_defaults_hold_when_nothing_is_set():
    env = Env({})
    assert env.DISABLE_OVERLAP_SCHEDULING.value is False
    assert env.LOG_LEVEL.value == "WARNING"
    assert env.CACHE_DIR.value == Path.home() / ".cache" / "minisgl"


@pytest.mark.parametrize(("text", "value"), [("1", True), (" Yes ", True), ("off", False), ("0", False)])
def test_switches_take_the_usual_words(text: str, value: bool):
    assert Env({"MINISGL_CHECK_INTEGRITY": text}).CHECK_INTEGRITY.value is value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MINISGL_CHECK_INTEGRITY", "maybe"),
        ("MINISGL_CACHE_DIR", ""),
        ("MINISGL_LOG_LEVEL", "LOUD"),
        ("MINISGL_KERNELS", "c"),
        ("MINISGL_CPU_ISA", "sse9"),
    ],
)
def test_a_bad_value_is_named_with_its_variable(name: str, text: str):
    with pytest.raises(ValueError, match=f"{name}={text!r}"):
        Env({name: text})


def test_the_cache_follows_xdg_unless_it_is_set():
    assert Env({"XDG_CACHE_HOME": "/x"}).CACHE_DIR.value == Path("/x/minisgl")
    assert Env({"XDG_CACHE_HOME": "/x", "MINISGL_CACHE_DIR": "~/m"}).CACHE_DIR.value == Path.home() / "m"


@pytest.fixture
def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)


@pytest.mark.usefixtures("_no_home")
def test_a_home_is_needed_only_for_the_default_cache():
    assert Env({"MINISGL_CACHE_DIR": "/m"}).CACHE_DIR.value == Path("/m")
    assert Env({"XDG_CACHE_HOME": "/x"}).CACHE_DIR.value == Path("/x/minisgl")
    with pytest.raises(OSError, match=r"home directory\. MINISGL_CACHE_DIR"):
        _ = Env({}).CACHE_DIR.value


def test_log_levels_are_read_in_any_case():
    assert Env({"MINISGL_LOG_LEVEL": "debug"}).LOG_LEVEL.value == "DEBUG"


def test_a_value_can_be_changed_for_this_process():
    env = Env({})
    env.DISABLE_OVERLAP_SCHEDULING.value = True
    assert env.DISABLE_OVERLAP_SCHEDULING.value is True
