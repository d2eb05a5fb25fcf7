// SPDX-License-Identifier: Apache-2.0
//
// What C++ programs do: maps of strings, vectors that grow, lists and shared pointers, some kept and most dropped,
// below calls of several depths. What a recording costs is measured by it (tests/bench/bench_cost.py).
//
//   cxx_containers ROUNDS
//
// Prints one JSON object: a sum of what was made, and when main is over, in seconds since 1970.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace
{

struct record {
    std::string name;
    std::vector<int> values;
    std::shared_ptr<std::string> note;
};

std::map<std::string, record> kept;

std::string name_of(unsigned round, unsigned index)
{
    return "a name that does not fit into the object " + std::to_string(round * 1000 + index);
}

size_t fill(std::vector<record> &records, unsigned round, unsigned depth)
{
    if (depth > 0) {
        return fill(records, round, depth - 1) + 1;
    }
    for (unsigned i = 0; i < 40; i++) {
        record made;
        made.name = name_of(round, i);
        for (unsigned j = 0; j < i % 9; j++) {
            made.values.push_back(static_cast<int>(j));
        }
        made.note = std::make_shared<std::string>(made.name + " with a note");
        records.push_back(std::move(made));
    }
    return records.size();
}

size_t round_run(unsigned round)
{
    std::vector<record> records;
    size_t sum = fill(records, round, round % 12);
    std::list<std::string> names;
    std::map<unsigned, std::string> index;
    for (const record &made : records) {
        names.push_back(made.name);
        index[static_cast<unsigned>(made.name.size() * 31 + names.size())] = made.name;
    }
    if (round % 50 == 0) {
        kept[records.front().name] = records.front();
    }
    return sum + names.size() + index.size();
}

} // namespace

int main(int argc, char **argv)
{
    const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 1;
    size_t sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        sum += round_run(round);
    }
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    std::printf("{\"program\":\"cxx_containers\",\"sum\":%zu,\"kept\":%zu,\"end_s\":%.6f}\n", sum, kept.size(),
                now.count());
    return 0;
}
