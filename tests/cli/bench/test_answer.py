import json

from minisgl.cli.bench.answer import Answer

FIRST = b'data: {"choices": [{"text": "h\xc3\xa9"}]}\n\n'
LAST = b'data: {"choices": [{"text": "", "finish_reason": "stop"}]}\n\n'
USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
DONE = b"data: [DONE]\n\n"
WHOLE = FIRST + LAST + b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n" + DONE


def read(*parts: bytes) -> Answer:
    answer = Answer()
    for part in parts:
        answer.feed(part)
    return answer


def test_an_answer_reads_the_same_however_it_is_cut():
    for body in (WHOLE, WHOLE.replace(b"\n", b"\r\n"), WHOLE.replace(b"data: ", b"data:"), b": ping\n\n" + WHOLE):
        for size in (1, 7, len(body)):
            answer = read(*(body[start : start + size] for start in range(0, len(body), size)))
            assert answer.error(200) is None
            assert answer.text == "hé"
            assert len(answer.times) == 1
            assert answer.usage is not None
            assert (answer.usage.prompt_tokens, answer.usage.cached_tokens) == (9, 4)


def test_what_is_missing_is_named():
    assert read(FIRST, LAST).error(200) == "the stream ended without [DONE]"
    assert read(FIRST, DONE).error(200) == "the stream named no finish_reason"
    assert read(LAST, DONE).error(200) == "the answer holds no text"
    assert read(b"data: {nonsense\n\n" + WHOLE).error(200).startswith("error in the stream: ")


def test_an_error_is_told_in_its_own_words():
    assert read(b'{"error": {"message": "too warm"}}').error(400) == "HTTP 400: too warm"
    assert read(b"<h1>oops</h1>").error(500) == "HTTP 500: <h1>oops</h1>"
    assert read(b"").error(503) == "HTTP 503: no message"
    assert read(FIRST, b'data: {"error": {"message": "boom"}}\n\n').error(200) == "error in the stream: boom"
