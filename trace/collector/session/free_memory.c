/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is left: the kernel's estimate, and what the control groups around this process allow beyond what is used
 * in them, of both versions. Pages of files that were not used for long go when memory is wanted, so these count as
 * free. Called by the collector now and then, to bound how far rings grow.
 */
#include "trace/collector/session/mapped_recordings.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 8192U
#define LINE_BYTES 4096U

/* Names of files and of a key in memory.stat. */
struct group_files {
    const char *base, *limit, *used, *idle;
    const char *slow; /* beyond it the kernel holds the group's programs up; NULL: there is no such limit */
};

static const struct group_files unified = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ",
                                           "memory.high"};
static const struct group_files divided = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                           "total_inactive_file ", NULL};

/* The number behind `key` where a line begins with that. False: there is none, or it is not a number ("max"). */
static bool free_memory_read_number(const char *path, const char *key, uint64_t *number)
{
    char line[LINE_BYTES];
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%" SCNu64, number) == 1;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static uint64_t free_memory_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool read_of_group(const char *folder, const char *name, const char *key, uint64_t *number)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return free_memory_read_number(path, key, number);
}

static uint64_t free_in_group(const char *folder, const struct group_files *files)
{
    uint64_t limit = UINT64_MAX, slow = UINT64_MAX, used;
    const bool is_limited = read_of_group(folder, files->limit, "", &limit);
    const bool is_slow = files->slow != NULL && read_of_group(folder, files->slow, "", &slow);
    if ((!is_limited && !is_slow) || !read_of_group(folder, files->used, "", &used)) {
        return UINT64_MAX;
    }
    limit = free_memory_least(limit, slow);
    uint64_t idle = 0;
    if (!read_of_group(folder, "memory.stat", files->idle, &idle) || idle > used) {
        idle = 0;
    }
    used -= idle;
    return limit > used ? limit - used : 0;
}

/* The group and all groups that it is in. What a container shows is its own group, whatever the path. */
static uint64_t free_in_groups(const char *root, const struct group_files *files, const char *group)
{
    char folder[PATH_BYTES];
    size_t base = (size_t)snprintf(folder, sizeof(folder), "%s%s", root, files->base);
    uint64_t result = free_in_group(folder, files);
    snprintf(folder + base, sizeof(folder) - base, "%s", group);
    char *end;
    while ((end = strrchr(folder + base, '/')) != NULL) {
        result = free_memory_least(result, free_in_group(folder, files));
        *end = '\0';
    }
    return result;
}

/* A line is NUMBER:CONTROLLERS:PATH; the unified hierarchy has number 0 and names none. */
static uint64_t free_in_line(const char *root, const char *text, size_t bytes)
{
    char line[LINE_BYTES];
    snprintf(line, sizeof(line), "%.*s", (int)bytes, text);
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) {
        return UINT64_MAX;
    }
    *group++ = '\0';
    if (*++controllers == '\0') {
        return free_in_groups(root, &unified, group);
    }
    char *save;
    for (char *name = strtok_r(controllers, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
        if (strcmp(name, "memory") == 0) {
            return free_in_groups(root, &divided, group);
        }
    }
    return UINT64_MAX;
}

uint64_t free_memory_of_groups(const char *root, const char *groups)
{
    uint64_t result = UINT64_MAX;
    while (groups[0] != '\0') {
        const size_t bytes = strcspn(groups, "\n");
        result = free_memory_least(result, free_in_line(root, groups, bytes));
        groups += bytes + (groups[bytes] == '\n');
    }
    return result;
}

bool free_memory_groups(const char *root, int32_t pid, char *groups, size_t bytes)
{
    char path[PATH_BYTES];
    if (pid != 0) {
        snprintf(path, sizeof(path), "%s/proc/%d/cgroup", root, pid);
    } else {
        snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    }
    FILE *file = fopen(path, "re");
    size_t length = 0;
    if (file != NULL) {
        length = fread(groups, 1, bytes - 1, file);
        fclose(file);
    }
    groups[length] = '\0';
    return length > 0;
}

uint64_t free_memory(const char *root)
{
    char path[PATH_BYTES], groups[LINE_BYTES];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    uint64_t result = UINT64_MAX, kib;
    if (free_memory_read_number(path, "MemAvailable:", &kib)) {
        result = kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
    }
    return free_memory_groups(root, 0, groups, sizeof(groups))
               ? free_memory_least(result, free_memory_of_groups(root, groups))
               : result;
}
