"""What is left behind in heaps does not pile up."""

from support.grove import Grove

from minisgl.kvcache.eviction.lazy_heap import LazyHeap
from minisgl.kvcache.eviction.places import Places
from minisgl.kvcache.radix_node import RadixNode


def test_visits_do_not_make_the_heap_of_mru_grow():
    grove = Grove("mru")
    for token in range(10):
        grove.insert([token])
    for i in range(1_000):
        grove.match([i % 10])
    assert len(grove.queue._heap._keys) < 150
    grove.check()


def test_purges_do_not_make_a_heap_grow_that_nothing_is_evicted_from():
    grove = Grove("lru")
    for i in range(1_000):
        grove.purge(grove.insert([i]))
    assert len(grove.queue._heap._keys) < 150
    grove.check()


def test_no_single_node_that_is_filed_pays_for_a_sweep_of_all():
    num_looks = 0

    def key(node):
        nonlocal num_looks
        num_looks += 1
        return node.last_access

    heap = LazyHeap(1, key)
    for time in range(10_000):
        node, before = RadixNode(b"", b"", time), num_looks
        heap.file(node)
        assert num_looks - before < 150
        if time % 2:
            node.ref_count = 1  # its entry is left behind
    assert len(heap._keys) + len(heap._unswept) < 8_000
    assert heap.first().last_access == 0


def test_places_that_change_do_not_pile_up():
    places = Places()
    for i in range(1_000):
        places.enter(i % 10, -i)
    assert len(places._heap) < 100
    assert places.first() == (-999, 9)
