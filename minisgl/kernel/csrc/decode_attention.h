// Attention of one query a row to the row's keys and values where they lie in the pool, slot by slot.
//
// A row's context is cut into chunks of CHUNK tokens, counted from its own first. Each is attended to by itself, on
// whichever thread gets it, and the results are merged in order: what a row gets depends neither on the rows beside it
// nor on the number of threads. Source of the split: Flash-Decoding, pytorch.org/blog/flash-decoding.
//
// Shape letters: B rows, Hq query heads, Hkv KV heads, G = Hq / Hkv query heads that share one, D head dim.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dot.h"
#include "parallel.h"
#include "vector.h"

constexpr int64_t CHUNK = 64;              // tokens; a multiple of LANES
constexpr int WIDE = LANES == 16 ? 4 : 2;  // vectors of a value at once: with four queries, what fits in registers

template <class T>
struct Decode {
    const T* q;  // [B, Hq, D], rows q_stride elements apart
    int64_t q_stride;
    const T *k_cache, *v_cache;  // [slots, Hkv, D]
    const int32_t* slots;        // of row b: [indptr[b], indptr[b + 1]), at least one
    const int32_t* indptr;
    int64_t rows, qo_heads, kv_heads, dim;
    float scale, softcap;  // a product becomes softcap * tanh(scale * product / softcap); with softcap 0, scale * product
    T* o;        // [B, Hq, D]
    float* lse;  // [B, Hq]

    int64_t group() const { return qo_heads / kv_heads; }
    int64_t slot_size() const { return kv_heads * dim; }
    // One chunk's result: o [Hq, D], not yet divided by the sum of weights; greatest scores [Hq]; sums of weights [Hq].
    int64_t partial_size() const { return qo_heads * (dim + 2); }
};

// `count` slots of one row. Where a function takes a pointer to one, the next one (maybe empty) lies behind it.
struct Chunk {
    int64_t row;
    const int32_t* slots;
    int64_t count;
};

// Slots lie anywhere in memory, so the processor cannot guess which is wanted next. While token t of one chunk is
// worked on, that of the next is fetched into the second-level cache: the same head of it, so that memory never idles.
// Inlined by force, for GCC takes a function that does nothing but prefetch for one without effect, and drops it.
template <class T>
__attribute__((always_inline)) inline void prefetch(const Decode<T>& args, const T* cache, const Chunk& next,
                                                    int64_t t) {
    if (t >= next.count) return;
    const char* from = reinterpret_cast<const char*>(cache + next.slots[t] * args.slot_size());
    for (int64_t i = 0; i < args.dim * int64_t{sizeof(T)}; i += 64) __builtin_prefetch(from + i, 0, 2);
}

// Products of NQ queries with the chunk's keys -> scores [NQ, CHUNK], with -inf up to a whole vector. keys: slot 0's.
template <int NQ, class T>
inline void score_keys(const Decode<T>& args, const Chunk* chunk, const T* keys, const Queries<T>& queries,
                       float* scores) {
    for (int64_t first = 0; first < chunk->count; first += LANES) {
        const int64_t count = std::min<int64_t>(LANES, chunk->count - first);
        Vec products[NQ][LANES] = {};
        for (int64_t t = 0; t < count; t++) {
            prefetch(args, keys, chunk[1], first + t);
            Vec sums[NQ] = {};
            queries.multiply(keys + chunk->slots[first + t] * args.slot_size(), sums);
            for (int j = 0; j < NQ; j++) products[j][t] = sums[j];
        }
        for (int j = 0; j < NQ; j++) {
            float* of_query = scores + j * CHUNK + first;
            store(of_query, sum_each(products[j]));
            std::fill(of_query + count, of_query + LANES, -std::numeric_limits<float>::infinity());
        }
    }
}

// Products [count, up to a whole vector] become scores that are nowhere beyond softcap; -inf stays as it is.
// tanh(x) = 1 - 2 / (e^2x + 1).
inline void cap_scores(float* scores, int64_t count, float scale, float softcap) {
    const Vec nothing = splat(-std::numeric_limits<float>::infinity());
    for (int64_t t = 0; t < count; t += LANES) {
        const Vec products = load(scores + t);
        const Vec capped = softcap - 2 * softcap / (exp(products * (2 * scale / softcap)) + 1);
        store(scores + t, products == nothing ? nothing : capped);
    }
}

// Scores [count, up to a whole vector] become weights exp(scale * (score - greatest)).
inline void weigh(float* scores, int64_t count, float scale, float* greatest, float* total) {
    Vec most = load(scores);
    for (int64_t t = LANES; t < count; t += LANES) most = max(most, load(scores + t));
    const float top = max(most);
    Vec sums = {};
    for (int64_t t = 0; t < count; t += LANES) {
        const Vec weights = exp((load(scores + t) - top) * scale);
        store(scores + t, weights);
        sums += weights;
    }
    *greatest = top * scale;
    *total = sum(sums);
}

// NV vectors of the chunk's values, summed by NQ weights [NQ, CHUNK] -> o [NQ, D]. values: where they begin in slot 0;
// left: elements from there to the end of the head.
template <int NQ, int NV, class T>
inline void add_values(const Decode<T>& args, const Chunk* chunk, const T* values, int64_t left, const float* weights,
                       float* o) {
    Vec sums[NQ][NV] = {};
    for (int64_t t = 0; t < chunk->count; t++) {
        prefetch(args, values, chunk[1], t);
        const T* value = values + chunk->slots[t] * args.slot_size();
        for (int i = 0; i < NV; i++) {
            const Vec v = NV == 1 ? load(value, left) : load(value + i * LANES);
            for (int j = 0; j < NQ; j++) sums[j][i] += v * weights[j * CHUNK + t];
        }
    }
    for (int j = 0; j < NQ; j++)
        for (int i = 0; i < NV; i++) store(o + j * args.dim + i * LANES, sums[j][i], left - i * LANES);
}

// Query heads [first, first + NQ), which share a KV head, to one chunk.
template <int NQ, class T>
void attend_heads(const Decode<T>& args, const Chunk* chunk, int64_t first, Queries<T>& queries, float* partial) {
    alignas(64) float scores[NQ * CHUNK];
    const int64_t dim = args.dim, head = first / args.group();
    queries.read(args.q + chunk->row * args.q_stride + first * dim, NQ);
    score_keys<NQ>(args, chunk, args.k_cache + head * dim, queries, scores);

    float* greatest = partial + args.qo_heads * dim + first;
    if (args.softcap > 0)
        for (int j = 0; j < NQ; j++) cap_scores(scores + j * CHUNK, chunk->count, args.scale, args.softcap);
    const float scale = args.softcap > 0 ? 1 : args.scale;
    for (int j = 0; j < NQ; j++)
        weigh(scores + j * CHUNK, chunk->count, scale, greatest + j, greatest + args.qo_heads + j);

    const T* values = args.v_cache + head * dim;
    float* o = partial + first * dim;
    int64_t d = 0;
    for (; d + WIDE * LANES <= dim; d += WIDE * LANES)
        add_values<NQ, WIDE>(args, chunk, values + d, dim - d, scores, o + d);
    for (; d < dim; d += LANES) add_values<NQ, 1>(args, chunk, values + d, dim - d, scores, o + d);
}

// All heads to one chunk, up to four that share a KV head at a time: its keys and values are read once for them.
template <class T>
void attend_chunk(const Decode<T>& args, const Chunk* chunk, float* partial) {
    Queries<T> queries(args.dim);
    for (int64_t first = 0; first < args.qo_heads;) {
        const int64_t count = std::min<int64_t>(Queries<T>::MAX, args.group() - first % args.group());
        switch (count) {
            case 1: attend_heads<1>(args, chunk, first, queries, partial); break;
            case 2: attend_heads<2>(args, chunk, first, queries, partial); break;
            case 3: attend_heads<3>(args, chunk, first, queries, partial); break;
            default: attend_heads<4>(args, chunk, first, queries, partial);
        }
        first += count;
    }
}

// One head's o [D] and lse from the `count` partial results of its row, in order. Overwrites their greatest scores.
template <class T>
void merge_chunks(const Decode<T>& args, int64_t row, int64_t head, float* partials, int64_t count) {
    const int64_t size = args.partial_size();
    float* weights = partials + args.qo_heads * args.dim + head;
    float top = weights[0], total = 0;
    for (int64_t c = 1; c < count; c++) top = std::max(top, weights[c * size]);
    for (int64_t c = 0; c < count; c++) {
        weights[c * size] = std::exp(weights[c * size] - top);
        total += weights[c * size] * weights[c * size + args.qo_heads];
    }
    for (int64_t d = 0; d < args.dim; d += LANES) {
        const float* o = partials + head * args.dim + d;
        Vec sums = {};
        for (int64_t c = 0; c < count; c++) sums += load(o + c * size, args.dim - d) * weights[c * size];
        store(args.o + (row * args.qo_heads + head) * args.dim + d, sums / total, args.dim - d);
    }
    args.lse[row * args.qo_heads + head] = top + std::log(total);
}

template <class T>
void decode_attention(const Decode<T>& args, int threads) {
    std::vector<Chunk> chunks;
    std::vector<int64_t> first_chunk;  // of each row, and the end
    for (int64_t row = 0; row < args.rows; row++) {
        first_chunk.push_back(chunks.size());
        for (int64_t at = args.indptr[row]; at < args.indptr[row + 1]; at += CHUNK)
            chunks.push_back({row, args.slots + at, std::min<int64_t>(CHUNK, args.indptr[row + 1] - at)});
    }
    first_chunk.push_back(chunks.size());
    const int64_t num_chunks = chunks.size(), size = args.partial_size();
    chunks.push_back({0, nullptr, 0});

    static thread_local std::vector<float> kept;  // fresh memory would cost more in page faults than its use
    kept.resize(std::max<int64_t>(kept.size(), num_chunks * size));
    float* partials = kept.data();
    parallel_for(num_chunks, args.indptr[args.rows] * args.qo_heads * args.dim, threads,
                 [&](int64_t i) { attend_chunk(args, &chunks[i], partials + i * size); });
    parallel_for(args.rows, num_chunks * size, threads, [&](int64_t row) {
        const int64_t first = first_chunk[row], count = first_chunk[row + 1] - first;
        for (int64_t head = 0; head < args.qo_heads; head++)
            merge_chunks(args, row, head, partials + first * size, count);
    });
}
