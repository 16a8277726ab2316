"""An engine that answers at once, or as its first argument says it goes wrong."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "cpu_peers"))

from protocol import Prompts, options, serve

parser = options(__doc__)
parser.add_argument("--manner", default="good")
MANNER = parser.parse_args().manner


class FakePeer:
    about = "fake 1.0"
    kv_item_bytes = 2
    kv_pool_tokens = 7 if MANNER == "pooled" else None

    def __init__(self) -> None:
        self._num_runs = 0
        if MANNER == "absent":
            raise ImportError("no module named fake")

    def run(self, prompts: Prompts, out: int) -> Prompts:
        print("a line of its own on stdout")
        self._num_runs += 1
        if self._num_runs > 2:  # the warm-up goes well
            if MANNER == "short":
                return [[1] * (out - 1) for _ in prompts]
            if MANNER == "crashing":
                print("killed by a fake signal", file=sys.stderr, flush=True)
                sys.exit(3)
            if MANNER == "silent":
                time.sleep(60)
        return [[1] * out for _ in prompts]


if __name__ == "__main__":
    serve(FakePeer)
