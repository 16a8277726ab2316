"""A frame of `minisgl top`: as much of a view as the terminal has room for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from minisgl.cli.session import printable
from minisgl.cli.top_view import Pace, Prefix, View
from minisgl.cli.words import CAUSE_COLORS, CAUSES, duration
from minisgl.message import EngineStats
from minisgl.server.schema.activity import ActivityNow, OpenRequest, Spread

TWO_PANELS = 76  # columns for them side by side
WIDE, NARROW = 100, 56  # for all that there is to say of a request, or little of it
IF_WIDE, IF_NOT_NARROW = {"waits for", "request"}, {"cached", "done"}
GIVE_WAY, MIN_NAME = ("nodes", "own", "held by"), 8  # columns of prefixes where fewer are left for the name
MAX_REQUESTS, MAX_PREFIXES = 20, 8  # where there is room for them
POOL_COLORS = {"in use": "blue", "cached": "green", "free": "bright_black"}


class Frame:
    """Renders itself for the console's width; on a whole screen for its height, too."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head, activity = _head(self._view), self._view.activity
        if activity is None:
            yield head
            return
        above = Group(head, *_panels(self._view, activity, options))
        yield above
        room = MAX_REQUESTS
        if options.height is not None:
            room = options.height - len(console.render_lines(above, options.update(height=None))) - 3
        if activity.requests and room > 0:
            yield _requests(activity, room, options.max_width)


def _head(view: View) -> Text:
    activity = view.activity
    head = Text.assemble(("minisgl top", "bold"), f"  {printable(view.model)} at {view.url}")
    if activity is not None:
        head.append(f"  up {duration(activity.now_s)}")
    if view.trouble is not None:
        head.append(f"\n{printable(view.trouble)}; trying again", "red")
    return head


def _panels(view: View, activity: ActivityNow, options: ConsoleOptions) -> Iterable[RenderableType]:
    stats = activity.stats
    left = [_panel("engine", _engine(stats, activity, view.pace)), _panel("KV pool", _pool(stats, options))]
    right = [_panel("latency, last minute", _latency(activity))]
    if any(activity.causes.values()):
        left.append(_panel("prompt tokens by cause", _causes(activity.causes, options.ascii_only)))
    if activity.capacity:
        right.append(_panel("hits with another pool", _capacity(activity)))
    if view.prefixes:
        right.append(_panel("biggest prefixes", _prefixes(view.prefixes, _room(options))))
    if options.max_width < TWO_PANELS:
        return [*left, *right]
    columns = Table.grid(expand=True, padding=(0, 1))
    columns.add_column(ratio=1)
    columns.add_column(ratio=1)
    columns.add_row(Group(*left), Group(*right))
    return [columns]


def _engine(stats: EngineStats, activity: ActivityNow, pace: Pace | None) -> RenderableType:
    states = [request.state for request in activity.requests]
    table = _rows()
    table.add_row("requests", f"{stats.num_running:,} running, {stats.num_waiting:,} waiting")
    table.add_row("", f"{states.count('prefill'):,} prefill, {states.count('decode'):,} decode")
    table.add_row("ended", f"{stats.num_finished:,}, aborted {stats.num_aborted:,}, failed {stats.num_failed:,}")
    if pace is not None:
        table.add_row("generated", f"{pace.generated:,.1f} tokens/s")
        table.add_row("computed", f"{pace.computed:,.1f} prompt tokens/s")
        table.add_row("found", f"{pace.found:,.1f} prompt tokens/s")
        busy = "" if pace.busy is None else f", device {pace.busy:.0%} busy"
        table.add_row("batches", f"{pace.steps:,.1f}/s{busy}")
        table.add_row("a batch", f"{pace.decodes:,.1f} decodes, {pace.prefilled:,.1f} tokens")
    return table


def _pool(stats: EngineStats, options: ConsoleOptions) -> RenderableType:
    pool, free = stats.num_pages * stats.page_size, stats.free_pages * stats.page_size
    parts = {"in use": pool - free - stats.evictable_tokens, "cached": stats.evictable_tokens, "free": free}
    legend = Text(", ").join([Text(f"{name} {tokens:,}", POOL_COLORS[name]) for name, tokens in parts.items()]) + Text(
        f" of {pool:,} tokens"
    )
    more = f"evicted {stats.evicted_tokens:,} tokens, retracted {stats.num_retracted:,} times"
    return Group(_bar(parts, _room(options), options.ascii_only), legend, Text(more, "dim"))


def _bar(parts: dict[str, int], width: int, only_ascii: bool) -> Text:
    """Each part as long as its share; whatever is not 0 can be seen."""
    total = max(1, sum(parts.values()))
    bar, left = Text(no_wrap=True, overflow="crop"), width
    for name, value in parts.items():
        cells = min(left, max(bool(value), round(width * value / total)))
        left -= cells
        mark = name[0] if only_ascii else ("░" if name == "free" else "█")
        bar.append(mark * cells, POOL_COLORS[name])
    return bar


def _causes(causes: dict[str, int], only_ascii: bool) -> RenderableType:
    total = max(1, sum(causes.values()))
    table = _rows()
    table.add_column(justify="right")
    table.add_column()
    for cause, tokens in sorted(causes.items(), key=lambda item: -item[1]):
        if tokens:
            color, cells = CAUSE_COLORS.get(cause, "bright_black"), round(20 * tokens / total)
            bar = Text(("#" if only_ascii else "█") * cells, color)
            table.add_row(CAUSES.get(cause, cause), f"{tokens:,}", f"{tokens / total:.1%}", bar)
    return table


def _capacity(activity: ActivityNow) -> RenderableType:
    points = [f"{point.factor:g}x {point.hit_rate:.1%}" for point in activity.capacity]
    return Text("  ".join(points))


def _latency(activity: ActivityNow) -> RenderableType:
    table = _numbers("", "p50", "p90", "p99")
    latency = activity.latency
    for name, spread in [
        ("first token", latency.first_token_s),
        ("next tokens", latency.token_gap_s),
        ("answer", latency.total_s),
        ("queue", latency.queue_s),
    ]:
        table.add_row(name, *_times(spread))
    return table


def _times(spread: Spread | None) -> Sequence[str]:
    return ("-",) * 3 if spread is None else tuple(_seconds(value) for value in (spread.p50, spread.p90, spread.p99))


def _prefixes(prefixes: list[Prefix], width: int) -> RenderableType:
    """Numbers are whole, whatever the width: names give way first, then columns that tell less than others."""
    rows = [_prefix(each) for each in prefixes[:MAX_PREFIXES]]
    columns = {head: max(map(len, (head, *(row[head] for row in rows)))) + 2 for head in rows[0] if head}
    for head in GIVE_WAY:
        if width - sum(columns.values()) < MIN_NAME:
            del columns[head]
    table = _numbers("", *columns)
    table.columns[0].no_wrap, table.columns[0].max_width = True, max(1, width - sum(columns.values()))
    for row in rows:
        table.add_row(Text(row[""], overflow="ellipsis"), *(row[head] for head in columns))
    return table


def _prefix(prefix: Prefix) -> dict[str, str]:
    """What there is to say, by the head of its column."""
    return {
        "": prefix.name,
        "own": f"{prefix.tokens:,}",
        "all below": f"{prefix.below:,}",
        "nodes": f"{prefix.nodes:,}",
        "held by": f"{prefix.locks:,}",
    }


def _requests(activity: ActivityNow, room: int, width: int) -> RenderableType:
    rows = [_request(request, activity.now_s) for request in activity.requests[:room]]
    left_out = IF_WIDE if width < WIDE else set[str]()
    if width < NARROW:
        left_out = IF_WIDE | IF_NOT_NARROW
    heads = [head for head in rows[0] if head not in left_out]
    table = _numbers(*heads)
    for row in rows:
        table.add_row(*(row[head] for head in heads))
    more = len(activity.requests) - room
    return Group(Text(f" requests, the first {room} of {room + more}" if more > 0 else " requests", "bold"), table)


def _request(request: OpenRequest, now_s: float) -> dict[str, str]:
    """What there is to say, by the head of its column."""
    return {
        "state": request.state,
        "uid": str(request.uid),
        "prompt": f"{request.prompt_tokens:,}",
        "cached": f"{request.cached_tokens:,}",
        "done": f"{request.done_tokens:,}",
        "generated": f"{request.generated_tokens:,}",
        "for": _seconds(now_s - request.arrived_s),
        "waits for": "" if request.waits_for is None else str(request.waits_for),
        "request": printable(request.request_id or ""),
    }


def _room(options: ConsoleOptions) -> int:
    """Columns inside a panel, or few less."""
    return options.max_width // (2 if options.max_width >= TWO_PANELS else 1) - 6


def _panel(title: str, body: RenderableType) -> Panel:
    return Panel(body, title=title, title_align="left", border_style="bright_black")


def _rows() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    return table


def _numbers(first: str, *others: str) -> Table:
    """A column of names, and columns of numbers."""
    table = Table(first, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in others:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _seconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"
