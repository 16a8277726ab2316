"""A conversation written by a model's template with nothing lost: what the template does not know takes a form that it
does, and a message whose text it drops is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from minisgl.core import FieldError
from minisgl.tokenizer.chat import Templated, chosen_template, plain_messages, render_chat

Chat = list[dict[str, Any]]
Casting = Callable[[Chat], Chat]

_KNOWS_DEVELOPER = re.compile(r"""["']developer["']""")
_EVIDENCE = 16  # characters: a text as long is found in a prompt only because it was written there
_MAX_PATTERNS = 4096
_MARK_DIGITS = 6


class Conversations:
    """Renders conversations by the templates of `source`. Safe between threads.

    A `developer` message stays one where the template names that role. Elsewhere it becomes a system message in its
    place; where the template takes none there, a user turn; where turns must alternate, a part of the user turn beside
    it. A `function` message becomes a `tool` message where the template knows that role only. Text beside tool calls
    becomes an assistant turn of its own before them where the template drops it. Arguments of tool calls are objects,
    or JSON where the template can only join them to other text.
    """

    def __init__(self) -> None:
        # Digests of templates and roles of messages, of which short texts were written too.
        self._clean: set[bytes] = set()

    def render(self, source: Templated, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> str:
        """The text of a chat. kwargs: as for `render_chat`.

        Raises FieldError naming messages[i] for text that would leave no trace in the prompt (reasoning and calls of
        tools may go), and ValueError for what `render_chat` refuses.
        """
        chat = plain_messages(messages)
        template = chosen_template(source.chat_template, kwargs.get("chat_template"), kwargs.get("tools") is not None)
        problems: list[ValueError] = []
        for name, cast in _castings(chat, template):
            try:
                text = render_chat(source, cast(chat), **kwargs)
            except ValueError as error:
                problems.append(error)
                continue
            lost = self._lost(source, chat, cast, (template, name), text, kwargs)
            if lost is None:
                return text
            problems.append(_dropped(chat, lost))
        raise _worst(chat, problems)

    def _lost(
        self, source: Templated, chat: Chat, cast: Casting, key: tuple[str, str], text: str, kwargs: Mapping[str, Any]
    ) -> int | None:
        """The first message whose text left no trace in `text`.

        Long texts are looked for in it. Whether short ones are written is found out once for each sequence of roles, by
        texts with marks, and so is the fate of those that were not found as they are.
        """
        place = 0
        unsure = False
        for message in chat:
            said = message["content"].strip()
            if len(said) < _EVIDENCE:
                unsure = unsure or said != ""
                continue
            found = text.find(said, place)
            if found < 0:
                return self._unmarked(source, chat, cast, kwargs)
            place = found + len(said)
        if not unsure:
            return None
        roles = [(message["role"], bool(message.get("tool_calls"))) for message in chat]
        pattern = _digest((*key, kwargs.get("tools") is not None, roles))
        if pattern in self._clean:
            return None
        lost = self._unmarked(source, chat, cast, kwargs)
        if lost is None:
            if len(self._clean) >= _MAX_PATTERNS:
                self._clean.clear()
            self._clean.add(pattern)
        return lost

    def _unmarked(self, source: Templated, chat: Chat, cast: Casting, kwargs: Mapping[str, Any]) -> int | None:
        """The first message whose text is not written, told by a mark behind each."""
        digits = max(_MARK_DIGITS, len(str(len(chat))))
        said = [i for i, message in enumerate(chat) if message["content"].strip()]
        marked = list(chat)
        for i in said:
            marked[i] = {**chat[i], "content": f"{chat[i]['content']}9041{i:0{digits}}1409"}
        try:
            text = render_chat(source, cast(marked), **{**kwargs, "continue_final_message": False})
        except ValueError:  # the template reads what is in the texts
            return None
        # One search for all, however many; marks may overlap with what stands before them.
        written = {int(number) for number in re.findall(rf"(?=9041(\d{{{digits}}})1409)", text)}
        return next((i for i in said if i not in written), None)


def _digest(pattern: object) -> bytes:
    """As long for a conversation of thousands of messages as for a short one."""
    return hashlib.blake2b(repr(pattern).encode(errors="backslashreplace"), digest_size=16).digest()


def _dropped(chat: Chat, i: int) -> FieldError:
    role = chat[i]["role"]
    what = f"messages[{i}] (role {role!r}): the model's chat template would leave it out of the prompt"
    return FieldError(f"messages[{i}]", what)


def _worst(chat: Chat, problems: Sequence[ValueError]) -> ValueError:
    """Error to raise when no casting worked; it names the message whose role the template takes in no form."""
    rare = [i for i, message in enumerate(chat) if message["role"] in ("developer", "function")]
    if rare:
        i = rare[0]
        field = f"messages[{i}].role"
        return FieldError(
            field, f"{field} is {chat[i]['role']!r}, which the model's chat template takes in no form: {problems[0]}"
        )
    return problems[0]


# ---- the same in other forms


def _castings(chat: Chat, template: str) -> Iterator[tuple[str, Casting]]:
    """Castings to try with their names, the best first; only the chat as it is where nothing in it is special."""
    roles = {message["role"] for message in chat}
    functions = (_as_it_is, _functions_as_tools) if "function" in roles else (_as_it_is,)
    developers: tuple[Casting, ...] = (_as_it_is,)
    if "developer" in roles:
        developers = (_all_system, _first_system, _first_system_others_joined, _all_user, _all_joined)
        if _KNOWS_DEVELOPER.search(template):
            developers = (_as_it_is, *developers)
    calls: tuple[Casting, ...] = (_as_it_is,)
    if any(message.get("tool_calls") for message in chat):
        calls = (_as_it_is, _text_before_calls, _arguments_as_json)
    for castings in product(developers, functions, calls):
        yield " ".join(casting.__name__ for casting in castings), partial(_in_turn, castings)


def _in_turn(castings: Sequence[Casting], chat: Chat) -> Chat:
    for casting in castings:
        chat = casting(chat)
    return chat


def _as_it_is(chat: Chat) -> Chat:
    return chat


def _functions_as_tools(chat: Chat) -> Chat:
    return [{**message, "role": "tool"} if message["role"] == "function" else message for message in chat]


def _all_system(chat: Chat) -> Chat:
    return [_with_role(message, "system") for message in chat]


def _first_system(chat: Chat) -> Chat:
    return [_with_role(message, "user" if i else "system") for i, message in enumerate(chat)]


def _first_system_others_joined(chat: Chat) -> Chat:
    return [_with_role(chat[0], "system"), *_all_joined(chat[1:])]


def _all_user(chat: Chat) -> Chat:
    return [_with_role(message, "user") for message in chat]


def _all_joined(chat: Chat) -> Chat:
    """Each developer's text before that of the next user turn, or behind that of the last, or a turn of its own."""
    made: Chat = []
    waiting: list[str] = []
    for message in chat:
        if message["role"] == "developer":
            waiting.append(message["content"])
        elif message["role"] == "user" and waiting:
            made.append({**message, "content": "\n\n".join([*waiting, message["content"]])})
            waiting = []
        else:
            made.append(message)
    if waiting and made and made[-1]["role"] == "user":
        made[-1] = {**made[-1], "content": "\n\n".join([made[-1]["content"], *waiting])}
    elif waiting:
        made.append({"role": "user", "content": "\n\n".join(waiting)})
    return made


def _with_role(message: dict[str, Any], role: str) -> dict[str, Any]:
    return {**message, "role": role} if message["role"] == "developer" else message


def _text_before_calls(chat: Chat) -> Chat:
    made: Chat = []
    for message in chat:
        if message.get("tool_calls") and message["content"].strip():
            made.append({"role": message["role"], "content": message["content"]})
            message = {**message, "content": ""}
        made.append(message)
    return made


def _arguments_as_json(chat: Chat) -> Chat:
    return [
        {**message, "tool_calls": [_with_json(call) for call in calls]}
        if isinstance(calls := message.get("tool_calls"), list)
        else message
        for message in chat
    ]


def _with_json(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), Mapping):
        return call
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}
