/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is attached to while it runs: threads that allocate all the time by malloc, new, calloc, realloc and
 * mmap. From the appearance of the file FOLDER/begin to that of FOLDER/end each thread counts what it asks for, and
 * the sums are printed: of sizes that are odd, and mappings of three pages; before and after they are even, and two.
 * In the counted time the main thread frees and resizes blocks from the beginning. "ready" comes when each thread has
 * done a round. FOLDER/quit ends the program, with a checksum of what the blocks held, the same for every run, and
 * the number of times that a thread found another one. Usage: attach_target FOLDER THREADS [steady]; "steady":
 * nothing is counted, and no thread waits for another.
 */
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

namespace {

enum phase { BEFORE, COUNTED, AFTER, QUIT };

struct counts {
    uint64_t blocks = 0, bytes = 0, frees = 0, maps = 0, map_bytes = 0;
};

std::atomic<int> wanted_phase{BEFORE};
std::atomic<unsigned> first_rounds{0};

bool is_there(const std::string &path)
{
    struct stat status;

    return stat(path.c_str(), &status) == 0;
}

/* One step of a thread: some blocks, freed in another order, and their contents summed. */
void step(bool is_counted, counts &counted, uint64_t &checksum, uint64_t &random)
{
    const size_t pages_bytes = is_counted ? 3 * 4096 : 2 * 4096;
    void *blocks[8];

    for (unsigned i = 0; i < 8; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const size_t size = (16 + (random >> 33) % 2000) / 2 * 2 + is_counted;

        if (i % 4 == 0) {
            blocks[i] = malloc(size);
        } else if (i % 4 == 1) {
            blocks[i] = calloc(1, size);
        } else if (i % 4 == 2) {
            blocks[i] = operator new(size);
        } else {
            blocks[i] = realloc(malloc(size), size + 2000);
            counted.blocks++;
            counted.bytes += size + 2000;
            counted.frees++;
        }
        memset(blocks[i], (int)(random >> 56), 16);
        counted.blocks++;
        counted.bytes += size;
    }
    for (unsigned i = 0; i < 8; i++) {
        void *block = blocks[(i * 3) % 8];
        uint64_t word;

        memcpy(&word, block, sizeof(word));
        checksum = checksum * 31 + word;
        if ((i * 3) % 8 % 4 == 2) {
            operator delete(block);
        } else {
            free(block);
        }
        counted.frees++;
    }
    void *pages = mmap(nullptr, pages_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    checksum += *static_cast<volatile char *>(pages);
    munmap(pages, pages_bytes);
    counted.maps++;
    counted.map_bytes += pages_bytes;
}

void nap()
{
    std::this_thread::sleep_for(std::chrono::microseconds(200));
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: attach_target FOLDER THREADS [steady]\n");
        return 2;
    }
    const std::string folder = argv[1];
    const unsigned thread_count = (unsigned)atoi(argv[2]);
    const bool is_steady = argc > 3;
    pthread_barrier_t barrier;
    std::vector<counts> counted(thread_count);
    std::vector<uint64_t> checksums(thread_count), wrong(thread_count);
    std::vector<std::thread> threads;
    std::vector<void *> old;

    pthread_barrier_init(&barrier, nullptr, thread_count + 1);
    for (unsigned i = 0; i < 1000; i++) {
        old.push_back(malloc(100)); /* before anybody attaches */
    }
    for (unsigned i = 0; i < thread_count; i++) {
        threads.emplace_back([&, i] {
            int phase = BEFORE;

            while (phase != QUIT) {
                uint64_t random = i, checksum = 0;
                const int now = wanted_phase.load();

                if (now != phase) {
                    if (!is_steady) {
                        pthread_barrier_wait(&barrier);
                        pthread_barrier_wait(&barrier);
                    }
                    phase = now;
                }
                for (unsigned n = 0; n < 4 && phase != QUIT; n++) {
                    counts none;

                    step(phase == COUNTED, phase == COUNTED ? counted[i] : none, checksum, random);
                }
                first_rounds += checksums[i] == 0 && checksum != 0;
                wrong[i] += phase != QUIT && checksums[i] != 0 && checksums[i] != checksum;
                checksums[i] = phase != QUIT ? checksum : checksums[i];
                nap();
            }
        });
    }
    while (first_rounds < thread_count) {
        nap();
    }
    printf("ready\n");
    fflush(stdout);
    const char *const names[] = {"", "/begin", "/end", "/quit"};
    for (int phase = COUNTED; phase <= QUIT; phase++) {
        while (!is_there(folder + names[phase]) && !(is_steady && is_there(folder + "/quit"))) {
            nap();
        }
        wanted_phase = phase;
        if (is_steady) {
            continue;
        }
        pthread_barrier_wait(&barrier);
        if (phase == COUNTED) { /* known to nobody who attached */
            for (unsigned i = 0; i < 500; i++) {
                free(old[i]);
            }
            for (unsigned i = 500; i < 600; i++) {
                old[i] = realloc(old[i], 300);
            }
        } else if (phase == AFTER) {
            counts sum;

            for (const counts &one : counted) {
                sum.blocks += one.blocks;
                sum.bytes += one.bytes;
                sum.frees += one.frees;
                sum.maps += one.maps;
                sum.map_bytes += one.map_bytes;
            }
            printf("counted %lu %lu %lu %lu %lu\n", sum.blocks, sum.bytes, sum.frees, sum.maps, sum.map_bytes);
            fflush(stdout);
        }
        pthread_barrier_wait(&barrier);
    }
    uint64_t checksum = 0, errors = 0;
    for (unsigned i = 0; i < thread_count; i++) {
        threads[i].join();
        checksum = checksum * 31 + checksums[i];
        errors += wrong[i];
    }
    printf("checksum %lu errors %lu\n", checksum, errors);
    return errors != 0;
}
