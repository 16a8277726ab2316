"""The GGUF reader against the `gguf` package, and against damaged files."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize
from support.gguf_variants import DATA, LOGITS, reference_variant, write_gguf

from minisgl.utils.gguf_file import GGUFFile
from minisgl.utils.gguf_header import TYPES

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "a.bool": True,
    "an.int": 7,
    "a.float": 0.5,
    "a.string": "naïve ▁ 🦙",
    "some.strings": ["<s>", "", "Ġthe"],
    "some.ints": [-1, 0, 3],
    "some.floats": [0.25, -2.0],
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of under 2 KB with a value of every kind and two tensors."""
    tensors = {"one.weight": (torch.arange(64.0).view(2, 32), "Q8_0"), "two.bias": (torch.arange(3.0), "F32")}
    return write_gguf(tmp_path / "small.gguf", METADATA, tensors)


def rewrite(path: Path, old: bytes, new: bytes) -> Path:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    return path


def entry(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    """One entry of the tensor table, as the format has it."""
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return struct.pack("<Q", len(name)) + name.encode() + dims + struct.pack("<IQ", kind, offset)


def test_metadata_comes_as_python_values(small: Path) -> None:
    assert GGUFFile(small).metadata == METADATA
    assert type(GGUFFile(small).metadata["a.bool"]) is bool


def test_the_table_gives_shapes_rows_first(small: Path) -> None:
    info = GGUFFile(small).tensors["one.weight"]
    assert (info.shape, info.type, info.num_bytes) == ((2, 32), "Q8_0", 2 * 34)
    assert list(GGUFFile(small).tensors) == ["one.weight", "two.bias"]


@pytest.mark.parametrize("variant", LOGITS["models"])
def test_every_type_is_dequantised_as_the_gguf_package_does(variant: str, tmp_path: Path) -> None:
    path = reference_variant(tmp_path / "model.gguf", variant)
    file = GGUFFile(path)
    for tensor in GGUFReader(path).tensors:
        with np.errstate(all="ignore"):
            expected = dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(file.read(tensor.name).float().numpy(), expected), tensor.name


@pytest.mark.parametrize(("type_name", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_half_precision_keeps_its_dtype(type_name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    values = torch.tensor([[1.5, -2.0, 0.25]])
    path = write_gguf(tmp_path / "half.gguf", {"general.architecture": "x"}, {"w": (values, type_name)})
    read = GGUFFile(path).read("w")
    assert read.dtype == dtype
    assert torch.equal(read.float(), values)


def test_writing_to_a_tensor_leaves_the_file_alone(small: Path) -> None:
    GGUFFile(small).read("two.bias").fill_(9)
    assert GGUFFile(small).read("two.bias").tolist() == [0, 1, 2]


def test_a_file_cut_off_at_any_length_is_a_value_error_that_names_it(small: Path) -> None:
    content = small.read_bytes()
    whole = GGUFFile(small).tensors["two.bias"]
    for length in range(whole.offset + whole.num_bytes):
        small.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"small\.gguf"):
            GGUFFile(small)


def test_data_cut_off_names_the_tensor(small: Path) -> None:
    small.write_bytes(small.read_bytes()[: GGUFFile(small).tensors["two.bias"].offset + 4])
    with pytest.raises(ValueError, match=r"small.gguf, tensor 'two.bias': the file is cut off"):
        GGUFFile(small)


def test_metadata_cut_off_names_the_key(small: Path) -> None:
    content = small.read_bytes()
    small.write_bytes(content[: content.index(b"some.floats") + 20])
    with pytest.raises(ValueError, match=r"metadata key 'some.floats': the file is cut off"):
        GGUFFile(small)


def test_damaged_bytes_give_a_value_error_or_a_file(small: Path) -> None:
    """Whatever a byte of the header says, opening and reading end, and in no other error."""
    content = small.read_bytes()
    header = GGUFFile(small).tensors["one.weight"].offset
    rng = random.Random(0)
    for _ in range(3000):
        damaged = bytearray(content)
        damaged[rng.randrange(header)] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        small.write_bytes(damaged)
        try:
            file = GGUFFile(small)
        except ValueError:
            continue
        assert all(file.read(name).numel() for name in file.tensors)


def test_the_types_of_tensors_are_those_of_the_gguf_package() -> None:
    for number, (name, block_len, block_bytes) in TYPES.items():
        kind = GGMLQuantizationType(number)
        assert (kind.name, GGML_QUANT_SIZES[kind]) == (name, (block_len, block_bytes))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"GGML\x03\0\0\0", "is not a GGUF file"),
        (b"PK\x03\x04\x03\0\0\0", "is not a GGUF file"),
        (b"GGUF\x01\0\0\0", "version 1 is not supported"),
        (b"GGUF\x04\0\0\0", "version 4 is not supported"),
        (b"GGUF\0\0\0\x03", "big-endian"),
    ],
)
def test_other_formats_are_refused_by_name(start: bytes, message: str, small: Path) -> None:
    small.write_bytes(start + small.read_bytes()[8:])
    with pytest.raises(ValueError, match=message):
        GGUFFile(small)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (entry("two.bias", (3,), 29, 96), "tensor 'two.bias': type IQ1_M is not supported"),
        (entry("two.bias", (3,), 999, 96), "tensor 'two.bias': type number 999 is not supported"),
        (entry("two.bias", (3,), 2, 96), "tensor 'two.bias': rows of 3 are not whole Q4_0 blocks of 32"),
        (entry("two.bias", (0,), 0, 96), r"tensor 'two.bias': shape \(0,\) holds nothing"),
        (entry("two.bias", (3,), 0, 97), "tensor 'two.bias': offset 97 is not a multiple"),
        (entry("two.bias", (2**40,), 0, 96), "tensor 'two.bias': the file is cut off"),
    ],
)
def test_a_wrong_entry_of_the_table_names_the_tensor(changed: bytes, message: str, small: Path) -> None:
    rewrite(small, entry("two.bias", (3,), 0, 96), changed)
    with pytest.raises(ValueError, match=message):
        GGUFFile(small)


def test_a_name_given_twice_is_refused(small: Path) -> None:
    rewrite(small, b"an.int", b"a.bool")
    with pytest.raises(ValueError, match=r"metadata key 'a\.bool': given twice"):
        GGUFFile(small)


def test_tensors_that_share_bytes_are_refused(small: Path) -> None:
    rewrite(small, entry("two.bias", (3,), 0, 96), entry("two.bias", (3,), 0, 64))
    with pytest.raises(ValueError, match=r"tensor 'two\.bias': lies over tensor 'one\.weight'"):
        GGUFFile(small)


def test_an_array_of_more_values_than_any_vocabulary_is_refused_unread(tmp_path: Path) -> None:
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a"
    with (tmp_path / "large.gguf").open("wb") as file:
        file.write(header + struct.pack("<IIQ", 9, 0, 2**23))
        file.truncate(2**24)
    with pytest.raises(ValueError, match=r"metadata key 'a': 8388608 values in one array, and 4194304 are the most"):
        GGUFFile(tmp_path / "large.gguf")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer.ggml.eos_token_id", "x", "'x', not a token id"),
        ("tokenizer.ggml.bos_token_id", 1.5, "1.5, not a token id"),
        ("tokenizer.ggml.add_bos_token", 1, "1, not true or false"),
        ("tokenizer.ggml.pre", ["a"], "['a'], not a text"),
        ("tokenizer.chat_template", 5, "5, not a text"),
        ("tokenizer.chat_templates", "x", "'x', not a list of texts"),
        ("tokenizer.ggml.tokens", [1, 2], "[1, 2], not a list of texts"),
        ("tokenizer.ggml.token_type", 0, "0, not a list of integers"),
        ("tokenizer.ggml.scores", ["a"], "['a'], not a list of numbers"),
    ],
)
def test_metadata_of_another_kind_is_refused_by_its_key(key: str, value: Any, message: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "odd.gguf", METADATA | {key: value}, {"one.bias": (torch.arange(3.0), "F32")})
    with pytest.raises(ValueError, match=re.escape(f"odd.gguf: {key} is {message}")):
        GGUFFile(path)


def test_the_alignment_of_the_file_is_obeyed(tmp_path: Path) -> None:
    metadata = {"general.architecture": "x", "general.alignment": 1024}
    tensors = {name: (torch.tensor([float(index)]), "F32") for index, name in enumerate("ab")}
    file = GGUFFile(write_gguf(tmp_path / "wide.gguf", metadata, tensors))
    assert [info.offset for info in file.tensors.values()] == [1024, 2048]
    assert file.read("b").tolist() == [1.0]


def test_an_alignment_that_is_no_multiple_of_8_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "odd.gguf", {"general.architecture": "x", "general.alignment": 12}, {})
    with pytest.raises(ValueError, match=r"general\.alignment=12"):
        GGUFFile(path)


def test_raw_gives_the_blocks_of_the_file() -> None:
    file = GGUFFile(DATA / "llama_q6_k.gguf")
    blocks = file.raw("output.weight").reshape(512, -1)
    assert np.array_equal(dequantize(blocks, GGMLQuantizationType.Q6_K), file.read("output.weight").numpy())
