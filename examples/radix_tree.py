"""A walk through the radix cache without a model: insert, match and lock, split, evict.

    python examples/radix_tree.py

Two tokens a page here; a run of tokens is cached in whole pages, so its odd last token is not.
"""

import torch

from minisgl.kvcache import RadixPrefixCache
from minisgl.kvcache.radix_node import RadixNode


def show(node: RadixNode, depth: int = 0) -> None:
    for child in sorted(node.children.values(), key=lambda n: n._key.tolist()):
        print(f"{'    ' * depth}└─ key={child._key.tolist()} value={child.value.tolist()} ref={child.ref_count}")
        show(child, depth + 1)


def t(*xs: int) -> torch.Tensor:
    return torch.tensor(xs, dtype=torch.int32)


def main() -> None:
    cache = RadixPrefixCache(torch.device("cpu"), page_size=2)

    print("Two chats with the same opening, and another one; the last token of [7,8,9] does not fill a page:")
    cache.insert_prefix(t(1, 2, 3, 4, 5, 6), t(10, 11, 12, 13, 14, 15))
    cached_len, _ = cache.insert_prefix(t(1, 2, 3, 4, 7, 7), t(20, 21, 22, 23, 24, 25))
    cache.insert_prefix(t(7, 8, 9), t(30, 31, 32))
    show(cache.root_node)
    print(f"of the second one {cached_len} tokens were cached already: slots 20 to 23 are its caller's to free")

    print("\nA request that shares the first page, and half of the second: a whole page is hit, and split off.")
    handle = cache.match_prefix(t(1, 2, 3, 9)).cuda_handle
    cache.lock_handle(handle)
    print(f"{handle.cached_len} tokens hit, at {handle.get_matched_indices().tolist()}; locked:")
    show(cache.root_node)
    print("evictable, protected:", tuple(cache.size_info))

    print("\nMemory runs short. The leaf that was not visited for longest goes first, a parent after its last child:")
    print("evict 2 tokens, slots freed:", cache.evict(2).tolist())
    print("evict 6 tokens, slots freed:", cache.evict(6).tolist())
    print("what is locked stays:")
    show(cache.root_node)

    cache.lock_handle(handle, unlock=True)
    print("\nunlocked, it can go too:", cache.evict(2).tolist(), "and nothing is left:", tuple(cache.size_info))
    cache.check_integrity()


if __name__ == "__main__":
    main()
