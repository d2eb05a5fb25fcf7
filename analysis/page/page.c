/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document: style, a header that can be read without scripts, the data as JSON, each part in an element of its own
 * so that it is parsed when it is looked at, and the scripts. No name of a database becomes markup: in HTML it is
 * escaped, in JSON too, and scripts put it into text nodes and canvases. Scripts without the page's nonce do not run,
 * and nothing may be loaded.
 */
#include "analysis/page/page.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/parallel.h"
#include "analysis/base/number_format.h"
#include "analysis/base/progress.h"
#include "analysis/base/table.h"
#include "analysis/query/database.h"
#include "analysis/query/recording_header.h"
#include "analysis/query/loss_note.h"
#include "analysis/page/page_writer.h"
#include "analysis/report/diff_growth.h"
#include "analysis/report/report_leaks.h"
#include "analysis/report/report.h"
#include "analysis/query/line_together.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ROWS_SHOWN 1000 /* of a table */

#ifndef VARVE_VERSION
#define VARVE_VERSION "unknown"
#endif

struct page {
    struct page_writer writer;
    struct page_stacks stacks;
    struct database *database;
    const struct page_before *before; /* NULL: none */
    struct progress *progress;
    bool has_source;
    struct varve_message *message;
    int error;
    struct database *other; /* for the leaks; NULL: they are read with the tables */
    struct leak_list *leaks;
    char nonce[33];
};

int page_check(struct varve_message *message)
{
    return page_d3[0] != '\0'
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                   "this varve was built without d3, which draws the page: install node-d3 "
                                   "(/usr/share/nodejs/d3/dist/d3.min.js) and build again");
}

/* ---- parts as JSON ---- */

static void begin_part(struct page *page, const char *name, const char *stage)
{
    database_watch(page->database, page->progress, stage);
    fprintf(page->writer.out, "<script type=\"application/json\" id=\"data-%s\">", name);
    page->writer.needs_comma = false;
}

static void end_part(struct page *page)
{
    fputs("</script>\n", page->writer.out);
}

/* Why what needs every allocation, or every event, is not in the page; "" if it is. */
static void write_absent(struct page *page, const char *key, bool is_there)
{
    char words[240];
    report_kept_words(words, sizeof(words), page->database);
    page_member_text(&page->writer, key, is_there ? "" : words);
}

static bool has_allocations(struct database *database)
{
    return !report_keeps_only_live(database) && database_meta_integer(database, "kept_events", -1) < 0;
}

static void write_domains(struct page *page)
{
    page_key(&page->writer, "domains");
    page_open(&page->writer, '[');
    struct cursor cursor;
    cursor_open(&cursor, page->database, "SELECT code, name, meaning FROM domain ORDER BY code");
    while (cursor_next(&cursor)) {
        page_open(&page->writer, '{');
        page_member_integer(&page->writer, "code", cursor_integer(&cursor, 0));
        page_member_text(&page->writer, "name", cursor_name(&cursor, 1));
        page_member_text(&page->writer, "meaning", cursor_name(&cursor, 2));
        page_close(&page->writer, '}');
    }
    cursor_close(&cursor);
    page_close(&page->writer, ']');
}

static void page_write_processes(struct page *page)
{
    page_key(&page->writer, "processes");
    page_open(&page->writer, '[');
    struct cursor cursor;
    cursor_open(&cursor, page->database, sql_page_processes);
    cursor_bind_integer(&cursor, 1, ROWS_SHOWN);
    while (cursor_next(&cursor)) {
        page_open(&page->writer, '{');
        page_member_integer(&page->writer, "id", cursor_integer(&cursor, 0));
        page_member_integer(&page->writer, "pid", cursor_integer(&cursor, 1));
        if (!cursor_is_null(&cursor, 2)) {
            page_member_integer(&page->writer, "rank", cursor_integer(&cursor, 2));
        }
        page_member_text(&page->writer, "program",
                         cursor_is_null(&cursor, 3) ? NULL : format_base_name(cursor_name(&cursor, 3)));
        page_close(&page->writer, '}');
    }
    cursor_close(&cursor);
    page_close(&page->writer, ']');
}

static void write_meta(struct page *page)
{
    struct page_writer *writer = &page->writer;
    begin_part(page, "meta", "reading the header");
    page_open(writer, '{');
    page_member_integer(writer, "end", report_duration_ns(page->database));
    write_absent(page, "no_allocations", has_allocations(page->database));
    write_absent(page, "no_parts", report_keeps_allocations(page->database, NULL));
    write_absent(page, "no_events", report_keeps_events(page->database));
    write_domains(page);
    page_write_processes(page);
    page_close(writer, '}');
    end_part(page);
}

/* ---- tables ---- */

static void write_cell(struct page_writer *writer, struct cursor *cursor, int column, char kind)
{
    if (cursor_is_null(cursor, column) || cursor_name(cursor, column)[0] == '\0') {
        page_null(writer);
    } else if (kind == 't' || kind == 'p') {
        page_name(writer, cursor_text(cursor, column));
    } else if (kind == 'x') {
        char addr[24];
        snprintf(addr, sizeof(addr), "%#" PRIx64, (uint64_t)cursor_integer(cursor, column));
        page_text(writer, addr);
    } else {
        page_integer(writer, cursor_integer(cursor, column));
    }
}

/* Some of the rows, and how many there are. */
static void page_write_rows(struct page_writer *writer, struct database *database, const struct report_section *section)
{
    page_key(writer, "rows"); /* cell after cell */
    page_open(writer, '[');
    const int64_t shown = section->is_there == NULL || section->is_there(database) ? ROWS_SHOWN : 0;
    int64_t count = 0;
    struct cursor cursor;
    cursor_open(&cursor, database, section->table->sql);
    cursor_bind_integer(&cursor, 1, -1);
    for (; cursor_next(&cursor); count++) {
        for (int column = 0; count < shown && section->table->kinds[column] != '\0'; column++) {
            write_cell(writer, &cursor, column, section->table->kinds[column]);
        }
    }
    cursor_close(&cursor);
    page_close(writer, ']');
    page_member_integer(writer, "all", count);
}

static void write_section(struct page_writer *writer, struct database *database, const struct report_section *section)
{
    page_open(writer, '{');
    page_member_text(writer, "key", section->key);
    page_member_text(writer, "title", section->title);
    page_member_text(writer, "explanation", section->explanation);
    page_member_text(writer, "absent", section->absent);
    page_member_text(writer, "kinds", section->table->kinds);
    page_key(writer, "columns");
    page_open(writer, '[');
    for (size_t i = 0; section->table->kinds[i] != '\0'; i++) {
        page_text(writer, section->table->columns[i].title);
    }
    page_close(writer, ']');
    page_write_rows(writer, database, section);
    page_close(writer, '}');
}

#define BEFORE_AND_AFTER                                                                                      \
    {"bytes before", true}, {"after", true}, {"change", true}, {"allocations before", true}, {"after", true}, \
    {                                                                                                         \
        "change", true                                                                                        \
    }

static void write_changes(struct page_writer *writer, const struct growth *lines)
{
    static const struct table_column totals[] = {{"domain", false}, {"", false}, BEFORE_AND_AFTER};
    static const struct table_column columns[] = {{"domain", false},   {"", false},     BEFORE_AND_AFTER,
                                                  {"function", false}, {"file", false}, {"line", true}};
    static const struct query total_query = {sql_growth_domains, totals, "ttbbBccC"};
    static const struct query line_query = {sql_page_changed_lines, columns, "ttbbBccCtpn"};
    static const struct report_section sections[] = {
        {.key = "changes",
         .title = "Before and after",
         .explanation = "What each domain had, in the recording before and in this one.",
         .absent = "no allocation was recorded in either",
         .table = &total_query},
        {.key = "changed_lines",
         .title = "Lines that changed",
         .explanation = "Lines that had more or less at the peak than before; a line is the same where function, file "
                        "and number are. varve diff has other figures, and those by function, module and stack.",
         .absent = "no line had more or less at the peak",
         .table = &line_query},
    };
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        write_section(writer, lines->two, &sections[i]);
    }
}

static void write_tables(struct page *page)
{
    begin_part(page, "tables", "tables");
    page_open(&page->writer, '[');
    if (page->before != NULL) {
        write_changes(&page->writer, page->before->lines);
    }
    for (size_t i = 0; i < report_section_count; i++) {
        write_section(&page->writer, page->database, &report_sections[i]);
    }
    page_close(&page->writer, ']');
    end_part(page);
}

/* ---- what needs each allocation ---- */

struct all_allocations {
    struct live live;
    struct address_maps maps;
    struct spans spans;
};

static void visit_allocation(void *all_untyped, const struct page_allocation *allocation)
{
    struct all_allocations *all = all_untyped;
    live_add(&all->live, allocation);
    spans_add(&all->spans, allocation);
    address_maps_fill(&all->maps, allocation);
}

static void write_allocations(struct page *page)
{
    struct all_allocations *all = memory_resize(NULL, sizeof(*all));
    bool is_there = has_allocations(page->database);
    begin_part(page, "live", "what was live when, and where");
    live_init(&all->live, page->database);
    address_maps_init(&all->maps, page->database);
    spans_init(&all->spans, &all->live, page->database);
    if (is_there) {
        address_maps_find(&all->maps, page->database);
        page_allocations_visit(page->database, visit_allocation, all);
        live_finish(&all->live);
        spans_finish(&all->spans);
    }
    live_write(&all->live, page->database, &page->writer);
    end_part(page);
    begin_part(page, "spans", "what was allocated when");
    struct page_places *places = spans_write(&all->spans, &all->maps, page->database, &page->writer, &page->stacks);
    end_part(page);
    begin_part(page, "maps", "maps of addresses");
    if (is_there) {
        address_maps_write(&all->maps, page->database, &page->writer, places);
    } else {
        fputs("[]", page->writer.out);
    }
    end_part(page);
    page_places_free(places);
    spans_free(&all->spans);
    live_free(&all->live);
    address_maps_free(&all->maps);
    free(all);
}

static void write_charts(struct page *page)
{
    write_meta(page);
    begin_part(page, "curves", "memory over time");
    curves_write(page->database, &page->writer);
    end_part(page);
    begin_part(page, "flame", "call trees");
    page_stacks_init(&page->stacks, page->database);
    page->error = flame_write(page->database, &page->writer, &page->stacks, page->message);
    end_part(page);
    write_allocations(page);
    begin_part(page, "before", "the recording before");
    if (page->before != NULL) {
        before_write(page->before->stacks, &page->writer, &page->stacks);
    } else {
        page_null(&page->writer);
    }
    end_part(page);
    begin_part(page, "source", "source code");
    if (page->has_source) {
        source_write(page->database, &page->writer, &page->stacks);
    } else {
        fputs("[]", page->writer.out);
    }
    end_part(page);
    page_stacks_free(&page->stacks);
    begin_part(page, "ladder", "the ladder");
    if (report_keeps_events(page->database)) {
        curves_ladder_write(page->database, &page->writer);
    } else {
        fputs("[]", page->writer.out);
    }
    end_part(page);
}

static void make(void *page_untyped, size_t index)
{
    struct page *page = page_untyped;
    if (index == 0) {
        write_charts(page);
        together_prepare(page->database); /* of what the tables need, what takes long */
    } else {
        page->leaks = report_leaks_load(page->other);
    }
}

/* One statement makes the list of leaks, and takes about as long as all charts: they are made at the same time. */
static void write_data(struct page *page)
{
    page->other = database_open_again(page->database);
    parallel_run(page->other != NULL ? 2 : 1, 0, make, page);
    if (page->other != NULL) {
        if (page->error == VARVE_OK && database_error(page->database, NULL) == VARVE_OK) {
            page->error = database_error(page->other, page->message);
        }
        report_leaks_put(page->database, page->leaks);
        database_close(page->other);
    }
    write_tables(page);
    begin_part(page, "names", "names");
    page_names(&page->writer);
    end_part(page);
}

/* ---- the document ---- */

static void make_nonce(struct page *page)
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        memset(bytes, 0, sizeof(bytes)); /* then only the escaping protects */
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        snprintf(page->nonce + 2 * i, 3, "%02x", bytes[i]);
    }
}

/* Lines of the report's header, without their indentation. */
static void page_write_lines(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        size_t indent = strspn(text, " ") < 2 ? 0 : 2;
        char *line = memory_copy_text(text);
        line[bytes] = '\0';
        page_html(out, line + indent);
        fputc('\n', out);
        free(line);
        text += bytes + (text[bytes] == '\n' ? 1 : 0);
    }
}

/* As the report has it; that something is missing is seen at once. */
static void write_header_text(struct page *page)
{
    struct report_loss loss;
    char *text;
    size_t bytes;
    FILE *lines = memory_stream(&text, &bytes);
    report_loss_load(&loss, page->database);
    bool is_good = report_is_lossless(&loss) && database_is_complete(page->database);
    report_header_print(lines, page->database, &loss);
    memory_stream_end(lines, &text);
    char *health = strstr(text, "\n  health ");
    if (health != NULL) {
        *health++ = '\0';
    }
    fputs("<pre id=\"recorded\">", page->writer.out);
    page_write_lines(page->writer.out, text);
    fprintf(page->writer.out, "</pre>\n<pre id=\"health\" role=\"status\" class=\"%s\">", is_good ? "good" : "bad");
    page_write_lines(page->writer.out, health != NULL ? health : "");
    fputs("</pre>\n", page->writer.out);
    free(text);
}

static void write_compared(struct page *page)
{
    struct database *a = page->before->stacks->a.database;
    struct report_loss loss;
    char *text;
    size_t bytes;
    FILE *lines = memory_stream(&text, &bytes);
    report_loss_load(&loss, a);
    fprintf(lines, "before: %s, %s\n", database_path(a), format_duration(report_duration_ns(a)).text);
    if (!report_is_lossless(&loss)) {
        report_loss_print(lines, a, &loss);
    }
    memory_stream_end(lines, &text);
    fputs("<pre id=\"compared\">", page->writer.out);
    page_write_lines(page->writer.out, text);
    fputs("</pre>\n", page->writer.out);
    free(text);
}

static void page_write_head(struct page *page)
{
    FILE *out = page->writer.out;
    char *command = database_meta(page->database, "command");
    const char *title =
        command != NULL && command[0] != '\0' ? command : format_base_name(database_path(page->database));
    fprintf(out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-%s'; "
            "style-src 'nonce-%s'; base-uri 'none'; form-action 'none'\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"varve\">\n<title>",
            page->nonce, page->nonce);
    page_html(out, title);
    fprintf(out, " - varve</title>\n<style nonce=\"%s\">\n%s</style>\n</head>\n<body>\n<header>\n<h1>", page->nonce,
            page_css);
    page_html(out, title);
    fputs("</h1>\n", out);
    write_header_text(page);
    if (page->before != NULL) {
        write_compared(page);
    }
    fputs("</header>\n<main id=\"main\"><noscript><p>The figures below the header need JavaScript; <code>varve "
          "report</code> prints them as text.</p></noscript></main>\n",
          out);
    free(command);
}

static void write_foot(struct page *page)
{
    FILE *out = page->writer.out;
    fprintf(out, "<footer><details><summary>Made with varve %s and d3 (BSD-3-Clause)</summary><pre>", VARVE_VERSION);
    page_html(out, page_d3_licence);
    fputs("</pre></details></footer>\n", out);
    fprintf(out, "<script nonce=\"%s\">%s</script>\n", page->nonce, page_d3);
    for (size_t i = 0; page_scripts[i] != NULL; i++) {
        fprintf(out, "<script nonce=\"%s\">%s</script>\n", page->nonce, page_scripts[i]);
    }
    fputs("</body>\n</html>\n", out);
}

int page_write(FILE *out, struct database *database, const struct page_before *before, bool has_source,
               struct progress *progress, struct varve_message *message)
{
    struct page page = {
        .database = database, .before = before, .progress = progress, .has_source = has_source, .message = message};
    int error = page_check(message);
    if (error != VARVE_OK) {
        return error;
    }
    page_writer_init(&page.writer, out);
    make_nonce(&page);
    page_write_head(&page);
    write_data(&page);
    write_foot(&page);
    page_writer_free(&page.writer);
    return page.error == VARVE_OK ? database_error(database, message) : page.error;
}
