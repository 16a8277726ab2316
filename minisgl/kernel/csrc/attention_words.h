// Operands of matrix units: tiles of 16 rows of 16 words. A word is two bfloat16, multiplied by the two of another.

#pragma once

#include "matrix_units.h"

#if defined(HAS_MATRIX_UNITS)

struct alignas(64) Words {
    uint32_t rows[16][16];
};

// Elements first, first + 1, ... of one vector and of another in turns.
inline __m512i interleaving(int first) {
    alignas(64) uint16_t order[32];
    for (int i = 0; i < 16; i++) order[2 * i] = first + i, order[2 * i + 1] = 32 + first + i;
    return _mm512_load_si512(order);
}

// Tiles 0, 1 and 4 have as many rows as a block has queries, at most 16: sums of values, and queries or weights. The
// others are full.
inline void configure_attention(int64_t rows) {
    struct alignas(64) {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    } shapes;
    for (int i = 0; i < 8; i++) {
        shapes.rows[i] = i == 0 || i == 1 || i == 4 || rows == 16 ? rows : 16;
        shapes.row_bytes[i] = 64;
    }
    must_be_in_memory(&shapes);
    _tile_loadconfig(&shapes);
}
#endif
