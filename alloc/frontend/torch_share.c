/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that go to other processes, in the form of PyTorch's own allocator, whose processes may be the other side: a
 * byte for the version of the form and one for the kind of memory; behind them CUDA's handle of the segment
 * (cudaIpcMemHandle_t), or of an expandable segment struct pages_head and the sender's descriptors of the pages below
 * the block. Versions before that form sent CUDA's handle alone.
 * Source: shareIpcHandle and ExpandableSegment::share, PyTorch 2.11.
 *
 * A process keeps what it has sent until the others have dropped it, and looks whether they have when it needs memory:
 * torch::CudaIPCCollect, which PyTorch's allocator calls on every miss.
 */
#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch.h"
#include "alloc/frontend/torch_requests.h"
#include "alloc/frontend/torch_symbols.h"
#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FORM_VERSION 1
#define NEWEST_FORM 2 /* the same for this kind of memory */
#define KIND_SEGMENT 'c'
#define KIND_PAGES 'e'
#define PAGES_MAX 65536

/* ShareHeader */
struct pages_head {
    uint64_t pid; /* the lower 32 bits: a pid_t, and what lies behind it up to the next member */
    uint64_t unit, count;
};

static pthread_once_t collect_once = PTHREAD_ONCE_INIT;
static bool (*collect_sent)(void);

static void collect_find(void)
{
    void *found = torch_symbol_find("libtorch_python.so", "_ZN5torch14CudaIPCCollectEv");
    memcpy(&collect_sent, &found, sizeof(found));
}

/* Bytes. With the allocator's lock. */
static uint64_t free_dropped(void *context, const struct varve_alloc_miss *miss)
{
    struct varve_alloc *alloc = context;
    (void)miss;
    int64_t before = varve_alloc_memory_allocated(alloc);
    collect_sent();
    int64_t after = varve_alloc_memory_allocated(alloc);
    return after < before ? (uint64_t)(before - after) : 0;
}

static int begin_collecting(struct frontend_device *device)
{
    pthread_once(&collect_once, collect_find);
    if (collect_sent == NULL || __atomic_exchange_n(&device->is_shared, true, __ATOMIC_RELAXED)) {
        return VARVE_OK;
    }
    int error = varve_alloc_add_miss_callback(device->alloc, free_dropped, device->alloc);
    __atomic_store_n(&device->is_shared, error == VARVE_OK, __ATOMIC_RELAXED);
    return error;
}

/* Behind version and kind. NULL: no memory. Owner: the caller. */
static char *share_text(char kind, const void *head, size_t head_bytes, const void *rest, size_t rest_bytes,
                        size_t *size_out)
{
    char *text = malloc(2 + head_bytes + rest_bytes);
    if (text != NULL) {
        text[0] = FORM_VERSION;
        text[1] = kind;
        memcpy(text + 2, head, head_bytes);
        memcpy(text + 2 + head_bytes, rest, rest_bytes);
        *size_out = 2 + head_bytes + rest_bytes;
    }
    return text;
}

static int share_from(const struct frontend_device *device, uint64_t addr, struct torch_shared *shared_out)
{
    struct varve_alloc_ipc ipc;
    int error = varve_alloc_ipc_export(device->alloc, addr, &ipc);
    if (error == VARVE_OK) {
        shared_out->offset = ipc.offset;
        shared_out->text =
            share_text(KIND_SEGMENT, ipc.handle.bytes, sizeof(ipc.handle.bytes), "", 0, &shared_out->size);
    } else if (error == VARVE_ERROR_UNSUPPORTED) {
        struct varve_alloc_pages pages;
        error = varve_alloc_ipc_export_pages(device->alloc, addr, &pages);
        if (error == VARVE_OK) {
            const struct pages_head head = {(uint32_t)getpid(), pages.unit, pages.count};
            shared_out->offset = pages.offset;
            shared_out->text =
                share_text(KIND_PAGES, &head, sizeof(head), pages.fds, pages.count * sizeof(int), &shared_out->size);
            free(pages.fds);
        }
    }
    return error == VARVE_OK && shared_out->text == NULL ? VARVE_ERROR_NO_MEMORY : error;
}

int torch_share_export(uint64_t addr, struct torch_shared *shared_out, struct varve_message *message)
{
    *shared_out = (struct torch_shared){0};
    int error = VARVE_ERROR_NOT_FOUND;
    struct frontend_device *device = registry_next(-1);
    for (; device != NULL; device = registry_next(device->ordinal)) {
        error = share_from(device, addr, shared_out);
        if (error != VARVE_ERROR_NOT_FOUND) {
            break;
        }
    }
    VARVE_THEN(error, begin_collecting(device));
    if (error != VARVE_OK) {
        free(shared_out->text);
        shared_out->text = NULL;
    }
    return error == VARVE_OK ? error
                             : varve_message_set(message, error, "the memory at %#" PRIx64 " can't be shared: %s", addr,
                                                 varve_strerror(error));
}

/* Descriptors of another process become this one's: `count` of them, or none. */
static int fds_take(uint64_t pid, const char *numbers, int *fds, size_t count, struct varve_message *message)
{
    int process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    size_t taken = 0;
    for (; process >= 0 && taken < count; taken++) {
        int number;
        memcpy(&number, numbers + taken * sizeof(number), sizeof(number));
        fds[taken] = (int)syscall(SYS_pidfd_getfd, process, number, 0);
        if (fds[taken] < 0) {
            break;
        }
    }
    const int failed = errno;
    if (process >= 0) {
        close(process);
    }
    if (taken == count) {
        return VARVE_OK;
    }
    const size_t missing = taken + 1;
    while (taken > 0) {
        close(fds[--taken]);
    }
    return varve_message_set(
        message, VARVE_ERROR_PERMISSION, "memory of process %d can't be opened: descriptor %zu of %zu: %s%s", (int)pid,
        missing, count, strerror(failed),
        failed == EPERM || failed == EACCES ? "; without expandable segments no permission is needed" : "");
}

static int pages_open(struct frontend_device *device, const char *text, size_t size, uint64_t *addr_out,
                      struct varve_message *message)
{
    struct pages_head head;
    if (size < sizeof(head)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "shared memory without its size");
    }
    memcpy(&head, text, sizeof(head));
    if (head.count == 0 || head.count > PAGES_MAX || size - sizeof(head) != head.count * sizeof(int) ||
        head.unit == 0 || head.unit > UINT64_MAX / PAGES_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "shared memory of %" PRIu64 " pages in %zu bytes",
                                 head.count, size);
    }
    int *fds = calloc(head.count, sizeof(*fds));
    if (fds == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for %" PRIu64 " pages", head.count);
    }
    int error = fds_take(head.pid, text + sizeof(head), fds, head.count, message);
    if (error == VARVE_OK) {
        const struct varve_alloc_pages pages = {.fds = fds, .count = head.count, .unit = head.unit};
        error = varve_alloc_ipc_open_pages(device->alloc, &pages, addr_out, message);
        for (uint64_t i = 0; i < head.count; i++) {
            close(fds[i]);
        }
    }
    free(fds);
    return error;
}

int torch_share_open(int ordinal, const char *text, size_t size, uint64_t *addr_out, struct varve_message *message)
{
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, message);
    if (error != VARVE_OK) {
        return error;
    }
    const bool is_bare = size == VARVE_IPC_HANDLE_BYTES;
    if (!is_bare && size >= 2 && text[0] <= NEWEST_FORM && text[1] == KIND_PAGES) {
        return pages_open(device, text + 2, size - 2, addr_out, message);
    }
    if (!is_bare && (size != 2 + VARVE_IPC_HANDLE_BYTES || text[0] > NEWEST_FORM || text[1] != KIND_SEGMENT)) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "shared memory in a form that varve does not know: the other process has another "
                                 "allocator, or a newer PyTorch");
    }
    struct varve_alloc_ipc ipc = {.offset = 0};
    memcpy(ipc.handle.bytes, text + (is_bare ? 0 : 2), VARVE_IPC_HANDLE_BYTES);
    return varve_alloc_ipc_open(device->alloc, &ipc, addr_out, message);
}

void torch_share_close(int ordinal, uint64_t addr)
{
    struct frontend_device *device = registry_find(ordinal);
    if (device != NULL) {
        varve_alloc_ipc_close(device->alloc, addr);
    }
}
