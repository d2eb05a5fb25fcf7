/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve report --json`, its member "gpu": what gpu.c prints, in full. Keys are the columns of the
 * views.
 */
#include "analysis/query/report/report.h"

#include "analysis/output/json.h"
#include "analysis/query/db.h"

static struct cJSON *devices_json(struct database *database)
{
    struct cJSON *devices = json_array();
    struct cursor cursor;

    cursor_open(&cursor, database, REPORT_DEVICES_SQL);
    while (cursor_next(&cursor)) {
        struct cJSON *device = json_object();

        json_integer(device, "device", cursor_integer(&cursor, 0));
        json_text(device, "name", cursor_text(&cursor, 1));
        json_integer_or_null(device, "total_bytes",
                             cursor_is_null(&cursor, 2) ? -1 : cursor_integer(&cursor, 2));
        json_text(device, "uuid", cursor_text(&cursor, 3));
        json_add(device, "processes",
                 query_json(
                     database,
                     "SELECT process_id, pid, rank FROM device_process WHERE device = ?1 ORDER BY process_id",
                     cursor_integer(&cursor, 0)));
        json_append(devices, device);
    }
    cursor_close(&cursor);
    return devices;
}

static struct cJSON *segments_json(struct database *database)
{
    struct cJSON *array = json_array();
    struct report_segments segments;

    report_segments_load(&segments, database, INT64_MAX);
    for (size_t i = 0; i < segments.count; i++) {
        const struct report_segment *row = &segments.rows[i];
        struct cJSON *object = json_object();

        json_integer(object, "process_id", row->process_id);
        json_integer(object, "pid", row->pid);
        json_integer(object, "device", row->device);
        json_integer(object, "seq", row->seq);
        json_integer(object, "ts_ns", row->ts_ns);
        json_integer_or_null(object, "from_driver", row->from_driver);
        json_integer(object, "reserved", row->reserved);
        json_integer(object, "allocated", row->allocated);
        json_integer(object, "active", row->active);
        json_integer_or_null(object, "largest_free", row->largest_free);
        json_integer_or_null(object, "segments", row->segments);
        json_append(array, object);
    }
    report_segments_free(&segments);
    return array;
}

struct cJSON *report_gpu_json(struct database *database)
{
    struct cJSON *object = json_object();

    json_add(object, "devices", devices_json(database));
    json_add(
        object, "streams",
        query_json(database,
                   "SELECT process_id, pid, domain, device, stream, handle, allocations, frees, bytes, "
                   "live_bytes, peak_bytes FROM stream_total ORDER BY process_id, domain, device, stream",
                   0));
    json_add(
        object, "calls",
        query_json(database,
                   "SELECT process_id, pid, device, activity, function, calls, failed, total_ns, mean_ns, "
                   "max_ns, bytes FROM device_call ORDER BY process_id, device, function, activity",
                   0));
    json_add(object, "segments", segments_json(database));
    json_add(object, "unexplained", query_json(database, REPORT_UNEXPLAINED_SQL, 0));
    json_add(
        object, "failures",
        query_json(database,
                   "SELECT seq, ts_ns, process_id, pid, tid, device, stream, kind, function, bytes, result, "
                   "took_ns, callsite_id FROM device_failure ORDER BY seq LIMIT ?1",
                   10000));
    json_add(object, "cupti", report_cupti_json(database));
    return object;
}
