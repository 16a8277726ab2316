from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path

import pytest
from support.traces import TAU_AIRLINE

from minisgl.simulate.trace import TracedRequest, read_trace

HEADER = '{"block_size": 64, "licence": "MIT"}\n'
LINE = '{"t": 0.5, "s": 7, "in": 130, "out": 20, "runs": [[0, 2], [9, 1]], "oruns": [[10, 1]]}\n'
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,10,4\n2023-11-16 18:17:05.4,3,0\n"


def write(folder: Path, text: str, name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_line_is_a_request_with_the_runs_of_its_blocks(tmp_path: Path):
    trace = read_trace(write(tmp_path, HEADER + LINE))
    assert (trace.name, trace.block_size, trace.licence) == ("trace", 64, "MIT")
    assert trace.requests == (TracedRequest(0.5, 7, 130, 20, ((0, 2), (9, 1)), ((10, 1),)),)


def test_requests_are_sorted_by_their_time(tmp_path: Path):
    lines = "".join(f'{{"t": {t}, "in": 1, "out": 1, "runs": [[0, 1]]}}\n' for t in (3, 1, 2))
    assert [r.arrival_s for r in read_trace(write(tmp_path, HEADER + lines)).requests] == [1, 2, 3]


def test_a_limit_takes_the_first_requests_and_reads_no_further(tmp_path: Path):
    assert len(read_trace(write(tmp_path, HEADER + LINE + "broken\n"), limit=1).requests) == 1


def test_a_packed_file_of_real_requests_is_read():
    trace = read_trace(TAU_AIRLINE)
    assert (len(trace.requests), trace.block_size, trace.licence) == (200, 1, "MIT")
    assert trace.requests[0] == TracedRequest(8.28, 56, 4366, 27, ((1, 4366),), ((4367, 27),))


MOONCAKE = (
    '{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [46, 7, 9]}\n'
    '{"timestamp": 3052, "input_length": 1024, "output_length": 0, "hash_ids": [46, 8]}\n'
    '{"timestamp": 2500, "input_length": 600, "output_length": 20, "hash_ids": [46, 7]}\n'
)
BAILIAN = (
    '{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 33, "output_length": 12, '
    '"type": "text", "turn": 1, "hash_ids": [1089, 1090, 1091]}\n'
    '{"chat_id": 160, "parent_chat_id": -1, "timestamp": 62, "input_length": 1, "output_length": 5, '
    '"type": "file", "turn": 1, "hash_ids": [3]}\n'
    '{"chat_id": 161, "parent_chat_id": 159, "timestamp": 62.5, "input_length": 48, "output_length": 8, '
    '"type": "text", "turn": 2, "hash_ids": [1089, 1090, 5]}\n'
    '{"chat_id": 162, "parent_chat_id": 161, "timestamp": 70.25, "input_length": 16, "output_length": 8, '
    '"type": "text", "turn": 3, "hash_ids": [1089]}\n'
    '{"chat_id": 163, "parent_chat_id": 12, "timestamp": 71.0, "input_length": 16, "output_length": 8, '
    '"type": "text", "turn": 7, "hash_ids": [1090]}\n'
)


def test_mooncakes_form_is_read_in_milliseconds_and_blocks_of_512(tmp_path: Path):
    trace = read_trace(write(tmp_path, MOONCAKE))
    assert (trace.name, trace.block_size, trace.licence) == ("trace", 512, "")
    assert trace.requests == (
        TracedRequest(0.0, None, 1100, 500, ((0, 3),)),
        TracedRequest(2.5, None, 600, 20, ((0, 2),)),
        TracedRequest(3.052, None, 1024, 0, ((0, 1), (3, 1))),
    )


def test_bailians_form_is_read_in_seconds_blocks_of_16_and_sessions_of_chats(tmp_path: Path):
    trace = read_trace(write(tmp_path, BAILIAN))
    assert trace.block_size == 16
    assert trace.requests == (
        TracedRequest(61.114, 159, 33, 12, ((0, 3),)),
        TracedRequest(62.0, 160, 1, 5, ((3, 1),)),
        TracedRequest(62.5, 159, 48, 8, ((0, 2), (4, 1))),
        TracedRequest(70.25, 159, 16, 8, ((0, 1),)),
        TracedRequest(71.0, 12, 16, 8, ((5, 1),)),  # 1090 after nothing is another prefix than 1090 after 1089
    )


def test_hash_ids_may_stand_for_blocks_of_another_size(tmp_path: Path):
    line = '{"timestamp": 0, "input_length": 70, "output_length": 1, "hash_ids": [-4, 18446744073709551615]}\n'
    trace = read_trace(write(tmp_path, line), block_size=64)
    assert (trace.block_size, trace.requests[0].prompt_runs) == (64, ((0, 2),))


def test_a_limit_takes_the_first_requests_of_a_form_without_a_header(tmp_path: Path):
    assert len(read_trace(write(tmp_path, MOONCAKE + "broken\n"), limit=3).requests) == 3


@pytest.mark.parametrize(("name", "text"), [("trace.jsonl", HEADER + LINE), ("azure.csv", CSV)])
def test_a_block_size_that_would_do_nothing_is_refused(tmp_path: Path, name: str, text: str):
    with pytest.raises(ValueError, match="block_size=16 does nothing: "):
        read_trace(write(tmp_path, text, name), block_size=16)


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
@pytest.mark.parametrize("change", ["bom", "crlf", "blank"])
@pytest.mark.parametrize(
    ("name", "text"),
    [("a.jsonl", HEADER + LINE), ("a.csv", CSV), ("a.jsonl", MOONCAKE), ("a.jsonl", BAILIAN)],
    ids=["own", "azure", "mooncake", "bailian"],
)
def test_blank_lines_and_marks_of_other_systems_change_nothing(
    tmp_path: Path, name: str, text: str, change: str, suffix: str
):
    plain = read_trace(write(tmp_path, text, name))
    changed = {
        "bom": "\ufeff" + text,
        "crlf": text.replace("\n", "\r\n"),
        "blank": "\n" + text.replace("\n", "\n \n") + "\n",
    }[change].encode()
    pack = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress}[suffix]
    path = tmp_path / (name + suffix)
    path.write_bytes(pack(changed))
    assert read_trace(path) == plain


def test_blank_lines_count_in_the_number_of_a_broken_line(tmp_path: Path):
    with pytest.raises(ValueError, match=r"trace\.jsonl, line 5: no JSON"):
        read_trace(write(tmp_path, "\n" + HEADER + "\n" + LINE + "{\n"))


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"input_length": 1, "output_length": 1, "hash_ids": [1]}', '"timestamp" is None, not a time'),
        (
            '{"timestamp": 1%s, "input_length": 1, "output_length": 1, "hash_ids": [1]}' % ("0" * 400),
            '"timestamp" is 1',
        ),
        ('{"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []}', '"input_length" is 0'),
        ('{"timestamp": 0, "input_length": 1, "hash_ids": [1]}', '"output_length" is None'),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}', '"hash_ids" is missing or not a list of integers'),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [true]}', '"hash_ids" is missing or not'),
        (
            '{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]}',
            '"hash_ids" has 1 blocks, but 513 tokens ("input_length") are 2 of 512 tokens; is block_size=512 right?',
        ),
        ('{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]}', '"hash_ids" has 2 blocks'),
    ],
)
def test_a_broken_line_of_mooncakes_form_is_named_with_its_number(tmp_path: Path, line: str, error: str):
    with pytest.raises(ValueError, match=r"trace\.jsonl, line 4: ") as raised:
        read_trace(write(tmp_path, MOONCAKE + line + "\n"))
    assert error in str(raised.value)


@pytest.mark.parametrize("key", ["chat_id", "parent_chat_id"])
def test_a_line_of_bailians_form_without_its_chat_is_named(tmp_path: Path, key: str):
    line = BAILIAN.splitlines()[1].replace(f'"{key}"', '"other"')
    with pytest.raises(ValueError, match=rf'trace\.jsonl, line 6: "{key}" is None, not the number of a chat'):
        read_trace(write(tmp_path, BAILIAN + line + "\n"))


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "a", "block_size": 64, "requests": [{"t": 0, "in": 4, "out": 1, "hash_ids": [1]}]}',
        '{"conversations": [{"from": "human", "value": "hello"}]}',
        '{"t": 0, "in": 1, "out": 1, "runs": [[0, 1]]}',
    ],
)
def test_another_form_is_refused_with_what_is_expected(tmp_path: Path, line: str):
    with pytest.raises(ValueError, match=r"line 1: .*expected is .*block_size.*Mooncake.*Bailian"):
        read_trace(write(tmp_path, line + "\n"))


def test_a_csv_file_knows_lengths_and_shares_nothing(tmp_path: Path):
    first, second = read_trace(write(tmp_path, CSV, "azure.csv")).requests
    assert first == TracedRequest(0.0, None, 10, 4, ((0, 10),), ((10, 4),))
    assert second == TracedRequest(pytest.approx(1.5), None, 3, 0, ((14, 3),), ())


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "a JSON object was expected"),
        ('{"in": 1, "out": 1, "runs": [[0, 1]]}', '"t" is None'),
        ('{"t": NaN, "in": 1, "out": 1, "runs": [[0, 1]]}', '"t" is nan'),
        ('{"t": 0, "in": 0, "out": 1, "runs": [[0, 1]]}', '"in" is 0'),
        ('{"t": 0, "in": 99999999999, "out": 1, "runs": [[0, 1]]}', '"in" is 99999999999'),
        ('{"t": 0, "in": 1, "out": -1, "runs": [[0, 1]]}', '"out" is -1'),
        ('{"t": 0, "in": 1, "out": 1}', '"runs" is missing or empty'),
        ('{"t": 0, "in": 1, "out": 1, "runs": [[0]]}', '"runs" is not a list of'),
        ('{"t": 0, "in": 1, "out": 1, "runs": [[-1, 1]]}', '"runs" is not a list of'),
        ('{"t": 0, "in": 5, "out": 1, "runs": [[0, 99]]}', '"runs" has 99 blocks, more than the 5 tokens'),
        ('{"t": 0, "in": 1, "out": 1, "runs": [[0, 1]], "s": [1]}', '"s" is [1]'),
    ],
)
def test_a_broken_line_is_named_with_its_number(tmp_path: Path, line: str, error: str):
    path = write(tmp_path, HEADER + LINE + line + "\n")
    with pytest.raises(ValueError, match=r"trace\.jsonl, line 3: ") as raised:
        read_trace(path)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("trace.jsonl", "", "line 1: no JSON"),
        ("trace.jsonl", '{"block_size": 0}\n', "line 1: block_size=0 is not"),
        ("trace.jsonl", HEADER, "no request is in it"),
        ("trace.txt", HEADER, "a trace is a .jsonl or .csv file"),
        ("trace.csv", "a,b\n", "line 1: the columns are not"),
        ("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,5\n", "line 2: 2 columns, not 3"),
        ("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,5,5\n", "line 2: \"TIMESTAMP\" is 'now'"),
        ("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,x,5\n", "line 2: \"ContextTokens\" is 'x'"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, name: str, text: str, error: str):
    with pytest.raises(ValueError, match=re.escape(error)):
        read_trace(write(tmp_path, text, name))


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("trace.jsonl.xz", lzma.compress((HEADER + LINE).encode())[:-9]),
        ("trace.jsonl.gz", gzip.compress((HEADER + LINE).encode())[:-9]),
        ("trace.jsonl.gz", (HEADER + LINE).encode()),
        ("trace.jsonl.gz", gzip.compress(b"")[:10] + b"\xff" * 20),
    ],
    ids=["xz cut off", "gz cut off", "not gz", "gz broken"],
)
def test_a_packed_file_that_cannot_be_unpacked_is_refused(tmp_path: Path, name: str, packed: bytes):
    path = tmp_path / name
    path.write_bytes(packed)
    with pytest.raises(ValueError, match=re.escape(f"{name}: ")):
        read_trace(path)
