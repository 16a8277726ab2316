// Linear layers on grouped weights: out = x W^T + bias.
//
// The sum of an output runs over the inputs in order, whatever the number of rows: a row's result does not depend on the
// rows beside it. Weights are expanded to the dtype of x, a group at a time into a core's first cache where all rows fit
// the accumulators, otherwise a whole panel at once.

#pragma once

#include <vector>

#include "grouped_product.h"
#include "matrix_units.h"
#include "parallel.h"

constexpr int64_t X_BYTES = 1 << 19;  // of x at a time: that stays in a second-level cache of 1 MiB and more

template <class T>
struct GroupedLinear {
    const T* x;  // [M, K], dense
    int64_t rows, inputs, outputs;
    const T* bias;  // [N] or null
    T* out;         // [M, N], dense
};

// sums [count, PANEL] + bias -> rows [first, first + count) of the panel's outputs.
template <class T>
void write_sums(const GroupedLinear<T>& args, int64_t panel, int64_t first, int64_t count, const float* sums) {
    const int64_t begin = panel * PANEL, end = std::min(begin + PANEL, args.outputs);
    for (int64_t r = 0; r < count; r++)
        for (int64_t n = begin; n < end; n += LANES) {
            Vec sum = load(sums + r * PANEL + n - begin);
            if (args.bias) sum += load(args.bias + n, end - n);
            store(args.out + (first + r) * args.outputs + n, sum, end - n);
        }
}

template <class Product, int BITS, class T>
void multiply_panel(const GroupedLinear<T>& args, int64_t panel, const Group<BITS>* groups) {
    static thread_local std::vector<Tile<T>> tiles;
    alignas(64) float sums[Product::MAX_ROWS * PANEL];
    const bool at_once = args.rows <= Product::MAX_ROWS;
    const size_t num_groups = args.inputs / GROUP, num_tiles = at_once ? 2 : num_groups;
    if (tiles.size() < num_tiles) tiles.resize(num_tiles);
    const auto expanded = [to = tiles.data()](int64_t g) -> const Tile<T>& { return to[g]; };
    const auto expand_now = [to = tiles.data(), groups](int64_t g) -> const Tile<T>& {
        expand(groups[g], to[g % 2]);
        return to[g % 2];
    };

    if (at_once) {
        Product::multiply(args.x, args.rows, args.inputs, expand_now, sums);
        return write_sums(args, panel, 0, args.rows, sums);
    }
    for (size_t g = 0; g < num_groups; g++) expand(groups[g], tiles[g]);
    for (int64_t first = 0; first < args.rows; first += Product::MAX_ROWS) {
        const int64_t count = std::min<int64_t>(Product::MAX_ROWS, args.rows - first);
        Product::multiply(args.x + first * args.inputs, count, args.inputs, expanded, sums);
        write_sums(args, panel, first, count, sums);
    }
}

template <class Product, int BITS, class T>
void multiply_panels(const GroupedLinear<T>& args, const Group<BITS>* groups, int threads) {
    const int64_t num_panels = (args.outputs + PANEL - 1) / PANEL, num_groups = args.inputs / GROUP;
    parallel_for(num_panels, args.rows * args.inputs * args.outputs, threads,
                 [&](int64_t panel) { multiply_panel<Product>(args, panel, groups + panel * num_groups); });
}

// As many rows at a time as stay in the second-level cache while all panels pass by.
template <class Product, int BITS, class T>
void multiply_rows(GroupedLinear<T> args, const Group<BITS>* groups, int threads) {
    const int64_t row_bytes = args.inputs * sizeof(T), blocks = X_BYTES / row_bytes / Product::MAX_ROWS;
    const int64_t fit = std::max<int64_t>(blocks, 1) * Product::MAX_ROWS;
    for (int64_t left = args.rows; left > 0; left -= fit) {
        args.rows = std::min(fit, left);
        multiply_panels<Product>(args, groups, threads);
        args.x += args.rows * args.inputs;
        args.out += args.rows * args.outputs;
    }
}

template <class T, int BITS>
void grouped_linear(const GroupedLinear<T>& args, const Group<BITS>* groups, int threads) {
    if (args.rows == 0) return;
#if defined(HAS_MATRIX_UNITS)
    if constexpr (std::is_same_v<T, bfloat16>)
        if (may_use_matrix_units()) return multiply_rows<MatrixProduct>(args, groups, threads);
#endif
    multiply_rows<VectorProduct<T>>(args, groups, threads);
}
