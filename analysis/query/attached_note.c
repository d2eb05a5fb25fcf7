/* SPDX-License-Identifier: Apache-2.0 */
/* From meta (attached_pid, attached_ns) and stats (frees_unknown), which the collector writes. */
#include "analysis/query/loss_note.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"

#include <inttypes.h>
#include <stdio.h>

static int64_t attached_pid(struct database *database)
{
    return database_meta_integer(database, "attached_pid", 0);
}

static int64_t frees_unknown(struct database *database)
{
    return database_integer_named(database, "SELECT value FROM stats WHERE name = ?1", "frees_unknown", 0);
}

void report_attached_words(char *text, size_t bytes, struct database *database)
{
    const int64_t pid = attached_pid(database);
    text[0] = '\0';
    if (pid != 0) {
        snprintf(text, bytes,
                 "to process %" PRId64 ", which ran already: blocks from before are not known (%s of them freed or "
                 "resized since); what is live was allocated since",
                 pid, format_count(frees_unknown(database)).text);
    }
}

void report_attached_json(struct cJSON *object, struct database *database)
{
    const int64_t pid = attached_pid(database);
    if (pid != 0) {
        json_integer(object, "attached_pid", pid);
        json_integer(object, "frees_unknown", frees_unknown(database));
    }
}
