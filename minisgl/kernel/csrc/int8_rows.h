// Activations in int8: every GROUP neighbours of a row share a scale.
//
//     q = x * (127 / max |x|), rounded to the nearest, ties to even        x is about scale * q, scale = max |x| / 127
//
// Each row by itself, so that it becomes the same whatever is beside it. An infinity or a NaN makes the scale one, and so
// whatever is multiplied by it.

#pragma once

#include <limits>
#include <vector>

#include "grouped_weight.h"
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

// M rows of K inputs. What belongs to group g of row r is at [g * stride + r], so that rows lie side by side.
struct Int8Rows {
    int64_t inputs, stride;
    const int8_t* codes;      // [M, K]
    const float* scale;       // [K / GROUP, stride]
    const float* scaled_sum;  // the scale times the sum of q
    const int32_t* start;     // where dot products begin, a multiple of the sum of q

    Int8Rows from(int64_t row) const {
        return {inputs, stride, codes + row * inputs, scale + row, scaled_sum + row, start + row};
    }
};

inline float as_float(int32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline int32_t max(IntVec x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_epi32((__m512i)x);
#else
    int32_t most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
#endif
}

inline int32_t sum(IntVec x) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)x);
#else
    int32_t total = 0;
    for (int i = 0; i < LANES; i++) total += x[i];
    return total;
#endif
}

// To the nearest, ties to even, for |x| < 2^22. Where there is a fused multiply-add, an
// instruction of its own, since adding to a product would round it once only.
inline IntVec rounded_to_int(Vec x) {
#if defined(__AVX512F__)
    return (IntVec)_mm512_cvtps_epi32((__m512)x);
#elif defined(__AVX__)
    return (IntVec)_mm256_cvtps_epi32((__m256)x);
#elif defined(__aarch64__)
    return (IntVec)vcvtnq_s32_f32((float32x4_t)x);
#else
    const Vec rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it leaves no room for a fraction
    return (IntVec)(x + rounder) - (IntVec)rounder;
#endif
}

using Bytes = int8_t __attribute__((vector_size(LANES)));

// Writes the codes of a group and returns their sum. They are zeros where the greatest number is, or is not finite, or is
// so small that 127 / greatest is not.
template <class T>
inline int32_t quantise_group(const T* x, int8_t* codes, float& scale) {
    constexpr int PARTS = GROUP / LANES;
    Vec parts[PARTS];
    IntVec most{}, sums{};  // of magnitudes as integers: in the order of the numbers, with NaN at the top
    for (int i = 0; i < PARTS; i++) {
        parts[i] = load(x + i * LANES);
        const IntVec magnitude = (IntVec)parts[i] & 0x7fffffff;
        most = most > magnitude ? most : magnitude;
    }
    const float greatest = as_float(max(most)), inverse = 127.0f / greatest;
    scale = greatest / 127.0f;
    if (!(inverse > 0 && inverse < std::numeric_limits<float>::infinity())) {
        std::memset(codes, 0, GROUP);
        return 0;
    }
    for (int i = 0; i < PARTS; i++) {
        const IntVec rounded = rounded_to_int(parts[i] * inverse);
        const Bytes narrow = __builtin_convertvector(rounded, Bytes);
        std::memcpy(codes + i * LANES, &narrow, sizeof narrow);
        sums += rounded;
    }
    return sum(sums);
}

// Memory for rows in int8, which is kept.
class Int8Buffer {
public:
    // x [M, K], dense. times: of the sums in `start`.
    template <class T>
    Int8Rows quantise(const T* x, int64_t rows, int64_t inputs, int32_t times, int threads) {
        const int64_t in_row = inputs / GROUP, num_groups = rows * in_row;
        if (int64_t(scale_.size()) < num_groups) {
            codes_.resize(num_groups * GROUP);
            scaled_sum_.resize(num_groups);
            start_.resize(num_groups);
            scale_.resize(num_groups);  // at last, for it tells how much there is; any of them may find no memory
        }
        parallel_for(rows, rows * inputs * 8, threads, [&](int64_t row) {
            for (int64_t g = 0; g < in_row; g++) {
                const int64_t from = row * inputs + g * GROUP, to = g * rows + row;
                const int32_t sum = quantise_group(x + from, codes_.data() + from, scale_[to]);
                scaled_sum_[to] = scale_[to] * sum;
                start_[to] = times * sum;
            }
        });
        return {inputs, rows, codes_.data(), scale_.data(), scaled_sum_.data(), start_.data()};
    }

private:
    std::vector<int8_t> codes_;
    std::vector<float> scale_, scaled_sum_;
    std::vector<int32_t> start_;
};
