"""Stand-ins for modules that SGLang and vLLM import on the way to their prefix caches and never use there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

UNUSED = {
    "av",
    "flashinfer",
    "llguidance",
    "mistral_common",
    "pynvml",
    "scipy",
    "soundfile",
    "torch_memory_saver",
    "torchao",
    "torchaudio",
    "torchvision",
}


class Anything(type):
    """A class that has every attribute, and as a decorator leaves alone what it decorates."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else cls


class StubModule(ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - what makes a module a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class StubFinder(MetaPathFinder, Loader):
    """Asked last, so that a module which is installed is used."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] in UNUSED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


@contextmanager
def stubbed() -> Iterator[None]:
    """Imports inside find the stand-ins. transformers goes first: it would take a stand-in for the real thing."""
    importlib.import_module("transformers.image_utils")
    finder = StubFinder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
