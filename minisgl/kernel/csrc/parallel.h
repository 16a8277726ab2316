// Threads only where there is work for them: waking them costs some microseconds, and more where others want the cores.

#pragma once

#include <cstdint>

constexpr int64_t MIN_WORK = 1 << 17;  // multiplications from which on a second thread pays: some 20 us for one

// body(i) for 0 <= i < n, in `threads` ranges if all of them together are `work` multiplications or so. Items must not
// depend on each other.
template <class Body>
inline void parallel_for(int64_t n, int64_t work, int threads, Body body) {
    if (threads > 1 && n > 1 && work > MIN_WORK) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t i = 0; i < n; i++) body(i);
    } else {
        for (int64_t i = 0; i < n; i++) body(i);
    }
}
