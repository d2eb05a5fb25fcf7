/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, what crashed recordings left in /dev/shm: the rings of a recording whose collector was
 * killed stay there, on purpose, until `varve recover` has made a database of them. They take memory until
 * then.
 */
#include "analysis/doctor_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE "/dev/shm"
#define PREFIX "varve-"
#define SHOWN 10

/* Memory that the files of a directory take. */
static int64_t directory_bytes(int descriptor)
{
    DIR *directory = fdopendir(descriptor);
    int64_t bytes = 0;
    struct dirent *entry;

    if (directory == NULL) {
        close(descriptor);
        return 0;
    }
    while ((entry = readdir(directory)) != NULL) {
        struct stat status;

        if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode)) {
            bytes += (int64_t)status.st_blocks * 512;
        }
    }
    closedir(directory);
    return bytes;
}

/* A living recording has its rings mapped, in the collector at least. */
static bool is_mapped(const char *path)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    bool is_found = false;

    while (processes != NULL && !is_found && (entry = readdir(processes)) != NULL) {
        char name[300];
        char *line = NULL;
        size_t capacity = 0;
        FILE *maps;

        if (strspn(entry->d_name, "0123456789") == 0) {
            continue;
        }
        snprintf(name, sizeof(name), "/proc/%s/maps", entry->d_name);
        maps = fopen(name, "re");
        while (maps != NULL && !is_found && getline(&line, &capacity, maps) > 0) {
            is_found = strstr(line, path) != NULL;
        }
        free(line);
        if (maps != NULL) {
            fclose(maps);
        }
    }
    if (processes != NULL) {
        closedir(processes);
    }
    return is_found;
}

void doctor_check_leftovers(struct doctor_lines *lines)
{
    DIR *place = opendir(PLACE);
    struct dirent *entry;
    int64_t bytes_all = 0;
    int count = 0;

    while (place != NULL && (entry = readdir(place)) != NULL) {
        char path[300];
        int descriptor;
        int64_t bytes;

        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0) {
            continue;
        }
        snprintf(path, sizeof(path), PLACE "/%s", entry->d_name);
        descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (descriptor < 0 || is_mapped(path)) {
            if (descriptor >= 0) {
                close(descriptor);
            }
            continue;
        }
        bytes = directory_bytes(descriptor);
        bytes_all += bytes;
        if (count++ < SHOWN) {
            char remedy[200];

            snprintf(remedy, sizeof(remedy), "varve recover DB.d of that recording, or rm -r %.100s", path);
            doctor_add(lines, "leftover", DOCTOR_WARNING, "a recording that was killed; it takes memory",
                       remedy, "%.100s, %s", path, format_bytes(bytes).text);
        }
    }
    if (place != NULL) {
        closedir(place);
    }
    if (count == 0) {
        doctor_add(lines, "leftovers", DOCTOR_OK, "", "", "no crashed recording in " PLACE);
    } else if (count > SHOWN) {
        doctor_add(lines, "leftovers", DOCTOR_WARNING, "", "", "%d crashed recordings in all, %s", count,
                   format_bytes(bytes_all).text);
    }
}
