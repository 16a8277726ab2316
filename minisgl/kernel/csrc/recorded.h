// Calls of kernels that are kept to be made again: what each was called with.

#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

union Argument {
    int64_t number;
    float fraction;
    const void* pointer;
};

template <class T>
T from_argument(const Argument& arg) {
    if constexpr (std::is_pointer_v<T>) return static_cast<T>(const_cast<void*>(arg.pointer));
    else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(arg.fraction);
    else return static_cast<T>(arg.number);
}

// Whether the kernel had what it needs; one that gives nothing always has.
template <class R, class... A, size_t... I>
int call_with(R (*kernel)(A...), const Argument* args, std::index_sequence<I...>) {
    if constexpr (std::is_void_v<R>) return kernel(from_argument<A>(args[I])...), 1;
    else return kernel(from_argument<A>(args[I])...) != 0;
}

template <class R, class... A>
int call_with(R (*kernel)(A...), const Argument* args) {
    return call_with(kernel, args, std::index_sequence_for<A...>{});
}

struct Recorded {
    int (*kernel)(const Argument* args);
    const Argument* args;
};

// How many of n calls were made: all, or those before the first that had not what it needs.
inline int64_t call_again(const Recorded* calls, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!calls[i].kernel(calls[i].args)) return i;
    return n;
}
