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

    FloatPanels(const Weight& weight, const T* x, int64_t rows)
        : tiles(static_cast<const Tile<T>*>(weight.data)),
          x(x),
          num_groups(groups_of(weight.inputs)),
          num_blocks(std::min<int64_t>((rows + MAX_ROWS - 1) / MAX_ROWS, MAX_SHARES)) {
        if (weight.inputs % GROUP) pad(rows, weight.inputs);
    }

    void begin(int64_t, int) const {}
    void end() const { Product::end(); }

    // Meanwhile the tiles come that are wanted soon: the next ones, or of the next panel a share for every block of rows.
    void multiply(int64_t panel, int, int64_t first, int64_t count, float* sums) const {
        const int64_t ahead = num_blocks == 1 ? AHEAD : num_groups, block = first / MAX_ROWS % num_blocks;
        const int64_t begin = block * LINES / num_blocks, end = (block + 1) * LINES / num_blocks;
        const auto tile = [=, from = tiles + panel * num_groups](int64_t g) -> const Tile<T>& {
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
    int64_t num_groups, num_blocks;
    std::vector<T> padded;

    void pad(int64_t rows, int64_t inputs) {
        padded.resize(rows * num_groups * GROUP);
        for (int64_t r = 0; r < rows; r++)
            std::copy_n(x + r * inputs, inputs, padded.begin() + r * num_groups * GROUP);
        x = padded.data();
    }
};

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
