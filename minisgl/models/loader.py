"""From a checkpoint to a model that is ready to run, one tensor at a time."""

from __future__ import annotations

import torch
from tqdm import tqdm

from minisgl.distributed import SINGLE, TPInfo
from minisgl.models.base import BaseCausalLM, create_model
from minisgl.models.checkpoint import Checkpoint
from minisgl.models.config import ModelConfig


def load_model(
    checkpoint: Checkpoint,
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    tp: TPInfo = SINGLE,
    load_format: str = "auto",
    show_progress: bool = False,
) -> BaseCausalLM:
    """The model of `config` on `device`, with this rank's share of the weights in `dtype`.

    load_format: "dummy" makes random weights, the same every time, and reads nothing. Besides the model, memory holds
    one tensor of the checkpoint and its copy in `dtype`. Raises ValueError naming a tensor that is missing, unknown or
    of another shape, or the file that is damaged.
    """
    model = create_model(config, dtype, device, tp)
    if load_format == "dummy":
        model.init_dummy_weights(seed=0)
    else:
        _load_weights(model, checkpoint, show_progress)
        model.finish_loading()
    return model


def _load_weights(model: BaseCausalLM, checkpoint: Checkpoint, show_progress: bool) -> None:
    with tqdm(total=checkpoint.num_weights, desc="Loading", unit="tensor", disable=not show_progress) as bar:
        for name, tensor in checkpoint.iter_weights():
            model.load_weight(name, tensor)
            del tensor  # before the next one is read, or two are held at once
            bar.update()
