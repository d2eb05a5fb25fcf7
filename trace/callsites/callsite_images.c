/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs replace and delete what they run: themselves after unpacking, libraries that were compiled for one call,
 * builds that go on while the last one's test runs. So a file is taken when its first call site is read, which is soon
 * after its first allocation, and held. If its name leads elsewhere already, /proc has it: the program's file as `exe`,
 * for whoever records, others in `map_files`, for root alone. Called by callsite_reader.c.
 */
#include "trace/callsites/callsite_reader.h"

#include "base/grown_array.h"
#include "base/proc_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char deleted[] = " (deleted)"; /* as the kernel writes it behind names */

static bool is_named_deleted(const char *path, size_t length)
{
    const size_t suffix = strlen(deleted);
    return length > suffix && strcmp(path + length - suffix, deleted) == 0;
}

#define IMAGES_MAX 8192U
#define PATH_BYTES 4096U

static int open_image(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

static bool has_build_id(const struct symbols_image *image, const uint8_t *build_id, size_t bytes)
{
    return image->build_id_bytes == bytes && memcmp(image->build_id, build_id, bytes) == 0;
}

/* The entry of a file, a new one if it is new; NULL: it is none, or there is no room. */
static struct images_entry *callsite_images_take(struct images *images, int file, const char *path)
{
    for (size_t i = 0; i < images->count; i++) {
        if (symbols_image_is(&images->entries[i]->image, file) && strcmp(images->entries[i]->path, path) == 0) {
            return images->entries[i];
        }
    }
    struct images_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL || images->count >= IMAGES_MAX ||
        !ARRAY_GROW(images->entries, images->capacity, images->count + 1) || !symbols_image_take(&entry->image, file)) {
        free(entry);
        return NULL;
    }
    entry->path = strdup(path);
    if (entry->path == NULL) {
        symbols_image_drop(&entry->image);
        free(entry);
        return NULL;
    }
    images->entries[images->count++] = entry;
    return entry;
}

/* `name`: to open it by. */
static struct images_entry *take_by_name(struct images *images, const char *name, const char *path)
{
    const int file = open_image(name);
    struct images_entry *entry = file >= 0 ? callsite_images_take(images, file, path) : NULL;
    if (file >= 0) {
        close(file);
    }
    return entry;
}

void images_keep(struct images *images, const char *path)
{
    char *real = realpath(path, NULL);
    if (real != NULL) {
        (void)take_by_name(images, real, real);
    }
    free(real);
}

void images_keep_program(struct images *images, int32_t pid)
{
    char name[32], path[PATH_BYTES];
    snprintf(name, sizeof(name), "/proc/%" PRId32 "/exe", pid);
    const ssize_t length = readlink(name, path, sizeof(path) - 1);
    if (length <= 0) {
        return;
    }
    path[length] = '\0';
    if (is_named_deleted(path, (size_t)length)) {
        path[(size_t)length - strlen(deleted)] = '\0';
    }
    (void)take_by_name(images, name, path);
}

/* Of a module whose file nobody has any more: no file is it. */
static struct symbols_image gone = {.length = SIZE_MAX, .copy = -1};

/* What the process has mapped at `base`; `*is_gone`: no name leads there. */
static struct images_entry *take_mapped(struct images *images, int32_t pid, uint64_t base, const char *path,
                                        bool *is_gone)
{
    struct proc_maps maps;
    struct proc_map map = {0};
    (void)proc_maps_open(&maps, pid);
    while (proc_maps_next(&maps, &map) && map.start < base) {
    }
    const bool is_there = base != 0 && map.start == base;
    *is_gone = is_there && is_named_deleted(map.path, strlen(map.path));
    proc_maps_close(&maps);
    if (!is_there) {
        return NULL;
    }
    char name[96];
    snprintf(name, sizeof(name), "/proc/%" PRId32 "/map_files/%" PRIx64 "-%" PRIx64, pid, map.start, map.end);
    return take_by_name(images, name, path);
}

struct symbols_image *images_find(struct images *images, const char *path, const uint8_t *build_id,
                                  size_t build_id_bytes, int32_t pid, uint64_t base)
{
    for (size_t i = 0; i < images->count; i++) {
        struct images_entry *entry = images->entries[i];
        if (has_build_id(&entry->image, build_id, build_id_bytes) &&
            (build_id_bytes > 0 || strcmp(entry->path, path) == 0)) {
            return &entry->image;
        }
    }
    /* Without a build id only the process can say which file it is. */
    bool is_gone = false;
    for (unsigned attempt = 0; attempt < 2 && !(is_gone && build_id_bytes == 0); attempt++) {
        const bool is_by_name = (attempt == 0) == (build_id_bytes > 0);
        struct images_entry *entry = NULL;
        if (is_by_name) {
            entry = take_by_name(images, path, path);
        } else if (pid > 0) {
            entry = take_mapped(images, pid, base, path, &is_gone);
        }
        if (entry != NULL && has_build_id(&entry->image, build_id, build_id_bytes)) {
            return &entry->image;
        }
    }
    return is_gone ? &gone : NULL;
}

void images_free(struct images *images)
{
    for (size_t i = 0; i < images->count; i++) {
        symbols_image_drop(&images->entries[i]->image);
        free(images->entries[i]->path);
        free(images->entries[i]);
    }
    free(images->entries);
    *images = (struct images){0};
}
