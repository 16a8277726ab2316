// Intel's matrix units (AMX): 16 rows by 16 outputs by 32 inputs of bfloat16 in one instruction, sums in float32.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.

#pragma once

#include "grouped_weight.h"

#if defined(__AMX_BF16__) && defined(__linux__)
#define HAS_MATRIX_UNITS
#include <sys/syscall.h>
#include <unistd.h>

// Whether this process may use them: Linux wants to be asked, since their state makes every switch of threads dearer.
inline bool may_use_matrix_units() {
    constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    static const bool granted = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return granted;
}

// What `from` points to is written before the next instruction: GCC 12 does not know that tiles read memory, and drops
// stores that nobody else reads.
inline void must_be_in_memory(const void* from) { __asm__ volatile("" ::"r"(from) : "memory"); }

// As VectorProduct, in grouped_product.h. Tiles 0 to 3 hold sums: two blocks of 16 rows by two of 16 outputs.
struct MatrixProduct {
    using X = bfloat16;
    static constexpr int MAX_ROWS = 32;

    template <class TileOf>
    static void multiply(const bfloat16* x, int64_t rows, int64_t inputs, TileOf tile, float* sums) {
        if (shaped() != rows) configure(rows);
        if (rows > BLOCK) multiply_blocks<2>(x, inputs, tile, sums);
        else multiply_blocks<1>(x, inputs, tile, sums);
    }

    // Gives the tiles back: others may want them in other shapes, and threads that use none are switched faster.
    static void end() {
        _tile_release();
        shaped() = 0;
    }

private:
    static constexpr int BLOCK = 16;
    static constexpr int WORD_STRIDE = PANEL * 4;  // bytes, of weights and of sums

    template <int BLOCKS, class TileOf>
    static void multiply_blocks(const bfloat16* x, int64_t inputs, TileOf tile, float* sums) {
        const int64_t stride = inputs * sizeof(bfloat16);
        _tile_zero(0);
        _tile_zero(1);
        if constexpr (BLOCKS == 2) {
            _tile_zero(2);
            _tile_zero(3);
        }
        for (int64_t first = 0; first < inputs; first += GROUP) {
            const Tile<bfloat16>& weights = tile(first / GROUP);
            must_be_in_memory(&weights);
            _tile_loadd(6, weights.words[0], WORD_STRIDE);
            _tile_loadd(7, weights.words[0] + BLOCK, WORD_STRIDE);
            _tile_loadd(4, x + first, stride);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if constexpr (BLOCKS == 2) {
                _tile_loadd(5, x + BLOCK * inputs + first, stride);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, sums, WORD_STRIDE);
        _tile_stored(1, sums + BLOCK, WORD_STRIDE);
        if constexpr (BLOCKS == 2) {
            _tile_stored(2, sums + BLOCK * PANEL, WORD_STRIDE);
            _tile_stored(3, sums + BLOCK * PANEL + BLOCK, WORD_STRIDE);
        }
    }

    // For how many rows this thread's tiles have their shapes: to set these takes as long as some steps.
    static int64_t& shaped() {
        static thread_local int64_t rows = 0;
        return rows;
    }

    // Shapes of all tiles: rows of x and of sums as there are, weights in full.
    static void configure(int64_t rows) {
        shaped() = rows;
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {};
            uint8_t rows[16] = {};
        } shapes;
        const uint8_t upper = std::min<int64_t>(rows, BLOCK), lower = std::max<int64_t>(rows - BLOCK, 1);
        const uint8_t rows_of[] = {upper, upper, lower, lower, upper, lower, BLOCK, BLOCK};
        for (int i = 0; i < 8; i++) {
            shapes.rows[i] = rows_of[i];
            shapes.row_bytes[i] = 64;
        }
        must_be_in_memory(&shapes);
        _tile_loadconfig(&shapes);
    }
};
#endif
