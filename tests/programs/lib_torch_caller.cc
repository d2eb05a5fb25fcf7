/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's side of the pluggable allocator: calls through std::function as CUDAPluggableAllocator does,
 * catches what is thrown and returns it to a test in C.
 */
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <functional>
#include <typeinfo>
#include <utility>

#define SHOWN extern "C" __attribute__((visibility("default")))

struct CUstream_st;

using stream = CUstream_st *;
using pool_pair = std::pair<unsigned long long, unsigned long long>;

static stream stream_of(std::uint64_t handle)
{
    return reinterpret_cast<stream>(handle);
}

/* Address, or nullptr with "TYPE: what" in `text` if something was thrown. */
SHOWN void *caller_alloc(void *(*alloc)(std::size_t, int, stream), std::size_t bytes, int device,
                         std::uint64_t handle, char *text, std::size_t size)
{
    const std::function<void *(std::size_t, int, stream)> call = alloc;

    text[0] = '\0';
    try {
        return call(bytes, device, stream_of(handle));
    } catch (const std::exception &error) {
        std::snprintf(text, size, "%s: %s", abi::__cxa_current_exception_type()->name(), error.what());
    } catch (...) {
        std::snprintf(text, size, "something else");
    }
    return nullptr;
}

/* Serves `count` streams from 1 on while the odd ones go to a pool; the addresses of all. 0, or -1 if
 * something was thrown, which is in `text`. */
SHOWN int caller_capture(void (*begin)(int, pool_pair, std::function<bool(stream)>),
                         void (*end)(int, pool_pair), void *(*alloc)(std::size_t, int, stream),
                         std::uint64_t pool, unsigned count, void **addrs, unsigned *asked_out, char *text,
                         std::size_t size)
{
    const pool_pair id(pool, 0);
    unsigned char padding[64] = {0}; /* more than a std::function keeps in itself */

    text[0] = '\0';
    try {
        begin(0, id, [asked_out, padding](stream which) {
            (*asked_out)++;
            return reinterpret_cast<std::uint64_t>(which) % 2 == 1 && padding[0] == 0;
        });
        for (unsigned i = 0; i < count; i++) {
            addrs[i] = alloc(1 << 20, 0, stream_of(i + 1));
        }
        end(0, id);
    } catch (const std::exception &error) {
        std::snprintf(text, size, "%s", error.what());
        return -1;
    }
    return 0;
}

/* Begins with a filter that is empty, twice: the second time is one too many. */
SHOWN int caller_begin_twice(void (*begin)(int, pool_pair, std::function<bool(stream)>),
                             void (*end)(int, pool_pair), std::uint64_t pool, char *text, std::size_t size)
{
    const pool_pair id(pool, 0);
    int thrown = 0;

    begin(0, id, nullptr);
    try {
        begin(0, id, nullptr);
    } catch (const std::exception &error) {
        std::snprintf(text, size, "%s", error.what());
        thrown++;
    }
    end(0, id);
    try {
        end(0, id);
    } catch (const std::exception &) {
        thrown++;
    }
    return thrown;
}

SHOWN void caller_release(void (*release)(int, pool_pair), std::uint64_t pool)
{
    release(0, pool_pair(pool, 0));
}
