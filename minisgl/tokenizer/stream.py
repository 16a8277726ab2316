"""A request's tokens to the text that its reader may see, cut before a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minisgl.tokenizer.detokenize import IncrementalDetokenizer
from minisgl.tokenizer.stop import StopStrings
from minisgl.tokenizer.tokenizer import Tokenizer


class TextDelta(NamedTuple):
    """What some tokens add to the text.

    text: to be shown now, maybe "". num_tokens: how many were pushed since the start; once stopped, up to and
    including the one that completed the stop string. stopped: a stop string was found, the text has ended.
    """

    text: str
    num_tokens: int
    stopped: bool


class TextStream:
    """The text of one request, piece by piece; how its tokens are grouped into pushes does not change it.

    After each token all its text is searched: the stop string that begins earliest cuts it. A stop string that ends
    within the text of the first min_tokens tokens does not count; so, as with end tokens, the earliest token that
    can end a text is number min_tokens + 1. Only ids whose text belongs to the answer are pushed: the caller removes
    the end token, or leaves it to skip_special_tokens (it then counts in num_tokens).
    stop: none of them empty. context: the end of the prompt, see `Tokenizer.context`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
        context: Sequence[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._context = context
        self._detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens, context)
        self._stops = StopStrings(stop)
        self._min_tokens = min_tokens
        self._num_tokens = 0

    def push(self, token_ids: Sequence[int], final: bool = False) -> TextDelta:
        """The text that these tokens add. final: nothing follows, so give what was held back too.

        After a stop, tokens are ignored: the scheduler may have generated some before it heard of it.
        """
        if not self._stops:
            text = self._plain(token_ids, final)
            self._num_tokens += len(token_ids)
            return TextDelta(text, self._num_tokens, False)
        texts = []
        for token_id in token_ids:
            if self._stops.stopped:
                break
            self._num_tokens += 1
            texts.append(self._search(self._detokenizer.push((token_id,))))
        if final and not self._stops.stopped:
            texts.append(self._search(self._detokenizer.flush()))
            texts.append(self._stops.flush())
        return TextDelta("".join(texts), self._num_tokens, self._stops.stopped)

    def _plain(self, token_ids: Sequence[int], final: bool) -> str:
        """Their text, where no stop string is looked for."""
        if final and self._num_tokens == 0:  # all at once is half the work, and others have the interpreter meanwhile
            return self._tokenizer.decode_behind(self._context, token_ids, self._skip_special_tokens)
        text = self._detokenizer.push(token_ids)
        return text + self._detokenizer.flush() if final else text

    def _search(self, piece: str) -> str:
        return self._stops.push(piece, armed=self._num_tokens > self._min_tokens)
