"""Model folders: which files are taken, what is refused, which tokens end a text."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.gguf_variants import DATA

from minisgl.models.checkpoint import open_checkpoint

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4}
INDEX = "model.safetensors.index.json"


def write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with config.json and nothing else."""
    write_json(tmp_path / "config.json", CONFIG)
    return tmp_path


@pytest.fixture
def sharded(folder: Path) -> Path:
    """Two shards and their index, and a third file that the index does not name."""
    save_file({"a": torch.tensor([1.0]), "b": torch.tensor([2.0])}, folder / "model-1-of-2.safetensors")
    save_file({"c": torch.tensor([3.0])}, folder / "model-2-of-2.safetensors")
    save_file({"a": torch.tensor([9.0]), "z": torch.tensor([9.0])}, folder / "consolidated.safetensors")
    write_json(folder / INDEX, {"weight_map": {"a": "model-1-of-2.safetensors", "c": "model-2-of-2.safetensors"}})
    return folder


def weights(path: Path) -> dict[str, list[float]]:
    checkpoint = open_checkpoint(path)
    loaded = {name: tensor.tolist() for name, tensor in checkpoint.iter_weights()}
    assert checkpoint.num_weights == len(loaded)
    return loaded


def test_a_single_file_is_taken_whole(folder: Path) -> None:
    save_file({"a": torch.tensor([1.0]), "b": torch.tensor([2.0])}, folder / "model.safetensors")
    assert weights(folder) == {"a": [1], "b": [2]}


def test_a_single_file_may_have_any_name(folder: Path) -> None:
    save_file({"a": torch.tensor([1.0])}, folder / "weights.safetensors")
    assert weights(folder) == {"a": [1]}


def test_the_index_says_which_tensors_of_which_files_are_taken(sharded: Path) -> None:
    assert weights(sharded) == {"a": [1], "c": [3]}


def test_several_files_without_an_index_are_refused(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    with pytest.raises(ValueError, match=r"consolidated\.safetensors, model-1-of-2\.safetensors"):
        open_checkpoint(sharded)


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-2-of-2.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model-2-of-2\.safetensors is missing"):
        open_checkpoint(sharded)


def test_an_index_without_its_shards_beside_a_single_file_may_be_stale(sharded: Path) -> None:
    """transformers leaves an index behind when it saves a model that fits one file over one that did not."""
    for shard in sharded.glob("model-*.safetensors"):
        shard.unlink()
    save_file({"a": torch.tensor([1.0])}, sharded / "model.safetensors")
    with pytest.raises(ValueError, match=r"model-1-of-2\.safetensors is missing.* remove the index"):
        open_checkpoint(sharded)
    (sharded / INDEX).unlink()
    assert weights(sharded) == {"a": [1]}


def test_the_index_counts_also_beside_a_single_file(sharded: Path) -> None:
    save_file({"a": torch.tensor([7.0])}, sharded / "model.safetensors")
    assert weights(sharded) == {"a": [1], "c": [3]}


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "a/../../b", "/etc/passwd", "", ".", "a\nb", "a\x00b", "\ud800"]
)
def test_an_index_reads_no_file_outside_its_folder(name: str, sharded: Path) -> None:
    write_json(sharded / INDEX, {"weight_map": {"a": name}})
    with pytest.raises(ValueError, match=r"index\.json names .* which is no file of its folder") as error:
        open_checkpoint(sharded)
    assert str(error.value).isprintable()


def test_shards_may_lie_in_a_folder_below(sharded: Path) -> None:
    (sharded / "parts").mkdir()
    (sharded / "model-2-of-2.safetensors").rename(sharded / "parts/2.safetensors")
    write_json(sharded / INDEX, {"weight_map": {"c": "parts/2.safetensors"}})
    assert weights(sharded) == {"c": [3]}


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf"])
def test_what_is_called_like_weights_and_is_no_file_is_left_alone(name: str, folder: Path) -> None:
    """Opening a pipe would wait for ever."""
    os.mkfifo(folder / name)
    (folder / f"x{Path(name).suffix}").mkdir()
    with pytest.raises(ValueError, match="holds no weights in safetensors, but config"):
        open_checkpoint(folder)


def test_a_truncated_shard_is_named(sharded: Path) -> None:
    shard = sharded / "model-2-of-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"model-2-of-2\.safetensors is cut off or damaged"):
        open_checkpoint(sharded)


def test_a_tensor_missing_from_its_shard_is_named_with_it(sharded: Path) -> None:
    write_json(sharded / INDEX, {"weight_map": {"a": "model-1-of-2.safetensors", "d": "model-2-of-2.safetensors"}})
    with pytest.raises(ValueError, match=r"model-2-of-2\.safetensors lacks 'd'"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("content", [[], {}, {"weight_map": ["a"]}, {"weight_map": {"a": 1}}])
def test_a_malformed_index_is_named(content: Any, sharded: Path) -> None:
    write_json(sharded / INDEX, content)
    with pytest.raises(ValueError, match=INDEX.replace(".", r"\.")):
        open_checkpoint(sharded)


def test_a_file_cut_off_anywhere_is_named(folder: Path) -> None:
    file = folder / "model.safetensors"
    save_file({"a": torch.arange(8.0)}, file)
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"model\.safetensors is cut off or damaged"):
            open_checkpoint(folder)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_tensor_of_another_dtype_is_named(dtype: torch.dtype, folder: Path) -> None:
    save_file({"a": torch.zeros(4).to(dtype)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors, tensor 'a': dtype .8.* is not supported"):
        open_checkpoint(folder)


METHODS = ("awq", "gptq", "fp8", "fbgemm_fp8", "compressed-tensors", "bitsandbytes", "modelopt", "mxfp4", "exl2", "hqq")


@pytest.mark.parametrize(
    ("more", "method"),
    [
        *(({"quantization_config": {"quant_method": method, "bits": 4}}, method) for method in METHODS),
        ({"quantization_config": {"load_in_8bit": True}}, "bitsandbytes"),
        ({"quantization_config": {"bits": 4}}, "unnamed"),
        ({"quantization_config": "int4"}, "int4"),
        ({"quantization": {"group_size": 64, "bits": 4}, "quantization_config": {"group_size": 64, "bits": 4}}, "mlx"),
        ({"compression_config": {"format": "int-quantized"}}, "compressed-tensors"),
        ({"text_config": {"quantization_config": {"quant_method": "awq"}}}, "awq"),
    ],
)
def test_quantised_weights_are_refused_by_their_method(more: dict[str, Any], method: str, folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | more)
    with pytest.raises(ValueError, match=f"method '{method}' are not supported"):
        open_checkpoint(folder, need_weights=False)


@pytest.mark.parametrize(
    ("name", "method"),
    [("quantize_config.json", "gptq"), ("quant_config.json", "awq"), ("hf_quant_config.json", "modelopt")],
)
def test_a_method_that_only_a_file_of_its_own_tells_is_refused_too(name: str, method: str, folder: Path) -> None:
    write_json(folder / name, {"bits": 4})
    with pytest.raises(ValueError, match=f"method '{method}' are not supported"):
        open_checkpoint(folder, need_weights=False)


def test_the_method_is_named_before_any_weight_is_read(folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | {"quantization_config": {"quant_method": "awq"}})
    for weights in ("model.safetensors", "pytorch_model.bin"):
        (folder / weights).write_bytes(b"no weights")
        with pytest.raises(ValueError, match="method 'awq'"):
            open_checkpoint(folder)
        (folder / weights).unlink()


def test_a_null_quantisation_is_none(folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | {"quantization_config": None})
    assert open_checkpoint(folder, need_weights=False).num_weights == 0


def test_an_adapter_is_refused_with_its_model_beside_it_or_without(folder: Path, tmp_path: Path) -> None:
    for place in (folder, tmp_path / "alone"):
        place.mkdir(exist_ok=True)
        write_json(place / "adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "other"})
        with pytest.raises(ValueError, match=r"holds adapter_config\.json: adapters are not supported"):
            open_checkpoint(place)


def test_pickled_weights_are_refused_by_name(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"pickled ones, which are not read: pytorch_model\.bin"):
        open_checkpoint(folder)


def test_a_folder_without_weights_says_what_it_holds(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"no weights in safetensors, but config\.json"):
        open_checkpoint(folder)


def test_a_folder_without_config_says_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json and no \.gguf file, but nothing"):
        open_checkpoint(tmp_path)
    for index in range(12):
        (tmp_path / f"{index:02}.txt").touch()
    with pytest.raises(ValueError, match=r"but 00\.txt, .*09\.txt and 2 more"):
        open_checkpoint(tmp_path)


def test_what_is_no_model_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither a folder nor a file"):
        open_checkpoint(tmp_path / "nothing")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"no \.gguf file"):
        open_checkpoint(tmp_path / "notes.txt")


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").symlink_to(DATA / "llama_q4_k.gguf")
    assert open_checkpoint(tmp_path).path == tmp_path / "model.gguf"


def test_a_folder_with_several_gguf_files_asks_for_one(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ValueError, match=r"name one: a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)


def test_safetensors_beside_a_gguf_file_are_preferred(folder: Path) -> None:
    save_file({"a": torch.tensor([1.0])}, folder / "model.safetensors")
    (folder / "model.gguf").symlink_to(DATA / "llama_q4_k.gguf")
    assert open_checkpoint(folder).path == folder


@pytest.mark.parametrize("content", ["{", "[]", "\x00"])
def test_a_config_that_is_no_json_object_is_named(content: str, folder: Path) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json"):
        open_checkpoint(folder, need_weights=False)


@pytest.mark.parametrize("text", [5, [1], "x", None])
def test_a_text_config_that_is_none_has_no_end_tokens(text: Any, folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | {"text_config": text, "eos_token_id": 2})
    assert open_checkpoint(folder, need_weights=False).end_token_ids() == {2}


@pytest.mark.parametrize(
    ("eos", "expected"), [(None, set()), (2, {2}), ([2, 5], {2, 5}), (-1, set()), ([], set()), (0, {0})]
)
def test_end_tokens_of_the_config_may_be_none_one_or_several(eos: Any, expected: set[int], folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | {"eos_token_id": eos})
    assert open_checkpoint(folder, need_weights=False).end_token_ids() == expected


def test_an_end_token_that_is_no_id_is_refused(folder: Path) -> None:
    for eos in ("</s>", True, [1.5]):
        write_json(folder / "generation_config.json", {"eos_token_id": eos})
        with pytest.raises(ValueError, match=re.escape(f"eos_token_id={eos!r}")):
            open_checkpoint(folder, need_weights=False).end_token_ids()


def test_end_tokens_of_all_configurations_count(folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | {"eos_token_id": 2, "text_config": {"eos_token_id": [2, 6]}})
    write_json(folder / "generation_config.json", {"eos_token_id": [3, 4]})
    assert open_checkpoint(folder, need_weights=False).end_token_ids() == {2, 3, 4, 6}


def test_a_folder_without_weights_is_enough_for_random_ones(folder: Path) -> None:
    checkpoint = open_checkpoint(folder, need_weights=False)
    assert checkpoint.hf_config() == CONFIG
    assert list(checkpoint.iter_weights()) == []


def test_a_damaged_weight_in_mxfp4_is_named_with_its_folder(folder: Path) -> None:
    packed = {"architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}}
    write_json(folder / "config.json", packed)
    save_file({"x_scales": torch.zeros(2, 4, 1, dtype=torch.uint8)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=f"{folder}: tensor 'x_scales' of a weight in MXFP4 has no other half"):
        list(open_checkpoint(folder).iter_weights())
