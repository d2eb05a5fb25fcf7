# SPDX-License-Identifier: Apache-2.0
"""The table `storage` worked out a second time, naively, from the events of a database: what tests compare it with."""

STORAGE, VIEW, SHARED, MAPPED = 1, 2, 3, 4
COLUMNS = ("process_id", "number", "kind", "dtype", "addr", "size", "elements", "device", "create_seq", "create_ns",
           "destroy_seq",
           "destroy_ns", "callsite_id", "tid", "writes", "reads", "last_use_ns", "leak_seq", "leak_cause",
           "leak_references")
# Base and allocation by what they are, not by their rows' numbers.
NAMED = ("base", "allocation")

EVENTS = ("SELECT e.seq, e.ts_ns, t.process_id, e.tid, e.kind, e.device, e.id, e.addr, e.size, e.requested, e.arg,"
          " c.code, e.callsite_id"
          " FROM events e JOIN thread t ON t.id = e.thread_id LEFT JOIN event_cause c ON c.text = e.cause"
          " WHERE e.kind IN ('storage_create', 'storage_destroy', 'view', 'copy', 'cast', 'transfer', 'share', 'map',"
          " 'leak', 'alloc', 'free_completed') ORDER BY e.seq")


class Model:
    def __init__(self, connection):
        self.rows, self.alive, self.blocks, self.base_of = [], {}, {}, {}
        self.bytes = dict(connection.execute("SELECT code, bytes FROM element_type"))
        for event in connection.execute(EVENTS):
            self.take(*event)

    def row(self, process, number):
        return self.alive.get((process, number))

    def uses(self, process, number):
        """A storage that elements came to or from, and its base."""
        row = self.row(process, number)
        return [] if row is None else [row] + [base for base in [self.base_of.get(id(row))] if base
                                               and not base["destroy_seq"]]

    def block_at(self, process, device, addr):
        for start, (size, seq) in self.blocks.get((process, device), {}).items():
            if start <= addr < start + size:
                return seq
        return None

    def open(self, kind, seq, ts_ns, process, tid, number, addr, size, callsite):
        row = dict.fromkeys(COLUMNS + NAMED)
        row.update(process_id=process, number=number, kind=kind, addr=addr, size=size, create_seq=seq, create_ns=ts_ns,
                   tid=tid, callsite_id=callsite, writes=0, reads=0)
        self.rows.append(row)
        self.alive[process, number] = row
        return row

    def take(self, seq, ts_ns, process, tid, kind, device, number, addr, size, requested, arg, cause, callsite):
        if kind == "alloc":
            self.blocks.setdefault((process, device), {})[addr] = (size, seq)
        elif kind == "free_completed":
            self.blocks.get((process, device), {}).pop(addr, None)
        elif kind == "storage_create":
            row = self.open(STORAGE, seq, ts_ns, process, tid, number, addr, size, callsite)
            row.update(dtype=arg & 255, elements=requested)
            if arg >> 8:
                row.update(device=device, allocation=self.block_at(process, device, addr))
        elif kind == "view":
            base = self.row(process, arg)
            row = self.open(VIEW, seq, ts_ns, process, tid, number, addr, size, callsite)
            if base is not None:
                self.base_of[id(row)] = base
                row.update({key: base[key] for key in ("dtype", "device", "allocation")})
                row.update(base=arg, elements=size // self.bytes[base["dtype"]])
        elif kind == "storage_destroy" and self.row(process, number):
            self.alive.pop((process, number)).update(destroy_seq=seq, destroy_ns=ts_ns)
        elif kind in ("share", "map") and self.row(process, number):
            self.row(process, number)["kind"] = SHARED if kind == "share" else MAPPED
        elif kind in ("copy", "cast", "transfer"):
            for which, one in (("writes", number), ("reads", requested)):
                for row in self.uses(process, one):
                    row[which] += 1
                    row.update(last_use_ns=ts_ns, leak_seq=None, leak_cause=None, leak_references=None)
        elif kind == "leak" and self.row(process, number):
            self.row(process, number).update(leak_seq=seq, leak_cause=cause, leak_references=requested)


def expected(connection):
    return sorted((tuple(row[key] for key in COLUMNS + NAMED) for row in Model(connection).rows), key=repr)


def found(connection):
    columns = ", ".join("s." + column for column in COLUMNS)
    return sorted(connection.execute(
        f"SELECT {columns}, b.number, a.alloc_seq FROM storage s LEFT JOIN storage b ON b.id = s.base_id"
        " LEFT JOIN allocation a ON a.id = s.allocation_id").fetchall(), key=repr)
