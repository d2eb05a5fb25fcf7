/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that nobody should load: whoever does leaves the file that UNWANTED_MARK names. Tests of hostile
 * sessions make recorders an offer of it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void leave_mark(void)
{
    const char *path = getenv("UNWANTED_MARK");
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) {
        close(fd);
    }
}
