#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the declaration of trace databases (trace/store/schema.sql and views.sql; the former says how it is annotated):
both without their comments, the table `help`, and the columns of the tables whose rows C code packs itself.

declare_database.py SCHEMA VIEWS FOLDER: writes schema.sql, views.sql, help.sql and columns_generated.h there."""

import os
import re
import sys
from typing import NamedTuple

# What SQLite reads, then a remark (--) or a meaning (---). No literal of either file holds two dashes.
LINE = re.compile(r"((?:[^-]|-(?!-))*)(?:(---?)(?!-) ?(.*))?")
BEGIN = re.compile(r"CREATE (?:TABLE|VIEW) (\w+)")
PACKED = re.compile(r"\[(.*?)(?: if (\w+))?\](?: |$)")

# The first of several that have the column counts, so the order of the join is fixed.
HELP_ALIKE = """INSERT OR IGNORE INTO help
    WITH alike(name, source) AS (VALUES {})
    SELECT a.name, c.name, h.meaning FROM alike a CROSS JOIN pragma_table_info(a.name) c CROSS JOIN help h
    ON h.name = a.source AND h.column = c.name;
"""
# What is not said otherwise. The columns of each view are asked for once, as that takes its expansion.
HELP_COMMON = """INSERT OR IGNORE INTO help
    WITH common(column, meaning) AS (VALUES {})
    SELECT s.name, c.name, m.meaning
    FROM sqlite_schema s CROSS JOIN pragma_table_info(s.name) c CROSS JOIN common m ON m.column = c.name
    WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite%';
"""


class Declared(NamedTuple):
    """A table or view: what its columns mean, '' being the whole, and the definitions of a table's columns."""

    name: str
    meanings: dict
    columns: dict


def columns_of(code):
    """The columns in the text of CREATE TABLE, which may end early."""
    depth, parts = 0, [""]
    for character in code.partition("(")[2]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    words = [part.split(None, 1) for part in parts if part.strip()]
    return {name: "".join(definition) for name, *definition in words if name not in ("PRIMARY", "UNIQUE")}


def read(path):
    """What SQLite reads of a file, and what it declares."""
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    lines, found, above, code = [], [], "", ""
    for line in text.split("\n"):
        sql, mark, meaning = LINE.fullmatch(line).groups()
        begun = BEGIN.match(sql)
        if begun:
            whole, *items = above.lstrip("\n").replace("\n    ", " ").replace(" | ", "\n").split("\n")
            found.append(Declared(begun[1], {"": whole, **dict(item.split(": ", 1) for item in items)}, {}))
            above = code = ""
        if sql.strip():
            lines.append(sql.rstrip())
            code += sql + "\n"
            if code.startswith("CREATE TABLE"):
                found[-1].columns.update(columns_of(code))
        if mark == "---" and line.startswith("---"):
            above += "\n" + meaning
        elif mark == "---":
            column, meanings = list(found[-1].columns)[-1], found[-1].meanings
            meanings[column] = f"{meanings.get(column, '')} {meaning}".strip()
    return "\n".join(lines) + "\n", found


def values(rows):
    """Rows of texts as SQL has them."""
    return ",\n    ".join("(" + ", ".join("'" + text.replace("'", "''") + "'" for text in row) + ")" for row in rows)


def help_of(declared):
    """SQL that fills the table `help`."""
    like = {table.name: table.meanings.get("like", "").split(", ") for table in declared}

    def sources(name):
        """Whose columns mean the same, the nearest first."""
        return [found for source in like.get(name, ()) if source for found in (source, *sources(source))]

    said, common = [], []
    for table in declared:
        for column, meaning in table.meanings.items():
            meaning = PACKED.sub("", meaning, count=1) if meaning.startswith("[") else meaning
            if column.startswith("*."):
                common.append((column[2:], meaning))
            elif meaning and column != "like":
                said.append((table.name, column, meaning))
    alike = [(name, source) for name in like for source in sources(name)]
    return (f"INSERT INTO help VALUES\n    {values(said)};\n" + HELP_ALIKE.format(values(alike)) +
            HELP_COMMON.format(values(common)))


def packed_of(table):
    """C: the columns of a table by number, with what C code packs into them and when they have a value at all."""
    row = PACKED.match(table.meanings[""])
    if not row:
        return ""
    prefix = re.sub("_row$", "", table.name)
    columns, defaults, members, uses = [], [], [], []
    for name, definition in table.columns.items():
        number = f"{prefix}_{name}".upper()
        packed = PACKED.match(table.meanings.get(name, ""))
        member, use = packed.groups() if packed else (None, None)
        columns.append(number)
        default = re.search(r"DEFAULT @?(\w+)", definition)
        if default:
            defaults.append(f"X({number}, {re.sub('^CAUSE_', 'VARVE_CAUSE_', default[1])})")
        members += [f"X({number}, {member or f'{row[1]}->{name}'})"] if member != "?" else []
        uses += [f"X({number}, USE_{use})"] if use else []
    upper = prefix.upper()
    lists = {f"{upper}_MEMBERS(X)": members, f"{upper}_USES(X)": uses, f"{upper}_DEFAULTS(X)": defaults}
    return (f"\n/* {table.name} */\nenum {prefix}_column {{\n    " + ",\n    ".join([*columns, f"{upper}_COLUMNS"]) +
            ",\n};\n" +
            "".join(f"#define {name} \\\n    " + " \\\n    ".join(rows) + "\n" for name, rows in lists.items() if rows))


def main():
    schema, views, folder = sys.argv[1:]
    schema, tables = read(schema)
    views, others = read(views)
    header = ("/* Made of trace/store/schema.sql by cmake/declare_database.py. */\n"
              "#ifndef COLUMNS_GENERATED_H\n#define COLUMNS_GENERATED_H\n\n/* of all tables */\n"
              f"#define DATABASE_COLUMNS {sum(len(table.columns) for table in tables)}\n" +
              "".join(map(packed_of, tables)) +
              "\n#endif\n")
    for name, text in (("schema.sql", schema), ("views.sql", views), ("help.sql", help_of(tables + others)),
                       ("columns_generated.h", header)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)


if __name__ == "__main__":
    main()
