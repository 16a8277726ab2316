"""How much shared memory the kernels of experts take on other GPUs: compiled for these, and not run.

python compiled_experts.py CAPABILITY DTYPE     # prints the most bytes of a program
"""

from __future__ import annotations

import sys

import torch
from compiled_attention import SHARED, compile_only

from minisgl.kernel.torch_moe import ClampedGate, ExpertBiases
from minisgl.kernel.triton import moe, moe_plan

TOKENS = (1, 40, 400)  # for each tiling one


def compile_experts(dtype: torch.dtype) -> None:
    """Layers of two experts, both chosen by every token, by the calls that an engine makes."""
    gate_up, down = torch.zeros(2, 128, 64, dtype=dtype), torch.zeros(2, 64, 64, dtype=dtype)
    biases = ExpertBiases(torch.zeros(2, 128, dtype=dtype), torch.zeros(2, 64, dtype=dtype))
    for num_tokens in TOKENS:
        weights, experts = moe_plan.route(torch.zeros(num_tokens, 2, dtype=dtype), 2, normalised=True)
        x = torch.zeros(num_tokens, 64, dtype=dtype)
        moe.run_experts(x, gate_up, down, weights, experts)
        moe.run_experts(x, gate_up, down, weights, experts, biases, ClampedGate(1.702, 7.0))


if __name__ == "__main__":
    compile_only(int(sys.argv[1]))
    compile_experts(getattr(torch, sys.argv[2]))
    print(max(SHARED))
