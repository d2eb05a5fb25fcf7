/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/report/limit_print.h"

#include "analysis/base/json_writer.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/terminal.h"
#include "base/error.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_COLUMNS 80U
#define LINE_BYTES 1024U

static struct format_text in_unit(enum limit_unit unit, int64_t value)
{
    struct format_text text;
    switch (unit) {
    case LIMIT_IN_BYTES:
        return format_bytes(value);
    case LIMIT_IN_ALLOCATIONS:
        return format_count(value);
    case LIMIT_IN_HUNDREDTHS:
        break;
    }
    snprintf(text.text, sizeof(text.text), "%.2f", (double)value / 100);
    return text;
}

/* "30.2 MiB, limit 20.0 MiB"; "30.2 MiB, limit 28.2 MiB (26.9 MiB in base.db)" */
static void figures_words(char *text, size_t bytes, const struct limit_check *check,
                          const struct limit_verdict *verdict)
{
    const int used = snprintf(text, bytes, "%s%s, limit %s", verdict->unit == LIMIT_IN_HUNDREDTHS ? "score " : "",
                              in_unit(verdict->unit, verdict->value).text, in_unit(verdict->unit, verdict->most).text);
    if (verdict->base >= 0 && used > 0 && (size_t)used < bytes) {
        snprintf(text + used, bytes - (size_t)used, " (%s in %s)", in_unit(verdict->unit, verdict->base).text,
                 format_base_name(check->base));
    }
}

/* "; most by keep  kept.py:4, 30.0 MiB in 30 allocations"; of a leak it is the line's own. */
static void line_words(char *text, size_t bytes, const struct limit_verdict *verdict)
{
    text[0] = '\0';
    if (verdict->line != NULL) {
        char *name = callsite_entry_name(verdict->line, GROUP_BY_LINE, NAME_COLUMNS);
        snprintf(text, bytes, "%s%s, %s in %s %s", verdict->unit == LIMIT_IN_HUNDREDTHS ? ": " : "; most by ", name,
                 BYTES(verdict->line_bytes), COUNT(verdict->line_allocations),
                 format_plural(verdict->line_allocations, "allocation", "allocations"));
        free(name);
    }
}

static void verdict_words(char *text, size_t bytes, const struct limit_check *check,
                          const struct limit_verdict *verdict)
{
    char numbers[LINE_BYTES / 2], line[LINE_BYTES / 2];
    figures_words(numbers, sizeof(numbers), check, verdict);
    line_words(line, sizeof(line), verdict);
    snprintf(text, bytes, "%s (%s): %s%s", verdict->name, verdict->domain, numbers, verdict->is_broken ? line : "");
}

static void left_out_words(char *text, size_t bytes, const struct limit_check *check)
{
    snprintf(text, bytes, "%s more %s a score above the limit: varve leaks", COUNT(check->leaks_left_out),
             format_plural(check->leaks_left_out, "line has", "lines have"));
}

void limit_print_text(FILE *out, const struct limit_check *check, bool is_quiet)
{
    char words[LINE_BYTES];
    for (size_t i = 0; i < check->count; i++) {
        const struct limit_verdict *verdict = &check->verdicts[i];
        if (verdict->is_broken || !is_quiet) {
            verdict_words(words, sizeof(words), check, verdict);
            fprintf(out, "  %-6s  %s\n", verdict->is_broken ? "broken" : "ok", words);
        }
    }
    if (check->leaks_left_out > 0) {
        left_out_words(words, sizeof(words), check);
        fprintf(out, "          %s\n", words);
    }
}

/* ---- GitHub ---- */

/* With what ends a message, and a property, of a workflow's command written as %XX. */
static void print_escaped(FILE *out, const char *text, const char *escaped)
{
    for (; *text != '\0'; text++) {
        if (strchr(escaped, *text) != NULL) {
            fprintf(out, "%%%02X", (unsigned char)*text);
        } else {
            fputc(*text, out);
        }
    }
}

static const char *from_here(const char *file)
{
    char here[PATH_MAX];
    const size_t length = getcwd(here, sizeof(here)) != NULL ? strlen(here) : 0;
    return length > 1 && strncmp(file, here, length) == 0 && file[length] == '/' ? file + length + 1 : file;
}

void limit_print_github(FILE *out, const struct limit_check *check)
{
    char words[LINE_BYTES];
    for (size_t i = 0; i < check->count; i++) {
        const struct limit_verdict *verdict = &check->verdicts[i];
        const char *file = verdict->line != NULL ? verdict->line->user.file : NULL;
        if (!verdict->is_broken) {
            continue;
        }
        fputs("::error ", out);
        if (file != NULL) {
            fputs("file=", out);
            print_escaped(out, from_here(file), "%\r\n:,");
            fprintf(out, ",line=%" PRId64 ",", verdict->line->user.line);
        }
        fprintf(out, "title=varve check: %s::", verdict->name);
        verdict_words(words, sizeof(words), check, verdict);
        print_escaped(out, words, "%\r\n");
        fputc('\n', out);
    }
}

/* ---- JSON, JUnit ---- */

static void json_figure(struct cJSON *object, const char *key, enum limit_unit unit, int64_t value)
{
    if (unit == LIMIT_IN_HUNDREDTHS) {
        json_real(object, key, (double)value / 100);
    } else {
        json_integer(object, key, value);
    }
}

struct cJSON *limit_check_json(const struct limit_check *check, const char *path)
{
    struct cJSON *object = json_object(), *array = json_array();
    json_text(object, "database", path);
    json_text(object, "domain", check->domain);
    json_text(object, "against", check->base);
    json_bool(object, "nothing_lost", report_is_lossless(&check->loss));
    json_bool(object, "holds", check->broken == 0);
    for (size_t i = 0; i < check->count; i++) {
        const struct limit_verdict *verdict = &check->verdicts[i];
        struct cJSON *entry = json_object();
        json_text(entry, "limit", verdict->name);
        json_text(entry, "domain", verdict->domain);
        json_bool(entry, "holds", !verdict->is_broken);
        json_figure(entry, "value", verdict->unit, verdict->value);
        json_figure(entry, "most", verdict->unit, verdict->most);
        json_integer_or_null(entry, "base", verdict->base);
        json_integer(entry, "bytes", verdict->line_bytes);
        json_integer(entry, "allocations", verdict->line_allocations);
        if (verdict->line != NULL) {
            callsite_location_json(entry, verdict->line);
        }
        json_append(array, entry);
    }
    json_add(object, "limits", array);
    json_integer(object, "leaks_left_out", check->leaks_left_out);
    return object;
}

int limit_print_junit(const void *report_untyped, FILE *out, struct varve_message *message)
{
    const struct limit_report *report = report_untyped;
    const struct limit_check *check = report->check;
    char words[LINE_BYTES];
    (void)message;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"varve check\" tests=\"%zu\" "
            "failures=\"%zu\" errors=\"0\" skipped=\"0\">\n",
            check->count, check->broken);
    for (size_t i = 0; i < check->count; i++) {
        const struct limit_verdict *verdict = &check->verdicts[i];
        verdict_words(words, sizeof(words), check, verdict);
        fputs("  <testcase classname=\"", out);
        format_print_xml(out, report->path);
        fprintf(out, "\" name=\"%zu. %s%s\"", i + 1, verdict->name, verdict->base >= 0 ? " beside the base" : "");
        if (!verdict->is_broken) {
            fputs("/>\n", out);
            continue;
        }
        fputs(">\n    <failure message=\"", out);
        format_print_xml(out, words);
        fputs("\"/>\n  </testcase>\n", out);
    }
    fputs("</testsuite>\n", out);
    return VARVE_OK;
}
