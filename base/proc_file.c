/* SPDX-License-Identifier: Apache-2.0 */
/* Of the collector's half: who a process is, and who traces it, is asked of the kernel. */
#include "base/proc_file.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_BYTES 1024U /* the state is among the first lines */

size_t proc_file_read(const char *process, const char *name, char *text, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%s/%s", process, name);
    FILE *file = fopen(path, "re");
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

bool proc_file_has_ended(const char *process)
{
    char status[STATUS_BYTES];
    const char state = proc_file_read(process, "status", status, sizeof(status)) > 0 ? proc_file_state(status) : 'X';
    return state == 'Z' || state == 'X';
}

static bool thread_file_has_ended(int32_t tid)
{
    char process[16];
    snprintf(process, sizeof(process), "%d", tid);
    return proc_file_has_ended(process);
}

int32_t proc_file_thread(int32_t pid)
{
    if (!thread_file_has_ended(pid)) {
        return pid;
    }
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    int32_t tid = 0;
    const struct dirent *entry;
    while (folder != NULL && tid == 0 && (entry = readdir(folder)) != NULL) {
        tid = (int32_t)strtol(entry->d_name, NULL, 10);
        tid = tid > 0 && !thread_file_has_ended(tid) ? tid : 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return tid;
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
    char process[16], text[1024];
    if (!proc_file_is_ours()) {
        return 0;
    }
    snprintf(process, sizeof(process), "%d", pid);
    (void)proc_file_read(process, "stat", text, sizeof(text));
    const char *at = strrchr(text, ')');
    for (unsigned field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}
