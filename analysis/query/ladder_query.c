/* SPDX-License-Identifier: Apache-2.0 */
/* A keyframe has the ladder of its moment, and the events after it what they change: no more of a trace is read. */
#include "analysis/query/segment_query.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"

#include "statements_generated.h"

#include <string.h>

#define BAR_COLUMNS 40

static const char *const names[LADDER_FIGURES] = {
    "reserved",         "live_requested", "rounding",        "unsplit_remainder", "segment_quantum",
    "pool_segregation", "stream_pending", "cached_segments", "external_holes",
};

static const char *const titles[LADDER_FIGURES] = {
    "reserved",         "live",           "rounding",        "unsplit remainder", "segment quantum",
    "pool segregation", "stream pending", "cached segments", "external holes",
};

void ladder_load(struct ladder_figures *figures, struct database *database, int64_t process_id, int64_t device,
                 int64_t seq)
{
    *figures = (struct ladder_figures){0};
    struct cursor cursor;
    cursor_open(&cursor, database, sql_ladder_at);
    cursor_bind_integer(&cursor, 1, seq);
    cursor_bind_integer(&cursor, 2, process_id);
    cursor_bind_integer(&cursor, 3, device);
    if (cursor_next(&cursor)) {
        for (int i = 0; i < LADDER_FIGURES; i++) {
            figures->bytes[i] = cursor_integer(&cursor, i);
        }
    }
    cursor_close(&cursor);
}

void ladder_print(FILE *out, const struct ladder_figures *figures)
{
    static const char bar[BAR_COLUMNS + 1] = "########################################";
    int64_t reserved = figures->bytes[0], unused = reserved - figures->bytes[1];
    if (reserved <= 0 || unused <= 0) {
        return;
    }
    fprintf(out, "  %-26s %10s %7s\n", "serves no request", format_bytes(unused).text,
            format_share(unused, reserved).text);
    for (int i = 2; i < LADDER_FIGURES; i++) {
        int64_t bytes = figures->bytes[i];
        double share = bytes > 0 && bytes <= unused ? (double)bytes / (double)unused : 0;
        if (bytes != 0) {
            int columns = (int)(share * BAR_COLUMNS + 0.5);
            fprintf(out, "    %-24s %10s %7s%s%.*s\n", titles[i], format_bytes(bytes).text,
                    format_share(bytes, reserved).text, columns > 0 ? "  " : "", columns, bar);
        }
    }
}

struct cJSON *ladder_json(const struct ladder_figures *figures)
{
    struct cJSON *object = json_object();
    for (int i = 0; i < LADDER_FIGURES; i++) {
        json_integer(object, names[i], figures->bytes[i]);
    }
    return object;
}
