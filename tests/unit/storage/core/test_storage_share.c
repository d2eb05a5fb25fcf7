/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory between processes, also when one of them is killed, and mapped files in each mode. Nothing is left in
 * /dev/shm.
 * Costs: 1 s
 */
#include "support/storage/storage_rules.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char name[64], path[64];

static int prepare(void **state)
{
    (void)state;
    snprintf(name, sizeof(name), "/varve-test-%d", (int)getpid());
    snprintf(path, sizeof(path), "map-%d.bin", (int)getpid());
    return 0;
}

static int nothing_is_left(void **state)
{
    (void)state;
    unlink(path);
    return varve_storage_live() == 0 && shm_unlink(name) != 0 ? 0 : -1;
}

/* ---- shared memory ---- */

/* Attaches, writes the square of each index, and waits to be killed. */
static void write_and_wait(int ready)
{
    struct varve_storage *storage;
    if (varve_storage_shared_attach(name, false, &storage, &rule_message) == VARVE_OK) {
        for (int64_t i = 0; i < varve_storage_count(storage); i++) {
            ((int32_t *)varve_storage_data(storage))[i] = (int32_t)(i * i);
        }
        if (write(ready, "w", 1) == 1) {
            pause();
        }
    }
    _exit(1);
}

TEST_WITH(test_a_process_is_killed, prepare, nothing_is_left)
{
    const int64_t shape[] = {10, 10};
    int ready[2], status;
    assert_int_equal(pipe(ready), 0);
    struct varve_storage *storage, *other;
    rule_ok(varve_storage_shared_create(name, VARVE_DTYPE_I32, 2, shape, &storage, &rule_message));
    rule_ok(varve_storage_check(storage, &rule_message));
    assert_int_equal(((int32_t *)varve_storage_data(storage))[99], 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        write_and_wait(ready[1]);
    }
    close(ready[1]);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(((int32_t *)varve_storage_data(storage))[99], 99 * 99);
    rule_ok(varve_storage_shared_attach(name, true, &other, &rule_message));
    rule_ok(varve_storage_shared_unlink(name, &rule_message));
    rule_release(storage);
    assert_int_equal(((const int32_t *)varve_storage_data(other))[7], 49); /* it reads on */
    assert_int_equal(varve_storage_fill(other, (struct varve_scalar){.kind = VARVE_SCALAR_BOOL}, &rule_message),
                     VARVE_ERROR_PERMISSION);
    rule_release(other);
    assert_int_equal(varve_storage_shared_attach(name, true, &other, &rule_message), VARVE_ERROR_NOT_FOUND);
}

TEST_WITH(test_shared_errors, prepare, nothing_is_left)
{
    const int64_t shape[] = {4}, negative[] = {-4};
    struct varve_storage *storage, *second = NULL;
    uint32_t huge = 3000;
    assert_int_equal(varve_storage_shared_unlink(name, &rule_message), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_storage_shared_create("a/b", VARVE_DTYPE_U8, 1, shape, &second, &rule_message),
                     VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_shared_create("", VARVE_DTYPE_U8, 1, shape, &second, &rule_message),
                     VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_shared_create(name, VARVE_DTYPE_U8, 1, negative, &second, &rule_message),
                     VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_shared_attach(name, false, &second, &rule_message), VARVE_ERROR_NOT_FOUND);
    rule_ok(varve_storage_shared_create(name + 1, VARVE_DTYPE_F64, 1, shape, &storage, &rule_message));
    assert_int_equal(varve_storage_shared_create(name, VARVE_DTYPE_F64, 1, shape, &second, &rule_message),
                     VARVE_ERROR_BUSY);
    int fd = shm_open(name, O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &huge, sizeof(huge), 24), sizeof(huge)); /* the size of the only axis */
    assert_int_equal(varve_storage_shared_attach(name, false, &second, &rule_message), VARVE_ERROR_FORMAT);
    assert_non_null(strstr(rule_message.text, "is shorter than its shape"));
    assert_int_equal(pwrite(fd, &huge, sizeof(huge), 16), sizeof(huge)); /* the number of axes */
    assert_int_equal(varve_storage_shared_attach(name, false, &second, &rule_message), VARVE_ERROR_FORMAT);
    assert_int_equal(pwrite(fd, &huge, sizeof(huge), 8), sizeof(huge)); /* the version */
    assert_int_equal(varve_storage_shared_attach(name, false, &second, &rule_message), VARVE_ERROR_VERSION);
    assert_int_equal(ftruncate(fd, 20), 0);
    assert_int_equal(varve_storage_shared_attach(name, false, &second, &rule_message), VARVE_ERROR_FORMAT);
    close(fd);
    rule_release(storage);
    rule_ok(varve_storage_shared_unlink(name, &rule_message));
    assert_null(second);
}

/* ---- mapped files ---- */

static off_t file_size(void)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_size : -1;
}

static struct varve_storage *map_file(const char *mode, uint64_t offset, int64_t count)
{
    const struct varve_file file = {.path = path, .offset = offset, .mode = mode};
    struct varve_storage *storage;
    rule_ok(varve_storage_map(&file, VARVE_DTYPE_I16, 1, &count, &storage, &rule_message));
    rule_ok(varve_storage_check(storage, &rule_message));
    return storage;
}

static int16_t element(struct varve_storage *storage, int64_t index)
{
    int16_t value;
    memcpy(&value, (char *)varve_storage_data(storage) + index * 2, sizeof(value));
    return value;
}

static void set_element(struct varve_storage *storage, int64_t index, int16_t value)
{
    memcpy((char *)varve_storage_data(storage) + index * 2, &value, sizeof(value));
}

TEST_WITH(test_modes, prepare, nothing_is_left)
{
    struct varve_storage *storage = map_file("w+", 0, 3000);
    assert_int_equal(file_size(), 6000);
    assert_int_equal(element(storage, 2999), 0);
    set_element(storage, 2999, 77);
    struct varve_storage *view;
    rule_ok(varve_storage_slice(storage, 0, 10, 20, 1, &view, &rule_message));
    rule_ok(varve_storage_flush(view, &rule_message));
    rule_release(storage);
    rule_release(view);
    storage = map_file("r", 0, -1);
    assert_int_equal(varve_storage_count(storage), 3000);
    assert_int_equal(element(storage, 2999), 77);
    assert_int_equal(varve_storage_copy(storage, storage, &rule_message), VARVE_ERROR_PERMISSION);
    struct varve_storage *copy = map_file("c", 0, 3000);
    set_element(copy, 2999, 5);
    rule_ok(varve_storage_flush(copy, &rule_message)); /* which writes nothing */
    assert_int_equal(element(storage, 2999), 77);
    rule_release(copy);
    rule_release(storage);
    storage = map_file("r+", 5001, 1000); /* no multiple of a page, nor of an element */
    assert_int_equal(file_size(), 7001);
    set_element(storage, 999, -3);
    rule_release(storage);
    storage = map_file("r", 5001, -1);
    assert_int_equal(varve_storage_count(storage), 1000);
    assert_int_equal(element(storage, 999), -3);
    rule_release(storage);
    rule_release(map_file("w+", 0, 0));
    assert_int_equal(file_size(), 0);
}

static void refuse(struct varve_file file, int64_t count, int error, const char *text)
{
    struct varve_storage *storage = NULL;
    off_t size = file_size();
    rule_refused(varve_storage_map(&file, VARVE_DTYPE_I32, 1, &count, &storage, &rule_message), error, text);
    assert_null(storage);
    assert_int_equal(file_size(), size);
}

TEST_WITH(test_file_errors, prepare, nothing_is_left)
{
    refuse((struct varve_file){.path = path, .mode = "r"}, 4, VARVE_ERROR_NOT_FOUND, "can't be opened");
    refuse((struct varve_file){.path = path}, 4, VARVE_ERROR_NOT_FOUND, "can't be opened");
    rule_release(map_file("w+", 0, 9));
    refuse((struct varve_file){.path = path, .mode = "x"}, 4, VARVE_ERROR_INVALID, "there are r, r+, w+ and c");
    refuse((struct varve_file){.path = path, .mode = "r"}, 5, VARVE_ERROR_INVALID, "has 18 bytes, the shape needs 20");
    refuse((struct varve_file){.path = path, .mode = "c", .offset = 10}, 3, VARVE_ERROR_INVALID, "needs 22");
    refuse((struct varve_file){.path = path, .mode = "r"}, -1, VARVE_ERROR_INVALID, "no whole number of 4");
    refuse((struct varve_file){.path = path, .mode = "r", .offset = 30}, -1, VARVE_ERROR_INVALID, "0 bytes behind");
    refuse((struct varve_file){.path = path, .mode = "w+"}, -7, VARVE_ERROR_INVALID, "is negative");
    refuse((struct varve_file){.path = path, .mode = "r+", .offset = UINT64_MAX - 3}, 4, VARVE_ERROR_INVALID,
           "is beyond any file");
    refuse((struct varve_file){.path = "/dev/zero", .mode = "r"}, 4, VARVE_ERROR_INVALID, "is no regular file");
    struct varve_storage *storage;
    rule_ok(varve_storage_empty(NULL, VARVE_DTYPE_U8, 0, NULL, &storage, &rule_message));
    assert_int_equal(varve_storage_flush(storage, &rule_message), VARVE_ERROR_INVALID);
    rule_release(storage);
}
