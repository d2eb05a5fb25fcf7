/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, what crashed recordings left in /dev/shm: the rings of a recording whose collector was
 * killed stay there, on purpose, until `varve recover` has made a database of them. They take memory until
 * then.
 */
#include "analysis/cli/doctor/doctor.h"

#include "analysis/base/number_format.h"
#include "base/grown_array.h"
#include "base/proc_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHM_FOLDER "/dev/shm"
#define PREFIX "varve-"
#define SHOWN 10
#define DEPTH_MAX 10

/* Memory that the files of a directory take, those of LTTng's buffers, deep in it, too. Closes it. */
static int64_t directory_bytes(int descriptor, int depth)
{
    DIR *directory = fdopendir(descriptor);
    if (directory == NULL) {
        close(descriptor);
        return 0;
    }
    int64_t bytes = 0;
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        struct stat status;
        if (entry->d_name[0] == '.' || fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        if (S_ISREG(status.st_mode)) {
            bytes += (int64_t)status.st_blocks * 512;
        } else if (S_ISDIR(status.st_mode) && depth < DEPTH_MAX) {
            int below = openat(dirfd(directory), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            bytes += below >= 0 ? directory_bytes(below, depth + 1) : 0;
        }
    }
    closedir(directory);
    return bytes;
}

struct leftover {
    char path[300];
    int64_t bytes;
    bool is_mapped;
};

struct leftovers {
    struct leftover *items;
    size_t count, capacity;
};

static void leftovers_add(struct leftovers *all, const char *name)
{
    struct leftover leftover = {.is_mapped = false};
    snprintf(leftover.path, sizeof(leftover.path), SHM_FOLDER "/%s", name);
    int descriptor = open(leftover.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) {
        return;
    }
    leftover.bytes = directory_bytes(descriptor, 0);
    if (ARRAY_GROW(all->items, all->capacity, all->count + 1)) {
        all->items[all->count++] = leftover;
    }
}

/* A living recording has its rings mapped, in the collector at least. */
static bool leftovers_mark_mapped(void *context, int32_t pid)
{
    struct leftovers *all = context;
    struct proc_maps maps;
    struct proc_map map;
    (void)proc_maps_open(&maps, pid);
    while (proc_maps_next(&maps, &map)) {
        const char *at = strstr(map.path, SHM_FOLDER "/" PREFIX);
        for (size_t i = 0; at != NULL && i < all->count; i++) {
            const size_t length = strlen(all->items[i].path);
            all->items[i].is_mapped |= strncmp(at, all->items[i].path, length) == 0 && at[length] == '/';
        }
    }
    proc_maps_close(&maps);
    return false; /* all of them */
}

/* varve-UID-ID, as trace/collector/session/recording_directory.c names them: others' names are anything, and go to a
 * terminal. */
static bool is_rings_name(const char *name)
{
    const char *at = name + strlen(PREFIX);
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) {
        return false;
    }
    size_t digits = strspn(at, "0123456789");
    return digits > 0 && at[digits] == '-' && strspn(at + digits + 1, "0123456789abcdef") == 16 &&
           at[digits + 1 + 16] == '\0';
}

static void leftovers_find(struct leftovers *all)
{
    DIR *folder = opendir(SHM_FOLDER);
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (is_rings_name(entry->d_name)) {
            leftovers_add(all, entry->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (all->count > 0) {
        (void)proc_file_search(0, leftovers_mark_mapped, all);
    }
}

void doctor_check_leftovers(struct doctor_lines *lines)
{
    struct leftovers all = {.count = 0};
    leftovers_find(&all);
    int64_t bytes = 0;
    int count = 0;
    for (size_t i = 0; i < all.count; i++) {
        if (all.items[i].is_mapped) {
            continue;
        }
        bytes += all.items[i].bytes;
        char remedy[200];
        if (count++ < SHOWN) {
            snprintf(remedy, sizeof(remedy), "varve recover DB.d of that recording, or rm -r %.100s",
                     all.items[i].path);
            doctor_add(lines, "leftover", DOCTOR_WARNING, "a recording that was killed; its rings occupy memory",
                       remedy, "%.100s, %s", all.items[i].path, BYTES(all.items[i].bytes));
        }
    }
    free(all.items);
    if (count == 0) {
        doctor_add(lines, "leftovers", DOCTOR_OK, "", "", "no crashed recording in " SHM_FOLDER);
    } else if (count > SHOWN) {
        doctor_add(lines, "leftovers", DOCTOR_WARNING, "", "", "%d crashed recordings in all, %s", count, BYTES(bytes));
    }
}
