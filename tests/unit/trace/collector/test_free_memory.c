/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is left, by files of /proc and /sys that are made here: of the machine, of control groups of either
 * version and of those around them.
 * Costs: 1 s
 */
#include "trace/collector/session/free_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static char root[64];

static void run(const char *before, const char *after)
{
    char command[512];
    snprintf(command, sizeof(command), "%.60s%s%.300s", before, root, after);
    assert_int_equal(system(command), 0);
}

static int begin(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/varve-memory-XXXXXX");
    assert_non_null(mkdtemp(root));
    run("mkdir -p ", "/proc/self");
    return 0;
}

static int end(void **state)
{
    (void)state;
    run("rm -rf ", "");
    return 0;
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

TEST_WITH(test_nothing_is_known, begin, end)
{
    assert_true(free_memory(root) == UINT64_MAX);
}

TEST_WITH(test_machine, begin, end)
{
    put("/proc/meminfo", "MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n");
    assert_int_equal(free_memory(root), 2 * MIB);
    assert_true(free_memory("") > 0 && free_memory("") < UINT64_C(1) << 50); /* this one */
}

/* The limit of a group around counts as well; "max" is none; idle pages of files are as good as free. */
TEST_WITH(test_unified_groups, begin, end)
{
    put("/proc/meminfo", "MemAvailable:   8388608 kB\n");
    put("/proc/self/cgroup", "0::/user.slice/a.scope\n");
    put("/sys/fs/cgroup/user.slice/a.scope/memory.max", "max\n");
    put("/sys/fs/cgroup/user.slice/a.scope/memory.current", "1048576\n");
    assert_int_equal(free_memory(root), 8192 * MIB);
    put("/sys/fs/cgroup/user.slice/memory.max", "104857600\n");
    put("/sys/fs/cgroup/user.slice/memory.current", "73400320\n");
    assert_int_equal(free_memory(root), 30 * MIB);
    put("/sys/fs/cgroup/user.slice/memory.stat", "anon 1\ninactive_file 20971520\nactive_file 1048576\n");
    assert_int_equal(free_memory(root), 50 * MIB);
    put("/sys/fs/cgroup/user.slice/a.scope/memory.max", "2097152\n");
    assert_int_equal(free_memory(root), MIB);
    put("/sys/fs/cgroup/user.slice/a.scope/memory.current", "9999999\n");
    assert_int_equal(free_memory(root), 0);
}

/* In a container the path is that of the host, and only the mount itself can be seen. */
TEST_WITH(test_divided_groups, begin, end)
{
    put("/proc/meminfo", "MemAvailable:   8388608 kB\n");
    put("/proc/self/cgroup",
        "12:cpu,cpuacct:/docker/1\n5:hugetlb,memory:/docker/1\n1:name=systemd:/docker/1\n0::/docker/1\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "33554432\n");
    put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 1048576\n");
    assert_int_equal(free_memory(root), 33 * MIB);
}

TEST_WITH(test_noise, begin, end)
{
    put("/proc/meminfo", "MemAvailable: much\n");
    put("/proc/self/cgroup", "\n:\n::\n0::\n7:memory\n7:memory:relative\n");
    put("/sys/fs/cgroup/memory.max", "\n");
    assert_true(free_memory(root) == UINT64_MAX);
}
