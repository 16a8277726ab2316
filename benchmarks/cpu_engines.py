"""The engines that `bench_cpu.py` can run, each as a process in its own Python, and how one of them is driven."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpu_load import resident_bytes
from cpu_models import MADE_GGUF, ONNX_INT4, SAFETENSORS

FOLDER = Path(__file__).parent / "cpu_peers"
GGUF = {"q4_1": "q4_1", **{name: name for name in MADE_GGUF}}
SEQS = 32  # prompts at once, at most
POOL_TOKENS = 16_384
CLOSE_S = 30.0  # which an engine has to end by itself
WARM_UP = ([[5] * 16, [6] * 16], 4)


class EngineError(Exception):
    """It could not be started, or did not answer as it should; says why."""


@dataclass(frozen=True, eq=False)
class Kind:
    """script: in cpu_peers. files: which file of `Models` each quantisation is computed from."""

    name: str
    script: str
    files: dict[str, str]


OURS = Kind("minisgl", "run_minisgl.py", {**GGUF, "bf16": SAFETENSORS})
PEERS = (
    Kind("llama-server", "run_llama.py", GGUF),
    Kind("node-llama-cpp", "run_node_llama.mjs", GGUF),
    Kind("vllm", "run_vllm.py", {"bf16": SAFETENSORS}),
    Kind("openvino", "run_openvino.py", {name: name for name in GGUF if name != "bf16"}),
    Kind("onnx", "run_onnx.py", {"int4": ONNX_INT4}),
    Kind("transformers", "run_transformers.py", {"bf16": SAFETENSORS}),
)
KINDS = {kind.name: kind for kind in (OURS, *PEERS)}


@dataclass(frozen=True)
class Places:
    """What the options say of where the peers are; None: that peer is not measured. dtype: of ours."""

    llama_server: Path | None = None
    node_llama_cpp: Path | None = None
    vllm_python: Path | None = None
    openvino_python: Path | None = None
    onnx_python: Path | None = None
    dtype: str = "auto"

    def command(self, kind: Kind) -> list[str] | None:
        """What starts the engine, but for the options that all have."""
        here, script = sys.executable, str(FOLDER / kind.script)
        match kind.name:
            case "minisgl":
                return [here, script, "--dtype", self.dtype]
            case "transformers":
                return [here, script]
            case "llama-server":
                return self.llama_server and [here, script, "--binary", str(self.llama_server)]
            case "node-llama-cpp":
                return self.node_llama_cpp and ["node", script, "--package", str(self.node_llama_cpp)]
            case "vllm":
                python = self.vllm_python
            case "openvino":
                python = self.openvino_python
            case _:
                python = self.onnx_python
        return python and [str(python), script]


class EngineProcess:
    """An engine that runs: it has loaded its model and given its first token when this is made.

    command: without the model. weight_bytes: of the model's file. kv_items: numbers in a token's keys and values. log:
    where its stderr goes. EngineError, with the log's last line, from here and from `run`.
    """

    def __init__(
        self,
        command: Sequence[str],
        model: Path,
        weight_bytes: int,
        kv_items: int,
        threads: int,
        log: Path,
        timeout: float,
    ) -> None:
        self._weight_bytes, self._kv_items, self._log, self._timeout = weight_bytes, kv_items, log, timeout
        self._model, self._env = model, os.environ | {"OMP_NUM_THREADS": str(threads)}
        numbers = {"threads": threads, "tokens": POOL_TOKENS, "seqs": SEQS}
        words = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
        began = time.perf_counter()
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                [*command, "--model", str(model), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=self._env,
                start_new_session=True,
            )
        self._guard = kill_when_orphaned(self._process.pid)
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self.hello = self._answer()
            self.run([WARM_UP[0][0]], 1)
            self._start_s = time.perf_counter() - began
            self.run(*WARM_UP)
        except BaseException:  # Ctrl-C, too
            self.kill()
            raise

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put(None)

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=self._timeout)
        except queue.Empty:
            raise EngineError(f"no answer in {self._timeout:g} s") from None
        if line is None:
            last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
            raise EngineError(f"it ended: {' '.join(last)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"].strip().splitlines()[0])
        return answer

    def run(self, prompts: list[list[int]], out: int) -> float:
        """Seconds from the submission of all to the last token. Between calls its processes stand still."""
        assert self._process.stdin is not None
        self._send(signal.SIGCONT)
        try:
            with suppress(BrokenPipeError):  # then there is no answer either
                print(json.dumps({"prompts": prompts, "out": out}), file=self._process.stdin, flush=True)
            answer = self._answer()
        finally:
            self._send(signal.SIGSTOP)
        lengths = [len(tokens) for tokens in answer["tokens"]]
        if lengths != [out] * len(prompts):
            raise EngineError(f"asked for {len(prompts)} x {out} tokens, it gave {lengths}")
        return float(answer["seconds"])

    def _send(self, number: signal.Signals) -> None:
        """To all of its processes: some have threads that turn round and round while there is nothing to do."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def first_token_s(self) -> float:
        """Seconds from its start to its first token."""
        return self._start_s

    def beyond_bytes(self, computed: int) -> float:
        """Resident memory less the weights and the keys and values of so many tokens, or of its whole pool."""
        pool = self.hello["kv_pool_tokens"]
        kv_bytes = (computed if pool is None else pool) * self._kv_items * self.hello["kv_item_bytes"]
        return resident_bytes(self._process.pid) - self._weight_bytes - kv_bytes

    def close(self) -> None:
        """End it, and what it started if it does not end by itself."""
        assert self._process.stdin is not None
        self._send(signal.SIGCONT)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._send(signal.SIGKILL)
            self._process.wait()
        self._forget()

    def kill(self) -> None:
        """End it, and what it started, at once."""
        self._send(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._forget()

    def _forget(self) -> None:
        self._guard.kill()
        self._guard.communicate()
        self._listener.join()


def kill_when_orphaned(group: int) -> subprocess.Popen[bytes]:
    """A process that kills those of a process group when this one ends, however it does: they may be stopped, and then
    do not see that their input has ended. To be killed before the number can be somebody else's."""
    command = ["sh", "-c", 'read -r _; kill -9 "-$0"', str(group)]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True)


class OurProcess(EngineProcess):
    """Ours is what people start."""

    def first_token_s(self) -> float:
        """Seconds from the start of `minisgl generate` to the first letter that it prints."""
        words = ["generate", "--model", str(self._model), "--max-tokens", "1", "The capital of France is"]
        began = time.perf_counter()
        command = [sys.executable, "-m", "minisgl", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self._env) as process:
            assert process.stdout is not None
            letter = process.stdout.read(1)
            seconds = time.perf_counter() - began
            process.stdout.read()  # it would fail at a closed pipe
        if not letter or process.returncode:
            raise EngineError(f"minisgl generate ended with {process.returncode}")
        return seconds
