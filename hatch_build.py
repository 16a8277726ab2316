"""Compiles the C++ kernels when the package is installed: a library for each instruction set of the architecture.

MINISGL_BUILD_ISA says which: all (the default), best (what this machine's processor may be fastest with, one or two;
the default of `pip install -e`), none, or names of `cpu_levels.levels` with commas between them. What the compiler
cannot make is left out with a word: at first use the package looks for a compiler again, and without one computes by
torch.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

ROOT = Path(__file__).parent


def _load(path: str) -> Any:
    """A module of the package that needs nothing installed, unlike the packages around it."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cpu_levels = _load("minisgl/kernel/cpu_levels.py")
processor = _load("minisgl/utils/processor.py")


class KernelsHook(BuildHookInterface[Any]):
    """A wheel gets the libraries, and the platform's tag if there are any. For an editable installation they lie beside
    the sources."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        editable = version == "editable"
        names = chosen_levels(os.environ.get("MINISGL_BUILD_ISA") or ("best" if editable else "all"))
        self._scratch = Path(tempfile.mkdtemp())
        libraries = self._compile(names, self._scratch)
        if editable:
            self._put_beside_sources(libraries)
        elif libraries:
            inside = cpu_levels.SHIPPED.relative_to(ROOT)
            build_data["force_include"].update({str(path): str(inside / path.name) for path in libraries})
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._scratch)

    def _compile(self, names: Sequence[str], folder: Path) -> list[Path]:
        """Those that could be compiled."""
        compiler = processor.find_compiler()
        if names and compiler is None:
            self.app.display_warning("C++ kernels: none, for no compiler was found")
            return []

        def compile_one(name: str) -> Path | None:
            path: Path = folder / cpu_levels.library_name(name)
            try:
                cpu_levels.compile_library(compiler, cpu_levels.compiler_flags(name), path)
            except (cpu_levels.BuildError, OSError) as error:
                self.app.display_warning(f"C++ kernels: {name} is left out: {reason(str(error))}")
                return None
            self.app.display_info(f"C++ kernels: {name} is compiled")
            return path

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [path for path in pool.map(compile_one, names) if path is not None]

    def _put_beside_sources(self, libraries: Sequence[Path]) -> None:
        """In place of those that were there."""
        try:
            shutil.rmtree(cpu_levels.SHIPPED, ignore_errors=True)
            cpu_levels.SHIPPED.mkdir()
            for path in libraries:
                shutil.copy(path, cpu_levels.SHIPPED)
        except OSError as error:
            self.app.display_warning(f"C++ kernels: left out: {error}")


def chosen_levels(wish: str) -> tuple[str, ...]:
    """Names of levels for a value of MINISGL_BUILD_ISA; ValueError if it is none. A processor that does not say what it
    has gets none as the best: at first use the compiler finds out."""
    known = tuple(cpu_levels.levels())
    if wish == "all":
        return known
    if wish == "best":
        best = cpu_levels.runnable(processor.cpu_flags())[:1] if processor.cpu_flags() else ()
        return (*best, *(rival for name in best if (rival := cpu_levels.rival(name))))
    names = () if wish == "none" else tuple(name.strip() for name in wish.split(","))
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"MINISGL_BUILD_ISA: {', '.join(unknown)} is not all, best, none or of {', '.join(known)}")
    return names


def platform_tag() -> str:
    """Of a wheel for machines like this one: what it links to is not what manylinux promises."""
    return next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))


def reason(message: str) -> str:
    """The one line of a compiler's answer that says what is wrong."""
    lines = message.splitlines()
    return next((line for line in lines[1:] if "error" in line), lines[-1])
