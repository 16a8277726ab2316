// Products of queries with one key, the queries kept in the form that multiplies fastest.

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

// Queries of D elements, with zeros up to a whole number of steps.
template <class T>
class Queries {
    using Query = typename Dot<T>::Query;
    static constexpr int STEP = Dot<T>::STEP;

public:
    void resize(int64_t count, int64_t dim) {
        dim_ = dim;
        padded_ = (dim + STEP - 1) / STEP * STEP;
        elements_.assign(count * padded_, Query{});
    }

    // from [D] becomes query number j.
    void set(int64_t j, const T* from) {
        Query* to = elements_.data() + j * padded_;
        for (int64_t d = 0; d < dim_; d += LANES) store(to + d, load(from + d, dim_ - d), dim_ - d);
    }

    // sums[j] += the products of query first + j with `key` [D], still to be summed across lanes.
    template <int COUNT>
    void multiply(int64_t first, const T* key, Vec (&sums)[COUNT]) const {
        const Query* queries = elements_.data() + first * padded_;
        for (int64_t d = 0; d < dim_; d += STEP) {
            const auto part = Dot<T>::read(key + d, dim_ - d);
            for (int j = 0; j < COUNT; j++) sums[j] = Dot<T>::add(sums[j], queries + j * padded_ + d, part);
        }
    }

private:
    int64_t dim_ = 0, padded_ = 0;
    std::vector<Query> elements_;
};
