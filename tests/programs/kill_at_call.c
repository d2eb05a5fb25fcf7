/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a command and ends it by SIGKILL right before the N-th system call by which it would change a file or
 * a folder: what is left behind is what a crash at that moment leaves.
 *
 *   kill_at_call N COMMAND…        N 0: let it end
 *
 * Exit status: 137 if it was killed, else the command's own. Writes "calls K", those of the first process, to
 * descriptor 3 where that is open. Children of the command are not followed, and die with it.
 */
#include "workload.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define STATUS_KILLED 137

static int changes_a_file(long number, unsigned long third)
{
    static const long calls[] = {
        SYS_write,   SYS_pwrite64,  SYS_pwritev,   SYS_writev, SYS_ftruncate, SYS_fallocate, SYS_unlinkat,
        SYS_mkdirat, SYS_renameat2, SYS_symlinkat, SYS_linkat,
#ifdef SYS_unlink /* architectures of an older age */
        SYS_unlink,  SYS_rmdir,     SYS_mkdir,     SYS_rename, SYS_renameat,  SYS_symlink,   SYS_link,
#endif
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (calls[i] == number) {
            return 1;
        }
    }
    return number == SYS_openat && (third & O_CREAT) != 0;
}

/* The tracee stands at the entry of a system call. */
static int is_counted(pid_t child)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof(info), &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY) {
        return 0;
    }
    return changes_a_file((long)info.entry.nr, (unsigned long)info.entry.args[2]);
}

static void run_command(char **command)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        give_up("no ptrace here");
    }
    raise(SIGSTOP);
    execvp(command[0], command);
    give_up("cannot execute");
}

static unsigned long follow(pid_t child, unsigned long kill_at, int *status)
{
    unsigned long calls = 0;
    int signal_number = 0;
    waitpid(child, status, 0);
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
    for (;;) {
        ptrace(PTRACE_SYSCALL, child, NULL, (void *)(long)signal_number);
        if (waitpid(child, status, 0) != child || !WIFSTOPPED(*status)) {
            return calls;
        }
        signal_number = WSTOPSIG(*status);
        if (signal_number == (SIGTRAP | 0x80)) {
            signal_number = 0;
            calls += (unsigned long)is_counted(child);
            if (calls == kill_at && kill_at > 0) {
                kill(child, SIGKILL);
            }
        } else if (signal_number == SIGTRAP) {
            signal_number = 0; /* of exec */
        }
    }
}

int main(int argc, char **argv)
{
    unsigned long kill_at = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
    int status = 0;
    if (argc < 3) {
        give_up("kill_at_call N COMMAND");
    }
    pid_t child = fork();
    if (child == 0) {
        run_command(argv + 2);
    }
    unsigned long calls = follow(child, kill_at, &status);
    char text[64];
    snprintf(text, sizeof(text), "calls %lu\n", calls);
    if (write(3, text, strlen(text)) < 0 && errno != EBADF) {
        give_up("cannot write to descriptor 3");
    }
    return WIFSIGNALED(status) ? STATUS_KILLED : WEXITSTATUS(status);
}
