/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that a tracer may harm, at work while it is attached to. It says "ready", and at the end "well", or what it
 * has seen. A byte on standard input leads it on, SIGUSR1 ends it where it waits for none.
 *   work           threads that allocate, come and go, until the byte
 *   forks          one thread that forks all the time, others that allocate; until the byte
 *   exec MS        three threads; it executes itself again and again, until the byte
 *   vforks         threads have a vfork child each, which is waited for where no stop reaches; with the byte that of
 *                  the main thread ends, which executes this program, which says "executed" and ends with the next byte
 *   ended          the main thread ends, another allocates blocks of 4321 bytes until the byte
 *   sequence       restartable sequences (rseq), until SIGUSR1: one that was interrupted must not come to its end
 *   call NAME      that system call, which waits for 0.3 s in vain, again and again until SIGUSR1; another error than
 *                  that the time is over is ill
 *   write          one thread writes more than a pipe takes, another one is idle; with the byte the pipe is read
 *   children KIND  with the byte two children are made, which say their numbers and allocate nothing; KIND is plain,
 *                  user (they become nobody) or pids (of another PID namespace). With the next byte they end
 */
#include "programs/workload.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define LIMIT_MS 300
#define PIPE_MORE (1U << 20)
#define THREADS 3
#define VFORKS 6
#define NOBODY 65534

static volatile sig_atomic_t has_ended;

static void end(int number)
{
    (void)number;
    has_ended = 1;
}

static bool byte_within(int ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    return poll(&input, 1, ms) > 0 && read(STDIN_FILENO, &byte, 1) >= 0;
}

static void await_byte(void)
{
    while (!byte_within(-1)) {
    }
}

static int say_whether(bool is_well)
{
    say(is_well ? "well\n" : "ill\n");
    return !is_well;
}

static void allocate(size_t size)
{
    char *volatile block = take_block(size);
    free(block);
}

/* ---- at work ---- */

static void *allocate_shortly(void *unused)
{
    for (size_t i = 1; i <= 50; i++) {
        allocate(i * 10);
    }
    return unused;
}

static void *allocate_always(void *unused)
{
    for (;;) {
        allocate(1000);
        usleep(100);
    }
    return unused;
}

static void *make_threads(void *unused)
{
    for (;;) {
        pthread_join(start_thread(allocate_shortly, NULL), NULL);
    }
    return unused;
}

static int work(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        start_thread(allocate_always, NULL);
    }
    start_thread(make_threads, NULL);
    say("ready\n");
    await_byte();
    return say_whether(true);
}

static int fork_always(void)
{
    int status = 7 << 8;
    for (unsigned i = 0; i < THREADS; i++) {
        start_thread(allocate_always, NULL);
    }
    say("ready\n");
    while (!byte_within(0) && WIFEXITED(status) && WEXITSTATUS(status) == 7) {
        const pid_t child = fork();
        if (child == 0) {
            allocate(5000);
            _exit(7);
        }
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    return say_whether(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* ---- other programs ---- */

static void __attribute__((noreturn)) execute(const char *first, const char *second)
{
    execl("/proc/self/exe", "attached", first, second, "again", (char *)NULL);
    give_up("cannot execute itself");
}

static int execute_always(const char *ms, bool is_first)
{
    for (unsigned i = 0; i < THREADS; i++) {
        start_thread(allocate_always, NULL);
    }
    if (is_first) {
        say("ready\n");
    }
    if (!byte_within(atoi(ms))) {
        execute("exec", ms);
    }
    return say_whether(true);
}

static int gate[2];

static void *vfork_once(void *unused)
{
    const pid_t child = vfork();
    if (child == 0) {
        char byte;
        (void)syscall(SYS_close, gate[1]); /* a bare call: nothing of the parent's memory is written */
        (void)syscall(SYS_read, gate[0], &byte, 1);
        _exit(0);
    }
    return unused;
}

static int execute_beside_vforks(bool is_first)
{
    if (!is_first) {
        say("executed\n");
        await_byte();
        return say_whether(true);
    }
    if (pipe2(gate, O_CLOEXEC) != 0) {
        give_up("no pipe");
    }
    for (unsigned i = 0; i < VFORKS; i++) {
        start_thread(vfork_once, NULL);
    }
    usleep(100000);
    say("ready\n");
    if (vfork() == 0) {
        char byte;
        (void)syscall(SYS_read, STDIN_FILENO, &byte, 1);
        _exit(0);
    }
    execute("vforks", "");
}

static void *allocate_until_byte(void *unused)
{
    while (!byte_within(1)) {
        allocate(4321);
    }
    exit(say_whether(true));
    return unused;
}

static int end_main_thread(void)
{
    start_thread(allocate_until_byte, NULL);
    say("ready\n");
    pthread_exit(NULL);
}

/* ---- restartable sequences ---- */

#if defined(__x86_64__) && __has_include(<linux/rseq.h>)
#include <linux/rseq.h>

extern const ptrdiff_t rseq_offset __asm__("__rseq_offset") __attribute__((weak));
extern const unsigned rseq_size __asm__("__rseq_size") __attribute__((weak));

/* The kernel clears rseq_cs whenever it has interrupted a sequence: what is left of it at the end says whether it
 * should have come to that. */
static int run_sequences(void)
{
    if (&rseq_size == NULL || rseq_size == 0) {
        return 77;
    }
    volatile struct rseq *area = (volatile struct rseq *)((char *)__builtin_thread_pointer() + rseq_offset);
    unsigned long is_done, aborted = 0, ill = 0;
    uint64_t left;
    say("ready\n");
    while (!has_ended) {
        __asm__ volatile(".pushsection __rseq_cs, \"aw\"\n"
                         ".balign 32\n"
                         "3: .long 0, 0\n"
                         ".quad 1f, 2f - 1f, 4f\n"
                         ".popsection\n"
                         "leaq 3b(%%rip), %%rax\n"
                         "movq %%rax, %[sequence]\n"
                         "1: movl $1000000, %%ecx\n"
                         "6: decl %%ecx\n"
                         "jnz 6b\n"
                         "movq %[sequence], %%rdx\n"
                         "movq $1, %%rax\n"
                         "2: jmp 5f\n"
                         ".pushsection __rseq_failure, \"ax\"\n"
                         ".byte 0x0f, 0xb9, 0x3d\n"
                         ".long 0x53053053\n"
                         "4: xorl %%eax, %%eax\n"
                         "xorl %%edx, %%edx\n"
                         "jmp 5f\n"
                         ".popsection\n"
                         "5:\n"
                         : "=&a"(is_done), "=&d"(left), [sequence] "+m"(area->rseq_cs)
                         :
                         : "rcx", "cc", "memory");
        area->rseq_cs = 0;
        aborted += is_done == 0;
        ill += is_done != 0 && left == 0;
    }
    return say_whether(ill == 0 && aborted > 0);
}
#else
static int run_sequences(void)
{
    return 77;
}
#endif

/* ---- calls that wait ---- */

static int full_socket;
static struct sockaddr_un full_address = {.sun_family = AF_UNIX};

static void limit_sending(int socket)
{
    const struct timeval limit = {0, LIMIT_MS * 1000};
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

/* A socket that takes nothing more, and an address where nobody accepts. */
static void fill(void)
{
    int pair[2];
    char text[4096] = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        give_up("no sockets");
    }
    full_socket = pair[0];
    while (send(full_socket, text, sizeof(text), MSG_DONTWAIT) > 0) {
    }
    limit_sending(full_socket);
    snprintf(full_address.sun_path + 1, sizeof(full_address.sun_path) - 1, "varve-attached-%d", getpid());
    const int listening = socket(AF_UNIX, SOCK_STREAM, 0), first = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&full_address, sizeof(full_address)) != 0 || listen(listening, 0) != 0 ||
        connect(first, (struct sockaddr *)&full_address, sizeof(full_address)) != 0) {
        give_up("no sockets with names");
    }
}

static long call_sendmmsg(void)
{
    char text[4096] = {0};
    struct iovec part = {text, sizeof(text)};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    return sendmmsg(full_socket, &message, 1, 0);
}

static long call_sendfile(void)
{
    static int file = -1;
    file = file >= 0 ? file : open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    off_t at = 0;
    return sendfile(full_socket, file, &at, 4096);
}

static long call_connect(void)
{
    static int from = -1;
    from = from >= 0 ? from : socket(AF_UNIX, SOCK_STREAM, 0);
    limit_sending(from);
    return connect(from, (struct sockaddr *)&full_address, sizeof(full_address));
}

static long call_recv(void)
{
    char byte;
    return recv(full_socket, &byte, 1, 0);
}

static long call_epoll(void)
{
    static int epoll = -1;
    epoll = epoll >= 0 ? epoll : epoll_create1(0);
    struct epoll_event event;
    errno = EAGAIN;
    return epoll_wait(epoll, &event, 1, LIMIT_MS) - 1;
}

static long call_semtimedop(void)
{
    static int semaphores = -1;
    semaphores = semaphores >= 0 ? semaphores : semget(IPC_PRIVATE, 1, 0600);
    struct sembuf lower = {.sem_op = -1};
    const struct timespec limit = {0, LIMIT_MS * 1000000L};
    const long result = semtimedop(semaphores, &lower, 1, &limit);
    if (has_ended) {
        semctl(semaphores, 0, IPC_RMID);
    }
    return result;
}

/* io_uring_enter with a time limit: 64 bits of the argument hold where the limit is. */
static long call_io_uring(void)
{
#if defined(SYS_io_uring_enter) && __has_include(<linux/io_uring.h>)
    static int ring = -1;
    static uint64_t parameters[64]; /* struct io_uring_params, zeroed: the defaults */
    const struct timespec limit = {0, LIMIT_MS * 1000000L};
    const struct {
        uint64_t mask;
        uint32_t mask_bytes, pad;
        uint64_t limit;
    } argument = {.limit = (uint64_t)(uintptr_t)&limit};
    ring = ring >= 0 ? ring : (int)syscall(SYS_io_uring_setup, 8, parameters);
    if (ring < 0) {
        _exit(77);
    }
    const long result = syscall(SYS_io_uring_enter, ring, 0, 1, 1U | 8U, &argument, sizeof(argument));
    errno = errno == ETIME ? EAGAIN : errno;
    return result;
#else
    _exit(77);
#endif
}

static int call_always(const char *name)
{
    static const struct {
        const char *name;
        long (*call)(void);
    } calls[] = {
        {"sendmmsg", call_sendmmsg}, {"sendfile", call_sendfile},     {"connect", call_connect},   {"recv", call_recv},
        {"epoll_wait", call_epoll},  {"semtimedop", call_semtimedop}, {"io_uring", call_io_uring}, {NULL, NULL}};
    unsigned at = 0;
    while (calls[at].name != NULL && strcmp(calls[at].name, name) != 0) {
        at++;
    }
    if (calls[at].name == NULL) {
        give_up("no such call");
    }
    fill();
    say("ready\n");
    bool is_well = true;
    while (!has_ended && is_well) {
        is_well = (calls[at].call() < 0 && errno == EAGAIN) || has_ended;
    }
    return say_whether(is_well);
}

static void *write_much(void *descriptor)
{
    static char much[PIPE_MORE];
    return (void *)(intptr_t)write((int)(intptr_t)descriptor, much, sizeof(much));
}

static int write_more_than_fits(void)
{
    int ends[2];
    void *written;
    if (pipe(ends) != 0) {
        give_up("no pipe");
    }
    const pthread_t thread = start_thread(write_much, (void *)(intptr_t)ends[1]);
    usleep(100000);
    say("ready\n");
    await_byte();
    char text[65536];
    size_t got = 0;
    while (got < PIPE_MORE && poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, 1000) > 0) {
        const ssize_t part = read(ends[0], text, sizeof(text));
        got += part > 0 ? (size_t)part : 0;
    }
    pthread_join(thread, &written);
    return say_whether((size_t)(intptr_t)written == PIPE_MORE);
}

/* ---- children ---- */

static void __attribute__((noreturn)) be_child(const char *kind, int descriptor)
{
    char byte;
    if (strcmp(kind, "user") == 0 &&
        (syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) != 0 || syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) != 0)) {
        _exit(121);
    }
    (void)syscall(SYS_read, descriptor, &byte, 1);
    _exit(0);
}

static int make_children(const char *kind)
{
    int ends[2];
    pid_t children[2];
    if (pipe(ends) != 0) {
        give_up("no pipe");
    }
    say("ready\n");
    await_byte();
    for (unsigned i = 0; i < 2; i++) {
        if (strcmp(kind, "pids") == 0 && i == 0 && unshare(CLONE_NEWPID) != 0) {
            return 77;
        }
        children[i] = fork();
        if (children[i] == 0) {
            close(ends[1]);
            be_child(kind, ends[0]);
        }
    }
    say("%d %d\n", children[0], children[1]);
    await_byte();
    close(ends[1]);
    bool is_well = true;
    for (unsigned i = 0; i < 2; i++) {
        int status = 0;
        const pid_t child = waitpid(-1, &status, 0);
        is_well =
            is_well && (status == 0 || (strcmp(kind, "pids") == 0 && child == children[1])); /* ends with the first */
    }
    return say_whether(is_well);
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "", *how = count > 2 ? arguments[2] : "";
    const bool is_first = count < 4;
    const struct sigaction action = {.sa_handler = end};
    sigaction(SIGUSR1, &action, NULL);
    if (strcmp(what, "work") == 0) {
        return work();
    }
    if (strcmp(what, "forks") == 0) {
        return fork_always();
    }
    if (strcmp(what, "exec") == 0) {
        return execute_always(how, is_first);
    }
    if (strcmp(what, "vforks") == 0) {
        return execute_beside_vforks(is_first);
    }
    if (strcmp(what, "ended") == 0) {
        return end_main_thread();
    }
    if (strcmp(what, "sequence") == 0) {
        return run_sequences();
    }
    if (strcmp(what, "call") == 0) {
        return call_always(how);
    }
    if (strcmp(what, "write") == 0) {
        return write_more_than_fits();
    }
    return strcmp(what, "children") == 0 ? make_children(how) : 120;
}
