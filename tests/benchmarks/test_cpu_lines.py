"""The lines ask what their titles say, floors are those worked out by hand, and made files have the same values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cpu_floors import CpuFloors, Rates, measure_rates
from cpu_lines import LINES
from cpu_models import num_weight_bytes, requantize
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize
from support.hf_configs import read

RATES = Rates(bandwidth=1e9, fp32=1e9, bf16=2e9, int8=8e9)
CONFIG = read(num_key_value_heads=1, tie_word_embeddings=True)


class Recorder:
    """Keeps what it is asked; a second for everything."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[list[int]], int]] = []

    def run(self, prompts: list[list[int]], out: int) -> float:
        self.asked.append((prompts, out))
        return 1.0

    def first_token_s(self) -> float:
        return 2.0

    def beyond_bytes(self, computed: int) -> float:
        return computed * 1e6


def ask(name: str) -> tuple[tuple[float, ...], list[tuple[list[list[int]], int]]]:
    recorder = Recorder()
    return LINES[name].measure(recorder, np.random.default_rng(0)), recorder.asked


@pytest.mark.parametrize(
    ("name", "num", "length", "out", "value"),
    [
        ("single-q4_1", 1, 128, 128, 128),
        ("8", 8, 128, 128, 1024),
        ("32", 32, 128, 128, 4096),
        ("prefill", 1, 1024, 1, 1024),
    ],
)
def test_rates_count_the_tokens_that_are_asked_for(name: str, num: int, length: int, out: int, value: int) -> None:
    values, asked = ask(name)
    assert [([len(prompt) for prompt in prompts], out) for prompts, out in asked] == [([length] * num, out)]
    assert values == (value,)


def test_the_first_token_is_timed_cold_and_with_900_of_1000_tokens_cached() -> None:
    values, [([cold], _), ([warm], _)] = ask("first")
    assert values == (1000, 1000)
    assert (cold[:900] == warm[:900], cold[900] == warm[900], len(warm)) == (True, False, 1000)


def test_the_questions_share_their_system_prompt() -> None:
    (seconds,), [(prompts, out)] = ask("shared")
    assert (seconds, out, len(prompts)) == (1.0, 32, 32)
    assert len({tuple(prompt[:1000]) for prompt in prompts}) == 1
    assert len({tuple(prompt) for prompt in prompts}) == 32


def test_memory_is_what_stays_beyond_the_tokens_that_were_computed() -> None:
    assert ask("memory")[0] == (4 * 1015,)
    assert ask("load")[0] == (2.0,)


def test_a_step_of_one_row_reads_the_weights_and_one_of_many_multiplies() -> None:
    floors = CpuFloors(CONFIG, RATES, "q4_1", weight_bytes=40_000)
    products = 2 * (64 * 10 * 16 + 3 * 64 * 128) + 512 * 64
    assert floors.decode_step_s(1, 0) == pytest.approx(40e-6)
    assert floors.decode_step_s(1000, 0) == pytest.approx(2 * 1000 * products / 8e9)
    assert CpuFloors(CONFIG, RATES, "bf16", 40_000).decode_step_s(1000, 0) == pytest.approx(2 * 1000 * products / 2e9)


def test_a_shared_prefix_is_computed_once_and_read_once_a_step() -> None:
    floors = CpuFloors(CONFIG, RATES, "q4_1", weight_bytes=40_000)
    expected = floors.prefill_s([13, 13], [0, 10]) + floors.decode_step_s(2, 10 + 2 * 4)
    assert floors.shared_s(shared=10, num=2, own=3, out=2) == pytest.approx(expected)


def test_the_rates_of_this_machine_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpu_floors.SECONDS", 0.001)
    rates = measure_rates(num_bytes=4096, size=32)
    assert min(vars(rates).values()) > 0
    assert "GB/s" in rates.text()


@pytest.mark.parametrize("name", ["q4_0", "q8_0", "bf16"])
def test_a_made_file_has_the_same_metadata_and_nearly_the_same_values(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    matrices = {key: rng.standard_normal((4, 64), np.float32) for key in ("blk.0.attn_q.weight", "token_embd.weight")}
    writer = GGUFWriter(tmp_path / "source.gguf", "llama")
    writer.add_block_count(1)
    writer.add_token_list(["a", "b"])
    for key, values in matrices.items():
        writer.add_tensor(key, quantize(values, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()

    requantize(tmp_path / "source.gguf", tmp_path / "made.gguf", name)

    made = GGUFReader(tmp_path / "made.gguf")
    assert num_weight_bytes(tmp_path / "made.gguf") == sum(int(tensor.n_bytes) for tensor in made.tensors)
    kinds = {tensor.name: tensor.tensor_type.name.lower() for tensor in made.tensors}
    assert kinds == {
        "blk.0.attn_q.weight": name,
        "token_embd.weight": "bf16" if name == "bf16" else "q8_0",
        "output_norm.weight": "f32",
    }
    assert made.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert made.fields["llama.block_count"].contents() == 1
    for tensor in made.tensors:
        if tensor.name in matrices:
            values = dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_allclose(
                values, matrices[tensor.name], atol=0.3 if kinds[tensor.name] == "q4_0" else 0.03
            )
