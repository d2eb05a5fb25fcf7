/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table is gone through from its top: magic numbers first, then what the beginning of a text looks like, and last
 * what is true of many files. Where a format has no magic number, the name's end is a part of the rule.
 */
#include "analysis/base/file_kind.h"

#include <stdbool.h>
#include <string.h>

/* What a rule looks at. */
struct head {
    const char *bytes;
    size_t count;
    const char *path;
};

struct rule {
    size_t offset;
    const char *magic; /* "": any */
    size_t magic_bytes;
    bool (*fits)(const struct head *head); /* NULL: the magic number is enough */
    struct file_kind kind;
};

/* ---- shapes ---- */

static bool file_kind_contains(const struct head *head, const char *word)
{
    return memmem(head->bytes, head->count, word, strlen(word)) != NULL;
}

static bool file_kind_is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* Whether the text is that of `pattern`, which has no white space, whatever space lies between. */
static bool begins(const struct head *head, const char *pattern)
{
    size_t i = 0;
    while (*pattern != '\0' && i < head->count) {
        if (head->bytes[i] == *pattern) {
            pattern++;
        } else if (!file_kind_is_space(head->bytes[i])) {
            return false;
        }
        i++;
    }
    return *pattern == '\0';
}

static bool has_end(const char *path, const char *end)
{
    size_t length = strlen(path);
    return length >= strlen(end) && strcmp(path + length - strlen(end), end) == 0;
}

static bool is_json(const struct head *head)
{
    return begins(head, "{") || begins(head, "[");
}

static bool is_json_snapshot(const struct head *head)
{
    return is_json(head) && !file_kind_contains(head, "\"traceEvents\"") &&
           !file_kind_contains(head, "\"schemaVersion\"") &&
           (file_kind_contains(head, "\"segments\"") || file_kind_contains(head, "\"device_traces\"") ||
            file_kind_contains(head, "\"segment_type\""));
}

static bool is_timeline(const struct head *head)
{
    static const char digits[] = "-0123456789";
    for (const char *digit = digits; *digit != '\0'; digit++) {
        if (begins(head, (const char[]){'[', '[', *digit, '\0'})) {
            return true;
        }
    }
    return begins(head, "[[],[]]");
}

static bool is_profiler_trace(const struct head *head)
{
    return is_json(head) &&
           (file_kind_contains(head, "\"traceEvents\"") || file_kind_contains(head, "\"schemaVersion\""));
}

static bool is_execution_trace(const struct head *head)
{
    return begins(head, "{\"schema\":") && file_kind_contains(head, "\"nodes\"");
}

static bool is_operators(const struct head *head)
{
    return begins(head, "{\"INSTRUCTION\":");
}

static bool is_dhat(const struct head *head)
{
    return begins(head, "{\"dhatFileVersion\":");
}

/* Eight bytes of a length, then JSON. */
static bool is_safetensors(const struct head *head)
{
    return head->count > 10 && memcmp(head->bytes + 5, "\0\0\0{\"", 5) == 0;
}

static bool file_kind_is_page(const struct head *head)
{
    return begins(head, "<");
}

static bool is_viz_page(const struct head *head)
{
    return file_kind_is_page(head) &&
           (file_kind_contains(head, "MemoryViz.js") || file_kind_contains(head, "add_local_files"));
}

static bool is_timeline_page(const struct head *head)
{
    return file_kind_is_page(head) && file_kind_contains(head, "Memory Timeline") &&
           file_kind_contains(head, "data:image/png;base64");
}

static bool file_kind_is_torch_save(const struct head *head)
{
    return file_kind_contains(head, "/data.pkl");
}

static bool is_arrays(const struct head *head)
{
    return file_kind_contains(head, ".npy");
}

static bool is_heaptrack(const struct head *head)
{
    const char *newline = memchr(head->bytes, '\n', head->count);
    return newline != NULL && newline + 1 < head->bytes + head->count && (newline[1] == 'x' || newline[1] == 'X') &&
           strspn(head->bytes + 1, " 0123456789abcdef") == (size_t)(newline - head->bytes - 1);
}

static bool is_massif(const struct head *head)
{
    return file_kind_contains(head, "\ncmd: ") && file_kind_contains(head, "\ntime_unit: ");
}

static bool is_perfetto(const struct head *head)
{
    return has_end(head->path, ".pftrace") || has_end(head->path, ".perfetto-trace") ||
           has_end(head->path, ".perfetto");
}

static bool is_rmm_header(const struct head *head)
{
    const char *newline = memchr(head->bytes, '\n', head->count);
    struct head line = {head->bytes, newline != NULL ? (size_t)(newline - head->bytes) : head->count, head->path};
    return file_kind_contains(&line, "Thread") && file_kind_contains(&line, "Action") &&
           file_kind_contains(&line, "Pointer");
}

/* ---- the table ---- */

#define MAGIC(text) 0, (text), sizeof(text) - 1, NULL
#define MAGIC_AND(text, fits) 0, (text), sizeof(text) - 1, (fits)
#define MAGIC_AT(offset, text) (offset), (text), sizeof(text) - 1, NULL
#define SHAPE(fits) 0, "", 0, (fits)

#define IMPORT "varve import makes a trace database of it"
#define PACKED "unpack it first, but for varve import and varve replay, which read snapshots and logs as they are"
#define UNPACK "unpack it first (varve itself reads .xz, .gz and .zst)"
#define SNAPSHOT_INSTEAD "record torch.cuda.memory._dump_snapshot, or varve record --torch"

/* What several magic numbers mean. */
#define OLD_PICKLE                                                                                        \
    {                                                                                                     \
        FILE_FOREIGN, "a pickle of protocol 0 or 1", "write it with protocol 2 or newer, as PyTorch does" \
    }
#define CTF                                                                            \
    {                                                                                  \
        FILE_FOREIGN, "a file of an LTTng (CTF) trace", "give varve import its folder" \
    }
#define UTF_16                                                                        \
    {                                                                                 \
        FILE_FOREIGN, "text in UTF-16", "write it in UTF-8: iconv -f UTF-16 -t UTF-8" \
    }

static const struct rule rules[] = {
    {MAGIC("SQLite format 3"),
     {FILE_DATABASE, "an SQLite database",
      "SQLite reads neither compressed files nor pipes: unpack it into a file first"}},
    {MAGIC("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."),
     {FILE_OLD_SAVE, "a file of torch.save", "if it is a snapshot of the allocator, " IMPORT}},
    {MAGIC("\x80"), {FILE_SNAPSHOT, "a pickle, as snapshots of PyTorch's allocator are", "if it is one, " IMPORT}},
    {MAGIC("(dp"), OLD_PICKLE},
    {MAGIC("(lp"), OLD_PICKLE},
    {MAGIC("}q"), OLD_PICKLE},
    {MAGIC("]q"), OLD_PICKLE},
    {MAGIC("NVIDIA Tegra Profiler Report"),
     {FILE_FOREIGN, "a report of Nsight Systems",
      "nsys export --type sqlite makes an SQLite file of it, which varve import reads"}},
    {MAGIC("NVR\0"),
     {FILE_FOREIGN, "a report of Nsight Compute",
      "it has counters of kernels, no allocations: nsys profile --cuda-memory-usage=true, or varve record --cuda"}},
    {MAGIC("\xfd\x37zXZ"), {FILE_FOREIGN, "compressed by xz", PACKED}},
    {MAGIC("\x1f\x8b"), {FILE_FOREIGN, "compressed by gzip", PACKED}},
    {MAGIC("\x28\xb5\x2f\xfd"), {FILE_FOREIGN, "compressed by zstd", PACKED}},
    {MAGIC_AND("PK\x03\x04", file_kind_is_torch_save),
     {FILE_FOREIGN, "a file of torch.save", "if it is a snapshot of the allocator, " IMPORT}},
    {MAGIC_AND("PK\x03\x04", is_arrays),
     {FILE_FOREIGN, "a file of NumPy arrays (.npz)", "it has arrays, no allocations"}},
    {MAGIC("PK\x03\x04"), {FILE_FOREIGN, "a zip archive", UNPACK}},
    {MAGIC("\x89HDF\r\n"),
     {FILE_FOREIGN, "an HDF5 file",
      "if it is an export of Nsight Systems, nsys export --type sqlite makes one to import"}},
    {MAGIC("\x93NUMPY"), {FILE_FOREIGN, "a NumPy array", "it has numbers, no allocations"}},
    {MAGIC("BZh"), {FILE_FOREIGN, "compressed by bzip2", UNPACK}},
    {MAGIC("\x04\x22\x4d\x18"), {FILE_FOREIGN, "compressed by lz4", UNPACK}},
    {MAGIC_AT(257, "ustar"), {FILE_FOREIGN, "a tar archive", UNPACK}},
    {MAGIC("memray\0"),
     {FILE_FOREIGN, "a recording of memray", "it is for memray: record the program again with varve record"}},
    {MAGIC_AND("v ", is_heaptrack),
     {FILE_FOREIGN, "a recording of heaptrack",
      "it is for heaptrack_print: record the program again with varve record"}},
    {MAGIC_AND("desc: ", is_massif),
     {FILE_FOREIGN, "a profile of Valgrind's massif",
      "it has sums over time, for ms_print: record the program again with varve record"}},
    {SHAPE(is_dhat),
     {FILE_FOREIGN, "a profile of Valgrind's DHAT",
      "it has sums by call site, for dh_view.html: record the program again with varve record"}},
    {MAGIC_AND("\n", is_perfetto),
     {FILE_FOREIGN, "a trace of Perfetto",
      "it is for ui.perfetto.dev; varve export writes such, out of the trace database that varve reads"}},
    {MAGIC("\xc1\x1f\xfc\xc1"), CTF},
    {MAGIC("\xc1\xfc\x1f\xc1"), CTF},
    {MAGIC("\x57\x1d\xd1\x75"), CTF},
    {MAGIC("\x75\xd1\x1d\x57"), CTF},
    {MAGIC("\177ELF"), {FILE_FOREIGN, "a program or library", "varve record -o trace.db -- PROGRAM records one"}},
    {MAGIC("\xff\xfe"), UTF_16},
    {MAGIC("\xfe\xff"), UTF_16},
    {SHAPE(is_safetensors), {FILE_FOREIGN, "a file of tensors (safetensors)", "it has weights, no allocations"}},
    {SHAPE(is_timeline_page),
     {FILE_FOREIGN, "a page of export_memory_timeline", "it is a picture without data: " SNAPSHOT_INSTEAD}},
    {SHAPE(is_timeline),
     {FILE_FOREIGN, "a file of export_memory_timeline",
      "it has sums by category and no addresses: " SNAPSHOT_INSTEAD
      ", or export_chrome_trace of a profiler with profile_memory=True"}},
    {SHAPE(is_operators), {FILE_OPERATORS, "a log of operators", "varve dtr reads it"}},
    {SHAPE(is_json_snapshot), {FILE_SNAPSHOT, "JSON of a snapshot of PyTorch's allocator", IMPORT}},
    {SHAPE(is_execution_trace),
     {FILE_FOREIGN, "an execution trace of PyTorch",
      "it has operators, no allocations: export_chrome_trace of a profiler with profile_memory=True"}},
    {SHAPE(is_profiler_trace), {FILE_LOG, "a trace of PyTorch's profiler", IMPORT}},
    {SHAPE(is_json), {FILE_JSON, "JSON", "if it is a trace of PyTorch's profiler, " IMPORT}},
    {SHAPE(is_rmm_header), {FILE_LOG, "a log of RMM", IMPORT}},
    {SHAPE(is_viz_page),
     {FILE_FOREIGN, "a page of memory_viz",
      "sed -n 's/.*\"base64\": \"\\([^\"]*\\)\".*/\\1/p' FILE | base64 -d > snapshot.pickle takes the snapshot out of "
      "it"}},
    {SHAPE(file_kind_is_page), {FILE_FOREIGN, "a page of HTML or XML", "varve reads what such pages were made from"}},
};

static const struct file_kind *file_kind_find(const struct head *head)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct rule *rule = &rules[i];
        if (head->count >= rule->offset + rule->magic_bytes &&
            memcmp(head->bytes + rule->offset, rule->magic, rule->magic_bytes) == 0 &&
            (rule->fits == NULL || rule->fits(head))) {
            return &rule->kind;
        }
    }
    return NULL;
}

const struct file_kind *file_kind_of(const void *bytes, size_t count, const char *path)
{
    static const char mark[] = "\xef\xbb\xbf";
    struct head head = {bytes, count < FILE_KIND_BYTES ? count : FILE_KIND_BYTES, path};
    if (head.count >= sizeof(mark) - 1 && memcmp(head.bytes, mark, sizeof(mark) - 1) == 0) {
        head.bytes += sizeof(mark) - 1;
        head.count -= sizeof(mark) - 1;
    }
    return file_kind_find(&head);
}

/* ---- messages ---- */

int file_kind_refuse(const struct file_kind *kind, const char *path, const char *wanted, struct varve_message *message)
{
    static const char reads[] = "trace databases, snapshots of PyTorch's allocator, traces of its profiler, logs of "
                                "RMM, SQLite exports of Nsight Systems, folders of LTTng traces, logs of operators";
    const char *more = wanted != NULL ? ", not " : "";
    const char *name = wanted != NULL ? wanted : "";
    if (kind == NULL && wanted == NULL) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%.200s is not a file that varve reads: %s", path, reads);
    }
    if (kind == NULL) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%.200s is not %s, nor another file that varve reads: %s",
                                 path, wanted, reads);
    }
    return varve_message_set(message, VARVE_ERROR_FORMAT, "%.200s is %s%s%s: %s", path, kind->name, more, name,
                             kind->way);
}
