// A weight matrix in codes of 4 or 8 bits for activations in int8: what grouped_weight.h has, in an order in which four
// inputs of an output share a word, as instructions for dot products of bytes want them.
//
//     weight = scale * code + offset,   or   scale * (code - zero)   with one integer `zero` for the whole matrix
//
// Outputs lie side by side in strips of STRIP, two to a panel; a strip's groups of GROUP inputs follow each other in memory.

#pragma once

#include <algorithm>
#include <cstdint>

#include "grouped_weight.h"

constexpr int STRIP = 16;                  // outputs
constexpr int STRIP_VECS = STRIP / LANES;  // vectors across a strip

// How scales lie in memory: float16 with a zero for all, float16 with offsets, float32 with offsets.
enum class Scales : int32_t { ZERO, HALF, SINGLE };

template <Scales SCALES>
struct StripScales {
    using Number = std::conditional_t<SCALES == Scales::SINGLE, float, float16>;
    static constexpr int KINDS = SCALES == Scales::ZERO ? 1 : 2;
    Number of[KINDS][STRIP];  // scales and, if there are any, offsets
};

// One group of a strip. Of 8 bits: byte i of word j is the code of input 4 j + i. Of 4 bits: its lower half is that, its
// upper half the code of input GROUP / 2 + 4 j + i.
template <int BITS_, Scales SCALES_>
struct Strip {
    static constexpr int BITS = BITS_, NUM_WORDS = GROUP * BITS / 32;
    static constexpr Scales SCALES = SCALES_;
    uint32_t words[NUM_WORDS][STRIP];
    StripScales<SCALES> scales;
};

inline int64_t num_strips(int64_t outputs) { return (outputs + PANEL - 1) / PANEL * (PANEL / STRIP); }

template <class Group>
int64_t strip_bytes(int64_t outputs, int64_t inputs, const Group*) {
    return num_strips(outputs) * (inputs / GROUP) * sizeof(Group);
}

// Rows [row, row + STRIP) of the codes, as far as there are any, in inputs [first, first + GROUP); the others are zeros.
template <int BITS, Scales SCALES, class Number>
void pack_strip(const uint8_t* codes, const Number* const* scales, int64_t outputs, int64_t inputs, int64_t row,
                int64_t first, Strip<BITS, SCALES>& group) {
    group = {};
    for (int64_t n = 0; n < std::min<int64_t>(STRIP, outputs - row); n++) {
        const int64_t at = (row + n) * inputs + first;
        for (int i = 0; i < group.scales.KINDS; i++) group.scales.of[i][n] = scales[i][at / GROUP];
        for (int j = 0; j < group.NUM_WORDS; j++) {
            group.words[j][n] = word_at(codes + at + 4 * j);
            if (BITS == 4) group.words[j][n] |= word_at(codes + at + GROUP / 2 + 4 * j) << 4;
        }
    }
}

// codes [N, K] uint8; scale, offset [N, K / GROUP] of the type that is kept -> groups [strips of whole panels, K / GROUP].
template <int BITS, Scales SCALES>
void pack_strips(const uint8_t* codes, const void* scale, const void* offset, int64_t outputs, int64_t inputs,
                 Strip<BITS, SCALES>* groups, int threads) {
    using Number = typename StripScales<SCALES>::Number;
    const Number* scales[] = {static_cast<const Number*>(scale), static_cast<const Number*>(offset)};
    const int64_t num_groups = inputs / GROUP;
    parallel_for(num_strips(outputs), outputs * inputs, threads, [&](int64_t strip) {
        for (int64_t g = 0; g < num_groups; g++)
            pack_strip(codes, scales, outputs, inputs, strip * STRIP, g * GROUP, groups[strip * num_groups + g]);
    });
}
