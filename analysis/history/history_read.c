/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database is known by its first sixteen bytes; everything else, plain or compressed, goes to the reader of
 * snapshots, which says what is wrong with it.
 */
#include "analysis/history/history_read.h"
#include "base/error.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool history_is_database(const char *path)
{
    static const char magic[16] = "SQLite format 3";
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) {
        return false; /* a pipe can be read only once */
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    char begin[sizeof(magic)] = {0};
    ssize_t got = read(file, begin, sizeof(begin));
    close(file);
    return got == (ssize_t)sizeof(begin) && memcmp(begin, magic, sizeof(magic)) == 0;
}

int history_read(const char *path, struct history **history_out, struct progress *progress,
                 struct varve_message *message)
{
    return history_is_database(path) ? history_read_database(path, history_out, progress, message)
                                     : history_read_pytorch(path, history_out, progress, message);
}
