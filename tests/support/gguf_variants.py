"""GGUF files made for tests from the one in float32: other types, other tensors, other metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from minisgl.utils.gguf_file import GGUFFile

DATA = Path(__file__).parents[1] / "data" / "gguf"
LOGITS: dict[str, Any] = json.loads((DATA / "llama_logits.json").read_text())


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[torch.Tensor, str]]) -> Path:
    """A GGUF file of `tensors`, each float32 with the type to write it in (no K type).

    metadata: with general.architecture; general.alignment is obeyed.
    """
    writer = GGUFWriter(path, metadata["general.architecture"])
    writer.data_alignment = metadata.get("general.alignment", 32)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in metadata.items():
        if key != "general.architecture":
            (writer.add_array if isinstance(value, list) else add[type(value)])(key, value)
    for name, (values, type_name) in tensors.items():
        kind = GGMLQuantizationType[type_name]
        writer.add_tensor(name, quantize(values.numpy(), kind), raw_dtype=kind)
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()
    return path


def llama_variant(
    path: Path,
    choose: Callable[[str], str] = lambda name: "F32",
    *,
    metadata: Mapping[str, Any] | None = None,
    leave_out: tuple[str, ...] = (),
    more: Mapping[str, torch.Tensor] | None = None,
) -> Path:
    """The random Llama in DATA. choose: the type of a matrix by its name; vectors stay float32.

    metadata: replaces and adds; None as a value takes the key away. leave_out, more: tensors taken away and added.
    """
    base = GGUFFile(DATA / "llama_f32.gguf")
    values = {name: base.read(name) for name in base.tensors if name not in leave_out} | dict(more or {})
    typed = {name: (tensor, choose(name) if tensor.dim() > 1 else "F32") for name, tensor in values.items()}
    merged = base.metadata | dict(metadata or {})
    return write_gguf(path, {key: value for key, value in merged.items() if value is not None}, typed)


def as_architecture(path: Path, name: str, more: Mapping[str, torch.Tensor] | None = None) -> Path:
    """The random Llama in DATA, called by another architecture's name. more: tensors added, in float32."""
    base = GGUFFile(DATA / "llama_f32.gguf")
    metadata = {key.replace("llama.", f"{name}."): value for key, value in base.metadata.items()}
    values = {tensor: base.read(tensor) for tensor in base.tensors} | dict(more or {})
    typed = {tensor: (value, "F32") for tensor, value in values.items()}
    return write_gguf(path, metadata | {"general.architecture": name}, typed)


def reference_variant(path: Path, variant: str) -> Path:
    """The file whose logits LOGITS["models"][variant] holds; written to `path` unless DATA has it."""
    if (stored := DATA / f"llama_{variant}.gguf").exists():
        return stored
    if variant == "rope_freqs":
        return llama_variant(path, lambda name: "F16", more={"rope_freqs.weight": torch.tensor(LOGITS["rope_freqs"])})
    if variant == "tied":
        return llama_variant(path, lambda name: "Q8_0", leave_out=("output.weight",))
    return llama_variant(path, lambda name: variant.upper())
