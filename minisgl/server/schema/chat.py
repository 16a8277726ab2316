"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from minisgl.core import SamplingParams
from minisgl.core.sampling_params import MAX_LOGPROBS
from minisgl.server.errors import ApiError
from minisgl.server.schema.fields import MaxTokens, MustBeFalse
from minisgl.server.schema.messages import ChatMessage
from minisgl.server.schema.sampling import Defaults, GeneratingBody
from minisgl.server.schema.template import ChatTemplateKwargs, ContinueFinalMessage, ReasoningEffort
from minisgl.server.schema.unsupported import Empty, Unsupported

Messages = Annotated[list[ChatMessage], Meta(min_length=1)]


class ChatRequest(GeneratingBody, kw_only=True):
    """A conversation, of which the model writes the next message."""

    ONLY: ClassVar[dict[str, str]] = Unsupported.ONLY | {
        "documents": "only an empty list",
        "function_call": 'only "none" or "auto"',
        "functions": "only an empty list",
        "modalities": 'only ["text"]',
        "tool_choice": 'only "none" or "auto"',
        "tools": "only an empty list",
        "verbosity": 'only "medium"',
    }
    MUST_BE_FALSE: ClassVar[tuple[str, ...]] = (*Unsupported.MUST_BE_FALSE, "echo")

    messages: Messages
    logprobs: bool | None = None
    max_completion_tokens: MaxTokens | None = None
    parallel_tool_calls: Any = None
    prediction: Any = None
    reasoning_effort: ReasoningEffort | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None

    add_generation_prompt: bool | None = None
    chat_template_kwargs: ChatTemplateKwargs | None = None
    continue_final_message: ContinueFinalMessage | None = None

    audio: None = None
    chat_template: None = None
    documents: Empty | None = None
    echo: MustBeFalse | None = None
    function_call: Literal["none", "auto"] | None = None
    functions: Empty | None = None
    modalities: Annotated[list[Literal["text"]], Meta(min_length=1)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    tools: Empty | None = None
    verbosity: Literal["medium"] | None = None
    web_search_options: None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs is only allowed with logprobs: true", param="top_logprobs")
        for name in ("max_completion_tokens", "max_tokens"):
            if getattr(self, name) == 0:
                raise ApiError(400, f"{name}: Expected `int` >= 1", param=name)

    @property
    def num_sequences(self) -> int:
        return self.n or 1

    def params(self, defaults: Defaults, max_seq_len: int) -> SamplingParams:
        """Without a maximum the answer may fill the context. Of two, max_completion_tokens counts."""
        top = (self.top_logprobs or 0) if self.logprobs else None
        if self.max_completion_tokens is not None:
            return self.sampling(defaults, self.max_completion_tokens, top, max_name="max_completion_tokens")
        return self.sampling(defaults, max_seq_len if self.max_tokens is None else self.max_tokens, top)
