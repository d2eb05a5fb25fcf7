/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What alloc/frontend finds by name in PyTorch's C++ libraries, as of 2.11: the pointer to the allocator in use,
 * and the pluggable class, with the functions that it refuses to answer. Those of the base class have no exported
 * names. Three objects stand for the native allocator and two plugged ones. Python's fake torch asks through the
 * fake_… functions, which return a negative number where something was thrown, which fake_error() says.
 */
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#define SHOWN __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

struct CUstream_st;

using pool_pair = std::pair<unsigned long long, unsigned long long>;
using address_set = std::unordered_set<void *>;

namespace c10
{

using DeviceIndex = std::int8_t;

struct SHOWN DataPtr {
    void *data;
    std::unique_ptr<void, void (*)(void *)> context;
    std::int8_t type, index;
};

namespace cuda
{

SHOWN DeviceIndex current_device();

DeviceIndex current_device()
{
    return 0;
}

namespace CUDACachingAllocator
{

struct SHOWN AllocatorState {
    HIDDEN virtual ~AllocatorState() = default;
};

struct SHOWN CheckpointDelta {
    std::vector<void *> ptrs_freed;
    std::vector<DataPtr> dataptrs_allocd;
};

struct SHOWN ShareableHandle {
    std::ptrdiff_t offset;
    std::string handle;
};

struct SHOWN StreamSegmentSize {
    CUstream_st *stream;
    bool is_small_pool;
    std::size_t total_size;
};

/* DeviceStats of 2.3 to 2.11. */
struct SHOWN Stats {
    struct stat {
        std::int64_t current, peak, allocated, freed;
    } arrays[9][3];
    std::int64_t retries, ooms;
    stat oversize_allocations, oversize_segments;
    std::int64_t syncs, device_allocs, device_frees, max_split_size;
};

class SHOWN CUDAAllocator
{
    [[noreturn]] HIDDEN void refuse_by_default(const char *what)
    {
        throw std::runtime_error(name() + " does not yet support " + what + ". If you need it, say so.");
    }

  public:
    HIDDEN virtual ~CUDAAllocator() = default;
    virtual void raw_delete(void *addr) = 0;
    virtual double getMemoryFraction(DeviceIndex device) = 0;
    virtual void emptyCache(pool_pair pool) = 0;
    virtual void cacheInfo(DeviceIndex device, std::size_t *largest) = 0;
    virtual Stats getDeviceStats(DeviceIndex device) = 0;
    virtual void resetAccumulatedStats(DeviceIndex device) = 0;
    virtual void resetPeakStats(DeviceIndex device) = 0;
    virtual void releasePool(DeviceIndex device, pool_pair pool) = 0;
    HIDDEN virtual int getPoolUseCount(DeviceIndex, pool_pair)
    {
        refuse_by_default("getPoolUseCount");
    }
    HIDDEN virtual void createOrIncrefPool(DeviceIndex, pool_pair, std::shared_ptr<CUDAAllocator>)
    {
        refuse_by_default("createOrIncrefPool");
    }
    HIDDEN virtual void setUseOnOOM(DeviceIndex, pool_pair, bool)
    {
        refuse_by_default("setUseOnOOM");
    }
    HIDDEN virtual void setNoSplit(DeviceIndex, pool_pair)
    {
        refuse_by_default("setNoSplit");
    }
    HIDDEN virtual bool checkPoolLiveAllocations(DeviceIndex, pool_pair, const address_set &)
    {
        refuse_by_default("checkPoolLiveAllocations");
    }
    virtual ShareableHandle shareIpcHandle(void *addr) = 0;
    virtual std::shared_ptr<void> getIpcDevPtr(std::string handle) = 0;
    HIDDEN virtual bool isHistoryEnabled()
    {
        refuse_by_default("recordHistory");
    }
    virtual void recordHistory(bool enabled) = 0;
    HIDDEN virtual std::string getUserMetadata() /* refuses nothing */
    {
        return "";
    }
    virtual void attachOutOfMemoryObserver(
        std::function<void(std::int64_t, std::size_t, std::size_t, std::size_t)> observer) = 0;
    virtual std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) = 0;
    virtual void enablePeerAccess(DeviceIndex peer, DeviceIndex device) = 0;
    virtual int memcpyAsync(void *to, int to_device, const void *from, int from_device, std::size_t bytes,
                            CUstream_st *stream, bool has_peer_access) = 0;
    virtual std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, pool_pair pool) = 0;
    virtual CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) = 0;
    virtual std::string name() = 0;
    virtual void (*raw_deleter() const)(void *) = 0;
};

SHOWN std::atomic<CUDAAllocator *> allocator;

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10

namespace torch
{
namespace cuda
{
namespace CUDAPluggableAllocator
{

using namespace c10::cuda::CUDACachingAllocator;

static void delete_raw(void *addr)
{
    allocator.load()->raw_delete(addr);
}

static int fake_peers; /* as enablePeerAccess was asked */

[[noreturn]] static void refuse(const char *what)
{
    throw std::runtime_error(std::string("CUDAPluggableAllocator does not yet support ") + what);
}

struct SHOWN CUDAPluggableAllocator : CUDAAllocator {
    void *(*take)(std::size_t, int, CUstream_st *);
    void (*give)(void *, std::size_t, int, CUstream_st *);
    std::map<void *, std::size_t> blocks;

    void *allocate(std::size_t bytes)
    {
        void *addr = take(bytes, 0, nullptr);

        blocks.emplace(addr, bytes);
        return addr;
    }
    void raw_delete(void *addr) override;
    double getMemoryFraction(c10::DeviceIndex device) override;
    void emptyCache(pool_pair pool) override;
    void cacheInfo(c10::DeviceIndex device, std::size_t *largest) override;
    Stats getDeviceStats(c10::DeviceIndex device) override;
    void resetAccumulatedStats(c10::DeviceIndex device) override;
    void resetPeakStats(c10::DeviceIndex device) override;
    void releasePool(c10::DeviceIndex device, pool_pair pool) override;
    ShareableHandle shareIpcHandle(void *addr) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
    void recordHistory(bool enabled) override;
    void attachOutOfMemoryObserver(
        std::function<void(std::int64_t, std::size_t, std::size_t, std::size_t)> observer) override;
    std::vector<StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override;
    void enablePeerAccess(c10::DeviceIndex peer, c10::DeviceIndex device) override;
    int memcpyAsync(void *to, int to_device, const void *from, int from_device, std::size_t bytes,
                    CUstream_st *stream, bool has_peer_access) override;
    std::shared_ptr<AllocatorState> getCheckpointState(c10::DeviceIndex device, pool_pair pool) override;
    CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                           std::shared_ptr<AllocatorState> state) override;
    std::string name() override;
    void (*raw_deleter() const)(void *) override;
};

void CUDAPluggableAllocator::raw_delete(void *addr)
{
    auto found = blocks.find(addr);

    if (found == blocks.end()) {
        throw std::runtime_error("Trying to free a pointer not allocated here");
    }
    std::size_t bytes = found->second;

    blocks.erase(found);
    give(addr, bytes, 0, nullptr);
}

double CUDAPluggableAllocator::getMemoryFraction(c10::DeviceIndex)
{
    refuse("getMemoryFraction");
}

void CUDAPluggableAllocator::emptyCache(pool_pair)
{
}

void CUDAPluggableAllocator::cacheInfo(c10::DeviceIndex, std::size_t *)
{
    refuse("cacheInfo");
}

Stats CUDAPluggableAllocator::getDeviceStats(c10::DeviceIndex)
{
    refuse("getDeviceStats");
}

void CUDAPluggableAllocator::resetAccumulatedStats(c10::DeviceIndex)
{
    refuse("resetAccumulatedStats");
}

void CUDAPluggableAllocator::resetPeakStats(c10::DeviceIndex)
{
    refuse("resetPeakStats");
}

void CUDAPluggableAllocator::releasePool(c10::DeviceIndex, pool_pair)
{
}

ShareableHandle CUDAPluggableAllocator::shareIpcHandle(void *)
{
    refuse("shareIPcHandle");
}

std::shared_ptr<void> CUDAPluggableAllocator::getIpcDevPtr(std::string)
{
    refuse("getIpcDevPtr");
}

void CUDAPluggableAllocator::recordHistory(bool)
{
    refuse("recordHistory");
}

void CUDAPluggableAllocator::attachOutOfMemoryObserver(
    std::function<void(std::int64_t, std::size_t, std::size_t, std::size_t)>)
{
    refuse("attachOutOfMemoryObserver");
}

std::vector<StreamSegmentSize> CUDAPluggableAllocator::getExpandableSegmentSizes(c10::DeviceIndex)
{
    refuse("getExpandableSegmentSizes");
}

void CUDAPluggableAllocator::enablePeerAccess(c10::DeviceIndex peer, c10::DeviceIndex device)
{
    fake_peers = peer * 10 + device;
}

int CUDAPluggableAllocator::memcpyAsync(void *, int, const void *, int, std::size_t, CUstream_st *, bool)
{
    return 1;
}

std::shared_ptr<AllocatorState> CUDAPluggableAllocator::getCheckpointState(c10::DeviceIndex, pool_pair)
{
    refuse("getCheckpointState");
}

CheckpointDelta CUDAPluggableAllocator::setCheckpointPoolState(c10::DeviceIndex, std::shared_ptr<AllocatorState>)
{
    refuse("setCheckpointPoolState");
}

std::string CUDAPluggableAllocator::name()
{
    return "pluggable";
}

void (*CUDAPluggableAllocator::raw_deleter() const)(void *)
{
    return delete_raw;
}

} // namespace CUDAPluggableAllocator
} // namespace cuda
} // namespace torch

using c10::cuda::CUDACachingAllocator::allocator;
using torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

namespace
{

/* Answers what fake_native is asked by name. */
struct native_allocator final : CUDAPluggableAllocator {
    std::string name() override
    {
        return "native";
    }
};

std::string said;

template <typename call> int guarded(call asked)
{
    try {
        return static_cast<int>(asked());
    } catch (const std::exception &error) {
        said = error.what();
        return -1;
    }
}

} // namespace

namespace torch::cuda
{

static const char *(*pickler)(std::size_t *bytes); /* NULL: this PyTorch throws */

} // namespace torch::cuda

extern "C" {
SHOWN extern native_allocator fake_native;
SHOWN extern CUDAPluggableAllocator fake_pluggable, fake_second;
SHOWN const char *fake_error();
SHOWN const char *fake_name();
SHOWN void fake_plug(void *(*take)(std::size_t, int, CUstream_st *),
                     void (*give)(void *, std::size_t, int, CUstream_st *));
SHOWN int fake_cache_info(int device, std::size_t *largest);
SHOWN int fake_get_fraction(int device, double *fraction);
SHOWN int fake_reset(int device, int is_peak);
SHOWN int fake_allocated(int device, std::int64_t *bytes);
SHOWN int fake_is_history_enabled();
SHOWN void fake_pickle_by(const char *(*pickler)(std::size_t *));
SHOWN int fake_observe(int (*observer)(std::int64_t, std::size_t, std::size_t, std::size_t));
SHOWN int fake_pool(int what, std::uint64_t id);
SHOWN int fake_use_count(std::uint64_t id);
SHOWN int fake_take_back(std::uint64_t id, void (*begin)(int, pool_pair, std::function<bool(CUstream_st *)>),
                         void (*end)(int, pool_pair));
SHOWN int fake_between(int has_peer_access, int to_device);
SHOWN int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, std::size_t bytes,
                              CUstream_st *stream);
SHOWN int fake_expandable(std::size_t *bytes);
SHOWN int fake_share(char *text, std::size_t size, std::size_t *offset);
SHOWN int fake_open_shared(const char *text, std::size_t size, std::size_t offset);
}

native_allocator fake_native;
CUDAPluggableAllocator fake_pluggable, fake_second;

const char *fake_error()
{
    return said.c_str();
}

const char *fake_name()
{
    static std::string name;

    name = allocator.load()->name();
    return name.c_str();
}

void fake_plug(void *(*take)(std::size_t, int, CUstream_st *), void (*give)(void *, std::size_t, int, CUstream_st *))
{
    fake_pluggable.take = take;
    fake_pluggable.give = give;
}

/* What cuDNN's search for plans does. */
int fake_cache_info(int device, std::size_t *largest)
{
    return guarded([&] { return allocator.load()->cacheInfo(static_cast<std::int8_t>(device), largest), 0; });
}

int fake_get_fraction(int device, double *fraction)
{
    return guarded([&] {
        *fraction = allocator.load()->getMemoryFraction(static_cast<std::int8_t>(device));
        return 0;
    });
}

int fake_reset(int device, int is_peak)
{
    return guarded([&] {
        if (is_peak != 0) {
            allocator.load()->resetPeakStats(static_cast<std::int8_t>(device));
        } else {
            allocator.load()->resetAccumulatedStats(static_cast<std::int8_t>(device));
        }
        return 0;
    });
}

/* allocated_bytes.all.current */
int fake_allocated(int device, std::int64_t *bytes)
{
    return guarded([&] {
        const auto stats = allocator.load()->getDeviceStats(static_cast<std::int8_t>(device));

        *bytes = stats.arrays[4][0].current;
        return stats.max_split_size == -1 ? 0 : 1;
    });
}

int fake_is_history_enabled()
{
    return guarded([] { return allocator.load()->isHistoryEnabled(); });
}

/* An observer that returns other than 0 throws. */
int fake_observe(int (*observer)(std::int64_t, std::size_t, std::size_t, std::size_t))
{
    return guarded([&] {
        allocator.load()->attachOutOfMemoryObserver(
            [observer](std::int64_t device, std::size_t bytes, std::size_t total, std::size_t free) {
                if (observer(device, bytes, total, free) != 0) {
                    throw std::runtime_error("the observer's own");
                }
            });
        return 0;
    });
}

/* What MemPool does: makes one, with an allocator of its own, for want of memory, without splits; ends it. */
int fake_pool(int what, std::uint64_t id)
{
    const pool_pair pool(0, id);

    return guarded([&] {
        auto *asked = allocator.load();

        switch (what) {
        case 0:
            asked->createOrIncrefPool(0, pool, nullptr);
            break;
        case 1:
            asked->createOrIncrefPool(0, pool, {std::shared_ptr<void>(), &fake_second});
            break;
        case 2:
            asked->setUseOnOOM(0, pool, true);
            break;
        case 3:
            asked->setNoSplit(0, pool);
            break;
        default:
            asked->releasePool(0, pool);
            asked->emptyCache(pool);
        }
        return 0;
    });
}

int fake_use_count(std::uint64_t id)
{
    return guarded([&] { return allocator.load()->getPoolUseCount(0, {0, id}); });
}

/*
 * What CUDA graph trees do: a pool is written down, changed, and taken back; what it had then has deleters, which free
 * it. 0, or the number of the first thing that is not so.
 */
int fake_take_back(std::uint64_t id, void (*begin)(int, pool_pair, std::function<bool(CUstream_st *)>),
                   void (*end)(int, pool_pair))
{
    const pool_pair pool(0, id);

    return guarded([&] {
        auto *asked = allocator.load();

        asked->createOrIncrefPool(0, pool, nullptr);
        begin(0, pool, nullptr);
        void *first = fake_pluggable.allocate(100000);
        void *second = fake_pluggable.allocate(3 << 20);
        void *third = fake_pluggable.allocate(200000);

        if (!asked->checkPoolLiveAllocations(0, pool, {first, second, third}) ||
            asked->checkPoolLiveAllocations(0, pool, {first, second}) ||
            asked->checkPoolLiveAllocations(0, pool, {first, second, third, &said})) {
            return 1;
        }
        auto state = asked->getCheckpointState(0, pool);

        asked->raw_delete(first);
        asked->raw_delete(third);
        void *later = fake_pluggable.allocate(150000);

        end(0, pool);
        auto delta = asked->setCheckpointPoolState(0, state);
        address_set freed(delta.ptrs_freed.begin(), delta.ptrs_freed.end()), there;

        for (const auto &made : delta.dataptrs_allocd) {
            if (made.type != 1 || made.index != 0 || made.context.get() != made.data ||
                made.context.get_deleter() != asked->raw_deleter()) {
                return 2;
            }
            there.insert(made.data);
        }
        if (freed != address_set{second, later}) {
            return 3;
        }
        if (there != address_set{first, second, third} || !asked->checkPoolLiveAllocations(0, pool, there)) {
            return 4;
        }
        delta.dataptrs_allocd.clear();
        if (!asked->checkPoolLiveAllocations(0, pool, {})) {
            return 5;
        }
        void *unknown = &said; /* the pluggable class's own message */

        return guarded([&] { return asked->raw_delete(unknown), 0; }) == -1 ? 0 : 6;
    });
}

int cudaMemcpyPeerAsync(void *, int, const void *, int, std::size_t, CUstream_st *)
{
    return 2;
}

/* Who copies: 1 the class itself, 2 the driver's function for devices without access. */
int fake_between(int has_peer_access, int to_device)
{
    return guarded([&] {
        auto *asked = allocator.load();

        asked->enablePeerAccess(1, 0);
        return torch::cuda::CUDAPluggableAllocator::fake_peers != 10
                   ? -2
                   : asked->memcpyAsync(nullptr, to_device, nullptr, 0, 1, nullptr, has_peer_access != 0);
    });
}

/* How many expandable segments there are, of streams with a handle, and their bytes. */
int fake_expandable(std::size_t *bytes)
{
    return guarded([&] {
        auto sizes = allocator.load()->getExpandableSegmentSizes(0);

        *bytes = 0;
        for (const auto &one : sizes) {
            *bytes += one.total_size;
        }
        return sizes.size();
    });
}

/* 2 MiB that begin in a segment, with 7 and 9 at the ends. The size of the text. */
int fake_share(char *text, std::size_t size, std::size_t *offset)
{
    return guarded([&] {
        fake_pluggable.allocate(2 << 20);
        auto *shared = static_cast<unsigned char *>(fake_pluggable.allocate(2 << 20));
        auto handle = allocator.load()->shareIpcHandle(shared);

        shared[0] = 7;
        shared[(2 << 20) - 1] = 9;
        *offset = static_cast<std::size_t>(handle.offset);
        return handle.handle.copy(text, size);
    });
}

/* In another process: 0 if it is there, and is written to. */
int fake_open_shared(const char *text, std::size_t size, std::size_t offset)
{
    return guarded([&] {
        auto memory = allocator.load()->getIpcDevPtr(std::string(text, size));
        auto *shared = static_cast<unsigned char *>(memory.get()) + offset;
        int sum = shared[0] + shared[(2 << 20) - 1];

        shared[1] = 11;
        return sum == 16 ? 0 : 1;
    });
}

void fake_pickle_by(const char *(*pickler)(std::size_t *))
{
    torch::cuda::pickler = pickler;
}

/* PyTorch's own history, which here the fake Python has. */
namespace torch::cuda
{

SHOWN std::string _memory_snapshot_pickled();

std::string _memory_snapshot_pickled()
{
    std::size_t bytes = 0;
    const char *text = pickler != nullptr ? pickler(&bytes) : nullptr;

    if (text == nullptr) {
        throw std::runtime_error("no snapshot");
    }
    return {text, bytes};
}

} // namespace torch::cuda
