// Threads that share out the items of one call after another.
//
// OpenMP's threads meet at the end of every loop, so that one which others keep from its core holds all of them up, for
// a time slice of the scheduler at each of some 200 loops a step. Here a thread that comes late finds its share taken by
// the rest and is not waited for: only what it has begun is. Between calls threads stay awake for a moment, for the next
// call of a step comes within microseconds and waking one takes more; then they sleep.

#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>

// Lets the core's other thread go first, or saves power, for some 10 to 50 ns.
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Until `done()`, at most for so many microseconds; whether it is.
template <class Done>
inline bool spin(int64_t microseconds, Done done) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::microseconds(microseconds);
    do {
        for (int i = 0; i < 64; i++) {
            if (done()) return true;
            relax();
        }
    } while (Clock::now() < end);
    return done();
}

class Pool {
public:
    static constexpr int MAX_THREADS = 256;
    static constexpr int64_t MAX_BLOCKS = (1 << 20) - 1;

    // One for the process, never destroyed: its threads do not end either. A fork gets none of them, so a pool anew.
    static Pool& shared() {
        alignas(Pool) static char memory[sizeof(Pool)];
        static Pool* const pool = new (memory) Pool;
        static const int once = pthread_atfork(nullptr, nullptr, [] { new (memory) Pool; });
        (void)once;
        return *pool;
    }

    // body(begin, end) for blocks of `size` items that together are [0, n), on at most `threads` threads, of which the
    // caller's is one. Where another thread has the pool, or a body calls this itself, the caller does it all. Where a
    // body throws std::bad_alloc, so does this, when no thread is at work any more; some items are left undone.
    template <class Body>
    void run(int64_t n, int64_t size, int threads, const Body& body) {
        if (in_use_.test_and_set(std::memory_order_acquire)) return body(0, n);
        threads = start(std::min(threads, MAX_THREADS));
        has_memory_.store(true, std::memory_order_relaxed);
        job_ = {[](const void* of, int64_t begin, int64_t end) { (*static_cast<const Body*>(of))(begin, end); },
                &body, n, std::max(size, (n + MAX_BLOCKS - 1) / MAX_BLOCKS)};
        share_out(threads);
        work(0, threads);
        const auto is_over = [&] { return num_open_.load(std::memory_order_acquire) == 0; };
        while (!spin(20, is_over)) sched_yield();  // a thread that has begun may wait for this very core
        const bool had_memory = has_memory_.load(std::memory_order_relaxed);
        in_use_.clear(std::memory_order_release);
        if (!had_memory) throw std::bad_alloc();
    }

private:
    struct Job {
        void (*run)(const void* body, int64_t begin, int64_t end);
        const void* body;
        int64_t n, size;
    };
    // A thread's blocks that nobody has taken yet, in one word with the number of the call, so that no thread can take
    // one of a call for one of the next: 24 bits of the number, then 20 each of the first block and the one behind the
    // last.
    struct alignas(64) Share {
        std::atomic<uint64_t> word{0};
    };
    static constexpr uint64_t MASK = (1 << 20) - 1;
    static constexpr int64_t AWAKE = 200;  // microseconds: some calls of a decoder layer apart
    static constexpr uint64_t PATIENCE = 10000;  // calls: some 50 steps

    // Starts threads that are missing; how many of those wanted there are. One that cannot start is done without, and
    // not tried again soon, since that takes time.
    int start(int wanted) {
        while (num_threads_ < wanted && number_ >= next_start_) {
            try {
                std::thread(&Pool::serve, this, num_threads_).detach();
                num_threads_++;
            } catch (const std::exception&) {
                next_start_ = number_ + PATIENCE;
            }
        }
        return std::min(wanted, num_threads_);
    }

    void share_out(int threads) {
        const int64_t num_blocks = (job_.n + job_.size - 1) / job_.size;
        num_open_.store(num_blocks, std::memory_order_relaxed);
        number_++;
        for (int t = 0; t < threads; t++) {
            const uint64_t begin = num_blocks * t / threads, end = num_blocks * (t + 1) / threads;
            shares_[t].word.store(number_ << 40 | begin << 20 | end, std::memory_order_release);
        }
        called_.store(number_ << 16 | threads);
        if (num_asleep_.load() == 0) return;
        { std::lock_guard<std::mutex> lock(mutex_); }  // who is about to sleep looks once more, or hears it
        bell_.notify_all();
    }

    // The blocks of one's own share from the front, then those of others from the back.
    void work(int me, int threads) noexcept {
        for (int i = 0; i < threads; i++) {
            std::atomic<uint64_t>& word = shares_[(me + i) % threads].word;
            for (int64_t block; (block = take(word, i == 0)) >= 0;) {
                if (has_memory_.load(std::memory_order_relaxed)) do_block(block);
                num_open_.fetch_sub(1, std::memory_order_acq_rel);
            }
        }
    }

    void do_block(int64_t block) noexcept {
        try {
            job_.run(job_.body, block * job_.size, std::min((block + 1) * job_.size, job_.n));
        } catch (const std::bad_alloc&) {
            has_memory_.store(false, std::memory_order_relaxed);
        }
    }

    // A block, which keeps the call open until it is done; -1: there is none left.
    static int64_t take(std::atomic<uint64_t>& word, bool from_front) {
        uint64_t now = word.load(std::memory_order_acquire);
        for (;;) {
            const int64_t begin = now >> 20 & MASK, end = now & MASK;
            if (begin >= end) return -1;
            const uint64_t then = from_front ? now + (1 << 20) : now - 1;
            if (word.compare_exchange_weak(now, then, std::memory_order_acq_rel, std::memory_order_acquire))
                return from_front ? begin : end - 1;
        }
    }

    void serve(int me) {
        for (uint64_t last = 0;;) {
            const auto has_call = [&] { return called_.load() != last; };
            if (!spin(AWAKE, has_call)) {
                std::unique_lock<std::mutex> lock(mutex_);
                num_asleep_++;
                bell_.wait(lock, has_call);
                num_asleep_--;
            }
            last = called_.load();
            const int threads = last & 0xffff;
            if (me < threads) work(me, threads);
        }
    }

    std::atomic_flag in_use_ = ATOMIC_FLAG_INIT;
    Job job_{};
    int num_threads_ = 1;  // that there are, with the caller's
    uint64_t number_ = 0;      // of the call
    uint64_t next_start_ = 0;  // from which call on a thread may be started
    std::atomic<uint64_t> called_{0};
    std::atomic<int64_t> num_open_{0};  // blocks that are not done
    std::atomic<bool> has_memory_{true};  // whether all blocks so far had what they wanted
    std::atomic<int> num_asleep_{0};
    std::mutex mutex_;
    std::condition_variable bell_;
    Share shares_[MAX_THREADS];
};
