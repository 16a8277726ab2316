"""A second, slow account of the radix cache: a plain dict from prefix to page; evictions by looking at all nodes."""

from dataclasses import dataclass

from minisgl.kvcache import PUBLIC, Namespace

NAMESPACES = [PUBLIC, Namespace(cache_salt="a"), Namespace(adapter="a")]
ALPHABET = 1000  # token ids of one of them, as the model knows them


@dataclass
class Entry:
    """The last page of one cached prefix."""

    page: int
    locks: int
    time: int
    dead: bool = False


class ModelCache:
    """What is cached, by prefix (a tuple of whole pages of tokens), without any tree. dead: purged and locked."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.clock = 0
        self.entries = {}
        self.dead = []

    def prefixes(self, tokens):
        return [tokens[:end] for end in range(self.page_size, len(tokens) + 1, self.page_size)]

    def probe(self, tokens):
        hit = ()
        for prefix in self.prefixes(tokens):
            if prefix not in self.entries:
                break
            hit = prefix
        return hit

    def match(self, tokens):
        self.clock += 1
        hit = self.probe(tokens)
        for prefix in self.prefixes(hit):
            self.entries[prefix].time = self.clock
        return hit

    def insert(self, tokens, pages):
        hit = self.match(tokens)
        for prefix, page in zip(self.prefixes(tokens), pages, strict=True):
            if len(prefix) > len(hit):
                self.entries[prefix] = Entry(page, 0, self.clock)
        return hit

    def path(self, prefix):
        return [self.entries[part] for part in self.prefixes(prefix)]

    def unlock(self, path):
        """Give up a lock; the pages of what was purged and is read by nobody now."""
        for entry in path:
            entry.locks -= 1
        gone = [entry.page for entry in path if entry.dead and not entry.locks]
        self.dead = [entry for entry in self.dead if entry.locks]
        return gone

    def evict(self, pages):
        """Forget these; each must be unlocked, and nothing may be cached behind it."""
        gone = [prefix for prefix, entry in self.entries.items() if entry.page in pages]
        assert len(gone) == len(pages)
        for prefix in gone:
            assert self.entries.pop(prefix).locks == 0
        assert all(
            len(prefix) == self.page_size or prefix[: -self.page_size] in self.entries for prefix in self.entries
        )

    def purge(self, start):
        """Forget what begins with `start`, and what leads only there; the pages that nobody reads."""
        gone = [prefix for prefix in self.entries if prefix[: len(start)] == start and len(prefix) >= len(start)]
        if not gone:
            return []
        shortest = min(map(len, gone))
        locks = sum(self.entries[prefix].locks for prefix in gone if len(prefix) == shortest)
        above = gone[0][: shortest - self.page_size]
        killed = [self.entries.pop(prefix) for prefix in gone]
        while len(above) >= max(1, self.page_size) and above in self.entries and self.entries[above].locks == locks:
            if any(prefix[: -self.page_size] == above for prefix in self.entries):
                break
            killed.append(self.entries.pop(above))
            above = above[: -self.page_size]
        for entry in killed:
            entry.dead = True
        self.dead += [entry for entry in killed if entry.locks]
        return [entry.page for entry in killed if not entry.locks]

    def num_pages(self, locked):
        live = sum((entry.locks > 0) == locked for entry in self.entries.values())
        return live + (len(self.dead) if locked else 0)


def tagged(tokens, namespace):
    """The tokens as the model knows them: namespaces are alphabets of their own."""
    return tuple(token + ALPHABET * (1 + NAMESPACES.index(namespace)) for token in tokens)


@dataclass
class Leaf:
    """A node as eviction by hand sees it. ends: how long its path is. pages: in order of position."""

    root: int
    node: object
    ends: int
    prefix: tuple
    pages: list
    num_children: int


def nodes_of(cache):
    """Every live node of a radix cache, by identity, read off its children."""
    found, stack = {}, [((), child, root) for root in cache._tree.forest.roots() for child in root.children.values()]
    while stack:
        above, node, root = stack.pop()
        tokens = above + tagged(node._key.tolist(), root.namespace)
        found[node] = Leaf(id(root), node, len(tokens), tokens, node.pages.tolist(), len(node.children))
        stack += [(tokens, child, root) for child in node.children.values()]
    return found


def contents(cache):
    """{prefix: (page, locks, time)} of a radix cache, read off its nodes."""
    found = {}
    for leaf in nodes_of(cache).values():
        start = leaf.ends - len(leaf.pages) * cache.page_size
        for i, page in enumerate(leaf.pages):
            prefix = leaf.prefix[: start + (i + 1) * cache.page_size]
            found[prefix] = (page, leaf.node.ref_count, leaf.node.last_access)
    return found


def lru_victims(cache, num_pages, trim, expected):
    """The pages that go, leaf by leaf, by looking at all nodes each time.

    expected: what is cached of the requests to come, the first of them first.
    """
    nodes, freed = nodes_of(cache), []
    while len(freed) < num_pages:
        leaves = [leaf for leaf in nodes.values() if not leaf.num_children and not leaf.node.ref_count]
        root = min(leaves, key=lambda leaf: leaf.node.last_access).root
        own = [leaf for leaf in leaves if leaf.root == root]
        spared = [leaf for leaf in own if any(ends_in(leaf, prefix, cache.page_size) for prefix in expected)]
        if len(spared) < len(own):
            leaf = min((leaf for leaf in own if leaf not in spared), key=lambda leaf: leaf.node.last_access)
        else:
            leaf = max(
                own, key=lambda leaf: [ends_in(leaf, prefix, cache.page_size) for prefix in expected].index(True)
            )
        count = min(len(leaf.pages), num_pages - len(freed)) if trim else len(leaf.pages)
        freed += leaf.pages[len(leaf.pages) - count :]
        nodes.pop(leaf.node)
        expected = [
            p[: leaf.ends - count * cache.page_size] if ends_in(leaf, p, cache.page_size) else p for p in expected
        ]
        if leaf.node.parent in nodes:
            nodes[leaf.node.parent].num_children -= 1
    return freed


def ends_in(leaf, prefix, page_size):
    start = leaf.ends - len(leaf.pages) * page_size
    return start < len(prefix) <= leaf.ends and leaf.prefix[: len(prefix)] == prefix
