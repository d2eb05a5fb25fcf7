// SPDX-License-Identifier: Apache-2.0
// Workers parse messages and end; one message in fifty is bad, and its buffer is not freed. Meanwhile and afterwards
// the program does other work, with blocks that it keeps and blocks that it frees: cxx_error_path WORKERS MESSAGES.

#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

std::vector<std::string> kept;

int parse_message(const std::string &text, int number)
{
    char *scratch = new char[2048]; // leak: error
    std::memcpy(scratch, text.data(), text.size());
    if (number % 50 == 49) {
        throw std::runtime_error("bad message " + std::to_string(number));
    }
    const int first = scratch[0];
    delete[] scratch;
    return first;
}

void work(int messages)
{
    for (int i = 0; i < messages; i++) {
        try {
            parse_message("hello", i);
        } catch (const std::exception &) {
        }
    }
}

void build_table()
{
    std::map<int, std::string> scores;
    for (int i = 0; i < 3000; i++) {
        scores[i % 100] = std::string(40 + static_cast<std::size_t>(i % 60), 's');
        kept.push_back(std::string(100, 'k'));
    }
}

} // namespace

int main(int argc, char **argv)
{
    const int workers = argc > 1 ? std::atoi(argv[1]) : 4, messages = argc > 2 ? std::atoi(argv[2]) : 1000;
    build_table();
    std::vector<std::thread> pool;
    for (int i = 0; i < workers; i++) {
        pool.emplace_back(work, messages);
    }
    for (std::thread &worker : pool) {
        worker.join();
    }
    std::size_t bytes = 0;
    for (int i = 0; i < 8 * workers * messages; i++) {
        bytes += std::string(60 + static_cast<std::size_t>(i % 90), 'x').size();
    }
    return bytes == 0;
}
