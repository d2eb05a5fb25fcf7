/* SPDX-License-Identifier: Apache-2.0 */
/* `varve doctor`, the machine: kernel, clock, space for rings and databases, tracing, the installation, Python. */
#include "analysis/cli/doctor/doctor.h"

#include "analysis/base/number_format.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "base/program.h"

#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define SHM_BYTES_MIN (INT64_C(64) << 20)
#define DISK_BYTES_MIN (INT64_C(1) << 30)

static void check_kernel(struct doctor_lines *lines)
{
    struct utsname name;
    if (uname(&name) != 0) {
        return;
    }
    char *end;

    int major = (int)strtol(name.release, &end, 10);
    int minor = *end == '.' ? (int)strtol(end + 1, NULL, 10) : 0;
    bool is_recent = major > 5 || (major == 5 && minor >= 3);
    doctor_add(lines, "kernel", is_recent ? DOCTOR_OK : DOCTOR_MISSING,
               "pidfd_open is missing: recording does not work", "Linux 5.3 or newer", "%.20s %.80s %.20s",
               name.sysname, name.release, name.machine);
}

static bool has_invariant_tsc(void)
{
#if defined(__x86_64__)
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid(0x80000007U, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8)) != 0;
#else
    return false;
#endif
}

static bool doctor_machine_read_line(const char *path, char *buffer, size_t bytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool is_read = fgets(buffer, (int)bytes, file) != NULL;
    fclose(file);
    if (is_read) {
        buffer[strcspn(buffer, "\n")] = '\0';
    }
    return is_read;
}

static void check_clock(struct doctor_lines *lines)
{
    char source[64] = "unknown";
    bool is_invariant = has_invariant_tsc();
    doctor_machine_read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
                             sizeof(source));
    bool is_fast = is_invariant && strcmp(source, "tsc") == 0;
    doctor_add(lines, "clock", is_fast ? DOCTOR_OK : DOCTOR_WARNING,
               "times come from clock_gettime: about 11 ns more for each event", "",
               "clock source %.40s, %s invariant TSC", source, is_invariant ? "with" : "without");
}

static int64_t doctor_machine_free_bytes(const char *path)
{
    struct statvfs status;
    return statvfs(path, &status) == 0 ? (int64_t)status.f_bavail * (int64_t)status.f_frsize : -1;
}

static void check_space(struct doctor_lines *lines)
{
    int64_t shm = doctor_machine_free_bytes("/dev/shm");
    int64_t disk = doctor_machine_free_bytes(".");
    char here[PATH_MAX] = ".";
    bool is_writable = access("/dev/shm", W_OK) == 0;
    if (getcwd(here, sizeof(here)) == NULL) {
        snprintf(here, sizeof(here), ".");
    }
    if (shm < 0 || !is_writable) {
        doctor_add(lines, "shared_memory", DOCTOR_MISSING, "rings are files beside the database: slower on a disk",
                   "mount a tmpfs at /dev/shm", "/dev/shm %s", shm < 0 ? "is not there" : "is not writable");
    } else {
        doctor_add(lines, "shared_memory", shm >= SHM_BYTES_MIN ? DOCTOR_OK : DOCTOR_WARNING,
                   "space for few rings (4 MiB for each thread that allocates)",
                   "varve record --ring-size 256K, or a larger /dev/shm", "/dev/shm has %s", BYTES(shm));
    }
    doctor_add(lines, "disk", disk >= DISK_BYTES_MIN ? DOCTOR_OK : DOCTOR_WARNING, "a million events take up to 140 MB",
               "", "%s free in %.100s", disk >= 0 ? BYTES(disk) : "unknown", here);
}

static bool may_trace_all(void)
{
    char line[256] = "";
    FILE *file = fopen("/proc/self/status", "re");
    uint64_t capabilities = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "CapEff:", 7) == 0) {
            capabilities = strtoull(line + 7, NULL, 16);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return (capabilities >> CAP_SYS_PTRACE & 1) != 0;
}

/* Sandboxes refuse it whatever else is said. */
static bool may_trace_child(void)
{
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    const bool may = child > 0 && ptrace(PTRACE_SEIZE, child, NULL, NULL) == 0;
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    return may;
}

/* `varve attach` holds a thread for a moment, by ptrace. */
static void check_attach(struct doctor_lines *lines)
{
    static const char effect[] = "varve attach is refused; programs are recorded from their start";
    char scope[16] = "0";
    doctor_machine_read_line("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope));
    if (!may_trace_child()) {
        doctor_add(lines, "attach", DOCTOR_MISSING, effect, "a container is started with --cap-add=SYS_PTRACE",
                   "no process may be traced here");
    } else if (scope[0] == '3' || (scope[0] != '0' && !may_trace_all())) {
        doctor_add(lines, "attach", DOCTOR_WARNING, effect,
                   scope[0] == '3' ? "the next boot" : "sudo varve attach, or sudo sysctl kernel.yama.ptrace_scope=0",
                   "kernel.yama.ptrace_scope is %s", scope);
    } else {
        doctor_add(lines, "attach", DOCTOR_OK, "", "", "processes of %s may be traced",
                   may_trace_all() ? "all users" : "this user");
    }
}

static void check_installation(struct doctor_lines *lines)
{
    doctor_check_component(lines, "preload", COMPONENT_PRELOAD, "nothing can be recorded",
                           "build or install varve as a whole");
    doctor_add(lines, "sqlite", DOCTOR_OK, "", "", "SQLite %s", database_library_version());
}

/* The first python3 of PATH; its version is in the name that links end at. */
static void check_python(struct doctor_lines *lines)
{
    char path[PATH_MAX];
    char resolved[PATH_MAX];
    if (!program_find("python3", path, sizeof(path)) || realpath(path, resolved) == NULL) {
        doctor_add(lines, "python", DOCTOR_MISSING, "nothing, unless Python programs are recorded",
                   "apt install python3", "no python3 in PATH");
        return;
    }
    const char *version = strstr(resolved, "python3.");
    if (version == NULL) {
        doctor_add(lines, "python", DOCTOR_OK, "", "", "%.140s", resolved);
        return;
    }
    char *end = NULL;
    const long minor = strtol(version + strlen("python3."), &end, 10);
    const bool has_gil = *end != 't';
    const bool is_read = minor >= REPORT_PYTHON_FIRST && minor <= REPORT_PYTHON_LAST && has_gil;
    if (is_read) {
        doctor_add(lines, "python", DOCTOR_OK, "", "", "CPython 3.%ld, %.120s", minor, resolved);
    } else {
        doctor_add(lines, "python", DOCTOR_WARNING, "no lines of Python in its programs", "",
                   "CPython 3.%ld%s, %.120s; 3.%d to 3.%d with the GIL are read", minor,
                   has_gil ? "" : " without the GIL", resolved, REPORT_PYTHON_FIRST, REPORT_PYTHON_LAST);
    }
}

void doctor_check_machine(struct doctor_lines *lines)
{
    check_kernel(lines);
    check_clock(lines);
    check_space(lines);
    check_attach(lines);
    check_installation(lines);
    check_python(lines);
}
