"""The weights that a model still waits for while it is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import torch
from torch import nn

from minisgl.layers import Layer, WeightSlot
from minisgl.models.extra_tensors import part_in_answers
from minisgl.utils.grouped_tensor import GroupedTensor

_NAMES_SHOWN = 10  # in an error: a model has hundreds
HEAD = "lm_head.weight"


class PendingWeights:
    """Slots by the names of checkpoint tensors.

    A layer is packed as soon as its last tensor has come, so that one layer at most is held in two forms.
    extra: names of tensors that came and have no place, see `part_in_answers`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._slots = {name: (slot, layer) for name, slot, layer in _named_slots(model)}
        self._come: set[str] = set()
        self.extra: list[str] = []
        self._missing = Counter(layer for _, layer in self._slots.values())
        self._slotless = [layer for layer in _layers(model).values() if layer not in self._missing]

    def slots(self) -> list[tuple[str, WeightSlot]]:
        """What is waited for."""
        return [(name, slot) for name, (slot, _) in self._slots.items()]

    def take(self, name: str, tensor: torch.Tensor | GroupedTensor) -> None:
        """Load the tensor into its place, or note that it has none.

        ValueError that names it if it has another shape or came before, or must not be left out.
        """
        if name in self._come:
            raise ValueError(f"tensor {name!r} came twice")
        if name not in self._slots:
            if (reason := part_in_answers(name, self._is_known)) is not None:
                raise ValueError(f"unknown tensor {name!r}: the model as configured has no such weight, and {reason}")
            self.extra.append(name)
            return
        slot, layer = self._slots[name]
        slot.load(name, tensor)
        del self._slots[name]
        self._come.add(name)
        self._missing[layer] -= 1
        if not self._missing[layer]:
            layer.pack()

    def finish(self) -> None:
        """Pack the layers that wait for nothing of their own. ValueError that names tensors that never came."""
        if self._slots:
            names = [*islice(self._slots, _NAMES_SHOWN), *(["..."] if len(self._slots) > _NAMES_SHOWN else [])]
            unknown = f"; {len(self.extra)} came that are unknown, such as {self.extra[0]!r}" if self.extra else ""
            raise ValueError(f"{len(self._slots)} tensors never came: {', '.join(names)}{unknown}")
        for layer in self._slotless:
            layer.pack()

    def _is_known(self, name: str) -> bool:
        """A tied head has no weight of its own."""
        return name in self._slots or name in self._come or name == HEAD


def _layers(model: nn.Module) -> dict[str, Layer]:
    return {path: layer for path, layer in model.named_modules() if isinstance(layer, Layer)}


def _named_slots(model: nn.Module) -> Iterator[tuple[str, WeightSlot, Layer]]:
    """Every slot with its full tensor name and its layer; see `Layer.slots` for the two kinds of key."""
    for path, layer in _layers(model).items():
        parent = path.rpartition(".")[0]
        for key, slot in layer.slots().items():
            yield f"{parent if '.' in key else path}.{key}", slot, layer
