// SPDX-License-Identifier: Apache-2.0
//
// Four threads with 30,000 blocks of 33,333 to 33,340 bytes each from operator new, given back in two ways, and a child
// forked meanwhile with 1,000 blocks of 44,444 bytes.
#include <cstddef>
#include <cstdlib>
#include <new>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static void *volatile sinks[4];

static void work(int number)
{
    for (int i = 0; i < 30000; i++) {
        void *block = ::operator new(static_cast<std::size_t>(33333 + (i & 7)));
        sinks[number] = block;
        if ((i & 1) != 0) {
            ::operator delete(block);
        } else {
            std::free(block);
        }
    }
}

int main()
{
    std::vector<std::thread> threads;

    for (int number = 0; number < 4; number++) {
        threads.emplace_back(work, number);
    }
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 1000; i++) {
            void *block = ::operator new(44444);
            sinks[0] = block;
            ::operator delete(block, std::size_t{44444});
        }
        _exit(0);
    }
    for (auto &thread : threads) {
        thread.join();
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
