// Dot products of bytes in int32, exact on every processor.
//
//     sums = add_dot(sums, prepare<BITS>(words), four)        each lane gains the four products of its word with `four`
//
// words: four unsigned codes a lane. four: four activations from -127 to 127. What `prepare` makes of codes of 8 bits may
// be 128 less than they are (SHIFT), so that instructions for signed bytes take them: the caller then adds SHIFT times the
// sum of the activations.

#pragma once

#include "vector.h"
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

constexpr uint32_t LOWER_HALVES = 0x0f0f0f0f, SIGNS = 0x80808080;

#if (defined(__AVX512F__) && defined(__AVX512VNNI__)) || (!defined(__AVX512F__) && defined(__AVXVNNI__))
// Unsigned by signed bytes, in one instruction.
template <int BITS>
constexpr int32_t SHIFT = 0;

template <int BITS>
inline BitsVec prepare(BitsVec words) { return words; }

inline IntVec add_dot(IntVec sums, BitsVec words, int32_t four) {
#if defined(__AVX512F__)
    return (IntVec)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)words, _mm512_set1_epi32(four));
#else
    return (IntVec)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)words, _mm256_set1_epi32(four));
#endif
}

#elif defined(__AVX2__) && !defined(__AVX512F__)
// maddubs adds pairs in 16 bits. They hold two products of a code below 16, or of a magnitude of at most 128.
template <int BITS>
constexpr int32_t SHIFT = BITS == 8 ? 128 : 0;

struct SignedCodes {
    __m256i codes, magnitudes;
};

template <int BITS>
inline auto prepare(BitsVec words) {
    if constexpr (BITS == 4) return words;
    else {
        const __m256i codes = (__m256i)(words ^ SIGNS);
        return SignedCodes{codes, _mm256_abs_epi8(codes)};
    }
}

inline IntVec add_pairs(IntVec sums, __m256i pairs) {
    return sums + (IntVec)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

inline IntVec add_dot(IntVec sums, BitsVec words, int32_t four) {
    return add_pairs(sums, _mm256_maddubs_epi16((__m256i)words, _mm256_set1_epi32(four)));
}

inline IntVec add_dot(IntVec sums, SignedCodes words, int32_t four) {
    const __m256i signs_moved = _mm256_sign_epi8(_mm256_set1_epi32(four), words.codes);
    return add_pairs(sums, _mm256_maddubs_epi16(words.magnitudes, signs_moved));
}

#elif defined(__ARM_FEATURE_DOTPROD)
template <int BITS>
constexpr int32_t SHIFT = BITS == 8 ? 128 : 0;

template <int BITS>
inline BitsVec prepare(BitsVec words) { return BITS == 8 ? words ^ SIGNS : words; }

inline IntVec add_dot(IntVec sums, BitsVec words, int32_t four) {
    return (IntVec)vdotq_s32((int32x4_t)sums, (int8x16_t)words, vreinterpretq_s8_s32(vdupq_n_s32(four)));
}

#else
template <int BITS>
constexpr int32_t SHIFT = 0;

template <int BITS>
inline BitsVec prepare(BitsVec words) { return words; }

inline IntVec add_dot(IntVec sums, BitsVec words, int32_t four) {
    for (int i = 0; i < 4; i++) sums += (IntVec)(words >> 8 * i & 255) * int32_t{int8_t(uint32_t(four) >> 8 * i)};
    return sums;
}
#endif

inline int32_t four_at(const int8_t* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof four);
    return four;
}
