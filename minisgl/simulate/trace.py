"""Request traces: when each request came, how long it was, and which blocks of tokens it shared. There is no text.

    {"block_size": 64, "licence": "MIT", ...}                                              the first line
    {"t": 0.5, "s": 7, "in": 130, "out": 20, "runs": [[0, 2], [9, 1]], "oruns": [...]}     one request a line

`runs` are the prompt's blocks: [first id, how many], of `block_size` tokens each. Two blocks have the same id just when
they hold the same tokens after the same prefix. `oruns`, which may be missing, are the output's; `s`, which may be
missing too, is the session. A .csv file (TIMESTAMP,ContextTokens,GeneratedTokens) knows lengths only, so it shares
nothing.
"""

from __future__ import annotations

import csv
import json
import lzma
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeGuard

MAX_LEN = 1 << 24  # tokens of one prompt or output: a longer one is a mistake in the file
CSV_COLUMNS = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]

Run = tuple[int, int]


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


def read_trace(path: Path, limit: int | None = None) -> Trace:
    """The trace in a .jsonl or .csv file, perhaps packed (.xz). limit: only its first requests.

    ValueError, naming the line, for what is no such file. OSError, naming the path, if it cannot be opened.
    """
    name, _, kind = path.name.removesuffix(".xz").rpartition(".")
    if kind not in ("jsonl", "csv"):
        raise ValueError(f"{path}: a trace is a .jsonl or .csv file, or one of them packed as .xz")
    lines = _numbered_lines(path)
    trace = _read_jsonl(name, lines, path, limit) if kind == "jsonl" else _read_csv(name, lines, path, limit)
    if not trace.requests:
        raise ValueError(f"{path}: no request is in it")
    return trace


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    with _open(path) as file:
        try:
            yield from enumerate(file, start=1)
        except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: {error}") from None


def _open(path: Path) -> IO[str]:
    try:
        return lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8")
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from None


def _read_jsonl(name: str, lines: Iterator[tuple[int, str]], path: Path, limit: int | None) -> Trace:
    _, first = next(lines, (1, ""))
    header = _located(path, 1, _header, first)
    requests = [_located(path, number, _request, line) for number, line in islice(lines, limit)]
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(name, header["block_size"], str(header.get("licence", "")), tuple(requests))


def _read_csv(name: str, lines: Iterator[tuple[int, str]], path: Path, limit: int | None) -> Trace:
    """Block size 1, and ids of its own for every token."""
    _, first = next(lines, (1, ""))
    _located(path, 1, _check_columns, first)
    rows = [_located(path, number, _csv_row, line) for number, line in islice(lines, limit)]
    rows.sort()
    requests, next_id = [], 0
    for at, prompt_len, output_len in rows:
        prompt, output = (next_id, prompt_len), (next_id + prompt_len, output_len)
        next_id += prompt_len + output_len
        outputs = (output,) if output_len else ()
        requests.append(TracedRequest(at - rows[0][0], None, prompt_len, output_len, (prompt,), outputs))
    return Trace(name, 1, "", tuple(requests))


def _located(path: Path, number: int, parse: Any, line: str) -> Any:
    """`parse(line)`; its ValueError says where the line is."""
    try:
        return parse(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from None


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
    return TracedRequest(_seconds(record.get("t")), session, prompt_len, output_len, prompt_runs, output_runs)


def _json_object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"a JSON object was expected, not {line.strip()[:40]!r}")
    return record


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f'"t" is {value!r}, not a number of seconds')
    return float(value)


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
