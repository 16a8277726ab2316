// Attention of a few queries to the keys and values of one chunk, where they lie in the pool.
//
// Shape letters: D head dim.

#pragma once

#include <algorithm>

#include "attention_state.h"
#include "attention_products.h"

constexpr int WIDE = LANES == 16 ? 4 : 2;  // vectors of a value at once: with four queries, what fits in registers

// Keys [begin, end) of the CHUNK; slots: where the slot of each begins, in elements of the pool.
struct Chunk {
    int64_t begin = 0, end = 0;
    int64_t slots[CHUNK];

    int64_t first_vector() const { return begin / LANES * LANES; }
};

// Keys of a chunk that a query sees.
struct Seen {
    int64_t begin, end;
};

// ---- scores [CHUNK] of one query

template <int... I>
inline IntVec lane_numbers(std::integer_sequence<int, I...>) {
    return IntVec{I...};
}

// The greatest lane.
template <int STEP, int... I>
inline Vec max_of_neighbours(Vec x, std::integer_sequence<int, I...>) {
    return max(x, SHUFFLE(x, x, (I ^ STEP)...));
}
template <int STEP = LANES / 2>
inline float greatest(Vec x) {
    if constexpr (STEP == 0) return x[0];
    else return greatest<STEP / 2>(max_of_neighbours<STEP>(x, Lanes{}));
}

// Of a chunk's scores, those that the query does not see become NOTHING.
inline void hide(float* scores, const Chunk& chunk, Seen seen) {
    for (int64_t t = chunk.first_vector(); t < chunk.end; t += LANES) {
        if (t >= seen.begin && t + LANES <= seen.end) continue;
        const IntVec key = lane_numbers(Lanes{}) + int32_t(t);
        const IntVec is_seen = (key >= int32_t(seen.begin)) & (key < int32_t(seen.end));
        store(scores + t, is_seen ? load(scores + t) : splat(NOTHING));
    }
}

// Products become scores that are nowhere beyond softcap; NOTHING stays as it is. tanh(x) = 1 - 2 / (e^2x + 1).
inline void cap_scores(float* scores, const Chunk& chunk, float scale, float softcap) {
    for (int64_t t = chunk.first_vector(); t < chunk.end; t += LANES) {
        const Vec products = load(scores + t);
        const Vec capped = softcap - 2 * softcap / (exp(products * (2 * scale / softcap)) + 1);
        store(scores + t, products == splat(NOTHING) ? products : capped);
    }
}

// Scores become weights exp(scale * (score - greatest)), and 0 for NOTHING. tail: the end of the state, see there.
inline void weigh(float* scores, const Chunk& chunk, float scale, float* tail) {
    Vec most = splat(NOTHING);
    for (int64_t t = chunk.first_vector(); t < chunk.end; t += LANES) most = max(load(scores + t), most);
    const float top = greatest(most);
    Vec sums = {};
    for (int64_t t = chunk.first_vector(); t < chunk.end; t += LANES) {
        const Vec score = load(scores + t);
        const Vec weights = score == splat(NOTHING) ? Vec{} : exp((score - top) * scale);
        store(scores + t, weights);
        sums += weights;
    }
    tail[0] = top * scale;
    tail[1] = sum(sums);
}

// How scores become weights: a product of query and key becomes softcap * tanh(scale * product / softcap); with softcap
// 0, scale * product.
struct Weighing {
    float scale, softcap;

    // Products become scores; returns what those are still to be multiplied by.
    float hide_and_cap(float* products, const Chunk& chunk, Seen seen) const {
        hide(products, chunk, seen);
        if (softcap > 0) cap_scores(products, chunk, scale, softcap);
        return softcap > 0 ? 1 : scale;
    }
};

// ---- by vector instructions

// Slots lie anywhere in memory, so the processor cannot guess which is wanted next. While token t of one chunk is
// worked on, that of the next is fetched into the second-level cache: the same head of it, so that memory never idles.
// Inlined by force, for GCC takes a function that does nothing but prefetch for one without effect, and drops it.
template <class T>
__attribute__((always_inline)) inline void prefetch(const T* head, int64_t dim, const Chunk& next, int64_t t) {
    if (t < next.begin || t >= next.end) return;
    const char* from = reinterpret_cast<const char*>(head + next.slots[t]);
    for (int64_t i = 0; i < dim * int64_t{sizeof(T)}; i += 64) __builtin_prefetch(from + i, 0, 2);
}

// Queries of a tile that share a KV head, up to BLOCK at a time: keys and values are read once for them.
template <class T>
class VectorBlocks {
public:
    static constexpr int64_t BLOCK = 4, TILE_QUERIES = 128;

    // of_head: queries of the tile that share a KV head.
    void start_tile(int64_t num_queries, int64_t of_head, int64_t dim) {
        dim_ = dim;
        gathers_ = of_head > 2 * BLOCK;
        value_stride_ = (dim + LANES - 1) / LANES * LANES;
        if (gathers_) gathered_.resize(value_stride_ * CHUNK);
        words_ = (dim + Word<T>::ELEMENTS - 1) / Word<T>::ELEMENTS;
        stride_ = (words_ + LANES - 1) / LANES * LANES;
        queries_.resize(num_queries * stride_);
        keys_.resize(stride_ * CHUNK);
    }
    void end_tile() {}
    void set_query(int64_t j, const T* from) {
        for (int64_t w = 0; w < words_; w += LANES) store(queries_.data() + j * stride_ + w, read_words(from, w));
    }

    // keys, values: the head's in slot 0. next: the chunk after this one, maybe empty.
    void start_chunk(const T* keys, const T* values, const Chunk& chunk, const Chunk& next) {
        values_ = values, chunk_ = &chunk, next_ = &next;
        if (gathers_) gather_values();
        for (int64_t first = chunk.first_vector(); first < chunk.end; first += LANES) pack_keys(keys, first);
    }

    // States of the chunk alone for queries [first, first + count): count rows of D + STATE_TAIL.
    void attend(int64_t first, int64_t count, const Seen* seen, const Weighing& weighing, float* states) {
        switch (count) {
            case 1: attend<1>(first, seen, weighing, states); break;
            case 2: attend<2>(first, seen, weighing, states); break;
            case 3: attend<3>(first, seen, weighing, states); break;
            default: attend<4>(first, seen, weighing, states);
        }
        next_ = &NO_CHUNK;  // it is on its way
    }

private:
    inline static const Chunk NO_CHUNK{};

    template <int NQ>
    void attend(int64_t first, const Seen* seen, const Weighing& weighing, float* states) {
        alignas(64) float scores[NQ * CHUNK];
        const int64_t size = dim_ + STATE_TAIL;
        score_keys<NQ>(first, scores);
        for (int j = 0; j < NQ; j++) {
            const float scale = weighing.hide_and_cap(scores + j * CHUNK, *chunk_, seen[j]);
            weigh(scores + j * CHUNK, *chunk_, scale, states + j * size + dim_);
        }
        add_values<NQ>(scores, states);
    }

    // LANES words of a head from word w on; zeros after its end.
    Vec read_words(const T* head, int64_t w) const {
        return Word<T>::read(head + w * Word<T>::ELEMENTS, dim_ - w * Word<T>::ELEMENTS);
    }

    // LANES keys become columns; those that are not of the chunk are zeros.
    void pack_keys(const T* head, int64_t first) {
        for (int64_t w = 0; w < words_; w += LANES) {
            Vec words[LANES] = {};
            for (int64_t t = std::max(first, chunk_->begin); t < std::min(first + LANES, chunk_->end); t++) {
                if (w == 0) prefetch(head, dim_, *next_, t);
                words[t - first] = read_words(head + chunk_->slots[t], w);
            }
            transpose(words);
            for (int64_t i = 0; i < LANES; i++) store(keys_.data() + (w + i) * CHUNK + first, words[i]);
        }
    }

    // Many queries: values are found and widened once for all of them.
    void gather_values() {
        for (int64_t t = chunk_->begin; t < chunk_->end; t++) {
            prefetch(values_, dim_, *next_, t);
            const T* value = values_ + chunk_->slots[t];
            for (int64_t d = 0; d < dim_; d += LANES)
                store(gathered_.data() + t * value_stride_ + d, load(value + d, dim_ - d));
        }
    }

    template <int NQ>
    void score_keys(int64_t first_query, float* scores) const {
        int64_t t = chunk_->first_vector();
        for (; t + WIDE * LANES <= chunk_->end; t += WIDE * LANES) score_vectors<NQ, WIDE>(first_query, t, scores);
        for (; t < chunk_->end; t += LANES) score_vectors<NQ, 1>(first_query, t, scores);
    }

    // Products with NV vectors of keys from `first` on.
    template <int NQ, int NV>
    void score_vectors(int64_t first_query, int64_t first, float* scores) const {
        const float *keys = keys_.data() + first, *queries = queries_.data() + first_query * stride_;
        Vec sums[NQ][NV] = {};
        for (int64_t w = 0; w < words_; w++)
            for (int i = 0; i < NV; i++) {
                const Vec of_word = load(keys + w * CHUNK + i * LANES);
                for (int j = 0; j < NQ; j++) sums[j][i] = Word<T>::add(sums[j][i], of_word, queries[j * stride_ + w]);
            }
        for (int j = 0; j < NQ; j++)
            for (int i = 0; i < NV; i++) store(scores + j * CHUNK + first + i * LANES, sums[j][i]);
    }

    template <int NQ>
    void add_values(const float* weights, float* states) const {
        int64_t d = 0;
        for (; d + WIDE * LANES <= dim_; d += WIDE * LANES) add_values<NQ, WIDE>(d, weights, states);
        for (; d < dim_; d += LANES) add_values<NQ, 1>(d, weights, states);
    }

    // NV vectors of the chunk's values from d on, summed by weights [NQ, CHUNK].
    template <int NQ, int NV>
    void add_values(int64_t d, const float* weights, float* states) const {
        const int64_t left = dim_ - d;
        Vec sums[NQ][NV] = {};
        const auto add = [&](int64_t t, int i, Vec value) {
            for (int j = 0; j < NQ; j++) sums[j][i] += value * weights[j * CHUNK + t];
        };
        for (int64_t t = chunk_->begin; t < chunk_->end && gathers_; t++) {
            const float* value = gathered_.data() + t * value_stride_ + d;
            for (int i = 0; i < NV; i++) add(t, i, load(value + i * LANES));
        }
        for (int64_t t = chunk_->begin; t < chunk_->end && !gathers_; t++) {
            prefetch(values_ + d, std::min<int64_t>(left, NV * LANES), *next_, t);
            const T* value = values_ + d + chunk_->slots[t];
            for (int i = 0; i < NV; i++) add(t, i, NV == 1 ? load(value, left) : load(value + i * LANES));
        }
        for (int j = 0; j < NQ; j++)
            for (int i = 0; i < NV; i++)
                store(states + j * (dim_ + STATE_TAIL) + d + i * LANES, sums[j][i], left - i * LANES);
    }

    int64_t dim_ = 0, words_ = 0, stride_ = 0;  // of a head: elements, words, words up to whole vectors
    std::vector<float> queries_;                // [queries, stride_], words as they are
    std::vector<float> keys_;                   // [stride_, CHUNK]
    bool gathers_ = false;
    int64_t value_stride_ = 0;
    std::vector<float> gathered_;  // [CHUNK, value_stride_]
    const T* values_ = nullptr;
    const Chunk *chunk_ = nullptr, *next_ = &NO_CHUNK;
};
