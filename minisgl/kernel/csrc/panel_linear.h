// Linear layers whose weight lies in panels of PANEL outputs: who multiplies what, and what becomes of the sums.
//
// A kind of weight is a class with
//
//     static constexpr int MAX_ROWS;                                  // that it multiplies at once
//     void begin(int64_t panel, int part) const;                      // before `multiply` of that panel, by its thread
//     void multiply(int64_t panel, int part, int64_t first, int64_t count, float* sums) const;
//                          // rows [first, first + count) of x times the panel, without bias -> sums [count, PANEL]
//     void end() const;                                               // when the thread leaves the panel
//
// The sum of an output runs over the inputs in order, whatever the number of rows: a row's result does not depend on the
// rows beside it. part: 0, or 1 for the second of two panels that a thread has at a time, those of gate and up.

#pragma once

#include "elementwise.h"
#include "grouped_weight.h"
#include "parallel.h"

enum Kind : int32_t { FLOATS, GROUPED, INT8 };  // INT8: integers, for activations in int8
enum Gate : int32_t { NO_GATE, SILU, GELU_TANH };

// A linear layer, as in kernel/cpu_linear.py. Panels lie one behind the other; with a gate those of the first half of
// the outputs come first, and each half has panels of its own.
struct Weight {
    int32_t kind, bits, gate;  // bits of integers: 4 or 8
    int32_t zero;              // of INT8, as in int8_linear.h
    int64_t outputs, inputs;
    const void *data, *bias;  // bias [outputs] of x's dtype, or null
};

constexpr int64_t X_BYTES = 1 << 19;  // of x at a time: that stays in a second-level cache of 1 MiB and more

// Rows of x of so many bytes, in whole blocks of `block`.
inline int64_t rows_that_fit(int64_t row_bytes, int64_t block) {
    return std::max<int64_t>(X_BYTES / row_bytes / block, 1) * block;
}

inline int64_t panels_of(int64_t outputs) { return (outputs + PANEL - 1) / PANEL; }

// The outputs of one call: sums become results of T, rows of `width` elements.
template <class T>
struct Results {
    T* out;
    int64_t width;
    const T* bias;  // of all outputs, or null
    int32_t gate;

    // sums [count, PANEL] of the panel -> its columns of rows [first, first + count). With a gate, `up` has the sums of
    // the panel's twin.
    void write(int64_t panel, int64_t first, int64_t count, const float* sums, const float* up) const {
        const int64_t begin = panel * PANEL, end = std::min(begin + PANEL, width);
        for (int64_t r = 0; r < count; r++)
            for (int64_t n = begin; n < end; n += LANES) {
                const int64_t at = r * PANEL + n - begin, left = end - n;
                Vec value = with_bias(load(sums + at), n, left);
                if (gate) value = activate(value) * with_bias(load(up + at), width + n, left);
                store(out + (first + r) * width + n, value, left);
            }
    }

private:
    Vec with_bias(Vec sum, int64_t n, int64_t left) const { return bias ? sum + load(bias + n, left) : sum; }
    Vec activate(Vec x) const { return gate == SILU ? silu(x) : gelu_tanh(x); }
};

// Rows [first, end) of x by one panel, or by one of the gate and its twin. Sums become results while the next ones are
// being computed, which other units of the processor do.
template <class Panels, class T>
void multiply_panel(const Panels& panels, const Results<T>& results, int64_t panel, int64_t first, int64_t end) {
    constexpr int64_t MOST = Panels::MAX_ROWS;
    alignas(64) float sums[2][2][MOST * PANEL];
    const int num_parts = results.gate ? 2 : 1;
    const int64_t twin = panels_of(results.width);
    for (int part = 0; part < num_parts; part++) panels.begin(panel + part * twin, part);
    int now = 0;
    for (int64_t row = first; row < end; row += MOST, now ^= 1) {
        for (int part = 0; part < num_parts; part++)
            panels.multiply(panel + part * twin, part, row, std::min(MOST, end - row), sums[now][part]);
        if (row > first) results.write(panel, row - MOST, MOST, sums[now ^ 1][0], sums[now ^ 1][1]);
    }
    const int64_t last = first + (end - first - 1) / MOST * MOST;
    results.write(panel, last, end - last, sums[now ^ 1][0], sums[now ^ 1][1]);
    panels.end();
}

// As many rows at a time as stay in the second-level cache while all panels pass by. row_bytes: of what `Panels` reads.
template <class Panels, class T>
void multiply_panels(const Panels& panels, const Weight& weight, int64_t rows, int64_t row_bytes, T* out, int threads) {
    const int64_t width = weight.gate ? weight.outputs / 2 : weight.outputs;
    const Results<T> results{out, width, static_cast<const T*>(weight.bias), weight.gate};
    const int64_t fit = rows_that_fit(row_bytes, Panels::MAX_ROWS);
    for (int64_t first = 0; first < rows; first += fit) {
        const int64_t end = std::min(first + fit, rows);
        parallel_for(panels_of(width), (end - first) * weight.inputs * weight.outputs, threads,
                     [&](int64_t panel) { multiply_panel(panels, results, panel, first, end); });
    }
}
