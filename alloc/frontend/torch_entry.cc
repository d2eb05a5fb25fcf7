/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that PyTorch's CUDAPluggableAllocator calls and that need C++: because they throw, or because
 * they are handed a std::function. The rest is C. An exception passes from here straight into PyTorch,
 * never through a frame of C.
 *
 * A filter that PyTorch hands over is kept until the allocation to its pool ends: it is called with the
 * allocator's lock held, for every request meanwhile.
 */
/* C has structures and functions of one name, which to C++ looks like one hiding the other. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "alloc/frontend/torch_requests.h"
#pragma GCC diagnostic pop
#include "alloc/frontend/torch_error.h"
#include "alloc/frontend/torch.h"

#include <functional>
#include <mutex>
#include <stdexcept>
#include <utility>

struct CUstream_st;

using pool_pair = std::pair<unsigned long long, unsigned long long>;
using stream_filter = std::function<bool(CUstream_st *)>;

extern "C" {
TORCH_API void varve_torch_begin_allocate_to_pool(int device, pool_pair pool, stream_filter filter);
TORCH_API void varve_torch_end_allocate_to_pool(int device, pool_pair pool);
TORCH_API void varve_torch_release_pool(int device, pool_pair pool);
}

namespace
{

/* Of one pool that is being allocated to. */
struct kept_filter {
    kept_filter *next;
    int device;
    varve_pool_id pool;
    stream_filter call;
};

std::mutex filters_mutex;
kept_filter *filters; /* guarded by the mutex; never torn down: PyTorch may outlive it */

varve_pool_id pool_of(const pool_pair &pair)
{
    return {pair.first, pair.second};
}

bool call_filter(void *context, std::uint64_t stream) noexcept
{
    const auto *filter = static_cast<kept_filter *>(context);

    return filter->call(reinterpret_cast<CUstream_st *>(stream));
}

void store_filter(kept_filter *filter)
{
    const std::lock_guard<std::mutex> lock(filters_mutex);

    filter->next = filters;
    filters = filter;
}

/* The caller owns the result; nullptr: there is none. */
kept_filter *remove_filter(int device, varve_pool_id pool)
{
    const std::lock_guard<std::mutex> lock(filters_mutex);

    for (kept_filter **link = &filters; *link != nullptr; link = &(*link)->next) {
        kept_filter *filter = *link;

        if (filter->device == device && filter->pool.capture == pool.capture &&
            filter->pool.user == pool.user) {
            *link = filter->next;
            return filter;
        }
    }
    return nullptr;
}

__attribute__((cold, noinline)) void fail(int error, std::size_t bytes, int device,
                                          const varve_message &message)
{
    char text[1024];

    torch_throw_kept();
    torch_failure_text(error, bytes, device, &message, text, sizeof(text));
    if (error == VARVE_ERROR_NO_MEMORY) {
        torch_throw_out_of_memory(text);
    }
    throw std::runtime_error(text);
}

} // namespace

void *varve_torch_alloc(std::size_t bytes, int device, void *stream)
{
    varve_message message;
    std::uint64_t addr;
    int error = torch_allocate(bytes, device, reinterpret_cast<std::uint64_t>(stream), &addr, &message);

    if (__builtin_expect(error != VARVE_OK, 0)) {
        fail(error, bytes, device, message);
    }
    return reinterpret_cast<void *>(addr);
}

void varve_torch_record_stream(void *addr, void *stream)
{
    varve_message message;
    int error = torch_record_stream(reinterpret_cast<std::uint64_t>(addr),
                                    reinterpret_cast<std::uint64_t>(stream), &message);

    if (error != VARVE_OK) {
        throw std::runtime_error(message.text);
    }
}

void varve_torch_begin_allocate_to_pool(int device, pool_pair pool, stream_filter filter)
{
    auto *kept = new kept_filter{nullptr, device, pool_of(pool), std::move(filter)};
    varve_message message;
    int error = torch_pool_begin(device, kept->pool, kept->call ? call_filter : nullptr, kept, &message);

    if (error != VARVE_OK) {
        delete kept;
        throw std::runtime_error(message.text);
    }
    store_filter(kept);
}

void varve_torch_end_allocate_to_pool(int device, pool_pair pool)
{
    kept_filter *kept = remove_filter(device, pool_of(pool));
    varve_message message;
    int error = torch_pool_end(device, pool_of(pool), &message);

    delete kept;
    if (error != VARVE_OK) {
        throw std::runtime_error(message.text);
    }
}

void varve_torch_release_pool(int device, pool_pair pool)
{
    torch_pool_release(device, pool_of(pool));
}
