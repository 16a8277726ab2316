// Linear layers on floats, which lie in the tiles that products read.

#pragma once

#include <vector>

#include "grouped_product.h"
#include "panel_linear.h"

inline int64_t groups_of(int64_t inputs) { return (inputs + GROUP - 1) / GROUP; }

template <class Product, class T>
class FloatPanels {
public:
    using X = typename Product::X;
    static constexpr int MAX_ROWS = Product::MAX_ROWS;

    FloatPanels(const Weight& weight, const X* x, int64_t rows, int64_t side_by_side)
        : tiles(static_cast<const Tile<T>*>(weight.data)),
          x(x),
          num_groups(groups_of(weight.inputs)),
          num_blocks(std::min<int64_t>((rows + MAX_ROWS - 1) / MAX_ROWS, MAX_SHARES)),
          ahead(num_blocks == 1 ? AHEAD : side_by_side * num_groups),
          widens(!std::is_same_v<X, T> && num_blocks == MAX_SHARES) {
        if (weight.inputs % GROUP) pad(rows, weight.inputs);
    }

    // Before panels [begin, begin + count) and, from `twin` on, as many others: those of many rows are widened first, to
    // floats that multiply as the halves of words would.
    void begin(int64_t begin, int64_t count, int64_t twin) const {
        if (!widens) return;
        auto& to = widened();
        to.resize((twin ? 2 : 1) * count * num_groups);
        widen(tiles + begin * num_groups, count * num_groups, to.data());
        if (twin) widen(tiles + (begin + twin) * num_groups, count * num_groups, to.data() + count * num_groups);
    }

    void end() const { Product::end(); }

    // Panel number `place` of those that `begin` was told of. Meanwhile the tiles come that are wanted soon: the next ones, or of the panel that takes this one's turn a share for
    // every block of rows.
    void multiply(int64_t panel, int64_t place, int64_t first, int64_t count, float* sums) const {
        const int64_t inputs = num_groups * GROUP;
        if constexpr (!std::is_same_v<X, T>)
            if (widens) {
                const auto tile = [from = widened().data() + place * num_groups](int64_t g) -> const Tile<X>& {
                    return from[g];
                };
                return VectorProduct<X>::multiply(x + first * inputs, count, inputs, tile, sums);
            }
        const int64_t block = first / MAX_ROWS % num_blocks;
        const int64_t begin = block * LINES / num_blocks, end = (block + 1) * LINES / num_blocks;
        const auto tile = [=, from = tiles + panel * num_groups, ahead = ahead](int64_t g) -> const Tile<T>& {
            const char* soon = reinterpret_cast<const char*>(from + g + ahead);
            for (int64_t i = begin; i < end; i++) __builtin_prefetch(soon + i * 64, 0, 2);
            return from[g];
        };
        Product::multiply(x + first * inputs, count, inputs, tile, sums);
    }

private:
    static constexpr int LINES = sizeof(Tile<T>) / 64;
    static constexpr int MAX_SHARES = 8;

    const Tile<T>* tiles;
    const X* x;  // rows of whole groups
    int64_t num_groups, num_blocks, ahead;
    bool widens;
    std::vector<X> padded;

    static std::vector<Tile<X>>& widened() {
        static thread_local std::vector<Tile<X>> of_thread;
        return looked_up_once(of_thread);
    }

    static void widen(const Tile<T>* from, int64_t count, Tile<X>* to) {
        if constexpr (!std::is_same_v<X, T>)
            for (int64_t g = 0; g < count; g++)
                for (int i = 0; i < GROUP / 2; i++)
                    for (int n = 0; n < PANEL; n += LANES) {
                        const BitsVec words = load(from[g].words[i] + n);
                        store(to[g].words[2 * i] + n, (Vec)(words << 16));
                        store(to[g].words[2 * i + 1] + n, (Vec)(words & 0xffff0000));
                    }
    }

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
    panels.begin(begin, count, results.gate ? twin : 0);
    for (; row < end; row += MOST)
        for (int64_t panel = begin; panel < begin + count; panel++, now ^= 1) {
            const int64_t num_rows = std::min(MOST, end - row);
            const int64_t place = panel - begin;
            panels.multiply(panel, place, row, num_rows, sums[now][0]);
            if (results.gate) panels.multiply(panel + twin, count + place, row, num_rows, sums[now][1]);
            write();
            written = panel, last_row = row, last_count = num_rows;
        }
    write();
    panels.end();
}

template <class Product, class T>
void float_linear(const Weight& weight, const typename Product::X* x, int64_t rows, T* out, int threads) {
    using Panels = FloatPanels<Product, T>;
    const int64_t width = weight.gate ? weight.outputs / 2 : weight.outputs, num_panels = panels_of(width);
    const int64_t panel_bytes = groups_of(weight.inputs) * sizeof(Tile<typename Product::X>) * (weight.gate ? 2 : 1);
    const int64_t share = num_panels / (threads * 4);  // smaller strips where threads could not share them evenly
    const int64_t size = std::max<int64_t>(std::min({STRIP_BYTES / panel_bytes, MAX_STRIP, share}), 1);
    const Results<T> results{out, width, static_cast<const T*>(weight.bias), weight.gate};
    const Panels panels(weight, x, rows, size);
    const int64_t fit = rows_that_fit(weight.inputs * sizeof *x, Panels::MAX_ROWS);
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
