// Products of queries with many keys at once, a lane for each key.
//
// Words of keys and queries are multiplied one after the other: a product is the same to the bit whatever is beside it.

#pragma once

#include <vector>

#include "vector.h"
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

// The four bytes that are multiplied at once. Sums are float32.
template <class T>
struct Word {
    static constexpr int ELEMENTS = 1;
    static Vec read(const T* from, int64_t left) { return load(from, left); }
    static Vec add(Vec sum, Vec keys, float query) { return sum + keys * query; }
};

#if defined(__AVX512BF16__)
// Two products a lane, which lose nothing: a product of bfloat16 is exact in float32.
template <>
struct Word<bfloat16> {
    static constexpr int ELEMENTS = 2;
    static Vec read(const bfloat16* from, int64_t left) {
        if (left >= 2 * LANES) return (Vec)_mm512_loadu_si512(from);
        return (Vec)_mm512_maskz_loadu_epi16((__mmask32{1} << left) - 1, from);
    }
    static Vec add(Vec sum, Vec keys, float query) {
        return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)keys, (__m512bh)_mm512_set1_ps(query));
    }
};
#endif

// ---- LANES rows of LANES words become columns

template <int STEP, int... I>
inline void swap_words(Vec* x, std::integer_sequence<int, I...>) {
    for (int i = 0; i < LANES; i++) {
        if (i & STEP) continue;
        const Vec a = x[i], b = x[i + STEP];
        x[i] = SHUFFLE(a, b, (I & STEP ? LANES + (I ^ STEP) : I)...);
        x[i + STEP] = SHUFFLE(a, b, (I & STEP ? LANES + I : I ^ STEP)...);
    }
}

template <int STEP = 1>
inline void transpose(Vec* x) {
    swap_words<STEP>(x, Lanes{});
    if constexpr (2 * STEP < LANES) transpose<2 * STEP>(x);
}
