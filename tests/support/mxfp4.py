"""Checkpoints whose experts are in MXFP4, as those of GPT-OSS are published: with random numbers in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


def random_bytes(*shape: int, low: int = 0, high: int = 256) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")


def put_experts_in_mxfp4(folder: Path, low: int = 121, high: int = 125) -> Path:
    """Of a checkpoint with stacked experts. Scales are 2^(n - 127), low <= n < high."""
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        tensors |= _quantised(name, tensor, low, high) if tensor.dim() == 3 else {name: tensor}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    change_config(folder, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    return folder


def _quantised(name: str, stack: torch.Tensor, low: int, high: int) -> dict[str, torch.Tensor]:
    """In place of experts' matrices [E, K, N]: random ones."""
    experts, inputs, outputs = stack.shape
    scales = random_bytes(experts, outputs, inputs // 32, low=low, high=high)
    return {f"{name}_blocks": random_bytes(experts, outputs, inputs // 32, 16), f"{name}_scales": scales}
