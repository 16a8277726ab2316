"""Loading: one tensor in memory at a time, nothing missing, and random weights without reading."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.gguf_variants import DATA, as_architecture, llama_variant
from support.packed import is_grouped
from support.terminal import impatient_terminal

from minisgl.distributed import SINGLE, TPInfo
from minisgl.kernel import has_cpp
from minisgl.layers.linear import Linear
from minisgl.layers.packed import is_repacked
from minisgl.models import BaseCausalLM, ModelConfig, load_model, loader, open_checkpoint
from minisgl.models.gguf_checkpoint import GGUFCheckpoint
from minisgl.utils.grouped_tensor import GroupedTensor
from minisgl.utils.own_pages import Scratch

LLAMA = DATA / "llama_f32.gguf"
TINY = DATA.parent / "tiny"


class Watched(GGUFCheckpoint):
    """Fails when a tensor of floats is still held by anybody while the next one is asked for."""

    def iter_weights(self, all_in_integers: bool = False) -> Iterator[tuple[str, torch.Tensor | GroupedTensor]]:
        for name, values in list(super().iter_weights()):
            assert isinstance(values, torch.Tensor)
            tensor = values.clone()
            held = weakref.ref(tensor)
            yield name, tensor
            del tensor
            assert held() is None, name


class Unreadable(GGUFCheckpoint):
    """Only its configuration may be asked for."""

    def iter_weights(self, all_in_integers: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
        raise AssertionError("no weight is wanted")


def load(checkpoint: Any, dtype: torch.dtype = torch.float32, **options: Any) -> BaseCausalLM:
    return load_model(checkpoint, ModelConfig.from_hf(checkpoint.hf_config()), dtype, torch.device("cpu"), **options)


def embedding(model: BaseCausalLM) -> torch.Tensor:
    return model.get_parameter("model.embed_tokens.weight")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_tensor_is_held_while_the_next_is_read(dtype: torch.dtype) -> None:
    load(Watched(LLAMA), dtype)


class Counted(GGUFCheckpoint):
    """Counts the grouped tensors that are still held by anybody, whenever the next one is asked for."""

    most_held = 0

    def iter_weights(self, all_in_integers: bool = False) -> Iterator[tuple[str, torch.Tensor | GroupedTensor]]:
        self.given: list[weakref.ref[Any]] = []
        for name, tensor in super().iter_weights():
            self.given += [weakref.ref(tensor)] if isinstance(tensor, GroupedTensor) else []
            yield name, tensor
            del tensor
            self.most_held = max(self.most_held, self.num_held)

    @property
    def num_held(self) -> int:
        return sum(ref() is not None for ref in self.given)


@pytest.mark.skipif(not has_cpp(torch.empty(0)), reason="no C++ kernels here")
def test_integers_wait_only_until_their_layer_is_packed() -> None:
    checkpoint = Counted(DATA / "llama_q4_k.gguf")
    model = load(checkpoint)
    assert len(checkpoint.given) == 9  # one layer, embedding and head
    assert checkpoint.most_held <= 3  # q, k and v, say
    assert checkpoint.num_held == 0
    packed = [layer.packed for layer in model.modules() if isinstance(layer, Linear)]
    assert all(is_grouped(weight) for weight in packed)
    assert not any(layer.weight is not None for layer in model.modules() if isinstance(layer, Linear))


@pytest.mark.skipif(
    not is_repacked(torch.empty(1, 1, dtype=torch.bfloat16)), reason="no prepacked matmul on this processor"
)
def test_the_memory_in_which_layers_waited_to_be_packed_is_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where floats are packed by oneDNN, which takes whole weights only."""
    monkeypatch.setattr("minisgl.layers.packed.has_cpp", lambda weight: False)
    waited, give_back = [], Scratch.give_back

    def noted(scratch: Scratch, tensor: torch.Tensor) -> None:
        waited.append(weakref.ref(tensor))
        give_back(scratch, tensor)

    monkeypatch.setattr(Scratch, "give_back", noted)
    model = load(open_checkpoint(LLAMA), torch.bfloat16)
    assert len(waited) > 1
    assert all(ref() is None for ref in waited)
    assert model.place.dtype == torch.bfloat16


def test_checkpoints_keep_no_tensor_that_they_gave_away(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": torch.zeros(4), "b": torch.zeros(4)}, tmp_path / "model.safetensors")
    for path in (LLAMA, DATA / "llama_q4_k.gguf", tmp_path):
        weights = open_checkpoint(path).iter_weights()
        name, tensor = next(weights)
        held = weakref.ref(tensor)
        del tensor
        assert held() is None, name


def test_weights_come_in_the_dtype_that_is_asked_for() -> None:
    model = load(open_checkpoint(LLAMA), torch.bfloat16)
    expected = open_checkpoint(LLAMA).file.read("token_embd.weight")  # type: ignore[attr-defined]
    assert embedding(model).dtype == torch.bfloat16
    assert torch.equal(embedding(model), expected.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_of_several_dtypes_make_one_model(dtype: torch.dtype, tmp_path: Path) -> None:
    """Norms in float32 beside weights of 16 bits are usual; each tensor is converted for itself."""
    given = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    tied = open_checkpoint(TINY / "tied")
    tensors = {name: tensor.to(given[i % 4]) for i, (name, tensor) in enumerate(tied.iter_weights())}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").symlink_to(TINY / "tied/config.json")
    model = load(open_checkpoint(tmp_path), dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    for name in ("model.norm.weight", "model.embed_tokens.weight", "model.layers.1.input_layernorm.weight"):
        assert torch.equal(model.get_parameter(name), tensors[name].to(dtype)), name


def test_random_weights_are_the_same_every_time_and_nothing_is_read() -> None:
    first, second = (load(Unreadable(LLAMA), load_format="dummy") for _ in range(2))
    assert torch.equal(embedding(first), embedding(second))
    assert embedding(first).std() > 0


def test_a_tensor_that_is_missing_is_named(tmp_path: Path) -> None:
    path = llama_variant(tmp_path / "part.gguf", leave_out=("blk.0.attn_k.weight", "output_norm.weight"))
    with pytest.raises(ValueError, match=r"part\.gguf: 2 tensors .*layers\.0\.self_attn\.k_proj\.weight.*norm\.weight"):
        load(open_checkpoint(path))


def test_a_tensor_of_a_layer_too_many_is_named(tmp_path: Path) -> None:
    path = llama_variant(tmp_path / "more.gguf", more={"blk.7.attn_norm.weight": torch.ones(256)})
    with pytest.raises(ValueError, match=r"more\.gguf: .*model\.layers\.7\.input_layernorm\.weight"):
        load(open_checkpoint(path))


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    path = llama_variant(tmp_path / "odd.gguf", metadata={"llama.feed_forward_length": 128})
    with pytest.raises(ValueError, match=r"odd\.gguf: .*model\.layers\.0\.mlp\..*_proj\.weight.*256"):
        load(open_checkpoint(path))


def test_rows_that_are_no_whole_heads_are_refused_by_the_tensor_s_shape(tmp_path: Path) -> None:
    """llama.cpp's order of rows goes by heads, and these have 6 of 42."""
    sizes = {"llama.attention.head_count": 6, "llama.rope.dimension_count": None}
    path = llama_variant(tmp_path / "six.gguf", metadata=sizes)
    with pytest.raises(
        ValueError, match=r"six\.gguf: .*self_attn\.[qk]_proj\.weight.*expected shape \[\d+, 256\], got"
    ):
        load(open_checkpoint(path))


def test_norms_of_q_and_k_reach_a_qwen3(tmp_path: Path) -> None:
    norms = {f"blk.0.attn_{part}_norm.weight": torch.full((64,), value) for part, value in (("q", 2.0), ("k", 3.0))}
    model = load(open_checkpoint(as_architecture(tmp_path / "qwen3.gguf", "qwen3", norms)))
    for part, value in (("q", 2.0), ("k", 3.0)):
        assert (model.get_parameter(f"model.layers.0.self_attn.{part}_norm.weight") == value).all()


@pytest.mark.parametrize(
    ("patience_s", "tp", "shown"), [(0.0, SINGLE, True), (1e9, SINGLE, False), (0.0, TPInfo(1, 2), False)]
)
def test_progress_is_shown_once_when_loading_takes_long(patience_s: float, tp: TPInfo, shown: bool) -> None:
    with impatient_terminal(patience_s) as screen:
        load(open_checkpoint(LLAMA), tp=tp)
    assert ("loading" in screen.getvalue()) == shown


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "DefaultCPUAllocator"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\nmore"), r"Tried to allocate\)"),
    ],
)
def test_a_model_too_large_for_the_memory_is_a_value_error_that_names_it(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(loader, "create_model", fail)
    with pytest.raises(ValueError, match=rf"llama_f32\.gguf: the model does not fit into the memory .*{reason}"):
        load(open_checkpoint(LLAMA))


def test_other_errors_while_loading_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(loader, "create_model", fail)
    with pytest.raises(RuntimeError, match="something else"):
        load(open_checkpoint(LLAMA))
