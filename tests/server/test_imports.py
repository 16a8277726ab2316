"""What the HTTP process imports."""

from __future__ import annotations

from pathlib import Path

from support.gguf_variants import DATA
from support.imports import imported_by

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
ids = tokenizer.apply_chat_template([{{"role": "user", "content": "hello"}}], {options}).tolist()
TextStream(tokenizer).push(ids, final=True)
"""
PLAIN = "chat_template='{{ messages[0].content }}'"


def test_the_http_process_listens_before_torch_or_transformers_could_be_imported():
    packages = imported_by(AS_SERVE_DOES)
    assert {"minisgl", "uvicorn", "starlette", "zmq"} <= packages
    assert packages.isdisjoint({"torch", "transformers"})


def test_the_http_process_has_no_torch_when_it_tokenizes_and_writes_text_either():
    packages = imported_by(AS_SERVE_DOES + WITH_A_MODEL.format(path=str(BOS_MODEL), options=""))
    assert "transformers" in packages  # its class reads a folder's tokenizer
    assert "torch" not in packages


def test_of_a_gguf_file_it_has_no_transformers_either():
    packages = imported_by(AS_SERVE_DOES + WITH_A_MODEL.format(path=str(DATA / "llama_f32.gguf"), options=PLAIN))
    assert {"tokenizers", "jinja2"} <= packages
    assert packages.isdisjoint({"torch", "transformers", "huggingface_hub", "gguf"})


def test_the_engine_s_process_connects_before_it_imports_them():
    """If both are killed until then, the folder of their sockets stays behind."""
    packages = imported_by("import sys, minisgl.llm.engine_process")
    assert {"minisgl", "zmq"} <= packages
    assert packages.isdisjoint({"torch", "transformers"})
