"""Which layers see no more than a window of tokens, and how wide it is, from a config.json.

Source: transformers 5.24, the classes' `__post_init__` for the layers, and `masking_utils.py` for what a window is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minisgl.models.values import count, flag, names

FULL, LOCAL = "full_attention", "sliding_attention"


def is_in_use(config: Mapping[str, Any]) -> bool:
    """Whether a config whose architecture heeds use_sliding_window has a window."""
    absent = config.get("sliding_window") is None or config.get("use_sliding_window") is None
    return not absent and flag(config, "use_sliding_window")


def in_every_layer(config: Mapping[str, Any]) -> list[str]:
    """layer_types of an architecture whose layers are all alike: LOCAL if the config has a sliding_window.

    ValueError if the config lists others, of which transformers would take no notice.
    """
    kind = FULL if config.get("sliding_window") is None else LOCAL
    kinds = [kind] * count(config, "num_hidden_layers")
    if (listed := config.get("layer_types") or kinds) != kinds:
        raise ValueError(f"layer_types={listed!r} is not supported, where every layer is {kind} by sliding_window")
    return kinds


def in_chosen_layers(config: Mapping[str, Any], is_chosen: Callable[[int], bool]) -> list[str]:
    """layer_types as the config lists them; else LOCAL for those that `is_chosen` names, if a window is in use.

    ValueError if the config lists layers as LOCAL and has no window in use.
    """
    in_use = is_in_use(config)
    if not config.get("layer_types"):
        return [LOCAL if in_use and is_chosen(i) else FULL for i in range(count(config, "num_hidden_layers"))]
    kinds = names(config, "layer_types")
    if LOCAL in kinds and not in_use:
        raise ValueError(f"layer_types has {LOCAL}, but no sliding_window is in use")
    return kinds


def in_later_layers(config: Mapping[str, Any]) -> list[str]:
    """`in_chosen_layers` of Qwen2 and Qwen3: from number max_window_layers on."""
    first = count(config, "max_window_layers", least=0)
    return in_chosen_layers(config, lambda i: i >= first)


def kinds_of_layers(config: Mapping[str, Any]) -> list[str]:
    """FULL or LOCAL for every layer, by layer_types; FULL where there is no such list. ValueError for other kinds."""
    num_layers = count(config, "num_hidden_layers")
    kinds = names(config, "layer_types") or [FULL] * num_layers
    if other := sorted(set(kinds) - {FULL, LOCAL}):
        raise ValueError(f"layer_types has {', '.join(other)}, and only {FULL} and {LOCAL} are supported")
    if len(kinds) != num_layers:
        raise ValueError(f"layer_types has {len(kinds)} entries for num_hidden_layers={num_layers}")
    return kinds


def windows_of(config: Mapping[str, Any], kinds: Sequence[str], context: int) -> tuple[int, ...]:
    """`ModelConfig.windows` of layers of these kinds, for texts of up to `context` tokens.

    ValueError if no window is given for layers that are LOCAL, or one is in use and nothing says in which layers.
    """
    if LOCAL in kinds:
        window = count(config, "sliding_window")
        return within([window if kind == LOCAL else 0 for kind in kinds], context)
    in_use = "layer_types" not in config and flag(config, "use_sliding_window", True)
    if in_use and (window := count(config, "sliding_window", context)) < context:
        raise ValueError(f"sliding_window={window} is in use, and only {FULL} is supported here")
    return ()


def within(windows: Sequence[int], context: int) -> tuple[int, ...]:
    """By layer for texts of up to `context` tokens: a window that hides none of them is 0; empty if all are."""
    narrow = tuple(window if window < context else 0 for window in windows)
    return narrow if any(narrow) else ()
