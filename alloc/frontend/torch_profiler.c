/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's own torch.profiler under profile_memory=True hears of each block what PyTorch's allocator would tell it:
 * c10::reportMemoryUsageToProfiler and reportOutOfMemoryToProfiler, which know the thread's profiler.
 */
#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch_requests.h"
#include "alloc/frontend/torch_symbols.h"

#include <pthread.h>
#include <string.h>

#define DEVICE_CUDA 1

/* c10::Device */
struct c10_device {
    int8_t type, index;
};

static pthread_once_t profiler_once = PTHREAD_ONCE_INIT;
static struct {
    bool (*is_enabled)(void);
    void (*report)(void *addr, int64_t bytes, size_t allocated, size_t reserved, struct c10_device device);
    void (*report_oom)(int64_t bytes, size_t allocated, size_t reserved, struct c10_device device);
} profiler;

static void profiler_find_symbol(void *function, const char *symbol)
{
    void *found = torch_symbol_find("libc10.so", symbol);
    memcpy(function, &found, sizeof(found));
}

static void profiler_find(void)
{
    profiler_find_symbol(&profiler.report, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
    profiler_find_symbol(&profiler.report_oom, "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
    if (profiler.report != NULL && profiler.report_oom != NULL) {
        profiler_find_symbol(&profiler.is_enabled, "_ZN3c1022memoryProfilingEnabledEv");
    }
}

bool torch_profiler_wants(void)
{
    pthread_once(&profiler_once, profiler_find);
    return profiler.is_enabled != NULL && profiler.is_enabled();
}

static struct c10_device c10_device_of(const struct frontend_device *device)
{
    return (struct c10_device){.type = DEVICE_CUDA, .index = (int8_t)device->ordinal};
}

void torch_profiler_report(const struct frontend_device *device, uint64_t addr, int64_t bytes)
{
    profiler.report((void *)(uintptr_t)addr, bytes, (size_t)varve_alloc_memory_allocated(device->alloc),
                    (size_t)varve_alloc_memory_reserved(device->alloc), c10_device_of(device));
}

void torch_profiler_report_oom(const struct frontend_device *device, uint64_t bytes)
{
    profiler.report_oom((int64_t)bytes, (size_t)varve_alloc_memory_allocated(device->alloc),
                        (size_t)varve_alloc_memory_reserved(device->alloc), c10_device_of(device));
}
