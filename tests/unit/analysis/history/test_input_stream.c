/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input stream: every format gives the bytes that were packed, whatever the portions in which they are
 * taken; every cut, flipped byte and appended byte is an error of one line. xz, gzip and zstd do the packing.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "analysis/base/input_stream.h"
#include "support/command.h"
#include "support/random.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA_BYTES 700001
#define PACKED_MAX (DATA_BYTES + DATA_BYTES / 8)

enum format {
    FORMAT_PLAIN,
    FORMAT_XZ,
    FORMAT_GZIP,
    FORMAT_ZSTD,
    FORMAT_LIMIT,
};

static unsigned char *data, *packed;
static uint64_t seed = 1;

static int setup(void **state)
{
    (void)state;
    data = malloc(DATA_BYTES);
    packed = malloc(3 * PACKED_MAX);
    for (size_t i = 0; i < DATA_BYTES; i++) { /* half of it can be packed */
        data[i] = i % 2000 < 1000 ? (unsigned char)random_next(&seed) : (unsigned char)(i / 100);
    }
    return data == NULL || packed == NULL;
}

static int teardown(void **state)
{
    (void)state;
    free(data);
    free(packed);
    return 0;
}

/* By the program of that name, with a checksum of the content. */
static size_t pack(enum format format, const unsigned char *from, size_t bytes, unsigned char *to)
{
    static const char *const programs[] = {"cat", "xz -1c", "gzip -nc", "zstd -qc"};
    char path[] = "/tmp/varve-pack-XXXXXX", command[80];
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, from, bytes), bytes);
    close(file);
    snprintf(command, sizeof(command), "%s < %s", programs[format], path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t used = fread(to, 1, PACKED_MAX, pipe);
    assert_int_equal(pclose(pipe), 0);
    unlink(path);
    return used;
}

/* Take everything in random portions; the number of bytes, or the error. */
static int64_t take_all(struct input_stream *stream, unsigned char *to, size_t room, struct varve_message *message)
{
    size_t taken = 0;
    for (;;) {
        size_t need = (uint32_t)random_next(&seed) % 8 == 0
                          ? (uint32_t)random_next(&seed) % (INPUT_STREAM_WINDOW_BYTES / 2)
                          : (uint32_t)random_next(&seed) % 300 + 1;
        int error = input_stream_fill(stream, need, message);
        if (error != VARVE_OK) {
            return error;
        }
        size_t there = (size_t)(stream->end - stream->next);
        assert_true(there >= need || stream->is_at_end);
        assert_int_equal(input_stream_offset(stream), taken);
        if (there == 0 && stream->is_at_end) {
            return (int64_t)taken;
        }
        size_t step = need < there ? need : there;
        assert_true(taken + step <= room);
        memcpy(to + taken, stream->next, step);
        stream->next += step;
        taken += step;
    }
}

static int64_t read_packed(size_t bytes, unsigned char *to, size_t room, struct varve_message *message)
{
    struct input_stream *stream;
    int64_t result = input_stream_open_memory("memory", packed, bytes, &stream, message);
    if (result == VARVE_OK) {
        result = take_all(stream, to, room, message);
        input_stream_close(stream);
    }
    return result;
}

static void assert_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' lacks '%s'", text, part);
    }
    assert_null(strchr(text, '\n'));
}

TEST(test_formats)
{
    static const size_t sizes[] = {1, 2, 6, 7, 262144, DATA_BYTES};
    unsigned char *out = malloc(DATA_BYTES);
    for (enum format format = 0; format < FORMAT_LIMIT; format++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct varve_message message = {""};
            size_t bytes = pack(format, data, sizes[i], packed);
            if (read_packed(bytes, out, DATA_BYTES, &message) != (int64_t)sizes[i]) {
                fail_msg("format %d, %zu bytes: %s", (int)format, sizes[i], message.text);
            }
            assert_memory_equal(out, data, sizes[i]);
        }
    }
    free(out);
}

TEST(test_members)
{
    unsigned char *out = malloc(DATA_BYTES);
    for (enum format format = FORMAT_XZ; format < FORMAT_LIMIT; format++) {
        struct varve_message message = {""};
        size_t bytes = pack(format, data, 200000, packed);
        bytes += pack(format, data + 200000, 1, packed + bytes);
        bytes += pack(format, data + 200001, DATA_BYTES - 200001, packed + bytes);
        if (format == FORMAT_XZ) { /* it may be padded */
            memset(packed + bytes, 0, 8);
            bytes += 8;
        }
        if (read_packed(bytes, out, DATA_BYTES, &message) != DATA_BYTES) {
            fail_msg("format %d: %s", (int)format, message.text);
        }
        assert_memory_equal(out, data, DATA_BYTES);
    }
    free(out);
}

TEST(test_damage)
{
    static const char garbage[] = "garbage behind";
    unsigned char *out = malloc(DATA_BYTES * 2);
    for (enum format format = FORMAT_XZ; format < FORMAT_LIMIT; format++) {
        size_t bytes = pack(format, data, 20000, packed);
        struct varve_message message = {""};
        for (size_t cut = 6; cut < bytes; cut += cut < 40 || cut + 40 > bytes ? 1 : 997) {
            assert_int_equal(read_packed(cut, out, DATA_BYTES, &message), VARVE_ERROR_FORMAT);
            assert_text(message.text, "memory: the ");
            assert_text(message.text, "truncated");
        }
        for (int i = 0; i < test_rounds(60, 200); i++) {
            size_t at = 6 + (uint32_t)random_next(&seed) % (bytes - 6);
            unsigned char flip = (unsigned char)(1U << (uint32_t)random_next(&seed) % 8);
            packed[at] ^= flip;
            int64_t result = read_packed(bytes, out, DATA_BYTES * 2, &message);
            packed[at] ^= flip;
            /* The header of gzip has bytes without meaning (time, system); nothing else may pass. */
            if (result != VARVE_ERROR_FORMAT && !(format == FORMAT_GZIP && at < 10)) {
                fail_msg("format %d: flip at %zu of %zu gives %d", (int)format, at, bytes, (int)result);
            }
        }
        memcpy(packed + bytes, garbage, sizeof(garbage));
        assert_int_equal(read_packed(bytes + sizeof(garbage), out, DATA_BYTES, &message), VARVE_ERROR_FORMAT);
        assert_text(message.text, "something else follows");
        packed[bytes] = 'x';
        assert_int_equal(read_packed(bytes + 1, out, DATA_BYTES, &message), VARVE_ERROR_FORMAT);
    }
    free(out);
}

static void assert_open_fails(const char *path, int error, const char *part)
{
    struct input_stream *stream;
    struct varve_message message = {""};
    assert_int_equal(input_stream_open(path, &stream, &message), error);
    assert_null(stream);
    assert_text(message.text, path);
    assert_text(message.text, part);
}

TEST(test_files)
{
    unsigned char *out = malloc(DATA_BYTES);
    struct varve_message message = {""};
    size_t bytes = pack(FORMAT_XZ, data, DATA_BYTES, packed);
    bool is_root = geteuid() == 0;
    char *folder = test_folder_enter();
    assert_open_fails("misnamed.gz", VARVE_ERROR_NOT_FOUND, "No such file");
    assert_open_fails(folder, VARVE_ERROR_FORMAT, "is a directory");
    file_write("misnamed.gz", "", 0);
    assert_open_fails("misnamed.gz", VARVE_ERROR_FORMAT, "is empty");
    file_write("misnamed.gz", packed, bytes);
    struct input_stream *stream;
    assert_int_equal(input_stream_open("misnamed.gz", &stream, &message), VARVE_OK);
    assert_string_equal(input_stream_path(stream), "misnamed.gz");
    assert_int_equal(input_stream_total(stream), bytes);
    assert_int_equal(take_all(stream, out, DATA_BYTES, &message), DATA_BYTES);
    assert_memory_equal(out, data, DATA_BYTES);
    assert_int_equal(input_stream_done(stream), bytes);
    input_stream_close(stream);
    input_stream_close(NULL);
    chmod("misnamed.gz", 0);
    chmod(".", 0711);
    if (is_root) { /* root may read everything, and becomes nobody for a moment */
        assert_int_equal(seteuid(65534), 0);
    }
    assert_open_fails("misnamed.gz", VARVE_ERROR_PERMISSION, "Permission denied");
    if (is_root) {
        assert_int_equal(seteuid(0), 0);
    }
    test_folder_leave(folder);
    free(out);
}

static void *write_slowly(void *context)
{
    FILE *file = fopen(context, "w");
    for (size_t i = 0; file != NULL && i < 100; i++) {
        fputc(data[i], file);
        fflush(file);
    }
    if (file != NULL) {
        fclose(file);
    }
    return NULL;
}

TEST(test_pipe)
{
    char path[] = "pipe", *folder = test_folder_enter();
    struct varve_message message = {""};
    assert_int_equal(mkfifo(path, 0600), 0);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_slowly, path), 0);
    struct input_stream *stream;
    assert_int_equal(input_stream_open(path, &stream, &message), VARVE_OK);
    pthread_join(writer, NULL); /* 100 bytes fit into the pipe */
    assert_int_equal(input_stream_total(stream), 0);
    unsigned char out[200];
    assert_int_equal(take_all(stream, out, sizeof(out), &message), 100);
    assert_memory_equal(out, data, 100);
    input_stream_close(stream);
    test_folder_leave(folder);
}

TEST_FILE(setup, teardown)
