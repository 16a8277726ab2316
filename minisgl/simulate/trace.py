"""Request traces: when each request came, how long it was, and which blocks of tokens it shared. There is no text.

    {"block_size": 64, "licence": "MIT", ...}                                              the first line
    {"t": 0.5, "s": 7, "in": 130, "out": 20, "runs": [[0, 2], [9, 1]], "oruns": [...]}     one request a line

`runs` are the prompt's blocks: [first id, how many], of `block_size` tokens each. Two blocks have the same id just when
they hold the same tokens after the same prefix. `oruns`, which may be missing, are the output's; `s`, which may be
missing too, is the session. A .csv file (TIMESTAMP,ContextTokens,GeneratedTokens) knows lengths only, so it shares
nothing.

Two forms without a header are read as well: Mooncake's, in milliseconds, and Bailian's, in seconds, whose chats form
sessions. `hash_ids` are the prompt's blocks, the last one perhaps not full.

    {"timestamp": 3052, "input_length": 700, "output_length": 20, "hash_ids": [0, 28]}
    {"chat_id": 8, "parent_chat_id": 7, "timestamp": 3.1, "input_length": 20, "output_length": 9, "hash_ids": [5, 6]}
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeGuard

from minisgl.utils.math import div_ceil

MAX_LEN = 1 << 24  # tokens of one prompt or output: a longer one is a mistake in the file
CSV_COLUMNS = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
MOONCAKE_BLOCK = 512
BAILIAN_BLOCK = 16
FORMS = (
    'expected is {"block_size": 64} and then {"t", "in", "out", "runs"} a line, or a request a line in the form of '
    "Mooncake (timestamp, input_length, output_length, hash_ids) or of Bailian (chat_id and parent_chat_id besides)"
)
NO_PARENT = -1  # Bailian's parent_chat_id of a session's first request
PACKED: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}  # what opens a file of this suffix

Run = tuple[int, int]
Numbered = tuple[int, str]


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """arrival_s: seconds from the trace's own zero. Lengths are in tokens. Runs: (first block id, number of blocks)."""

    arrival_s: float
    session: int | str | None
    prompt_len: int
    output_len: int
    prompt_runs: tuple[Run, ...]
    output_runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival. block_size: tokens a block. licence: "" where the file names none."""

    name: str
    block_size: int
    licence: str
    requests: tuple[TracedRequest, ...]


def read_trace(path: Path, limit: int | None = None, block_size: int | None = None) -> Trace:
    """The trace in a .jsonl or .csv file, perhaps packed (.xz, .gz). Blank lines and a byte order mark are passed over.

    limit: only its first requests. block_size: tokens a block of `hash_ids`; None: 16 in Bailian's form, 512 in
    Mooncake's. ValueError, naming the line, for what is no such file, and for a block_size where the file has its own
    or no blocks. OSError, naming the path, if it cannot be opened.
    """
    unpacked = path.name.removesuffix(path.suffix) if path.suffix in PACKED else path.name
    name, _, kind = unpacked.rpartition(".")
    if kind not in ("jsonl", "csv"):
        raise ValueError(f"{path}: a trace is a .jsonl or .csv file, or one of them packed as .xz or .gz")
    lines = ((number, line) for number, line in _numbered_lines(path) if line.strip())
    first = next(lines, (1, ""))
    if kind == "csv":
        trace = _read_csv(name, first, lines, path, limit)
    elif _located(path, first, _has_header):
        trace = _read_jsonl(name, first, lines, path, limit)
    else:
        return _read_hashed(name, first, lines, path, limit, block_size)
    if not trace.requests:
        raise ValueError(f"{path}: no request is in it")
    if block_size is not None:
        owner = "has no blocks" if kind == "csv" else f"has a header with its own block_size={trace.block_size}"
        raise ValueError(f"block_size={block_size} does nothing: {path} {owner}")
    return trace


def _numbered_lines(path: Path) -> Iterator[Numbered]:
    with _open(path) as file:
        try:
            yield from enumerate(file, start=1)
        except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: {error}") from None


def _open(path: Path) -> IO[str]:
    try:
        file: IO[str] = PACKED.get(path.suffix, open)(path, "rt", encoding="utf-8-sig")
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from None
    return file


def _read_jsonl(name: str, first: Numbered, lines: Iterator[Numbered], path: Path, limit: int | None) -> Trace:
    header = _located(path, first, _header)
    requests = [_located(path, line, _request) for line in islice(lines, limit)]
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(name, header["block_size"], str(header.get("licence", "")), tuple(requests))


def _read_hashed(
    name: str, first: Numbered, lines: Iterator[Numbered], path: Path, limit: int | None, block_size: int | None
) -> Trace:
    """Mooncake's form or Bailian's, as the first line has it. block_size: None is the form's own."""
    is_bailian = "chat_id" in _located(path, first, _json_object)
    form = _Bailian(block_size or BAILIAN_BLOCK) if is_bailian else _Mooncake(block_size or MOONCAKE_BLOCK)
    requests = [_located(path, line, form.request) for line in islice(chain([first], lines), limit)]
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(name, form.block_size, "", tuple(requests))


class _Mooncake:
    """Requests of one trace; each hash id becomes a number that stands for the block and all before it."""

    per_second = 1000

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._numbers: dict[tuple[int, int], int] = {}  # by the number of the block before, -1 at the start, and its id

    def request(self, line: str) -> TracedRequest:
        record = _json_object(line)
        at = _time(record, "timestamp") / self.per_second
        prompt_len, output_len = _length(record, "input_length", 1), _length(record, "output_length", 0)
        runs = self._prompt_runs(record, prompt_len)
        return TracedRequest(at, self._session(record), prompt_len, output_len, runs)

    def _session(self, record: dict[str, Any]) -> int | str | None:
        """None: the form tells no sessions."""
        return None

    def _prompt_runs(self, record: dict[str, Any], prompt_len: int) -> tuple[Run, ...]:
        hash_ids = record.get("hash_ids")
        if not isinstance(hash_ids, list) or not all(type(each) is int for each in hash_ids):
            raise ValueError('"hash_ids" is missing or not a list of integers')
        if len(hash_ids) != (num_blocks := div_ceil(prompt_len, self.block_size)):
            raise ValueError(
                f'"hash_ids" has {len(hash_ids)} blocks, but {prompt_len} tokens ("input_length") are {num_blocks} of '
                f"{self.block_size} tokens; is block_size={self.block_size} right?"
            )
        runs: list[Run] = []
        last = -1
        for hash_id in hash_ids:
            number = self._numbers.setdefault((last, hash_id), len(self._numbers))
            if runs and number == last + 1:
                runs[-1] = runs[-1][0], runs[-1][1] + 1
            else:
                runs.append((number, 1))
            last = number
        return tuple(runs)


class _Bailian(_Mooncake):
    per_second = 1

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self._sessions: dict[int, int] = {}  # by chat

    def _session(self, record: dict[str, Any]) -> int | str | None:
        """The chat that the session began with, as far as the lines before tell."""
        chat, parent = _chat(record, "chat_id"), _chat(record, "parent_chat_id")
        session = chat if parent == NO_PARENT else self._sessions.get(parent, parent)
        self._sessions[chat] = session
        return session


def _read_csv(name: str, first: Numbered, lines: Iterator[Numbered], path: Path, limit: int | None) -> Trace:
    """Block size 1, and ids of its own for every token."""
    _located(path, first, _check_columns)
    rows = [_located(path, line, _csv_row) for line in islice(lines, limit)]
    rows.sort()
    requests, next_id = [], 0
    for at, prompt_len, output_len in rows:
        prompt, output = (next_id, prompt_len), (next_id + prompt_len, output_len)
        next_id += prompt_len + output_len
        outputs = (output,) if output_len else ()
        requests.append(TracedRequest(at - rows[0][0], None, prompt_len, output_len, (prompt,), outputs))
    return Trace(name, 1, "", tuple(requests))


def _located(path: Path, numbered: Numbered, parse: Any) -> Any:
    """`parse(line)`; its ValueError says where the line is."""
    number, line = numbered
    try:
        return parse(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from None


def _has_header(line: str) -> bool:
    """False where the first line is a request with `hash_ids`, or is meant to be one."""
    record = _json_object(line)
    if isinstance(record.get("requests"), list):
        raise ValueError(f'"requests" in one line is a form that is not read; {FORMS}')
    if "block_size" in record:
        return True
    if "input_length" not in record and "hash_ids" not in record:
        raise ValueError(f"neither a header with block_size nor a request with hash_ids; {FORMS}")
    return False


def _header(line: str) -> dict[str, Any]:
    header = _json_object(line)
    if not _is_int(header.get("block_size"), 1):
        raise ValueError(f"block_size={header.get('block_size')!r} is not an integer of at least 1")
    return header


def _request(line: str) -> TracedRequest:
    record = _json_object(line)
    prompt_len, output_len = _length(record, "in", 1), _length(record, "out", 0)
    prompt_runs, output_runs = _runs(record, "runs", prompt_len), _runs(record, "oruns", output_len)
    if not prompt_runs:
        raise ValueError('"runs" is missing or empty: a prompt has at least one block')
    session = record.get("s")
    if not isinstance(session, int | str | None):
        raise ValueError(f'"s" is {session!r}, neither a number nor a text')
    return TracedRequest(_time(record, "t"), session, prompt_len, output_len, prompt_runs, output_runs)


def _json_object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"a JSON object was expected, not {line.strip()[:40]!r}")
    return record


def _time(record: dict[str, Any], key: str) -> float:
    value = record.get(key)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(time := float(value)):
            return time
    except OverflowError:  # an integer that no float holds
        pass
    raise ValueError(f'"{key}" is {value!r}, not a time as a number')


def _chat(record: dict[str, Any], key: str) -> int:
    value = record.get(key)
    if not _is_int(value, NO_PARENT):
        raise ValueError(f'"{key}" is {value!r}, not the number of a chat')
    return value


def _length(record: dict[str, Any], key: str, minimum: int) -> int:
    value = record.get(key)
    if not _is_int(value, minimum) or value > MAX_LEN:
        raise ValueError(f'"{key}" is {value!r}, not a number of tokens from {minimum} to {MAX_LEN}')
    return value


def _runs(record: dict[str, Any], key: str, length: int) -> tuple[Run, ...]:
    """Checked: each block holds at least one of the `length` tokens, so that no line can ask for endless ids."""
    runs = record.get(key, [])
    if not isinstance(runs, list) or not all(_is_run(run) for run in runs):
        raise ValueError(f'"{key}" is not a list of [first id, number of blocks]')
    if (num_blocks := sum(count for _, count in runs)) > length:
        raise ValueError(f'"{key}" has {num_blocks} blocks, more than the {length} tokens')
    return tuple((first, count) for first, count in runs)


def _is_run(run: object) -> bool:
    return isinstance(run, list) and len(run) == 2 and _is_int(run[0], 0) and _is_int(run[1], 1)


def _is_int(value: object, minimum: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _check_columns(line: str) -> None:
    if next(csv.reader([line]), []) != CSV_COLUMNS:
        raise ValueError(f"the columns are not {','.join(CSV_COLUMNS)}")


def _csv_row(line: str) -> tuple[float, int, int]:
    """(seconds, prompt tokens, output tokens)"""
    cells = next(csv.reader([line]), [])
    if len(cells) != len(CSV_COLUMNS):
        raise ValueError(f"{len(cells)} columns, not {len(CSV_COLUMNS)}")
    _, prompt, output = CSV_COLUMNS
    lengths = {prompt: _digits(cells[1]), output: _digits(cells[2])}
    return _timestamp(cells[0]), _length(lengths, prompt, 1), _length(lengths, output, 0)


def _timestamp(cell: str) -> float:
    try:
        return datetime.fromisoformat(cell).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f'"{CSV_COLUMNS[0]}" is {cell!r}, not a date and time') from None


def _digits(cell: str) -> int | str:
    return int(cell) if cell.isdecimal() else cell
