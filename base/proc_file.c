/* SPDX-License-Identifier: Apache-2.0 */
/* Never called in a recorded program: who a process is, and who traces it, is asked of the kernel. */
#include "base/proc_file.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_BYTES 1024U /* the state is among the first lines */

static FILE *proc_file_open(int32_t pid, const char *name)
{
    char path[64];
    if (pid == 0) {
        snprintf(path, sizeof(path), "/proc/self/%s", name);
    } else {
        snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    }
    return fopen(path, "re");
}

size_t proc_file_read(int32_t pid, const char *name, char *text, size_t bytes)
{
    FILE *file = proc_file_open(pid, name);
    size_t length = 0;
    if (file != NULL) {
        length = fread(text, 1, bytes - 1, file);
        fclose(file);
    }
    text[length] = '\0';
    return length;
}

char proc_file_state(const char *status)
{
    const char *at = strstr(status, "\nState:");
    return at != NULL ? at[8] : '?';
}

bool proc_file_has_ended(int32_t pid)
{
    char status[STATUS_BYTES];
    const char state = proc_file_read(pid, "status", status, sizeof(status)) > 0 ? proc_file_state(status) : 'X';
    return state == 'Z' || state == 'X';
}

/* The last one of the line. */
int32_t proc_file_innermost(int32_t pid)
{
    char status[4096];
    proc_file_read(pid, "status", status, sizeof(status));
    char *line = strstr(status, "\nNSpid:");
    char *end = line != NULL ? strchr(line + 1, '\n') : NULL;
    if (end == NULL) {
        return 0;
    }
    *end = '\0';
    line = strrchr(line, '\t');
    return line != NULL ? (int32_t)strtol(line + 1, NULL, 10) : 0;
}

bool proc_file_variable(int32_t pid, const char *name, char *value, size_t bytes)
{
    FILE *file = proc_file_open(pid, "environ");
    const size_t length = strlen(name);
    char *entry = NULL;
    size_t room = 0;
    bool is_found = false;
    while (file != NULL && !is_found && getdelim(&entry, &room, '\0', file) > 0) {
        is_found = strncmp(entry, name, length) == 0 && entry[length] == '=';
    }
    if (is_found) {
        snprintf(value, bytes, "%s", entry + length + 1);
    }
    free(entry);
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

int32_t proc_file_search(int32_t pid, bool (*matches)(void *context, int32_t number), void *context)
{
    char path[32] = "/proc";
    if (pid != 0) {
        snprintf(path, sizeof(path), "/proc/%d/task", pid);
    }
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int32_t found = 0;
    while (folder != NULL && found == 0 && (entry = readdir(folder)) != NULL) {
        const int32_t number = (int32_t)strtol(entry->d_name, NULL, 10);
        found = number > 0 && matches(context, number) ? number : 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

static bool proc_file_lives(void *unused, int32_t tid)
{
    (void)unused;
    return !proc_file_has_ended(tid);
}

int32_t proc_file_thread(int32_t pid)
{
    if (pid <= 0) {
        return 0;
    }
    return proc_file_lives(NULL, pid) ? pid : proc_file_search(pid, proc_file_lives, NULL);
}

/* Another PID namespace's may be mounted there: our numbers mean other processes in it, or none. */
static bool proc_file_is_ours(void)
{
    char text[32];
    const ssize_t length = readlink("/proc/self", text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    return strtol(text, NULL, 10) == getpid();
}

/* Behind the name of the command, which may hold anything. */
uint64_t proc_file_started(int32_t pid)
{
    char text[1024];
    if (pid <= 0 || !proc_file_is_ours()) {
        return 0;
    }
    (void)proc_file_read(pid, "stat", text, sizeof(text));
    const char *at = strrchr(text, ')');
    for (unsigned field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

bool proc_maps_open(struct proc_maps *maps, int32_t pid)
{
    *maps = (struct proc_maps){.file = proc_file_open(pid, "maps")};
    return maps->file != NULL;
}

bool proc_maps_next(struct proc_maps *maps, struct proc_map *map)
{
    int at = 0;
    if (maps->file == NULL || getline(&maps->line, &maps->room, maps->file) <= 0 ||
        sscanf(maps->line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &map->start, &map->end,
               map->rights, &map->offset, &map->major, &map->minor, &map->inode, &at) != 7) {
        return false;
    }
    maps->line[strcspn(maps->line, "\n")] = '\0';
    map->path = maps->line + at;
    return true;
}

void proc_maps_close(struct proc_maps *maps)
{
    free(maps->line);
    if (maps->file != NULL) {
        fclose(maps->file);
    }
}
