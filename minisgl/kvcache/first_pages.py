"""Which namespaces have something cached that begins with a page, so that they are found without asking each."""

from __future__ import annotations

from collections import OrderedDict

from minisgl.kvcache.base import Namespace

MAX_PAGES = 1 << 14
MAX_NAMESPACES = 4  # of a page, the latest


class FirstPages:
    """Of pages with which prompts began lately. As hashes: they are hints, and no token outlives a purge here."""

    def __init__(self) -> None:
        self._namespaces: OrderedDict[int, tuple[Namespace, ...]] = OrderedDict()

    def added(self, page: bytes, namespace: Namespace) -> None:
        key = hash(page)
        known = self._namespaces.get(key, ())
        if namespace not in known:
            self._namespaces[key] = (namespace, *known[: MAX_NAMESPACES - 1])
            if len(self._namespaces) > MAX_PAGES:
                self._namespaces.popitem(last=False)

    def find(self, page: bytes) -> tuple[Namespace, ...]:
        """Those that may have it, the latest first."""
        return self._namespaces.get(hash(page), ())
