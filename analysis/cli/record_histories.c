/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of `varve record --torch=observe` and of `varve attach --torch`: each PyTorch process has written the history
 * that PyTorch itself keeps; here these become databases beside the recording's own.
 */
#include "analysis/import/import.h"

#include "analysis/cli/command.h"
#include "analysis/base/number_format.h"
#include "analysis/base/progress.h"
#include "base/error.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PICKLE ".pickle"

/* The number of its events; 0: there is no database. `output`: its path. */
static uint64_t import_one(const char *pickle, bool may_replace, struct progress *progress, FILE *err, char *output,
                           size_t output_bytes)
{
    struct varve_message message = {""};
    snprintf(output, output_bytes, "%.*s.db", (int)(strlen(pickle) - strlen(PICKLE)), pickle);
    struct import_result result;
    if (import_pytorch_file(pickle, output, may_replace, progress, &result, &message) != VARVE_OK) {
        command_say(err, "varve: PyTorch's history stays in %s: %s\n", pickle, message.text);
        return 0;
    }
    unlink(pickle);
    if (result.events == 0) { /* CUDA was started and no more, as by those who compile for torch.compile */
        unlink(output);
        return 0;
    }
    command_say(err, "varve: PyTorch's own history: %s events in %s\n", COUNT(result.events), output);
    return result.events;
}

bool record_histories(const char *prefix, bool may_replace, struct progress *progress, FILE *err, char *largest,
                      size_t largest_bytes)
{
    largest[0] = '\0';
    char pattern[4096];
    size_t used = 0;
    for (const char *at = prefix; *at != '\0' && used + 16 < sizeof(pattern); at++) {
        if (strchr("*?[\\", *at) != NULL) {
            pattern[used++] = '\\';
        }
        pattern[used++] = *at;
    }
    snprintf(pattern + used, sizeof(pattern) - used, ".[0-9]*" PICKLE);
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) {
        return false;
    }
    uint64_t most = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct stat status; /* somebody else's, in a folder of everybody's, is not ours to read */
        if (lstat(found.gl_pathv[i], &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
            continue;
        }
        char output[4096];
        const uint64_t events = import_one(found.gl_pathv[i], may_replace, progress, err, output, sizeof(output));
        if (events > most) {
            most = events;
            snprintf(largest, largest_bytes, "%s", output);
        }
    }
    globfree(&found);
    return true;
}

void record_histories_missing(const char *prefix, FILE *err)
{
    command_say(err,
                "varve: no PyTorch process left a history (%s.PID" PICKLE "): none used CUDA, or they were killed\n",
                prefix);
}
