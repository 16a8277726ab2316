// Rows in int8 times one strip of weights: dot products of a group in int32, then float32, group after group.
//
//     sum = sum + offset * (s * sum q);  sum = sum + (scale * s) * dot        each line a fused multiply-add
//
// with s and q of the row's group, and without the first line where one `zero` stands for all offsets: then dot is that
// of code - zero. Whatever instructions make the dot products, they are exact, so that a row's sums depend on nothing
// but the row: not on the number of rows, and not on the processor, if that has a fused multiply-add.

#pragma once

#include "int8_dot.h"
#include "int8_rows.h"
#include "int8_weight.h"

// a * b + sum, rounded once where the processor can.
inline Vec fused(Vec a, Vec b, Vec sum) {
#if defined(__AVX512F__)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__FMA__)
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined(__aarch64__)
    return (Vec)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + sum;
#endif
}

// Scales of LANES outputs in a group, ready to be multiplied.
template <Scales SCALES>
struct GroupScales {
    Vec scale, offset;

    GroupScales(const StripScales<SCALES>& scales, int vec) : scale(load(scales.of[0] + vec * LANES)), offset{} {
        if constexpr (SCALES != Scales::ZERO) offset = load(scales.of[1] + vec * LANES);
    }

    // dots: of codes or, if there are no offsets, of codes less `zero`.
    // at: of the row's group.
    Vec add(Vec sum, IntVec dots, const Int8Rows& x, int64_t at) const {
        if constexpr (SCALES != Scales::ZERO) sum = fused(offset, splat(x.scaled_sum[at]), sum);
        return fused(__builtin_convertvector(dots, Vec), scale * x.scale[at], sum);
    }
};

template <class Group>
struct StripWeights {
    const Group* groups;
    int64_t num_groups;
};

// The multiple of a group's sum of q at which dot products begin, so that they end as those of codes or, if there is a
// zero, of codes less that.
template <class Group>
constexpr int32_t start_of(int32_t zero) {
    return SHIFT<Group::BITS> - (Group::SCALES == Scales::ZERO ? zero : 0);
}

inline void fetch_ahead(const void* group, size_t bytes) {
    const char* ahead = static_cast<const char*>(group) + AHEAD * bytes;
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(ahead + i);
}

// Rows of x times a strip -> sums, whose rows are PANEL apart.
template <int ROWS, class Group>
void multiply_strip(const StripWeights<Group>& weights, const Int8Rows& x, float* sums) {
    constexpr int BITS = Group::BITS;
    constexpr bool FROM_ZERO = SHIFT<BITS> == 0 && Group::SCALES != Scales::ZERO;
    Vec sum[ROWS][STRIP_VECS] = {};
    for (int64_t g = 0; g < weights.num_groups; g++) {
        const auto& group = weights.groups[g];
        fetch_ahead(&group, sizeof group);
        IntVec dots[ROWS][STRIP_VECS];
        for (int r = 0; r < ROWS; r++)
            for (auto& dot : dots[r]) dot = IntVec{} + (FROM_ZERO ? 0 : x.start[g * x.stride + r]);
        for (int j = 0; j < Group::NUM_WORDS; j++)
            for (int v = 0; v < STRIP_VECS; v++) {
                const BitsVec words = load(group.words[j] + v * LANES);
                const auto first = prepare<BITS>(BITS == 8 ? words : words & LOWER_HALVES);
                const auto second = prepare<4>(words >> 4 & LOWER_HALVES);  // of 4 bits only
                for (int r = 0; r < ROWS; r++) {
                    const int8_t* codes = x.codes + r * x.inputs + g * GROUP + 4 * j;
                    dots[r][v] = add_dot(dots[r][v], first, four_at(codes));
                    if constexpr (BITS == 4) dots[r][v] = add_dot(dots[r][v], second, four_at(codes + GROUP / 2));
                }
            }
        for (int v = 0; v < STRIP_VECS; v++) {
            const GroupScales<Group::SCALES> scales(group.scales, v);
            for (int r = 0; r < ROWS; r++) sum[r][v] = scales.add(sum[r][v], dots[r][v], x, g * x.stride + r);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < STRIP_VECS; v++) store(sums + r * PANEL + v * LANES, sum[r][v]);
}
