import copy

import pytest

from minisgl.tokenizer.chat import plain_messages

USER = {"role": "user", "content": "hi"}
PLAIN = "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}"


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


def rendered(tokenizer, messages, **kwargs):
    """The text behind the ids, by a template that can only join strings."""
    return tokenizer.decode(tokenizer.apply_chat_template(messages, chat_template=PLAIN, **kwargs))


def test_text_parts_are_the_same_as_their_joined_text(tiny):
    assert rendered(tiny, [{"role": "user", "content": parts("Say", " hi")}]) == "user:Say hi;"


def test_the_messages_given_are_not_changed(tiny):
    messages = [{"role": "user", "content": parts("hi")}]
    rendered(tiny, messages)
    assert messages == [{"role": "user", "content": parts("hi")}]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "user", "content": None}, r"messages\[1\]\.content must be text, not null \(role 'user'\)"),
        ({"role": "user"}, r"messages\[1\]\.content is missing"),
        ({"role": "assistant", "content": None}, r"messages\[1\]\.content must be text, not null"),
        ({"role": "user", "content": 5}, r"messages\[1\]\.content must be text, not int"),
        ({"content": "hi"}, r"messages\[1\]\.role must be a non-empty string, not None"),
        ({"role": 3, "content": "hi"}, r"messages\[1\]\.role must be a non-empty string, not 3"),
        ("hi", r"messages\[1\] must be an object with role and content, not str"),
        (
            {"role": "user", "content": [*parts("a"), {"type": "image_url"}]},
            r"messages\[1\]\.content\[1\] .*'image_url'",
        ),
        ({"role": "user", "content": [{"text": "a"}]}, r"messages\[1\]\.content\[0\] has no type"),
        ({"role": "user", "content": ["a"]}, r"messages\[1\]\.content\[0\] has no type"),
        ({"role": "user", "content": [{"type": "text"}]}, r"messages\[1\]\.content\[0\]\.text must be a string"),
    ],
)
def test_a_message_that_is_no_text_is_refused_by_its_number(message, problem):
    with pytest.raises(ValueError, match=problem):
        plain_messages([USER, message])


@pytest.mark.parametrize(
    ("messages", "problem"),
    [([], "messages is empty"), ("hi", "must be a list, not str"), (USER, "must be a list, not dict")],
)
def test_what_is_no_list_of_messages_is_refused(messages, problem):
    with pytest.raises(ValueError, match=problem):
        plain_messages(messages)


def test_tool_calls_and_their_answers_reach_the_template(tiny):
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    template = (
        "{% for m in messages %}[{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name + (c.function.arguments | tojson) }}{% endfor %}"
        "{{ m.tool_call_id or '' }}]{% endfor %}"
    )
    assert tiny.decode(tiny.apply_chat_template(messages, chat_template=template)) == '[add{"a": 1}][3c1]'


@pytest.mark.parametrize(
    ("arguments", "read"),
    [('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("", {}), (None, {}), ("{broken", "{broken"), ("[1]", "[1]")],
)
def test_arguments_of_calls_become_objects_and_the_messages_given_stay_as_they_are(arguments, read):
    function = {"name": "f", "arguments": arguments}
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": function}, {**function}]}
    before = copy.deepcopy(message)
    (plain,) = plain_messages([message])
    assert plain["tool_calls"][0] == {"type": "function", "function": {"name": "f", "arguments": read}}
    assert plain["tool_calls"][1] == {"name": "f", "arguments": read}  # as some write it, without a wrapper
    assert message == before


def test_calls_may_be_the_objects_of_a_client_library():
    class Call:
        def model_dump(self):
            return {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    (plain,) = plain_messages([{"role": "assistant", "content": None, "tool_calls": [Call()]}])
    assert plain["tool_calls"] == [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]


def test_refusals_are_text_of_an_assistant_only():
    part = {"type": "refusal", "refusal": "No."}
    for message in ({"content": [part]}, {"content": None, "refusal": "No."}):
        assert plain_messages([{"role": "assistant", **message}])[0]["content"] == "No."
    with pytest.raises(ValueError, match=r"messages\[0\]\.content\[0\]\.type: only an assistant refuses, not a user"):
        plain_messages([{"role": "user", "content": [part]}])


def test_a_template_that_raises_is_a_value_error_with_its_reason_and_the_odd_role(tiny):
    template = "{{ raise_exception('only user and assistant') }}"
    with pytest.raises(ValueError, match=r"only user and assistant \(messages\[1\]\.role is 'banana'\)"):
        tiny.apply_chat_template([USER, {"role": "banana", "content": "x"}], chat_template=template)


@pytest.mark.parametrize("template", ["{{ nothing.at.all }}", "{{ 1 + 'a' }}", "{% if %}", "{{ 1 // 0 }}"])
def test_a_broken_template_is_a_value_error(tiny, template):
    with pytest.raises(ValueError, match="the chat template refused the messages"):
        tiny.apply_chat_template([USER], chat_template=template)


def test_a_reason_without_words_is_named_by_its_kind(tiny):
    with pytest.raises(ValueError, match=r"refused the messages: (MemoryError|OverflowError)"):
        tiny.apply_chat_template([USER], chat_template="{{ 'x'.center(2**62) }}")


def test_the_reason_can_be_written_as_utf_8_even_when_it_quotes_a_lone_surrogate(tiny):
    with pytest.raises(ValueError, match="refused the messages: ") as caught:
        tiny.apply_chat_template(
            [{"role": "\ud800", "content": ""}], chat_template="{{ raise_exception(messages[0].role) }}"
        )
    assert r"\ud800" in str(caught.value)
    str(caught.value).encode()


def test_a_model_without_template_refuses_a_chat(tiny):
    with pytest.raises(ValueError, match="no chat template"):
        tiny.apply_chat_template([USER])


def test_template_variables_reach_the_template(tiny):
    ids = tiny.apply_chat_template([USER], chat_template="{{ enable_thinking }}", enable_thinking=False)
    assert tiny.decode(ids) == "False"


def test_the_generation_prompt_can_be_left_out(bos_tokenizer):
    ids = bos_tokenizer.apply_chat_template([USER]).tolist()
    assert bos_tokenizer.apply_chat_template([USER], add_generation_prompt=False).tolist() == ids[:-1]


def test_the_last_message_can_be_continued(bos_tokenizer):
    messages = [USER, {"role": "assistant", "content": "hello"}]
    ids = bos_tokenizer.apply_chat_template(messages, add_generation_prompt=False, continue_final_message=True)
    text = bos_tokenizer.decode(ids, skip_special_tokens=False)
    assert text == "<s><|user|>hi<|end|><|bot|>hello"


def test_arguments_that_would_change_the_kind_of_result_are_refused(tiny):
    with pytest.raises(TypeError, match="not a chat template variable: return_dict, tokenize"):
        tiny.apply_chat_template([USER], chat_template=PLAIN, tokenize=True, return_dict=True)
    with pytest.raises(TypeError, match="not a chat template variable: messages, tokenize"):
        tiny.apply_chat_template([USER], chat_template=PLAIN, template={"tokenize": True, "messages": []})


VARIABLES = (  # as Qwen 3, Llama 3.1 and Granite name theirs
    "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    "{% set thinking = thinking if thinking is defined else false %}"
    "{% macro say(m) %}{{ m.content }}{% if shout %}!{% endif %}{% endmacro %}"
    "{% set ns = namespace(x=0) %}{% for m in messages %}{{ bos_token }}{{ say(m) }}{% endfor %}"
    "{% if enable_thinking is defined and enable_thinking is false %}no{% endif %}{{ date_string }}{{ thinking }}"
)


def test_only_variables_that_the_template_reads_are_keywords(tiny):
    text = tiny.render(
        [USER], chat_template=VARIABLES, date_string="now", thinking=1, shout=True, enable_thinking=False, bos_token="^"
    )
    assert text == "^hi!nonow1"
    for name, meant in {"enable_thinkng": "enable_thinking", "date": None, "add_generation_promt": None}.items():
        with pytest.raises(
            TypeError, match=f"unknown keyword '{name}'.*date_string, enable_thinking, shout, thinking"
        ) as e:
            tiny.render([USER], chat_template=VARIABLES, **{name: True})
        assert meant is None or f"did you mean '{meant}'?" in str(e.value)
    with pytest.raises(TypeError, match=r"unknown keyword 'x'; variables of the chat template: none$"):
        tiny.render([USER], chat_template=PLAIN, x=1)


def test_a_mapping_may_hold_variables_that_the_template_does_not_read(tiny):
    read = {"shout": True, "unheard_of": [1], "eos_token": "</s>", "pad_token": ""}
    assert tiny.render([USER], chat_template=VARIABLES, template=read).startswith("<s>hi!")
    with pytest.raises(TypeError, match=r"'enable_thinkng' is no variable .* did you mean 'enable_thinking'"):
        tiny.render([USER], chat_template=VARIABLES, template={"enable_thinkng": False})


def test_a_broken_template_says_so_whatever_the_keywords(tiny):
    with pytest.raises(ValueError, match="the chat template refused the messages"):
        tiny.render([USER], chat_template="{% if %}", temprature=1)
