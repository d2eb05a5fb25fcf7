/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of the calls by which a program confines itself: prctl and, for seccomp(2), which has no function of
 * its own, syscall. What the thread will need is made before the call; guest/confinement.h says what
 * holds after it. A filter that only refuses calls does no harm: its recorder gets errors and copes.
 */
#include "trace/recorder/emit_slow.h"
#include "trace/guest/confinement.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "base/syscall.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Beside enum recorder_confine: nothing ends the program, but what the ring needs may be refused. */
#define RECORDER_PREPARE 0x80U

struct arguments {
    unsigned long list[6];
};

#define READ_ARGUMENTS(arguments, last, count)                           \
    do {                                                                 \
        va_list read_list;                                               \
        va_start(read_list, last);                                       \
        for (unsigned read_i = 0; read_i < (count); read_i++) {          \
            (arguments).list[read_i] = va_arg(read_list, unsigned long); \
        }                                                                \
        va_end(read_list);                                               \
    } while (0)

/* Can the program end, or be stopped, by a call that the filter does not like? */
static bool filter_kills(const struct sock_fprog *filter)
{
    if (filter == NULL || filter->filter == NULL) {
        return false; /* the call fails */
    }
    for (unsigned i = 0; i < filter->len; i++) {
        const struct sock_filter *step = &filter->filter[i];
        uint32_t action = step->k & SECCOMP_RET_ACTION_FULL;
        bool is_return = BPF_CLASS(step->code) == BPF_RET;
        if (is_return && (BPF_RVAL(step->code) != BPF_K ||
                          (action != SECCOMP_RET_ALLOW && action != SECCOMP_RET_LOG && action != SECCOMP_RET_ERRNO))) {
            return true;
        }
    }
    return false;
}

static unsigned filter_confines(unsigned long filter)
{
    return RECORDER_PREPARE | (filter_kills((const struct sock_fprog *)filter) ? RECORDER_CONFINE_CALLS : 0U);
}

static unsigned prctl_confines(int option, const struct arguments *arguments)
{
    if (option == PR_SET_TSC) {
        return arguments->list[0] == PR_TSC_SIGSEGV ? RECORDER_CONFINE_CLOCK : 0U;
    }
    if (option != PR_SET_SECCOMP) {
        return 0;
    }
    if (arguments->list[0] == SECCOMP_MODE_STRICT) {
        return RECORDER_CONFINE_CALLS | RECORDER_CONFINE_CLOCK;
    }
    return arguments->list[0] == SECCOMP_MODE_FILTER ? filter_confines(arguments->list[1]) : 0U;
}

static unsigned seccomp_confines(const struct arguments *arguments)
{
    if (arguments->list[0] == SECCOMP_SET_MODE_STRICT) {
        return RECORDER_CONFINE_CALLS | RECORDER_CONFINE_CLOCK;
    }
    return arguments->list[0] == SECCOMP_SET_MODE_FILTER ? filter_confines(arguments->list[2]) : 0U;
}

/* Everything up to the call itself. Returns what to undo it with. */
static uint32_t confine(unsigned what, bool all_threads)
{
    int saved_errno = errno;
    recorder_thread_prepare();
    uint32_t before = recorder_confine_begin(what & ~RECORDER_PREPARE, all_threads && what != RECORDER_PREPARE);
    errno = saved_errno;
    return before;
}

static long direct(long number, const unsigned long *list)
{
    return hook_answer(recorder_syscall_raw(number, (long)list[0], (long)list[1], (long)list[2], (long)list[3],
                                            (long)list[4], (long)list[5]));
}

HOOK int prctl(int option, ...)
{
    struct arguments arguments = {{0}};
    READ_ARGUMENTS(arguments, option, 4);
    if (!hook_can_call() || heap_real.prctl == NULL) {
        const unsigned long list[6] = {(unsigned long)option, arguments.list[0], arguments.list[1],
                                       arguments.list[2],     arguments.list[3], 0};
        return (int)direct(SYS_prctl, list);
    }
    unsigned what = hook_is_recording() ? prctl_confines(option, &arguments) : 0;
    uint32_t before = 0;
    if (what != 0) {
        before = confine(what, false);
    }
    int result = heap_real.prctl(option, arguments.list[0], arguments.list[1], arguments.list[2], arguments.list[3]);
    if (what != 0 && result != 0) {
        recorder_confine_undo(before);
    }
    return result;
}

/* Above 0: the descriptor that was asked for, or a thread that could not be confined with the others. */
static bool confine_hooks_has_failed(long result, unsigned long flags)
{
    return result < 0 || (result > 0 && (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER) == 0);
}

/* By the hooks of these calls. */
static int confine_hooks_execute(long number, const unsigned long *list)
{
    const unsigned long *paths = number == SYS_execveat ? list + 1 : list;
    const char *path = (const char *)paths[0];
    char *const *argv = (char *const *)paths[1];
    char *const *envp = (char *const *)paths[2];
    return number == SYS_execveat ? execveat((int)list[0], path, argv, envp, (int)list[4]) : execve(path, argv, envp);
}

HOOK long syscall(long number, ...)
{
    struct arguments arguments;
    READ_ARGUMENTS(arguments, number, 6);
    if (!hook_can_call() || heap_real.syscall == NULL) {
        return direct(number, arguments.list);
    }
    if (__builtin_expect(number == SYS_execve || number == SYS_execveat, 0)) {
        return confine_hooks_execute(number, arguments.list);
    }
    if (__builtin_expect(number == SYS_exit_group, 0)) {
        _exit((int)arguments.list[0]);
    }
    unsigned what = 0;
    if (__builtin_expect(number == SYS_seccomp, 0) && hook_is_recording()) {
        what = seccomp_confines(&arguments);
    } else if (__builtin_expect(number == SYS_prctl, 0) && hook_is_recording()) {
        const struct arguments shifted = {{arguments.list[1], arguments.list[2]}};
        what = prctl_confines((int)arguments.list[0], &shifted);
    }
    uint32_t before = 0;
    if (what != 0) {
        before = confine(what, number == SYS_seccomp && (arguments.list[1] & SECCOMP_FILTER_FLAG_TSYNC) != 0);
    }
    long result = heap_real.syscall(number, arguments.list[0], arguments.list[1], arguments.list[2], arguments.list[3],
                                    arguments.list[4], arguments.list[5]);
    if (what != 0 && confine_hooks_has_failed(result, arguments.list[1])) {
        recorder_confine_undo(before);
    }
    return result;
}
