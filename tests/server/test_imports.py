"""What the HTTP process imports: each test asks a fresh interpreter, since this one has imported everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BOS_MODEL = Path(__file__).parents[1] / "data" / "tok" / "bos"
AS_SERVE_DOES = """
import sys
from minisgl.cli.app import build_app
from minisgl.cli.terminal_reporter import make_reporter
from minisgl.llm import AsyncClient, LLMConfig, RemoteEngine
from minisgl.server.config import ServerConfig
from minisgl.server.serve import serve
import minisgl.server.remote_handle

build_app("serve")
LLMConfig.from_kwargs(model="smollm2", dtype="bfloat16").to_kwargs()
"""
WITH_A_MODEL = """
from pathlib import Path
from minisgl.tokenizer import TextStream, load_tokenizer

tokenizer = load_tokenizer(Path({path!r}))
ids = tokenizer.apply_chat_template([{{"role": "user", "content": "hello"}}]).tolist()
TextStream(tokenizer).push(ids, final=True)
"""


def imported_by(code: str) -> set[str]:
    """The packages outside the standard library that are there after `code`."""
    code += "\nprint(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_http_process_listens_before_torch_or_transformers_could_be_imported():
    packages = imported_by(AS_SERVE_DOES)
    assert {"minisgl", "uvicorn", "starlette", "zmq"} <= packages
    assert packages.isdisjoint({"torch", "transformers"})


def test_the_http_process_has_no_torch_when_it_tokenizes_and_writes_text_either():
    packages = imported_by(AS_SERVE_DOES + WITH_A_MODEL.format(path=str(BOS_MODEL)))
    assert "transformers" in packages  # its tokenizer class, which renders chat templates
    assert "torch" not in packages


def test_the_engine_s_process_connects_before_it_imports_them():
    """If both are killed until then, the folder of their sockets stays behind."""
    packages = imported_by("import sys, minisgl.llm.engine_process")
    assert {"minisgl", "zmq"} <= packages
    assert packages.isdisjoint({"torch", "transformers"})
