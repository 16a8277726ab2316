"""The threads of the C++ kernels (csrc/pool.h): every item is done once, whoever does it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from support.needs import CPP_KERNELS

from minisgl.kernel import cpu_ops, torch_ops
from minisgl.kernel.cpu_levels import SOURCES
from minisgl.utils.processor import find_compiler

pytestmark = [CPP_KERNELS, pytest.mark.usefixtures("threads_as_before")]

X = torch.randn(700, 1000, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("rows", [132, 257, 700])
def test_any_number_of_threads_does_all_items(rows: int, num_threads: int):
    torch.set_num_threads(num_threads)
    for _ in range(5):
        got = cpu_ops.silu_and_mul(X[:rows])
        torch.testing.assert_close(got, torch_ops.silu_and_mul(X[:rows]), rtol=1e-5, atol=1e-6)


def test_fewer_threads_than_before_will_do():
    for num_threads in (5, 2, 4, 1, 3):
        torch.set_num_threads(num_threads)
        assert cpu_ops.silu_and_mul(X).isfinite().all()


def test_two_threads_of_python_compute_at_once():
    torch.set_num_threads(2)
    expected = cpu_ops.silu_and_mul(X)
    equal: list[bool] = []

    def compute() -> None:
        equal.extend(torch.equal(cpu_ops.silu_and_mul(X), expected) for _ in range(20))

    threads = [threading.Thread(target=compute) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 60


@pytest.mark.nightly
def test_no_two_threads_touch_the_same_memory_at_once(tmp_path: Path):
    """As ThreadSanitizer sees it."""
    compiler, program = find_compiler(), tmp_path / "pool_stress"
    assert compiler
    flags = ["-std=c++17", "-O1", "-g1", "-pthread", "-fsanitize=thread", f"-I{SOURCES}"]
    subprocess.run([compiler, *flags, Path(__file__).with_name("pool_stress.cpp"), "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
    ids=["nothing", "count", "policy"],
)
def test_torchs_own_threads_are_to_sleep_soon_unless_the_user_says_how_they_wait(given: dict[str, str], spins: str):
    env = {name: text for name, text in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    script = "import os, minisgl; print(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run([sys.executable, "-c", script], env=env | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == spins
