// Attention of a batch: decodes, prompts behind cached prefixes, prefixes that several rows share; a call a layer.
//
// Work is cut into tiles, which threads take one by one, the longest first. How it is cut changes no result: see
// attention_state.h. Where there are few long tiles for the threads, they are cut along their keys, too, and joined
// afterwards. Source of that: Flash-Decoding, pytorch.org/blog/flash-decoding.

#pragma once

#include "attention_matrix.h"
#include "attention_tile.h"
#include "parallel.h"

constexpr int64_t PIECES = 4;               // for each thread, at least, of work that has one long tile
constexpr int64_t EVEN_PERCENT = 110;       // of an equal share: with no thread above it, no tile is cut
constexpr int64_t MAX_PARTIALS = 16 << 20;  // floats, of all that wait to be joined
enum RowFields { TABLE_ROW, FIRST_TOKEN, NUM_NEW, NUM_CACHED, OWN_BEGIN, ROW_FIELDS };
enum RangeFields { RANGE_TABLE_ROW, RANGE_BEGIN, RANGE_END, RANGE_FIRST, RANGE_COUNT, RANGE_LEVEL, RANGE_FIELDS };

inline int64_t cost(const QueryTile& tile, int64_t group) { return tile.num_chunks() * tile.num_queries(group); }

template <class T, class Blocks>
class BatchRunner {
public:
    BatchRunner(const Attention<T>& args, int threads) : args_(args), plan_(args.plan), threads_(threads) {}

    void run() {
        static thread_local KeptFloats kept_states;
        if (plan_.num_ranges) states_ = kept_states.take(num_tokens() * plan_.qo_heads * args_.state_size());
        const int64_t levels = plan_.num_ranges ? 1 + range(plan_.num_ranges - 1)[RANGE_LEVEL] : 0;
        for (int64_t level = 0; level < levels; level++) {
            std::vector<QueryTile> tiles;
            for (int64_t i = 0; i < plan_.num_ranges; i++)
                if (range(i)[RANGE_LEVEL] == level) add_range(range(i), tiles);
            run(tiles);
        }
        std::vector<QueryTile> tiles;
        for (int64_t i = 0; i < plan_.num_rows; i++) add_row(plan_.rows + i * ROW_FIELDS, tiles);
        run(tiles);
    }

private:
    static TileRunner<T, Blocks>& runner() {
        static thread_local TileRunner<T, Blocks> of_thread;
        return looked_up_once(of_thread);
    }

    const int32_t* range(int64_t i) const { return plan_.ranges + i * RANGE_FIELDS; }
    int64_t num_tokens() const {
        const int32_t* last = plan_.rows + (plan_.num_rows - 1) * ROW_FIELDS;
        return last[FIRST_TOKEN] + last[NUM_NEW];
    }
    int64_t tile_tokens() const { return std::max<int64_t>(1, Blocks::TILE_QUERIES / args_.group()); }

    void add_range(const int32_t* of, std::vector<QueryTile>& tiles) const {
        for (int64_t first = 0; first < of[RANGE_COUNT]; first += tile_tokens()) {
            QueryTile tile{};
            tile.table_row = of[RANGE_TABLE_ROW];
            tile.tokens = plan_.tokens + of[RANGE_FIRST] + first;
            tile.count = std::min<int64_t>(tile_tokens(), of[RANGE_COUNT] - first);
            tile.position = -1;
            tile.begin = of[RANGE_BEGIN], tile.end = of[RANGE_END];
            tile.before = of[RANGE_BEGIN] ? states_ : nullptr;
            tile.after = states_;
            add_heads(tile, tiles);
        }
    }

    void add_row(const int32_t* row, std::vector<QueryTile>& tiles) const {
        for (int64_t first = 0; first < row[NUM_NEW]; first += tile_tokens()) {
            QueryTile tile{};
            tile.table_row = row[TABLE_ROW];
            tile.first_token = row[FIRST_TOKEN] + first;
            tile.count = std::min<int64_t>(tile_tokens(), row[NUM_NEW] - first);
            tile.position = row[NUM_CACHED] + first;
            const int64_t first_seen = plan_.window ? tile.position - plan_.window + 1 : 0;
            tile.begin = std::max<int64_t>(row[OWN_BEGIN], first_seen), tile.end = tile.position + tile.count;
            tile.before = row[OWN_BEGIN] ? states_ : nullptr;
            if (row[NUM_NEW] > 1) add_heads(tile, tiles);
            else {  // all heads of a token lie side by side
                tile.heads = plan_.kv_heads;
                tiles.push_back(tile);
            }
        }
    }

    void add_heads(QueryTile tile, std::vector<QueryTile>& tiles) const {
        tile.heads = 1;
        for (; tile.head < plan_.kv_heads; tile.head++) tiles.push_back(tile);
    }

    // Tiles for which other threads would have to wait are cut into pieces, and put into `whole`.
    std::vector<QueryTile> cut(const std::vector<QueryTile>& tiles, std::vector<QueryTile>& whole) const {
        static thread_local KeptFloats kept_partials;
        const int64_t group = args_.group();
        int64_t total = 0, num_floats = 0;
        for (const QueryTile& tile : tiles) total += cost(tile, group);
        const int64_t most = is_even(tiles, total) ? total : total / (threads_ * PIECES);
        std::vector<QueryTile> pieces;
        for (const QueryTile& tile : tiles) {
            const int64_t floats = cost(tile, group) * args_.state_size();
            const bool is_long = cost(tile, group) > most && tile.num_chunks() > 1;
            const bool is_cut = is_long && num_floats + floats <= MAX_PARTIALS;
            (is_cut ? whole : pieces).push_back(tile);
            num_floats += is_cut ? floats : 0;
        }
        float* partials = kept_partials.take(num_floats);
        for (QueryTile& tile : whole) {
            tile.partials = partials;
            partials += cost(tile, group) * args_.state_size();
            const int64_t chunks = std::max<int64_t>(1, most / tile.num_queries(group));
            for (QueryTile piece = tile; piece.begin < tile.end; piece.begin = piece.end) {
                piece.end = std::min(tile.end, (piece.first_chunk() + chunks) * CHUNK);
                pieces.push_back(piece);
                piece.partials += cost(piece, group) * args_.state_size();
            }
        }
        return pieces;
    }

    // Whether threads that take whole tiles, the longest first, end at about the same time.
    bool is_even(const std::vector<QueryTile>& tiles, int64_t total) const {
        std::vector<int64_t> costs, loads(std::max(threads_, 1));
        for (const QueryTile& tile : tiles) costs.push_back(cost(tile, args_.group()));
        std::sort(costs.rbegin(), costs.rend());
        for (int64_t each : costs) *std::min_element(loads.begin(), loads.end()) += each;
        return *std::max_element(loads.begin(), loads.end()) * int64_t(loads.size()) * 100 <= total * EVEN_PERCENT;
    }

    int64_t work(const std::vector<QueryTile>& tiles) const {
        int64_t total = 0;
        for (const QueryTile& tile : tiles) total += cost(tile, args_.group());
        return total * CHUNK * plan_.dim;
    }

    void run(const std::vector<QueryTile>& tiles) const {
        const int64_t group = args_.group();
        const auto is_longer = [&](const QueryTile& a, const QueryTile& b) { return cost(a, group) > cost(b, group); };
        std::vector<QueryTile> whole, pieces = cut(tiles, whole);
        std::stable_sort(pieces.begin(), pieces.end(), is_longer);
        parallel_items(pieces.size(), work(pieces), threads_, [&](int64_t i) { runner().run(args_, pieces[i]); });
        parallel_items(whole.size(), work(whole), threads_, [&](int64_t i) { runner().join(args_, whole[i]); });
    }

    const Attention<T>& args_;
    const AttentionPlan& plan_;
    const int threads_;
    float* states_ = nullptr;
};

template <class T>
void attention(const Attention<T>& args, int threads) {
#if defined(HAS_MATRIX_UNITS)
    if constexpr (std::is_same_v<T, bfloat16>)
        if (may_use_matrix_units()) return BatchRunner<T, MatrixBlocks>(args, threads).run();
#endif
    BatchRunner<T, VectorBlocks<T>>(args, threads).run();
}
