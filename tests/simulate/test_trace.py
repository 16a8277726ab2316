from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest
from support.traces import TAU_AIRLINE

from minisgl.simulate.trace import TracedRequest, read_trace

HEADER = '{"block_size": 64, "licence": "MIT"}\n'
LINE = '{"t": 0.5, "s": 7, "in": 130, "out": 20, "runs": [[0, 2], [9, 1]], "oruns": [[10, 1]]}\n'


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


def test_a_csv_file_knows_lengths_and_shares_nothing(tmp_path: Path):
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,10,4\n2023-11-16 18:17:05.4,3,0\n"
    first, second = read_trace(write(tmp_path, rows, "azure.csv")).requests
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


def test_a_packed_file_that_is_cut_off_is_refused(tmp_path: Path):
    path = tmp_path / "trace.jsonl.xz"
    path.write_bytes(lzma.compress((HEADER + LINE).encode())[:-9])
    with pytest.raises(ValueError, match=r"trace\.jsonl\.xz: "):
        read_trace(path)
