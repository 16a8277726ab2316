"""The hook that compiles the C++ kernels when the package is installed."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.compilers import compilations, fake_compiler

from minisgl.kernel.cpu_levels import levels, library_name, rival, runnable
from minisgl.utils.processor import cpu_flags, find_compiler

ROOT = Path(__file__).parents[1]
FIRST, *_ = ALL = tuple(levels())


class Installer:
    """The part of hatchling that speaks to people."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, line: str) -> None:
        self.warnings.append(line)

    def display_info(self, line: str) -> None:
        pass


class Installation:
    """Runs of the hook, with a compiler that only pretends and a folder of its own for what is compiled."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.compiled = folder, folder / "minisgl/kernel/compiled"
        self.compiled.parent.mkdir(parents=True)
        self.module = load_hook()
        self.installer = Installer()
        monkeypatch.setattr(self.module, "ROOT", folder)
        monkeypatch.setattr(self.module.cpu_levels, "SHIPPED", self.compiled)
        monkeypatch.setenv("CXX", fake_compiler(folder))
        monkeypatch.delenv("MINISGL_BUILD_ISA", raising=False)

    def run(self, version: str = "standard") -> dict[str, Any]:
        """What the hook tells hatchling."""
        build_data: dict[str, Any] = {"force_include": {}, "pure_python": True}
        hook = self.module.KernelsHook(str(ROOT), {}, None, None, str(self.folder), "wheel", self.installer)
        hook.initialize(version, build_data)
        included = [Path(path) for path in build_data["force_include"]]
        assert all(path.is_file() for path in included)
        hook.finalize(version, build_data, "")
        assert not any(path.exists() for path in included)
        return build_data


def load_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    return Installation(tmp_path, monkeypatch)


def names_in(build_data: dict[str, Any]) -> list[str]:
    return list(build_data["force_include"].values())


def test_a_wheel_gets_a_library_for_every_level_where_the_package_looks_for_it(installation: Installation):
    build_data = installation.run()
    assert names_in(build_data) == [f"minisgl/kernel/compiled/{library_name(name)}" for name in ALL]
    assert len(compilations(installation.folder)) == len(ALL)
    assert not installation.compiled.exists()


def test_a_wheel_with_libraries_is_for_one_platform_and_any_python(installation: Installation):
    build_data = installation.run()
    assert build_data["pure_python"] is False
    python, abi, platform = build_data["tag"].split("-")
    assert (python, abi) == ("py3", "none")
    assert platform.startswith(("linux_", "macosx_"))


def test_an_editable_installation_has_the_best_of_this_machine_beside_the_sources(installation: Installation):
    installation.compiled.mkdir()
    (installation.compiled / "of-older-sources.so").touch()
    build_data = installation.run("editable")
    assert build_data == {"force_include": {}, "pure_python": True}
    best = runnable(cpu_flags())[:1] if cpu_flags() else ()
    expected = {*best, *map(rival, best)} - {None}
    assert {path.name for path in installation.compiled.iterdir()} == {library_name(str(name)) for name in expected}


def test_what_the_compiler_does_not_know_is_left_out_with_one_line(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
):
    unknown = levels()[FIRST].flags[-1]
    monkeypatch.setenv("CXX", fake_compiler(installation.folder, unknown))
    assert names_in(installation.run()) == [f"minisgl/kernel/compiled/{library_name(name)}" for name in ALL[1:]]
    assert installation.installer.warnings == [
        f"C++ kernels: {FIRST} is left out: c++: error: unrecognized option {unknown}"
    ]


def test_without_a_compiler_the_wheel_is_for_any_platform(installation: Installation, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "/no/such/compiler")
    assert installation.run() == {"force_include": {}, "pure_python": True}
    assert installation.installer.warnings == ["C++ kernels: none, for no compiler was found"]


def test_a_folder_that_takes_no_library_fails_no_installation(installation: Installation):
    installation.compiled.write_text("in the way")
    installation.run("editable")
    assert "left out" in installation.installer.warnings[0]


@pytest.mark.parametrize(
    ("wish", "names"),
    [("all", ALL), ("none", ()), ("portable", ("portable",)), (f"portable, {FIRST}", ("portable", FIRST))],
)
def test_the_environment_says_what_is_compiled(
    wish: str, names: tuple[str, ...], installation: Installation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINISGL_BUILD_ISA", wish)
    assert names_in(installation.run()) == [f"minisgl/kernel/compiled/{library_name(name)}" for name in names]
    assert not installation.installer.warnings


def test_a_level_that_there_is_not_is_named(installation: Installation, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINISGL_BUILD_ISA", "portable,sse9")
    with pytest.raises(ValueError, match=r"MINISGL_BUILD_ISA: sse9 is not all, best, none or of .*portable"):
        installation.run()
    assert not compilations(installation.folder)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
def test_pip_makes_a_wheel_whose_libraries_can_be_loaded(tmp_path: Path):
    names = {"portable", runnable(cpu_flags())[0]}
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT)
    subprocess.run(command, check=True, env=os.environ | {"MINISGL_BUILD_ISA": ",".join(names)})
    (wheel,) = tmp_path.glob("*.whl")
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        assert set(libraries) == {f"minisgl/kernel/compiled/{library_name(name)}" for name in names}
        assert "minisgl/kernel/csrc/cpu.cpp" in archive.namelist()
        for name in libraries:
            assert ctypes.CDLL(archive.extract(name, tmp_path)).nanoseconds_taken() == 0
