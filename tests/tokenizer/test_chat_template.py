"""Templates are rendered as transformers renders them, which is asked beside."""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.chat_templates import make_tokenizer

from minisgl.tokenizer import chat_template
from minisgl.tokenizer.chat_template import BASE_STEPS, MAX_CHARS, MAX_SECONDS, STEPS_A_MESSAGE, plain

TOKENS = ("<s>", "</s>")
USER = {"role": "user", "content": " hi "}
REPLY = {"role": "assistant", "content": "well, ", "reasoning": "hm "}
TOOL = {"type": "function", "function": {"name": "add", "description": "<é>", "parameters": {"b": [1, None]}}}
ALL = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
JOINED = "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}"
TRIMMED = "{% for m in messages %}{{ m.role + ':' + m.content | trim + ';' }}{% endfor %}"


class Mood(enum.StrEnum):
    GOOD = "good"


@dataclass
class Thing:
    name: str
    values: Any


class Dumped:
    def model_dump(self) -> dict[str, Any]:
        return {"x": 1}


def check(template: str, messages: Any = (USER,), **variables: Any) -> str:
    """The text, which must be transformers' own."""
    tokenizer = make_tokenizer(template, TOKENS)
    variables = {"add_generation_prompt": True, **variables}
    text = tokenizer.render(messages, **variables)
    assert text == tokenizer.hf.apply_chat_template(list(messages), tokenize=False, **variables)
    return text


@pytest.mark.parametrize(
    "template",
    [
        ALL,
        "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token is defined }}",
        "{%- if tools %}{{ tools | tojson(indent=2) }}{% endif -%}",
        "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}",
        "  {% if true %}\n  x\n  {% endif %}\n y",
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        "{% for i in (1, 2, 3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% break %}{% endfor %}",
        "{% set n = namespace(x=0, self=2) %}{% for m in messages %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}",
        "{{ dict(a=1, **{'b': 2}).items() | list }}{{ dict.fromkeys(['a', 'b']) }}",
        "{{ messages[0].content.strip().split('i') }}{{ missing }}{{ messages[0].nothing }}",
        "{{ strftime_now('%d %b %Y') }}",
        "{{ {'b': '<é>', 'a': [1.5, none, true]} | tojson(sort_keys=true, separators=(',', ':')) }}",
        "{% macro say(x) %}[{{ x }}]{% endmacro %}{{ say(messages[0].role) }}{{ '<b>' }}",
    ],
)
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_a_template_finds_what_transformers_gives_it(template: str, tools: Any) -> None:
    check(template, (USER, REPLY, {**USER, "name": None}), tools=tools)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "{{ messages.append(1) }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ dict.__class__.__mro__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ strftime_now.__globals__ }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(template: str) -> None:
    tokenizer = make_tokenizer(template, TOKENS)
    try:
        text = tokenizer.render([USER])
    except ValueError:
        return
    assert text == ""  # an attribute that it may not see is undefined


@pytest.mark.parametrize("template", [JOINED, TRIMMED, ALL.replace("m | tojson", "m.content + '!'")])
@pytest.mark.parametrize("content", ["well", "well ", " well\n"])
def test_the_text_ends_where_the_last_message_does_if_it_is_to_be_continued(template: str, content: str) -> None:
    options = {"continue_final_message": True, "add_generation_prompt": False}
    text = check(template, (USER, {"role": "assistant", "content": content}), **options)
    assert text.rstrip().endswith("well")


def test_reasoning_can_be_continued_by_any_of_its_names() -> None:
    template = "{{ messages[-1].thinking }}|{{ messages[-1].content }}"
    options = {"continue_final_message": "reasoning_content", "add_generation_prompt": False}
    assert check(template, (USER, REPLY), **options) == "hm "


@pytest.mark.parametrize(
    ("template", "field", "problem"),
    [
        ("{{ messages[0].content }}", True, "does not write the last message as it is"),
        (JOINED, "nothing", "has no text in 'nothing'"),
    ],
)
def test_a_message_that_is_not_written_cannot_be_continued(template: str, field: Any, problem: str) -> None:
    tokenizer = make_tokenizer(template, TOKENS)
    with pytest.raises(ValueError, match=problem):
        tokenizer.render([USER, REPLY], add_generation_prompt=False, continue_final_message=field)


def test_a_message_cannot_be_continued_and_answered() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        make_tokenizer(JOINED, TOKENS).render([USER], add_generation_prompt=True, continue_final_message=True)


def test_a_function_is_a_tool_by_its_type_hints() -> None:
    def add(a: int) -> int:
        """Adds.

        Args:
            a: a number
        """
        return a

    assert '"integer"' in check("{{ tools | tojson }}", tools=[add])
    with pytest.raises(ValueError, match="a tool is a JSON schema or a function, not int"):
        make_tokenizer(JOINED, TOKENS).render([USER], tools=[5])


def test_templates_see_values_and_no_objects() -> None:
    given = [Mood.GOOD, (1, [True]), np.float32(0.5), object(), Dumped(), Thing("a", (2,))]
    seen = plain(given)
    assert seen == ["good", (1, [True]), 0.5, "<object>", {"x": 1}, {"name": "a", "values": (2,)}]
    assert type(seen[0]) is str
    check("{{ x }}", x=given)


def test_the_user_may_give_the_tokenizer_another_template() -> None:
    tokenizer = make_tokenizer(JOINED, TOKENS)
    tokenizer.hf.chat_template = "{{ eos_token }}"
    tokenizer.hf.eos_token = "<s>"
    assert tokenizer.render([USER]) == "<s>"


ENDLESS = {
    "loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "a recursive loop": "{% for i in [1] recursive %}{% if loop.depth < 40 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
}


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_template_without_end_is_stopped_after_a_number_of_steps(template: str) -> None:
    steps = BASE_STEPS + STEPS_A_MESSAGE + 4
    with pytest.raises(ValueError, match=f"the chat template refused the messages: .* {steps} steps"):
        make_tokenizer(template, TOKENS).render([USER])


def test_a_step_that_takes_long_is_stopped_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count(step=MAX_SECONDS + 1)
    monkeypatch.setattr(chat_template.time, "monotonic", lambda: next(times))
    template = "{% for i in range(10000) %}{{ i }}{% endfor %}"
    with pytest.raises(ValueError, match="it does not end within 10 s"):
        make_tokenizer(template, TOKENS).render([USER])


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{{ messages[0].content * 10**12 }}",
        "{{ 10**12 * [messages] }}",
        "{{ (messages | length + 9) ** (10 ** 9) }}",
    ],
)
def test_a_template_that_makes_too_much_is_stopped_before_it_has_it(template: str) -> None:
    with pytest.raises(ValueError, match=f"it writes more than {MAX_CHARS} characters"):
        make_tokenizer(template, TOKENS).render([USER])


def test_a_template_that_goes_over_all_messages_for_each_of_them_is_not_stopped() -> None:
    template = "{% for m in messages %}{% for n in messages %}{% endfor %}{{ m.content }}{% endfor %}"
    text = make_tokenizer(template, TOKENS).render([{"role": "user", "content": "x"}] * 1000)
    assert text == "x" * 1000


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ loop.index ~ '/' ~ loop.length ~ loop.last ~ loop.previtem }}{% endfor %}",
        "{% for m in messages if m.role == 'user' %}{{ loop.revindex }}{% else %}none{% endfor %}",
        "{% for key, value in messages[0].items() %}{{ key + value }}{% endfor %}",
        "{% for m in nothing %}{% else %}none{% endfor %}{{ 1 + 2.5 }}{{ [1] + [2] }}{{ 2 * 'ab' }}{{ 2 ** 10 }}",
        "{% for part in ['a', ['b', ['c']]] recursive %}{{ loop(part) if part is not string else part }}{% endfor %}",
        "{% macro f(x) %}{{ x ~ caller() }}{% endmacro %}{% call f(1) %}{{ 2 }}{% endcall %}",
        "{{ 'a' ~ none ~ 1 ~ nothing }}",
    ],
)
def test_counting_steps_changes_nothing_that_a_template_writes(template: str) -> None:
    assert check(template, [USER, REPLY]) != ""
