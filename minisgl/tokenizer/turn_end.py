"""The token that ends a turn, as the chat template itself writes it: a model's files may not call it an end token."""

from __future__ import annotations

from minisgl.tokenizer.tokenizer import Tokenizer

_REPLY = "fine"
_CHAT = ({"role": "user", "content": "well?"}, {"role": "assistant", "content": _REPLY})


def turn_end_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The id of the added token that the template puts right behind a model's reply.

    Fine-tunes are taught to end their turns so, and base models have learnt to, while their files go on naming what
    ends a document. None where there is no template, or where it puts plain text there or refuses a short chat.
    """
    try:
        text = tokenizer.render(_CHAT, add_generation_prompt=False)
    except ValueError:
        return frozenset()
    _, _, behind = text.rpartition(_REPLY)
    first = tokenizer.encode_rendered(behind.lstrip())[:1].tolist()
    added = tokenizer.backend.get_added_tokens_decoder()
    return frozenset(token_id for token_id in first if token_id in added)
