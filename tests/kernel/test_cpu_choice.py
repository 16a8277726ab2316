"""The choice of kernels and dtype by measured rates: what decides, and that it is made once."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from minisgl.engine import spec
from minisgl.env import ENV
from minisgl.kernel import cpu_build, cpu_choice, cpu_levels, cpu_library
from minisgl.kernel.cpu_build import AUTO, Library
from minisgl.kernel.cpu_choice import Choice, Rates, choose, measure
from minisgl.utils.hardware import find_hardware

BEST, LESSER = "avx512", "avx512_vnni"
ZEN_4 = {BEST: Rates(114.0, 228.0), LESSER: Rates(115.0, 110.0)}
SLOW_PRODUCTS = {BEST: Rates(150.0, 80.0), LESSER: Rates(150.0, 145.0)}  # of bfloat16, at half the rate of float32


class Machine:
    """One that has libraries of two levels and kernels of given rates. num_measured: how many were measured so far."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache, self.rates, self.num_measured = folder / "cache", ZEN_4, 0
        self.has = [BEST, LESSER]
        self.is_shipped = True
        monkeypatch.setattr(cpu_choice, "find_library", self._find)
        monkeypatch.setattr(cpu_choice, "shipped", lambda name: self._find(self.cache, name))
        monkeypatch.setattr(cpu_choice, "measure", self._measure)
        monkeypatch.setattr(cpu_choice, "cpu_flags", lambda: frozenset({"avx2"}))
        monkeypatch.setattr(cpu_choice, "rival", lambda name: cpu_levels.rival(name, "x86_64"))
        cpu_choice._say_not_kept.cache_clear()

    def choose(self, isa: str = AUTO) -> Choice:
        found = choose(self.cache, isa)
        assert found is not None
        return found

    def files(self) -> list[Path]:
        return sorted((self.cache / "kernels").glob("rates-*.json"))

    def _find(self, cache_dir: Path, isa: str) -> Library | None:
        name = self.has[0] if isa == AUTO and self.has else isa
        return Library(Path("compiled") / f"{name}.so", name, self.is_shipped) if name in self.has else None

    def _measure(self, libraries: Sequence[Library]) -> dict[Library, Rates]:
        self.num_measured += len(libraries)
        return {library: self.rates[library.isa] for library in libraries}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("rates", "isa", "bfloat16_pays"),
    [
        (ZEN_4, BEST, True),
        (SLOW_PRODUCTS, LESSER, True),
        ({BEST: Rates(100.0, 100.0), LESSER: Rates(100.0, 112.0)}, BEST, True),  # within what noise may do
        ({BEST: Rates(100.0, 70.0), LESSER: Rates(100.0, 75.0)}, BEST, False),
    ],
)
def test_the_faster_of_two_levels_and_dtypes_is_taken(
    machine: Machine, rates: dict[str, Rates], isa: str, bfloat16_pays: bool
):
    machine.rates = rates
    choice = machine.choose()
    assert (choice.library.isa, choice.bfloat16_pays) == (isa, bfloat16_pays)
    assert choice.rates == rates


def test_what_was_chosen_stays_whatever_would_be_measured_later(machine: Machine):
    machine.rates = SLOW_PRODUCTS
    first = machine.choose()
    machine.rates = ZEN_4
    assert machine.choose() == first
    assert machine.num_measured == 2
    assert str(first).startswith("avx512_vnni, compiled at installation: ")
    assert "avx512: 80 GFLOP/s a core in bfloat16, 150 in float32; avx512_vnni: 145" in str(first)


def test_a_level_that_is_asked_for_is_taken_and_its_rates_decide_on_the_dtype(machine: Machine):
    assert machine.choose(LESSER).library.isa == LESSER
    assert machine.choose(LESSER).rates == {LESSER: ZEN_4[LESSER]}
    assert machine.num_measured == 1
    machine.choose()
    assert machine.num_measured == 2  # the other one's: files are those of a library each


def test_other_versions_processors_and_sources_are_measured_anew(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    machine.choose(BEST)
    monkeypatch.setattr(cpu_choice, "__version__", "99.0")
    machine.choose(BEST)
    monkeypatch.setattr(cpu_choice, "cpu_flags", lambda: frozenset({"avx2", "avx512f"}))
    machine.choose(BEST)
    monkeypatch.setattr(cpu_choice, "read_cpuinfo", lambda: ("another one", ()))
    machine.choose(BEST)
    assert machine.num_measured == 4


def change(key: str, value: object) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | {key: value})


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: "", id="empty"),
        pytest.param(lambda text: text[:40], id="half"),
        pytest.param(lambda text: "[]", id="a list"),
        pytest.param(lambda text: "[" * 100_000, id="deep"),
        pytest.param(lambda text: "{}", id="nothing in it"),
        pytest.param(lambda text: text.replace('"bfloat16"', '"bfloat17"'), id="no bfloat16"),
        *(
            pytest.param(change("bfloat16", value), id=repr(value))
            for value in (None, "228", 0, -1.0, True, [228.0], float("nan"), float("inf"))
        ),
        pytest.param(change("processor", "another one"), id="of another processor"),
        pytest.param(change("version", "0.0"), id="of another version"),
        pytest.param(change("library", "other.so"), id="of another library"),
    ],
)
def test_a_file_that_cannot_be_true_is_said_and_made_anew(
    machine: Machine, spoil: Callable[[str], str], caplog: pytest.LogCaptureFixture
):
    before = machine.choose()
    good = machine.files()[0].read_text()
    machine.files()[0].write_text(spoil(good))
    with caplog.at_level(logging.WARNING):
        assert machine.choose() == before
    assert f"{machine.files()[0]} is not used, and the C++ kernels are measured anew" in caplog.text
    assert machine.num_measured == 3
    assert machine.files()[0].read_text() == good


def test_bytes_that_are_no_text_are_made_anew_too(machine: Machine):
    before = machine.choose()
    machine.files()[0].write_bytes(b"\xff\xfe\x00")
    assert machine.choose() == before


def test_where_nothing_can_be_kept_flags_decide_and_the_log_says_so(machine: Machine, caplog: pytest.LogCaptureFixture):
    machine.rates = SLOW_PRODUCTS
    machine.cache.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        choice = machine.choose()
        machine.choose()
    assert (choice.library.isa, choice.rates, choice.bfloat16_pays) == (BEST, None, None)
    assert choice.reason() == "by the processor's flags, as rates cannot be kept"
    assert machine.num_measured == 0
    assert caplog.text.count("cannot be kept in") == 1


def test_kept_rates_of_a_folder_that_cannot_be_written_any_more_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    machine.rates = SLOW_PRODUCTS
    before = machine.choose()

    def fails(*args: object, **options: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "mkdir", fails)
    monkeypatch.setattr(cpu_choice, "FileLock", fails)
    assert machine.choose() == before


def test_a_package_with_the_best_level_alone_compiles_no_other(machine: Machine):
    machine.has = [BEST]
    assert machine.choose().rates == {BEST: ZEN_4[BEST]}


def test_a_level_that_cannot_be_compiled_is_not_compared(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    machine.is_shipped = False
    find = machine._find

    def fails(cache_dir: Path, isa: str) -> Library | None:
        if isa == LESSER:
            raise cpu_levels.BuildError("out of order")
        return find(cache_dir, isa)

    monkeypatch.setattr(cpu_choice, "find_library", fails)
    assert machine.choose().rates == {BEST: ZEN_4[BEST]}


def test_without_a_library_there_is_no_choice(machine: Machine):
    machine.has = []
    assert choose(machine.cache) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("amx", LESSER), (BEST, LESSER), (LESSER, None), ("avx2", None), ("portable", None), ("native", None)],
)
def test_levels_with_products_of_bfloat16_have_a_rival_without(name: str, expected: str | None):
    assert cpu_levels.rival(name, "x86_64") == expected
    assert cpu_levels.rival(name, "aarch64") is None


@pytest.mark.usefixtures("instruction_set")
def test_every_library_has_rates():
    library = cpu_build.find_library(ENV.CACHE_DIR.value, ENV.CPU_ISA.value)
    if library is None:
        pytest.skip("no C++ compiler")
    (rates,) = measure([library]).values()
    assert 0.01 < rates.float32 < 10_000
    assert 0.01 < rates.bfloat16 < 100_000


ASK = "from minisgl.kernel import cpu_library; print(cpu_library.choice())"


@pytest.mark.skipif(cpu_build.find_library(ENV.CACHE_DIR.value) is None, reason="no C++ compiler")
def test_processes_that_start_together_choose_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shared = ENV.CACHE_DIR.value / "kernels"
    monkeypatch.setenv("MINISGL_CACHE_DIR", str(tmp_path))
    if shared.exists():  # built libraries; rates are measured in this folder
        (tmp_path / "kernels").mkdir()
        for folder in (path for path in shared.iterdir() if path.is_dir()):
            (tmp_path / "kernels" / folder.name).symlink_to(folder)
    runs = [subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {run.communicate(timeout=240)[0] for run in runs}
    assert len(answers) == 1
    assert "GFLOP/s" in answers.pop()


@pytest.mark.parametrize(
    ("pays", "features", "expected"),
    [
        (True, (), torch.bfloat16),
        (False, ("avx512_bf16",), torch.float32),
        (None, ("avx512_bf16",), torch.bfloat16),
        (None, (), torch.float32),
    ],
)
def test_the_dtype_follows_the_rates_or_else_the_flags(
    monkeypatch: pytest.MonkeyPatch, pays: bool | None, features: tuple[str, ...], expected: torch.dtype
):
    rates = None if pays is None else {BEST: Rates(100.0, 100.0 if pays else 50.0)}
    choice = Choice(Library(Path("x.so"), BEST, shipped=True), rates)
    monkeypatch.setattr(cpu_library, "choice", lambda: choice)
    hardware = replace(find_hardware(), cpu_features=features)
    assert spec.auto_dtype(torch.bfloat16, False, hardware) is expected
    assert spec.auto_dtype(torch.float32, False, hardware) is torch.float32
    monkeypatch.setattr(cpu_library, "choice", lambda: None)
    assert spec.auto_dtype(torch.float16, False, hardware) is (torch.bfloat16 if features else torch.float32)
