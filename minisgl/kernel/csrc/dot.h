// Products of a few queries with one key, the queries kept in the form that multiplies fastest.

#pragma once

#include <vector>

#include "vector.h"
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

// How one key's elements are read, STEP at a time, and multiplied with those of a query. Sums are float32.
template <class T>
struct Dot {
    using Query = float;
    static constexpr int STEP = LANES;
    static Vec read(const T* key, int64_t left) { return load(key, left); }
    static Vec add(Vec sum, const float* query, Vec key) { return sum + load(query) * key; }
};

#if defined(__AVX512BF16__)
// Two products a lane at once, which lose nothing: a product of bfloat16 is exact in float32.
template <>
struct Dot<bfloat16> {
    using Query = bfloat16;
    static constexpr int STEP = 2 * LANES;
    static __m512i read(const bfloat16* key, int64_t left) {
        if (left >= STEP) return _mm512_loadu_si512(key);
        return _mm512_maskz_loadu_epi16((__mmask32{1} << left) - 1, key);
    }
    static Vec add(Vec sum, const bfloat16* query, __m512i key) {
        return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_loadu_si512(query), (__m512bh)key);
    }
};
#endif

// Up to MAX_QUERIES queries of D elements, with zeros up to a whole number of steps.
template <class T>
class Queries {
    using Query = typename Dot<T>::Query;
    static constexpr int STEP = Dot<T>::STEP;

public:
    static constexpr int MAX = 4;

    explicit Queries(int64_t dim) : dim_(dim), padded_((dim + STEP - 1) / STEP * STEP), elements_(MAX * padded_) {}

    // count rows of `from`, dense.
    void read(const T* from, int count) {
        for (int j = 0; j < count; j++)
            for (int64_t d = 0; d < dim_; d += LANES) {
                const int64_t left = dim_ - d;
                store(elements_.data() + j * padded_ + d, load(from + j * dim_ + d, left), left);
            }
    }

    // sums[j] += the products with `key` [D], still to be summed across lanes.
    template <int COUNT>
    void multiply(const T* key, Vec (&sums)[COUNT]) const {
        for (int64_t d = 0; d < dim_; d += STEP) {
            const auto part = Dot<T>::read(key + d, dim_ - d);
            for (int j = 0; j < COUNT; j++) sums[j] = Dot<T>::add(sums[j], elements_.data() + j * padded_ + d, part);
        }
    }

private:
    int64_t dim_, padded_;
    std::vector<Query> elements_;
};
