/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file or memory, through libarchive's raw format where the first bytes are those of xz, gzip or zstd, or through its
 * reader of zip archives where torch.save wrote one: the pickle is the first member then. Three things that libarchive
 * leaves out are added: what a truncated file is called, that nothing may follow gzip's last member, and gzip's
 * checksum. The only file that knows libarchive.
 */
#include "analysis/base/input_stream.h"

#include "analysis/base/memory_or_exit.h"

#include <archive.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES (128 * 1024)
#define GZIP_TRAILER_BYTES 8 /* CRC-32 and size of what was packed, both of 32 bits, lowest byte first */
#define GZIP_LEAST_BYTES 18

struct input_format {
    const char *name;
    unsigned char magic[6];
    size_t magic_bytes;
    int filter; /* ARCHIVE_FILTER_… */
};

/* Of all that a gzip decompressor gave, and was given. */
struct gzip_check {
    uint32_t table[256];
    uint32_t crc, bytes;
    bool may_have_members; /* something in the file looks like the beginning of another member */
};

struct input_source {
    char *path;
    int file;                    /* -1: memory */
    const unsigned char *memory; /* what is left of it */
    size_t memory_left;
    uint64_t done, total;
    unsigned char *blocks; /* two: the block read before the last one, and the last one */
    size_t block_bytes;    /* in the last one */
    bool is_first_due;     /* the first block has been looked at only */
    bool is_file_at_end;
    bool is_ended;
    int read_error;
    const struct input_format *format;
    struct archive *archive; /* NULL: plain */
    const unsigned char *ready;
    size_t ready_bytes; /* decompressed, or of the plain file, and not taken yet */
    struct gzip_check gzip;
};

static const struct input_format formats[] = {
    {"xz", {0xfd, '7', 'z', 'X', 'Z', 0}, 6, ARCHIVE_FILTER_XZ},
    {"gzip", {0x1f, 0x8b}, 2, ARCHIVE_FILTER_GZIP},
    {"zstd", {0x28, 0xb5, 0x2f, 0xfd}, 4, ARCHIVE_FILTER_ZSTD},
    {"zip", {'P', 'K', 3, 4}, 4, ARCHIVE_FILTER_NONE}, /* of torch.save */
    {"plain", {0}, 0, ARCHIVE_FILTER_NONE},            /* last: fits all */
};

/* ---- what the file holds ---- */

static unsigned char *last_block(const struct input_source *source)
{
    return source->blocks + BLOCK_BYTES;
}

/* Look for the beginning of a member, which may lie across two blocks. */
static void search_members(struct input_source *source)
{
    static const unsigned char begin[] = {0x1f, 0x8b, 8};
    bool is_first = source->done == source->block_bytes;
    const unsigned char *from = is_first ? last_block(source) + 1 : last_block(source) - 2;
    source->gzip.may_have_members |=
        source->block_bytes > 0 &&
        memmem(from, (size_t)(last_block(source) + source->block_bytes - from), begin, sizeof(begin)) != NULL;
}

/* The next block, full unless the file ends with it. */
static int input_source_read_block(struct input_source *source)
{
    memcpy(source->blocks, last_block(source), BLOCK_BYTES);
    size_t bytes = 0;
    if (source->file < 0) {
        bytes = source->memory_left < BLOCK_BYTES ? source->memory_left : BLOCK_BYTES;
        if (bytes > 0) {
            memcpy(last_block(source), source->memory, bytes);
            source->memory += bytes;
            source->memory_left -= bytes;
        }
        source->is_file_at_end = source->memory_left == 0;
    }
    while (source->file >= 0 && bytes < BLOCK_BYTES && !source->is_file_at_end) {
        ssize_t got = read(source->file, last_block(source) + bytes, BLOCK_BYTES - bytes);
        if (got < 0 && errno != EINTR) {
            source->read_error = errno;
            return VARVE_ERROR_IO;
        }
        source->is_file_at_end = got == 0;
        bytes += got > 0 ? (size_t)got : 0;
    }
    source->block_bytes = bytes;
    source->done += bytes;
    search_members(source);
    return VARVE_OK;
}

static la_ssize_t give_block(struct archive *archive, void *context, const void **block_out)
{
    struct input_source *source = context;
    if (!source->is_first_due && source->is_file_at_end) {
        return 0;
    }
    if (!source->is_first_due && input_source_read_block(source) != VARVE_OK) {
        archive_set_error(archive, source->read_error, "%s", strerror(source->read_error));
        return ARCHIVE_FATAL;
    }
    source->is_first_due = false;
    *block_out = last_block(source);
    return (la_ssize_t)source->block_bytes;
}

/* ---- messages ---- */

static int fail_read(const struct input_source *source, struct varve_message *message)
{
    return varve_message_set(message, source->read_error == EISDIR ? VARVE_ERROR_FORMAT : VARVE_ERROR_IO, "%.200s: %s",
                             source->path, strerror(source->read_error));
}

static int input_source_fail(const struct input_source *source, struct varve_message *message, const char *reason)
{
    return varve_message_set(message, VARVE_ERROR_FORMAT,
                             "%.200s: the %s data %s (at byte %" PRIu64 " of the file, or before)", source->path,
                             source->format->name, reason, source->done);
}

/* libarchive's words for each decompressor, in ours. */
static int fail_archive(const struct input_source *source, struct varve_message *message)
{
    static const struct {
        const char *part;
        const char *reason;
    } known[] = {
        {"runcated", "are truncated"},
        {"No progress is possible", "are truncated"},
        {"Unknown frame descriptor", "end, and something else follows"},
        {"Corrupted input data", "are damaged, or they end and something else follows"},
        {"format not recognized", "are damaged, or they end and something else follows"},
    };
    const char *text = archive_error_string(source->archive);
    if (source->read_error != 0) {
        return fail_read(source, message);
    }
    if (text == NULL || text[0] == '\0') {
        return input_source_fail(source, message, "are truncated");
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strstr(text, known[i].part) != NULL) {
            return input_source_fail(source, message, known[i].reason);
        }
    }
    char reason[150];
    snprintf(reason, sizeof(reason), "are damaged: %.100s", text);
    return input_source_fail(source, message, reason);
}

/* ---- gzip's end ---- */

static void crc32_init(uint32_t table[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) {
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? UINT32_C(0xedb88320) : 0);
        }
    }
}

static void add_to_check(struct gzip_check *check, const unsigned char *bytes, size_t count)
{
    uint32_t crc = ~check->crc;
    for (size_t i = 0; i < count; i++) {
        crc = crc >> 8 ^ check->table[(crc ^ bytes[i]) & 255];
    }
    check->crc = ~crc;
    check->bytes += (uint32_t)count;
}

static uint32_t little_endian_32(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* libarchive stops at what is no member, and compares no checksum. A file of several members has one for each,
 * whose ends are not visible from here: they go unchecked. */
static int check_gzip_end(struct input_source *source, struct varve_message *message)
{
    const unsigned char *block_end = last_block(source) + source->block_bytes;
    uint64_t end = (uint64_t)archive_filter_bytes(source->archive, -1);
    const unsigned char *rest = block_end - (source->done - end);
    const unsigned char *trailer = rest - GZIP_TRAILER_BYTES;
    if (end < GZIP_LEAST_BYTES) {
        return input_source_fail(source, message, source->done < GZIP_LEAST_BYTES ? "are truncated" : "are damaged");
    }
    if (!source->gzip.may_have_members &&
        (little_endian_32(trailer) != source->gzip.crc || little_endian_32(trailer + 4) != source->gzip.bytes)) {
        return input_source_fail(source, message, "are damaged: checks don't hold");
    }
    for (;;) {
        for (; rest < block_end; rest++) {
            if (*rest != 0) { /* it may be padded with zeros */
                return input_source_fail(source, message, "end, and something else follows");
            }
        }
        if (source->is_file_at_end) {
            return VARVE_OK;
        }
        if (input_source_read_block(source) != VARVE_OK) {
            return fail_read(source, message);
        }
        rest = last_block(source);
        block_end = rest + source->block_bytes;
    }
}

/* ---- the source ---- */

struct input_source *input_source_new(const char *path, int file, const void *memory, size_t bytes, uint64_t total)
{
    struct input_source *source = memory_resize(NULL, sizeof(*source));
    *source = (struct input_source){.path = memory_copy_text(path),
                                    .file = file,
                                    .memory = memory,
                                    .memory_left = bytes,
                                    .total = total,
                                    .blocks = memory_resize(NULL, 2 * BLOCK_BYTES)};
    return source;
}

void input_source_free(struct input_source *source)
{
    if (source->archive != NULL) {
        archive_read_free(source->archive);
    }
    if (source->file >= 0) {
        close(source->file);
    }
    free(source->path);
    free(source->blocks);
    free(source);
}

const char *input_source_path(const struct input_source *source)
{
    return source->path;
}

const char *input_source_packing(const struct input_source *source)
{
    return source->format->magic_bytes > 0 ? source->format->name : NULL;
}

uint64_t input_source_total(const struct input_source *source)
{
    return source->total;
}

static bool is_zip(const struct input_format *format)
{
    return format->magic[0] == 'P';
}

/* The header of a zip archive's first member: the length of its name is in bytes 26 and 27, the name in 30 and on. */
static bool input_source_is_torch_save(const struct input_source *source)
{
    static const char end[] = "/data.pkl";
    const unsigned char *head = last_block(source);
    size_t length = source->block_bytes > 30 ? (size_t)(head[26] | head[27] << 8) : 0;
    return length >= sizeof(end) - 1 && 30 + length <= source->block_bytes &&
           memcmp(head + 30 + length - (sizeof(end) - 1), end, sizeof(end) - 1) == 0;
}

static bool input_source_fits(const struct input_source *source, const struct input_format *format)
{
    return source->block_bytes >= format->magic_bytes &&
           memcmp(last_block(source), format->magic, format->magic_bytes) == 0 &&
           (!is_zip(format) || input_source_is_torch_save(source));
}

/* The format is set, not guessed, so that a damaged beginning is an error and not another format. */
static int open_archive(struct input_source *source, struct varve_message *message)
{
    crc32_init(source->gzip.table);
    source->is_first_due = true;
    source->archive = archive_read_new();
    if (source->archive == NULL) {
        memory_exhausted();
    }
    struct archive_entry *entry;
    if (archive_read_append_filter(source->archive, source->format->filter) != ARCHIVE_OK ||
        (is_zip(source->format) ? archive_read_support_format_zip_streamable(source->archive)
                                : archive_read_set_format(source->archive, ARCHIVE_FORMAT_RAW)) != ARCHIVE_OK ||
        archive_read_open(source->archive, source, NULL, give_block, NULL) != ARCHIVE_OK ||
        archive_read_next_header(source->archive, &entry) <
            ARCHIVE_WARN) { /* a name that the locale lacks is no harm */
        return fail_archive(source, message);
    }
    return VARVE_OK;
}

int input_source_recognise(struct input_source *source, struct varve_message *message)
{
    const struct input_format *format = formats;
    if (input_source_read_block(source) != VARVE_OK) {
        return fail_read(source, message);
    }
    if (source->block_bytes == 0) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%.200s: is empty", source->path);
    }
    while (!input_source_fits(source, format)) {
        format++;
    }
    source->format = format;
    if (format->magic_bytes > 0) {
        return open_archive(source, message);
    }
    source->ready = last_block(source);
    source->ready_bytes = source->block_bytes;
    return VARVE_OK;
}

/* What is ready next, or nothing at the end. */
static int decompress(struct input_source *source, struct varve_message *message)
{
    if (source->archive == NULL) {
        source->is_ended = source->is_file_at_end;
        if (!source->is_ended && input_source_read_block(source) != VARVE_OK) {
            return fail_read(source, message);
        }
        source->ready = last_block(source);
        source->ready_bytes = source->is_ended ? 0 : source->block_bytes;
        return VARVE_OK;
    }
    const void *bytes = NULL;
    la_int64_t offset = 0;
    int result = archive_read_data_block(source->archive, &bytes, &source->ready_bytes, &offset);
    if (result == ARCHIVE_EOF) {
        source->ready_bytes = 0;
        source->is_ended = true;
        return source->format->filter == ARCHIVE_FILTER_GZIP ? check_gzip_end(source, message) : VARVE_OK;
    }
    if (result != ARCHIVE_OK) {
        source->ready_bytes = 0;
        return fail_archive(source, message);
    }
    source->ready = bytes;
    if (source->format->filter == ARCHIVE_FILTER_GZIP) {
        add_to_check(&source->gzip, source->ready, source->ready_bytes);
    }
    return VARVE_OK;
}

/* Fills a whole block, since each is handed to another thread. */
int input_source_make(void *context, unsigned char *to, size_t room, struct prefetch_step *step,
                      struct varve_message *message)
{
    struct input_source *source = context;
    int error = VARVE_OK;
    while (error == VARVE_OK && step->made < room && !source->is_ended) {
        size_t bytes = source->ready_bytes < room - step->made ? source->ready_bytes : room - step->made;
        if (bytes == 0) {
            error = decompress(source, message);
            continue;
        }
        memcpy(to + step->made, source->ready, bytes);
        step->made += bytes;
        source->ready += bytes;
        source->ready_bytes -= bytes;
    }
    step->done = source->done;
    step->is_ended = source->is_ended;
    return error;
}
