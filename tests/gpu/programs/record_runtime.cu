// SPDX-License-Identifier: Apache-2.0
//
// Uses the CUDA runtime library in the ways of real programs, for the test of the CUDA recorder; built with a static
// runtime library, a shared one, and with a default stream per thread. The argument says what is done:
// all, reset, fork, atexit, capture, threads.

#include <cuda_runtime.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record_expect.h"

#define MIB (size_t{1} << 20)
#define EXPECT_EVENT(kind, memory, function, bytes) expect_event(kind, memory, function, 0, bytes)

__global__ void fill(unsigned *words, size_t count, unsigned value)
{
    size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
    if (i < count) {
        words[i] = value + unsigned(i);
    }
}

static void use(void *memory, size_t bytes, cudaStream_t stream)
{
    size_t count = bytes / sizeof(unsigned);
    fill<<<unsigned((count + 255) / 256), 256, 0, stream>>>(static_cast<unsigned *>(memory), count, 7);
    EXPECT(0, cudaGetLastError());
}

static void *take(size_t bytes)
{
    void *memory = nullptr;
    EXPECT(0, cudaMalloc(&memory, bytes));
    EXPECT_EVENT("dev_alloc", MEMORY_DEVICE, "cudaMalloc", bytes);
    return memory;
}

static void give(void *memory)
{
    EXPECT_EVENT("dev_free", MEMORY_DEVICE, "cudaFree", 0);
    EXPECT(0, cudaFree(memory));
}

static void linear()
{
    void *memory[3], *other = nullptr;
    size_t pitch = 0;
    unsigned back = 0;

    for (int i = 0; i < 3; i++) {
        memory[i] = take((i + 1) * MIB + 4096);
        use(memory[i], MIB, nullptr);
    }
    EXPECT(2, cudaMalloc(&other, size_t{1} << 50));
    expect_event("dev_oom", MEMORY_DEVICE, "cudaMalloc", 1, size_t{1} << 50);
    EXPECT(2, cudaGetLastError());
    give(memory[1]);
    memory[1] = take(MIB);
    EXPECT(0, cudaMemcpy(&back, static_cast<unsigned *>(memory[0]) + 1, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT(8, back);
    give(memory[0]);
    give(memory[2]); // memory[1] stays
    EXPECT(0, cudaFree(nullptr));

    EXPECT(0, cudaMallocManaged(&other, 2 * MIB));
    EXPECT_EVENT("dev_alloc", MEMORY_MANAGED, "cudaMallocManaged", 2 * MIB);
    give(other);
    EXPECT(0, cudaMallocPitch(&other, &pitch, 1000, 64));
    EXPECT_EVENT("dev_alloc", MEMORY_DEVICE, "cudaMallocPitch", pitch * 64);
    give(other);
    cudaPitchedPtr box;
    EXPECT(0, cudaMalloc3D(&box, make_cudaExtent(1000, 32, 4)));
    EXPECT_EVENT("dev_alloc", MEMORY_DEVICE, "cudaMalloc3D", box.pitch * 32 * 4);
    give(box.ptr);
}

static void arrays()
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    cudaArray_t array;
    cudaMipmappedArray_t mipmaps;

    EXPECT(0, cudaMallocArray(&array, &format, 128, 64));
    EXPECT_EVENT("dev_alloc", MEMORY_ARRAY, "cudaMallocArray", 128 * 64 * 16);
    EXPECT_EVENT("dev_free", MEMORY_ARRAY, "cudaFreeArray", 0);
    EXPECT(0, cudaFreeArray(array));
    EXPECT(0, cudaMalloc3DArray(&array, &format, make_cudaExtent(64, 32, 16)));
    EXPECT_EVENT("dev_alloc", MEMORY_ARRAY, "cudaMalloc3DArray", 64 * 32 * 16 * 16);
    EXPECT_EVENT("dev_free", MEMORY_ARRAY, "cudaFreeArray", 0);
    EXPECT(0, cudaFreeArray(array));
    EXPECT(0, cudaMallocMipmappedArray(&mipmaps, &format, make_cudaExtent(64, 64, 0), 3));
    EXPECT_EVENT("dev_alloc", MEMORY_ARRAY, "cudaMallocMipmappedArray", (64 * 64 + 32 * 32 + 16 * 16) * 16);
    EXPECT_EVENT("dev_free", MEMORY_ARRAY, "cudaFreeMipmappedArray", 0);
    EXPECT(0, cudaFreeMipmappedArray(mipmaps));
}

static void host()
{
    static char own[65536];
    void *memory;

    EXPECT(0, cudaMallocHost(&memory, 3 * MIB));
    EXPECT_EVENT("dev_alloc", MEMORY_PINNED, "cudaMallocHost", 3 * MIB);
    EXPECT_EVENT("dev_free", MEMORY_PINNED, "cudaFreeHost", 0);
    EXPECT(0, cudaFreeHost(memory));
    EXPECT(0, cudaHostAlloc(&memory, 4 * MIB, cudaHostAllocPortable));
    EXPECT_EVENT("dev_alloc", MEMORY_PINNED, "cudaHostAlloc", 4 * MIB);
    EXPECT_EVENT("dev_free", MEMORY_PINNED, "cudaFreeHost", 0);
    EXPECT(0, cudaFreeHost(memory));
    EXPECT(0, cudaHostRegister(own, sizeof(own), 0));
    EXPECT_EVENT("dev_alloc", MEMORY_PINNED, "cudaHostRegister", sizeof(own));
    EXPECT_EVENT("dev_free", MEMORY_PINNED, "cudaHostUnregister", 0);
    EXPECT(0, cudaHostUnregister(own));
}

static void streams()
{
    cudaStream_t stream;
    cudaEvent_t event;
    cudaMemPool_t pool;
    cudaMemPoolProps props = {};
    unsigned long long threshold = 1 << 20;
    void *memory;

    EXPECT(0, cudaStreamCreate(&stream));
    EXPECT(0, cudaEventCreate(&event));
    for (cudaStream_t on : {cudaStream_t{nullptr}, stream}) {
        EXPECT(0, cudaMallocAsync(&memory, 5 * MIB, on));
        EXPECT_EVENT("dev_alloc_async", MEMORY_DEVICE, "cudaMallocAsync", 5 * MIB);
        use(memory, MIB, on);
        EXPECT_EVENT("dev_free_async", MEMORY_DEVICE, "cudaFreeAsync", 0);
        EXPECT(0, cudaFreeAsync(memory, on));
    }
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    EXPECT(0, cudaMemPoolCreate(&pool, &props));
    EXPECT_EVENT("dev_pool", MEMORY_DEVICE, "cuMemPoolCreate", 0);
    EXPECT(0, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    EXPECT_EVENT("dev_pool", MEMORY_DEVICE, "cuMemPoolSetAttribute", 0);
    EXPECT(0, cudaMallocFromPoolAsync(&memory, 6 * MIB, pool, stream));
    EXPECT_EVENT("dev_alloc_async", MEMORY_DEVICE, "cudaMallocFromPoolAsync", 6 * MIB);
    use(memory, MIB, stream);
    EXPECT(0, cudaEventRecord(event, stream));
    EXPECT(0, cudaEventSynchronize(event));
    EXPECT_EVENT("dev_sync", MEMORY_NONE, "cudaEventSynchronize", 0);
    EXPECT(0, cudaStreamSynchronize(stream));
    EXPECT_EVENT("dev_sync", MEMORY_NONE, "cudaStreamSynchronize", 0);
    give(memory);
    EXPECT(0, cudaMemPoolTrimTo(pool, 0));
    EXPECT_EVENT("dev_pool", MEMORY_DEVICE, "cuMemPoolTrimTo", 0);
    EXPECT(0, cudaMemPoolDestroy(pool));
    EXPECT_EVENT("dev_pool", MEMORY_DEVICE, "cuMemPoolDestroy", 0);
    EXPECT(0, cudaDeviceSynchronize());
    EXPECT_EVENT("dev_sync", MEMORY_NONE, "cudaDeviceSynchronize", 0);
    EXPECT(0, cudaEventDestroy(event));
    EXPECT(0, cudaStreamDestroy(stream));
}

// Longer than the recorder looks away from the device's memory: a look must not spoil what is being captured.
static void wait_a_look()
{
    usleep(120000);
}

static void *allocate_meanwhile(void *)
{
    void *memory = nullptr;
    wait_a_look();
    EXPECT(0, cudaMalloc(&memory, 9 * MIB)); // counted by the main thread
    EXPECT(0, cudaFree(memory));
    return nullptr;
}

static void capture()
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    pthread_t thread;
    void *memory, *captured[2];

    EXPECT(0, cudaStreamCreate(&stream));
    memory = take(MIB);
    EXPECT(0, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    pthread_create(&thread, nullptr, allocate_meanwhile, nullptr);
    EXPECT_EVENT("dev_alloc", MEMORY_DEVICE, "cudaMalloc", 9 * MIB);
    EXPECT_EVENT("dev_free", MEMORY_DEVICE, "cudaFree", 0);
    for (void *&one : captured) {
        wait_a_look();
        EXPECT(0, cudaMallocAsync(&one, 2 * MIB, stream));
        EXPECT_EVENT("dev_alloc_async", MEMORY_DEVICE, "graph", 2 * MIB);
        use(one, MIB, stream);
    }
    for (void *one : captured) {
        EXPECT_EVENT("dev_free_async", MEMORY_DEVICE, "cudaFreeAsync", 0);
        EXPECT(0, cudaFreeAsync(one, stream));
    }
    pthread_join(thread, nullptr);
    use(memory, MIB, stream);
    EXPECT(0, cudaStreamEndCapture(stream, &graph));
    EXPECT(0, cudaGraphInstantiate(&executable, graph, 0));
    EXPECT(0, cudaGraphLaunch(executable, stream));
    EXPECT(0, cudaStreamSynchronize(stream));
    EXPECT_EVENT("dev_sync", MEMORY_NONE, "cudaStreamSynchronize", 0);
    EXPECT(0, cudaGraphExecDestroy(executable));
    EXPECT(0, cudaGraphDestroy(graph));
    give(memory);
    EXPECT(0, cudaStreamDestroy(stream));
}

static void reset()
{
    take(3 * MIB);
    EXPECT(0, cudaDeviceReset());
    EXPECT_EVENT("dev_reset", MEMORY_NONE, "cudaDeviceReset", 0);
    use(take(4 * MIB), MIB, nullptr);
    EXPECT(0, cudaDeviceSynchronize());
    EXPECT_EVENT("dev_sync", MEMORY_NONE, "cudaDeviceSynchronize", 0);
}

static void fork_after()
{
    void *memory = take(3 * MIB);
    void *other = nullptr;
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        int result = cudaMalloc(&other, MIB);
        fprintf(stderr, "the child's cudaMalloc returned %d\n", result);
        exit(result != 0 ? 0 : 5);
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child ended with %#x\n", status);
        exit(4);
    }
    give(memory);
}

static void *late_memory;

// After the handlers of the driver and the runtime library: they may refuse, but nobody crashes.
static void free_late()
{
    int result = cudaFree(late_memory);
    fprintf(stderr, "cudaFree at the end returned %d\n", result);
}

static void *allocate_in_thread(void *)
{
    void *memory[16] = {};
    for (int i = 0; i < 400; i++) {
        if (memory[i % 16] != nullptr) {
            EXPECT(0, cudaFree(memory[i % 16]));
        }
        EXPECT(0, cudaMalloc(&memory[i % 16], 4096 * size_t(1 + i)));
    }
    return nullptr;
}

static void threads()
{
    pthread_t all[4];
    for (pthread_t &one : all) {
        pthread_create(&one, nullptr, allocate_in_thread, nullptr);
    }
    for (pthread_t &one : all) {
        pthread_join(one, nullptr);
        for (int i = 0; i < 400; i++) {
            EXPECT_EVENT("dev_alloc", MEMORY_DEVICE, "cudaMalloc", 4096 * size_t(1 + i));
            if (i >= 16) {
                EXPECT_EVENT("dev_free", MEMORY_DEVICE, "cudaFree", 0);
            }
        }
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    int devices = 0;

    if (strcmp(what, "atexit") == 0) {
        atexit(free_late); // before anybody else's handler: it is called after them
    }
    EXPECT(0, cudaGetDeviceCount(&devices));
    if (strcmp(what, "reset") == 0) {
        reset();
    } else if (strcmp(what, "fork") == 0) {
        fork_after();
    } else if (strcmp(what, "atexit") == 0) {
        late_memory = take(3 * MIB);
    } else if (strcmp(what, "capture") == 0) {
        capture();
    } else if (strcmp(what, "threads") == 0) {
        threads();
    } else {
        linear();
        arrays();
        host();
        streams();
    }
    expect_print();
    return 0;
}
