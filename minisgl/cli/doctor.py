"""minisgl doctor: what was found on this machine, for people or as JSON."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minisgl import __version__
from minisgl.cli.session import shown_sampling
from minisgl.env import ENV
from minisgl.utils.model_store import pulled_models

if TYPE_CHECKING:
    from minisgl.kernel.cpu_choice import Choice


def run(as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False) -> None:
    """Show what was found on this machine."""
    import torch

    from minisgl.engine.quantization import auto_for_gguf
    from minisgl.engine.spec import auto_dtype, resolve_backend
    from minisgl.kernel import cpu_library, cpu_ops, triton
    from minisgl.utils.hardware import find_hardware
    from minisgl.utils.processor import compiler_version

    hardware = find_hardware()
    choice = cpu_library.choice() if cpu_ops.in_use() else None
    found = {
        "minisgl": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        **dataclasses.asdict(hardware),
        "compiler_version": compiler_version(hardware.compiler) if hardware.compiler else None,
        "kernels": "C++" if choice else "torch",
        "kernel_library": str(choice.library) if choice else None,
        "kernel_rates": _rates(choice) if choice else None,
        "gpu_kernels": ("Triton" if triton.in_use() else "torch") if hardware.gpus else None,
        "attention_backend": resolve_backend("auto", bool(hardware.gpus)),
        "dtype_of_16_bits": str(auto_dtype(torch.bfloat16, bool(hardware.gpus), hardware)).removeprefix("torch."),
        "gguf_quantization": auto_for_gguf("cuda" if hardware.gpus else "cpu"),
        "cache_dir": str(ENV.CACHE_DIR.value),
        "models": {model.alias: str(model.path) for model in pulled_models()},
        "sampling_defaults": {model.alias: dict(model.sampling) for model in pulled_models()},
    }
    typer.echo(json.dumps(found, indent=2) if as_json else _as_text(found))


def _as_text(found: dict[str, Any]) -> str:
    gpus = [f"{gpu['name']} ({_gib(gpu['memory_bytes'])})" for gpu in found["gpus"]]
    kernels = f"{found['kernels']} on the CPU" + (f", {found['gpu_kernels']} on a GPU" if gpus else "")
    library = f" ({found['kernel_library']})" if found["kernel_library"] else ""
    nodes = found["num_memory_nodes"]
    num_cores = found["num_physical_cores"]
    cores = f"{num_cores} core{'s' * (num_cores != 1)} to compute on" + (
        f", on one of {nodes} memory nodes" * (nodes > 1)
    )
    models = [f"{alias}: {path}" for alias, path in found["models"].items()]
    advised = [f"{alias}: {shown_sampling(fields)}" for alias, fields in found["sampling_defaults"].items()]
    rows = {
        "minisgl": found["minisgl"],
        "python": f"{found['python']} ({found['executable']})",
        "torch": f"{found['torch_version']} ({found['torch_build']} build)",
        "cpu": f"{found['cpu_name']}, {found['num_cores']} CPUs, {cores}{_limited_by(found['cpu_group'])}",
        "features": " ".join(found["cpu_features"]) or "none known",
        "memory": f"{_gib(found['memory_bytes'])}, {_gib(found['available_bytes'])} available"
        + _limited_by(found["memory_group"]),
        "gpus": ", ".join(gpus) or "none",
        "compiler": found["compiler_version"] or "none",
        "kernels": kernels + library,
        "rates": _rates_as_text(found["kernel_rates"]) if found["kernel_library"] else "none without kernels in C++",
        "attention": f"{found['attention_backend']}, unless another backend is asked for",
        "dtype": _dtype(found),
        "integers": _integers(found["gguf_quantization"]),
        "cache": found["cache_dir"],
        "models": ", ".join(models) or "none pulled; `minisgl pull smollm2` fetches the default one",
        "sampling": "; ".join([*advised, "others: as their files advise, else temperature 1"])
        + "; generate, chat and LLM.generate are greedy",
    }
    return "\n".join(f"{name:<9} {value}" for name, value in rows.items())


def _rates(choice: Choice) -> dict[str, dict[str, float]] | None:
    """10^9 operations a second of one core, by level and dtype; None if they are not known."""
    return {isa: rates._asdict() for isa, rates in choice.rates.items()} if choice.rates else None


def _rates_as_text(rates: dict[str, dict[str, float]] | None) -> str:
    if rates is None:
        return "not measured, for they cannot be kept in the cache; the processor's flags decide"
    levels = (
        f"{isa} {each['bfloat16']:.0f} in bfloat16, {each['float32']:.0f} in float32" for isa, each in rates.items()
    )
    return f"GFLOP/s of a core, measured once: {'; '.join(levels)}"


def _dtype(found: dict[str, Any]) -> str:
    name = found["dtype_of_16_bits"]
    if found["gpus"]:
        why = ", as a GPU is fast at it" * (name == "bfloat16")
    else:
        by = "the rates" if found["kernel_rates"] else "the processor's flags"
        why = f", by {by}"
    return f"{name} for checkpoints of 16 bits{why}; float32 for others and most GGUF files (see --dtype)"


def _integers(quantization: str) -> str:
    if quantization == "none":
        return "quantization none for a GGUF file: more takes a CPU and kernels in C++"
    return f"quantization none for a GGUF file in float32, {quantization} for one in bfloat16"


def _limited_by(control_group: str | None) -> str:
    return f" (limit of control group {control_group})" if control_group else ""


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
