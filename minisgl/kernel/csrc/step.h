// What a step does before and after its layers: tokens that the host does not know yet, vectors of tokens, turns of
// positions, the best token of greedy rows, and rows that hold what is no number.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "parallel.h"
#include "vector.h"

inline float to_float(float x) { return x; }

// Cells of the page table [R, P] that have changed, where rows [U] is not -1; then input_ids [T] at last [B] become
// prev_tokens at prev_rows [B], where that is not -1, and 0 for a token below 0.
inline void write_changes(int32_t* page_table, int64_t row_len, const int32_t* rows, const int32_t* cols,
                          const int32_t* pages, int64_t num_cells, int32_t* input_ids, const int32_t* last,
                          const int32_t* prev_rows, const int32_t* prev_tokens, int64_t num_rows) {
    for (int64_t i = 0; i < num_cells; i++)
        if (rows[i] >= 0) page_table[rows[i] * row_len + cols[i]] = pages[i];
    for (int64_t i = 0; i < num_rows; i++)
        if (prev_rows[i] >= 0) input_ids[last[i]] = std::max(prev_tokens[prev_rows[i]], 0);
}

// out [T, N]: rows ids [T] of codes [V, N] with a scale and an offset for each `group` of them, [V, N / group]. Rounded
// once, as when a tensor is made floats: a row that is looked up is the one that would have been loaded.
template <class T>
void look_up(const uint8_t* codes, const float* scale, const float* offset, const int32_t* ids, int64_t tokens,
             int64_t n, int64_t group, T* out, int threads) {
    parallel_for(tokens, tokens * n, threads, [=](int64_t t) {
        for (int64_t i = 0; i < n; i += LANES) {
            const int64_t left = std::min<int64_t>(n - i, LANES), at = ids[t] * n + i;
            float values[LANES] = {};
            for (int64_t j = 0; j < left; j++)
                values[j] = std::fma(static_cast<float>(codes[at + j]), scale[(at + j) / group], offset[(at + j) / group]);
            store(out + t * n + i, load(values), left);
        }
    });
}

// cos and sin [T, 2 * N] of positions [T] times frequencies [N], twice side by side; the first half of sin negated.
template <class T>
void rotary_turns(const float* frequencies, int64_t n, const int32_t* positions, int64_t tokens, T* cos, T* sin,
                  int threads) {
    constexpr int64_t COST = 16;  // of a cosine, in multiplications
    parallel_for(tokens, tokens * n * COST, threads, [=](int64_t t) {
        float cosines[LANES] = {}, sines[LANES] = {};
        for (int64_t begin = 0; begin < n; begin += LANES) {
            const int64_t left = std::min<int64_t>(n - begin, LANES), at = t * 2 * n + begin;
            for (int64_t i = 0; i < left; i++) {
                const float angle = static_cast<float>(positions[t]) * frequencies[begin + i];
                cosines[i] = std::cos(angle), sines[i] = std::sin(angle);
            }
            for (int64_t half = 0; half < 2; half++) store(cos + at + half * n, load(cosines), left);
            store(sin + at, -load(sines), left);
            store(sin + at + n, load(sines), left);
        }
    });
}

// Whether all n are numbers and finite.
template <class T>
inline bool is_finite(const T* x, int64_t n) {
    Vec zeros{};
    for (int64_t i = 0; i < n; i += LANES) zeros += load(x + i, n - i) * 0.0f;  // of infinity and NaN, NaN
    return sum(zeros) == 0.0f;
}

// tokens [B] become `broken` where the row of hidden [B, N], rows a stride apart, is not finite.
template <class T>
void mark_broken(const T* hidden, int64_t rows, int64_t n, int64_t stride, int32_t* tokens, int32_t broken) {
    for (int64_t row = 0; row < rows; row++)
        if (!is_finite(hidden + row * stride, n)) tokens[row] = broken;
}

// The greatest of n logits, of equal ones the first; -1 if it is not finite, or one of them is NaN.
template <class T>
inline int32_t best_token(const T* logits, int64_t n) {
    constexpr float LEAST = -std::numeric_limits<float>::infinity();
    constexpr int64_t BLOCK = 1024;  // found by its greatest, then looked through
    float best = LEAST;
    int64_t block_of_best = 0;
    IntVec all_numbers = IntVec{} - 1;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t end = std::min(n, begin + BLOCK);
        Vec most = splat(LEAST);
        int64_t i = begin;
        for (; i + LANES <= end; i += LANES) {
            const Vec x = load(logits + i);
            all_numbers &= x == x;
            most = max(x, most);
        }
        float greatest = max(most);
        for (; i < end; i++) {
            const float x = to_float(logits[i]);
            if (!(x == x)) return -1;
            greatest = std::max(greatest, x);
        }
        if (greatest > best) best = greatest, block_of_best = begin;
    }
    for (int lane = 0; lane < LANES; lane++)
        if (!all_numbers[lane]) return -1;
    if (best == LEAST || best == -LEAST) return -1;
    int64_t token = block_of_best;
    while (to_float(logits[token]) != best) token++;
    return token;
}

// tokens [B], the best of each row of logits [B, V], rows a stride apart.
template <class T>
void best_tokens(const T* logits, int64_t rows, int64_t n, int64_t stride, int32_t* tokens, int threads) {
    parallel_for(rows, rows * n, threads, [=](int64_t row) { tokens[row] = best_token(logits + row * stride, n); });
}
