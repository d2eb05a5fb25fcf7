/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items through a pipe: all kinds, with parts of all lengths, in pieces as small as the kernel likes; and
 * what a process that babeltrace2 has damaged could send: cut messages, sizes that are not true, noise.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "analysis/import/ctf/ctf.h"
#include "support/random.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 400U

/* The item of a number: both ends make it. */
static void item_make(struct ctf_item *item, unsigned number, char *memory, size_t bytes)
{
    uint64_t state = number;
    const struct ctf_item_shape *shape;

    memset(item, 0, sizeof(*item));
    item->kind = (enum ctf_item_kind)(1 + number % (CTF_ITEM_KINDS - 1));
    shape = ctf_item_shape(item->kind);
    for (size_t i = 0; i < shape->bytes; i++) {
        ((unsigned char *)&item->of)[i] = (unsigned char)random_next(&state);
    }
    for (unsigned i = 0; i < shape->parts; i++) {
        uint32_t length = (uint32_t)(random_next(&state) % (number % 50 == 0 ? bytes / CTF_PARTS : 40)) + 1;

        length = i < shape->texts ? length : length / 8 * 8;
        memset(memory, 'a' + (int)(number % 26), length);
        if (i < shape->texts) {
            memory[length - 1] = '\0';
        }
        item->parts[i] = (struct ctf_part){memory, length};
        memory += (length + 7) / 8 * 8;
    }
    ctf_item_bind(item);
}

static void assert_same(const struct ctf_item *a, const struct ctf_item *b, unsigned number)
{
    const struct ctf_item_shape *shape = ctf_item_shape(a->kind);

    if (a->kind != b->kind) {
        fail_msg("item %u is of kind %d, not %d", number, (int)b->kind, (int)a->kind);
    }
    for (unsigned i = 0; i < shape->parts; i++) {
        if (a->parts[i].bytes != b->parts[i].bytes ||
            memcmp(a->parts[i].data, b->parts[i].data, a->parts[i].bytes) != 0) {
            fail_msg("item %u, part %u differs", number, i);
        }
    }
    if (shape->parts == 0 && memcmp(&a->of, &b->of, shape->bytes) != 0) {
        fail_msg("item %u differs", number);
    }
}

static void test_all_kinds(void **state)
{
    static char memory[3 * 1024 * 1024];
    struct ctf_pipe_end *end;
    const struct ctf_item *got;
    struct ctf_item item;
    int ends[2];
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child = fork();
    if (child == 0) {
        end = ctf_pipe_end_new(ends[1]);
        for (unsigned i = 0; i < ROUNDS; i++) {
            item_make(&item, i, memory, sizeof(memory) - 256);
            if (ctf_pipe_put(end, &item) != VARVE_OK) {
                _exit(1);
            }
        }
        _exit(ctf_pipe_flush(end) == VARVE_OK ? 0 : 1);
    }
    close(ends[1]);
    end = ctf_pipe_end_new(ends[0]);
    for (unsigned i = 0; i < ROUNDS; i++) {
        item_make(&item, i, memory, sizeof(memory) - 256);
        assert_int_equal(ctf_pipe_get(end, &got), VARVE_OK);
        assert_same(&item, got, i);
    }
    assert_int_equal(ctf_pipe_get(end, &got), VARVE_ERROR_NOT_FOUND);
    ctf_pipe_end_free(end);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_other_side_gone(void **state)
{
    static const struct ctf_item item = {.kind = CTF_ITEM_PACKET};
    struct ctf_pipe_end *end;
    int file = open("/dev/full", O_WRONLY | O_CLOEXEC);

    (void)state;
    assert_true(file >= 0);
    end = ctf_pipe_end_new(file);
    assert_int_equal(ctf_pipe_put(end, &item), VARVE_OK);
    assert_int_equal(ctf_pipe_flush(end), VARVE_ERROR_IO);
    ctf_pipe_end_free(end);
    close(file);
}

/* Get all there is of a file; returns why there is no more. */
static int get_all(int file, unsigned *count)
{
    struct ctf_pipe_end *end;
    const struct ctf_item *item;
    int error;

    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    end = ctf_pipe_end_new(file);
    *count = 0;
    while ((error = ctf_pipe_get(end, &item)) == VARVE_OK) {
        const struct ctf_item_shape *shape = ctf_item_shape(item->kind);

        for (unsigned i = 0; i < shape->texts; i++) {
            assert_true(strlen(item->parts[i].data) < item->parts[i].bytes);
        }
        ++*count;
    }
    ctf_pipe_end_free(end);
    return error;
}

static void test_damaged(void **state)
{
    static char memory[4096];
    char path[] = "/tmp/varve-unit-pipe-XXXXXX";
    int file = mkostemp(path, O_CLOEXEC);
    struct ctf_pipe_end *end = ctf_pipe_end_new(file);
    uint64_t seed = 1;
    unsigned count;
    off_t bytes;

    (void)state;
    assert_true(file >= 0);
    unlink(path);
    for (unsigned i = 1; i < 60; i++) {
        struct ctf_item item;

        item_make(&item, i == 50 ? 1 : i, memory, sizeof(memory));
        assert_int_equal(ctf_pipe_put(end, &item), VARVE_OK);
    }
    assert_int_equal(ctf_pipe_flush(end), VARVE_OK);
    ctf_pipe_end_free(end);
    bytes = lseek(file, 0, SEEK_END);
    assert_int_equal(get_all(file, &count), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(count, 59);
    for (unsigned i = 0; i < 3000; i++) {
        off_t at = (off_t)(random_next(&seed) % (uint64_t)bytes) / 4 * 4;
        uint32_t before;
        uint32_t damage = (uint32_t)random_next(&seed) >> random_next(&seed) % 32;
        int error;

        assert_int_equal(pread(file, &before, sizeof(before), at), sizeof(before));
        assert_int_equal(pwrite(file, &damage, sizeof(damage), at), sizeof(damage));
        error = get_all(file, &count);
        assert_true(error == VARVE_ERROR_NOT_FOUND || error == VARVE_ERROR_CORRUPT);
        assert_true(count <= 59);
        assert_int_equal(pwrite(file, &before, sizeof(before), at), sizeof(before));
    }
    for (off_t cut = bytes - 1; cut > 0; cut -= 7) {
        assert_int_equal(ftruncate(file, cut), 0);
        assert_int_equal(get_all(file, &count), VARVE_ERROR_NOT_FOUND);
        assert_true(count < 59);
    }
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_other_side_gone),
        cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
