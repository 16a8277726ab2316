"""Numbers and causes, as commands write them for people."""

from __future__ import annotations

CAUSES = {
    "hit": "cached",
    "joined": "joined",
    "evicted": "evicted",
    "below_page": "below a page",
    "other_namespace": "other salt",
    "last_token": "last token",
    "never_seen": "never seen",
    "not_looked_up": "not looked up",
}
CAUSE_COLORS = {
    "hit": "green",
    "joined": "cyan",
    "evicted": "yellow",
    "other_namespace": "magenta",
    "never_seen": "red",
}


def count(number: int, noun: str, plural: str = "") -> str:
    """Such as "1 token" and "1,024 tokens". plural: where an s does not make it."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Such as "12 s", "2 min 19 s" and "3 h 5 min"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
