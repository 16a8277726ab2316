"""The tokens that end a text as the tokenizer has it: what it calls EOS, and what its chat template writes."""

from __future__ import annotations

from minisgl.tokenizer.tokenizer import Tokenizer

_REPLY = "fine"
_CHAT = ({"role": "user", "content": "well?"}, {"role": "assistant", "content": _REPLY})


def end_token_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The id of EOS, and of the added token that the chat template puts right behind a model's reply; maybe none.

    Fine-tunes are taught to end their turns so, and base models have learnt to, while their files go on naming what
    ends a document. A template may put plain text there, or nothing that can be encoded, or refuse a short chat.
    """
    eos = frozenset() if tokenizer.eos_id is None else frozenset({tokenizer.eos_id})
    return eos | _turn_end(tokenizer)


def _turn_end(tokenizer: Tokenizer) -> frozenset[int]:
    try:
        text = tokenizer.render(_CHAT, add_generation_prompt=False)
        _, _, behind = text.rpartition(_REPLY)
        first = tokenizer.encode_rendered(behind.lstrip())[:1].tolist()
    except ValueError:
        return frozenset()
    added = tokenizer.backend.get_added_tokens_decoder()
    return frozenset(token_id for token_id in first if token_id in added)
