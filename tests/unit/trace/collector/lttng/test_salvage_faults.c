/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of records when something goes wrong: a path that cannot be used, a taker that stops, a full disk, a
 * file that was damaged. What had been kept before is still to be had.
 */
#include "support/salvage_model.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct stop {
    uint64_t after, taken;
};

static int stop_after(void *context, const struct varve_mirror_origin *origin, uint64_t number,
                      const struct varve_record *record)
{
    struct stop *stop = context;

    (void)origin;
    (void)number;
    (void)record;
    return stop->taken == stop->after ? VARVE_ERROR_DATABASE : (int)(stop->taken++, VARVE_OK);
}

static void test_taker_stops(void **state)
{
    const uint64_t kept = 30000;
    struct model model;

    (void)state;
    model_open(&model, 2);
    for (uint64_t i = 0; i < kept; i++) {
        keep(&model, i % 2, 1 + i / 2);
    }
    for (uint64_t after = 0; after < kept; after = after * 3 + 1) {
        struct stop stop = {.after = after};
        uint64_t count = kept;
        assert_int_equal(salvage_each(model.salvage, stop_after, &stop, &count, NULL), VARVE_ERROR_DATABASE);
        assert_int_equal(stop.taken, after);
        assert_int_equal(count, after);
    }
    compare_all(&model);
    model_close(&model);
}

/* A limit on file sizes instead of a full disk. What was kept before stays to be had. */
static void test_full_disk(void **state)
{
    const uint64_t tried = 200000;
    struct varve_message message = {""};
    unsigned full = 0;
    unsigned wrong = 0;
    struct model model;
    struct rlimit before;

    (void)state;
    model_open(&model, 3);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {.rlim_cur = (1 << 20) + 1234, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint64_t i = 0; i < tried; i++) {
        int error = keep_only(&model, i % 3, 1 + i / 3);
        if (error == VARVE_OK && full == 0) {
            model_note(&model, i % 3, 1 + i / 3);
        }
        full += error == VARVE_ERROR_FULL;
        wrong += error != VARVE_OK && error != VARVE_ERROR_FULL;
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(full, 1); /* said once: the collector goes on without copies */
    assert_int_equal(wrong, 0);
    assert_int_equal(model.salvage->written, limit.rlim_cur);
    assert_int_equal(model.salvage->refused,
                     tried - model.rings[0].count - model.rings[1].count - model.rings[2].count);
    compare(&model, VARVE_ERROR_FULL, &message);
    assert_non_null(strstr(message.text, model.folder));
    assert_non_null(strstr(message.text, "File too large"));
    mark_some(&model, 3);
    compare(&model, VARVE_ERROR_FULL, &message);
    mark_some(&model, 1);
    compare(&model, VARVE_ERROR_FULL, &message);
    model_close(&model);
}

/* The error of a taker is told rather than that of the disk. */
static void test_first_record_on_full_disk(void **state)
{
    struct varve_message message = {""};
    struct stop stop = {.after = 5};
    struct model model;
    struct rlimit before;
    uint64_t count;
    int error = VARVE_OK;

    (void)state;
    model_open(&model, 2);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint64_t i = 1; i < 100000 && error == VARVE_OK; i++) {
        error = keep_only(&model, 1, i);
        if (error == VARVE_OK) {
            model_note(&model, 1, i);
        }
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(error, VARVE_ERROR_FULL);
    assert_int_equal(model.salvage->written, 0);
    assert_true(model.rings[1].count >= SALVAGE_BLOCK_RECORDS); /* memory keeps what the file cannot */
    assert_int_equal(salvage_each(model.salvage, stop_after, &stop, &count, &message), VARVE_ERROR_DATABASE);
    compare(&model, VARVE_ERROR_FULL, &message);
    model_close(&model);
}

static int take_any(void *context, const struct varve_mirror_origin *origin, uint64_t number,
                    const struct varve_record *record)
{
    (void)context;
    (void)origin;
    (void)number;
    (void)record;
    return VARVE_OK;
}

/* Whatever happened to the file: an answer, no crash; a header that cannot be right is an error. */
static void test_damaged_file(void **state)
{
    struct varve_message message = {""};
    struct salvage_block block;
    struct salvage_block damaged;
    struct model model;
    uint64_t count;

    (void)state;
    model_open(&model, 2);
    for (uint64_t i = 0; i < 60000; i++) {
        keep(&model, 1, 1 + i);
    }
    const int fd = model.salvage->fd;
    assert_true(model.salvage->written > sizeof(block));
    assert_int_equal(pread(fd, &block, sizeof(block), 0), sizeof(block));
    for (unsigned byte = 0; byte < sizeof(block); byte++) {
        if (byte >= offsetof(struct salvage_block, previous) &&
            byte < offsetof(struct salvage_block, previous) + sizeof(block.previous)) {
            continue; /* of the first block, so nobody follows it */
        }
        if (byte >= offsetof(struct varve_mirror_origin, tid) && byte < sizeof(block.origin)) {
            continue; /* any thread will do */
        }
        damaged = block;
        ((uint8_t *)&damaged)[byte] ^= 0x81;
        assert_int_equal(pwrite(fd, &damaged, sizeof(damaged), 0), sizeof(damaged));
        int error = salvage_each(model.salvage, take_any, NULL, &count, &message);
        if (error != VARVE_ERROR_CORRUPT) {
            fail_msg("byte %u: %s", byte, varve_strerror(error));
        }
    }
    assert_int_equal(pwrite(fd, &block, sizeof(block), 0), sizeof(block));
    compare_all(&model);
    for (unsigned round = 0; round < 300; round++) {
        uint64_t noise = random_word(&model.random);
        off_t at = (off_t)(random_word(&model.random) % (model.salvage->written - sizeof(noise)));
        assert_int_equal(pwrite(fd, &noise, sizeof(noise), at), sizeof(noise));
        salvage_each(model.salvage, take_any, NULL, &count, &message);
    }
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(salvage_each(model.salvage, take_any, NULL, &count, &message), VARVE_ERROR_IO);
    assert_non_null(strstr(message.text, "cut"));
    model_close(&model);
}

static void test_open(void **state)
{
    char folder[] = "/tmp/varve-salvage-XXXXXX";
    char path[sizeof(folder) + 32];
    struct varve_message message = {""};
    struct salvage *salvage = NULL;
    struct stat status;

    (void)state;
    salvage_close(NULL);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/none/copies", folder);
    assert_int_equal(salvage_open(path, &salvage, &message), VARVE_ERROR_NOT_FOUND);
    assert_null(salvage);
    assert_non_null(strstr(message.text, path));
    snprintf(path, sizeof(path), "%s/copies", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "other", 5), 5);
    close(fd);
    assert_int_not_equal(salvage_open(path, &salvage, &message), VARVE_OK); /* of somebody else */
    assert_null(salvage);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, 5);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(salvage_open(path, &salvage, &message), VARVE_OK);
    assert_int_equal(rmdir(folder), 0);
    salvage_close(salvage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taker_stops),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_first_record_on_full_disk),
        cmocka_unit_test(test_damaged_file),
        cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests_name("salvage_faults", tests, NULL, NULL);
}
