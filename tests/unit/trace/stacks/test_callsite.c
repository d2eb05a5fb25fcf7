/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites: what is in the file is what was captured, before its number is known; Python frames; the program's ways
 * with descriptors, limits and libraries; the table under readers while it grows; many threads that meet the same and
 * different new stacks; captures interrupted by captures; fork children; and the memory of many call sites.
 * Program of its own: it stands in for functions of the product.
 * Costs: 2 s
 */
#include "support/callsite_reading.h"
#include "support/random.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1 /* as gcc says it */
#endif
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "base/error.h"

#define HERE ((struct capture){.max = CALLSITE_FILE_DEPTH_MAX})
#define THREADS 8U

static void attach(const char *name)
{
    assert_int_equal(callsite_attach(test_file(name), SESSION_STACKS_NATIVE, 64), VARVE_OK);
}

/* All that was captured is in the file; `sites`: so many there are, 0 for any number. */
static void expect_in_file(const char *name, unsigned sites, const struct capture *captures, unsigned count)
{
    struct reading reading;
    reading_open(&reading, test_file(name));
    assert_true(sites == 0 || reading.callsite_count == sites);
    for (unsigned i = 0; i < count; i++) {
        callsite_expect(&reading, &captures[i]);
    }
    reading_close(&reading);
}

static int module_compare(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct read_module *module = argument;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) / 4096 == module->entry.base / 4096) {
            return info->dlpi_addr == module->entry.bias ? 1 : -1;
        }
    }
    return 0;
}

TEST(test_modules)
{
    char executable[1024] = "";
    struct capture capture = HERE;
    bool libc = false;
    assert_true(readlink("/proc/self/exe", executable, sizeof(executable) - 1) > 0);
    attach("modules");
    capture_by_path(&capture, 5, 3);
    struct reading reading;
    reading_open(&reading, test_file("modules"));
    assert_true(reading.module_count >= 2); /* this program and the C library, which calls main */
    assert_string_equal(reading.modules[0].path, executable);
    for (unsigned i = 0; i < reading.module_count; i++) {
        assert_int_equal(dl_iterate_phdr(module_compare, &reading.modules[i]), 1);
        libc = libc || strstr(reading.modules[i].path, "libc.so.6") != NULL;
        if (strstr(reading.modules[i].path, "libc.so.6") != NULL) {
            assert_int_equal(reading.modules[i].entry.build_id_bytes, 20);
        }
    }
    assert_true(libc);
    reading_close(&reading);
}

/* What is kept of a whole stack: at least three quarters innermost, a mark, and a quarter outermost. The mark says how
 * many frames are left out, in steps of that quarter, unless they are many. */
static void cut(struct capture *capture, unsigned depth)
{
    const unsigned outside = depth / 4, step = outside > 0 ? outside : 1;
    unsigned left_out = 0;
    while (capture->count - left_out - step >= depth && capture->count >= step + left_out) {
        left_out += step;
    }
    if (left_out > 0) {
        const unsigned inside = capture->count - outside - left_out;
        assert_true(inside >= depth - outside && inside < depth + (outside == 0));
        capture->pcs[inside] = CALLSITE_FILE_CUT + (left_out / step < 64 ? left_out : 0);
        memmove(&capture->pcs[inside + 1], &capture->pcs[inside + left_out], outside * sizeof(capture->pcs[0]));
        capture->count = inside + 1 + outside;
    }
}

TEST(test_depth)
{
    static const unsigned depths[] = {1, 2, 3, 4, 5, 64, 65, 200, 255, 256, 100000};
    static const unsigned stacks[] = {200, 240, 250, 300, 310, 320, 321, 370, 385, 490, 600, 3000, 4000, 2999, 500};
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        unlink(test_file("depth"));
        assert_int_equal(callsite_attach(test_file("depth"), SESSION_STACKS_NATIVE, depths[i]), VARVE_OK);
        for (volatile size_t k = 0; k < 2 * sizeof(stacks) / sizeof(stacks[0]); k++) {
            struct capture capture = {.max = CAPTURE_FRAMES_MAX};
            capture_by_path(&capture, 0, stacks[k / 2]);
            assert_true(capture.count < CAPTURE_FRAMES_MAX);
            cut(&capture, depths[i] < 256 ? depths[i] : 256);
            expect_in_file("depth", 0, &capture, 1);
        }
    }
}

/* Recursions that are very deep have no more call sites than the steps of what is left out: each level has one of them,
 * whatever the depth. */
TEST(test_recursion)
{
    enum { LEVELS = 20000, STEP = 64 };
    struct capture capture = {.max = 0};
    uint32_t sites[STEP] = {0};
    assert_int_equal(callsite_attach(test_file("recursion"), SESSION_STACKS_NATIVE, 256), VARVE_OK);
    for (volatile unsigned i = 0; i < 5 * STEP; i++) {
        capture_by_path(&capture, 0, LEVELS - 17 * i);
        uint32_t *site = &sites[(LEVELS - 17 * i) % STEP];
        assert_true(capture.callsite > 0 && capture.callsite <= STEP && (*site == 0 || *site == capture.callsite));
        *site = capture.callsite;
    }
}

TEST(test_refused)
{
    struct capture capture = HERE;
    assert_int_equal(callsite_attach(test_file("none"), SESSION_STACKS_NONE, 64), VARVE_ERROR_INVALID);
    capture_here(&capture);
    assert_int_equal(capture.callsite, 0);
    assert_int_equal(callsite_attach(test_file("no/such/folder"), SESSION_STACKS_NATIVE, 64), VARVE_ERROR_IO);
    capture_here(&capture);
    assert_int_equal(capture.callsite, 0);
}

/* ---- Python ---- */

static bool fake_python_remembers;

unsigned python_stack_hash(struct stack_hash *hash, unsigned depth, struct python_frame *frames)
{
    unsigned count = python_frames_cut(frames, python_stack_ends(frames), depth);
    *hash = python_hash_frames(frames, count);
    return fake_python_remembers ? count : PYTHON_STACK_UNKNOWN;
}

static bool fake_python_interrupted; /* by a handler that walked other frames */

unsigned python_stack_inner(struct stack_hash hash, unsigned count, const uint64_t *outer, unsigned outer_count,
                            struct python_frame *frames, uint64_t *hashes)
{
    const struct stack_hash mine = python_hash_frames(fake_python, fake_python_count);
    unsigned inner = 0;
    if (fake_python_interrupted || (count > 0 && (mine.low != hash.low || mine.high != hash.high))) {
        return PYTHON_STACK_UNKNOWN;
    }
    for (; inner < count; inner++) {
        hashes[inner] = python_hash_frames(&fake_python[inner], count - inner).low;
        if (count - inner <= outer_count && outer[count - inner - 1] == hashes[inner]) {
            break;
        }
        frames[inner] = fake_python[inner];
    }
    return inner;
}

static void fake_python_set(unsigned index, const char *code, const char *file, uint32_t instruction, bool entry)
{
    fake_python[index] = (struct python_frame){.code = code,
                                               .name = code,
                                               .filename = file,
                                               .instruction = instruction,
                                               .first_line = 10 * (index + 1),
                                               .is_entry = entry};
}

/* Two frames; the second time in another line, the last time without a readable name. */
static NOINLINE void fake_python_round(unsigned round)
{
    static const char inner[] = "inner", outer[] = "outer", file[] = "module.py";
    fake_python_count = 2;
    fake_python_set(0, inner, file, round == 1 ? 7 : 3, false);
    fake_python_set(1, outer, file, 4, true);
    if (round == 3) {
        fake_python[0].name = NULL;
    }
}

TEST(test_python)
{
    struct capture captures[4] = {HERE, HERE, HERE, HERE};
    fake_python_described = 0;
    assert_int_equal(callsite_attach(test_file("python"), SESSION_STACKS_ALL, 64), VARVE_OK);
    for (volatile unsigned i = 0; i < 8; i++) {
        uint32_t before = captures[i % 4].callsite;
        fake_python_remembers = i % 4 != 1 && i != 6; /* new and known, either way */
        fake_python_round(i % 4);
        capture_here(&captures[i % 4]);
        assert_true(i < 4 || captures[i % 4].callsite == before);
    }
    fake_python_count = 0;
    static const struct {
        uint32_t site, codes[2], lines[2];
    } expected[] = {{1, {1, 2}, {13, 24U | CALLSITE_FILE_PYTHON_ENTRY}},
                    {2, {1, 2}, {17, 24U | CALLSITE_FILE_PYTHON_ENTRY}},
                    {1, {1, 2}, {13, 24U | CALLSITE_FILE_PYTHON_ENTRY}},
                    {3, {0, 2}, {0, 24U | CALLSITE_FILE_PYTHON_ENTRY}}};
    struct reading reading;
    reading_open(&reading, test_file("python"));
    assert_int_equal(reading.callsite_count, 3);
    for (unsigned i = 0; i < 4; i++) {
        const struct read_callsite *site = &reading.callsites[captures[i].callsite];
        assert_int_equal(captures[i].callsite, expected[i].site);
        assert_int_equal(site->python_count, 2);
        for (unsigned j = 0; j < 2; j++) {
            assert_int_equal(site->python[j].code, expected[i].codes[j]);
            assert_true(site->python[j].line == expected[i].lines[j] || expected[i].codes[j] == 0);
        }
    }
    assert_int_equal(reading.code_count, 2);
    assert_string_equal(reading.codes[0].name, "inner");
    assert_string_equal(reading.codes[0].file, "module.py");
    assert_int_equal(reading.codes[0].entry.first_line, 10);
    assert_string_equal(reading.codes[1].name, "outer");
    callsite_expect(&reading, &captures[0]);
    reading_close(&reading);
}

/* Stacks that share outer frames with the one before, noted in each of the ways that there are. */
TEST(test_python_shared)
{
    enum { ROUNDS = 600, FRAMES = 12 };
    static struct capture captures[ROUNDS];
    static unsigned kept[ROUNDS][FRAMES], counts[ROUNDS];
    static char names[FRAMES][12];
    unsigned numbers[FRAMES] = {0}; /* of what each frame does, outermost first */
    uint64_t random = 1;
    assert_int_equal(callsite_attach(test_file("shared"), SESSION_STACKS_ALL, 64), VARVE_OK);
    for (volatile unsigned i = 0; i < ROUNDS; i++) {
        counts[i] = 1 + (unsigned)random_below(&random, FRAMES);
        const unsigned changed = (unsigned)random_below(&random, counts[i]);
        for (unsigned depth = 0; depth < counts[i]; depth++) {
            numbers[depth] = depth == changed ? (unsigned)random_below(&random, 50) : numbers[depth];
            kept[i][depth] = numbers[depth];
            snprintf(names[depth], sizeof(names[depth]), "d%u", depth);
            fake_python_set(counts[i] - 1 - depth, names[depth], "s.py", numbers[depth], numbers[depth] % 3 == 0);
            fake_python[counts[i] - 1 - depth].first_line = 100;
        }
        fake_python_count = counts[i];
        fake_python_remembers = (unsigned)random_below(&random, 4) > 0;
        fake_python_interrupted = (unsigned)random_below(&random, 4) == 0;
        captures[i] = HERE;
        capture_here(&captures[i]);
    }
    fake_python_count = 0;
    fake_python_interrupted = false;
    struct reading reading;
    reading_open(&reading, test_file("shared"));
    for (unsigned i = 0; i < ROUNDS; i++) {
        const struct read_callsite *site = &reading.callsites[captures[i].callsite];
        assert_int_equal(site->python_count, counts[i]);
        for (unsigned j = 0; j < counts[i]; j++) {
            const unsigned depth = counts[i] - 1 - j, number = kept[i][depth];
            const uint32_t entry = number % 3 == 0 ? CALLSITE_FILE_PYTHON_ENTRY : 0;
            assert_string_equal(reading.codes[site->python[j].code - 1].name, names[depth]);
            assert_int_equal(site->python[j].line, (100 + number) | entry);
        }
        callsite_expect(&reading, &captures[i]);
    }
    reading_close(&reading);
}

TEST(test_python_alone)
{
    static char names[200][8];
    struct capture capture = {.max = 0};
    assert_int_equal(callsite_attach(test_file("alone"), SESSION_STACKS_PYTHON, 200), VARVE_OK);
    capture_here(&capture);
    assert_int_equal(capture.callsite, 0); /* no interpreter */
    for (unsigned i = 0; i < 200; i++) {
        snprintf(names[i], sizeof(names[i]), "f%u", i % 50);
        fake_python_set(i, names[i % 50], "x.py", i, false);
        fake_python[i].first_line = i % 50;
    }
    fake_python_count = 200;
    capture_here(&capture);
    fake_python_count = 0;
    assert_int_equal(capture.callsite, 1);
    struct reading reading;
    reading_open(&reading, test_file("alone"));
    assert_int_equal(reading.code_count, 50);
    assert_int_equal(reading.callsites[1].native_count, 0);
    assert_int_equal(reading.callsites[1].python_count, 200);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(reading.callsites[1].python[i].code, i % 50 + 1);
        assert_int_equal(reading.callsites[1].python[i].line, i % 50 + i);
    }
    reading_close(&reading);
}

/* ---- the program's descriptors, limits and files ---- */

TEST(test_descriptors)
{
    struct capture captures[3] = {HERE, HERE, HERE};
    int before = open("/dev/null", O_RDONLY);
    close(before);
    attach("descriptors");
    int after = open("/dev/null", O_RDONLY);

    assert_int_equal(after, before); /* the program's numbers are as without us */
    close(after);
    capture_by_path(&captures[0], 0, 4);

    /* The program closes everything and gives all numbers to a file of its own. */
    char own[128];
    int count = 0;

    snprintf(own, sizeof(own), "%s", test_file("own"));
    assert_int_equal(syscall(SYS_close_range, before, ~0U, 0), 0);
    int taken[1200];
    while (count < 1200 && (count == 0 || taken[count - 1] >= 0)) {
        taken[count++] = open(own, O_CREAT | O_RDWR, 0600);
    }
    capture_by_path(&captures[1], 1, 4);
    capture_by_path(&captures[2], 2, 4);
    while (count > 0) {
        close(taken[--count]);
    }
    struct stat status;
    assert_int_equal(stat(own, &status), 0);
    assert_int_equal(status.st_size, 0);
    expect_in_file("descriptors", 0, captures, 1);
    /* With no descriptor left the site has no number; nothing else happens. */
    for (unsigned i = 1; i < 3; i++) {
        expect_in_file("descriptors", 0, &captures[i], captures[i].callsite != 0);
    }
}

TEST(test_closed)
{
    struct capture captures[2] = {HERE, HERE};
    attach("closed");
    for (unsigned i = 0; i < 2; i++) {
        capture_by_path(&captures[i], i, 4);
        assert_int_equal(syscall(SYS_close_range, 3, ~0U, 0), 0);
    }
    expect_in_file("closed", 2, captures, 2);
    /* Deleted: no new file appears under the old name. */
    unlink(test_file("closed"));
    capture_by_path(&captures[1], 2, 4);
    assert_int_equal(access(test_file("closed"), F_OK), -1);
}

/* Nothing is left pending, but for what the program had pending itself. */
static void size_signal_expect(bool is_pending)
{
    sigset_t pending;
    assert_int_equal(sigpending(&pending), 0);
    assert_int_equal(sigismember(&pending, SIGXFSZ), is_pending);
}

TEST(test_size_limit)
{
    enum { PATHS = 4000, LIMITED = 10, LIFTED = 2500 };
    static struct capture captures[PATHS];
    const struct timespec now = {0, 0};
    unsigned refused = 0;
    attach("limit");
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    struct rlimit limit;
    struct stat status;
    for (uint32_t path = 0; path < PATHS; path++) {
        if (path == LIMITED) {
            /* The file may not grow: SIGXFSZ would end the program. */
            assert_int_equal(stat(test_file("limit"), &status), 0);
            limit = (struct rlimit){(rlim_t)status.st_size + 250, old.rlim_max};
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        }
        if (path == LIFTED) {
            size_signal_expect(false);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        }
        captures[path].max = 0;
        errno = ENOTTY;
        capture_by_path(&captures[path], path, 12);
        assert_int_equal(errno, ENOTTY);
        refused += captures[path].callsite == 0;
        assert_true(captures[path].callsite != 0 || path >= LIMITED);
    }
    assert_true(refused >= 1000 && captures[PATHS - 1].callsite != 0);
    struct reading reading;
    reading_open(&reading, test_file("limit"));
    assert_int_equal(reading.callsite_count, PATHS - refused);
    assert_int_equal(reading.lost.stacks, refused);
    reading_close(&reading);

    assert_int_equal(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    raise(SIGXFSZ);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){100, old.rlim_max}), 0);
    assert_int_not_equal(callsite_attach(test_file("none"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    size_signal_expect(true);
    assert_int_equal(sigtimedwait(&set, NULL, &now), SIGXFSZ);
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &set, NULL), 0);
}

/* ---- the table ---- */

#define TABLE_SITES 200000U

/* Hashes that collide in many ways: same place, same low half, same check bits. */
static struct stack_hash hash_of(uint32_t number)
{
    uint64_t random = number;
    switch (number % 256) {
    case 0:
        return (struct stack_hash){1 + number / 4096, (uint64_t)(number / 256 % 16) << 40};
    case 1:
        return (struct stack_hash){((uint64_t)number << 32) | 5, 77};
    default:
        random = random_next(&random);
        return (struct stack_hash){random | 1, random_next(&random)};
    }
}

static struct callsite_table shared_table;
static uint32_t shared_published;
static _Atomic unsigned shared_wrong;

/* A published number may be missing for a reader, which must ask again then; it is never another one. */
static void *table_reader(void *argument)
{
    uint64_t seed = (uintptr_t)argument;
    uint32_t published;
    do {
        published = __atomic_load_n(&shared_published, __ATOMIC_SEQ_CST);
        for (unsigned i = 0; i < 100 && published > 0; i++) {
            uint32_t number = 1 + (uint32_t)random_below(&seed, published);
            uint32_t found = callsite_table_find(&shared_table, hash_of(number));
            shared_wrong += found != 0 && found != number;
        }
    } while (published < TABLE_SITES);
    return NULL;
}

TEST(test_table)
{
    pthread_t threads[3];
    assert_int_equal(callsite_table_find(&shared_table, hash_of(1)), 0);
    for (uintptr_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, table_reader, (void *)(i + 1)), 0);
    }
    for (uint32_t number = 1; number <= TABLE_SITES; number++) {
        assert_int_equal(callsite_table_find(&shared_table, hash_of(number)), 0);
        assert_int_equal(callsite_table_reserve(&shared_table), VARVE_OK);
        callsite_table_insert(&shared_table, hash_of(number), number);
        uint32_t earlier = 1 + (uint32_t)(number * 2654435761U) % number;
        assert_int_equal(callsite_table_find(&shared_table, hash_of(number)), number);
        assert_int_equal(callsite_table_find(&shared_table, hash_of(earlier)), earlier);
        __atomic_store_n(&shared_published, number, __ATOMIC_SEQ_CST);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(shared_wrong, 0);
    for (uint32_t number = 1; number <= TABLE_SITES + 1000; number++) {
        assert_int_equal(callsite_table_find(&shared_table, hash_of(number)), number <= TABLE_SITES ? number : 0);
    }
    callsite_table_reset(&shared_table);
    assert_int_equal(callsite_table_find(&shared_table, hash_of(1)), 0);
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
    expect_in_file("threads", PATHS, expected, PATHS);
    for (uint32_t path = 0; path < PATHS; path++) {
        assert_true(workers[0].callsites[path] >= 1 && workers[0].callsites[path] <= PATHS);
        assert_false(seen[workers[0].callsites[path]]);
        seen[workers[0].callsites[path]] = true;
        for (unsigned i = 1; i < THREADS; i++) {
            assert_int_equal(workers[i].callsites[path], workers[0].callsites[path]);
        }
    }
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
    attach("signals");
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
    expect_in_file("signals", 0, captures, 8192);
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
    expect_in_file("child", 16, captures, 16);
    return 0;
}

TEST(test_fork)
{
    struct capture captures[2] = {{.max = 64}, {.max = 64}};
    int status = -1;
    callsite_attach_by(child_attach);
    attach("parent");
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
    expect_in_file("parent", 41, captures, 2);
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
    attach("library");
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
    attach("memory");
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
