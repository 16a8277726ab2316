// A weight matrix in codes of 4 or 8 bits, of which every GROUP inputs of an output share a scale and an offset:
//
//     weight = scale * code + offset        rounded once to float32, and then to bfloat16 if that is what is asked for
//
// which is how GGUF's quantised blocks are read, to the last bit. Outputs lie side by side in panels of PANEL; a panel's
// groups follow each other in memory, so that a thread reads one stream.

#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel.h"
#include "vector.h"

constexpr int PANEL = 32;            // outputs
constexpr int GROUP = 32;            // inputs
constexpr int VECS = PANEL / LANES;  // vectors across a panel
constexpr int AHEAD = 4;             // groups that are fetched in advance: the processor's own prefetcher ends at a page

// One group of a panel. Input k of the group is in word k / IN_WORD, at bit k % IN_WORD * BITS.
template <int BITS>
struct Group {
    static constexpr int IN_WORD = 32 / BITS;
    float scale[PANEL], offset[PANEL];
    uint32_t words[GROUP / IN_WORD][PANEL];
};

template <int BITS>
int64_t packed_bytes(int64_t outputs, int64_t inputs) {
    return (outputs + PANEL - 1) / PANEL * (inputs / GROUP) * sizeof(Group<BITS>);
}

// The first of four bytes is the lowest.
inline uint32_t word_at(const uint8_t* from) {
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

// As many codes as a word holds, the first one lowest.
template <int BITS>
inline uint32_t word_of(const uint8_t* codes) {
    if (BITS == 8) return word_at(codes);
    const uint64_t apart = word_at(codes) | uint64_t{word_at(codes + 4)} << 32;
    const uint64_t pairs = (apart | apart >> 4) & 0x00ff00ff00ff00ff, fours = (pairs | pairs >> 8) & 0x0000ffff0000ffff;
    return uint32_t(fours | fours >> 16);
}

// Rows [row, row + PANEL) of the codes, as far as there are any, in inputs [first, first + GROUP); the others are zeros.
template <int BITS>
void pack_group(const uint8_t* codes, const float* scale, const float* offset, int64_t outputs, int64_t inputs,
                int64_t row, int64_t first, Group<BITS>& group) {
    group = {};
    for (int64_t n = 0; n < std::min<int64_t>(PANEL, outputs - row); n++) {
        const int64_t at = (row + n) * inputs + first;
        group.scale[n] = scale[at / GROUP];
        group.offset[n] = offset[at / GROUP];
        for (int j = 0; j < GROUP / group.IN_WORD; j++) group.words[j][n] = word_of<BITS>(codes + at + j * group.IN_WORD);
    }
}

// codes [N, K] uint8; scale, offset [N, K / GROUP] -> groups [N / PANEL rounded up, K / GROUP].
template <int BITS>
void pack_groups(const uint8_t* codes, const float* scale, const float* offset, int64_t outputs, int64_t inputs,
                 Group<BITS>* groups, int threads) {
    const int64_t num_panels = (outputs + PANEL - 1) / PANEL, num_groups = inputs / GROUP;
    parallel_for(num_panels, outputs * inputs, threads, [&](int64_t panel) {
        for (int64_t g = 0; g < num_groups; g++)
            pack_group(codes, scale, offset, outputs, inputs, panel * PANEL, g * GROUP, groups[panel * num_groups + g]);
    });
}

// A group's weights, ready to be multiplied: float32, or pairs of bfloat16 of which the lower half is the first input.
template <class T>
struct alignas(64) Tile {
    using Word = std::conditional_t<std::is_same_v<T, float>, float, uint32_t>;
    static constexpr int IN_WORD = sizeof(Word) / sizeof(T);
    Word words[GROUP / IN_WORD][PANEL];
};

// use(k, weights) for every input k of the group, in order; weights: VECS vectors of float32.
template <int BITS, class Use>
__attribute__((always_inline)) inline void for_each_input(const Group<BITS>& group, Use use) {
    const char* ahead = reinterpret_cast<const char*>(&group + AHEAD);
    for (size_t i = 0; i < sizeof group; i += 64) __builtin_prefetch(ahead + i);
    Vec scale[VECS], offset[VECS];
    for (int v = 0; v < VECS; v++) {
        scale[v] = load(group.scale + v * LANES);
        offset[v] = load(group.offset + v * LANES);
    }
    for (int k = 0; k < GROUP; k++) {
        Vec weights[VECS];
        for (int v = 0; v < VECS; v++) {
            const BitsVec words = load(group.words[k / group.IN_WORD] + v * LANES);
            const BitsVec codes = (words >> k % group.IN_WORD * BITS) & ((1u << BITS) - 1);
            weights[v] = __builtin_convertvector((IntVec)codes, Vec) * scale[v] + offset[v];
        }
        use(k, weights);
    }
}

template <int BITS>
inline void expand(const Group<BITS>& group, Tile<float>& tile) {
    for_each_input(group, [&](int k, const Vec* weights) {
        for (int v = 0; v < VECS; v++) store(tile.words[k] + v * LANES, weights[v]);
    });
}

template <int BITS>
inline void expand(const Group<BITS>& group, Tile<bfloat16>& tile) {
    Vec even[VECS];
    for_each_input(group, [&](int k, const Vec* weights) {
        for (int v = 0; v < VECS; v++) {
            if (k % 2 == 0) even[v] = weights[v];
            else store_pairs(tile.words[k / 2] + v * LANES, even[v], weights[v]);
        }
    });
}
