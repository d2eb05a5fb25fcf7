/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is left, by files of /proc and /sys that are made here: of the machine, of control groups of either
 * version and of those around them.
 * Costs: 1 s
 */
#include "trace/collector/session/mapped_recordings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define NONE (UINT64_MAX - 1)
#define UNKNOWN UINT64_MAX

static char root[64];

static void run(const char *before, const char *after)
{
    char command[512];
    snprintf(command, sizeof(command), "%.60s%s%.300s", before, root, after);
    assert_int_equal(system(command), 0);
}

static void begin(void)
{
    snprintf(root, sizeof(root), "/tmp/varve-memory-XXXXXX");
    assert_non_null(mkdtemp(root));
    run("mkdir -p ", "/proc/self");
}

static void put(const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof(path), "%.*s", (int)(strrchr(name, '/') - name), name);
    run("mkdir -p ", path);
    snprintf(path, sizeof(path), "%s%.300s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

#define PLENTY                                                \
    {                                                         \
        "/proc/meminfo", "MemAvailable:   8388608 kB\n", 8192 \
    }
#define GROUP "/sys/fs/cgroup/user.slice/"

/* Files that come one after the other, and what is free after each (0: nothing is asked). */
TEST(test_files)
{
    static const struct {
        struct {
            const char *name, *text;
            uint64_t mib;
        } files[10];
    } cases[] = {
        {{{"/proc/meminfo", "MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n", 2}}},
        /* The limits of a group around count as well; "max" is none; idle pages of files are as good as free. */
        {{PLENTY,
          {"/proc/self/cgroup", "0::/user.slice/a.scope\n", 0},
          {GROUP "a.scope/memory.max", "max\n", 0},
          {GROUP "a.scope/memory.current", "1048576\n", 8192},
          {GROUP "memory.max", "104857600\n", 0},
          {GROUP "memory.current", "73400320\n", 30},
          {GROUP "memory.stat", "anon 1\ninactive_file 20971520\nactive_file 1048576\n", 50},
          {GROUP "a.scope/memory.high", "3145728\n", 2},
          {GROUP "a.scope/memory.max", "2097152\n", 1},
          {GROUP "a.scope/memory.current", "9999999\n", NONE}}},
        /* In a container the path is that of the host, and only the mount itself can be seen. */
        {{PLENTY,
          {"/proc/self/cgroup",
           "12:cpu,cpuacct:/docker/1\n5:hugetlb,memory:/docker/1\n1:name=systemd:/docker/1\n0::/docker/1\n", 0},
          {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n", 0},
          {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "33554432\n", 0},
          {"/sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 1048576\n", 33}}},
        {{{"/proc/meminfo", "MemAvailable: much\n", 0},
          {"/proc/self/cgroup", "\n:\n::\n0::\n7:memory\n7:memory:relative\n", 0},
          {"/sys/fs/cgroup/memory.max", "\n", UNKNOWN}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        assert_true(free_memory(root) == UINT64_MAX);
        for (size_t k = 0; k < 10 && cases[i].files[k].name != NULL; k++) {
            const uint64_t mib = cases[i].files[k].mib;
            put(cases[i].files[k].name, cases[i].files[k].text);
            assert_true(mib == 0 || free_memory(root) == (mib == NONE ? 0 : mib == UNKNOWN ? UINT64_MAX : mib * MIB));
        }
        run("rm -rf ", "");
    }
    assert_true(free_memory("") > 0 && free_memory("") < UINT64_C(1) << 50); /* this machine */
}
