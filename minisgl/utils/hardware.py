"""What this machine has: processor, memory, GPUs, compiler, and the torch build that drives them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from minisgl.utils.control_groups import cpu_limit, memory_limit
from minisgl.utils.processor import find_compiler, read_cpuinfo, split_field

_FEATURES = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve"),
)
_FAST_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


@dataclass(frozen=True)
class Gpu:
    """capability: of CUDA, as in (9, 0)."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]


@dataclass(frozen=True)
class Hardware:
    """num_cores: those this process may use; num_physical_cores: see `physical_cores`; num_memory_nodes: see
    `memory_nodes`. memory_bytes, available_bytes: memory in all and what this process can still take, by the machine or
    its control groups. memory_group, cpu_group: path of the control group whose limit is less than the machine has.

    cpu_features: of the instruction sets that matter here, those found, by their Linux names. compiler: path of a C++
    compiler.
    """

    torch_version: str
    torch_build: str
    cpu_name: str
    cpu_features: tuple[str, ...]
    num_cores: int
    num_physical_cores: int
    num_memory_nodes: int
    memory_bytes: int
    available_bytes: int
    memory_group: str | None
    cpu_group: str | None
    gpus: tuple[Gpu, ...]
    compiler: str | None

    @property
    def has_fast_bfloat16(self) -> bool:
        """Whether the processor multiplies bfloat16 itself; where it does not, bfloat16 is slower than float32."""
        return not _FAST_BFLOAT16.isdisjoint(self.cpu_features)


def find_hardware() -> Hardware:
    """Look at this machine. Starts the CUDA driver if torch was built for it."""
    name, features = read_cpuinfo()
    memory, available, memory_group = _read_memory()
    return Hardware(
        torch_version=torch.__version__,
        torch_build=_torch_build(),
        cpu_name=name,
        cpu_features=tuple(feature for feature in _FEATURES if feature in features),
        num_cores=len(_allowed_cpus()),
        num_physical_cores=physical_cores(),
        num_memory_nodes=len(memory_nodes()),
        memory_bytes=memory,
        available_bytes=available,
        memory_group=memory_group,
        cpu_group=_limiting_cpu_group(),
        gpus=_find_gpus(),
        compiler=find_compiler(),
    )


def physical_cores(
    cpus: Path = Path("/sys/devices/system/cpu"), proc: Path = Path("/proc/self"), system: Path = Path("/")
) -> int:
    """Cores that this process may use: two CPUs of one core are one, and a control group's share of time is a limit.

    proc, system: as of `cpu_limit`.
    """
    found, limit = _num_cores(cpus), cpu_limit(proc, system)
    return found if limit is None else max(1, min(found, int(limit.cores)))


def memory_nodes(nodes: Path = Path("/sys/devices/system/node")) -> tuple[frozenset[int], ...]:
    """The CPUs that this process may use, by the memory that is theirs (NUMA), most first; all in one if none says."""
    allowed = _allowed_cpus()
    lists = [path.read_text() for path in sorted(nodes.glob("node[0-9]*/cpulist"))]
    found = [frozenset(allowed & read_cpu_list(text)) for text in lists]
    return tuple(sorted(filter(None, found), key=len, reverse=True)) or (frozenset(allowed),)


def read_cpu_list(text: str) -> set[int]:
    """Numbers as Linux lists them: "0-3,8"."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def _num_cores(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Cores of the CPUs that this process may run on."""
    siblings = (cpus / f"cpu{i}/topology/thread_siblings_list" for i in _allowed_cpus())
    return len({path.read_text() if path.is_file() else str(path) for path in siblings})


def _limiting_cpu_group() -> str | None:
    limit = cpu_limit()
    return limit.group if limit is not None and limit.cores < _num_cores() else None


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _torch_build() -> str:
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"


def _find_gpus() -> tuple[Gpu, ...]:
    if not torch.cuda.is_available():
        return ()
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return tuple(Gpu(gpu.name, gpu.total_memory, (gpu.major, gpu.minor)) for gpu in found)


def _read_memory(
    meminfo: Path = Path("/proc/meminfo"), proc: Path = Path("/proc/self"), system: Path = Path("/")
) -> tuple[int, int, str | None]:
    """Bytes in all and bytes still available, by the kernel and by the control groups, whichever is less, and the path
    of the control group that has less than the machine. proc, system: as of `memory_limit`.
    """
    if not meminfo.is_file():
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total, None
    fields = dict(split_field(line) for line in meminfo.read_text().splitlines())
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    limit = memory_limit(proc, system)
    if limit is None:
        return total, available, None
    group = limit.group if limit.limit_bytes < total else None
    return min(total, limit.limit_bytes), min(available, limit.free_bytes), group
