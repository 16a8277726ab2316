"""Which namespaces have something cached that begins with a page, so that they are found without asking each."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from minisgl.kvcache.radix_forest import RadixRoot
from minisgl.kvcache.types import Namespace

MAX_PAGES = 1 << 13
MAX_NAMESPACES = 4  # of a page, the latest


class FirstPages:
    """Of pages with which prompts began lately. As hashes: they are hints, and no token outlives a purge here.

    Nothing is noted while there is one namespace.
    """

    def __init__(self) -> None:
        self._only: RadixRoot | None = None
        self._namespaces: OrderedDict[int, tuple[Namespace, ...]] = OrderedDict()

    def added(self, page: bytes, root: RadixRoot) -> None:
        """A node that begins with `page` was hung on `root`."""
        if root is self._only:
            return
        if self._only is None and not self._namespaces:
            self._only = root
            return
        if self._only is not None:
            for earlier in reversed([*islice(reversed(self._only.children), MAX_PAGES)]):
                self._note(earlier, self._only.namespace)
            self._only = None
        self._note(page, root.namespace)

    def find(self, page: bytes) -> tuple[Namespace, ...]:
        """Those that may have it, the latest first."""
        return self._namespaces.get(hash(page), ()) if self._only is None else (self._only.namespace,)

    def _note(self, page: bytes, namespace: Namespace) -> None:
        key = hash(page)
        known = self._namespaces.get(key, ())
        if namespace not in known:
            self._namespaces[key] = (namespace, *known[: MAX_NAMESPACES - 1])
            if len(self._namespaces) > MAX_PAGES:
                self._namespaces.popitem(last=False)
