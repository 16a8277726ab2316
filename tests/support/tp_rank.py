"""One rank of a tiny model that several processes share."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from support.dense_attention import all_logits, make_model, read_json, tiny_weights

from minisgl.distributed import TPInfo


def run_rank(tp: TPInfo, folder: str, dtype: torch.dtype, out: Path) -> None:
    """Write this rank's logits of the reference ids of tests/data/tiny/`folder` to `out`/rank<i>.safetensors."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=tp.rank, world_size=tp.size)
    model = make_model(read_json(folder, "config.json"), tiny_weights(folder).items(), dtype, tp)
    logits = all_logits(model, read_json(folder, "ref.json")["ids"])
    save_file({"logits": logits}, out / f"rank{tp.rank}.safetensors")
    dist.destroy_process_group()
