// Rows of x times one panel of weights, by vector instructions. matrix_units.h has the same for Intel's matrix units.
//
//     VectorProduct<T>::multiply(x, rows, inputs, tile, sums)
//     VectorProduct<T>::end()                                     // after the last one of a thread
//
// x: at most MAX_ROWS rows of `inputs` elements of the product's type X. tile(g): the weights of group g, of T, asked for
// in order. sums [rows, PANEL].

#pragma once

#include <type_traits>

#include "grouped_weight.h"

// use(integral_constant<int, rows>), for 1 <= rows <= MAX.
template <int MAX, class Use>
inline void with_constant(int64_t rows, Use use) {
    if constexpr (MAX > 1) {
        if (rows < MAX) return with_constant<MAX - 1>(rows, use);
    }
    use(std::integral_constant<int, MAX>{});
}

inline Vec add_product(Vec sum, Vec weights, const float* x) { return sum + weights * *x; }

// Two inputs at once: products of bfloat16 are exact in float32.
#if defined(__AVX512BF16__)
inline Vec add_product(Vec sum, BitsVec weights, const bfloat16* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights, (__m512bh)_mm512_set1_epi32(pair));
}
#endif

// The same in float32: weights of bfloat16 are widened in registers, once for all rows.
inline Vec add_product(Vec sum, BitsVec weights, const float* x) {
    sum += (Vec)(weights << 16) * x[0];
    return sum + (Vec)(weights & 0xffff0000) * x[1];
}

template <class T>
struct VectorProduct {
#if defined(__AVX512BF16__)
    using X = T;
#else
    using X = float;
#endif
    static constexpr int MAX_ROWS = LANES == 16 ? 12 : LANES == 8 ? 3 : 1;  // what the registers hold

    template <class TileOf>
    static void multiply(const X* x, int64_t rows, int64_t inputs, TileOf tile, float* sums) {
        with_constant<MAX_ROWS>(rows, [=](auto count) { multiply_rows<count()>(x, inputs, tile, sums); });
    }

    static void end() {}

private:
    template <int ROWS, class TileOf>
    static void multiply_rows(const X* x, int64_t inputs, TileOf tile, float* sums) {
        constexpr int STEP = Tile<T>::IN_WORD;
        Vec sum[ROWS][VECS] = {};
        for (int64_t first = 0; first < inputs; first += GROUP) {
            const Tile<T>& weights = tile(first / GROUP);
            for (int i = 0; i < GROUP / STEP; i++) {
                decltype(load(weights.words[0])) words[VECS];
                for (int v = 0; v < VECS; v++) words[v] = load(weights.words[i] + v * LANES);
                for (int r = 0; r < ROWS; r++)
                    for (int v = 0; v < VECS; v++)
                        sum[r][v] = add_product(sum[r][v], words[v], x + r * inputs + first + i * STEP);
            }
        }
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECS; v++) store(sums + r * PANEL + v * LANES, sum[r][v]);
    }
};
