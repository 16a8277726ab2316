"""What a model's chat template is told beside the messages."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any, Protocol

from msgspec import Meta

from minisgl.server.errors import ApiError
from minisgl.server.schema.spelling import MAX_CHECKED
from minisgl.tokenizer import Tokenizer
from minisgl.tokenizer.chat import ARGUMENTS, RESERVED, misspelt_variable

MAX_VARIABLES = 1024  # templates know a handful
ChatTemplateKwargs = Annotated[
    dict[str, Any], Meta(max_length=MAX_VARIABLES, description="Variables of the model's chat template.")
]
ContinueFinalMessage = Annotated[bool, Meta(description="The answer goes on where the last message ends.")]
ReasoningEffort = Annotated[str, Meta(description="Handed to the chat template, which may know it or not.")]
# Arguments of transformers' renderer and of ours: fields of their own, or refused.
_NO_VARIABLES = RESERVED | ARGUMENTS.keys() | {"hf", "self"}


class TemplateFields(Protocol):
    """The fields of a body that the template gets."""

    add_generation_prompt: bool | None
    chat_template_kwargs: ChatTemplateKwargs | None
    continue_final_message: ContinueFinalMessage | None
    reasoning_effort: ReasoningEffort | None


def template_kwargs(body: TemplateFields, tokenizer: Tokenizer) -> dict[str, Any]:
    """Keywords for `Tokenizer.render`. ApiError 400 when they contradict each other, and for a misspelt variable."""
    variables = dict(body.chat_template_kwargs or {})
    if reserved := sorted(_NO_VARIABLES & variables.keys()):
        name = "chat_template_kwargs"
        raise ApiError(400, f"{name}: not a variable of the template: {', '.join(reserved)}", param=name)
    if variables:
        _check_spelling(variables, tokenizer)
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    kwargs: dict[str, Any] = {"template": variables, "add_generation_prompt": _adds_generation_prompt(body)}
    if body.continue_final_message:
        kwargs["continue_final_message"] = True
    return kwargs


def _check_spelling(variables: Iterable[str], tokenizer: Tokenizer) -> None:
    try:
        read = tokenizer.template_variables() or ()
    except ValueError:  # no template, as rendering it says
        return
    for variable in islice(variables, MAX_CHECKED):
        if meant := misspelt_variable(read, variable):
            name = f"chat_template_kwargs.{variable}"
            raise ApiError(400, f"{name}: no such variable; did you mean {meant}?", param=name)


def _adds_generation_prompt(body: TemplateFields) -> bool:
    if body.continue_final_message and body.add_generation_prompt:
        name = "continue_final_message"
        raise ApiError(400, f"{name} and add_generation_prompt exclude each other", param=name)
    if body.add_generation_prompt is None:
        return not body.continue_final_message
    return body.add_generation_prompt
