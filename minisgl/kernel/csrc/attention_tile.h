// Attention of a tile of queries: tokens that read the same pages, with all heads that share one or several KV heads.
//
// Shape letters: T tokens of the batch, Hq query heads, Hkv KV heads, G = Hq / Hkv query heads that share one, D head
// dim.

#pragma once

#include <memory>
#include <vector>

#include "attention_chunk.h"

// What all layers with the same window have in common, laid out as in kernel/cpu_attention.py. A row has ROW_FIELDS
// numbers, a range (of positions that several tokens read in the same slots) RANGE_FIELDS.
struct AttentionPlan {
    const int32_t* table;  // page numbers, rows table_stride apart
    int64_t table_stride, page_size;
    const int32_t* rows;
    int64_t num_rows;
    const int32_t* ranges;
    int64_t num_ranges;
    const int32_t* tokens;  // of the ranges, one after the other
    int64_t window;         // a token sees so many positions, its own included; 0: all
    int64_t qo_heads, kv_heads, dim;
    float scale, softcap;
};

template <class T>
struct Attention {
    const AttentionPlan& plan;
    const T* q;  // [T, Hq, D], tokens q_stride elements apart
    int64_t q_stride;
    const T *k_cache, *v_cache;  // [slots, Hkv, D]
    const float* sinks;          // [Hq] or null
    T* out;                      // [T, Hq, D]

    int64_t group() const { return plan.qo_heads / plan.kv_heads; }
    int64_t state_size() const { return plan.dim + STATE_TAIL; }
};

struct QueryTile {
    int64_t table_row;
    const int32_t* tokens;  // null: `count` from first_token on
    int64_t first_token, count;
    int64_t position;       // of the first token; the others follow. -1: all see all of [begin, end)
    int64_t begin, end;     // positions that any of them sees
    int64_t head, heads;    // of KV
    const float* before;  // [T, Hq, D + STATE_TAIL]: what tokens have of positions before `begin`; null: nothing
    float* after;         // where their states go, likewise; null: these are all, and results go out
    float* partials;      // where each chunk's states go, [chunks, queries, D + STATE_TAIL]; null: they are joined

    int64_t token(int64_t i) const { return tokens ? tokens[i] : first_token + i; }
    int64_t first_chunk() const { return begin / CHUNK; }
    int64_t end_chunk() const { return (end + CHUNK - 1) / CHUNK; }
    int64_t num_chunks() const { return end_chunk() - first_chunk(); }
    int64_t num_queries(int64_t group) const { return count * heads * group; }

    // Which keys of the chunk at `start` token i sees.
    Seen sees(int64_t i, int64_t start, int64_t window) const {
        if (position < 0) return {0, CHUNK};
        const int64_t last = position + i - start;
        return {window ? last - window + 1 : 0, last + 1};
    }
};

// Where positions [begin, end) of a row lie, all in one chunk.
inline void find_slots(const AttentionPlan& plan, int64_t table_row, int64_t begin, int64_t end, Chunk& chunk) {
    const int32_t* page = plan.table + table_row * plan.table_stride + begin / plan.page_size;
    const int64_t size = plan.kv_heads * plan.dim, start = begin / CHUNK * CHUNK;
    int64_t offset = begin % plan.page_size;
    chunk.begin = begin - start;
    chunk.end = end - start;
    for (int64_t t = chunk.begin; t < chunk.end; t++) {
        chunk.slots[t] = (*page * plan.page_size + offset) * size;
        if (++offset == plan.page_size) offset = 0, page++;
    }
}

// Attends with one tile after the other; each thread has its own. Blocks: what computes a few queries' states.
template <class T, class Blocks>
class TileRunner {
public:
    void run(const Attention<T>& args, const QueryTile& tile) {
        args_ = &args, tile_ = &tile, plan_ = &args.plan;
        of_head_ = tile.count * args.group();
        read_queries();
        if (!tile.partials) start_states();
        Chunk chunks[2];
        find_chunk(tile.first_chunk(), chunks[0]);
        for (int64_t i = 0; i < tile.num_chunks(); i++) {
            Chunk &chunk = chunks[i % 2], &next = chunks[(i + 1) % 2];
            find_chunk(tile.first_chunk() + i + 1, next);
            for (int64_t h = 0; h < tile.heads; h++) attend_chunk(i, h, chunk, next);
        }
        blocks_.end_tile();
        if (!tile.partials) end_states(states_.data());
    }

    // Joins the tile's partial states, in order, and finishes.
    void join(const Attention<T>& args, const QueryTile& tile) {
        args_ = &args, tile_ = &tile, plan_ = &args.plan;
        start_states();
        const int64_t queries = tile.num_queries(args.group()), size = args.state_size();
        for (int64_t i = 0; i < tile.num_chunks() * queries; i++)
            join_chunk(states_.data() + i % queries * size, tile.partials + i * size, plan_->dim);
        end_states(states_.data());
    }

private:
    // Query j of the tile is head g of KV head h of token i: j = (h * count + i) * G + g. body(j, token, query head).
    template <class Body>
    void for_each_query(Body body) const {
        const int64_t group = args_->group();
        int64_t j = 0;
        for (int64_t h = 0; h < tile_->heads; h++)
            for (int64_t i = 0; i < tile_->count; i++)
                for (int64_t g = 0; g < group; g++) body(j++, tile_->token(i), (tile_->head + h) * group + g);
    }

    void read_queries() {
        blocks_.start_tile(tile_->num_queries(args_->group()), of_head_, plan_->dim);
        for_each_query([&](int64_t j, int64_t token, int64_t head) {
            blocks_.set_query(j, args_->q + token * args_->q_stride + head * plan_->dim);
        });
    }

    int64_t place(int64_t token, int64_t head) const { return (token * plan_->qo_heads + head) * args_->state_size(); }

    void start_states() {
        const int64_t size = args_->state_size();
        states_.resize(tile_->num_queries(args_->group()) * size);
        for_each_query([&](int64_t j, int64_t token, int64_t head) {
            float* state = states_.data() + j * size;
            if (tile_->before) std::copy_n(tile_->before + place(token, head), size, state);
            else clear_state(state, plan_->dim);
        });
    }

    void end_states(const float* states) const {
        const int64_t size = args_->state_size();
        for_each_query([&](int64_t j, int64_t token, int64_t head) {
            const float* state = states + j * size;
            if (tile_->after) std::copy_n(state, size, tile_->after + place(token, head));
            else {
                T* out = args_->out + (token * plan_->qo_heads + head) * plan_->dim;
                finish_state(state, plan_->dim, args_->sinks ? args_->sinks[head] : NOTHING, out);
            }
        });
    }

    // One that begins behind the end is empty.
    void find_chunk(int64_t number, Chunk& chunk) const {
        const int64_t begin = std::max(tile_->begin, number * CHUNK), end = std::min(tile_->end, (number + 1) * CHUNK);
        if (begin < end) find_slots(*plan_, tile_->table_row, begin, end, chunk);
        else chunk.begin = chunk.end = 0;
    }

    // Chunk i of the tile, by KV head h of it.
    void attend_chunk(int64_t i, int64_t h, const Chunk& chunk, const Chunk& next) {
        const int64_t group = args_->group(), size = args_->state_size(), head = (tile_->head + h) * plan_->dim;
        const int64_t start = (tile_->first_chunk() + i) * CHUNK, first_query = h * of_head_;
        const Weighing weighing{plan_->scale, plan_->softcap};
        blocks_.start_chunk(args_->k_cache + head, args_->v_cache + head, chunk, next);
        block_.resize(Blocks::BLOCK * size);
        float* partials = tile_->partials ? tile_->partials + (i * tile_->heads + h) * of_head_ * size : nullptr;
        Seen seen[Blocks::BLOCK];
        int64_t token = 0, of_token = 0;  // of the next query, and its number among those of the token
        for (int64_t first = 0; first < of_head_; first += Blocks::BLOCK) {
            const int64_t count = std::min<int64_t>(Blocks::BLOCK, of_head_ - first);
            bool is_seen = false;
            for (int64_t j = 0; j < count; j++) {
                seen[j] = tile_->sees(token, start, plan_->window);
                if (++of_token == group) of_token = 0, token++;
                is_seen |= seen[j].begin < chunk.end && seen[j].end > chunk.begin;
            }
            float* states = partials ? partials + first * size : block_.data();
            if (is_seen) blocks_.attend(first_query + first, count, seen, weighing, states);
            else for (int64_t j = 0; j < count; j++) clear_state(states + j * size, plan_->dim);
            for (int64_t j = 0; j < count && !partials; j++)
                join_chunk(states_.data() + (first_query + first + j) * size, states + j * size, plan_->dim);
        }
    }

    const Attention<T>* args_ = nullptr;
    const AttentionPlan* plan_ = nullptr;
    const QueryTile* tile_ = nullptr;
    int64_t of_head_ = 0;  // queries of the tile that share a KV head
    Blocks blocks_;
    std::vector<float> states_, block_;
};
