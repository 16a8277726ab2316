"""Nothing that a request says is lost on its way through a template."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from support.chat_templates import FAMILIES, make_tokenizer

from minisgl.core import FieldError
from minisgl.tokenizer import conversation

TOKENS = ("<s>", "</s>")
DEVELOPER = {"role": "developer", "content": "Answer in French, please."}
SYSTEM = {"role": "system", "content": "You are a pirate on a ship."}
USER = {"role": "user", "content": "Hi"}
REPLY = {"role": "assistant", "content": "Well?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look_up", "arguments": {}}}]}

WRITTEN = "{{ '[' + m.role + ']' + m.content }}"
ANY_ROLE = "{% for m in messages %}" + WRITTEN + "{% endfor %}"
# As Qwen2.5's: a system message first, or its own; then what it knows, and nothing else.
QWEN = (
    "[system]{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}You are helpful.{% endif %}"
    "{% for m in messages %}{% if m.role in ('user', 'assistant') or (m.role == 'system' and not loop.first) %}"
    + WRITTEN
    + "{% endif %}{% endfor %}"
)
SYSTEM_FIRST_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system goes first') }}"
    "{% elif m.role not in ('system', 'user', 'assistant') %}{{ raise_exception('unknown role') }}{% endif %}"
    + WRITTEN
    + "{% endfor %}"
)
NO_SYSTEM = "{% for m in messages if m.role in ('user', 'assistant') %}" + WRITTEN + "{% endfor %}"
ALTERNATING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    + WRITTEN
    + "{% endfor %}"
)
ALTERNATING_AFTER_SYSTEM = ALTERNATING.replace(
    "raise_exception('no system')", "'[system]' + messages[0].content"
).replace("for m in messages %}", "for m in (messages[1:] if messages[0].role == 'system' else messages) %}")
STRICT = ALTERNATING.replace(
    "{% for", "{% if 'system' in messages | map(attribute='role') %}{{ nothing.at.all }}{% endif %}{% for"
)
OWN = "{% for m in messages %}{% if m.role == 'developer' %}[instructions]{{ m.content }}{% else %}" + WRITTEN
OWN += "{% endif %}{% endfor %}"
TOOLS = "{% for m in messages %}{% if m.role == 'tool' %}[result]{{ m.content }}{% elif m.role != 'function' %}"
TOOLS += WRITTEN + "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endif %}{% endfor %}"


def text_of(template: str, *messages: dict[str, Any], **kwargs: Any) -> str:
    return make_tokenizer(template, TOKENS).render_conversation(messages, **kwargs)


@pytest.mark.parametrize(
    ("template", "messages", "text"),
    [
        (ANY_ROLE, [DEVELOPER, USER], "[system]Answer in French, please.[user]Hi"),
        (OWN, [DEVELOPER, USER], "[instructions]Answer in French, please.[user]Hi"),
        (QWEN, [DEVELOPER, USER], "[system]Answer in French, please.[user]Hi"),
        (
            QWEN,
            [SYSTEM, DEVELOPER, USER],
            "[system]You are a pirate on a ship.[system]Answer in French, please.[user]Hi",
        ),
        (SYSTEM_FIRST_ONLY, [DEVELOPER, USER], "[system]Answer in French, please.[user]Hi"),
        (
            SYSTEM_FIRST_ONLY,
            [SYSTEM, DEVELOPER, USER],
            "[system]You are a pirate on a ship.[user]Answer in French, please.[user]Hi",
        ),
        (NO_SYSTEM, [DEVELOPER, USER], "[user]Answer in French, please.[user]Hi"),
        (ALTERNATING, [DEVELOPER, USER], "[user]Answer in French, please.\n\nHi"),
        (ALTERNATING, [USER, REPLY, DEVELOPER, USER], "[user]Hi[assistant]Well?[user]Answer in French, please.\n\nHi"),
        (ALTERNATING, [USER, DEVELOPER], "[user]Hi[system]Answer in French, please."),
        (STRICT, [USER, DEVELOPER], "[user]Hi\n\nAnswer in French, please."),
        (ALTERNATING, [USER, REPLY, DEVELOPER], "[user]Hi[assistant]Well?[user]Answer in French, please."),
        (ALTERNATING_AFTER_SYSTEM, [DEVELOPER, USER], "[system]Answer in French, please.[user]Hi"),
        (
            ALTERNATING_AFTER_SYSTEM,
            [SYSTEM, DEVELOPER, USER],
            "[system]You are a pirate on a ship.[user]Answer in French, please.\n\nHi",
        ),
        (
            ALTERNATING_AFTER_SYSTEM,
            [DEVELOPER, USER, REPLY, DEVELOPER, USER],
            "[system]Answer in French, please.[user]Hi[assistant]Well?[user]Answer in French, please.\n\nHi",
        ),
    ],
)
def test_a_developer_speaks_in_the_best_role_that_the_template_has(
    template: str, messages: list[dict[str, Any]], text: str
) -> None:
    assert text_of(template, *messages) == text


@pytest.mark.parametrize("family", FAMILIES)
def test_a_developer_is_heard_by_the_templates_of_all_families(family: str) -> None:
    template, special, _ = FAMILIES[family]
    tokenizer = make_tokenizer(template, special)
    assert DEVELOPER["content"] in tokenizer.render_conversation([DEVELOPER, USER])
    assert "developer" not in tokenizer.render_conversation([DEVELOPER, USER])


def test_the_messages_given_are_not_changed() -> None:
    messages = [dict(DEVELOPER), dict(USER)]
    text_of(ALTERNATING, *messages)
    assert messages == [DEVELOPER, USER]


def test_a_developer_that_no_form_of_the_chat_can_hold_is_named() -> None:
    template = "{{ raise_exception('only one message') if messages | length > 1 or messages[0].role != 'user' }}"
    with pytest.raises(FieldError, match=r"messages\[1\]\.role is 'developer'.*only one message") as caught:
        text_of(template, {"role": "user", "content": ""}, DEVELOPER, REPLY)
    assert caught.value.field == "messages[1].role"


def test_a_result_of_a_function_is_one_of_a_tool_where_the_template_knows_only_these() -> None:
    result = {"role": "function", "name": "look_up", "content": "42"}
    assert text_of(TOOLS, USER, CALL, result) == "[user]Hi[assistant]look_up[result]42"
    assert text_of(ANY_ROLE, USER, result) == "[user]Hi[function]42"


@pytest.mark.parametrize("text", ["no", "a long text that is not written anywhere"])
@pytest.mark.parametrize(
    ("template", "messages", "i"),
    [
        (QWEN, [SYSTEM, USER, {"role": "tool", "tool_call_id": "c1"}], 2),
        (NO_SYSTEM, [{"role": "system"}, USER], 0),
        (NO_SYSTEM, [USER, REPLY, {"role": "function", "name": "f"}], 2),
        ("{{ '[user]' + messages[-1].content }}", [{"role": "user"}, REPLY, USER], 0),
    ],
)
def test_text_that_the_template_drops_is_refused_by_its_number(
    template: str, messages: list[dict[str, Any]], i: int, text: str
) -> None:
    messages = [{"content": text, **message} for message in messages]
    with pytest.raises(FieldError, match=rf"messages\[{i}\]") as caught:
        text_of(template, *messages)
    assert caught.value.field.startswith(f"messages[{i}]")


def test_a_call_without_a_text_may_be_left_out_where_the_template_knows_none() -> None:
    assert text_of(ANY_ROLE, USER, CALL, {"role": "tool", "content": "42"}) == "[user]Hi[assistant][tool]42"


# As Llama 3's: an assistant either speaks or calls.
SPEAKS_OR_CALLS = "{% for m in messages %}{% if m.tool_calls %}[call]{{ m.tool_calls[0].function.arguments | tojson }}"
SPEAKS_OR_CALLS += "{% else %}" + WRITTEN + "{% endif %}{% endfor %}"
# As Functionary's: arguments are joined to other text.
JOINS_ARGUMENTS = SPEAKS_OR_CALLS.replace("{{ m.tool", "{{ '=' + m.tool").replace(" | tojson", "")
LOOK = {"type": "function", "function": {"name": "look_up", "arguments": '{"q": "caf\u00e9"}'}}
RESULT = {"role": "tool", "content": "It is a place where coffee is drunk."}


@pytest.mark.parametrize("said", ["Wait.", "I shall look that up for you."])
def test_text_beside_calls_is_a_turn_before_them_where_the_template_drops_it(said: str) -> None:
    talk: list[dict[str, Any]] = [USER, {"role": "assistant", "content": said, "tool_calls": [LOOK]}, RESULT, REPLY]
    text = (
        f'[user]Hi[assistant]{said}[call]{{"q": "caf\u00e9"}}[tool]It is a place where coffee is drunk.[assistant]Well?'
    )
    assert text_of(SPEAKS_OR_CALLS, *talk, add_generation_prompt=False) == text


def test_text_beside_calls_that_no_form_of_the_chat_can_hold_is_named() -> None:
    one_assistant = "{% if messages | selectattr('role', 'eq', 'assistant') | list | length > 1 %}"
    template = one_assistant + "{{ raise_exception('one at a time') }}{% endif %}" + SPEAKS_OR_CALLS
    with pytest.raises(FieldError, match=r"messages\[1\] \(role 'assistant'\).* leave it out") as refusal:
        text_of(template, USER, {"role": "assistant", "content": "Let me see.", "tool_calls": [LOOK]}, RESULT)
    assert refusal.value.field == "messages[1]"


@pytest.mark.parametrize("arguments", ['{"q": "caf\u00e9"}', {"q": "caf\u00e9"}])
def test_arguments_are_json_where_the_template_joins_them_to_text(arguments: Any) -> None:
    call = {"function": {"name": "look_up", "arguments": arguments}}
    talk: list[dict[str, Any]] = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, RESULT]
    assert '[call]={"q": "caf\u00e9"}[tool]' in text_of(JOINS_ARGUMENTS, *talk)


@pytest.mark.parametrize("content", ["", "  \n", [], [{"type": "text", "text": ""}]])
def test_what_says_nothing_may_be_left_out(content: Any) -> None:
    assert text_of(NO_SYSTEM, {"role": "system", "content": content}, USER) == "[user]Hi"


@pytest.mark.parametrize(
    ("template", "content"),
    [
        ("{% for m in messages %}{{ m.content | trim }}{% endfor %}", "  trimmed on both sides  "),
        ("{% for m in messages %}{{ m.content | tojson }}{% endfor %}", 'written "as JSON"\nin two lines'),
        (
            "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}",
            "<think>hm, hm</think>Reasoning may go.",
        ),
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "said in capital letters"),
        ("{% for m in messages | reverse %}{{ m.content }}{% endfor %}", "the last of them comes first"),
    ],
)
def test_what_the_template_writes_in_other_words_is_not_refused(template: str, content: str) -> None:
    assert text_of(template, {"role": "user", "content": content}, {"role": "user", "content": content + content})


def test_reasoning_may_be_left_out() -> None:
    message = {"role": "assistant", "content": "Well?", "reasoning_content": "a long thought about it"}
    assert text_of(ANY_ROLE, USER, message, USER) == "[user]Hi[assistant]Well?[user]Hi"


def test_a_short_text_that_stands_in_the_prompt_for_another_reason_is_missed_all_the_same() -> None:
    with pytest.raises(FieldError, match=r"messages\[1\]"):
        text_of(QWEN, USER, {"role": "tool", "content": "You are"})


def test_the_last_message_may_be_continued_behind_a_developer() -> None:
    text = text_of(ALTERNATING, DEVELOPER, USER, REPLY, add_generation_prompt=False, continue_final_message=True)
    assert text == "[user]Answer in French, please.\n\nHi[assistant]Well?"


def test_the_fate_of_short_texts_is_found_out_once_for_each_sequence_of_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []
    render = conversation.render_chat

    def counted(*args: Any, **kwargs: Any) -> str:
        rendered.append(args)
        return render(*args, **kwargs)

    monkeypatch.setattr(conversation, "render_chat", counted)
    tokenizer = make_tokenizer(ANY_ROLE, TOKENS)
    for _ in range(3):
        tokenizer.render_conversation([USER, REPLY, USER])
    assert len(rendered) == 4
    tokenizer.render_conversation([{"role": "user", "content": "a text that is long enough"}])
    assert len(rendered) == 5


def test_of_thousands_of_short_messages_the_dropped_one_is_named() -> None:
    template = "{% for m in messages %}{% if m.role != 'tool' %}" + WRITTEN + "{% endif %}{% endfor %}"
    chat = [{"role": "user", "content": str(i % 10)} for i in range(8000)]
    assert text_of(template, *chat).endswith("[user]9")
    chat[7000] = {"role": "tool", "content": "90419041"}  # as marks begin
    with pytest.raises(FieldError, match=r"messages\[7000\]"):
        text_of(template, *chat)


def test_what_is_remembered_of_a_conversation_does_not_grow_with_it() -> None:
    tokenizer = make_tokenizer(ANY_ROLE, TOKENS)
    tracemalloc.start()
    try:
        for extra in range(20):
            tokenizer.render_conversation([USER] * (2000 + extra))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000  # one tuple of roles each would be 2.6 MB
