// Floats to integers: of every GROUP neighbours in 8 bits with a scale, or in 4 bits with a scale and an offset. To the
// bit what utils/group_quantizer.py makes of them: every sum is in the same order, and nothing is fused.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "int8_rows.h"
#include "parallel.h"
#include "vector.h"

constexpr int PARTS = GROUP / LANES;  // vectors of a group

// A product that is to be rounded before anything is added to it.
template <class X>
inline X rounded(X x) {
#if defined(__x86_64__)
    asm("" : "+x"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#else
    asm("" : "+m"(x));
#endif
    return x;
}

struct Numbers {
    Vec parts[PARTS];
};

// f(part number) for all parts of a group.
template <class F>
inline Numbers each(F f) {
    Numbers all;
    for (int i = 0; i < PARTS; i++) all.parts[i] = f(i);
    return all;
}

// The first half added to the second, again and again.
inline float folded(Numbers x) {
    for (int n = PARTS / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) x.parts[i] += x.parts[i + n];
    return sum(x.parts[0]);
}

inline float greatest(const Numbers& x) {
    Vec most = x.parts[0];
    for (int i = 1; i < PARTS; i++) most = max(x.parts[i], most);
    return max(most);
}

inline Numbers negative(const Numbers& x) {
    return each([&](int i) { return -x.parts[i]; });
}

inline bool is_finite(const Numbers& x) {
    IntVec most{};
    for (const Vec& part : x.parts) {
        const IntVec magnitude = (IntVec)part & 0x7fffffff;
        most = most > magnitude ? most : magnitude;
    }
    return max(most) < 0x7f800000;
}

// To float16's digits and back, unless some would be lost that all others keep.
inline float shortened(float x) {
    const float magnitude = std::abs(x);
    if (!(magnitude >= 0x1p-14f && magnitude <= 65504.0f)) return x;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return as_float((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);  // 10 digits, ties to even
}

// Codes in [least, most] that are nearest to (x - offset) / scale, as floats; 0 where nothing can be divided by that.
inline Numbers codes_of(const Numbers& x, float scale, float offset, float least, float most) {
    const float inverse = 1.0f / scale;
    if (!(std::abs(inverse) < std::numeric_limits<float>::infinity()) || inverse == 0) return {};
    return each([&](int i) {
        const Vec code = (x.parts[i] - offset) * inverse, above = code > splat(least) ? code : splat(least);
        return __builtin_convertvector(rounded_to_int(above < splat(most) ? above : splat(most)), Vec);
    });
}

struct Fitted {
    Numbers codes;
    float scale, offset;
};

inline Fitted in_8_bits(const Numbers& x) {
    const float scale = shortened(std::max(greatest(x), greatest(negative(x))) / 127.0f);
    const Numbers codes = codes_of(x, scale, 0, -127, 127);
    return {each([&](int i) { return codes.parts[i] + 128.0f; }), scale, -128.0f * scale};
}

inline Fitted fitted(const Numbers& x, float middle, float width) {
    const Numbers first = codes_of(x, width, middle - rounded(7.5f * width), 0, 15);
    const float centre = folded(first) / GROUP, mean = folded(x) / GROUP;
    const Numbers spread = each([&](int i) { return first.parts[i] - centre; });
    const float variance = folded(each([&](int i) { return rounded(spread.parts[i] * spread.parts[i]); }));
    const float covariance = folded(each([&](int i) { return rounded(spread.parts[i] * x.parts[i]); }));
    const float scale = shortened(variance > 0 ? covariance / variance : 0);
    const float offset = shortened(mean - rounded(scale * centre));
    return {codes_of(x, scale, offset, 0, 15), scale, offset};
}

inline float squared_error(const Numbers& x, const Fitted& by) {
    return folded(each([&](int i) {
        const Vec off = rounded(by.codes.parts[i] * by.scale) + by.offset - x.parts[i];
        return rounded(off * off);
    }));
}

inline Fitted in_4_bits(const Numbers& x) {
    const float least = -greatest(negative(x)), most = greatest(x);
    const float middle = (least + most) / 2, width = (most - least) / 15;
    const Fitted all = fitted(x, middle, width), most_of_it = fitted(x, middle, width * 0.9f);
    return squared_error(x, most_of_it) < squared_error(x, all) ? most_of_it : all;
}

// source [rows, inputs], rows a stride apart -> codes [rows, inputs]; scale, offset [rows, inputs / GROUP].
template <class S>
void quantise(const S* source, int64_t stride, int64_t rows, int64_t inputs, int64_t bits, uint8_t* codes, float* scale,
              float* offset, int threads) {
    const int64_t in_row = inputs / GROUP;
    parallel_for(rows, rows * inputs * 32 / bits, threads, [=](int64_t row) {
        for (int64_t g = 0; g < in_row; g++) {
            const int64_t at = row * in_row + g;
            const S* from = source + row * stride + g * GROUP;
            const Numbers x = each([&](int i) { return load(from + i * LANES); });
            Fitted found{{}, 0, std::numeric_limits<float>::quiet_NaN()};
            if (is_finite(x)) found = bits == 8 ? in_8_bits(x) : in_4_bits(x);
            scale[at] = found.scale;
            offset[at] = found.offset;
            for (int i = 0; i < PARTS; i++) {
                const IntVec less_128 = rounded_to_int(found.codes.parts[i] - 128.0f);
                const Bytes narrow = __builtin_convertvector(less_128, Bytes) ^ -128;
                std::memcpy(codes + at * GROUP + i * LANES, &narrow, sizeof narrow);
            }
        }
    });
}
