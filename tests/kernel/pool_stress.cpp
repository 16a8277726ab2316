// What the pool must bear, under a sanitizer: see test_pool.py. Says nothing, and returns 0, if all went well.

#include "pool.h"

#include <cstdlib>
#include <vector>

struct Check {
    explicit Check(bool is_right) {
        if (!is_right) std::abort();
    }
};

// Every item is done once, whatever the number of threads, and what was written before a call is seen within it.
void do_all(Pool& pool, int64_t n, int64_t size, int threads) {
    std::vector<int> done(n);
    pool.run(n, size, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) done[i]++;
    });
    for (int count : done) Check(count == 1);
}

// Throws on one thread at a time, the caller's or another; the next call is as any.
void run_out_of_memory(Pool& pool, int64_t n, int threads, bool here) {
    const auto caller = std::this_thread::get_id();
    std::atomic<bool> was_thrown{false};
    bool was_caught = false;
    try {
        pool.run(n, 1, threads, [&](int64_t, int64_t) {
            if ((std::this_thread::get_id() == caller) == here) {
                was_thrown = true;
                throw std::bad_alloc();
            }
            for (int i = 0; i < 100 && !was_thrown; i++) sched_yield();
        });
    } catch (const std::bad_alloc&) {
        was_caught = true;
    }
    Check(was_caught == was_thrown);
}

void stress(Pool& pool) {
    for (int i = 0; i < 2000; i++) do_all(pool, 1 + i % 97, 1 + i % 3, 1 + i % 5);
    for (int i = 0; i < 200; i++) run_out_of_memory(pool, 20, 3, i % 2);
    pool.run(4, 1, 4, [&](int64_t, int64_t) { do_all(pool, 10, 1, 4); });  // from within
}

int main() {
    std::thread other([] { stress(Pool::shared()); });
    stress(Pool::shared());
    other.join();
    for (int64_t n : {(1 << 20) - 1, 1 << 20, 3 << 20}) do_all(Pool::shared(), n, 1, 3);
    stress(Pool::shared());
}
