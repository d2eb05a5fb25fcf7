/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Programs that a GPU test records count here what they did, and print it at the end as one line of JSON:
 * {"calls": [[kind, memory, function, failed, calls, bytes], …], "checks": […]}, to be compared with the
 * database. `kind` and `memory` are those of the records; bytes are what is asked for.
 */
#ifndef VARVE_TESTS_GPU_RECORD_EXPECT_H
#define VARVE_TESTS_GPU_RECORD_EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_NONE 0
#define MEMORY_PINNED 2
#define MEMORY_DEVICE 3
#define MEMORY_ARRAY 4
#define MEMORY_MANAGED 5

struct expect_row {
    const char *kind, *function;
    int memory, failed;
    unsigned long calls;
    unsigned long long bytes;
};

static struct expect_row expect_rows[128];
static unsigned expect_count;

static inline void expect_event(const char *kind, int memory, const char *function, int failed, size_t bytes)
{
    unsigned i = 0;
    while (i < expect_count &&
           (strcmp(expect_rows[i].kind, kind) != 0 || strcmp(expect_rows[i].function, function) != 0 ||
            expect_rows[i].memory != memory || expect_rows[i].failed != failed)) {
        i++;
    }
    if (i == expect_count) {
        if (expect_count == sizeof(expect_rows) / sizeof(expect_rows[0])) {
            abort();
        }
        expect_rows[expect_count++] =
            (struct expect_row){.kind = kind, .function = function, .memory = memory, .failed = failed};
    }
    expect_rows[i].calls++;
    expect_rows[i].bytes += bytes;
}

static inline void expect_print(void)
{
    printf("{\"calls\": [");
    for (unsigned i = 0; i < expect_count; i++) {
        printf("%s[\"%s\", %d, \"%s\", %d, %lu, %llu]", i > 0 ? ", " : "", expect_rows[i].kind, expect_rows[i].memory,
               expect_rows[i].function, expect_rows[i].failed, expect_rows[i].calls, expect_rows[i].bytes);
    }
    printf("]}\n");
    fflush(stdout);
}

/* A call that must return `wanted`, or the program ends with 3. Without a device it ends with 77. */
static inline void expect_result(const char *what, int result, int wanted)
{
    if (result != wanted) {
        fprintf(stderr, "%s: %d, wanted %d\n", what, result, wanted);
        exit(result == 100 || result == 35 || result == 34 ? 77 : 3);
    }
}

#define EXPECT(wanted, call) expect_result(#call, (int)(call), (wanted))

#endif
