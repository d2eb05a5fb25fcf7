/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * Call-site files made by hand from the format of trace/format/callsite_format.h, for the tests of what reads them.
 */
#ifndef VARVE_TESTS_SUPPORT_CALLSITES_H
#define VARVE_TESTS_SUPPORT_CALLSITES_H

#include <cmocka.h>

#include "trace/format/callsite_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct writer {
    FILE *stream;
    char path[512];
};

/* A folder of its own for each program. */
static inline const char *callsite_file_folder(void)
{
    static char folder[256];
    const char *base = getenv("TMPDIR");
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "%s/varve-sites-XXXXXX", base ? base : "/tmp");
        assert_non_null(mkdtemp(folder));
    }
    return folder;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof(command), "rm -rf '%s'", callsite_file_folder());
    return system(command);
}

static inline struct writer writer_open(const char *name)
{
    struct writer writer;
    snprintf(writer.path, sizeof(writer.path), "%s/%s", callsite_file_folder(), name);
    writer.stream = fopen(writer.path, "w");
    assert_non_null(writer.stream);
    return writer;
}

/* Returns what was written, so many bytes. */
static inline size_t writer_close(struct writer *writer, void *bytes_out, size_t most)
{
    fclose(writer->stream);
    FILE *stream = fopen(writer->path, "r");
    assert_non_null(stream);
    size_t count = fread(bytes_out, 1, most, stream);
    fclose(stream);
    return count;
}

static inline void put(struct writer *writer, const void *bytes, size_t count)
{
    if (count) {
        assert_int_equal(fwrite(bytes, 1, count, writer->stream), count);
    }
}

static inline void put_head(struct writer *writer, uint32_t tag, size_t bytes)
{
    const struct callsite_file_entry entry = {tag, (uint32_t)((bytes + 7) / 8 * 8)};
    put(writer, &entry, sizeof(entry));
}

static inline void put_padding(struct writer *writer, size_t bytes)
{
    static const char zeros[8];
    put(writer, zeros, (8 - bytes % 8) % 8);
    assert_int_equal(fflush(writer->stream), 0);
}

static inline void put_module(struct writer *writer, uint32_t number, uint64_t base, uint64_t size, uint64_t bias,
                              const char *path, const char *build_id)
{
    const struct callsite_file_module module = {
        base, base + size, bias, number, (uint16_t)strlen(build_id), (uint16_t)strlen(path)};
    size_t bytes = sizeof(module) + strlen(build_id) + strlen(path);
    put_head(writer, CALLSITE_FILE_TAG_MODULE, bytes);
    put(writer, &module, sizeof(module));
    put(writer, build_id, strlen(build_id));
    put(writer, path, strlen(path));
    put_padding(writer, bytes);
}

static inline void put_gone(struct writer *writer, uint32_t number)
{
    const struct callsite_file_gone gone = {number, 0};
    put_head(writer, CALLSITE_FILE_TAG_MODULE_GONE, sizeof(gone));
    put(writer, &gone, sizeof(gone));
    put_padding(writer, 0);
}

static inline void put_code(struct writer *writer, uint32_t number, const char *name, const char *file)
{
    const struct callsite_file_code code = {number, 1, (uint16_t)strlen(name), (uint16_t)strlen(file), 0};
    size_t bytes = sizeof(code) + strlen(name) + strlen(file);
    put_head(writer, CALLSITE_FILE_TAG_CODE, bytes);
    put(writer, &code, sizeof(code));
    put(writer, name, strlen(name));
    put(writer, file, strlen(file));
    put_padding(writer, bytes);
}

static inline void put_callsite(struct writer *writer, uint32_t number, const uint64_t *pcs, unsigned native_count,
                                const struct callsite_file_python *python, unsigned python_count)
{
    const struct callsite_file_stack callsite = {number, (uint16_t)native_count, (uint16_t)python_count};
    put_head(writer, CALLSITE_FILE_TAG_STACK,
             sizeof(callsite) + native_count * sizeof(*pcs) + python_count * sizeof(*python));
    put(writer, &callsite, sizeof(callsite));
    put(writer, pcs, native_count * sizeof(*pcs));
    put(writer, python, python_count * sizeof(*python));
    put_padding(writer, 0);
}

static inline void put_native(struct writer *writer, uint32_t number, uint64_t pc)
{
    put_callsite(writer, number, &pc, 1, NULL, 0);
}

#endif
