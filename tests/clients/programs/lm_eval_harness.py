"""lm-evaluation-harness: loglikelihoods through the server, beside those of its own `hf` backend on the same file.

Runs in the folder of the task. MODEL_FILE is the GGUF file, TOKENIZER a folder with tokenizer.json.
"""

from __future__ import annotations

import os
from pathlib import Path

import lm_eval
from checks import MODEL, check, main
from lm_eval.tasks import TaskManager

MODEL_FILE = Path(os.environ["MODEL_FILE"])
TOKENIZER = os.environ["TOKENIZER"]
TOLERANCE = 1e-3


def loglikelihoods(backend: str, **options) -> list[tuple[float, bool]]:
    """(log-likelihood, whether greedy) of every choice of every document, in order."""
    results = lm_eval.simple_evaluate(
        model=backend,
        model_args=options,
        tasks=["capitals"],
        task_manager=TaskManager(include_path="."),
        bootstrap_iters=0,
    )
    samples = sorted(results["samples"]["capitals"], key=lambda sample: sample["doc_id"])
    return [(float(value), str(greedy) == "True") for s in samples for (value, greedy) in s["filtered_resps"]]


@check
def loglikelihoods_are_those_of_the_hf_backend(url: str) -> None:
    expected = loglikelihoods(
        "hf",
        pretrained=str(MODEL_FILE.parent),
        gguf_file=MODEL_FILE.name,
        tokenizer=TOKENIZER,
        dtype="float32",
        device="cpu",
    )
    assert len(expected) == 15
    server = {"model": MODEL, "base_url": f"{url}/v1/completions", "tokenizer": TOKENIZER, "num_concurrent": 2}
    for _ in range(2):  # the second time the prompts are cached
        found = loglikelihoods("local-completions", **server)
        for (value, greedy), (expected_value, expected_greedy) in zip(found, expected, strict=True):
            assert abs(value - expected_value) < TOLERANCE, (found, expected)
            assert greedy == expected_greedy
    print("largest difference", max(abs(a - b) for (a, _), (b, _) in zip(found, expected, strict=True)))


if __name__ == "__main__":
    main()
