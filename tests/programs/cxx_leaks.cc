// SPDX-License-Identifier: Apache-2.0
// A service with one leak, or none: cxx_leaks cache|list|cycle|none SEED. Around it is what looks like leaks and is
// none: tables that are made first and kept, a cache that fills and then only replaces, a queue that swings, buffers
// of threads, and short-lived strings. Each step works and waits a moment, so that the run has a beginning and an
// end. Lines that leak are marked.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace
{

constexpr int STEPS = 600;

std::mt19937_64 generator;

std::size_t below(std::size_t limit)
{
    return generator() % limit;
}

struct Session {
    std::shared_ptr<Session> peer;
    std::string name;
};

struct Ticket {
    int number;
    char text[72];
};

std::unordered_map<std::size_t, std::string> replies;
std::list<Ticket> *tickets = new std::list<Ticket>;
std::map<int, std::string> table;
std::unordered_map<std::size_t, std::vector<char>> pages;
std::deque<std::string> queue;

void remember_reply(std::size_t key)
{
    replies.emplace(key, "reply"); // leak: cache
}

void file_ticket(int number)
{
    tickets->push_back(Ticket{number, "open"}); // leak: list
}

void open_session()
{
    auto first = std::make_shared<Session>(); // leak: cycle
    first->peer = std::make_shared<Session>(); // leak: cycle
    first->peer->peer = first;
}

void open_and_close_session()
{
    auto first = std::make_shared<Session>();
    first->peer = std::make_shared<Session>();
}

void load_table()
{
    for (int i = 0; i < 4000; i++) {
        table[i] = std::string(100 + below(300), 't');
    }
}

void read_page(std::size_t number)
{
    if (pages.size() >= 200) {
        pages.erase(pages.begin());
    }
    pages[number] = std::vector<char>(2000 + below(2000));
}

void swing_queue(int step)
{
    std::size_t wanted = 20 + static_cast<std::size_t>(step * 7 % 50);
    while (queue.size() > wanted) {
        queue.pop_front();
    }
    while (queue.size() < wanted) {
        queue.push_back(std::string(40 + below(60), 'q'));
    }
}

std::size_t parse_request()
{
    std::vector<std::string> words;
    for (int i = 0; i < 20; i++) {
        words.push_back(std::string(20 + below(80), 'w'));
    }
    std::size_t bytes = 0;
    for (const std::string &word : words) {
        bytes += word.size();
    }
    return bytes;
}

void work_in_thread(const std::atomic<bool> &is_over, unsigned seed)
{
    std::minstd_rand random(seed);
    std::vector<std::string> buffers(32, std::string(500, 'b'));
    while (!is_over) {
        buffers[random() % buffers.size()] = std::string(200 + random() % 800, 'b');
        std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
}

} // namespace

int main(int argc, char **argv)
{
    const std::string kind = argc > 1 ? argv[1] : "none";
    const unsigned seed = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1;
    const std::size_t every = 1 + seed % 3;
    std::atomic<bool> is_over{false};
    std::vector<std::thread> pool;

    generator.seed(seed);
    load_table();
    for (unsigned i = 0; i < 3; i++) {
        pool.emplace_back(work_in_thread, std::cref(is_over), seed + i);
    }
    for (int step = 0; step < STEPS; step++) {
        parse_request();
        read_page(below(1000));
        swing_queue(step);
        open_and_close_session();
        if (static_cast<std::size_t>(step) % every == 0) {
            if (kind == "cache") {
                remember_reply(generator());
            } else if (kind == "list") {
                file_ticket(step);
            } else if (kind == "cycle") {
                open_session();
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    is_over = true;
    for (std::thread &thread : pool) {
        thread.join();
    }
    return 0;
}
