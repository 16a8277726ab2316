"""What must hold for every ghost; each function raises an AssertionError that names what does not."""

from __future__ import annotations

from collections.abc import Iterable

from minisgl.kvcache.ghost import Ghost, GhostRoot, Owner, below
from minisgl.kvcache.radix_node import RadixNode


def check_ghosts(
    owners: Iterable[tuple[RadixNode | GhostRoot, RadixNode | None]], by_age: Iterable[Ghost], page_bytes: int
) -> list[Ghost]:
    """Check all that hang on these, each with what is cached at its place: itself, or a root. Returns them."""
    ages = {ghost: age for age, ghost in enumerate(by_age) if ghost.fork is not None}
    found: list[Ghost] = []
    for owner, node in owners:
        _check_forks(owner, node, page_bytes)
        found += below(owner)
    assert set(found) == set(ages), f"{len(found)} ghosts hang in the trees, {len(ages)} are in the order of age"
    for ghost in found:
        _check_forks(ghost, None, page_bytes)
        assert all(ages[other] < ages[ghost] for other in below(ghost)), "a ghost is on one that will go before it"
    return found


def _check_forks(owner: Owner, node: RadixNode | None, page_bytes: int) -> None:
    """node: what is cached at the same place, `owner` itself or a root."""
    assert owner.forks != {}, f"{owner} keeps room for ghosts that are gone"
    end = len(owner.token_bytes)
    for at, fork in (owner.forks or {}).items():
        assert (fork.owner, fork.at) == (owner, at), f"a fork of {owner} at {at} says {fork.owner} at {fork.at}"
        assert 0 < at <= end or end == 0 == at, f"a fork after {at} of {end} bytes"
        assert fork.ghosts, f"a fork after {at} bytes without ghosts"
        goes_on = {owner.token_bytes[at : at + page_bytes]} if at < end else set(node.children if node else ())
        assert not goes_on & set(fork.ghosts), f"what {owner} has at {at} is remembered as gone"
        for page, ghost in fork.ghosts.items():
            assert ghost.fork is fork, "a ghost hangs where it does not say"
            assert page == ghost.token_bytes[:page_bytes], "a ghost is filed under another page than its first"
            assert len(ghost.token_bytes) < page_bytes or len(ghost.token_bytes) % page_bytes == 0, "not whole pages"
