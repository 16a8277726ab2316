// What a query has of the keys so far, and how the next ones join it.
//
// Keys are cut into chunks of CHUNK, counted from position 0 of the text, whoever asks. What a query gets of a chunk is
// the same to the bit in a decode, in a prompt and in a prefix that many rows share; and chunks join in order. So a
// token's result depends neither on the rows beside it, nor on where its prompt was cut, nor on the number of threads.
// Source of the state: FlashAttention, arXiv:2205.14135, section 3.1.
//
// Shape letters: D head dim.

#pragma once

#include <cmath>
#include <limits>

#include "vector.h"

constexpr int64_t CHUNK = 64;  // tokens; a multiple of LANES
constexpr float NOTHING = -std::numeric_limits<float>::infinity();

// A state lies in D + STATE_TAIL floats: values summed by their weights [D], then the greatest score, which has weight
// 1, then the sum of weights. Of no keys at all it is zeros and NOTHING.
constexpr int64_t STATE_TAIL = 2;

inline void clear_state(float* state, int64_t dim) {
    for (int64_t d = 0; d < dim; d++) state[d] = 0;
    state[dim] = NOTHING;
    state[dim + 1] = 0;
}

// These two are called, never inlined: else the compiler might round one copy of them otherwise than another.

// state += that of the next chunk.
__attribute__((noinline)) inline void join_chunk(float* state, const float* chunk, int64_t dim) {
    const float top = chunk[dim], total = chunk[dim + 1];
    if (total == 0) return;  // it has seen none of the chunk
    const float above = state[dim] - top;
    const Vec lesser = exp(splat(above > 0 ? -above : above)), one = splat(1);
    const Vec kept = above > 0 ? one : lesser, added = above > 0 ? lesser : one;
    for (int64_t d = 0; d < dim; d += LANES) {
        const int64_t left = dim - d;
        store(state + d, load(state + d, left) * kept + load(chunk + d, left) * added, left);
    }
    state[dim] = above > 0 ? state[dim] : top;
    state[dim + 1] = state[dim + 1] * kept[0] + total * added[0];
}

// The result [D]. sink: one more score, which has no value; or NOTHING.
template <class T>
__attribute__((noinline)) void finish_state(const float* state, int64_t dim, float sink, T* out) {
    const float top = state[dim], most = top > sink ? top : sink;
    const Vec kept = exp(splat(top - most));
    const float total = state[dim + 1] * kept[0] + (sink == NOTHING ? 0 : exp(splat(sink - most))[0]);
    const Vec scale = kept / total;
    for (int64_t d = 0; d < dim; d += LANES) store(out + d, load(state + d, dim - d) * scale, dim - d);
}
