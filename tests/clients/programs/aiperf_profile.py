"""aiperf: a short run over each endpoint, and what it counted. TOKENIZER is a folder with tokenizer.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import MODEL, check, main

NUM_REQUESTS, OUTPUT_LEN = 8, 12


def profile(url: str, endpoint: str) -> dict:
    """The figures of one run, as aiperf exports them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [Path(sys.executable).parent / "aiperf", "profile", "--model", MODEL, "--url", url]
        command += [
            "--endpoint-type",
            endpoint,
            "--streaming",
            "--tokenizer",
            os.environ["TOKENIZER"],
            "--use-server-token-count",
        ]
        command += ["--request-count", str(NUM_REQUESTS), "--concurrency", "2", "--output-tokens-mean", str(OUTPUT_LEN)]
        command += ["--synthetic-input-tokens-mean", "24", "--extra-inputs", "ignore_eos:true"]
        command += ["--ui-type", "none", "--output-artifact-dir", folder]
        # Told to be offline, it looks for the name in the hub's cache and not for a folder.
        environ = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        (file,) = Path(folder).rglob("profile_export_aiperf.json")
        return json.loads(file.read_text())


def expect_all_counted(figures: dict) -> None:
    assert figures["request_count"]["avg"] == NUM_REQUESTS, figures
    assert not figures.get("error_summary"), figures["error_summary"]
    assert figures["output_sequence_length"]["avg"] == OUTPUT_LEN, figures["output_sequence_length"]
    assert figures["time_to_first_token"]["avg"] > 0


@check
def it_measures_chats(url: str) -> None:
    expect_all_counted(profile(url, "chat"))


@check
def it_measures_completions(url: str) -> None:
    expect_all_counted(profile(url, "completions"))


if __name__ == "__main__":
    main()
