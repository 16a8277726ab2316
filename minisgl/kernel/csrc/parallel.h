// Threads only where there is work for them: waking them costs some microseconds.

#pragma once

#include <cstdint>

// Elements that one thread handles before the next one pays.
constexpr int64_t MIN_WORK = 1 << 15;

// body(i) for 0 <= i < n, on `threads` threads if `work` elements are worth it. Items must not depend on each other.
template <class Body>
inline void parallel_for(int64_t n, int64_t work, int threads, Body body) {
    if (threads > 1 && n > 1 && work > MIN_WORK) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t i = 0; i < n; i++) body(i);
    } else {
        for (int64_t i = 0; i < n; i++) body(i);
    }
}
