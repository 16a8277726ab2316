"""How `minisgl explain` shows what it found: for people, the two prompts one below the other where they part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from minisgl.cli.session import printable
from minisgl.cli.words import CAUSE_COLORS, CAUSES, count, duration
from minisgl.llm.explained import REACH, Around

# In a sentence some take more words.
WORDS = CAUSES | {
    "joined": "computed by a running request",
    "below_page": "known, but no whole page",
    "last_token": "at the end, always computed",
}
SAME_TEXT = (
    "  The same text in other tokens: a model's own tokens are not always those that its text is cut into, and a text",
    "  may end within a word. Send token ids to have it found, or accept it.",
)
MIN_COMMON_END = 8  # tokens; fewer are not worth a word


@dataclass(frozen=True)
class Found:
    """About one prompt. answer: as the server gives it. closest: the name of the prompt that came closest, if known.

    common_end: tokens at the end that the two have in common, though not cached.
    """

    where: str
    answer: Mapping[str, Any]
    closest: str | None = None
    common_end: int = 0

    @property
    def same_text(self) -> bool:
        """Whether the two part only in how the same text was cut into tokens."""
        around = self.answer["around"]
        return around is not None and Around(**around).same_text

    def as_json(self) -> dict[str, Any]:
        other = {"closest": self.closest, "common_end_tokens": self.common_end, "same_text": self.same_text}
        return {"prompt": self.where, **self.answer, **other}


def show(found: Sequence[Found], console: Console) -> None:
    """One paragraph for each; of several a line of sums."""
    for each in found:
        for line in _lines(each):
            console.print(line, soft_wrap=True)
    if len(found) > 1:
        total, cached = (sum(each.answer[name] for each in found) for name in ("prompt_tokens", "cached_tokens"))
        console.print(f"{len(found)} prompts: {total:,} tokens, {cached:,} cached ({cached / total:.0%})", style="dim")


def _lines(found: Found) -> Iterator[Text]:
    answer = found.answer
    head = Text(f"{printable(found.where)}: {count(answer['prompt_tokens'], 'token')}: ", "bold")
    yield head + Text(", ").join(
        Text(f"{tokens:,} {WORDS[cause]}{_when(cause, answer)}", CAUSE_COLORS.get(cause, "not bold"))
        for cause, tokens in answer["causes"].items()
        if tokens
    )
    if answer["around"] is not None and answer["left_at"]:
        yield from _parting(found)
    if found.common_end >= MIN_COMMON_END:
        same = count(found.common_end, "token")
        yield Text(f"  Both end with the same {same}: put what differs behind these to have them cached.")


def _when(cause: str, answer: Mapping[str, Any]) -> str:
    if cause != "evicted":
        return ""
    times = [f"{duration(answer['evicted_s'])} ago"] if answer["evicted_s"] is not None else []
    if answer["evicted_tokens"]:
        times.append(f"{answer['evicted_tokens']:,} more were evicted since")
    return f" ({', '.join(times)})" if times else ""


def _parting(found: Found) -> Iterator[Text]:
    """Both prompts around the position, and a mark below it."""
    around, left_at = found.answer["around"], found.answer["left_at"]
    names = [printable(name) for name in (found.where, found.closest) if name]
    other = names[1] if found.closest else "what came closest"
    yield Text(f"  It leaves {other} after {count(left_at, 'token')}:")
    width, before = max(map(cell_len, names)), ("..." if left_at > REACH else "") + _quoted(around["before"])
    for name, after in zip(names, (around["after"], around.get("branch", "")), strict=False):
        padding = " " * (width - cell_len(name))
        yield Text.assemble(f"    {name}{padding}  {before}", (_quoted(after) or "(it ends here)", "bold reverse"))
    yield Text(" " * (4 + width + 2 + cell_len(before)) + "^", "bold")
    if found.same_text:
        yield from map(Text, SAME_TEXT)


def _quoted(text: str) -> str:
    """On one line, and harmless to a terminal."""
    return printable(json.dumps(text, ensure_ascii=False)[1:-1])
