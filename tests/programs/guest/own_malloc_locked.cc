// SPDX-License-Identifier: Apache-2.0
// An allocator of the program's own that maps its memory under its lock, as jemalloc does when it is linked in: the
// constructor of the C++ library is the first to call it, before any of ours.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {
const size_t pool_bytes = size_t(64) << 20, unit = 64;
pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
char *pool;
size_t used;

struct header {
    size_t bytes;
};

void *take(size_t alignment, size_t bytes)
{
    pthread_mutex_lock(&pool_lock);
    if (pool == nullptr) {
        void *mapped = mmap(nullptr, pool_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pool = mapped == MAP_FAILED ? nullptr : static_cast<char *>(mapped);
    }
    const size_t start = (used + sizeof(header) + alignment - 1) / alignment * alignment;
    void *block = nullptr;
    if (pool != nullptr && bytes < pool_bytes && start + bytes <= pool_bytes) {
        block = pool + start;
        reinterpret_cast<header *>(pool + start - sizeof(header))->bytes = bytes;
        used = (start + bytes + unit - 1) / unit * unit;
    }
    pthread_mutex_unlock(&pool_lock);
    return block;
}
} // namespace

EXPORTED void *malloc(size_t bytes)
{
    return take(unit, bytes);
}

EXPORTED void *calloc(size_t count, size_t bytes)
{
    return take(unit, count * bytes); // the pool begins as zeros, and nothing is used again
}

EXPORTED void *realloc(void *memory, size_t bytes)
{
    void *moved = take(unit, bytes);
    if (memory != nullptr && moved != nullptr) {
        const size_t before = reinterpret_cast<header *>(static_cast<char *>(memory) - sizeof(header))->bytes;
        memcpy(moved, memory, before < bytes ? before : bytes);
    }
    return moved;
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes)
{
    return take(alignment < unit ? unit : alignment, bytes);
}

EXPORTED int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    *memory = aligned_alloc(alignment, bytes);
    return *memory != nullptr ? 0 : ENOMEM;
}

EXPORTED void free(void *)
{
}

int main()
{
    char *text = new char[100];
    snprintf(text, 100, "done");
    puts(text);
    delete[] text;
    return 3;
}
