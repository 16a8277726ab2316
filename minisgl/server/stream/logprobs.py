"""Log-probabilities in OpenAI's two forms. Every number is finite: the engine gives -9999.0 for the impossible."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from minisgl.core import TokenLogprobs
from minisgl.server.schema.answers import ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, TopLogprob
from minisgl.server.stream.events import ready
from minisgl.tokenizer import TokenBytes, Tokenizer


def token_name(raw: bytes) -> str:
    """A token's text. One that is a part of a character is written as its bytes, so that no two look the same."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class ChatLogprobsMaker:
    """The form of chats: lists of objects."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes = TokenBytes(tokenizer)

    def make(self, tokens: Iterable[TokenLogprobs]) -> ChatLogprobs:
        return ChatLogprobs([ready(self._token(token)) for token in tokens])

    def _token(self, token: TokenLogprobs) -> ChatTokenLogprob:
        raw = self._bytes(token.token_id)
        return ChatTokenLogprob(token_name(raw), token.logprob, list(raw), [self._top(*top) for top in token.top])

    def _top(self, token_id: int, logprob: float) -> TopLogprob:
        raw = self._bytes(token_id)
        return TopLogprob(token_name(raw), logprob, list(raw))


class CompletionLogprobsMaker:
    """The form of completions: lists side by side. Follows one choice, since offsets count from its text's start.

    begins: the choice begins with the first token of all, which may lose a space (sentencepiece).
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool, begins: bool = False) -> None:
        self._tokenizer = tokenizer
        self._begins = begins and not tokenizer.is_byte_level
        self._bytes = TokenBytes(tokenizer)
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._made = CompletionLogprobs([], [], [], [])
        self._offset = 0

    def add_prompt(self, first_id: int, rest: Iterable[TokenLogprobs | None], text_len: int) -> None:
        """The prompt that the text begins with: its first token has no logprob. text_len: in characters."""
        self._append(first_id, None, None)
        self.add(token for token in rest if token is not None)
        self._offset = text_len

    def add(self, tokens: Iterable[TokenLogprobs]) -> None:
        """The next tokens of the choice."""
        for token in tokens:
            top = {self._name(token.token_id): token.logprob}
            for token_id, logprob in token.top:
                name = self._name(token_id)
                top[name] = max(logprob, top.get(name, logprob))
            self._append(token.token_id, token.logprob, top)

    def take(self) -> CompletionLogprobs:
        """All that was added since the last time."""
        made, self._made = self._made, CompletionLogprobs([], [], [], [])
        return made

    def _append(self, token_id: int, logprob: float | None, top: dict[str, float] | None) -> None:
        made = self._made
        made.tokens.append(self._name(token_id))
        made.token_logprobs.append(logprob)
        made.top_logprobs.append(ready(top))
        made.text_offset.append(self._offset)
        if token_id not in self._hidden:
            self._offset += len(self._utf8.decode(self._raw(token_id)))
            self._begins = False

    def _name(self, token_id: int) -> str:
        return token_name(self._raw(token_id))

    def _raw(self, token_id: int) -> bytes:
        """Bytes that a token adds to the text where it stands now."""
        raw = self._bytes(token_id)
        if self._begins and raw.startswith(b" ") and not self._tokenizer.decode([token_id]).startswith(" "):
            return raw[1:]
        return raw
