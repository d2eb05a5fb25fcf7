/* SPDX-License-Identifier: Apache-2.0 */
/* inih reads the lines, and says nothing of where they are: who gives it the lines counts them. */
#include "analysis/base/user_config.h"

#include "analysis/base/memory_or_exit.h"
#include "base/error.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROJECT_FILE "varve.ini"

struct reading {
    struct user_config *config;
    const struct config_file *file;
    FILE *stream;
    unsigned line;
    bool is_too_long; /* the line; nothing is read behind it */
};

/* Without the blanks in front: to inih they make a line one more value of the name above. */
static char *read_line(char *text, int bytes, void *reading_untyped)
{
    struct reading *reading = reading_untyped;
    if (reading->is_too_long || fgets(text, bytes, reading->stream) == NULL) {
        return NULL;
    }
    reading->line++;
    const size_t length = strlen(text);
    reading->is_too_long = length > 0 && text[length - 1] != '\n' && !feof(reading->stream);
    const char *first = text;
    while (isspace((unsigned char)*first)) {
        first++;
    }
    memmove(text, first, strlen(first) + 1);
    return reading->is_too_long ? NULL : text;
}

static int add_entry(void *reading_untyped, const char *section, const char *key, const char *value)
{
    struct reading *reading = reading_untyped;
    struct user_config *config = reading->config;
    if (section[0] == '\0' || key[0] == '\0') {
        return 0;
    }
    config->entries = memory_grow(config->entries, &config->capacity, config->count, sizeof(config->entries[0]));
    config->entries[config->count++] = (struct config_entry){memory_copy_text(section), memory_copy_text(key),
                                                             memory_copy_text(value), reading->file, reading->line};
    return 1;
}

static int config_unreadable(const struct config_file *file, struct varve_message *message)
{
    return varve_message_set(message, errno == ENOENT ? VARVE_ERROR_NOT_FOUND : VARVE_ERROR_IO,
                             "%s: cannot be read: %s", file->path, strerror(errno));
}

static int config_read(struct user_config *config, struct config_file *file, bool must_be_there,
                       struct varve_message *message)
{
    struct reading reading = {config, file, fopen(file->path, "re"), 0, false};
    if (reading.stream == NULL) {
        const bool is_none = errno == ENOENT || errno == ENOTDIR || errno == EACCES;
        return is_none && !must_be_there ? VARVE_OK : config_unreadable(file, message);
    }
    file->is_there = true;
    const int wrong = ini_parse_stream(read_line, &reading, add_entry, &reading);
    const bool is_broken = ferror(reading.stream) != 0;
    fclose(reading.stream);
    if (is_broken) {
        return config_unreadable(file, message);
    }
    if (wrong != 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s:%d: neither [SECTION] nor NAME = VALUE below one",
                                 file->path, wrong);
    }
    return !reading.is_too_long ? VARVE_OK
                                : varve_message_set(message, VARVE_ERROR_INVALID, "%s:%u: the line is too long",
                                                    file->path, reading.line);
}

/* ---- where they are ---- */

static void find_users(struct config_file *file)
{
    const char *folder = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    int length = 0;
    if (folder != NULL && folder[0] == '/') {
        length = snprintf(file->path, sizeof(file->path), "%s/varve/config", folder);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(file->path, sizeof(file->path), "%s/.config/varve/config", home);
    }
    if ((size_t)length >= sizeof(file->path)) {
        file->path[0] = '\0';
    }
}

static void find_projects(struct config_file *file)
{
    char folder[sizeof(file->path) - sizeof(PROJECT_FILE)];
    if (getcwd(folder, sizeof(folder)) == NULL || folder[0] != '/') {
        return;
    }
    for (char *end = folder + strlen(folder); end != NULL; end = strrchr(folder, '/')) {
        *end = '\0';
        snprintf(file->path, sizeof(file->path), "%s/%s", folder, PROJECT_FILE);
        if (access(file->path, F_OK) == 0) {
            return;
        }
    }
    file->path[0] = '\0';
}

int user_config_load(struct user_config *config, struct varve_message *message)
{
    *config = (struct user_config){0};
    const char *named = getenv("VARVE_CONFIG");
    if (named != NULL) {
        snprintf(config->files[0].path, sizeof(config->files[0].path), "%s", named);
    } else {
        find_users(&config->files[0]);
        find_projects(&config->files[1]);
    }
    int error = VARVE_OK;
    for (size_t i = 0; i < CONFIG_FILES && error == VARVE_OK; i++) {
        if (config->files[i].path[0] != '\0') {
            error = config_read(config, &config->files[i], named != NULL, message);
        }
    }
    return error;
}

void user_config_free(struct user_config *config)
{
    for (size_t i = 0; i < config->count; i++) {
        free(config->entries[i].section);
        free(config->entries[i].key);
        free(config->entries[i].value);
    }
    free(config->entries);
    config->entries = NULL;
    config->count = config->capacity = 0;
}

const struct config_entry *user_config_next(const struct user_config *config, const char *section,
                                            const struct config_entry *entry)
{
    for (size_t i = entry != NULL ? (size_t)(entry - config->entries) + 1 : 0; i < config->count; i++) {
        if (strcmp(config->entries[i].section, section) == 0) {
            return &config->entries[i];
        }
    }
    return NULL;
}

int user_config_refuse(const struct config_entry *entry, const char *reason, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_INVALID, "%s:%u: %s", entry->file->path, entry->line, reason);
}
