// Linear layers of kind INT8: weights in small integers times activations in int8. See panel_linear.h.

#pragma once

#include "int8_matrix_units.h"
#include "int8_product.h"
#include "panel_linear.h"

constexpr int32_t HALF_OFFSETS = -1, SINGLE_OFFSETS = -2;  // in place of Weight::zero where there are offsets

constexpr int STRIPS = PANEL / STRIP;

template <class Group>
StripWeights<Group> strip_of(const Weight& weight, int64_t panel, int strip) {
    const int64_t num_groups = weight.inputs / GROUP;
    return {static_cast<const Group*>(weight.data) + (panel * STRIPS + strip) * num_groups, num_groups};
}

// By vector instructions, a power of two of rows at a time.
template <class Group>
class Int8Panels {
public:
    static constexpr int MAX_ROWS = LANES == 16 ? 8 : LANES == 8 ? 2 : 1;  // what the registers hold

    Int8Panels(const Weight& weight, const Int8Rows& x) : weight_(weight), x_(x) {}

    void begin(int64_t, int) const {}
    void end() const {}

    void multiply(int64_t panel, int, int64_t first, int64_t count, float* sums) const {
        for (int i = 0; i < STRIPS; i++)
            multiply_rows<MAX_ROWS>(strip_of<Group>(weight_, panel, i), x_.from(first), count, sums + i * STRIP);
    }

private:
    template <int ROWS>
    static void multiply_rows(const StripWeights<Group>& strip, const Int8Rows& x, int64_t count, float* sums) {
        int64_t done = 0;
        for (; done + ROWS <= count; done += ROWS) multiply_strip<ROWS>(strip, x.from(done), sums + done * PANEL);
        if constexpr (ROWS > 1)
            if (done < count) multiply_rows<ROWS / 2>(strip, x.from(done), count - done, sums + done * PANEL);
    }

    const Weight& weight_;
    Int8Rows x_;
};

#if defined(HAS_INT8_MATRIX_UNITS)
// The same by matrix units, as far as rows fill them.
template <class Group>
class Int8MatrixPanels {
public:
    static constexpr int MAX_ROWS = STRIP;

    Int8MatrixPanels(const Weight& weight, const Int8Rows& x) : weight_(weight), x_(x) {}

    void begin(int64_t panel, int part) const {
        for (int i = 0; i < STRIPS; i++) bytes(part, i).expand(strip_of<Group>(weight_, panel, i));
        if (part == 0) configure_int8_tiles();
    }

    void end() const { _tile_release(); }

    void multiply(int64_t panel, int part, int64_t first, int64_t count, float* sums) const {
        if (count < STRIP) return Int8Panels<Group>(weight_, x_).multiply(panel, part, first, count, sums);
        for (int i = 0; i < STRIPS; i++)
            multiply_tiles(strip_of<Group>(weight_, panel, i), bytes(part, i), x_.from(first), sums + i * STRIP);
    }

private:
    static StripBytes& bytes(int part, int strip) {
        static thread_local StripBytes all[2][STRIPS];
        return looked_up_once(all[part][strip]);
    }

    const Weight& weight_;
    Int8Rows x_;
};
#endif

// use(group): a null pointer to what a weight of these bits and this zero is made of.
template <class Use>
auto with_strip_type(int64_t bits, int64_t zero, Use use) {
    const auto use_bits = [&](auto* without, auto* half, auto* single) {
        return zero == HALF_OFFSETS ? use(half) : zero == SINGLE_OFFSETS ? use(single) : use(without);
    };
    if (bits == 4)
        return use_bits((Strip<4, Scales::ZERO>*)0, (Strip<4, Scales::HALF>*)0, (Strip<4, Scales::SINGLE>*)0);
    return use_bits((Strip<8, Scales::ZERO>*)0, (Strip<8, Scales::HALF>*)0, (Strip<8, Scales::SINGLE>*)0);
}

template <class T>
void int8_linear(const Weight& weight, const T* x, int64_t rows, T* out, int threads) {
    static thread_local Int8Buffer of_thread;
    Int8Buffer& buffer = looked_up_once(of_thread);
    with_strip_type(weight.bits, weight.zero, [&](auto* group) {
        using Group = std::remove_pointer_t<decltype(group)>;
        const int32_t start = start_of<Group>(weight.zero);
        const Int8Rows quantised = buffer.quantise(x, rows, weight.inputs, start, threads);
        const auto run = [&](const auto& panels) {
            multiply_panels(panels, weight, rows, weight.inputs, out, threads);
        };
#if defined(HAS_INT8_MATRIX_UNITS)
        if (rows >= STRIP && may_use_matrix_units()) return run(Int8MatrixPanels<Group>(weight, quantised));
#endif
        run(Int8Panels<Group>(weight, quantised));
    });
}
