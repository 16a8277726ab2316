// Rows in int8 times weights by Intel's matrix units: the integers of int8_product.h, and its float32 after them, so that
// a row is the same to the bit. For many rows.

#pragma once

#include <vector>

#include "int8_product.h"
#include "matrix_units.h"

#if defined(HAS_MATRIX_UNITS) && defined(__AMX_INT8__)
#define HAS_INT8_MATRIX_UNITS

// Sums are in tiles 0 and 1, rows of x in 2 and 3, weights in 4 and 5.
inline void configure_int8_tiles() {
    struct alignas(64) {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {STRIP * 4, STRIP * 4, GROUP, GROUP, STRIP * 4, STRIP * 4};
        uint8_t rows[16] = {STRIP, STRIP, STRIP, STRIP, GROUP / 4, GROUP / 4};
    } shapes;
    must_be_in_memory(&shapes);
    _tile_loadconfig(&shapes);
}

// The codes of a strip's groups with a byte each: where they are or, of 4 bits, in memory of their own, which is kept.
class StripBytes {
public:
    template <class Group>
    void expand(const StripWeights<Group>& weights) {
        if constexpr (Group::BITS == 8) {
            first_ = reinterpret_cast<const char*>(weights.groups);
            stride_ = sizeof(Group);
            return;
        }
        if (int64_t(own_.size()) < weights.num_groups) own_.resize(weights.num_groups);
        for (int64_t g = 0; g < weights.num_groups; g++) expand(weights.groups[g], own_[g]);
        first_ = reinterpret_cast<const char*>(own_.data());
        stride_ = sizeof(Codes);
        must_be_in_memory(first_);
    }

    const char* of(int64_t group) const { return first_ + group * stride_; }

private:
    struct alignas(64) Codes {
        uint32_t words[GROUP / 4][STRIP];
    };

    template <class Group>
    static void expand(const Group& group, Codes& codes) {
        fetch_ahead(&group, sizeof group);
        for (int j = 0; j < Group::NUM_WORDS; j++) {
            const BitsVec words = load(group.words[j]);
            store(codes.words[j], words & LOWER_HALVES);
            store(codes.words[j + GROUP / 8], words >> 4 & LOWER_HALVES);
        }
    }

    std::vector<Codes> own_;
    const char* first_ = nullptr;
    int64_t stride_ = 0;
};

// The dot products of STRIP rows in one group -> dots [STRIP, STRIP], by the tiles SUM, X and CODES. A macro, since these
// must be numerals.
#define DOTS_BY_TILES(SUM, X, CODES, bytes, x, group, dots)             \
    do {                                                                \
        _tile_zero(SUM);                                                \
        _tile_loadd(X, (x).codes + (group) * GROUP, (x).inputs);        \
        _tile_loadd(CODES, (bytes).of(group), STRIP * 4);               \
        _tile_dpbsud(SUM, X, CODES);                                    \
        _tile_stored(SUM, dots, STRIP * 4);                             \
        must_be_in_memory(dots);                                        \
    } while (false)

// The float32 part of one group.
template <class Group>
__attribute__((always_inline)) inline void add_dots(const StripScales<Group::SCALES>& group, const Int8Rows& x,
                                                    int64_t at, const int32_t (*dots)[STRIP], Vec (&sum)[STRIP]) {
    const GroupScales<Group::SCALES> scales(group, 0);
#pragma GCC unroll 16  // or else the sums would not stay in registers
    for (int r = 0; r < STRIP; r++) {
        IntVec dot = load(dots[r]);
        if constexpr (Group::SCALES == Scales::ZERO) dot += x.start[at + r];
        sum[r] = scales.add(sum[r], dot, x, at + r);
    }
}

// STRIP rows of x times a strip -> sums, whose rows are PANEL apart. Tiles must be configured.
template <class Group>
void multiply_tiles(const StripWeights<Group>& weights, const StripBytes& bytes, const Int8Rows& x, float* sums) {
    alignas(64) int32_t even[STRIP][STRIP], odd[STRIP][STRIP];
    Vec sum[STRIP] = {};
    DOTS_BY_TILES(0, 2, 4, bytes, x, 0, even);
    for (int64_t g = 0; g < weights.num_groups; g += 2) {  // floats follow a group behind, when the tiles are done
        if (g + 1 < weights.num_groups) DOTS_BY_TILES(1, 3, 5, bytes, x, g + 1, odd);
        add_dots<Group>(weights.groups[g].scales, x, g * x.stride, even, sum);
        if (g + 1 >= weights.num_groups) break;
        if (g + 2 < weights.num_groups) DOTS_BY_TILES(0, 2, 4, bytes, x, g + 2, even);
        add_dots<Group>(weights.groups[g + 1].scales, x, (g + 1) * x.stride, odd, sum);
    }
#pragma GCC unroll 16
    for (int r = 0; r < STRIP; r++) store(sums + r * PANEL, sum[r]);
}
#endif
