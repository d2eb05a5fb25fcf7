/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites under load: the table against a model and under readers while it grows; many threads that meet
 * the same and different new stacks; captures interrupted by captures; fork children; libraries that go and
 * come back; and the memory of many call sites.
 * Program of its own: it stands in for functions of the product.
 * Costs: 1 s
 */
#include "support/callsite_reading.h"
#include "support/random.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1 /* as gcc says it */
#endif
#endif

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "trace/error.h"

#define THREADS 8U

unsigned python_stack_hash(struct stack_hash *hash, unsigned max)
{
    (void)hash, (void)max;
    return PYTHON_STACK_UNKNOWN;
}

/* ---- the table ---- */

static uint64_t random_state;

/* Hashes that collide in many ways: same place, same low half, same check bits. */
static struct stack_hash hash_of(uint32_t number)
{
    switch (number % 4) {
    case 0:
        return (struct stack_hash){1 + number / 16, (uint64_t)(number % 16) << 40};
    case 1:
        return (struct stack_hash){((uint64_t)number << 32) | 5, 77};
    default:
        random_state = number;
        return (struct stack_hash){random_next(&random_state) | 1, random_next(&random_state)};
    }
}

TEST(test_table)
{
    struct callsite_table table = {0};
    assert_int_equal(callsite_table_find(&table, hash_of(1)), 0);
    for (uint32_t number = 1; number <= 5000; number++) {
        assert_int_equal(callsite_table_find(&table, hash_of(number)), 0);
        assert_int_equal(callsite_table_reserve(&table), VARVE_OK);
        callsite_table_insert(&table, hash_of(number), number);
        uint32_t earlier = 1 + (uint32_t)(number * 2654435761U) % number;

        assert_int_equal(callsite_table_find(&table, hash_of(number)), number);
        assert_int_equal(callsite_table_find(&table, hash_of(earlier)), earlier);
    }
    for (uint32_t number = 1; number <= 6000; number++) {
        assert_int_equal(callsite_table_find(&table, hash_of(number)), number <= 5000 ? number : 0);
    }
    callsite_table_reset(&table);
    assert_int_equal(callsite_table_find(&table, hash_of(1)), 0);
}

static struct callsite_table shared_table;
static uint32_t shared_published;
static _Atomic unsigned shared_wrong;
static _Atomic unsigned shared_late; /* published numbers that a reader did not find: it must ask again */

static struct stack_hash plain_hash(uint32_t number)
{
    return (struct stack_hash){number * UINT64_C(0x9e3779b97f4a7c15) | 1, number * UINT64_C(0xd6e8feb86659fd93)};
}

static void *table_reader(void *argument)
{
    uint64_t seed = (uintptr_t)argument;
    uint32_t published;
    do {
        published = __atomic_load_n(&shared_published, __ATOMIC_SEQ_CST);
        for (unsigned i = 0; i < 100 && published > 0; i++) {
            uint32_t number = 1 + (uint32_t)random_below(&seed, published);
            uint32_t found = callsite_table_find(&shared_table, plain_hash(number));
            shared_wrong += found != 0 && found != number;
            shared_late += found == 0;
        }
    } while (published < 200000);
    return NULL;
}

TEST(test_table_readers)
{
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, table_reader, (void *)(i + 1)), 0);
    }
    for (uint32_t number = 1; number <= 200000; number++) {
        assert_int_equal(callsite_table_reserve(&shared_table), VARVE_OK);
        callsite_table_insert(&shared_table, plain_hash(number), number);
        __atomic_store_n(&shared_published, number, __ATOMIC_SEQ_CST);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(shared_wrong, 0);
    for (uint32_t number = 1; number <= 200000; number++) {
        assert_int_equal(callsite_table_find(&shared_table, plain_hash(number)), number);
    }
    callsite_table_reset(&shared_table);
}

/* ---- threads ---- */

#define PATHS 10000U
#define PATH_BITS 14U

struct worker {
    pthread_t thread;
    unsigned index;
    uint32_t callsites[PATHS];
};

static struct worker workers[THREADS];
static struct capture *expected; /* of worker 0 */

static void *worker_main(void *argument)
{
    struct worker *worker = argument;

    /* All threads have the same stacks: each is new to one of them, known or being added to the others. */
    for (uint32_t i = 0; i < PATHS; i++) {
        uint32_t path = (i + worker->index * (PATHS / THREADS)) % PATHS;
        struct capture capture = {.max = worker->index == 0 ? 40 : 0};
        capture_by_path(&capture, path, PATH_BITS);
        worker->callsites[path] = capture.callsite;
        if (worker->index == 0) {
            memcpy(expected[path].pcs, capture.pcs, capture.count * sizeof(capture.pcs[0]));
            expected[path].count = capture.count;
            expected[path].callsite = capture.callsite;
        }
    }
    return NULL;
}

TEST(test_threads)
{
    bool *seen = calloc(PATHS + 1, sizeof(*seen));
    expected = calloc(PATHS, sizeof(*expected));
    assert_true(seen != NULL && expected != NULL);
    assert_int_equal(callsite_attach(test_file("threads"), SESSION_STACKS_NATIVE, 40), VARVE_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].index = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    struct reading reading;
    reading_open(&reading, test_file("threads"));
    assert_int_equal(reading.callsite_count, PATHS);
    for (uint32_t path = 0; path < PATHS; path++) {
        assert_true(workers[0].callsites[path] >= 1 && workers[0].callsites[path] <= PATHS);
        assert_false(seen[workers[0].callsites[path]]);
        seen[workers[0].callsites[path]] = true;
        for (unsigned i = 1; i < THREADS; i++) {
            assert_int_equal(workers[i].callsites[path], workers[0].callsites[path]);
        }
        callsite_expect(&reading, &expected[path]);
    }
    reading_close(&reading);
    free(expected);
    free(seen);
}

/* ---- signals ---- */

static uint32_t handler_path;
static uint32_t handler_callsites;

static void handle(int number)
{
    struct capture capture = {.max = 0};
    (void)number;
    capture_by_path(&capture, __atomic_fetch_add(&handler_path, 1, __ATOMIC_SEQ_CST), 10);
    handler_callsites += capture.callsite != 0;
}

TEST(test_signals)
{
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 200}, {0, 200}};
    struct itimerval never = {{0, 0}, {0, 0}};
    static struct capture captures[8192];
    assert_int_equal(callsite_attach(test_file("signals"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    setitimer(ITIMER_REAL, &every, NULL);
    for (volatile unsigned round = 0; round < 40 && (round == 0 || handler_callsites < 500); round++) {
        for (uint32_t path = 0; path < 8192; path++) {
            uint32_t before = captures[path].callsite;
            captures[path].max = round == 0 ? 40 : 0;
            capture_by_path(&captures[path], path, 13);
            assert_true(captures[path].callsite != 0 && (before == 0 || captures[path].callsite == before));
        }
    }
    setitimer(ITIMER_REAL, &never, NULL);
    assert_true(handler_callsites >= 20);
    struct reading reading;
    reading_open(&reading, test_file("signals"));
    assert_true(reading.callsite_count >= 8192 + 20);
    for (uint32_t path = 0; path < 8192; path++) {
        callsite_expect(&reading, &captures[path]);
    }
    reading_close(&reading);
}

/* ---- fork ---- */

static char child_path[128];

static void child_attach(void)
{
    (void)callsite_attach(child_path, SESSION_STACKS_NATIVE, 64);
}

/* In the child, which nobody has attached yet. Exit status 0 if all is well. */
static int child_main(void)
{
    struct capture captures[16];
    for (uint32_t path = 0; path < 16; path++) {
        captures[path] = (struct capture){.max = 64};
        capture_by_path(&captures[path], path * 3, 6);
        if (captures[path].callsite != path + 1) {
            return 2;
        }
    }
    struct reading reading;

    reading_open(&reading, child_path);
    if (reading.callsite_count != 16 || reading.module_count == 0) {
        return 3;
    }
    for (uint32_t path = 0; path < 16; path++) {
        callsite_expect(&reading, &captures[path]);
    }
    reading_close(&reading);
    return 0;
}

TEST(test_fork)
{
    struct capture captures[2] = {{.max = 64}, {.max = 64}};
    int status = -1;
    callsite_attach_by(child_attach);
    assert_int_equal(callsite_attach(test_file("parent"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
    snprintf(child_path, sizeof(child_path), "%s", test_file("child"));
    for (uint32_t path = 0; path < 40; path++) {
        capture_by_path(&captures[0], path, 6);
    }
    pid_t child = fork();

    if (child == 0) {
        _exit(child_main());
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    callsite_attach_by(NULL);
    capture_by_path(&captures[1], 40, 6);
    assert_int_equal(captures[1].callsite, 41);
    struct reading reading;
    reading_open(&reading, test_file("parent"));
    assert_int_equal(reading.callsite_count, 41);
    callsite_expect(&reading, &captures[0]);
    callsite_expect(&reading, &captures[1]);
    reading_close(&reading);
}

/* ---- libraries ---- */

static void capture_callback(void *argument)
{
    capture_here(argument);
    KEEP_FRAME();
}

static NOINLINE void capture_through_library(struct capture *capture, bool unload)
{
    void (*call)(void (*)(void *), void *) = NULL;
    void *library = dlopen(VARVE_BUILD_DIR "/programs/lib_callback.so", RTLD_NOW);
    assert_non_null(library);
    *(void **)&call = dlsym(library, "lib_callback_call");
    assert_non_null(call);
    call(capture_callback, capture);
    if (unload) {
        dlclose(library);
        callsite_modules_changed();
    }
    KEEP_FRAME();
}

TEST(test_library)
{
    struct capture captures[4] = {{.max = 64}, {.max = 64}, {.max = 64}, {.max = 64}};
    unsigned first = 0;
    unsigned seen = 0;
    assert_int_equal(callsite_attach(test_file("library"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
    for (volatile unsigned i = 0; i < 4; i++) {
        capture_through_library(&captures[i], i != 2);
        if (i == 0) {
            struct capture between = {.max = 0};
            capture_here(&between); /* notices that the library is gone */
        }
        if (i == 2) {
            /* Something was loaded, but the library stayed: nothing changes. */
            callsite_modules_changed();
        }
    }
    struct reading reading;
    reading_open(&reading, test_file("library"));
    assert_true(captures[1].callsite != captures[0].callsite);
    for (unsigned i = 0; i < 4; i++) {
        callsite_expect(&reading, &captures[i]);
    }
    for (unsigned i = 0; i < reading.module_count; i++) {
        if (strstr(reading.modules[i].path, "/lib_callback.so") != NULL) {
            assert_true(reading.modules[i].entry.build_id_bytes > 0 || reading.modules[i].path[0] == '/');
            first = seen++ == 0 ? i : first;
        }
    }
    assert_true(seen >= 2);
    assert_true(reading.modules[first].is_gone);
    reading_close(&reading);
}

/* ---- memory ---- */

static long private_kilobytes(void)
{
    long kilobytes = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    char line[256];
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "RssAnon: %ld", &kilobytes) == 1) {
            break;
        }
    }
    fclose(file);
    assert_true(kilobytes > 0);
    return kilobytes;
}

TEST(test_memory)
{
    struct capture capture = {.max = 0};
    assert_int_equal(callsite_attach(test_file("memory"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
    capture_by_path(&capture, 0, 16);
    long before = private_kilobytes();

    for (uint32_t path = 0; path < 50000; path++) {
        capture_by_path(&capture, path, 16);
        assert_int_equal(capture.callsite, path + 2); /* 1 is that of the call above */
    }
    long used = private_kilobytes() - before;

    print_message("50000 call sites: %ld KiB\n", used);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* their bookkeeping is in the figure */
    assert_true(used <= 8192); /* two tables: 16 bytes for a site and for each new node, half full at worst */
#endif
}

TEST_FILE(folder_make, folder_remove)
