"""How layers with a window turn, where that is not as the others do: two sets of rope parameters in one config.

Source: transformers 5.24, `convert_rope_params_to_dict` of Gemma3TextConfig and of Olmo3Config.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minisgl.models.rope import RopeConfig
from minisgl.models.values import mapping
from minisgl.models.windows import FULL, LOCAL


def by_kind_of_layer(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a config.json, the keys that `RopeConfig.from_hf` reads for layers without a window, and `local_rope` for the
    others.

    `rope_parameters` of transformers 5 are two, by kind of layer; `rope_scaling` of transformers 4 is for the others
    alone. ValueError for `rope_parameters` that are for no kind of layer: transformers would take no notice of them.
    """
    ropes = mapping(config, "rope_parameters")
    if other := sorted(ropes.keys() - {FULL, LOCAL}):
        raise ValueError(f"rope_parameters has {', '.join(other)}, and not only {FULL} and {LOCAL}")
    full = {**mapping(ropes, FULL), **mapping(config, "rope_scaling")}
    return {
        "rope_parameters": full,
        "rope_scaling": None,
        "local_rope": ropes.get(LOCAL),
        "original_max_position_embeddings": None,  # at the top it would overrule what is in there
    }


def local_rope(config: Mapping[str, Any], theta: float) -> RopeConfig:
    """Of layers with a window, from what `by_kind_of_layer` gave. theta: where it has none. Errors of `from_hf`."""
    return RopeConfig.from_hf(
        {
            "rope_theta": theta,
            "rope_parameters": config.get("local_rope"),
            "max_position_embeddings": config.get("max_position_embeddings"),
        }
    )
