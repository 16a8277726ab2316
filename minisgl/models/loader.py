"""From a checkpoint to a model that is ready to run, one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from minisgl.distributed import SINGLE, TPInfo
from minisgl.models.base import BaseCausalLM, create_model
from minisgl.models.checkpoint import Checkpoint
from minisgl.models.config import ModelConfig
from minisgl.utils.memory import is_out_of_memory
from minisgl.utils.progress import ProgressBar


def load_model(
    checkpoint: Checkpoint,
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    tp: TPInfo = SINGLE,
    load_format: str = "auto",
    quantization: str = "none",
    deterministic: bool = True,
) -> BaseCausalLM:
    """The model of `config` on `device`, with this rank's share of the weights in `dtype`.

    load_format: "dummy" makes random weights, the same every time, and reads nothing. quantization and
    deterministic: as of Placement. Besides the model, memory holds
    one tensor of the checkpoint with its copy in `dtype`, and one layer of each shape that is packed. Shows a bar on
    stderr if that is a terminal and it takes long. Raises ValueError naming the checkpoint and the tensor that is
    missing, unknown or of another shape, or the file that is damaged; or when memory is short.
    """
    with _errors_name(checkpoint.path):
        model = create_model(config, dtype, device, tp, quantization, deterministic)
    if load_format == "dummy":
        model.init_dummy_weights(seed=0)
    else:
        _load_weights(model, checkpoint, tp, all_in_integers=quantization == "gguf")
        with _errors_name(checkpoint.path):
            model.finish_loading()
    return model


def _load_weights(model: BaseCausalLM, checkpoint: Checkpoint, tp: TPInfo, all_in_integers: bool) -> None:
    with ProgressBar("loading", checkpoint.num_weights, "tensors", is_hidden=tp.rank > 0) as bar:
        for name, tensor in checkpoint.iter_weights(all_in_integers):
            with _errors_name(checkpoint.path):
                model.load_weight(name, tensor)
            del tensor  # before the next one is read, or two are held at once
            bar.advance()


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except (RuntimeError, MemoryError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: the model does not fit into the memory that is free ({reason})") from error
