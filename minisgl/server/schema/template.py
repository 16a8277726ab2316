"""What a model's chat template is told beside the messages."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from msgspec import Meta

from minisgl.server.errors import ApiError
from minisgl.tokenizer.chat import RESERVED

MAX_VARIABLES = 1024  # templates know a handful
ChatTemplateKwargs = Annotated[
    dict[str, Any], Meta(max_length=MAX_VARIABLES, description="Variables of the model's chat template.")
]
ContinueFinalMessage = Annotated[bool, Meta(description="The answer goes on where the last message ends.")]
ReasoningEffort = Annotated[str, Meta(description="Handed to the chat template, which may know it or not.")]
# Beside what the template's renderer reserves: arguments on the way to it, fields of their own, and what is refused.
_NO_VARIABLES = RESERVED | {"self", "hf", "messages", "add_generation_prompt", "continue_final_message"}
_NO_VARIABLES |= {"chat_template", "documents", "tools"}


class TemplateFields(Protocol):
    """The fields of a body that the template gets."""

    add_generation_prompt: bool | None
    chat_template_kwargs: ChatTemplateKwargs | None
    continue_final_message: ContinueFinalMessage | None
    reasoning_effort: ReasoningEffort | None


def template_kwargs(body: TemplateFields) -> dict[str, Any]:
    """Keywords for `Tokenizer.apply_chat_template`. ApiError 400 when they contradict each other."""
    kwargs = dict(body.chat_template_kwargs or {})
    if reserved := sorted(_NO_VARIABLES & kwargs.keys()):
        name = "chat_template_kwargs"
        raise ApiError(400, f"{name}: not a variable of the template: {', '.join(reserved)}", param=name)
    if body.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", body.reasoning_effort)
    kwargs["add_generation_prompt"] = _adds_generation_prompt(body)
    if body.continue_final_message:
        kwargs["continue_final_message"] = True
    return kwargs


def _adds_generation_prompt(body: TemplateFields) -> bool:
    if body.continue_final_message and body.add_generation_prompt:
        name = "continue_final_message"
        raise ApiError(400, f"{name} and add_generation_prompt exclude each other", param=name)
    if body.add_generation_prompt is None:
        return not body.continue_final_message
    return body.add_generation_prompt
