/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Can the program be recorded at all? Looked at before it is started, so that the user gets one line that
 * says what to do in place of an empty database. It must agree with the kernel and with execvp:
 * which file they will run in the end (PATH, chains of #!, env, the shell for files without any magic).
 * Whether the dynamic linker will then heed LD_PRELOAD is asked of format/exec_check.c. What can't be read or
 * decided is let through: exec has the last word. Called by record before launch_start.
 */
#include "trace/collector/programs/launch.h"

#include "base/error.h"
#include "trace/format/exec_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAUNCH_PATH_DEFAULT "/bin:/usr/bin" /* what execvp takes where PATH is unset */
#define LAUNCH_SCRIPT_DEPTH_MAX 4

/* The two machines that the recorder knows. */
#if defined(__aarch64__)
#define LAUNCH_MACHINE_NAME "64-bit Arm"
#else
#define LAUNCH_MACHINE_NAME "x86-64"
#endif

enum candidate {
    CANDIDATE_FOUND,
    CANDIDATE_ABSENT,
    CANDIDATE_DENIED,
    CANDIDATE_DIRECTORY,
    CANDIDATE_NOT_REGULAR,
    CANDIDATE_NOT_EXECUTABLE,
};

static enum candidate candidate_look(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        return errno == EACCES ? CANDIDATE_DENIED : CANDIDATE_ABSENT;
    }
    if (S_ISDIR(status.st_mode)) {
        return CANDIDATE_DIRECTORY;
    }
    if (!S_ISREG(status.st_mode)) {
        return CANDIDATE_NOT_REGULAR;
    }
    if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) != 0) {
        return CANDIDATE_NOT_EXECUTABLE;
    }
    return CANDIDATE_FOUND;
}

static int candidate_error(enum candidate candidate, const char *path, struct varve_message *message)
{
    static const char *const reasons[] = {
        [CANDIDATE_DENIED] = ": permission denied: a folder on the way may not be searched",
        [CANDIDATE_DIRECTORY] = " is a directory: name a program in it",
        [CANDIDATE_NOT_REGULAR] = " is not a regular file: name a program",
        [CANDIDATE_NOT_EXECUTABLE] = " is not executable: chmod +x it, unless its file system is mounted noexec",
    };
    if (candidate == CANDIDATE_ABSENT) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "no such program: '%s'", path);
    }
    return candidate == CANDIDATE_FOUND
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_PERMISSION, "'%s'%s", path, reasons[candidate]);
}

/* As execvp does: a file that may not be executed does not end the search, but is what is reported after it.
 */
static int path_search(const char *program, char *path_out, size_t path_bytes, struct varve_message *message)
{
    const char *folders = getenv("PATH");
    if (!folders) {
        folders = LAUNCH_PATH_DEFAULT;
    }
    enum candidate refusal = CANDIDATE_ABSENT;
    char refused[4096] = "";
    for (const char *folder = folders; folder;) {
        const char *end = strchrnul(folder, ':');
        int length = (int)(end - folder);
        int written = snprintf(path_out, path_bytes, "%.*s%s%s", length, folder, length > 0 ? "/" : "", program);
        if (written > 0 && (size_t)written < path_bytes) {
            enum candidate candidate = candidate_look(path_out);
            if (candidate == CANDIDATE_FOUND) {
                return VARVE_OK;
            }
            /* A folder that may not be searched, or one of that name, is no hint where the program was meant.
             */
            if (candidate == CANDIDATE_NOT_EXECUTABLE && refusal == CANDIDATE_ABSENT) {
                refusal = candidate;
                snprintf(refused, sizeof(refused), "%s", path_out);
            }
        }
        folder = *end ? end + 1 : NULL;
    }
    path_out[0] = '\0';
    if (refusal != CANDIDATE_ABSENT) {
        return candidate_error(refusal, refused, message);
    }
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                             "no such program: '%s' is in none of the folders of PATH; give its path if it is "
                             "elsewhere",
                             program);
}

static int launch_check_program_find(const char *program, char *path_out, size_t path_bytes,
                                     struct varve_message *message)
{
    if (!strchr(program, '/')) {
        if (*program == '\0') {
            return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "no such program: its name is empty");
        }
        return path_search(program, path_out, path_bytes, message);
    }
    if (strlen(program) >= path_bytes) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "the path of the program is too long");
    }
    memcpy(path_out, program, strlen(program) + 1);
    return candidate_error(candidate_look(program), program, message);
}

static const char *launch_check_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* `reason` is what exec_check_elf says. */
static int launch_check_refuse(int fd, const char *path, int reason, struct varve_message *message)
{
    static const struct {
        int reason;
        const char *text; /* behind the path */
    } texts[] = {
        {EXEC_CHECK_NO_PROGRAM, "is an ELF file, but not a program: link it first"},
        {EXEC_REASON_STATIC, "is statically linked: no recorder can be loaded into it; link it dynamically "
                             "(without -static) to record it"},
        {EXEC_REASON_LIBC, "uses another C library than this varve (musl, or an older one): record it with a varve "
                           "built for that"},
        {EXEC_REASON_SANITIZER, "is built with the address sanitizer, which lets no recorder be loaded before it: set "
                                "ASAN_OPTIONS=verify_asan_link_order=0, or record a build without it"},
        {EXEC_REASON_CAPABILITIES, "has file capabilities: the system loads no recorder into it; record a copy "
                                   "without them, or run varve as root"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (reason == texts[i].reason) {
            return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "'%s' %s", path, texts[i].text);
        }
    }
    struct stat status = {0};
    fstat(fd, &status);
    switch (reason) {
    case EXEC_CHECK_DAMAGED:
        return varve_message_set(message, VARVE_ERROR_FORMAT, "'%s' is a damaged program: its ELF headers are cut off",
                                 path);
    case EXEC_REASON_MACHINE:
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "'%s' is %s: this varve records " LAUNCH_MACHINE_NAME
                                 " programs only; build it for that",
                                 path, exec_check_is_32bit(fd) ? "a 32-bit program" : "a program for another machine");
    case EXEC_REASON_SETUID:
    case EXEC_REASON_SETGID:
        return varve_message_set(
            message, VARVE_ERROR_UNSUPPORTED,
            "'%s' is %s: the system loads no recorder into it; run varve itself %s %u to record it", path,
            reason == EXEC_REASON_SETUID ? "setuid" : "setgid", reason == EXEC_REASON_SETUID ? "as user" : "with group",
            (unsigned)(reason == EXEC_REASON_SETUID ? status.st_uid : status.st_gid));
    default:
        return varve_message_set(
            message, VARVE_ERROR_UNSUPPORTED,
            "'%s' would run with the rights of another user than started it: the system loads no recorder "
            "into it; give varve one user and group",
            path);
    }
}

static int elf_check(int fd, const char *path, struct varve_message *message)
{
    int reason = exec_check_elf(fd, path);
    if (reason == EXEC_REASON_NONE && exec_check_minds_order(getenv("ASAN_OPTIONS")) && exec_check_needs_first(fd)) {
        reason = EXEC_REASON_SANITIZER;
    }
    return reason == EXEC_REASON_NONE ? VARVE_OK : launch_check_refuse(fd, path, reason, message);
}

/* Cut the first word off `*rest`; NULL if there is none. */
static char *word_take(char **rest)
{
    char *word = *rest + strspn(*rest, " \t");
    if (*word == '\0') {
        return NULL;
    }
    char *end = word + strcspn(word, " \t");
    *rest = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

/* The program that `env ARGUMENT` runs, NULL if that takes env's own knowledge. */
static char *env_program(char *argument)
{
    if (strncmp(argument, "-S", 2) != 0) {
        /* The kernel hands all of it over as ONE argument. */
        return *argument == '-' || strchr(argument, '=') ? NULL : argument;
    }
    char *rest = argument + 2;
    char *word = word_take(&rest);
    while (word && strchr(word, '=') && *word != '-') {
        word = word_take(&rest);
    }
    return !word || *word == '-' || strpbrk(word, "\"'\\$") ? NULL : word;
}

/* The interpreter of the #! line, with env looked through; "" if the kernel would find none in it. */
static int script_interpreter(const char *script, char *line, char *path_out, size_t path_bytes,
                              struct varve_message *message)
{
    char *rest = line;
    const char *interpreter = word_take(&rest);
    path_out[0] = '\0';
    if (!interpreter) {
        return VARVE_OK;
    }
    struct varve_message reason;
    int error = candidate_error(candidate_look(interpreter), interpreter, &reason);
    if (!error) {
        snprintf(path_out, path_bytes, "%s", interpreter);
        rest += strspn(rest, " \t");
        char *program = strcmp(launch_check_base_name(interpreter), "env") == 0 && *rest ? env_program(rest) : NULL;
        error = program ? launch_check_program_find(program, path_out, path_bytes, &reason) : VARVE_OK;
    }
    if (error) {
        const char *hint = strchr(interpreter, '\r') || strchr(rest, '\r')
                               ? " (the script has DOS line ends: convert it with dos2unix)"
                               : "";
        return varve_message_set(message, error, "interpreter of '%.200s': %.200s%s", script, reason.text, hint);
    }
    return VARVE_OK;
}

/* One step of the chain: checks an ELF file, or leaves the interpreter of a script in `next` ("" ends the
 * chain). */
static int launch_file_check(const char *path, char *next, size_t next_bytes, struct varve_message *message)
{
    next[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return VARVE_OK; /* may be executed but not read: nothing to judge by */
    }
    enum exec_format format = exec_check_format(fd);
    int error = VARVE_OK;
    if (format == EXEC_FORMAT_ELF) {
        error = elf_check(fd, path, message);
    } else if (format == EXEC_FORMAT_SCRIPT) {
        char line[EXEC_LINE_BYTES];
        exec_check_line(fd, line);
        error = script_interpreter(path, line, next, next_bytes, message);
        if (!error && next[0] == '\0') {
            snprintf(next, next_bytes, "%s", EXEC_SHELL);
        }
    } else {
        /* The kernel knows no such format: execvp gives the file to the shell. */
        snprintf(next, next_bytes, "%s", EXEC_SHELL);
    }
    close(fd);
    return error;
}

int launch_check(const char *program, struct launch_check *check_out, struct varve_message *message)
{
    check_out->path[0] = '\0';
    check_out->interpreter[0] = '\0';
    int error = launch_check_program_find(program, check_out->path, sizeof(check_out->path), message);
    char file[sizeof(check_out->path)];
    memcpy(file, check_out->path, sizeof(file));
    for (unsigned depth = 0; !error; depth++) {
        char next[sizeof(file)];
        error = launch_file_check(file, next, sizeof(next), message);
        if (error || next[0] == '\0') {
            break;
        }
        if (depth == LAUNCH_SCRIPT_DEPTH_MAX) {
            return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                     "'%s' is a script whose interpreter is a script, and so on: name a program as "
                                     "its interpreter",
                                     check_out->path);
        }
        memcpy(file, next, sizeof(file));
        memcpy(check_out->interpreter, next, sizeof(file));
    }
    return error;
}
