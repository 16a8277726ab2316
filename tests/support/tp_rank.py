"""One rank of a tiny model that several processes share."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from support.dense_attention import all_logits, make_model, read_json, tiny_weights

from minisgl.distributed import Meeting, TPInfo, all_gather


def run_rank(tp: TPInfo, meeting: Meeting | int, folder: str, dtype: torch.dtype, out: Path) -> None:
    """Write this rank's logits of the reference ids of tests/data/tiny/`folder` to `out`/rank<i>.safetensors.

    meeting: or the port of one.
    """
    torch.set_num_threads(1)
    meeting = meeting if isinstance(meeting, Meeting) else Meeting(meeting)
    tp = TPInfo(tp.rank, tp.size, meeting.join(tp.rank, tp.size, torch.device("cpu"), timeout_s=60))
    assert tp.least(5 + tp.rank) == 5
    assert all_gather(torch.empty(0, 3), tp).shape == (0, 6)
    model = make_model(read_json(folder, "config.json"), tiny_weights(folder).items(), dtype, tp)
    logits = all_logits(model, read_json(folder, "ref.json")["ids"])
    save_file({"logits": logits}, out / f"rank{tp.rank}.safetensors")
