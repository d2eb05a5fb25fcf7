/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that allocate, and what memory the process has while they live and after they ended:
 *
 *   memory_phases THREADS PAIRS
 *
 * THREADS 1: the main thread itself does PAIRS pairs of malloc and free. More: as many threads do, all live
 * at the same time. Prints one JSON object per phase (start, working, ended) with what
 * /proc/self/smaps_rollup says, in bytes.
 */
#include "workload.h"

#include <pthread.h>

#define THREADS_MAX 256

static const char *const fields[] = {"Rss", "Pss", "Pss_Anon", "Pss_File", "Pss_Shmem", "Private_Dirty"};

static pthread_barrier_t worked;
static pthread_barrier_t reported;
static uint64_t pairs_each;
static int thread_count;

/* Bytes of the line `field:   123 kB`, -1 if there is none. */
static long long rollup_field(const char *rollup, const char *field)
{
    char name[32];
    const char *line;

    snprintf(name, sizeof(name), "\n%s:", field);
    line = strstr(rollup, name);
    return line ? strtoll(line + strlen(name), NULL, 10) * 1024 : -1;
}

static void emit(const char *phase)
{
    char rollup[4096];
    size_t length = 0;
    ssize_t got;
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        give_up("/proc/self/smaps_rollup is missing");
    }
    while ((got = read(fd, rollup + length, sizeof(rollup) - 1 - length)) > 0) {
        length += (size_t)got;
    }
    close(fd);
    rollup[length] = '\0';
    say("{\"phase\": \"%s\"", phase);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        say(", \"%s\": %lld", fields[i], rollup_field(rollup, fields[i]));
    }
    say("}\n");
}

static void work(void)
{
    for (uint64_t i = 0; i < pairs_each; i++) {
        char *block = malloc(16 + i % 512);
        if (block == NULL) {
            give_up("out of memory");
        }
        block[0] = 1;
        free(block);
    }
}

static void *thread_run(void *unused)
{
    work();
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&reported);
    return unused;
}

int main(int argc, char **argv)
{
    static pthread_t threads[THREADS_MAX];

    thread_count = argc > 1 ? atoi(argv[1]) : 0;
    pairs_each = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (argc != 3 || thread_count < 1 || thread_count > THREADS_MAX) {
        give_up("usage: memory_phases THREADS PAIRS");
    }
    free(malloc(64));
    emit("start");
    if (thread_count == 1) {
        work();
        emit("working");
        emit("ended");
        return 0;
    }
    pthread_barrier_init(&worked, NULL, (unsigned)thread_count + 1);
    pthread_barrier_init(&reported, NULL, (unsigned)thread_count + 1);
    for (int i = 0; i < thread_count; i++) {
        if (pthread_create(&threads[i], NULL, thread_run, NULL) != 0) {
            give_up("cannot start a thread");
        }
    }
    pthread_barrier_wait(&worked);
    emit("working");
    pthread_barrier_wait(&reported);
    for (int i = 0; i < thread_count; i++) {
        pthread_join(threads[i], NULL);
    }
    emit("ended");
    return 0;
}
