/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites one at a time: what is in the file is what was captured, before its number is known; the table
 * against a model; Python frames; and the program's ways with descriptors, limits and libraries. Threads,
 * signals and fork are the matter of test_callsite_load.c.
 * Program of its own: it stands in for functions of the product.
 * Costs: 1 s
 */
#include "support/callsite_reading.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "trace/error.h"

#define HERE ((struct capture){.max = CALLSITE_FILE_DEPTH_MAX})

TEST(test_same_and_different)
{
    static struct capture captures[64];
    assert_int_equal(callsite_attach(test_file("same"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
    for (volatile unsigned round = 0; round < 3; round++) {
        for (uint32_t path = 0; path < 64; path++) {
            uint32_t before = captures[path].callsite;
            captures[path] = HERE;
            capture_by_path(&captures[path], path, 6);
            assert_true(captures[path].callsite != 0 && (before == 0 || captures[path].callsite == before));
        }
    }
    struct reading reading;
    reading_open(&reading, test_file("same"));
    assert_int_equal(reading.callsite_count, 64);
    for (uint32_t path = 0; path < 64; path++) {
        assert_int_equal(captures[path].callsite, path + 1);
        callsite_expect(&reading, &captures[path]);
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
    assert_int_equal(callsite_attach(test_file("modules"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
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

/* What is kept of a whole stack: a quarter innermost, a mark, the outermost frames; without these if it was not
 * walked to its end. */
static void cut(struct capture *capture, unsigned depth)
{
    unsigned outside = capture->count < RECORDER_SCRATCH_FRAMES ? depth / 4 * 3 : 0;
    if (capture->count <= depth) {
        return;
    }
    uint64_t kept[CALLSITE_FILE_DEPTH_MAX];
    for (unsigned i = 0; i < depth - outside; i++) {
        kept[i] = capture->pcs[i];
    }
    kept[depth - outside] = CALLSITE_FILE_CUT;
    for (unsigned i = 0; i < outside; i++) {
        kept[depth - i] = capture->pcs[capture->count - 1 - i];
    }
    capture->count = depth + 1;
    memcpy(capture->pcs, kept, capture->count * sizeof(kept[0]));
}

TEST(test_depth)
{
    static const unsigned depths[] = {1, 2, 3, 64, 65, 200, 256, 100000};
    static const unsigned stacks[] = {200, 240, 250, 300, 490, 600, 3000};
    struct reading reading;
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        unlink(test_file("depth"));
        assert_int_equal(callsite_attach(test_file("depth"), SESSION_STACKS_NATIVE, depths[i]), VARVE_OK);
        for (volatile size_t k = 0; k < sizeof(stacks) / sizeof(stacks[0]); k++) {
            struct capture capture = {.max = RECORDER_SCRATCH_FRAMES};
            capture_by_path(&capture, 0, stacks[k]);
            cut(&capture, depths[i] < 256 ? depths[i] : 256);
            reading_open(&reading, test_file("depth"));
            callsite_expect(&reading, &capture);
            reading_close(&reading);
        }
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

unsigned python_stack_hash(struct stack_hash *hash, unsigned max)
{
    unsigned count = fake_python_count < max ? fake_python_count : max;
    *hash = python_hash_frames(fake_python, count);
    return fake_python_remembers ? count : PYTHON_STACK_UNKNOWN;
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
    struct capture first = HERE, second = HERE, third = HERE, fourth = HERE;
    struct capture *captures[] = {&first, &second, &third, &fourth};
    fake_python_described = 0;
    assert_int_equal(callsite_attach(test_file("python"), SESSION_STACKS_ALL, 64), VARVE_OK);
    for (volatile unsigned i = 0; i < 8; i++) {
        uint32_t before = captures[i % 4]->callsite;
        fake_python_remembers = i % 4 != 1 && i != 6; /* new and known, either way */
        fake_python_round(i % 4);
        capture_here(captures[i % 4]);
        assert_true(i < 4 || captures[i % 4]->callsite == before);
    }
    fake_python_count = 0;
    assert_int_equal(third.callsite, first.callsite);
    assert_true(second.callsite != first.callsite && fourth.callsite != first.callsite &&
                fourth.callsite != second.callsite);

    struct reading reading;
    reading_open(&reading, test_file("python"));
    assert_int_equal(reading.callsite_count, 3);
    assert_int_equal(reading.code_count, 2);
    assert_string_equal(reading.codes[0].name, "inner");
    assert_string_equal(reading.codes[0].file, "module.py");
    assert_int_equal(reading.codes[0].entry.first_line, 10);
    assert_string_equal(reading.codes[1].name, "outer");
    assert_int_equal(reading.callsites[first.callsite].python_count, 2);
    assert_int_equal(reading.callsites[first.callsite].python[0].code, 1);
    assert_int_equal(reading.callsites[first.callsite].python[0].line, 13);
    assert_int_equal(reading.callsites[second.callsite].python[0].line, 17);
    assert_int_equal(reading.callsites[first.callsite].python[1].code, 2);
    assert_int_equal(reading.callsites[first.callsite].python[1].line, 24U | CALLSITE_FILE_PYTHON_ENTRY);
    assert_int_equal(reading.callsites[fourth.callsite].python[0].code, 0);
    assert_int_equal(reading.callsites[fourth.callsite].python[1].code, 2);
    callsite_expect(&reading, &first);
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
    assert_int_equal(callsite_attach(test_file("descriptors"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
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
    struct reading reading;
    reading_open(&reading, test_file("descriptors"));
    callsite_expect(&reading, &captures[0]);
    /* With no descriptor left the site has no number; nothing else happens. */
    for (unsigned i = 1; i < 3; i++) {
        if (captures[i].callsite != 0) {
            callsite_expect(&reading, &captures[i]);
        }
    }
    reading_close(&reading);
}

TEST(test_closed)
{
    struct capture captures[2] = {HERE, HERE};
    assert_int_equal(callsite_attach(test_file("closed"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
    for (unsigned i = 0; i < 2; i++) {
        capture_by_path(&captures[i], i, 4);
        assert_int_equal(syscall(SYS_close_range, 3, ~0U, 0), 0);
    }
    struct reading reading;
    reading_open(&reading, test_file("closed"));
    assert_int_equal(reading.callsite_count, 2);
    callsite_expect(&reading, &captures[0]);
    callsite_expect(&reading, &captures[1]);
    reading_close(&reading);
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
    assert_int_equal(callsite_attach(test_file("limit"), SESSION_STACKS_NATIVE, 64), VARVE_OK);
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

TEST_FILE(folder_make, folder_remove)
