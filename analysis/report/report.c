/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of sections, and the answers that are made of it: text of a screen or two (--all: everything), and JSON
 * with every figure, whose keys are stable: they may be added to, never renamed; the manual page lists them. The page
 * of --html is made of the same rows.
 */
#include "analysis/report/report.h"

#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/query/database.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/recording_header.h"
#include "analysis/query/loss_note.h"
#include "analysis/report/report_leaks.h"
#include "analysis/query/storage_summary.h"
#include "analysis/query/total_query.h"

#include "statements_generated.h"

#define COLUMNS(...) ((const struct table_column[]){__VA_ARGS__})

/* clang-format off */
const struct report_section report_sections[] = {
    {
        .key = "totals", .title = "Totals of all processes",
        .explanation = "What each domain of memory was asked for, how much of it was live at most, and how much still "
                       "is at the end. Domains nest: blocks are cut from device memory, so never add them up.",
        .absent = "No allocation was recorded.",
        .table = &(const struct query){
            .sql = sql_report_totals,
            .columns = COLUMNS({"domain", false}, {"device", true}, {"allocated", true}, {"peak", true},
                               {"peak at", true}, {"live at the end", true}, {"allocations", true},
                               {"live allocations", true}, {"temporary", true}, {"failed", true}),
            .kinds = "tnbbdbcccc",
        },
        .is_short = true, .text = report_total_text, .json = report_total_json,
    },
    {
        .key = "host_peak", .title = "Heap and mappings together",
        .explanation = "The most that heap and mappings of all processes had together; each has its own peak above.",
        .absent = "There were no mappings, or no heap.",
        .table = &(const struct query){
            .sql = sql_report_host_peak,
            .columns = COLUMNS({"peak", true}, {"heap", true}, {"mmap", true}, {"at", true}, {"event", true}),
            .kinds = "bbbdn",
        },
    },
    {
        .key = "process_peaks", .title = "Processes by peak",
        .explanation = "Each process at its own peak: these add up to more than all together ever had.",
        .absent = "There is one process only.",
        .is_there = report_has_processes,
        .table = &(const struct query){
            .sql = sql_report_processes,
            .columns = COLUMNS({"pid", true}, {"program", false}, {"domain", false}, {"allocated", true},
                               {"peak", true}, {"live at the end", true}, {"allocations", true}),
            .kinds = "nttbbbc",
        },
        .is_short = true, .text = report_processes_text,
    },
    {
        .key = "ranks", .title = "Ranks",
        .explanation = "Processes of a distributed program by their rank (RANK), the one that peaks highest first: "
                       "sums of all processes of a rank, its largest peak, and the process and GPU that had it.",
        .absent = "No two processes had different ranks.",
        .is_there = report_has_ranks,
        .table = &(const struct query){
            .sql = sql_report_ranks,
            .columns = COLUMNS({"domain", false}, {"rank", true}, {"GPU", true}, {"pid", true}, {"peak", true},
                               {"at", true}, {"reserved", true}, {"allocated", true}, {"allocations", true},
                               {"failed", true}, {"processes", true}),
            .kinds = "tnnnbdbbccc",
        },
        .is_short = true, .text = report_ranks_text,
        .json_sql = sql_report_ranks_json,
    },
    {
        .key = "rank_differences", .title = "Ranks beside the median of all ranks",
        .explanation = "A rank is unlike the others in a figure that is more than a tenth away from the median.",
        .absent = "No two processes had different ranks.",
        .is_there = report_has_ranks,
        .table = &(const struct query){
            .sql = sql_report_rank_differences,
            .columns = COLUMNS({"domain", false}, {"rank", true}, {"figure", false}, {"value", true}, {"median", true},
                               {"away", true}, {"unlike", false}),
            .kinds = "tntcc%t",
        },
        .json_sql = sql_report_rank_differences_json,
    },
    {
        .key = "rank_lines", .title = "Lines that make ranks differ",
        .explanation = "What a rank's line allocated in all, and what of it was live at the rank's own peak, beside "
                       "the median of all ranks.",
        .absent = "No two processes had different ranks, or their lines allocated the same.",
        .is_there = report_has_ranks,
        .table = &(const struct query){
            .sql = sql_report_rank_lines,
            .columns = COLUMNS({"domain", false}, {"rank", true}, {"", false}, {"function", false},
                               {"line", false}, {"bytes", true}, {"median", true}, {"difference", true}),
            .kinds = "tnttpbbB",
        },
        .json_sql = sql_report_rank_lines_json,
    },
    {
        .key = "rank_imbalance", .title = "How far ranks are apart over time",
        .explanation = "In each fiftieth of the time the largest and the smallest of what a rank had live at most.",
        .absent = "No two processes had different ranks at the same time.",
        .is_there = report_has_ranks,
        .table = &(const struct query){
            .sql = sql_report_rank_imbalance,
            .columns = COLUMNS({"domain", false}, {"from", true}, {"to", true}, {"ranks", true}, {"apart", true},
                               {"most", true}, {"rank", true}, {"least", true}, {"rank", true}),
            .kinds = "tddcbbnbn",
        },
        .json_sql = sql_report_rank_imbalance_json,
    },
    {
        .key = "domains", .title = "Call sites",
        .explanation = "By the user's line, the innermost frame that is not plumbing: what it allocated in all, what "
                       "of it was live at the peak and at the end, and how many allocations were freed before their "
                       "thread allocated again (temporary).",
        .absent = "No allocation was recorded.",
        .table = &(const struct query){
            /* names come last: grouping and sorting by them would cost seconds where they are long */
            .sql = sql_report_peak_lines,
            .columns = COLUMNS({"function", false}, {"line", false}, {"domain", false}, {"at the peak", true},
                               {"allocated", true}, {"live at the end", true}, {"allocations", true},
                               {"live allocations", true}, {"temporary", true}, {"call sites", true}),
            .kinds = "tptbbbcccc",
        },
        .is_short = true, .text = report_domains_text, .json = report_domains_json,
    },
    {
        .key = "lines_together", .title = "Lines in the heap and in Python's memory",
        .explanation = "What lines have in the heap, what in Python's objects, and together, where an object that is "
                       "in both counts once; at the peak each of the two at its own.",
        .absent = "No line had bytes in both; varve record --python-allocators records Python's objects.",
        .is_there = report_has_together,
        .table = &(const struct query){
            .sql = sql_report_lines_together,
            .columns = COLUMNS({"function", false}, {"line", false}, {"at the peak", true}, {"heap", true},
                               {"python", true}, {"allocated", true}, {"heap", true}, {"python", true},
                               {"live at the end", true}, {"heap", true}, {"python", true}),
            .kinds = "tpbbbbbbbbb",
        },
    },
    {
        .key = "leak_list", .title = "Likely leaks",
        .explanation = "Lines whose allocations were live at the end and had grown with the work, as varve leaks lists "
                       "them; the score, 0 to 1, says how much that looks like a leak.",
        .absent = "Nothing that was live at the end had grown with the work.",
        .is_there = report_leaks_make,
        .table = &(const struct query){
            .sql = sql_report_leaks,
            .columns = COLUMNS({"score", true}, {"function", false}, {"line", false}, {"domain", false},
                               {"live at the end", true}, {"allocations", true}, {"evidence", false}),
            .kinds = "ttptbct",
        },
        .is_in_other_json = true,
    },
    {
        .key = "sizes", .title = "Allocations by size",
        .explanation = "A row is the allocations above half of a power of two, up to it.",
        .absent = "No allocation was recorded.",
        .table = &(const struct query){
            .sql = sql_report_sizes,
            .columns = COLUMNS({"domain", false}, {"device", true}, {"up to", true}, {"allocations", true},
                               {"allocated", true}, {"live at the end", true}, {"bytes", true}, {"temporary", true},
                               {"mean lifetime", true}),
            .kinds = "tnbcbcbcd",
        },
    },
    {
        .key = "marks", .title = "Named phases",
        .explanation = "What the program itself named, by varve_mark_begin and varve_mark_end.",
        .absent = "The program named no phases.",
        .table = &(const struct query){
            .sql = sql_report_marks,
            .columns = COLUMNS({"phase", false}, {"pid", true}, {"tid", true}, {"begins", true}, {"took", true},
                               {"event", true}),
            .kinds = "tnnddn",
        },
    },
    {
        .key = "ooms", .title = "Requests that a caching allocator did not serve",
        .explanation = "Each with what there was at that moment; varve oom explains them one by one.",
        .absent = "Every request was served, or there is no caching allocator.",
        .table = &(const struct query){
            .sql = sql_report_ooms,
            .columns = COLUMNS({"event", true}, {"at", true}, {"GPU", true}, {"asked for", true}, {"allocated", true},
                               {"reserved", true}, {"largest free", true}),
            .kinds = "ndnbbbb",
        },
    },
    {
        .group = "gpu", .key = "devices", .title = "GPUs",
        .explanation = "The devices that the recorded processes used.",
        .absent = "No GPU was used.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_devices,
            .columns = COLUMNS({"GPU", true}, {"name", false}, {"memory", true}, {"UUID", false}, {"processes", true}),
            .kinds = "ntbtc",
        },
        .is_short = true, .text = report_devices_text, .json = report_devices_json,
    },
    {
        .group = "gpu", .key = "streams", .title = "GPU memory by stream (0: the default stream)",
        .explanation = "What was allocated on each stream, of the CUDA API and of caching allocators.",
        .absent = "No GPU memory was allocated.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_streams,
            .columns = COLUMNS({"GPU", true}, {"pid", true}, {"of", false}, {"stream", true}, {"allocations", true},
                               {"freed", true}, {"bytes", true}, {"peak", true}, {"never freed", true}),
            .kinds = "nntnccbbb",
        },
        .json_sql = sql_report_streams_json,
    },
    {
        .group = "gpu", .key = "calls", .title = "Time in the CUDA driver's memory calls and in waiting, all threads",
        .explanation = "How often each function was called, and how long the program was in it.",
        .absent = "No call of the CUDA driver was recorded.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_device_calls,
            .columns = COLUMNS({"GPU", true}, {"function", false}, {"calls", true}, {"failed", true}, {"time", true},
                               {"of run", true}, {"mean", true}, {"longest", true}),
            .kinds = "ntccd%dd",
        },
        .is_short = true, .text = report_calls_text,
        .json_sql = sql_report_device_calls_json,
    },
    {
        .group = "gpu", .key = "segments", .title = "Segments against blocks, when most was reserved",
        .explanation = "What each caching allocator had got from the driver at its peak, and how much of it was in "
                       "use.",
        .absent = "No caching allocator was recorded.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_segments,
            .columns = COLUMNS({"GPU", true}, {"pid", true}, {"reserved", true}, {"allocated", true}, {"pending", true},
                               {"unused", true}, {"event", true}, {"at", true}),
            .kinds = "nnbbb%nd",
        },
        .is_short = true, .text = report_segments_text, .json = report_segments_json,
    },
    {
        .group = "gpu", .key = "ladder", .title = "Why reserved memory was not live, when most was reserved",
        .explanation = "Each byte that was reserved and served no request, by the reason for it.",
        .absent = "No caching allocator was recorded.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_ladder,
            .columns = COLUMNS({"GPU", true}, {"pid", true}, {"live", true}, {"rounding", true}, {"unsplit", true},
                               {"quantum", true}, {"other pools", true}, {"pending", true}, {"cached", true},
                               {"holes", true}),
            .kinds = "nnbbbbbbbb",
        },
        .is_short = true, .json = report_ladder_json,
    },
    {
        .group = "gpu", .key = "holes", .title = "The largest holes then, and the blocks beside them",
        .explanation = "Free memory between blocks in use, and the lines that hold it apart.",
        .absent = "There was no hole, or no caching allocator.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_holes,
            .columns = COLUMNS({"GPU", true}, {"pid", true}, {"hole", true}, {"block before", true}, {"of", false},
                               {"block behind", true}, {"of", false}),
            .kinds = "nnbbtbt",
        },
        .is_in_other_json = true,
    },
    {
        .group = "gpu", .key = "unattributed", .title = "Unattributed device memory",
        .explanation = "What the driver counts as used of a device, less what was live of all recorded processes.",
        .absent = "The driver was never asked how much memory is in use.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_unattributed,
            .columns = COLUMNS({"GPU", true}, {"queries", true}, {"memory", true}, {"most used", true},
                               {"attributed", true}, {"least", true}, {"most", true}, {"last", true}),
            .kinds = "ncbbbbbb",
        },
        .is_short = true, .text = report_unattributed_text,
    },
    {
        .group = "gpu", .key = "failures", .title = "Allocations that the CUDA driver refused",
        .explanation = "result: the CUresult; 2 is out of memory.",
        .absent = "The driver refused nothing.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_failures,
            .columns = COLUMNS({"event", true}, {"at", true}, {"pid", true}, {"GPU", true}, {"stream", true},
                               {"function", false}, {"asked for", true}, {"result", true}),
            .kinds = "ndnnntbn",
        },
        .is_short = true, .text = report_failures_text,
        .json_sql = sql_report_failures_json,
    },
    {
        .group = "gpu", .key = "cupti", .title = "CUPTI",
        .explanation = "What became of CUPTI's recorder in each process.",
        .absent = "CUPTI's recorder was not asked for.",
        .is_there = report_has_gpu,
        .table = &(const struct query){
            .sql = sql_report_cupti,
            .columns = COLUMNS({"pid", true}, {"state", false}, {"event", true}, {"at", true}, {"number", true}),
            .kinds = "ntndn",
        },
        .is_short = true, .text = report_cupti_text, .json = report_cupti_json,
    },
    {
        .key = "storages", .title = "Storages",
        .explanation = "Storages of the storage layer by kind and type, and how many of them were never destroyed.",
        .absent = "The program did not use the storage layer.",
        .is_there = storage_is_there,
        .table = &storage_totals,
        .is_short = true, .text = report_storages_text, .json = report_storages_json,
    },
    {
        .key = "rematerialization", .title = "Rematerialization",
        .explanation = "What a memory budget cost: operators whose results were evicted and had to be computed again.",
        .absent = "No planner of rematerialization ran.",
        .is_there = report_has_remat,
        .table = &(const struct query){
            .sql = sql_report_remat,
            .columns = COLUMNS({"operator", false}, {"runs", true}, {"time", true}, {"recomputed", true},
                               {"beside", true}, {"time", true}, {"of all", true}, {"in vain", true}),
            .kinds = "tcdccd%c",
        },
        .is_short = true, .text = report_remat_text, .json = report_remat_json,
    },
};
/* clang-format on */

const size_t report_section_count = sizeof(report_sections) / sizeof(report_sections[0]);

void report_text(FILE *out, struct database *database, const struct report_options *options)
{
    struct report_loss loss;
    report_loss_load(&loss, database);
    report_header_print(out, database, &loss);
    for (size_t i = 0; i < report_section_count; i++) {
        report_section_print(out, database, &report_sections[i], options);
    }
    if (!options->stacks.is_all) {
        fputs("\nvarve report --all has whole stacks, exact figures and every list\n", out);
    }
}

struct cJSON *report_json(struct database *database, const struct report_options *options)
{
    struct cJSON *object = json_object();
    struct report_loss loss;
    report_loss_load(&loss, database);
    report_header_json(object, database, &loss);
    json_add(object, "loss", report_loss_json(database, &loss));
    json_text(object, "by", group_by_names[options->by]);
    json_integer_or_null(object, "rss_peak_bytes", report_figure(database, "rss peak", -1));
    for (size_t i = 0; i < report_section_count; i++) {
        report_section_add(object, database, &report_sections[i], options);
    }
    return object;
}
