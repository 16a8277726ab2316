// The C interface: every kernel for float32 and for bfloat16. Called through ctypes, so no Python or torch headers.

#include <chrono>
#include <new>

#include "attention.h"
#include "elementwise.h"
#include "linear.h"
#include "quantise.h"
#include "rate.h"
#include "recorded.h"
#include "step.h"

// What the calls that make up a step have taken so far, for the account of what the host does besides. Calls never
// overlap, for they keep Python's lock.
std::chrono::nanoseconds time_taken{0};

struct Timed {
    const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    ~Timed() { time_taken += std::chrono::steady_clock::now() - begin; }
};

// Whether there was memory for what `body` does; an exception must not leave a C function.
template <class Body>
int has_memory(Body body) {
    const Timed timed;
    try {
        body();
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

// body of a null pointer to what weights of norms are: float if they are wide, else T.
template <class T, class Body>
void with_type(int64_t wide, Body body) {
    if (wide) body(static_cast<const float*>(nullptr));
    else body(static_cast<const T*>(nullptr));
}

// body of what floats in a checkpoint are, by the number that kernel/cpu_linear.py has for it.
template <class Body>
void with_source_type(const void* source, int64_t type, Body body) {
    if (type == 0) body(static_cast<const float*>(source));
    else if (type == 1) body(static_cast<const bfloat16*>(source));
    else body(static_cast<const float16*>(source));
}

#define RECORDED(KERNEL)                                                                                               \
    int recorded_##KERNEL(const Argument* args) { return call_with(KERNEL, args); }

#define KERNELS(T, SUFFIX)                                                                                             \
    void rms_norm_##SUFFIX(const T* x, int64_t tokens, int64_t heads, int64_t n, int64_t token_stride,                 \
                           int64_t head_stride, const T* weight, float eps, T* out, int threads) {                     \
        rms_norm(x, tokens, heads, n, token_stride, head_stride, weight, eps, out, threads);                           \
    }                                                                                                                  \
    void add_rms_norm_##SUFFIX(T* x, T* residual, int64_t tokens, int64_t n, const T* weight, float eps,               \
                               int threads) {                                                                          \
        add_rms_norm(x, residual, tokens, n, weight, eps, threads);                                                    \
    }                                                                                                                  \
    void rms_norm_wide_##SUFFIX(const T* x, int64_t tokens, int64_t heads, int64_t n, int64_t token_stride,            \
                                int64_t head_stride, const float* weight, float eps, T* out, int threads) {            \
        rms_norm(x, tokens, heads, n, token_stride, head_stride, weight, eps, out, threads);                           \
    }                                                                                                                  \
    void add_rms_norm_wide_##SUFFIX(T* x, T* residual, int64_t tokens, int64_t n, const float* weight, float eps,      \
                                    int threads) {                                                                     \
        add_rms_norm(x, residual, tokens, n, weight, eps, threads);                                                    \
    }                                                                                                                  \
    void silu_and_mul_##SUFFIX(const T* gate_up, int64_t tokens, int64_t n, T* out, int threads) {                     \
        activate_and_mul<silu>(gate_up, tokens, n, out, threads);                                                      \
    }                                                                                                                  \
    void gelu_tanh_and_mul_##SUFFIX(const T* gate_up, int64_t tokens, int64_t n, T* out, int threads) {                \
        activate_and_mul<gelu_tanh>(gate_up, tokens, n, out, threads);                                                 \
    }                                                                                                                  \
    void rotate_and_store_##SUFFIX(T* qkv, int64_t tokens, int64_t queries, int64_t keys, int64_t dim, const T* cos,    \
                                   const T* sin, T* k_cache, T* v_cache, const int32_t* slots, const void* q_weight,   \
                                   const void* k_weight, int64_t wide, float eps, int threads) {                       \
        const Timed timed;                                                                                             \
        const Heads<T> heads{qkv, tokens, queries, keys, dim, cos, sin, k_cache, v_cache, slots};                      \
        with_type<T>(wide, [&](auto* type) {                                                                           \
            using W = decltype(type);                                                                                  \
            rotate_and_store(heads, static_cast<W>(q_weight), static_cast<W>(k_weight), eps, threads);                 \
        });                                                                                                            \
    }                                                                                                                  \
    void apply_rotary_##SUFFIX(T* x, int64_t tokens, int64_t heads, int64_t dim, int64_t token_stride, const T* cos,   \
                               const T* sin, int threads) {                                                            \
        apply_rotary(x, tokens, heads, dim, token_stride, cos, sin, threads);                                          \
    }                                                                                                                  \
    void store_cache_##SUFFIX(T* k_cache, T* v_cache, const int32_t* slots, int64_t tokens, int64_t n, const T* k,     \
                              const T* v, int64_t k_stride, int64_t v_stride, int threads) {                           \
        store_cache(k_cache, v_cache, slots, tokens, n, k, v, k_stride, v_stride, threads);                            \
    }                                                                                                                  \
    void look_up_##SUFFIX(const uint8_t* codes, const float* scale, const float* offset, const int32_t* ids,            \
                          int64_t tokens, int64_t n, int64_t group, T* out, int threads) {                             \
        look_up(codes, scale, offset, ids, tokens, n, group, out, threads);                                            \
    }                                                                                                                  \
    void rotary_turns_##SUFFIX(const float* frequencies, int64_t n, const int32_t* positions, int64_t tokens, T* cos,   \
                               T* sin, int threads) {                                                                  \
        rotary_turns(frequencies, n, positions, tokens, cos, sin, threads);                                            \
    }                                                                                                                  \
    int attention_##SUFFIX(const AttentionPlan* plan, const T* q, int64_t q_stride, const T* k_cache,                  \
                           const T* v_cache, const float* sinks, T* out, int threads) {                                \
        const Attention<T> args{*plan, q, q_stride, k_cache, v_cache, sinks, out};                                     \
        return has_memory([&] { attention(args, threads); });                                                          \
    }                                                                                                                  \
    int linear_##SUFFIX(const Weight* weight, const T* x, int64_t rows, T* out, int threads) {                         \
        return has_memory([&] { linear(*weight, x, rows, out, threads); });                                            \
    }                                                                                                                  \
    int norm_linear_##SUFFIX(const Weight* weight, T* x, T* residual, const void* norm_weight, int64_t wide, float eps, \
                             int64_t rows, T* out, int threads) {                                                      \
        return has_memory([&] {                                                                                        \
            with_type<T>(wide, [&](auto* type) {                                                                       \
                norm_linear(*weight, x, residual, static_cast<decltype(type)>(norm_weight), eps, rows, out, threads);  \
            });                                                                                                        \
        });                                                                                                            \
    }                                                                                                                  \
    RECORDED(rms_norm_##SUFFIX)                                                                                        \
    RECORDED(add_rms_norm_##SUFFIX)                                                                                    \
    RECORDED(rms_norm_wide_##SUFFIX)                                                                                   \
    RECORDED(add_rms_norm_wide_##SUFFIX)                                                                               \
    RECORDED(silu_and_mul_##SUFFIX)                                                                                    \
    RECORDED(gelu_tanh_and_mul_##SUFFIX)                                                                               \
    RECORDED(rotate_and_store_##SUFFIX)                                                                                \
    RECORDED(apply_rotary_##SUFFIX)                                                                                    \
    RECORDED(store_cache_##SUFFIX)                                                                                     \
    RECORDED(look_up_##SUFFIX)                                                                                         \
    RECORDED(rotary_turns_##SUFFIX)                                                                                    \
    RECORDED(attention_##SUFFIX)                                                                                       \
    RECORDED(linear_##SUFFIX)                                                                                          \
    RECORDED(norm_linear_##SUFFIX)                                                                                     \
    void mark_broken_##SUFFIX(const T* hidden, int64_t rows, int64_t n, int64_t stride, int32_t* tokens,               \
                              int64_t broken) {                                                                        \
        mark_broken(hidden, rows, n, stride, tokens, broken);                                                          \
    }                                                                                                                  \
    void best_tokens_##SUFFIX(const T* logits, int64_t rows, int64_t n, int64_t stride, int32_t* tokens,               \
                              int threads) {                                                                           \
        best_tokens(logits, rows, n, stride, tokens, threads);                                                         \
    }                                                                                                                  \
    void pack_floats_##SUFFIX(const void* source, int64_t source_type, int64_t stride, int64_t rows, int64_t inputs,   \
                              int64_t first, void* tiles, int threads) {                                               \
        with_source_type(source, source_type, [&](auto* from) {                                                        \
            pack_floats(from, stride, rows, inputs, first, static_cast<Tile<T>*>(tiles), threads);                     \
        });                                                                                                            \
    }

#pragma GCC visibility push(default)  // all else is hidden: two libraries in one process must not share a static
extern "C" {
KERNELS(float, float32)
KERNELS(bfloat16, bfloat16)

void begin_step(int32_t* page_table, int64_t row_len, const int32_t* rows, const int32_t* cols, const int32_t* pages,
                int64_t num_cells, int32_t* input_ids, const int32_t* last, const int32_t* prev_rows,
                const int32_t* prev_tokens, int64_t num_rows) {
    write_changes(page_table, row_len, rows, cols, pages, num_cells, input_ids, last, prev_rows, prev_tokens, num_rows);
}

int64_t call_recorded(const Recorded* calls, int64_t n) { return call_again(calls, n); }

double linear_rate_float32() { return linear_rate<float>(); }

double linear_rate_bfloat16() { return linear_rate<bfloat16>(); }

int64_t nanoseconds_taken() { return time_taken.count(); }

int64_t packed_bytes(int64_t outputs, int64_t inputs, int64_t bits) {
    return bits == 4 ? packed_bytes<4>(outputs, inputs) : packed_bytes<8>(outputs, inputs);
}

void pack_groups(const uint8_t* codes, const float* scale, const float* offset, int64_t outputs, int64_t inputs,
                 int64_t bits, void* groups, int threads) {
    if (bits == 4) pack_groups(codes, scale, offset, outputs, inputs, static_cast<Group<4>*>(groups), threads);
    else pack_groups(codes, scale, offset, outputs, inputs, static_cast<Group<8>*>(groups), threads);
}

void quantise(const void* source, int64_t source_type, int64_t stride, int64_t rows, int64_t inputs, int64_t bits,
              uint8_t* codes, float* scale, float* offset, int threads) {
    with_source_type(source, source_type, [=](auto* from) {
        quantise(from, stride, rows, inputs, bits, codes, scale, offset, threads);
    });
}

int64_t strip_bytes(int64_t outputs, int64_t inputs, int64_t bits, int64_t zero) {
    return with_strip_type(bits, zero, [=](auto* strips) { return strip_bytes(outputs, inputs, strips); });
}

void pack_strips(const uint8_t* codes, const void* scale, const void* offset, int64_t outputs, int64_t inputs,
                 int64_t bits, int64_t zero, void* to, int threads) {
    with_strip_type(bits, zero, [=](auto* strips) {
        pack_strips(codes, scale, offset, outputs, inputs, static_cast<decltype(strips)>(to), threads);
    });
}
}
#pragma GCC visibility pop
