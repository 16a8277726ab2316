"""The `llm` command line, as its users call it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import MODEL, QUESTION, check, main


def llm(url: str, *arguments: str) -> str:
    """What `llm ARGUMENTS` prints, in a user folder that knows the server as the model `local`."""
    with tempfile.TemporaryDirectory() as folder:
        known = f'- model_id: local\n  model_name: {MODEL}\n  api_base: "{url}/v1"\n'
        Path(folder, "extra-openai-models.yaml").write_text(known)
        environ = os.environ | {"LLM_USER_PATH": folder, "OPENAI_API_KEY": "x"}
        command = [Path(sys.executable).parent / "llm", *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120).stdout


OPTIONS = ("-m", "local", "-o", "temperature", "0", "-o", "max_tokens", "16", "--no-log")


@check
def it_streams_the_same_text_as_without_a_stream(url: str) -> None:
    streamed = llm(url, *OPTIONS, QUESTION)
    assert "Paris" in streamed
    assert llm(url, *OPTIONS, "--no-stream", QUESTION) == streamed


@check
def a_system_prompt_is_sent(url: str) -> None:
    assert llm(url, *OPTIONS, "--system", "Be brief.", QUESTION).strip()


@check
def its_models_name_the_server(url: str) -> None:
    assert "local" in llm(url, "models")


if __name__ == "__main__":
    main()
