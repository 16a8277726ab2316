// Linear layers on floats of x's dtype, which lie in the tiles that products read.

#pragma once

#include <vector>

#include "grouped_product.h"
#include "panel_linear.h"

inline int64_t groups_of(int64_t inputs) { return (inputs + GROUP - 1) / GROUP; }

template <class Product, class T>
class FloatPanels {
public:
    static constexpr int MAX_ROWS = Product::MAX_ROWS;

    FloatPanels(const Weight& weight, const T* x, int64_t rows, int64_t side_by_side)
        : tiles(static_cast<const Tile<T>*>(weight.data)),
          x(x),
          num_groups(groups_of(weight.inputs)),
          num_blocks(std::min<int64_t>((rows + MAX_ROWS - 1) / MAX_ROWS, MAX_SHARES)),
          ahead(num_blocks == 1 ? AHEAD : side_by_side * num_groups) {
        if (weight.inputs % GROUP) pad(rows, weight.inputs);
    }

    void end() const { Product::end(); }

    // Meanwhile the tiles come that are wanted soon: the next ones, or of the panel that takes this one's turn a share for
    // every block of rows.
    void multiply(int64_t panel, int, int64_t first, int64_t count, float* sums) const {
        const int64_t block = first / MAX_ROWS % num_blocks;
        const int64_t begin = block * LINES / num_blocks, end = (block + 1) * LINES / num_blocks;
        const auto tile = [=, from = tiles + panel * num_groups, ahead = ahead](int64_t g) -> const Tile<T>& {
            const char* soon = reinterpret_cast<const char*>(from + g + ahead);
            for (int64_t i = begin; i < end; i++) __builtin_prefetch(soon + i * 64, 0, 2);
            return from[g];
        };
        const int64_t inputs = num_groups * GROUP;
        Product::multiply(x + first * inputs, count, inputs, tile, sums);
    }

private:
    static constexpr int LINES = sizeof(Tile<T>) / 64;
    static constexpr int MAX_SHARES = 8;

    const Tile<T>* tiles;
    const T* x;  // rows of whole groups
    int64_t num_groups, num_blocks, ahead;
    std::vector<T> padded;

    void pad(int64_t rows, int64_t inputs) {
        padded.resize(rows * num_groups * GROUP);
        for (int64_t r = 0; r < rows; r++)
            std::copy_n(x + r * inputs, inputs, padded.begin() + r * num_groups * GROUP);
        x = padded.data();
    }
};

constexpr int64_t STRIP_BYTES = 1 << 19;  // of panels side by side: these stay in the second-level cache, too
constexpr int64_t MAX_STRIP = 8;          // panels

// Rows [row, end) of x, a block of them at a time, by panels [begin, begin + count) and by their twins. So a block is in
// the first-level cache for all of them, and results are written where others have just been.
template <class Panels, class T>
void multiply_strip(const Panels& panels, const Results<T>& results, int64_t begin, int64_t count, int64_t row,
                    int64_t end) {
    constexpr int64_t MOST = Panels::MAX_ROWS;
    alignas(64) float sums[2][2][MOST * PANEL];
    const int64_t twin = panels_of(results.width);
    int64_t written = -1, last_row = 0, last_count = 0;  // the panel whose sums are not written yet, and their rows
    int now = 0;
    const auto write = [&] {
        if (written >= 0) results.write(written, last_row, last_count, sums[now ^ 1][0], sums[now ^ 1][1]);
    };
    for (; row < end; row += MOST)
        for (int64_t panel = begin; panel < begin + count; panel++, now ^= 1) {
            const int64_t num_rows = std::min(MOST, end - row);
            panels.multiply(panel, 0, row, num_rows, sums[now][0]);
            if (results.gate) panels.multiply(panel + twin, 1, row, num_rows, sums[now][1]);
            write();
            written = panel, last_row = row, last_count = num_rows;
        }
    write();
    panels.end();
}

template <class Product, class T>
void float_linear(const Weight& weight, const T* x, int64_t rows, T* out, int threads) {
    using Panels = FloatPanels<Product, T>;
    const int64_t width = weight.gate ? weight.outputs / 2 : weight.outputs, num_panels = panels_of(width);
    const int64_t panel_bytes = groups_of(weight.inputs) * sizeof(Tile<T>) * (weight.gate ? 2 : 1);
    const int64_t share = num_panels / (threads * 4);  // smaller strips where threads could not share them evenly
    const int64_t size = std::max<int64_t>(std::min({STRIP_BYTES / panel_bytes, MAX_STRIP, share}), 1);
    const Results<T> results{out, width, static_cast<const T*>(weight.bias), weight.gate};
    const Panels panels(weight, x, rows, size);
    const int64_t blocks = X_BYTES / (weight.inputs * int64_t(sizeof(T))) / Panels::MAX_ROWS;
    const int64_t fit = std::max<int64_t>(blocks, 1) * Panels::MAX_ROWS;
    for (int64_t first = 0; first < rows; first += fit) {
        const int64_t end = std::min(first + fit, rows), num_strips = (num_panels + size - 1) / size;
        parallel_for(num_strips, (end - first) * weight.inputs * weight.outputs, threads, [&](int64_t i) {
            multiply_strip(panels, results, i * size, std::min(size, num_panels - i * size), first, end);
        });
    }
}

// Rows [first, first + count) of a panel, at most PANEL, from `source`, rows a stride apart; its other rows stay.
template <class T, class S>
void pack_panel(const S* source, int64_t stride, int64_t first, int64_t count, int64_t inputs, Tile<T>* tiles) {
    for (int64_t k = 0; k < inputs; k += GROUP) {
        Tile<T>& tile = tiles[k / GROUP];
        const int64_t left = std::min<int64_t>(GROUP, inputs - k);
        for (int64_t n = 0; n < count; n++) {
            alignas(64) T row[GROUP] = {};
            if constexpr (std::is_same_v<S, T>) std::copy_n(source + n * stride + k, left, row);
            else
                for (int64_t i = 0; i < left; i += LANES)
                    store(row + i, load(source + n * stride + k + i, left - i), left - i);
            typename Tile<T>::Word words[GROUP / Tile<T>::IN_WORD];
            std::memcpy(words, row, sizeof words);
            for (int i = 0; i < GROUP / Tile<T>::IN_WORD; i++) tile.words[i][first + n] = words[i];
        }
    }
}

// source [rows, inputs], rows a stride apart -> rows [first, first + rows) of tiles, of which the others stay.
template <class T, class S>
void pack_floats(const S* source, int64_t stride, int64_t rows, int64_t inputs, int64_t first, Tile<T>* tiles,
                 int threads) {
    const int64_t begin = first / PANEL, end = panels_of(first + rows), num_groups = groups_of(inputs);
    parallel_for(end - begin, rows * inputs, threads, [=](int64_t i) {
        const int64_t start = (begin + i) * PANEL, from = std::max(first, start);
        const int64_t count = std::min(first + rows, start + PANEL) - from;
        pack_panel(source + (from - first) * stride, stride, from - start, count, inputs,
                   tiles + (begin + i) * num_groups);
    });
}
