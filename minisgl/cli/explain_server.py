"""What a running server has cached of each of some prompts, as it tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from minisgl.cli.explain_prompts import AskedPrompt
from minisgl.cli.explain_report import Found
from minisgl.cli.server_flags import open_client
from minisgl.server.schema.explanation import ExplainedPrompt
from minisgl.utils.progress import tracked

UNKNOWN = {"never_seen", "not_looked_up"}


def explain_by_server(prompts: Sequence[AskedPrompt], url: str, api_key: str | None) -> list[Found]:
    """One for each prompt, in their order. OSError when it cannot be reached, ValueError when it refuses one."""
    client = open_client(url, api_key)
    answers: list[dict[str, Any]] = [
        msgspec.to_builtins(client.ask("POST", "/cache/explain", ExplainedPrompt, prompt.body()))
        for prompt in tracked(prompts, "asking", "prompts")
    ]
    known = ["".join(each["text"] for each in answer["segments"] if each["cause"] not in UNKNOWN) for answer in answers]
    found = []
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        other = _closest(known, number)
        if other is None or answer["around"] is None:
            found.append(Found(prompt.where, answer))
            continue
        text = "".join(segment["text"] for segment in answers[other]["segments"])
        branch = text[len(known[number]) :][: len(answer["around"]["after"])]
        answer["around"]["branch"] = branch
        found.append(Found(prompt.where, answer, prompts[other].where))
    return found


def _closest(known: Sequence[str], number: int) -> int | None:
    """Another of these prompts that is known as far as this one, and further; None if none is.

    A server does not tell what others have cached, but it does say how much of each of one's own prompts is.
    """
    begin = known[number]
    for other in reversed(range(len(known))):
        if begin and len(known[other]) > len(begin) and known[other].startswith(begin):
            return other
    return None
