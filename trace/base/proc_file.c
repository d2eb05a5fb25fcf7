/* SPDX-License-Identifier: Apache-2.0 */
/* Of the collector's half: who a process is, and who traces it, is asked of the kernel. */
#include "trace/base/proc_file.h"

#include <stdio.h>

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
