#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the declaration of trace databases (trace/store/schema.sql and views.sql; the former says how it is annotated):
both without their comments, the table `help`, and the columns of the tables whose rows C code packs itself.

declare_database.py SCHEMA VIEWS FOLDER: writes schema.sql, views.sql, help.sql and columns_generated.h there."""

import contextlib
import os
import re
import sqlite3
import sys
from typing import NamedTuple

# What SQLite reads, then a remark (--) or a meaning (---). No literal of either file holds two dashes.
LINE = re.compile(r"((?:[^-]|-(?!-))*)(?:(---?)(?!-) ?(.*))?")
BEGIN = re.compile(r"CREATE (?:TABLE|VIEW) (\w+)")
PACKED = re.compile(r"\[(.*?)(?: if (\w+))?\](?: |$)")

CODE = re.compile(r"@\w+@")  # its value comes later, by SqlCodes.cmake


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


def all_columns(*sql):
    """The columns of each table and view that SQL makes."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        for text in sql:
            database.executescript(CODE.sub("0", text))
        names = database.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
        return {name: [row[1] for row in database.execute(f"PRAGMA table_info({name})")] for name, in names}


def help_of(declared, columns):
    """SQL that fills the table `help`. SQLite takes 0.1 s to find the columns of all views."""
    like = {table.name: table.meanings.get("like", "").split(", ") for table in declared}
    meanings = {table.name: {} for table in declared}
    common = {}

    def sources(name):
        """Whose columns mean the same, the nearest first."""
        return [found for source in like.get(name, ()) if source for found in (source, *sources(source))]

    for table in declared:
        for column, meaning in table.meanings.items():
            meaning = PACKED.sub("", meaning, count=1) if meaning.startswith("[") else meaning
            if column.startswith("*."):
                common[column[2:]] = meaning
            elif meaning and column != "like":
                meanings[table.name][column] = meaning
    said = {name: dict(texts) for name, texts in meanings.items()}
    for name, texts in meanings.items():
        for column in columns[name]:
            found = [said[source][column] for source in sources(name) if column in said[source]]
            found += [common[column]] if column in common else []
            if found:
                texts.setdefault(column, found[0])
    rows = [(name, column, meaning) for name, texts in sorted(meanings.items())
            for column, meaning in sorted(texts.items())]
    return f"INSERT INTO help VALUES\n    {values(rows)};\n"


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
    help_text = help_of(tables + others, all_columns(schema, views))
    for name, text in (("schema.sql", schema), ("views.sql", views), ("help.sql", help_text),
                       ("columns_generated.h", header)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)


if __name__ == "__main__":
    main()
