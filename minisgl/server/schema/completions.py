"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, cast

from msgspec import Meta

from minisgl.core import SamplingParams
from minisgl.llm.encoder import Prompt
from minisgl.server.errors import ApiError
from minisgl.server.schema.fields import MAX_PROMPTS, TokenId
from minisgl.server.schema.sampling import Defaults, GeneratingBody
from minisgl.server.schema.unsupported import Unsupported

DEFAULT_MAX_TOKENS = 16
Prompts = Annotated[
    str
    | Annotated[
        list[str | TokenId | Annotated[list[TokenId], Meta(min_length=1)]],
        Meta(
            min_length=1,
            extra_json_schema={
                "anyOf": [
                    {"items": {"type": "string"}, "maxItems": MAX_PROMPTS},
                    {"items": {"type": "integer"}},
                    {"items": {"type": "array"}, "maxItems": MAX_PROMPTS},
                ]
            },
        ),
    ],
    Meta(description="A text, token ids, or a list of texts or of lists of token ids."),
]


class CompletionRequest(GeneratingBody, kw_only=True):
    """Prompts that the model goes on with. max_tokens is 16 where none is given."""

    PROMPT_IDS: ClassVar[tuple[str, ...]] = ("prompt",)
    ONLY: ClassVar[dict[str, str]] = Unsupported.ONLY | {"suffix": "only an empty one"}

    prompt: Prompts
    echo: Annotated[bool, Meta(description="The answer begins with the prompt.")] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    suffix: Literal[""] | None = None

    @property
    def num_sequences(self) -> int:
        """Choices of all prompts. ApiError 400 as `prompts`."""
        return len(self.prompts()) * (self.n or 1)

    def prompts(self) -> list[Prompt]:
        return split_prompts("prompt", self.prompt)

    def params(self, defaults: Defaults) -> SamplingParams:
        """Sampling parameters of every prompt. ApiError 400 for fields that contradict each other."""
        max_tokens = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        return self.sampling(defaults, max_tokens, self.logprobs, self.logprobs if self.echo else None)


def split_prompts(name: str, given: str | Sequence[str | int | list[int]]) -> list[Prompt]:
    """One prompt each. ApiError 400 for a list that mixes texts and ids, or holds too many prompts."""
    if isinstance(given, str):
        return [given]
    kinds = set(map(type, given))  # there may be millions
    if len(kinds) != 1:
        raise ApiError(400, f"{name}: a list holds texts, token ids or lists of token ids, not a mixture", param=name)
    if kinds == {int}:
        return [cast("list[int]", given)]
    if len(given) > MAX_PROMPTS:
        raise ApiError(400, f"{name}: {len(given)} prompts; at most {MAX_PROMPTS} are allowed", param=name)
    return [item for item in given if not isinstance(item, int)]
