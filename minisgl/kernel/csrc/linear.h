// Linear layers by the kind of their weight: out = x W^T + bias, or the activation of its first half times its second.

#pragma once

#include <vector>

#include "float_linear.h"
#include "grouped_linear.h"
#include "int8_linear.h"
#include "matrix_units.h"

template <class Product, class T>
void linear_of(const Weight& weight, const typename Product::X* x, int64_t rows, T* out, int threads) {
    const auto run = [&](const auto& panels) {
        multiply_panels(panels, weight, rows, weight.inputs * sizeof *x, out, threads);
    };
    if (weight.kind == FLOATS) float_linear<Product>(weight, x, rows, out, threads);
    else if (weight.bits == 4) run(GroupedPanels<Product, 4, T>(weight, x, rows));
    else run(GroupedPanels<Product, 8, T>(weight, x, rows));
}

// x [rows, inputs], widened first where the product wants floats: as many rows at a time as are multiplied at a time.
template <class Product, class T>
void linear_by(const Weight& weight, const T* x, int64_t rows, T* out, int threads) {
    using X = typename Product::X;
    if constexpr (std::is_same_v<X, T>) linear_of<Product>(weight, x, rows, out, threads);
    else {
        static thread_local KeptFloats of_thread;
        const int64_t inputs = weight.inputs, width = weight.gate ? weight.outputs / 2 : weight.outputs;
        const int64_t fit = std::min(rows, rows_that_fit(inputs * sizeof(X), Product::MAX_ROWS));
        X* wide = looked_up_once(of_thread).take(fit * inputs);
        for (int64_t first = 0; first < rows; first += fit) {
            const int64_t count = std::min(fit, rows - first);
            parallel_for(count, count * inputs, threads, [=](int64_t r) {
                const T* from = x + (first + r) * inputs;
                for (int64_t i = 0; i < inputs; i += LANES)
                    store(wide + r * inputs + i, load(from + i, inputs - i), inputs - i);
            });
            linear_of<Product>(weight, wide, count, out + first * width, threads);
        }
    }
}

// x [rows, inputs] -> out [rows, outputs, or half of them with a gate], both dense.
template <class T>
void linear(const Weight& weight, const T* x, int64_t rows, T* out, int threads) {
    if (rows == 0) return;
    if (weight.kind == INT8) return int8_linear(weight, x, rows, out, threads);
#if defined(HAS_MATRIX_UNITS)
    if constexpr (std::is_same_v<T, bfloat16>)
        if (may_use_matrix_units()) return linear_by<MatrixProduct>(weight, x, rows, out, threads);
#endif
    linear_by<VectorProduct<T>>(weight, x, rows, out, threads);
}

// residual += x, and the layer of rms_norm(residual), for which x is given up. Without a residual, of rms_norm(x). To the
// bit what add_rms_norm or rms_norm and linear do one by one.
template <class T, class W>
void norm_linear(const Weight& weight, T* x, T* residual, const W* norm_weight, float eps, int64_t rows, T* out,
                 int threads) {
    const int64_t inputs = weight.inputs;
    if (residual) {
        add_rms_norm(x, residual, rows, inputs, norm_weight, eps, threads);
        return linear(weight, x, rows, out, threads);
    }
    std::vector<T> normed(rows * inputs);
    rms_norm(x, rows, 1, inputs, inputs, 0, norm_weight, eps, normed.data(), threads);
    linear(weight, normed.data(), rows, out, threads);
}
