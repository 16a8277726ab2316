"""SmolLM2-135M-Instruct in the file formats of `bench_cpu.py`'s engines, all made from the Q4_1 file that is pulled.

Every format but Q4_1 itself comes from the values of that file, so all engines compute nearly the same model: the error
of a second rounding comes on top. The matrices of the layers have the format; the embedding, which is the head too,
stays in Q8_0 as in the first file, but in BF16. Norms stay float32 (bfloat16 in the safetensors file).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file

from minisgl.models.gguf_checkpoint import GGUFCheckpoint
from minisgl.tokenizer import load_tokenizer
from minisgl.utils.gguf_header import GGUFHeader
from minisgl.utils.grouped_tensor import dense
from minisgl.utils.model_store import resolve_model

MADE_GGUF = ("q4_0", "q8_0", "bf16")
SAFETENSORS, ONNX_INT4 = "safetensors", "onnx-int4"
# What the builder of onnxruntime-genai is asked for: blocks of 32 as in Q4_1, and activations of 8 bits.
ONNX_OPTIONS = ("int4_block_size=32", "int4_accuracy_level=4")
HOW_MADE = {
    "q4_1": "as pulled",
    **dict.fromkeys(MADE_GGUF, "Q4_1 dequantised, then by gguf.quants; the embedding stays Q8_0, but in BF16"),
    SAFETENSORS: "Q4_1 dequantised, rounded to bfloat16",
    ONNX_INT4: f"the safetensors, by onnxruntime_genai.models.builder -p int4 {' '.join(ONNX_OPTIONS)}",
}


class Models:
    """Files and folders by format, made in `folder` when first asked for. onnx_python: where its builder lives."""

    def __init__(self, folder: Path, onnx_python: Path | None = None) -> None:
        self._folder, self._onnx_python = folder, onnx_python
        self._sizes: dict[str, int] = {}

    def path(self, name: str) -> Path:
        """A .gguf file, or for SAFETENSORS and ONNX_INT4 a folder."""
        if name == "q4_1":
            return resolve_model("smollm2")
        if name in MADE_GGUF:
            return self._made(f"smollm2-{name}.gguf", lambda path: requantize(resolve_model("smollm2"), path, name))
        if name == SAFETENSORS:
            return self._made(name, lambda path: write_safetensors(resolve_model("smollm2"), path))
        assert name == ONNX_INT4, name
        return self._made(name, self._build_onnx)

    def weight_bytes(self, name: str) -> int:
        """What the weights take as they are in the file: tokenizer and padding left out."""
        if name not in self._sizes:
            self._sizes[name] = num_weight_bytes(self.path(name))
        return self._sizes[name]

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        path = self._folder / name
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f"unfinished-{path.name}")
            make(unfinished)
            unfinished.rename(path)
        return path

    def _build_onnx(self, path: Path) -> None:
        source = self.path(SAFETENSORS)
        asked = ["-i", source, "-o", path, "-p", "int4", "-e", "cpu", "--extra_options", *ONNX_OPTIONS]
        command = [self._onnx_python, "-m", "onnxruntime_genai.models.builder", *asked]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the builder of onnxruntime-genai failed: {done.stderr.strip().splitlines()[-1:]}")


def num_weight_bytes(path: Path) -> int:
    if path.is_file():
        return sum(info.num_bytes for info in GGUFHeader(path).tensors.values())
    return sum(file.stat().st_size for file in path.iterdir() if file.suffix in (".safetensors", ".onnx", ".data"))


def requantize(source: Path, path: Path, name: str) -> None:
    """Write `path` with the metadata of `source` and its matrices in ggml's type `name`."""
    reader, kind = GGUFReader(source), GGMLQuantizationType[name.upper()]
    writer = GGUFWriter(path, "llama")
    for key, value, value_type, item_type in metadata(reader):
        writer.add_key_value(key, value, value_type, item_type)
    writer.add_file_type(LlamaFileType[f"MOSTLY_{name.upper()}"])
    for tensor in reader.tensors:
        values, new_kind = tensor.data, tensor.tensor_type
        if len(tensor.shape) > 1 and (tensor.name.startswith("blk.") or name == "bf16"):
            values, new_kind = quantize(dequantize(tensor.data, tensor.tensor_type), kind), kind
        writer.add_tensor(tensor.name, values, raw_dtype=new_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def metadata(reader: GGUFReader) -> Iterator[tuple[str, Any, GGUFValueType, GGUFValueType | None]]:
    """Key, value, type and, of an array, the type of its items, for all that a writer does not write by itself."""
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key not in ("general.architecture", "general.file_type"):
            yield key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None


def write_safetensors(source: Path, folder: Path) -> None:
    """A folder in Hugging Face's layout, tokenizer included, every tensor in bfloat16."""
    checkpoint = GGUFCheckpoint(source)
    load_tokenizer(source).hf.save_pretrained(folder)
    tensors = {name: dense(tensor).to(torch.bfloat16).contiguous() for name, tensor in checkpoint.iter_weights()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = checkpoint.hf_config() | {"dtype": "bfloat16", "eos_token_id": 2, "bos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
