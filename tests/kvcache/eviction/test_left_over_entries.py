"""What is left behind in heaps does not pile up."""

from support.grove import Grove

from minisgl.kvcache.eviction.places import Places


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


def test_places_that_change_do_not_pile_up():
    places = Places()
    for i in range(1_000):
        places.enter(i % 10, -i)
    assert len(places._heap) < 100
    assert places.first() == (-999, 9)
