"""MINISGL_* environment variables, read once at import; a bad value is a ValueError that names it.

Standard library only. Assigning `ENV.X.value` changes it for this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
_BOOLS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_LOG_FORMATS = ("text", "json")
_KERNELS = ("auto", "torch")
_CPU_ISAS = ("auto", "native", "amx", "avx512", "avx512_vnni", "avx2_vnni", "avx2", "dotprod", "portable")


class Var(Generic[T]):
    """One variable: its present value, and what it is for. value: a function is called when it is first asked for."""

    def __init__(self, value: T | Callable[[], T], help: str) -> None:
        self._initial = value
        self.help = help

    @cached_property
    def value(self) -> T:
        return self._initial() if callable(self._initial) else self._initial


def _bool(text: str) -> bool:
    return _BOOLS[text.strip().lower()]


def _path(text: str) -> Path:
    if not text:
        raise ValueError("empty path")
    return Path(text).expanduser()


def _log_level(text: str) -> str:
    if text.upper() not in _LOG_LEVELS:
        raise ValueError(text)
    return text.upper()


def _log_format(text: str) -> str:
    if text.lower() not in _LOG_FORMATS:
        raise ValueError(text)
    return text.lower()


def _api_key(text: str) -> str | None:
    if not text:
        raise ValueError("an empty key protects nothing")
    return text


def _kernels(text: str) -> str:
    if text.lower() not in _KERNELS:
        raise ValueError(text)
    return text.lower()


def _cpu_isa(text: str) -> str:
    if text.lower() not in _CPU_ISAS:
        raise ValueError(text)
    return text.lower()


def _read(
    environ: Mapping[str, str], name: str, parse: Callable[[str], T], default: T | Callable[[], T], help: str
) -> Var[T]:
    text = environ.get(name)
    if text is None:
        return Var(default, help)
    try:
        return Var(parse(text), help)
    except (KeyError, ValueError, RuntimeError):  # RuntimeError: a path with ~ where there is no home
        raise ValueError(f"{name}={text!r} is not a valid {parse.__name__.strip('_')}: {help}") from None


def _default_cache_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "minisgl"
    except RuntimeError as error:
        raise OSError(f"{error} MINISGL_CACHE_DIR says where to keep models instead") from None


@dataclass
class Env:
    """Every variable that minisgl reads. `environ` is an argument for tests."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def __post_init__(self) -> None:
        env = self.environ
        self.DISABLE_OVERLAP_SCHEDULING = _read(
            env, "MINISGL_DISABLE_OVERLAP_SCHEDULING", _bool, False, "commit each batch before planning the next"
        )
        self.CHECK_INTEGRITY = _read(
            env, "MINISGL_CHECK_INTEGRITY", _bool, False, "recount pages, tree and locks after every commit (slow)"
        )
        self.CACHE_DIR = _read(
            env,
            "MINISGL_CACHE_DIR",
            _path,
            partial(_default_cache_dir, env),  # later, as not every user has a home
            "where pulled models and derived files are kept",
        )
        self.LOG_LEVEL = _read(
            env, "MINISGL_LOG_LEVEL", _log_level, "WARNING", "least severe message that the command line shows"
        )
        self.LOG_FORMAT = _read(
            env, "MINISGL_LOG_FORMAT", _log_format, "text", "text, or json: each message is a JSON object"
        )
        self.API_KEY = _read(
            env, "MINISGL_API_KEY", _api_key, None, "what clients of the server must send, unless --api-key says it"
        )
        self.KERNELS = _read(
            env, "MINISGL_KERNELS", _kernels, "auto", "auto: C++ kernels where they are or can be built; torch: never"
        )
        self.CPU_ISA = _read(
            env,
            "MINISGL_CPU_ISA",
            _cpu_isa,
            "auto",
            "what the C++ kernels may use: auto (the fastest, as measured once), on x86 amx, avx512, avx512_vnni, "
            "avx2_vnni or avx2, on Arm dotprod, anywhere portable or native (compiled for this very processor)",
        )


ENV = Env()
