"""Log-probabilities in SGLang's form: [logprob, token id, text] a token, the text null unless it was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minisgl.core import TokenLogprobs
from minisgl.server.schema.generate import GenerateRequest
from minisgl.server.stream.events import ready
from minisgl.server.stream.logprobs import token_name
from minisgl.tokenizer import TokenBytes, Tokenizer


class Logprobs:
    """Of the tokens, and of the best ones at their places. In JSON already, since every event of a stream has them."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.top: list[Any] = []


class LogprobsMaker:
    """Makes what one request asks for."""

    def __init__(self, request: GenerateRequest, tokenizer: Tokenizer) -> None:
        self._start = request.logprob_start_len or 0
        self._with_top = bool(request.top_logprobs_num)
        self._bytes = TokenBytes(tokenizer) if request.return_text_in_logprobs else None

    def add(self, made: Logprobs, tokens: Iterable[TokenLogprobs]) -> None:
        """More tokens of the same choice."""
        for token in tokens:
            made.tokens.append(ready(self._entry(token.token_id, token.logprob)))
            if self._with_top:
                made.top.append(ready([self._entry(*top) for top in token.top]))

    def of_prompt(self, first_id: int, logprobs: Sequence[TokenLogprobs | None]) -> Logprobs:
        """From the token on from which they are wanted. The first one has null instead of numbers."""
        made = Logprobs()
        if self._start == 0:
            made.tokens.append(ready(self._entry(first_id, None)))
            made.top.append(None)
        self.add(made, (token for token in logprobs[self._start :] if token is not None))
        return made

    def meta(self, side: str, made: Logprobs) -> dict[str, Any]:
        """side: "input" or "output"."""
        lists: dict[str, Any] = {f"{side}_token_logprobs": made.tokens}
        if self._with_top:
            lists[f"{side}_top_logprobs"] = made.top
        return lists

    def _entry(self, token_id: int, logprob: float | None) -> list[Any]:
        return [logprob, token_id, token_name(self._bytes(token_id)) if self._bytes is not None else None]
