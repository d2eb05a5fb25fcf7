/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code for an interpreter that runs already. Only a thread that has the interpreter's lock may run it, and which has it
 * when a process is attached to nobody knows: so a thread is begun, which asks for it like any other of the program's,
 * and has none of its signals. It goes when that code does. Called by attach_calls.c.
 */
#include "trace/recorder/attach/attach_python.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/guest_memory.h"
#include "base/syscall.h"
#include "trace/format/attach_format.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define VARIABLES_BYTES 32768U
#define SOURCE_BYTES 65536U
#define PATH_BYTES 4096U
#define FILE_INPUT 257 /* Py_file_input */

typedef void py_object; /* PyObject */

/* Functions of Python's stable interface: X(field, name, result, parameters). */
#define PYTHON_LIST(X)                                                                                     \
    X(is_initialized, Py_IsInitialized, int, (void))                                                       \
    X(ensure, PyGILState_Ensure, int, (void))                                                              \
    X(release, PyGILState_Release, void, (int state))                                                      \
    X(dict_new, PyDict_New, py_object *, (void))                                                           \
    X(dict_set, PyDict_SetItemString, int, (py_object * dict, const char *name, py_object *value))         \
    X(text, PyUnicode_DecodeFSDefault, py_object *, (const char *text))                                    \
    X(builtins, PyEval_GetBuiltins, py_object *, (void))                                                   \
    X(compile, Py_CompileString, py_object *, (const char *text, const char *path, int start))             \
    X(evaluate, PyEval_EvalCode, py_object *, (py_object * code, py_object * globals, py_object * locals)) \
    X(clear, PyErr_Clear, void, (void))                                                                    \
    X(drop, Py_DecRef, void, (py_object * dropped))

struct python {
#define PYTHON_FIELD(field, name, result, parameters) result(*field) parameters;
    PYTHON_LIST(PYTHON_FIELD)
#undef PYTHON_FIELD
};

/* What the thread takes with it. Owner: the thread. */
struct errand {
    struct python python;
    char session[PATH_BYTES];
    char path[PATH_BYTES]; /* of the Python file */
    char variables[VARIABLES_BYTES];
    char source[SOURCE_BYTES];
};

static bool running_python_find(struct python *python)
{
    struct elf_object object;
    void *found;
    bool is_whole = elf_symbol_object("PyGILState_Ensure", &object);
#define PYTHON_FIND(field, name, result, parameters)         \
    found = is_whole ? elf_symbol_in(&object, #name) : NULL; \
    __builtin_memcpy(&python->field, &found, sizeof(found)); \
    is_whole = found != NULL;
    PYTHON_LIST(PYTHON_FIND)
#undef PYTHON_FIND
    return is_whole && python->is_initialized() != 0;
}

/* False: nothing is to be done. A source that can't be read is empty. */
static bool read_errand(struct errand *errand, const char *directory)
{
    char *file = errand->path; /* before the variables say another */
    recorder_format(errand->session, sizeof(errand->session), "%s", directory);
    recorder_format(file, PATH_BYTES, "%s/" ATTACH_VARIABLES, directory);
    const long bytes = recorder_read_file(file, errand->variables, sizeof(errand->variables) - 2);
    file[0] = '\0';
    for (long at = 0; at < bytes; at += (long)strlen(errand->variables + at) + 1) {
        char *const items[] = {errand->variables + at, NULL};
        const char *value = recorder_variable(items, ATTACH_VARIABLE_PYTHON);
        if (value != NULL) {
            recorder_format(file, PATH_BYTES, "%s", value);
        }
    }
    (void)recorder_read_file(file, errand->source, sizeof(errand->source) - 1);
    return file[0] != '\0';
}

/* ---- with the interpreter's lock ---- */

static void set_text(const struct python *python, py_object *dict, const char *name, const char *value)
{
    py_object *text = python->text(value);
    if (text != NULL) {
        (void)python->dict_set(dict, name, text);
        python->drop(text);
    }
}

static py_object *variables_of(struct errand *errand)
{
    const struct python *python = &errand->python;
    py_object *dict = python->dict_new();
    char *item = errand->variables;
    while (dict != NULL && *item != '\0') {
        const size_t bytes = strlen(item);
        char *equals = strchr(item, '=');
        if (equals != NULL) {
            *equals = '\0';
            set_text(python, dict, item, equals + 1);
        }
        item += bytes + 1;
    }
    return dict;
}

static bool run(struct errand *errand)
{
    const struct python *python = &errand->python;
    py_object *globals = python->dict_new(), *variables = variables_of(errand);
    py_object *code = python->compile(errand->source, errand->path, FILE_INPUT), *result = NULL;
    if (globals != NULL && variables != NULL && code != NULL && errand->source[0] != '\0') {
        (void)python->dict_set(globals, "__builtins__", python->builtins());
        (void)python->dict_set(globals, "VARIABLES", variables);
        set_text(python, globals, "__name__", "varve_attach");
        set_text(python, globals, "__file__", errand->path);
        set_text(python, globals, "SESSION", errand->session);
        result = python->evaluate(code, globals, globals);
    }
    const bool has_run = result != NULL;
    python->clear();
    python->drop(result);
    python->drop(code);
    python->drop(variables);
    python->drop(globals);
    return has_run;
}

/* In Python's place: the collector would wait for it. */
static void answer_write(struct errand *errand, const char *answer)
{
    recorder_format(errand->path, sizeof(errand->path), "%s/" ATTACH_TORCH_ANSWER, errand->session);
    const int fd = recorder_sys_open(errand->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        recorder_sys_write(fd, answer, strlen(answer));
        recorder_sys_close(fd);
    }
}

static void *thread_main(void *context)
{
    struct errand *errand = context;
    (void)pthread_detach(pthread_self());
    const int state = errand->python.ensure();
    const bool has_run = run(errand);
    errand->python.release(state);
    if (!has_run) {
        answer_write(errand, ATTACH_TORCH_FAILED ": Python does not take varve's code");
    }
    recorder_unmap(errand, sizeof(*errand));
    return NULL;
}

void attach_python_begin(const char *directory)
{
    struct errand *errand = recorder_map(sizeof(*errand));
    pthread_t thread;
    if (errand == NULL) {
        return;
    }
    const bool is_asked = read_errand(errand, directory), has_python = is_asked && running_python_find(&errand->python);
    if (has_python && pthread_create(&thread, NULL, thread_main, errand) == 0) {
        return;
    }
    if (is_asked) {
        answer_write(errand, has_python ? ATTACH_TORCH_FAILED ": no thread can be begun" : ATTACH_TORCH_NO_PYTHON);
    }
    recorder_unmap(errand, sizeof(*errand));
}
