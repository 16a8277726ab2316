"""Tensors of a checkpoint that the model has no place for: which are left out with a warning, and which are refused.

transformers leaves all of them out. Here a model is refused where one of them would take part in what is computed, as
then the answers would be those of another model: see `part_in_answers`. docs/models.md has the same rules for users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from minisgl.utils.logging import get_logger

logger = get_logger(__name__)

# Values that older versions of transformers saved though they follow from the config.
_BUFFER = re.compile(r".*\.rotary_emb\..*|(?:.*\.)?(?:position_ids|masked_bias|inv_freq|num_batches_tracked)")
_ADAPTER = re.compile(r"(?:^|[._])(?:lora|ia3|dora|loha|lokr)_|(?:^|[._])(?:prompt|prefix)_(?:encoder|embeddings?)")
_LAYER = re.compile(r"(?:model\.layers|blk)\.\d+\.")
_FOR_OTHER_INPUTS = re.compile(r"(?:v|mm|a)\.")  # images and sound, in GGUF
_TRUNK = re.compile(r"(?:model\.)?(\w+)\.\w+")  # right beside the embedding and the layers
_IN_THE_WAY = re.compile(r"norm|(?:^|_)ln(?:_|$)|pos(?:ition)?_emb|position|(?:^|_)wpe$|token_types")
_SHOWN = 10


def part_in_answers(name: str, has_weight: Callable[[str], bool]) -> str | None:
    """Why the tensor `name`, unknown to the model, must not be left out; None if it can be.

    has_weight: whether the model has a weight of that name, in the names of the same checkpoint.
    Refused are what belongs to a module with a weight of the model (a bias, a scale of its quantisation), adapters,
    anything in a decoder layer, and norms and positions beside the layers. Others are heads for other tasks, parts for
    images or sound, buffers and the like.
    """
    if _BUFFER.fullmatch(name):
        return None
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        if has_weight(f"{(module := '.'.join(parts[:length]))}.weight"):
            return f"it belongs to {module}"
    if _ADAPTER.search(name):
        return "it belongs to an adapter, which has to be merged into the model first"
    if _LAYER.match(name):
        return "it stands in a layer"
    trunk = _TRUNK.fullmatch(name)
    if trunk is not None and not _FOR_OTHER_INPUTS.match(name) and _IN_THE_WAY.search(trunk[1]):
        return "a norm or positions stand in every token's way"
    return None


def warn_of(names: Iterable[str]) -> None:
    """A line that names tensors which are left out, unless there are none."""
    extra = list(names)
    if extra:
        more = f" and {len(extra) - _SHOWN} more" * (len(extra) > _SHOWN)
        text = ", ".join(extra[:_SHOWN]) + more
        logger.warning(
            "tensors of the checkpoint that the model has no use for are left out (%d): %s", len(extra), text
        )
