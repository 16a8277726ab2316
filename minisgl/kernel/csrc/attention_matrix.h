// Attention of a few queries to one chunk by Intel's matrix units (AMX), in bfloat16.
//
// Their sums differ from those of dot products by vectors in the last bits, so where they are, all attention in
// bfloat16 is theirs: a decode's too, though it fills a few of a tile's rows only. Which operand is the left one makes
// no difference to the bits. Weights are rounded to bfloat16 for the sum of values; their own sum is not.
//
// Shape letters: D head dim.

#pragma once

#include "attention_chunk.h"
#include "attention_words.h"

#if defined(HAS_MATRIX_UNITS)

// As VectorBlocks.
class MatrixBlocks {
public:
    static constexpr int64_t BLOCK = 16, TILE_QUERIES = 256;

    void start_tile(int64_t num_queries, int64_t of_head, int64_t dim) {
        dim_ = dim;
        steps_ = (dim + STEP - 1) / STEP;
        is_narrow_ = of_head <= BLOCK;
        queries_.assign((num_queries + BLOCK) * steps_ * STEP, bfloat16{});  // the last block may be read in full
        keys_.resize(KEY_BLOCKS * steps_);
        columns_.resize(steps_);
        packed_ = -1;
        values_.resize(KEY_STEPS * steps_ * 2);
        sums_.resize(BLOCK * steps_ * STEP);
        configure_attention(std::min<int64_t>(of_head, BLOCK));
    }
    void end_tile() { _tile_release(); }

    void set_query(int64_t j, const bfloat16* from) {
        std::copy_n(from, dim_, queries_.data() + j * steps_ * STEP);
    }

    void start_chunk(const bfloat16* keys, const bfloat16* values, const Chunk& chunk, const Chunk& next) {
        chunk_ = &chunk, head_ = keys, next_ = &next;
        for (int64_t block = chunk.begin / BLOCK; block * BLOCK < chunk.end && !is_narrow_; block++)
            pack_keys(keys, block);
        for (int64_t step = chunk.begin / STEP; step * STEP < chunk.end; step++) pack_values(values, step);
    }

    void attend(int64_t first, int64_t count, const Seen* seen, const Weighing& weighing, float* states) {
        alignas(64) float scores[BLOCK * CHUNK];
        alignas(64) bfloat16 weights[BLOCK * CHUNK];
        if (is_narrow_) score_by_key(first, count, scores);
        else score_by_query(queries_.data() + first * steps_ * STEP, scores);
        const int64_t size = dim_ + STATE_TAIL;
        for (int64_t j = 0; j < count; j++) {
            const float scale = weighing.hide_and_cap(scores + j * CHUNK, *chunk_, seen[j]);
            weigh_rounded(scores + j * CHUNK, scale, weights + j * CHUNK, states + j * size + dim_);
        }
        add_values(weights);
        for (int64_t j = 0; j < count; j++) std::copy_n(sums_.data() + j * steps_ * STEP, dim_, states + j * size);
    }

private:
    static constexpr int64_t STEP = 32;  // bfloat16 of a tile's row
    static constexpr int64_t KEY_BLOCKS = CHUNK / BLOCK, KEY_STEPS = CHUNK / STEP;

    // 32 elements of one key or value from `d` on; zeros after the head, and for what is not of the chunk.
    __m512i read(const bfloat16* head, int64_t t, int64_t d) const {
        if (t < chunk_->begin || t >= chunk_->end) return _mm512_setzero_si512();
        const int64_t left = dim_ - d;
        const bfloat16* from = head + chunk_->slots[t] + d;
        if (left >= STEP) return _mm512_loadu_si512(from);
        return _mm512_maskz_loadu_epi16((__mmask32{1} << left) - 1, from);
    }

    // 16 keys become columns: row r has their words number r.
    void pack_keys(const bfloat16* head, int64_t block) {
        for (int64_t s = 0; s < steps_; s++) {
            Vec words[16];
            for (int64_t t = 0; t < BLOCK; t++) {
                if (s == 0) prefetch(head, dim_, *next_, block * BLOCK + t);
                words[t] = (Vec)read(head, block * BLOCK + t, s * STEP);
            }
            transpose(words);
            Words& tile = keys_[block * steps_ + s];
            for (int64_t r = 0; r < 16; r++) store((float*)tile.rows[r], words[r]);
        }
    }

    // Row r has the values of tokens 2r and 2r + 1, element by element, 16 of them a tile.
    void pack_values(const bfloat16* head, int64_t step) {
        const __m512i lower = interleaving(0), upper = interleaving(16);
        for (int64_t r = 0; r < 16; r++) {
            const int64_t t = step * STEP + 2 * r;
            prefetch(head, dim_, *next_, t);
            prefetch(head, dim_, *next_, t + 1);
            for (int64_t s = 0; s < steps_; s++) {
                const __m512i even = read(head, t, s * STEP), odd = read(head, t + 1, s * STEP);
                Words* tiles = &values_[(step * steps_ + s) * 2];
                _mm512_store_si512(tiles[0].rows[r], _mm512_permutex2var_epi16(even, lower, odd));
                _mm512_store_si512(tiles[1].rows[r], _mm512_permutex2var_epi16(even, upper, odd));
            }
        }
    }

    // Few queries: keys are the rows as they lie in the pool, queries the columns.
    void score_by_key(int64_t first, int64_t count, float* scores) {
        alignas(64) float by_key[CHUNK * BLOCK];
        pack_queries(first);
        for (int64_t t = chunk_->begin / BLOCK * BLOCK; t < chunk_->end; t += BLOCK) {
            const bool in_row = dim_ % STEP == 0 && is_run(t);
            _tile_zero(2);
            for (int64_t s = 0; s < steps_; s++) {
                if (in_row) _tile_loadd(3, head_ + chunk_->slots[t] + s * STEP, slot_stride(t) * sizeof(bfloat16));
                else {
                    for (int64_t r = 0; r < BLOCK; r++) _mm512_store_si512(rows_.rows[r], read(head_, t + r, s * STEP));
                    must_be_in_memory(&rows_);
                    _tile_loadd(3, rows_.rows, 64);
                }
                _tile_loadd(5, columns_[s].rows, 64);
                _tile_dpbf16ps(2, 3, 5);
            }
            for (int64_t r = 0; r < BLOCK; r++) prefetch(head_, dim_, *next_, t + r);
            _tile_stored(2, by_key + t * BLOCK, BLOCK * sizeof(float));
        }
        must_be_in_memory(by_key);
        const __m512i columns = _mm512_slli_epi32((__m512i)lane_numbers(Lanes{}), 4);
        for (int64_t j = 0; j < count; j++)
            for (int64_t t = chunk_->begin / BLOCK * BLOCK; t < chunk_->end; t += BLOCK)
                store(scores + j * CHUNK + t, (Vec)_mm512_i32gather_ps(columns, by_key + t * BLOCK + j, 4));
    }

    int64_t slot_stride(int64_t t) const { return chunk_->slots[t + 1] - chunk_->slots[t]; }

    // Whether keys t to t + 15 are of the chunk and lie evenly spaced.
    bool is_run(int64_t t) const {
        if (t < chunk_->begin || t + BLOCK > chunk_->end) return false;
        for (int64_t i = 1; i + 1 < BLOCK; i++)
            if (slot_stride(t + i) != slot_stride(t)) return false;
        return true;
    }

    // Queries from `first` on become columns, once a head.
    void pack_queries(int64_t first) {
        if (packed_ == first) return;
        for (int64_t s = 0; s < steps_; s++) {
            Vec words[16];
            for (int64_t j = 0; j < BLOCK; j++)
                words[j] = (Vec)_mm512_loadu_si512(queries_.data() + ((first + j) * steps_ + s) * STEP);
            transpose(words);
            for (int64_t r = 0; r < 16; r++) store((float*)columns_[s].rows[r], words[r]);
        }
        must_be_in_memory(columns_.data());
        packed_ = first;
    }

    // Many queries: they are the rows, keys the columns.
    void score_by_query(const bfloat16* queries, float* scores) const {
        must_be_in_memory(queries);
        must_be_in_memory(keys_.data());
        const Words* keys = keys_.data();
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t s = 0; s < steps_; s++) {
            const Words* of_step = keys + s;
            _tile_loadd(4, queries + s * STEP, steps_ * STEP * sizeof(bfloat16));
            // Blocks that are not of the chunk hold what was there before, and their scores are not read.
            _tile_loadd(5, of_step[0 * steps_].rows, 64);
            _tile_dpbf16ps(0, 4, 5);
            _tile_loadd(6, of_step[1 * steps_].rows, 64);
            _tile_dpbf16ps(1, 4, 6);
            _tile_loadd(5, of_step[2 * steps_].rows, 64);
            _tile_dpbf16ps(2, 4, 5);
            _tile_loadd(6, of_step[3 * steps_].rows, 64);
            _tile_dpbf16ps(3, 4, 6);
        }
        _tile_stored(0, scores, CHUNK * sizeof(float));
        _tile_stored(1, scores + BLOCK, CHUNK * sizeof(float));
        _tile_stored(2, scores + 2 * BLOCK, CHUNK * sizeof(float));
        _tile_stored(3, scores + 3 * BLOCK, CHUNK * sizeof(float));
    }

    // Scores become weights e^(scale * (score - greatest)), as bfloat16, and 0 for NOTHING and up to a whole step. They
    // are within 3e-6 of it before they are rounded. tail: see `weigh`.
    void weigh_rounded(const float* scores, float scale, bfloat16* weights, float* tail) const {
        Vec most = splat(NOTHING);
        for (int64_t t = chunk_->first_vector(); t < chunk_->end; t += LANES) most = max(load(scores + t), most);
        const float top = greatest(most);
        const Vec log2_scale = splat(scale * 1.44269504f);
        Vec sums = {};
        const auto weight = [&](int64_t t) {
            if (t < chunk_->first_vector() || t >= chunk_->end) return Vec{};
            const Vec score = load(scores + t), x = (score - top) * log2_scale;
            const Vec n = (Vec)_mm512_roundscale_ps((__m512)x, 0), f = x - n;
            Vec p = splat(1.3333558e-3f);
            for (float c : {9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f}) p = p * f + c;
            const __mmask16 is_seen = _mm512_cmp_ps_mask((__m512)score, (__m512)splat(NOTHING), _CMP_NEQ_UQ);
            const Vec w = (Vec)_mm512_maskz_scalef_ps(is_seen, (__m512)p, (__m512)n);
            sums += w;
            return w;
        };
        for (int64_t t = chunk_->begin / STEP * STEP; t < chunk_->end; t += STEP) {
            const Vec lower = weight(t), upper = weight(t + LANES);
            _mm512_store_si512(weights + t, (__m512i)_mm512_cvtne2ps_pbh((__m512)upper, (__m512)lower));
        }
        tail[0] = top * scale;
        tail[1] = sum(sums);
    }

    void add_values(const bfloat16* weights) {
        must_be_in_memory(weights);
        must_be_in_memory(values_.data());
        const int64_t stride = steps_ * STEP * sizeof(float);
        for (int64_t s = 0; s < steps_; s++) {
            _tile_zero(0);
            _tile_zero(1);
            for (int64_t step = chunk_->begin / STEP; step * STEP < chunk_->end; step++) {
                const Words* values = &values_[(step * steps_ + s) * 2];
                _tile_loadd(4, weights + step * STEP, CHUNK * sizeof(bfloat16));
                _tile_loadd(5, values[0].rows, 64);
                _tile_dpbf16ps(0, 4, 5);
                _tile_loadd(6, values[1].rows, 64);
                _tile_dpbf16ps(1, 4, 6);
            }
            _tile_stored(0, sums_.data() + s * STEP, stride);
            _tile_stored(1, sums_.data() + s * STEP + 16, stride);
        }
    }

    int64_t dim_ = 0, steps_ = 0;
    std::vector<bfloat16> queries_;  // [queries, D up to whole steps]
    std::vector<Words> columns_;     // [steps of D], some queries
    std::vector<Words> keys_;        // [KEY_BLOCKS, steps of D]
    std::vector<Words> values_;      // [KEY_STEPS, steps of D, 2]
    std::vector<float> sums_;        // [BLOCK, D up to whole steps]
    Words rows_;
    int64_t packed_ = -1;  // the first of the queries in columns_
    bool is_narrow_ = false;
    const bfloat16* head_ = nullptr;
    const Chunk *chunk_ = nullptr, *next_ = nullptr;
};
#endif
