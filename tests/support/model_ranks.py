"""One rank of several tiny models, one after the other."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from support.dense_attention import all_logits, load_saved

from minisgl.distributed import Meeting, TPInfo


def run_rank(tp: TPInfo, meeting: Meeting | int, folders: list[Path], ids: list[int], out: Path) -> None:
    """Write this rank's logits of `ids` by every model to `out`/rank<i>.safetensors, by its number in the list.

    meeting: or the port of one.
    """
    torch.set_num_threads(1)
    meeting = meeting if isinstance(meeting, Meeting) else Meeting(meeting)
    tp = TPInfo(tp.rank, tp.size, meeting.join(tp.rank, tp.size, torch.device("cpu"), timeout_s=60))
    logits = {str(i): all_logits(load_saved(folder, tp), ids) for i, folder in enumerate(folders)}
    save_file(logits, out / f"rank{tp.rank}.safetensors")
