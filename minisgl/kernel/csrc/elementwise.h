// Norm, activation, rotary positions: one pass over the rows of a batch, computed in float32, rounded once at the end.
//
// Shape letters: T tokens, H heads, D head dim, N elements of a row. Strides count elements; the last dim is dense.

#pragma once

#include <cmath>

#include "parallel.h"
#include "vector.h"

// out[i] = x[i] / rms(x) * weight[i] over one row of N.
template <class T, class W>
inline void normalise(const T* x, const W* weight, T* out, int64_t n, float eps) {
    Vec squares{};
    for (int64_t i = 0; i < n; i += LANES) {
        const Vec v = load(x + i, n - i);
        squares += v * v;
    }
    const float scale = 1.0f / std::sqrt(sum(squares) / n + eps);
    for (int64_t i = 0; i < n; i += LANES) store(out + i, load(x + i, n - i) * scale * load(weight + i, n - i), n - i);
}

// x [T, H, N] with strides, weight [N] -> out [T, H, N] dense; every row of N by itself.
template <class T, class W>
void rms_norm(const T* x, int64_t tokens, int64_t heads, int64_t n, int64_t token_stride, int64_t head_stride,
              const W* weight, float eps, T* out, int threads) {
    parallel_for(tokens * heads, tokens * heads * n, threads, [=](int64_t row) {
        normalise(x + row / heads * token_stride + row % heads * head_stride, weight, out + row * n, n, eps);
    });
}

// residual [T, N] += x [T, N], rounded to T; then x becomes rms_norm of it. All dense.
template <class T, class W>
void add_rms_norm(T* x, T* residual, int64_t tokens, int64_t n, const W* weight, float eps, int threads) {
    parallel_for(tokens, tokens * n, threads, [=](int64_t row) {
        T *added = x + row * n, *sum = residual + row * n;
        for (int64_t i = 0; i < n; i += LANES) store(sum + i, load(sum + i, n - i) + load(added + i, n - i), n - i);
        normalise(sum, weight, added, n, eps);
    });
}

inline Vec silu(Vec x) { return x / (1.0f + exp(-x)); }

// x / 2 * (1 + tanh(y)) with y = sqrt(2 / pi) * (x + 0.044715 x^3), as x * sigmoid(2 y).
inline Vec gelu_tanh(Vec x) { return x / (1.0f + exp(-1.59576912f * x * (1.0f + 0.044715f * x * x))); }

// gate_up [T, 2 * N], dense -> out [T, N] = ACTIVATE(gate) * up.
template <Vec ACTIVATE(Vec), class T>
void activate_and_mul(const T* gate_up, int64_t tokens, int64_t n, T* out, int threads) {
    parallel_for(tokens, tokens * n * 4, threads, [=](int64_t row) {
        const T *gate = gate_up + row * 2 * n, *up = gate + n;
        for (int64_t i = 0; i < n; i += LANES) {
            store(out + row * n + i, ACTIVATE(load(gate + i, n - i)) * load(up + i, n - i), n - i);
        }
    });
}

// A head [D] turns in place by cos, sin [D], the first half of sin negated: (a, b) -> (a cos + b sin, b cos + a sin).
template <class T>
inline void turn(T* head, const T* cos, const T* sin, int64_t dim) {
    const int64_t half = dim / 2;
    T* second = head + half;
    for (int64_t i = 0; i < half; i += LANES) {
        const int64_t left = half - i;
        const Vec a = load(head + i, left), b = load(second + i, left);
        store(head + i, a * load(cos + i, left) + b * load(sin + i, left), left);
        store(second + i, b * load(cos + half + i, left) + a * load(sin + half + i, left), left);
    }
}

// The first H heads of every token of x [T, H or more, D], tokens a stride apart, turn in place. cos, sin [T, D].
template <class T>
void apply_rotary(T* x, int64_t tokens, int64_t heads, int64_t dim, int64_t token_stride, const T* cos, const T* sin,
                  int threads) {
    parallel_for(tokens * heads, tokens * heads * dim, threads, [=](int64_t row) {
        const int64_t token = row / heads;
        turn(x + token * token_stride + row % heads * dim, cos + token * dim, sin + token * dim, dim);
    });
}

// k, v [T, N], rows with strides -> rows slots [T] of the caches [slots, N], which are dense; -1: nowhere.
template <class T>
void store_cache(T* k_cache, T* v_cache, const int32_t* slots, int64_t tokens, int64_t n, const T* k, const T* v,
                 int64_t k_stride, int64_t v_stride, int threads) {
    parallel_for(tokens, tokens * n * 2, threads, [=](int64_t t) {
        if (slots[t] < 0) return;
        std::memcpy(k_cache + slots[t] * n, k + t * k_stride, n * sizeof(T));
        std::memcpy(v_cache + slots[t] * n, v + t * v_stride, n * sizeof(T));
    });
}

// Heads of queries, keys and values side by side, and where keys and values go.
template <class T>
struct Heads {
    T* qkv;  // [T, queries + 2 * keys, D], dense
    int64_t tokens, queries, keys, dim;
    const T *cos, *sin;  // [T, D]
    T *k_cache, *v_cache;
    const int32_t* slots;  // [T]
};

// Queries and keys are normalised, if q_weight and k_weight [D] are there, and turn, all in place; then keys and values
// are stored. To the bit what rms_norm, apply_rotary and store_cache do one by one.
template <class T, class W>
void rotate_and_store(const Heads<T>& heads, const W* q_weight, const W* k_weight, float eps, int threads) {
    const int64_t turning = heads.queries + heads.keys, all = turning + heads.keys, dim = heads.dim;
    parallel_for(heads.tokens, heads.tokens * all * dim, threads, [=](int64_t t) {
        T* of_token = heads.qkv + t * all * dim;
        for (int64_t h = 0; h < turning; h++) {
            T* head = of_token + h * dim;
            if (q_weight) normalise(head, h < heads.queries ? q_weight : k_weight, head, dim, eps);
            turn(head, heads.cos + t * dim, heads.sin + t * dim, dim);
        }
        if (heads.slots[t] < 0) return;
        const int64_t size = heads.keys * dim, at = heads.slots[t] * size;
        std::memcpy(heads.k_cache + at, of_token + heads.queries * dim, size * sizeof(T));
        std::memcpy(heads.v_cache + at, of_token + turning * dim, size * sizeof(T));
    });
}
