"""Real clients, each in its own environment (`support.client_environments`), against a live server on SmolLM2."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.client_environments import python_of
from support.live_server import LiveServer

from minisgl.utils.model_store import resolve_model

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]
FOLDER = Path(__file__).parent
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def run_program(client: str, program: str, url: str, folder: Path | None = None, **environ: str) -> None:
    """The program's checks, in the client's environment; what it printed, if one failed."""
    command = [python_of(client), FOLDER / "programs" / program, url]
    variables = os.environ | OFFLINE | environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-6000:]


@pytest.mark.parametrize(
    ("client", "program"),
    [
        ("openai", "openai_python.py"),
        ("langchain", "langchain_openai_chat.py"),
        ("llamaindex", "llama_index_openai_like.py"),
        ("llm", "llm_cli.py"),
    ],
)
def test_a_client_library_gets_all_it_asks_for(server: LiveServer, client: str, program: str) -> None:
    run_program(client, program, server.url)
    assert server.is_healthy()


def test_lm_eval_finds_the_loglikelihoods_of_its_own_backend(server: LiveServer, tokenizer_folder: Path) -> None:
    run_program(
        "lmeval",
        "lm_eval_harness.py",
        server.url,
        folder=FOLDER / "lm_eval_tasks",
        MODEL_FILE=str(resolve_model("smollm2")),
        TOKENIZER=str(tokenizer_folder),
    )


def test_aiperf_counts_every_request_and_token(server: LiveServer, tokenizer_folder: Path) -> None:
    run_program("aiperf", "aiperf_profile.py", server.url, TOKENIZER=str(tokenizer_folder))


def test_sglang_router_shares_requests_among_two_servers(server: LiveServer, other_server: LiveServer) -> None:
    run_program("router", "router_in_front.py", server.url, OTHER_URL=other_server.url)
