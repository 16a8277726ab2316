"""A run of `bench_cpu.py` whose engine starts, is asked, and never answers. sys.argv[1]: folder of its log."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[1]))

import bench_cpu
from cpu_engines import Kind, Places
from cpu_floors import Rates
from cpu_models import Models
from support.hf_configs import MINIMAL

from minisgl.models import gguf_checkpoint


class FakeModels(Models):
    def path(self, name: str) -> Path:
        return Path(name)

    def weight_bytes(self, name: str) -> int:
        return 1


class FakePlaces(Places):
    def command(self, kind: Kind) -> list[str]:
        return [sys.executable, str(Path(__file__).parent / "fake_peer.py"), "--manner", "silent"]


class FakeCheckpoint(gguf_checkpoint.GGUFCheckpoint):
    def __init__(self, path: Path) -> None:
        pass

    def hf_config(self) -> dict[str, object]:
        return MINIMAL


fakes = {"Models": FakeModels, "Places": FakePlaces, "GGUFCheckpoint": FakeCheckpoint}
vars(bench_cpu).update(fakes, measure_rates=lambda num_bytes: Rates(1e9, 1e9, 1e9, 1e9))
bench_cpu.main(["--engines", "transformers", "--lines", "prefill", "--threads", "1", "--logs", sys.argv[1]])
