/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual functions of c10::cuda::CUDACachingAllocator::CUDAAllocator that PyTorch's pluggable allocator answers with
 * an exception, or not as PyTorch's own. varve_torch/virtual_functions.py, which has the table of versions, puts them
 * into the table of our allocator object. A member function is called as a function whose first argument is the object;
 * types of PyTorch's that are passed are declared here with the same members.
 *
 * Sources: c10/cuda/CUDACachingAllocator.h and c10/core/Allocator.h of PyTorch 2.3 to 2.15.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "alloc/frontend/torch_requests.h"
#pragma GCC diagnostic pop
#include "alloc/frontend/torch_error.h"
#include "alloc/frontend/torch_symbols.h"
#include "alloc/frontend/torch.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#ifdef __clang__
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"
#endif

struct CUstream_st;

namespace
{

using pool_pair = std::pair<unsigned long long, unsigned long long>;
using address_set = std::unordered_set<void *>;
using device_snapshot = struct varve_alloc_snapshot; /* there is a function of that name, too */

/* c10::DataPtr */
struct data_ptr {
    void *data;
    std::unique_ptr<void, void (*)(void *)> context;
    std::int8_t device_type, device_index;
};

/* CheckpointDelta */
struct pool_delta {
    std::vector<void *> freed;
    std::vector<data_ptr> allocated;
};

/* AllocatorState: Python holds objects of it without looking inside. */
struct allocator_state {
    virtual ~allocator_state() = default;
};

struct pool_state : allocator_state {
    varve_pool_id pool;
    device_snapshot snapshot;

    ~pool_state() override
    {
        varve_alloc_snapshot_free(&snapshot);
    }
};

struct shareable_handle {
    std::ptrdiff_t offset;
    std::string handle;
};

struct stream_segment_size {
    CUstream_st *stream;
    bool is_small;
    std::size_t bytes;
};

using oom_function = std::function<void(std::int64_t, std::size_t, std::size_t, std::size_t)>;

constexpr std::int8_t DEVICE_CUDA = 1;
#define PLUGGABLE "5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

/* Where that class is from 2.5 on, and before. */
const char *const libraries[] = {"libtorch_cuda.so", "libtorch_python.so"};

[[noreturn]] void fail(const varve_message &message)
{
    throw std::runtime_error(std::string("varve: ") + message.text);
}

void check(int error, const varve_message &message)
{
    if (error != VARVE_OK) {
        fail(message);
    }
}

/* Of functions that leave their message in varve_torch_message(). */
int check_call(int result)
{
    if (result < 0) {
        throw std::runtime_error(std::string("varve: ") + varve_torch_message());
    }
    return result;
}

template <typename function> function find_function(const char *symbol)
{
    for (const char *library : libraries) {
        void *found = torch_symbol_find(library, symbol);
        function result;

        if (found != nullptr) {
            std::memcpy(&result, &found, sizeof(result));
            return result;
        }
    }
    throw std::runtime_error(std::string("varve: PyTorch's libraries have no ") + symbol);
}

/*
 * The pluggable class keeps a map of what was allocated through it, and refuses to free anything else. What a pool was
 * given back is not in it.
 */
class restored_blocks
{
    std::mutex mutex;
    address_set blocks;
    std::atomic<std::size_t> count{0};

  public:
    void change(const varve_pool_change &change)
    {
        const std::lock_guard<std::mutex> lock(mutex);

        for (std::size_t i = 0; i < change.freed_count; i++) {
            blocks.erase(reinterpret_cast<void *>(change.freed[i]));
        }
        for (std::size_t i = 0; i < change.allocated_count; i++) {
            blocks.insert(reinterpret_cast<void *>(change.allocated[i]));
        }
        count = blocks.size();
    }

    bool remove(void *addr)
    {
        if (count == 0) {
            return false;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        bool was_there = blocks.erase(addr) > 0;

        count = blocks.size();
        return was_there;
    }
};

restored_blocks &restored()
{
    static auto *blocks = new restored_blocks; /* never torn down: PyTorch frees in destructors */

    return *blocks;
}

/* The deleter is the one that PyTorch gives the allocator's blocks: it looks whether storages have it. */
pool_delta delta_of(void *self, int device, const varve_pool_change &change)
{
    static const auto raw_deleter = find_function<void (*(*)(void *))(void *)>("_ZNK" PLUGGABLE "11raw_deleterEv");
    void (*delete_raw)(void *) = raw_deleter(self);
    pool_delta delta;

    for (std::size_t i = 0; i < change.freed_count; i++) {
        delta.freed.push_back(reinterpret_cast<void *>(change.freed[i]));
    }
    for (std::size_t i = 0; i < change.allocated_count; i++) {
        auto *addr = reinterpret_cast<void *>(change.allocated[i]);

        delta.allocated.push_back(
            {addr, {addr, delete_raw}, DEVICE_CUDA, static_cast<std::int8_t>(device)});
    }
    return delta;
}

bool is_expected(const void *context, std::uint64_t addr)
{
    return static_cast<const address_set *>(context)->count(reinterpret_cast<void *>(addr)) > 0;
}

/* Of the program, for good, as in PyTorch. */
struct oom_functions {
    std::mutex mutex;
    std::vector<oom_function> functions;
};

/* As PyTorch calls them: what one throws is the request's error, and the others are not called. */
void call_oom_functions(void *context, int device, std::uint64_t bytes, std::uint64_t total, std::uint64_t free)
{
    auto *all = static_cast<oom_functions *>(context);

    try {
        std::unique_lock<std::mutex> lock(all->mutex);
        const std::vector<oom_function> functions = all->functions;

        lock.unlock(); /* they wait for Python's */
        for (const oom_function &call : functions) {
            call(device, bytes, total, free);
        }
    } catch (...) {
        torch_keep_exception(std::current_exception());
    }
}

} // namespace

extern "C" {
TORCH_API std::string varve_torch_name_method(void *self);
TORCH_API void varve_torch_raw_delete_method(void *self, void *addr);
TORCH_API double varve_torch_get_memory_fraction_method(void *self, std::int8_t device);
TORCH_API void varve_torch_empty_cache_method(void *self, pool_pair pool);
TORCH_API varve_alloc_stats varve_torch_device_stats_method(void *self, std::int8_t device);
TORCH_API void varve_torch_reset_accumulated_stats_method(void *self, std::int8_t device);
TORCH_API void varve_torch_reset_peak_stats_method(void *self, std::int8_t device);
TORCH_API std::vector<stream_segment_size> varve_torch_expandable_sizes_method(void *self, std::int8_t device);
TORCH_API bool varve_torch_is_history_enabled_method(void *self);
TORCH_API void varve_torch_attach_oom_observer_method(void *self, oom_function observer);
TORCH_API void varve_torch_enable_peer_access_method(void *self, std::int8_t peer, std::int8_t device);
TORCH_API int varve_torch_memcpy_async_method(void *self, void *to, int to_device, const void *from, int from_device,
                                              std::size_t bytes, CUstream_st *stream, bool has_peer_access);
TORCH_API int varve_torch_pool_use_count_method(void *self, std::int8_t device, pool_pair pool);
TORCH_API void varve_torch_take_pool_method(void *self, std::int8_t device, pool_pair pool);
TORCH_API void varve_torch_take_pool_of_method(void *self, std::int8_t device, pool_pair pool, void *allocator);
TORCH_API void varve_torch_take_pool_shared_method(void *self, std::int8_t device, pool_pair pool,
                                                   std::shared_ptr<void> allocator);
TORCH_API void varve_torch_use_on_oom_method(void *self, std::int8_t device, pool_pair pool);
TORCH_API void varve_torch_set_use_on_oom_method(void *self, std::int8_t device, pool_pair pool, bool value);
TORCH_API void varve_torch_no_split_method(void *self, std::int8_t device, pool_pair pool);
TORCH_API bool varve_torch_check_pool_method(void *self, std::int8_t device, pool_pair pool,
                                             const address_set &expected);
TORCH_API std::shared_ptr<allocator_state> varve_torch_checkpoint_method(void *self, std::int8_t device,
                                                                         pool_pair pool);
TORCH_API pool_delta varve_torch_restore_method(void *self, std::int8_t device,
                                                std::shared_ptr<allocator_state> state);
TORCH_API shareable_handle varve_torch_share_method(void *self, void *addr);
TORCH_API std::shared_ptr<void> varve_torch_open_shared_method(void *self, std::string handle);
}

/* ---- what the base class refuses ---- */

int varve_torch_refusal(void *function, void *const *functions, char *name_out, std::size_t size)
{
    static const char WORDS[] = "does not yet support ";
    static unsigned char nothing[5][256]; /* what the arguments point to: the refusals do not look at them */
    void *object[32] = {const_cast<void **>(functions)};
    int (*call)(void *, void *, void *, void *, void *, void *);

    std::memcpy(&call, &function, sizeof(call));
    try {
        call(object, nothing[0], nothing[1], nothing[2], nothing[3], nothing[4]);
    } catch (const std::exception &error) {
        const char *found = std::strstr(error.what(), WORDS);
        const char *name = found != nullptr ? found + std::strlen(WORDS) : "";
        std::size_t length = std::strspn(
            name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

        if (length > 0 && length < size) {
            std::memcpy(name_out, name, length);
            name_out[length] = '\0';
            return 1;
        }
    }
    return 0;
}

/* ---- the allocator as a whole ---- */

std::string varve_torch_name_method(void *)
{
    return "native"; /* programs ask for it to learn what the allocator can do */
}

void varve_torch_raw_delete_method(void *self, void *addr)
{
    static const auto original = find_function<void (*)(void *, void *)>("_ZN" PLUGGABLE "10raw_deleteEPv");

    if (__builtin_expect(restored().remove(addr), 0)) {
        torch_free(reinterpret_cast<std::uint64_t>(addr));
    } else {
        original(self, addr);
    }
}

double varve_torch_get_memory_fraction_method(void *, std::int8_t device)
{
    return varve_torch_get_memory_fraction(device);
}

void varve_torch_empty_cache_method(void *, pool_pair pool)
{
    check_call(varve_torch_empty_cache(-1, pool.first, pool.second));
}

varve_alloc_stats varve_torch_device_stats_method(void *, std::int8_t device)
{
    varve_alloc_stats stats;

    check_call(torch_stats_of(device, &stats));
    return stats;
}

void varve_torch_reset_accumulated_stats_method(void *, std::int8_t device)
{
    check_call(varve_torch_reset_accumulated_stats(device));
}

void varve_torch_reset_peak_stats_method(void *, std::int8_t device)
{
    check_call(varve_torch_reset_peak_stats(device));
}

std::vector<stream_segment_size> varve_torch_expandable_sizes_method(void *, std::int8_t device)
{
    std::vector<stream_segment_size> sizes;
    device_snapshot snapshot;
    varve_message message;

    check(torch_pool_look(device, &snapshot, &message), message);
    for (std::size_t i = 0; i < snapshot.segment_count; i++) {
        const varve_segment_info &segment = snapshot.segments[i];
        auto *stream = reinterpret_cast<CUstream_st *>(segment.stream);
        bool is_next = !sizes.empty() && i > 0 && snapshot.segments[i - 1].segment_id == segment.segment_id;

        if (!segment.is_expandable || segment.stream == 0) { /* PyTorch's leaves out the default stream */
            continue;
        }
        if (is_next) {
            sizes.back().bytes += segment.bytes;
        } else {
            sizes.push_back({stream, segment.is_small, segment.bytes});
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    return sizes;
}

bool varve_torch_is_history_enabled_method(void *)
{
    return varve_torch_history_is_on() != 0;
}

void varve_torch_attach_oom_observer_method(void *, oom_function observer)
{
    static auto *all = new oom_functions;
    const std::lock_guard<std::mutex> lock(all->mutex);

    if (all->functions.empty()) {
        check_call(varve_torch_add_oom_observer(call_oom_functions, all));
    }
    all->functions.push_back(std::move(observer));
}

/* ---- devices beside each other ---- */

void varve_torch_enable_peer_access_method(void *self, std::int8_t peer, std::int8_t device)
{
    static const auto original =
        find_function<void (*)(void *, std::int8_t, std::int8_t)>("_ZN" PLUGGABLE "16enablePeerAccessEaa");
    varve_message message;

    original(self, peer, device);
    check(torch_enable_peer(device, peer, &message), message);
}

/* Without access to each other's memory only cudaMemcpyPeerAsync copies between expandable segments. */
int varve_torch_memcpy_async_method(void *self, void *to, int to_device, const void *from, int from_device,
                                    std::size_t bytes, CUstream_st *stream, bool has_peer_access)
{
    static const auto original =
        find_function<int (*)(void *, void *, int, const void *, int, std::size_t, CUstream_st *, bool)>(
            "_ZN" PLUGGABLE "11memcpyAsyncEPviPKvimP11CUstream_stb");

    if (has_peer_access || to_device == from_device) {
        return original(self, to, to_device, from, from_device, bytes, stream, has_peer_access);
    }
    static const auto copy_between =
        find_function<int (*)(void *, int, const void *, int, std::size_t, CUstream_st *)>("cudaMemcpyPeerAsync");

    return copy_between(to, to_device, from, from_device, bytes, stream);
}

/* ---- private pools ---- */

int varve_torch_pool_use_count_method(void *, std::int8_t device, pool_pair pool)
{
    return check_call(varve_torch_pool_use_count(device, pool.first, pool.second));
}

void varve_torch_take_pool_method(void *, std::int8_t device, pool_pair pool)
{
    check_call(varve_torch_take_pool(device, pool.first, pool.second));
}

void varve_torch_take_pool_of_method(void *self, std::int8_t device, pool_pair pool, void *allocator)
{
    if (allocator != nullptr) {
        throw std::runtime_error("varve: a torch.cuda.MemPool with an allocator of its own needs PyTorch's native "
                                 "one: record without --torch, or with --torch=observe");
    }
    varve_torch_take_pool_method(self, device, pool);
}

void varve_torch_take_pool_shared_method(void *self, std::int8_t device, pool_pair pool,
                                         std::shared_ptr<void> allocator)
{
    varve_torch_take_pool_of_method(self, device, pool, allocator.get());
}

void varve_torch_use_on_oom_method(void *self, std::int8_t device, pool_pair pool)
{
    varve_torch_set_use_on_oom_method(self, device, pool, true);
}

void varve_torch_set_use_on_oom_method(void *, std::int8_t device, pool_pair pool, bool value)
{
    check_call(varve_torch_set_use_on_oom(device, pool.first, pool.second, value));
}

void varve_torch_no_split_method(void *, std::int8_t device, pool_pair pool)
{
    check_call(varve_torch_set_no_split(device, pool.first, pool.second));
}

bool varve_torch_check_pool_method(void *, std::int8_t device, pool_pair pool, const address_set &expected)
{
    device_snapshot snapshot;
    varve_message message;

    check(torch_pool_look(device, &snapshot, &message), message);
    bool holds = torch_pool_holds(&snapshot, {pool.first, pool.second}, expected.size(), is_expected, &expected);

    varve_alloc_snapshot_free(&snapshot);
    return holds;
}

std::shared_ptr<allocator_state> varve_torch_checkpoint_method(void *, std::int8_t device, pool_pair pool)
{
    auto state = std::make_shared<pool_state>();
    varve_message message;

    state->pool = {pool.first, pool.second};
    check(torch_pool_look(device, &state->snapshot, &message), message);
    return state;
}

pool_delta varve_torch_restore_method(void *self, std::int8_t device, std::shared_ptr<allocator_state> state)
{
    const auto *ours = dynamic_cast<const pool_state *>(state.get());
    varve_pool_change change;
    varve_message message;

    if (ours == nullptr) {
        throw std::runtime_error("varve: the state of a pool is of another allocator");
    }
    int error = torch_pool_restore(device, ours->pool, &ours->snapshot, &change, &message);

    restored().change(change); /* also of a part */
    pool_delta delta = error == VARVE_OK ? delta_of(self, device, change) : pool_delta();

    varve_pool_change_free(&change);
    check(error, message);
    return delta;
}

/* ---- other processes ---- */

shareable_handle varve_torch_share_method(void *, void *addr)
{
    torch_shared shared;
    varve_message message;

    check(torch_share_export(reinterpret_cast<std::uint64_t>(addr), &shared, &message), message);
    const std::unique_ptr<char, void (*)(void *)> text(shared.text, std::free);

    return {static_cast<std::ptrdiff_t>(shared.offset), std::string(text.get(), shared.size)};
}

std::shared_ptr<void> varve_torch_open_shared_method(void *, std::string handle)
{
    static const auto current_device =
        find_function<std::int8_t (*)()>("_ZN3c104cuda14current_deviceEv");
    int device = current_device();
    std::uint64_t addr = 0;
    varve_message message;

    check(torch_share_open(device, handle.data(), handle.size(), &addr, &message), message);
    return {reinterpret_cast<void *>(addr),
            [device](void *opened) { torch_share_close(device, reinterpret_cast<std::uint64_t>(opened)); }};
}
