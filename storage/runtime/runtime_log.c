/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs in DTR's format: a JSON object a line, keys in alphabetical order, numbers as strings. Handles are x1, x2, …;
 * one that was made before the log began is a constant of it. Without a log nothing happens here.
 */
#include "storage/runtime/runtime_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* UTF-8 stays as it is; a byte that is none becomes a question mark. */
static void runtime_log_put_text(FILE *file, const char *text)
{
    size_t left = strlen(text);
    putc('"', file);
    while (left > 0) {
        size_t length = varve_utf8_length(text, left);
        unsigned char byte = (unsigned char)*text;
        if (length == 0) {
            putc('?', file);
            length = 1;
        } else if (byte < ' ' || byte == 0x7f) {
            fprintf(file, "\\u%04x", byte);
        } else {
            fprintf(file, "%s%.*s", byte == '"' || byte == '\\' ? "\\" : "", (int)length, text);
        }
        text += length;
        left -= length;
    }
    putc('"', file);
}

static void put_memory(FILE *file, uint64_t name, uint64_t bytes)
{
    fprintf(file, "{\"INSTRUCTION\":\"MEMORY\",\"MEMORY\":\"%" PRIu64 "\",\"NAME\":\"x%" PRIu64 "\"}\n", bytes, name);
}

/* A name for the handle, if it has none in this log; true: it is new. */
static bool give_name(struct varve_tensor *tensor)
{
    struct varve_runtime *runtime = tensor->runtime;
    if (tensor->log_number == runtime->log_number) {
        return false;
    }
    tensor->log_number = runtime->log_number;
    tensor->log_name = ++runtime->log_names;
    return true;
}

static void put_constant(struct varve_tensor *tensor, uint64_t bytes)
{
    FILE *file = tensor->runtime->log;
    fprintf(file, "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"x%" PRIu64 "\"}\n", tensor->log_name);
    put_memory(file, tensor->log_name, bytes);
}

static uint64_t runtime_log_bytes_of(const struct varve_tensor *tensor)
{
    return varve_remat_storage_bytes(tensor->runtime->remat, tensor->number);
}

/* The handle's name; it is told of first if the log does not know it. */
static uint64_t runtime_log_name_of(struct varve_tensor *tensor)
{
    if (give_name(tensor)) {
        put_constant(tensor, runtime_log_bytes_of(tensor));
    }
    return tensor->log_name;
}

void log_constant(struct varve_tensor *tensor, uint64_t bytes)
{
    if (tensor->runtime->log != NULL) {
        give_name(tensor);
        put_constant(tensor, bytes);
    }
}

static void put_names(FILE *file, const char *key, struct varve_tensor *const *tensors, unsigned count)
{
    fprintf(file, "\"%s\":[", key);
    for (unsigned i = 0; i < count; i++) {
        fprintf(file, "%s\"x%" PRIu64 "\"", i == 0 ? "" : ",", tensors[i]->log_name);
    }
    putc(']', file);
}

void log_call(struct varve_runtime *runtime, const struct recipe *recipe, struct varve_tensor *const *inputs,
              struct varve_tensor *const *outputs, uint64_t cost_ns)
{
    FILE *file = runtime->log;
    if (file == NULL) {
        return;
    }
    for (unsigned i = 0; i < recipe->call.input_count; i++) {
        runtime_log_name_of(inputs[i]);
    }
    for (unsigned i = 0; i < recipe->call.output_count; i++) {
        give_name(outputs[i]);
    }
    putc('{', file);
    put_names(file, "ARGS", inputs, recipe->call.input_count);
    fputs(",\"INSTRUCTION\":\"CALL\",\"NAME\":", file);
    runtime_log_put_text(file, recipe->call.name);
    putc(',', file);
    put_names(file, "RESULT", outputs, recipe->call.output_count);
    fprintf(file, ",\"TIME\":\"%" PRIu64 "\"}\n", cost_ns);
    for (unsigned i = 0; i < recipe->call.output_count; i++) {
        put_memory(file, outputs[i]->log_name, runtime_log_bytes_of(outputs[i]));
        fprintf(file, "{\"ALIAS\":\"%d\",\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"x%" PRIu64 "\"}\n",
                recipe->kind == RECIPE_VIEW ? 0 : -1, outputs[i]->log_name);
    }
}

static void put_pair(FILE *file, const char *instruction, uint64_t target, uint64_t source)
{
    fprintf(file, "{\"DST\":\"x%" PRIu64 "\",\"INSTRUCTION\":\"%s\",\"SRC\":\"x%" PRIu64 "\"}\n", target, instruction,
            source);
}

void log_copy(struct varve_tensor *copy, struct varve_tensor *of)
{
    FILE *file = copy->runtime->log;
    if (file != NULL) {
        uint64_t source = runtime_log_name_of(of);
        give_name(copy);
        put_pair(file, "COPY", copy->log_name, source);
    }
}

void log_assign(struct varve_tensor *tensor, struct varve_tensor *value)
{
    FILE *file = tensor->runtime->log;
    if (file != NULL) {
        uint64_t target = runtime_log_name_of(tensor), source = runtime_log_name_of(value);
        put_pair(file, "COPY_FROM", target, source);
    }
}

static void put_name(struct varve_tensor *tensor, const char *instruction)
{
    FILE *file = tensor->runtime->log;
    if (file != NULL && tensor->log_number == tensor->runtime->log_number) {
        fprintf(file, "{\"INSTRUCTION\":\"%s\",\"NAME\":\"x%" PRIu64 "\"}\n", instruction, tensor->log_name);
    }
}

void log_release(struct varve_tensor *tensor)
{
    put_name(tensor, "RELEASE");
}

void log_pin(struct varve_tensor *tensor)
{
    put_name(tensor, "PIN");
}

void log_close(struct varve_runtime *runtime)
{
    if (runtime->log != NULL) {
        fclose(runtime->log);
        runtime->log = NULL;
    }
}

int varve_runtime_new_log(struct varve_runtime *runtime, const char *path, struct varve_message *message)
{
    FILE *file = NULL;
    if (path != NULL) {
        file = fopen(path, "we");
        if (file == NULL) {
            int error = errno == EACCES || errno == EPERM ? VARVE_ERROR_PERMISSION : VARVE_ERROR_IO;
            return varve_message_set(message, error, "%s: %s", path, strerror(errno));
        }
        setvbuf(file, NULL, _IOLBF, BUFSIZ); /* a program that is killed leaves whole lines */
    }
    log_close(runtime);
    runtime->log = file;
    runtime->log_number++;
    runtime->log_names = 0;
    return VARVE_OK;
}

void varve_runtime_annotate_log(struct varve_runtime *runtime, const char *text)
{
    if (runtime->log != NULL) {
        fputs("{\"ANNOTATION\":", runtime->log);
        runtime_log_put_text(runtime->log, text);
        fputs(",\"INSTRUCTION\":\"ANNOTATE\"}\n", runtime->log);
    }
}
