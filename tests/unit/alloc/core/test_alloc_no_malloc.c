/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cached allocation and its free call neither malloc nor the kernel: shown by functions of the malloc and
 * mmap families in this program, which stand before those of the C library and count, and by the kernel,
 * which kills a process in strict mode at its first system call. The same random work is done several times
 * before, until nothing is new. Sanitizers bring their own malloc, so that the test is not for their builds.
 * Program of its own: it defines malloc.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "alloc/alloc.h"
#include "support/random.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifdef HAS_SANITIZER

TEST(test_no_malloc)
{
    skip("sanitizers bring their own malloc");
}

#else

#define PAIRS 100000U
#define LIVE 200U
#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

/* ---- what counts ---- */

/* Volatile: the compiler believes that malloc changes no variable of a program. */
static volatile unsigned long malloc_calls, map_calls;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

#define COUNTED(name, parameters, call) \
    void *name parameters               \
    {                                   \
        malloc_calls++;                 \
        return call;                    \
    }
COUNTED(malloc, (size_t bytes), __libc_malloc(bytes))
COUNTED(calloc, (size_t count, size_t bytes), __libc_calloc(count, bytes))
COUNTED(realloc, (void *old, size_t bytes), __libc_realloc(old, bytes))
COUNTED(memalign, (size_t alignment, size_t bytes), __libc_memalign(alignment, bytes))
COUNTED(aligned_alloc, (size_t alignment, size_t bytes), __libc_memalign(alignment, bytes))

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    malloc_calls++;
    *memory = __libc_memalign(alignment, bytes);
    return *memory != NULL ? 0 : ENOMEM;
}

void free(void *memory)
{
    malloc_calls++;
    __libc_free(memory);
}

void *mmap(void *addr, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    map_calls++;
    return (void *)syscall(SYS_mmap, addr, bytes, protection, flags, fd, offset);
}

int munmap(void *addr, size_t bytes)
{
    map_calls++;
    return (int)syscall(SYS_munmap, addr, bytes);
}

/* ---- the work ---- */

struct seen {
    unsigned long records, splits, merges, device;
};

static void see(void *context, const struct varve_record *record)
{
    struct seen *seen = context;
    unsigned kind = varve_record_kind(record);
    seen->records++;
    seen->splits += kind == VARVE_KIND_SPLIT;
    seen->merges += kind == VARVE_KIND_MERGE;
    seen->device += kind == VARVE_KIND_SEGMENT_ALLOC || kind == VARVE_KIND_SEGMENT_MAP ||
                    kind == VARVE_KIND_SEGMENT_FREE || kind == VARVE_KIND_SEGMENT_UNMAP;
}

static uint64_t random_state;

/* The number of calls that failed. It begins and ends without a block in use. */
static unsigned long work(struct varve_alloc *alloc)
{
    static uint64_t live[LIVE];
    static const uint64_t most[] = {500, 4 * KIB, 100 * KIB, 900 * KIB, 5 * MIB, 15 * MIB};
    unsigned long failed = 0;
    random_state = 1;
    for (unsigned i = 0; i < PAIRS; i++) {
        uint64_t *slot = &live[random_below(&random_state, LIVE)];
        uint64_t stream = random_below(&random_state, 3);
        failed += varve_alloc_raw_delete(alloc, *slot, NULL) != VARVE_OK;
        failed += varve_alloc_raw_alloc_with_stream(
                      alloc, 1 + random_below(&random_state, most[random_below(&random_state, 6)]), stream, slot,
                      NULL) != VARVE_OK;
    }
    for (unsigned i = 0; i < LIVE; i++) {
        failed += varve_alloc_raw_delete(alloc, live[i], NULL) != VARVE_OK;
        live[i] = 0;
    }
    return failed;
}

static void work_open(const char *config, const struct varve_alloc_recorder *recorder, struct varve_device **device_out,
                      struct varve_alloc **alloc_out)
{
    struct varve_alloc_options options;
    struct varve_message message = {""};
    varve_alloc_options_init(&options);
    assert_int_equal(varve_sim_open(&(struct varve_sim_options){.index = 0}, device_out, &message), VARVE_OK);
    options.device = *device_out;
    options.recorder = recorder;
    assert_int_equal(varve_alloc_config_parse(config, &options.config, &message), VARVE_OK);
    assert_int_equal(varve_alloc_open(&options, alloc_out, &message), VARVE_OK);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(work(*alloc_out), 0);
    }
}

static void counted(const char *config)
{
    struct seen seen = {0};
    const struct varve_alloc_recorder recorder = {.record = see, .context = &seen};
    struct varve_device *device;
    struct varve_alloc *alloc;
    work_open(config, &recorder, &device, &alloc);
    memset(&seen, 0, sizeof(seen));
    unsigned long mallocs = malloc_calls;
    unsigned long maps = map_calls;
    unsigned long failed = work(alloc);
    mallocs = malloc_calls - mallocs;
    maps = map_calls - maps;
    assert_int_equal(failed, 0);
    assert_int_equal(mallocs, 0);
    assert_int_equal(maps, 0);
    assert_int_equal(seen.device, 0); /* all of it was cached */
    assert_true(seen.splits > PAIRS / 4 && seen.merges > PAIRS / 4);
    varve_alloc_close(alloc);
    device->ops->close(device);
}

TEST(test_counters_count)
{
    unsigned long mallocs = malloc_calls, maps = map_calls;
    void *volatile memory = malloc(100);
    free(memory);
    assert_int_equal(malloc_calls - mallocs, 2);
    void *pages = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    munmap(pages, 4096);
    assert_int_equal(map_calls - maps, 2);
}

TEST(test_no_malloc)
{
    counted("");
    counted("max_split_size_mb:20,roundup_power2_divisions:4");
    counted("expandable_segments:True");
}

/* ---- no system call at all ---- */

/* Strict mode allows read, write, and the end of this one thread. */
static void strictly(struct varve_alloc *alloc, bool is_breaking)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) {
        syscall(SYS_exit, 77);
    }
    if (is_breaking) {
        syscall(SYS_getpid);
    }
    syscall(SYS_exit, work(alloc) == 0 ? 0 : 1);
}

static int status_of(struct varve_alloc *alloc, bool is_breaking)
{
    pid_t child = fork();
    int status = 0;
    assert_true(child >= 0);
    if (child == 0) {
        strictly(alloc, is_breaking);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

TEST(test_no_system_call)
{
    struct varve_device *device;
    struct varve_alloc *alloc;
    work_open("", NULL, &device, &alloc);
    int status = status_of(alloc, false);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        varve_alloc_close(alloc);
        device->ops->close(device);
        skip("the kernel has no strict mode of seccomp");
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    status = status_of(alloc, true); /* and the kernel would show it */
    assert_true(WIFSIGNALED(status));
    varve_alloc_close(alloc);
    device->ops->close(device);
}

#endif
