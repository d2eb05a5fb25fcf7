/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that varve runs for itself: program.h. Called by the collector (lttng_daemon.c), imports, exports, the
 * doctor and the plots of `varve dtr`. */
#include "base/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool program_find(const char *name, char *path, size_t path_bytes)
{
    const char *folders = getenv("PATH");
    for (; folders != NULL && *folders != '\0'; folders += strspn(folders, ":")) {
        int length = (int)strcspn(folders, ":");
        int written = snprintf(path, path_bytes, "%.*s/%s", length, folders, name);
        if (written > 0 && (size_t)written < path_bytes && access(path, X_OK) == 0) {
            return true;
        }
        folders += length;
    }
    return false;
}

static bool is_changed(const char *entry, const char *const *changes)
{
    const size_t length = strcspn(entry, "=");
    while (*changes != NULL && (strncmp(*changes, entry, length) != 0 ||
                                ((*changes)[length] != '=' && (*changes)[length] != '\0'))) {
        changes++;
    }
    return *changes != NULL;
}

char **program_environment(const char *const *changes)
{
    size_t count = 0, added = 0, kept = 0;
    while (environ != NULL && environ[count] != NULL) {
        count++;
    }
    while (changes[added] != NULL) {
        added++;
    }
    char **entries = calloc(count + added + 1, sizeof(*entries));
    for (size_t i = 0; entries != NULL && i < count; i++) {
        if (!is_changed(environ[i], changes)) {
            entries[kept++] = environ[i];
        }
    }
    for (size_t i = 0; entries != NULL && i < added; i++) {
        if (strchr(changes[i], '=') != NULL) {
            entries[kept++] = (char *)changes[i];
        }
    }
    return entries;
}

int program_spawn(char *const *argv, char *const *environment, const int streams[3], bool has_own_session,
                  pid_t *pid_out)
{
    posix_spawn_file_actions_t actions;
    int reason = posix_spawn_file_actions_init(&actions);
    if (reason != 0) {
        return reason;
    }
    posix_spawnattr_t attributes;
    reason = posix_spawnattr_init(&attributes);
    if (reason == 0) {
        int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (has_own_session ? POSIX_SPAWN_SETSID : 0);
        sigset_t all;
        sigset_t none;
        sigfillset(&all);
        sigemptyset(&none);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setflags(&attributes, (short)flags);
        for (int i = STDIN_FILENO; i <= STDERR_FILENO && reason == 0; i++) {
            reason = streams[i] < 0 ? posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0)
                                    : posix_spawn_file_actions_adddup2(&actions, streams[i], i);
        }
        reason = reason != 0 ? reason : posix_spawnp(pid_out, argv[0], &actions, &attributes, argv, environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return reason;
}
