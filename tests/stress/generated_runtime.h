/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * What the programs of generated_program.py are made of: operations on memory that write down themselves, in
 * a file that survives whatever ends the program. Included once by each generated source.
 *
 * A thread (and a fork child, and an image after exec) has a slot of its own in the log. An entry stands for
 * one event that the recorder must have stored, in this order; entries are written after the call has
 * returned.
 */
#ifndef VARVE_TESTS_STRESS_GENERATED_RUNTIME_H
#define VARVE_TESTS_STRESS_GENERATED_RUNTIME_H

#include "programs/workload.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>

#define BLOCKS 16
#define SHARED 64
#define SLOTS 64
#define SLOTS_FOR_NEW 48 /* beyond, no thread and no process is started */
#define ENTRIES 3000
#define HANDLER_BYTES 20480 /* mapped by the handler of SIGALRM, and by nobody else */

enum kind { HEAP_ALLOC = 32, HEAP_FREE = 33, HEAP_REALLOC = 34, MMAP = 35, MUNMAP = 36 };

struct entry {
    uint64_t kind, addr, size, old_addr;
};

struct slot {
    uint64_t pid, tid, count, padding;
    struct entry entries[ENTRIES];
};

struct log {
    uint64_t slots;         /* used */
    uint64_t library_calls; /* of functions that may allocate for themselves */
    uint64_t handler_maps;  /* pairs of mmap and munmap in the handler of SIGALRM */
    uint64_t padding;
    struct slot slot[SLOTS];
};

struct mapping {
    void *addr;
    size_t bytes;
};

/* One thread of execution; a fork child goes on with a copy. */
struct me {
    struct slot *slot;
    int is_alone; /* a fork child: the lock of `shared` may be held by a thread that it has not got */
    void *block[BLOCKS];
    struct mapping map[BLOCKS];
};

typedef void (*body)(struct me *me, unsigned depth);

static struct log *events;
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static void *shared[SHARED];
static unsigned shared_count;
static __thread struct me *current; /* for signal handlers, destructors and the library */

/* ---- the log ---- */

static struct slot *slot_new(void)
{
    uint64_t at = __atomic_fetch_add(&events->slots, 1, __ATOMIC_RELAXED);
    if (at >= SLOTS) {
        give_up("generated: no slot left");
    }
    events->slot[at].pid = (uint64_t)getpid();
    events->slot[at].tid = (uint64_t)thread_id();
    return &events->slot[at];
}

static int may_start(void)
{
    return __atomic_load_n(&events->slots, __ATOMIC_RELAXED) < SLOTS_FOR_NEW;
}

static int has_room(const struct me *me)
{
    return me->slot->count + 8 <= ENTRIES;
}

static void library_call(void)
{
    __atomic_fetch_add(&events->library_calls, 1, __ATOMIC_RELAXED);
}

static void wrote(struct me *me, enum kind kind, const void *addr, uint64_t size, uint64_t old_addr)
{
    struct entry *entry = &me->slot->entries[me->slot->count];
    *entry = (struct entry){kind, (uint64_t)(uintptr_t)addr, size, old_addr};
    __atomic_store_n(&me->slot->count, me->slot->count + 1, __ATOMIC_RELEASE);
}

static void *got(struct me *me, void *block, uint64_t size)
{
    if (!block) {
        give_up("generated: out of memory");
    }
    wrote(me, HEAP_ALLOC, block, size, 0);
    return block;
}

/* ---- operations; each does nothing where its slot is full ---- */

static void op_free(struct me *me, unsigned at)
{
    void *block = me->block[at % BLOCKS];
    if (block && has_room(me)) {
        me->block[at % BLOCKS] = NULL;
        free(block);
        wrote(me, HEAP_FREE, block, 0, 0);
    }
}

static int begins(struct me *me, unsigned at)
{
    op_free(me, at);
    return has_room(me);
}

static void op_malloc(struct me *me, unsigned at, size_t size)
{
    if (begins(me, at)) {
        me->block[at % BLOCKS] = got(me, malloc(size), size);
    }
}

static void op_calloc(struct me *me, unsigned at, size_t count, size_t size)
{
    if (begins(me, at)) {
        me->block[at % BLOCKS] = got(me, calloc(count, size), count * size);
    }
}

static void op_aligned(struct me *me, unsigned at, unsigned how, size_t size)
{
    size_t alignment = (size_t)16 << how / 3 % 8;
    void *block = NULL;
    if (!begins(me, at)) {
        return;
    }
    if (how % 3 == 0) {
        block = memalign(alignment, size);
    } else if (how % 3 == 1) {
        block = aligned_alloc(alignment, size);
    } else if (posix_memalign(&block, alignment, size) != 0) {
        block = NULL;
    }
    me->block[at % BLOCKS] = got(me, block, size);
}

/* realloc(block, 0) frees; realloc(NULL, size) allocates. */
static void *resize(struct me *me, void *block, size_t size)
{
    uintptr_t old_addr = (uintptr_t)block;
    void *moved = realloc(block, size);
    if (!moved && (size > 0 || !old_addr)) {
        give_up("generated: out of memory");
    }
    if (old_addr) {
        wrote(me, HEAP_FREE, (const void *)old_addr, 0, 0);
        wrote(me, HEAP_REALLOC, moved, size, old_addr);
    } else {
        wrote(me, HEAP_ALLOC, moved, size, 0);
    }
    return moved;
}

static void op_realloc(struct me *me, unsigned at, size_t size)
{
    if (has_room(me)) {
        me->block[at % BLOCKS] = resize(me, me->block[at % BLOCKS], size);
    }
}

/* A block to whoever takes it. */
static void op_give(struct me *me, unsigned at)
{
    if (me->is_alone || !me->block[at % BLOCKS]) {
        return;
    }
    pthread_mutex_lock(&shared_lock);
    if (shared_count < SHARED) {
        shared[shared_count++] = me->block[at % BLOCKS];
        me->block[at % BLOCKS] = NULL;
    }
    pthread_mutex_unlock(&shared_lock);
}

static void op_take(struct me *me, unsigned at, size_t size)
{
    void *block = NULL;
    if (me->is_alone || !begins(me, at)) {
        return;
    }
    pthread_mutex_lock(&shared_lock);
    if (shared_count > 0) {
        block = shared[--shared_count];
    }
    pthread_mutex_unlock(&shared_lock);
    me->block[at % BLOCKS] = block && size > 0 ? resize(me, block, size) : block;
}

static void op_munmap(struct me *me, unsigned at)
{
    struct mapping *map = &me->map[at % BLOCKS];
    if (map->addr && has_room(me)) {
        munmap(map->addr, map->bytes);
        wrote(me, MUNMAP, map->addr, map->bytes, 0);
        map->addr = NULL;
    }
}

static void op_mmap(struct me *me, unsigned at, unsigned pages)
{
    struct mapping *map = &me->map[at % BLOCKS];
    op_munmap(me, at);
    if (has_room(me)) {
        map->bytes = (size_t)(pages + (pages == HANDLER_BYTES / 4096)) * 4096;
        map->addr = mmap(NULL, map->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map->addr == MAP_FAILED) {
            give_up("generated: mmap");
        }
        wrote(me, MMAP, map->addr, map->bytes, 0);
    }
}

/* ---- signals ---- */

static void on_user_signal(int signal_number)
{
    (void)signal_number;
    if (current) { /* raised by the thread itself, between two operations */
        op_malloc(current, 1, 333);
        op_realloc(current, 2, 4321);
        op_free(current, 1);
    }
}

static void on_alarm(int signal_number)
{
    int error = errno;
    void *addr = mmap(NULL, HANDLER_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)signal_number;
    if (addr == MAP_FAILED) {
        give_up("generated: mmap in the handler");
    }
    munmap(addr, HANDLER_BYTES);
    __atomic_fetch_add(&events->handler_maps, 1, __ATOMIC_RELAXED);
    errno = error;
}

static void alarm_every(long microseconds)
{
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* ---- threads ---- */

static pthread_key_t at_end;

struct start {
    body work;
    unsigned depth;
    int is_alone;
};

/* After the recorder's own destructor or before it. */
static void ends(void *argument)
{
    struct me *me = argument;
    op_malloc(me, 5, 55);
    op_free(me, 5);
}

static void *thread_main(void *argument)
{
    const struct start *start = argument;
    struct me me = {.slot = slot_new(), .is_alone = start->is_alone};
    struct me *kept = NULL;
    current = &me;
    kept = got(&me, malloc(sizeof(me)), sizeof(me)); /* outlives the stack of this function */
    start->work(&me, start->depth);
    for (unsigned i = 0; i < BLOCKS; i++) {
        op_munmap(&me, i);
    }
    *kept = me;
    current = kept;
    pthread_setspecific(at_end, kept);
    return NULL;
}

static void op_threads(const struct me *me, const body *work, unsigned count, unsigned depth)
{
    pthread_t threads[8];
    struct start starts[8];
    unsigned started = 0;
    for (unsigned i = 0; i < count && i < 8 && may_start(); i++) {
        starts[i] = (struct start){work[i], depth + 1, me->is_alone};
        library_call();
        if (pthread_create(&threads[i], NULL, thread_main, &starts[i]) != 0) {
            give_up("generated: pthread_create");
        }
        started++;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* ---- processes ---- */

static const char *log_path;
static char self_path[4096];
static char program_number[16];

static void wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
}

static void execute(const char *image)
{
    char *const arguments[] = {self_path, program_number, (char *)(uintptr_t)log_path, (char *)(uintptr_t)image, NULL};
    alarm_every(0);
    execv(self_path, arguments);
    give_up("generated: exec");
}

enum end { END_EXIT, END_EXIT_NOW, END_ABORT, END_KILL, END_FAULT, END_EXEC };

static void end_process(enum end how)
{
    switch (how) {
    case END_EXIT:
        exit(3);
    case END_EXIT_NOW:
        _exit(4);
    case END_ABORT:
        abort();
    case END_KILL:
        kill(getpid(), SIGKILL);
        break;
    case END_FAULT:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    case END_EXEC:
        execute("1");
    }
    give_up("generated: still there");
}

static void op_fork(struct me *me, body work, unsigned depth, enum end how)
{
    if (!may_start()) {
        return;
    }
    library_call();
    pid_t pid = fork();
    if (pid < 0) {
        give_up("generated: fork");
    }
    if (pid == 0) {
        me->slot = slot_new();
        me->is_alone = 1;
        work(me, depth + 1);
        end_process(how);
    }
    wait_for(pid);
}

static void op_spawn(struct me *me)
{
    char *const arguments[] = {self_path, program_number, (char *)(uintptr_t)log_path, (char *)(uintptr_t) "1", NULL};
    (void)me;
    pid_t pid;
    if (may_start()) {
        library_call();
        if (posix_spawn(&pid, self_path, NULL, NULL, arguments, environ) != 0) {
            give_up("generated: posix_spawn");
        }
        wait_for(pid);
    }
}

static void op_vfork(struct me *me)
{
    char *const arguments[] = {self_path, program_number, (char *)(uintptr_t)log_path, (char *)(uintptr_t) "1", NULL};
    (void)me;
    if (may_start()) {
        library_call();
        pid_t pid = vfork();
        if (pid == 0) {
            execv(self_path, arguments);
            _exit(119);
        }
        wait_for(pid);
    }
}

/* A library whose constructor and destructor allocate, too, where the program's own functions count it. */
static void op_library(struct me *me, const char *path, unsigned at)
{
    void (*work)(struct me *, unsigned);
    library_call();
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        give_up(dlerror());
    }
    *(void **)(&work) = dlsym(library, "library_work");
    if (work) {
        work(me, at);
    }
    library_call();
    dlclose(library);
}

/* ---- for the library, which is in another file ---- */

void generated_malloc(struct me *me, unsigned at, size_t size);
void generated_free(struct me *me, unsigned at);
struct me *generated_current(void);

void generated_malloc(struct me *me, unsigned at, size_t size)
{
    op_malloc(me, at, size);
}

void generated_free(struct me *me, unsigned at)
{
    op_free(me, at);
}

struct me *generated_current(void)
{
    return current;
}

/* ---- the program ---- */

struct program {
    body work, image; /* image: what runs after exec */
    long alarm_us;    /* 0: none */
    enum end end;
};

static struct me first;

static void at_exit(void)
{
    if (current) {
        op_malloc(current, 3, 77);
    }
}

/* main(program number, log, image): image 0 makes the log, another one goes on in it. */
static int generated_main(int argc, char **argv, const struct program *programs)
{
    const struct program *program = &programs[argc > 3 ? atoi(argv[1]) : 0];
    struct sigaction action = {.sa_handler = on_user_signal};
    int is_image = argc > 3 && argv[3][0] != '0';
    ssize_t length = readlink("/proc/self/exe", self_path, sizeof(self_path) - 1);
    if (argc < 4 || length <= 0) {
        give_up("usage: PROGRAM NUMBER LOG IMAGE");
    }
    log_path = argv[2];
    strncpy(program_number, argv[1], sizeof(program_number) - 1);
    int file = open(log_path, O_RDWR | O_CLOEXEC);
    long addr = syscall(SYS_mmap, 0L, sizeof(*events), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L);
    if (file < 0 || addr == -1) {
        give_up("generated: no log");
    }
    close(file);
    events = (struct log *)(uintptr_t)addr;
    first.slot = slot_new();
    current = &first;
    sigaction(SIGUSR1, &action, NULL);
    pthread_key_create(&at_end, ends);
    atexit(at_exit);
    if (is_image) {
        program->image(&first, 0);
        return 0;
    }
    if (program->alarm_us) {
        alarm_every(program->alarm_us);
    }
    program->work(&first, 0);
    alarm_every(0);
    end_process(program->end);
    return 1;
}

#endif
