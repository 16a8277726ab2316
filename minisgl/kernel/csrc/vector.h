// Float vectors as wide as the processor's registers, by the vector extension of GCC and Clang.
//
// Kernels compute in float32; load and store convert from and to the dtype in memory, float or bfloat16. Both take how
// many elements are left, so that one loop handles any size:
//
//     for (int64_t i = 0; i < n; i += LANES) store(out + i, load(x + i, n - i) * 2, n - i);

#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef int32_t IntVec __attribute__((vector_size(4 * LANES)));
typedef uint32_t BitsVec __attribute__((vector_size(4 * LANES)));
typedef uint16_t HalfBitsVec __attribute__((vector_size(2 * LANES)));

struct bfloat16 {
    uint16_t bits;  // the upper half of a float32
};

struct float16 {
    uint16_t bits;  // of IEEE 754's binary16; only loaded
};

inline float to_float(bfloat16 x) {
    const uint32_t bits = uint32_t{x.bits} << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline Vec splat(float x) { return x - Vec{}; }  // less 0, which compilers drop; to add it would turn -0 into 0

inline Vec max(Vec a, Vec b) { return a > b ? a : b; }

// ---- memory

inline Vec load(const float* from) {
    Vec x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline Vec load(const bfloat16* from) {
    HalfBitsVec bits;
    std::memcpy(&bits, from, sizeof bits);
#if defined(__AVX512F__)
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)bits), 16);  // GCC would make two halves of it
#else
    return (Vec)(__builtin_convertvector(bits, BitsVec) << 16);
#endif
}

inline Vec load(const float16* from) {
    HalfBitsVec half;
    std::memcpy(&half, from, sizeof half);
#if defined(__AVX512F__)
    return (Vec)_mm512_cvtph_ps((__m256i)half);
#elif defined(__F16C__)
    return (Vec)_mm256_cvtph_ps((__m128i)half);
#else
    const BitsVec bits = __builtin_convertvector(half, BitsVec), shifted = (bits & 0x7fff) << 13;
    const BitsVec finite = (BitsVec)((Vec)shifted * 5.192296858534828e33f);  // 2^112, the difference of the exponents
    const BitsVec magnitude = (bits & 0x7c00) == 0x7c00 ? shifted | 0x7f800000 : finite;
    return (Vec)(magnitude | (bits & 0x8000) << 16);
#endif
}

inline BitsVec load(const uint32_t* from) {
    BitsVec bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
}

inline IntVec load(const int32_t* from) {
    IntVec x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline void store(float* to, Vec x) { std::memcpy(to, &x, sizeof x); }

inline void store(uint32_t* to, BitsVec x) { std::memcpy(to, &x, sizeof x); }

// Rounds to the nearest, ties to even; NaN stays NaN; what is less than 2^-126 may become 0.
inline void store(bfloat16* to, Vec x) {
#if defined(__AVX512BF16__)
    const __m256bh upper = _mm512_cvtneps_pbh((__m512)x);
#else
    const BitsVec bits = (BitsVec)x, nan = BitsVec{} + 0x7fc0;
    const BitsVec rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const HalfBitsVec upper = __builtin_convertvector(x == x ? rounded : nan, HalfBitsVec);
#endif
    std::memcpy(to, &upper, sizeof upper);
}

// The halves of lane i: `lower[i]` and `upper[i]`, rounded like that.
inline void store_pairs(uint32_t* to, Vec lower, Vec upper) {
#if defined(__AVX512BF16__)
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                                           23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh((__m512)upper, (__m512)lower);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, rounded));
#else
    bfloat16 halves[2][LANES];
    store(halves[0], lower);
    store(halves[1], upper);
    for (int i = 0; i < LANES; i++) to[i] = halves[0][i].bits | uint32_t{halves[1][i].bits} << 16;
#endif
}

// The first `left` elements and zeros after them; nothing behind them is touched.
template <class T>
inline Vec load(const T* from, int64_t left) {
    if (left >= LANES) return load(from);
    T padded[LANES] = {};
    std::memcpy(padded, from, left * sizeof(T));
    return load(padded);
}

template <class T>
inline void store(T* to, Vec x, int64_t left) {
    if (left >= LANES) return store(to, x);
    T padded[LANES];
    store(padded, x);
    std::memcpy(to, padded, left * sizeof(T));
}

// ---- across lanes

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, IntVec{__VA_ARGS__})
#endif

using Lanes = std::make_integer_sequence<int, LANES>;

// Where bit STEP of a lane's number is clear, lanes i and i ^ STEP of `a` added; else those of `b`.
template <int STEP, int... I>
inline Vec add_neighbours(Vec a, Vec b, std::integer_sequence<int, I...>) {
    const Vec own = SHUFFLE(a, b, (I & STEP ? LANES + I : I)...);
    const Vec other = SHUFFLE(a, b, (I & STEP ? LANES + (I ^ STEP) : I ^ STEP)...);
    return own + other;
}

// Lane i, for i < COUNT: the sum of COUNT neighbouring lanes of x[i]; with COUNT == LANES, of all its lanes.
template <int COUNT = LANES>
inline Vec sum_each(const Vec* x) {
    if constexpr (COUNT == 1) return *x;
    else return add_neighbours<COUNT / 2>(sum_each<COUNT / 2>(x), sum_each<COUNT / 2>(x + COUNT / 2), Lanes{});
}

template <int STEP = LANES / 2>
inline float sum(Vec x) {
    if constexpr (STEP == 0) return x[0];
    else return sum<STEP / 2>(add_neighbours<STEP>(x, x, Lanes{}));
}

inline float max(Vec x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}

// ---- functions

// e^x, within 3e-7 of it; under -87 it is about 1e-38, which is 0 beside 1, and over 88.8, at some levels from 2^127.5 on, infinity.
// NaN stays NaN. Polynomial: Cephes' expf.
inline Vec exp(Vec x) {
#if defined(__AVX512F__)
    x = (Vec)_mm512_min_ps((__m512)splat(89.0f), (__m512)_mm512_max_ps((__m512)splat(-87.0f), (__m512)x));
    const Vec n = (Vec)_mm512_roundscale_ps((__m512)(x * 1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    x = x < -87.0f ? splat(-87.0f) : x;
    x = x > 88.5f ? splat(88.5f) : x;  // whose exponent is infinity's
    constexpr float ROUNDER = 12582912.0f;  // 1.5 * 2^23: adding it leaves no room for a fraction
    const Vec n = (x * 1.44269504f + ROUNDER) - ROUNDER;
#endif
    const Vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Vec p = splat(1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        p = p * r + c;
#if defined(__AVX512F__)
    return (Vec)_mm512_scalef_ps((__m512)(p * r * r + r + 1.0f), (__m512)n);
#else
    const IntVec exponent = __builtin_convertvector(n, IntVec) + 127;
    return (p * r * r + r + 1.0f) * (Vec)(exponent << 23);
#endif
}
