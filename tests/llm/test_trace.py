"""`trace`: what an engine did, in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chrome_trace import arrows_of, check_trace, read_trace, slices_of

from minisgl import LLM, SamplingParams
from minisgl.llm.config import LLMConfig
from minisgl.llm.remote_engine import RemoteEngine

SHORT = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_an_llm_writes_its_trace_to_the_end(tiny: Path, tmp_path: Path, overlap: str) -> None:
    path = tmp_path / "trace.json"
    with LLM(str(tiny), num_page_override=256, overlap=overlap, trace=str(path)) as llm:
        llm.generate(["Hello", "you"], SHORT)
    events = read_trace(path)
    check_trace(events)
    names = [each["name"] for each in slices_of(events)["device"]]
    assert names == ["prefill 8", "decode 2", "decode 2", "decode 2"]
    assert [phase for phase, _ in arrows_of(events, 0)] == ["s", "t", "t", "f"]


def test_a_device_s_times_lie_within_the_launch_on_a_cpu(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with LLM(str(tiny), num_page_override=256, trace=str(path)) as llm:
        llm.generate(["Hello"], SHORT)
    slices = slices_of(read_trace(path))
    for launch, batch in zip(slices["host"][::2], slices["device"], strict=False):
        assert launch["name"] == "launch"
        assert launch["ts"] <= batch["ts"]
        assert batch["ts"] + batch["dur"] <= launch["ts"] + launch["dur"]


def test_a_file_that_cannot_be_written_is_told_before_anything_is_loaded(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^trace='.*': this is a folder"):
        LLM(str(tiny), trace=str(tmp_path))
    with pytest.raises(ValueError, match="is not the name of a file"):
        LLM(str(tiny), trace=tmp_path)


@pytest.mark.nightly
def test_an_engine_process_writes_it_too(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    engine = RemoteEngine(LLMConfig.from_kwargs(model=str(tiny), num_page_override=256, trace=str(path)))
    engine.connect()
    engine.shutdown()
    check_trace(read_trace(path))


@pytest.mark.gpu
def test_a_gpu_s_batches_follow_their_launches_one_after_the_other(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with LLM(str(tiny), device="cuda", num_page_override=4096, overlap="on", trace=str(path)) as llm:
        llm.generate([f"{number} and more" for number in range(16)], SamplingParams(max_tokens=64, ignore_eos=True))
    events = read_trace(path)
    check_trace(events)  # no two of them at once
    slices = slices_of(events)
    launches = {each["args"]["step"]: each for each in slices["host"] if each["name"] == "launch"}
    assert len(slices["device"]) == len(launches) >= 64
    for batch in slices["device"]:
        assert batch["ts"] >= launches[batch["args"]["step"]]["ts"]
        assert batch["dur"] > 0
