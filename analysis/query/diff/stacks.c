/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols are numbered by their words, then stacks by the numbers of their symbols: texts are compared once for each
 * symbol, not for each frame.
 */
#include "analysis/query/diff/stacks.h"

#include "analysis/query/db.h"

#define MAKE_SIDE(side, address)                                                                            \
    "CREATE TABLE symbol_" side "(id INTEGER PRIMARY KEY, number INTEGER);"                                 \
    "INSERT INTO symbol_" side " SELECT w.id, k.id FROM words_" side                                        \
    " w JOIN symbol_key k ON k.words = w.words;"                                                            \
    "CREATE TABLE frames_" side "(callsite_id INTEGER PRIMARY KEY, frames TEXT);"                           \
    "INSERT INTO frames_" side " SELECT callsite_id, group_concat(frame, ' ') FROM (SELECT f.callsite_id, " \
    "coalesce(s.number, 0) || " address " AS frame FROM " side ".callsite_frame f LEFT JOIN symbol_" side   \
    " s ON s.id = f.symbol_id ORDER BY f.callsite_id, f.depth) GROUP BY callsite_id;"

#define NUMBER_SIDE(side)                                                          \
    "CREATE TABLE stack_" side "(callsite_id INTEGER PRIMARY KEY, stack INTEGER);" \
    "INSERT INTO stack_" side " SELECT f.callsite_id, k.id FROM frames_" side      \
    " f JOIN stack_key k USING (frames);"

#define MAKE(words, address)                                                                                                     \
    "CREATE TABLE words_a AS SELECT id, " words " AS words FROM a.symbol;"                                                       \
    "CREATE TABLE words_b AS SELECT id, " words " AS words FROM b.symbol;"                                                       \
    "CREATE TABLE symbol_key(id INTEGER PRIMARY KEY, words TEXT UNIQUE);"                                                        \
    "INSERT INTO symbol_key(words) SELECT words FROM words_a UNION SELECT words FROM words_b;" MAKE_SIDE(                        \
        "a", address)                                                                                                            \
        MAKE_SIDE(                                                                                                               \
            "b",                                                                                                                 \
            address) "CREATE TABLE stack_key(id INTEGER PRIMARY KEY, frames TEXT UNIQUE);"                                       \
                     "INSERT INTO stack_key(frames) SELECT frames FROM frames_a UNION SELECT frames FROM frames_b;" NUMBER_SIDE( \
                         "a") NUMBER_SIDE("b")

void diff_stacks_make(struct database *two, enum diff_frames frames)
{
    database_execute(two,
                     frames == DIFF_FRAMES_WHOLE
                         ? MAKE("quote(function) || ',' || quote(file) || ',' || quote(module) || ',' || "
                                "coalesce(line, 0) || ',' || coalesce(is_python, 0) || ',' || "
                                "coalesce(is_inlined, 0)",
                                "coalesce(':' || f.pc, '')")
                         : MAKE("CASE WHEN function IS NULL AND file IS NULL THEN quote(module) ELSE "
                                "quote(function) || ',' || quote(file) || ',' || coalesce(line, 0) END",
                                "''"));
}
