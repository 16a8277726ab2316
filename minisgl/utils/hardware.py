"""What this machine has: processor, memory, GPUs, compiler, and the torch build that drives them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

_FEATURES = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve"),
)
_FAST_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Gpu:
    """capability: of CUDA, as in (9, 0)."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]


@dataclass(frozen=True)
class Hardware:
    """num_cores: those this process may use; num_physical_cores: see `physical_cores`. available_bytes: memory it can
    still take, the container's limit heeded.

    cpu_features: of the instruction sets that matter here, those found, by their Linux names. compiler: path of a C++
    compiler.
    """

    torch_version: str
    torch_build: str
    cpu_name: str
    cpu_features: tuple[str, ...]
    num_cores: int
    num_physical_cores: int
    memory_bytes: int
    available_bytes: int
    gpus: tuple[Gpu, ...]
    compiler: str | None

    @property
    def has_fast_bfloat16(self) -> bool:
        """Whether the processor multiplies bfloat16 itself; where it does not, bfloat16 is slower than float32."""
        return not _FAST_BFLOAT16.isdisjoint(self.cpu_features)


def find_hardware() -> Hardware:
    """Look at this machine. Starts the CUDA driver if torch was built for it."""
    name, features = _read_cpuinfo()
    memory, available = _read_memory()
    return Hardware(
        torch_version=torch.__version__,
        torch_build=_torch_build(),
        cpu_name=name,
        cpu_features=features,
        num_cores=len(_allowed_cpus()),
        num_physical_cores=physical_cores(),
        memory_bytes=memory,
        available_bytes=available,
        gpus=_find_gpus(),
        compiler=find_compiler(),
    )


@cache
def cpu_is_intel() -> bool:
    """Whether MKL's float32 kernels run at their best here."""
    return "Intel" in _read_cpuinfo()[0]


@cache
def cpu_flags() -> frozenset[str]:
    """Every instruction set of this processor, by the names of Linux; none where it does not say."""
    return frozenset(_read_cpuinfo(known=None)[1])


def physical_cores(cpus: Path = Path("/sys/devices/system/cpu"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use: two CPUs of one core are one, and a control group's share of time is a limit."""
    siblings = (cpus / f"cpu{i}/topology/thread_siblings_list" for i in _allowed_cpus())
    found = len({path.read_text() if path.is_file() else str(path) for path in siblings})
    quota = cgroup / "cpu.max"
    most, _, period = (quota.read_text() if quota.is_file() else "max").strip().partition(" ")
    return found if most == "max" else max(1, min(found, int(most) // int(period)))


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def find_compiler() -> str | None:
    """Path of a C++ compiler: the one that CXX names, or the first usual one."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else _COMPILERS
    return next((path for name in names if (path := shutil.which(name))), None)


def compiler_version(path: str) -> str:
    """The first line of what the compiler says about itself."""
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return (answer.stdout or answer.stderr).partition("\n")[0]


def _torch_build() -> str:
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"


def _find_gpus() -> tuple[Gpu, ...]:
    if not torch.cuda.is_available():
        return ()
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return tuple(Gpu(gpu.name, gpu.total_memory, (gpu.major, gpu.minor)) for gpu in found)


def _read_cpuinfo(
    path: Path = Path("/proc/cpuinfo"), known: tuple[str, ...] | None = _FEATURES
) -> tuple[str, tuple[str, ...]]:
    """Name and those features that are known, or all; without that file (not Linux) the platform's name and nothing."""
    if not path.is_file():
        return platform.processor() or platform.machine(), ()
    fields = dict(_split(line) for line in path.read_text().splitlines() if ":" in line)
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    found = flags if known is None else [name for name in known if name in flags]
    return fields.get("model name", platform.machine()), tuple(found)


def _split(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _read_memory(proc: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> tuple[int, int]:
    """Bytes in all and bytes still available, by the kernel and by the control group, whichever is less."""
    if not proc.is_file():
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total
    fields = dict(_split(line) for line in proc.read_text().splitlines())
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    limit = _read_number(cgroup / "memory.max", total)
    used = _read_number(cgroup / "memory.current", 0) - _reclaimable(cgroup / "memory.stat")
    return min(total, limit), min(available, max(limit - used, 0))


def _reclaimable(stat: Path) -> int:
    """File pages that the control group counts as used but gives up when asked for memory, in bytes."""
    lines = stat.read_text().splitlines() if stat.is_file() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))


def _read_number(path: Path, default: int) -> int:
    """`default` where the file is missing or says "max"."""
    text = path.read_text().strip() if path.is_file() else "max"
    return default if text == "max" else int(text)
