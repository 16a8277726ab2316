// How fast this library multiplies here, for the choice among libraries and dtypes (kernel/cpu_rates.py).

#pragma once

#include <time.h>

#include <vector>

#include "linear.h"

// What this thread has spent on a processor: the same however many others want it.
inline double thread_nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

// Operations a nanosecond of one thread in a linear layer as a prompt of 96 tokens has it, the better of two runs. About
// a millisecond and 2 MB.
template <class T>
double linear_rate() {
    constexpr int64_t ROWS = 96, SIZE = 512;
    std::vector<T> x(ROWS * SIZE), weight(SIZE * SIZE), out(ROWS * SIZE);
    std::vector<Tile<T>> tiles(SIZE / PANEL * groups_of(SIZE));
    const auto fill = [](std::vector<T>& values, float step) {
        for (size_t i = 0; i < values.size(); i += LANES) store(values.data() + i, splat(step * (int(i % 31) - 15)));
    };
    fill(x, 0.01f);
    fill(weight, 0.003f);
    pack_floats(weight.data(), SIZE, SIZE, SIZE, 0, tiles.data(), 1);
    const Weight layer{FLOATS, 0, NO_GATE, 0, SIZE, SIZE, tiles.data(), nullptr};
    double best = 0;
    for (int run = 0; run < 3; run++) {
        const double begin = thread_nanoseconds();
        linear(layer, x.data(), ROWS, out.data(), 1);
        const double rate = 2.0 * ROWS * SIZE * SIZE / (thread_nanoseconds() - begin);
        if (run) best = std::max(best, rate);  // the first one warms the caches
    }
    return best;
}
