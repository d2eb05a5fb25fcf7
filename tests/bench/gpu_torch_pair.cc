/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops over an allocator of device memory, for gpu_torch.py: PyTorch's own, libvarve-torch.so as it is, and the same
 * behind PyTorch's wrapper for allocators that are plugged in. All three are called from the same code in the same
 * process, so that what is compared is nothing but what they do. Compiled where PyTorch's headers are.
 */
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <memory>
#include <vector>

#define SHOWN extern "C" __attribute__((visibility("default")))

namespace
{

using take_function = void *(*)(std::size_t, int, cudaStream_t);
using give_function = void (*)(void *, std::size_t, int, cudaStream_t);
using allocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

struct varve_entry {
    take_function take;
    give_function give;
} varve;

std::shared_ptr<allocator> plugged;

double now_ns()
{
    const auto now = std::chrono::steady_clock::now().time_since_epoch();

    return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

struct native_engine {
    static void *take(std::size_t bytes, cudaStream_t stream)
    {
        return c10::cuda::CUDACachingAllocator::get()->raw_alloc_with_stream(bytes, stream);
    }
    static void give(void *addr, std::size_t, cudaStream_t)
    {
        c10::cuda::CUDACachingAllocator::get()->raw_delete(addr);
    }
};

struct varve_engine {
    static void *take(std::size_t bytes, cudaStream_t stream)
    {
        return varve.take(bytes, 0, stream);
    }
    static void give(void *addr, std::size_t bytes, cudaStream_t stream)
    {
        varve.give(addr, bytes, 0, stream);
    }
};

struct plugged_engine {
    static void *take(std::size_t bytes, cudaStream_t stream)
    {
        return plugged->raw_alloc_with_stream(bytes, stream);
    }
    static void give(void *addr, std::size_t, cudaStream_t)
    {
        plugged->raw_delete(addr);
    }
};

template <typename engine> double pairs_ns(std::uint64_t bytes, unsigned count)
{
    const double begin = now_ns();

    for (unsigned i = 0; i < count; i++) {
        engine::give(engine::take(bytes, nullptr), bytes, nullptr);
    }
    return (now_ns() - begin) / count;
}

/* Each pair by itself; the clock is in the figure. */
template <typename engine> void each_pair_ns(std::uint64_t bytes, unsigned count, double *ns_out)
{
    for (unsigned i = 0; i < count; i++) {
        const double begin = now_ns();

        engine::give(engine::take(bytes, nullptr), bytes, nullptr);
        ns_out[i] = now_ns() - begin;
    }
}

} // namespace

/* An allocation if bytes > 0, else the free of `slot`. */
struct bench_op {
    std::uint64_t bytes;
    std::uint32_t slot, stream; /* index of `streams` */
};

namespace
{

template <typename engine>
double replay_ns(const bench_op *ops, std::uint64_t count, std::uint32_t slots, const std::uint64_t *streams)
{
    struct held {
        void *addr;
        std::uint64_t bytes;
        cudaStream_t stream;
    };
    std::vector<held> held_by(slots, held{nullptr, 0, nullptr});
    const double begin = now_ns();
    double end;

    for (std::uint64_t i = 0; i < count; i++) {
        held &slot = held_by[ops[i].slot];

        if (ops[i].bytes > 0) {
            slot.bytes = ops[i].bytes;
            slot.stream = reinterpret_cast<cudaStream_t>(streams[ops[i].stream]);
            slot.addr = engine::take(slot.bytes, slot.stream);
        } else {
            engine::give(slot.addr, slot.bytes, slot.stream);
            slot.addr = nullptr;
        }
    }
    end = now_ns();
    for (const held &slot : held_by) {
        if (slot.addr != nullptr) {
            engine::give(slot.addr, slot.bytes, slot.stream);
        }
    }
    return end - begin;
}

} // namespace

SHOWN const char *bench_open(const char *library)
{
    void *opened = dlopen(library, RTLD_NOW);

    if (opened == nullptr) {
        return dlerror();
    }
    varve.take = reinterpret_cast<take_function>(dlsym(opened, "varve_torch_alloc"));
    varve.give = reinterpret_cast<give_function>(dlsym(opened, "varve_torch_free"));
    plugged = torch::cuda::CUDAPluggableAllocator::createCustomAllocator(varve.take, varve.give);
    return nullptr;
}

/* Engines by number: 0 native, 1 varve, 2 plugged. What is thrown is printed and gives a negative figure. */
#define BY_ENGINE(number, function, ...)                      \
    ((number) == 0   ? function<native_engine>(__VA_ARGS__)   \
     : (number) == 1 ? function<varve_engine>(__VA_ARGS__)    \
                     : function<plugged_engine>(__VA_ARGS__))

template <typename call> static double guarded(const call &measure)
{
    try {
        return measure();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "gpu_torch_pair: %s\n", error.what());
        return -1;
    }
}

SHOWN double bench_pairs(int engine, std::uint64_t bytes, unsigned count)
{
    return guarded([=] { return BY_ENGINE(engine, pairs_ns, bytes, count); });
}

/* Quantiles 0.5 and 0.99 of single pairs. */
SHOWN double bench_quantiles(int engine, std::uint64_t bytes, unsigned count, double quantiles_out[2])
{
    return guarded([=] {
        std::vector<double> ns(count);

        BY_ENGINE(engine, each_pair_ns, bytes, count, ns.data());
        std::sort(ns.begin(), ns.end());
        quantiles_out[0] = ns[count / 2];
        quantiles_out[1] = ns[static_cast<std::size_t>(count * 0.99)];
        return 0.0;
    });
}

SHOWN double bench_replay(int engine, const bench_op *ops, std::uint64_t count, std::uint32_t slots,
                          const std::uint64_t *streams)
{
    return guarded([=] { return BY_ENGINE(engine, replay_ns, ops, count, slots, streams); });
}
