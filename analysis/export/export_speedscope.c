/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of speedscope: profiles of type "sampled" over one list of frames. A sample is a node of a call tree that has
 * a figure of its own: its frames, outermost first, and that figure as its weight. Trees are read twice, for the frames
 * that are shared and for the samples, so that one is in memory at a time.
 *
 * Source: the format's schema, https://www.speedscope.app/file-format-schema.json.
 */
#include "analysis/export/export.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "analysis/report/frame_name.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>

#define SMALLER_FRAME 0 /* in the list of frames: what a tree left out */

struct profile {
    enum call_tree_metric metric;
    enum call_tree_figure figure;
    const char *name, *unit;
};

/* Those of the metrics come first, in their order. */
static const struct profile profiles[] = {
    {CALL_TREE_PEAK, CALL_TREE_BYTES, "live at the peak", "bytes"},
    {CALL_TREE_ALLOCATED, CALL_TREE_BYTES, "allocated", "bytes"},
    {CALL_TREE_LEAKED, CALL_TREE_BYTES, "leaked", "bytes"},
    {CALL_TREE_TEMPORARY, CALL_TREE_ALLOCATIONS, "temporary (allocations)", "none"},
    {CALL_TREE_ALLOCATED, CALL_TREE_ALLOCATIONS, "allocations", "none"},
};

#define PROFILES (sizeof(profiles) / sizeof(profiles[0]))

struct writer {
    FILE *out;
    const struct export_request *request;
    struct map frames; /* symbol to index in the list of frames */
    size_t frame_count;
};

static void write_frame(struct writer *writer, const struct call_tree_frame *frame)
{
    struct cJSON *object = json_object();
    char name[FRAME_NAME_BYTES];
    frame_name(name, frame);
    json_text(object, "name", name);
    char file[FRAME_NAME_BYTES];
    if (frame->file != NULL || frame->module != NULL) {
        format_tail(file, sizeof(file), frame->file != NULL ? frame->file : frame->module, FRAME_NAME_COLUMNS);
        json_text(object, "file", file);
    }
    if (frame->line > 0) {
        json_integer(object, "line", frame->line);
    }
    fputs(",\n", writer->out);
    json_print(object, writer->out);
}

static void export_speedscope_write_frames(struct writer *writer, const struct call_tree *tree)
{
    for (size_t i = 0; i < tree->frame_count; i++) {
        if (map_find(&writer->frames, tree->frames[i].symbol) == MAP_NONE) {
            map_put(&writer->frames, tree->frames[i].symbol, ++writer->frame_count);
            write_frame(writer, &tree->frames[i]);
        }
    }
}

static void write_sample(const struct writer *writer, const struct call_tree *tree, size_t number, bool is_left_out,
                         const char *separator)
{
    uint32_t path[CALL_TREE_FRAMES_MAX];
    size_t count = 0;
    for (size_t i = number; i != 0; i = tree->nodes[i].parent) {
        path[count++] = tree->nodes[i].frame;
    }
    fprintf(writer->out, "%s[", separator);
    while (count > 0) {
        uint64_t index = map_find(&writer->frames, tree->frames[path[--count]].symbol);
        fprintf(writer->out, count > 0 || is_left_out ? "%" PRIu64 "," : "%" PRIu64,
                index != MAP_NONE ? index : (uint64_t)SMALLER_FRAME);
    }
    fprintf(writer->out, is_left_out ? "%d]" : "]", SMALLER_FRAME);
}

static void export_speedscope_write_samples(const struct writer *writer, const struct call_tree *tree)
{
    enum call_tree_figure figure = tree->options.figure;
    fputs("\"samples\":[", writer->out);
    const char *separator = "";
    for (size_t i = 0; i < tree->count; i++) {
        for (int left_out = 0; left_out < 2; left_out++) {
            if ((left_out ? tree->nodes[i].left_out : tree->nodes[i].own)[figure] > 0) {
                write_sample(writer, tree, i, left_out != 0, separator);
                separator = ",";
            }
        }
    }
    fputs("],\n\"weights\":[", writer->out);
    separator = "";
    for (size_t i = 0; i < tree->count; i++) {
        for (int left_out = 0; left_out < 2; left_out++) {
            int64_t weight = (left_out ? tree->nodes[i].left_out : tree->nodes[i].own)[figure];
            if (weight > 0) {
                fprintf(writer->out, "%s%" PRId64, separator, weight);
                separator = ",";
            }
        }
    }
    fputs("]}", writer->out);
}

/* One tree after the other: its frames, or its profile. */
static int export_speedscope_walk(struct writer *writer, bool with_samples, struct varve_message *message)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < PROFILES && error == VARVE_OK; i++) {
        struct call_tree tree;
        error = export_tree_load(&tree, writer->request, profiles[i].metric, profiles[i].figure, message);
        if (error == VARVE_OK && !with_samples) {
            export_speedscope_write_frames(writer, &tree);
        } else if (error == VARVE_OK) {
            fprintf(writer->out,
                    "%s{\"type\":\"sampled\",\"name\":\"%s, %s\",\"unit\":\"%s\",\"startValue\":0,\"endValue\":%" PRId64
                    ",\n",
                    i > 0 ? ",\n" : "", writer->request->domain, profiles[i].name, profiles[i].unit,
                    tree.nodes[0].total[tree.options.figure]);
            export_speedscope_write_samples(writer, &tree);
        }
        call_tree_free(&tree);
    }
    return error;
}

static int export_speedscope(const void *request_untyped, FILE *out, struct varve_message *message)
{
    const struct export_request *request = request_untyped;
    struct writer writer = {.out = out, .request = request};
    fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"varve\",\n"
          "\"shared\":{\"frames\":[{\"name\":\"(smaller)\"}\n",
          out);
    int error = export_speedscope_walk(&writer, false, message);
    fputs("]},\n\"profiles\":[\n", out);
    error = error == VARVE_OK ? export_speedscope_walk(&writer, true, message) : error;
    fprintf(out, "],\n\"activeProfileIndex\":%d}\n", request->metric);
    map_free(&writer.frames);
    return error;
}

const struct export_format export_format_speedscope = {
    .name = "speedscope",
    .meaning = "JSON for www.speedscope.app, of one domain: five profiles, bytes live at the peak, allocated and "
               "leaked, and the numbers of temporary and of all allocations. Stacks as in folded.",
    .write = export_speedscope,
    .takes_part = true,
    .wants_domain = true,
    .takes_metric = true,
};
