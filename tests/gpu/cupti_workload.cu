/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA program that knows nothing of varve, built with the static runtime library by test_cupti.py. The argument says
 * what it does; it prints one JSON object. Everything it allocates with cudaMalloc is in "blocks", as address and size.
 */
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <pthread.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

static std::string blocks;

#define CHECK(call)                                                                           \
    do {                                                                                      \
        int check_result = (int)(call);                                                       \
        if (check_result != 0) {                                                              \
            fprintf(stderr, "%s:%d: %s gives %d\n", __FILE__, __LINE__, #call, check_result); \
            exit(3);                                                                          \
        }                                                                                     \
    } while (0)

static void *block(size_t bytes)
{
    void *memory = nullptr;
    char text[64];

    CHECK(cudaMalloc(&memory, bytes));
    snprintf(text, sizeof(text), "%s[%llu, %zu]", blocks.empty() ? "" : ", ", (unsigned long long)(uintptr_t)memory,
             bytes);
    blocks += text;
    return memory;
}

template <typename Function> static Function driver(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;

    CHECK(cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, cudaEnableDefault, &status));
    return (Function)found;
}

__global__ void touch(char *memory)
{
    memory[threadIdx.x] = 1;
}

/* ---- what it does ---- */

static void linear()
{
    void *memory[20], *other;
    size_t pitch;

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            memory[i] = block((size_t)(i + 1) * 100000);
        }
        for (int i = 0; i < 20; i++) {
            CHECK(cudaFree(memory[i]));
        }
    }
    CHECK(cudaMallocPitch(&other, &pitch, 1000, 50));
    CHECK(cudaFree(other));
    CHECK(cudaMallocManaged(&other, 1 << 20));
    CHECK(cudaFree(other));
    CHECK(cudaMallocHost(&other, 1 << 20));
    CHECK(cudaFreeHost(other));
    CHECK(cudaHostAlloc(&other, 1 << 16, cudaHostAllocMapped));
    CHECK(cudaFreeHost(other));
    other = aligned_alloc(4096, 1 << 16);
    CHECK(cudaHostRegister(other, 1 << 16, 0));
    CHECK(cudaHostUnregister(other));
    free(other);
}

static void arrays()
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    cudaMipmappedArray_t levels;
    cudaArray_t array;

    CHECK(cudaMallocArray(&array, &format, 256, 128));
    CHECK(cudaFreeArray(array));
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(64, 32, 16)));
    CHECK(cudaFreeArray(array));
    CHECK(cudaMallocMipmappedArray(&levels, &format, make_cudaExtent(64, 64, 0), 3));
    CHECK(cudaFreeMipmappedArray(levels));
}

static void ordered()
{
    cudaMemPoolProps wanted = {};
    cudaMemPool_t pool;
    cudaStream_t stream;
    uint64_t keep = 64 << 20;
    void *a, *b;

    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMemPoolCreate(&pool, &wanted));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    for (int i = 0; i < 10; i++) {
        CHECK(cudaMallocAsync(&a, 1 << 20, stream));
        CHECK(cudaMallocFromPoolAsync(&b, 2 << 20, pool, stream));
        CHECK(cudaFreeAsync(a, stream));
        CHECK(cudaFreeAsync(b, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaStreamDestroy(stream));
}

static void virtual_memory()
{
    auto reserve = driver<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
    auto create = driver<decltype(&cuMemCreate)>("cuMemCreate");
    auto map = driver<decltype(&cuMemMap)>("cuMemMap");
    auto open = driver<decltype(&cuMemSetAccess)>("cuMemSetAccess");
    auto retain = driver<decltype(&cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
    auto unmap = driver<decltype(&cuMemUnmap)>("cuMemUnmap");
    auto release = driver<decltype(&cuMemRelease)>("cuMemRelease");
    auto give_back = driver<decltype(&cuMemAddressFree)>("cuMemAddressFree");
    const size_t step = 2 << 20;
    CUmemGenericAllocationHandle handles[4], again;
    CUmemAllocationProp wanted = {};
    CUmemAccessDesc access = {};
    CUdeviceptr base;

    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(reserve(&base, 16 * step, 0, 0, 0));
    for (int i = 0; i < 4; i++) {
        CHECK(create(&handles[i], step, &wanted, 0));
        CHECK(map(base + i * step, step, 0, handles[i], 0));
    }
    CHECK(open(base, 4 * step, &access, 1));
    CHECK(retain(&again, (void *)base));
    CHECK(release(again));
    CHECK(unmap(base, 4 * step));
    for (int i = 0; i < 4; i++) {
        CHECK(release(handles[i]));
    }
    CHECK(give_back(base, 16 * step));
}

static void failures()
{
    void *memory = nullptr;

    if (cudaMalloc(&memory, (size_t)1 << 50) != cudaErrorMemoryAllocation) {
        exit(4);
    }
    if (cudaFree((void *)0x12345000) == cudaSuccess) {
        exit(5);
    }
    cudaGetLastError();
}

static void graph()
{
    cudaGraphExec_t instance;
    cudaStream_t stream;
    cudaGraph_t made;
    void *memory;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&memory, 1 << 20, stream));
    touch<<<1, 32, 0, stream>>>((char *)memory);
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamEndCapture(stream, &made));
    CHECK(cudaGraphInstantiate(&instance, made, 0));
    CHECK(cudaGraphLaunch(instance, stream));
    CHECK(cudaGraphLaunch(instance, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(instance));
    CHECK(cudaGraphDestroy(made));
    CHECK(cudaStreamDestroy(stream));
}

static void *run_thread(void *)
{
    void *memory;

    for (int i = 0; i < 200; i++) {
        CHECK(cudaMalloc(&memory, 4096));
        CHECK(cudaFree(memory));
    }
    return nullptr;
}

static void threads()
{
    pthread_t all[4];

    for (pthread_t &one : all) {
        pthread_create(&one, nullptr, run_thread, nullptr);
    }
    for (pthread_t &one : all) {
        pthread_join(one, nullptr);
    }
}

/* ---- other programs ---- */

static double now()
{
    timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* ns of a call that does next to nothing, and of a pair that does something. */
static void costs()
{
    const int waits = 20000, pairs = 200;
    double wait_ns = 1e18, pair_ns = 1e18;
    cudaEvent_t event;
    void *memory;

    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event));
    CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < 5; round++) {
        double begin = now();
        for (int i = 0; i < waits; i++) {
            CHECK(cudaEventSynchronize(event));
        }
        wait_ns = std::min(wait_ns, (now() - begin) / waits);
        begin = now();
        for (int i = 0; i < pairs; i++) {
            CHECK(cudaMalloc(&memory, 1 << 20));
            CHECK(cudaFree(memory));
        }
        pair_ns = std::min(pair_ns, (now() - begin) / pairs);
    }
    printf("{\"event_synchronize_ns\": %.1f, \"malloc_free_ns\": %.1f}\n", wait_ns, pair_ns);
}

static void any_callback(void *, int, unsigned, const void *)
{
}

/* The program is a profiler itself, and comes first. */
static void take_seat()
{
    void *library = dlopen("libcupti.so.13", RTLD_NOW);
    const char *path = getenv("VARVE_CUPTI_LIBRARY");
    void *subscriber = nullptr;

    library = library != nullptr || path == nullptr ? library : dlopen(path, RTLD_NOW);
    if (library == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        exit(6);
    }
    auto subscribe =
        (int (*)(void **, void (*)(void *, int, unsigned, const void *), void *))dlsym(library, "cuptiSubscribe");
    CHECK(subscribe(&subscriber, any_callback, nullptr));
}

static void *kept;

static void free_kept()
{
    cudaFree(kept);
}

static void fork_child()
{
    void *memory;
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        cudaMalloc(&memory, 4096); /* fails: CUDA is dead here */
        exit(0);
    }
    waitpid(child, &status, 0);
    if (status != 0) {
        exit(7);
    }
}

int main(int argc, char **argv)
{
    std::string what = argc > 1 ? argv[1] : "all";

    if (what == "subscription") {
        take_seat();
    }
    if (what == "late") {
        atexit(free_kept); /* runs after all handlers that CUDA and those who watch it register */
    }
    CHECK(cudaFree(nullptr));
    if (what == "costs") {
        costs();
        return 0;
    }
    linear();
    if (what == "all") {
        arrays();
        ordered();
        virtual_memory();
        failures();
        graph();
        threads();
    }
    kept = block(1 << 20);
    if (what == "reset") {
        CHECK(cudaDeviceReset());
        kept = block(1 << 20);
    }
    if (what == "fork") {
        fork_child();
    }
    printf("{\"blocks\": [%s]}\n", blocks.c_str());
    fflush(stdout);
    if (what == "killed") {
        for (;;) {
            pause();
        }
    }
    return 0;
}
