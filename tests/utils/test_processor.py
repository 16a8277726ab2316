from pathlib import Path

import pytest

from minisgl.utils import processor

CPUINFO = """processor\t: 0
model name\t: Some CPU @ 2.0GHz
flags\t\t: fpu avx2 avx512f avx512_bf16 unheard_of

processor\t: 1
model name\t: Some CPU @ 2.0GHz
flags\t\t: fpu avx2 avx512f avx512_bf16 unheard_of
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_cpuinfo_gives_the_name_and_every_feature(tmp_path: Path):
    name, features = processor.read_cpuinfo(write(tmp_path / "cpuinfo", CPUINFO))
    assert name == "Some CPU @ 2.0GHz"
    assert features == ("fpu", "avx2", "avx512f", "avx512_bf16", "unheard_of")


def test_arm_has_another_word_for_features_and_no_name(tmp_path: Path):
    path = write(tmp_path / "cpuinfo", "processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU part\t: 0xd0c\n")
    assert processor.read_cpuinfo(path)[1] == ("fp", "asimd", "asimddp")


def test_without_cpuinfo_no_feature_is_claimed(tmp_path: Path):
    assert processor.read_cpuinfo(tmp_path / "missing")[1] == ()


def test_the_compiler_that_cxx_names_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compiler = write(tmp_path / "mycc", "#!/bin/sh\necho mycc 1.2\necho more\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert processor.find_compiler() == str(compiler)
    assert processor.compiler_version(str(compiler)) == "mycc 1.2"


def test_no_compiler_is_found_where_there_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert processor.find_compiler() is None
