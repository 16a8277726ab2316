"""Every end token of a model over HTTP: it ends the text unseen and is counted, and who ignores or masks it does so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.any_endpoint import PROMPTS, WAYS, answer
from support.asgi import COMPLETIONS, Api, ids_of
from support.many_ends import ENDS, forcing, make_model_of_many_ends

from minisgl.llm import AsyncLLM

(X,) = ids_of("x")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    llm = AsyncLLM(str(make_model_of_many_ends(tmp_path_factory.mktemp("ends"))), num_page_override=512)
    yield Api(engine=llm.client)
    llm.llm.cache_manager.check_integrity()
    asyncio.run(llm.shutdown())


@WAYS
@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize("end", ENDS)
def test_an_end_token_ends_the_text_and_is_counted_but_not_shown(api: Api, end: int, path: str, stream: bool) -> None:
    assert answer(api, path, stream, **forcing(end)) == ("", "stop", 1)


@WAYS
@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize(("end", "text"), [*zip(ENDS, ("</s>", "<turn>", ""), strict=True)])
def test_ignore_eos_ignores_every_one(api: Api, end: int, text: str, path: str, stream: bool) -> None:
    assert answer(api, path, stream, **forcing(end), ignore_eos=True) == (text * 6, "length", 6)


@WAYS
@pytest.mark.parametrize(
    ("more", "text", "num_tokens"),
    [
        ({"stop": "xx"}, "", 2),
        ({"stop_token_ids": [X]}, "", 1),
        ({"stop": "xx", "min_tokens": 3}, "xx", 4),
        ({"stop_token_ids": [X], "min_tokens": 3, "logit_bias": {X: 100, X + 1: 50}}, "yyy", 4),
    ],
)
def test_stop_strings_and_stop_tokens_end_a_text_under_ignore_eos_but_not_within_min_tokens(
    api: Api, more: Any, text: str, num_tokens: int, stream: bool
) -> None:
    assert answer(api, COMPLETIONS, stream, **forcing(X) | more, ignore_eos=True) == (text, "stop", num_tokens)


@WAYS
@pytest.mark.parametrize("end", ENDS)
def test_min_tokens_masks_every_one(api: Api, end: int, stream: bool) -> None:
    """Also those that are not forced but follow next."""
    forced = forcing(end) | {"logit_bias": {each: 100 - (each != end) for each in ENDS} | {X: 50}}
    assert answer(api, COMPLETIONS, stream, **forced, min_tokens=5) == ("xxxxx", "stop", 6)
