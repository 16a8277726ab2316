// Threads only where there is work for them: waking them costs some microseconds, and more where others want the cores.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "pool.h"

constexpr int64_t MIN_WORK = 1 << 17;  // multiplications from which on a second thread pays: some 20 us for one
constexpr int64_t BLOCKS = 8;          // of a thread's share: as much of it others can take from a thread that is late

// Cores that this thread may use, looked up now and then, for it may be told to keep to some. Threads beyond them would
// only take each other's time.
inline int num_cores() {
#if defined(__linux__)
    static thread_local int cores = 0;
    static thread_local unsigned calls = 0;
    if (calls++ % 4096 == 0) {
        cpu_set_t allowed;
        const bool is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;  // not where there are 1,024 and more
        cores = is_known ? CPU_COUNT(&allowed) : std::numeric_limits<int>::max();
    }
    return cores;
#else
    return std::numeric_limits<int>::max();
#endif
}

// A thread's own variable. Compilers that know it for one look it up again at every use, in the innermost loops too.
template <class Own>
inline Own& looked_up_once(Own& of_thread) {
    Own* place = &of_thread;
    asm("" : "+r"(place));
    return *place;
}

// Memory that is kept, for fresh one would cost more in page faults than its use; not zeroed.
class KeptFloats {
public:
    float* take(int64_t count) {
        if (count > size_) {
            size_ = 0;
            floats_.reset();  // first, for the two of them may be more than there is room for
            floats_.reset(new float[count]);
            size_ = count;
        }
        return floats_.get();
    }

private:
    std::unique_ptr<float[]> floats_;
    int64_t size_ = 0;
};

// body(i) for 0 <= i < n, `size` in a row on one thread.
template <class Body>
inline void parallel_blocks(int64_t n, int64_t size, int64_t work, int threads, const Body& body) {
    const auto run = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) body(i);
    };
    if (threads > 1 && n > 1 && work > MIN_WORK) Pool::shared().run(n, size, std::min(threads, num_cores()), run);
    else run(0, n);
}

// body(i) for 0 <= i < n, on `threads` threads if all of them together are `work` multiplications or so. Items must not
// depend on each other.
template <class Body>
inline void parallel_for(int64_t n, int64_t work, int threads, const Body& body) {
    const int64_t num_blocks = threads * BLOCKS;
    parallel_blocks(n, (n + num_blocks - 1) / num_blocks, work, threads, body);
}

// The same for items of unlike sizes: threads take them one by one.
template <class Body>
inline void parallel_items(int64_t n, int64_t work, int threads, const Body& body) {
    parallel_blocks(n, 1, work, threads, body);
}
