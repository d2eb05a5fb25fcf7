/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of PyTorch's snapshots: random ones of protocols 2 to 5 and of both picklers of Python, with the
 * expected history beside them, and the shapes of old and of newer versions. Of those that are wrong each error names
 * the entry and the key and says what is there instead; a byte changed or a cut at any place ends in one line or in a
 * history.
 * Runs threads: files are read ahead by one.
 * Costs: 3 s, full 4 s
 */
#include "support/history_python.h"
#include "support/random.h"

/* ---- what Python makes ---- */

static const char random_snapshots[] =
    "number, protocol, size = map(int, sys.argv[1:4]); random.seed(number); r = random.randrange\n"
    "actions = 'alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap "
    "snapshot"
    " oom'.split()\n"
    "states = 'inactive active_allocated active_pending_free'.split(); out = []\n"
    "frames = [{'name': 'f%d' % r(9), 'filename': 'x%d.py' % r(5), 'line': r(3)} for _ in range(20)]\n"
    "for f in frames[:5]: f['fx_node'] = ['more', {'x': 1.5}]\n"
    "stacks = [[random.choice(frames) for _ in range(r(6))] for _ in range(30)]\n"
    "def mix(d):\n"
    "    if r(5) == 0: d[random.choice(('new', 'version', 3))] = random.choice((None, 'x' * 300, 2**70, [[], "
    "{}],\n"
    "        {'frames': random.choice(stacks)}, (1, 2.5)))\n"
    "    items = list(d.items()); random.shuffle(items); return dict(items)\n"
    "def stack(): return random.choice((random.choice(stacks), random.choice(stacks), []))\n"
    "def text(s): return ''.join(' %s:%d:%s' % (f['filename'], f['line'], f['name']) for f in s)\n"
    "streams = [0] + [random.getrandbits(64) for _ in range(4)]\n"
    "devices = r(4) + (size > 2000); traces = []; segments = []; over = []\n"
    "for device in range(devices):\n"
    "    trace = []; skipped = 0; over.append(r(2) == 1); lines = []\n"
    "    for _ in range(random.choice((0, 1, 2, size))):\n"
    "        a = r(9); s = random.choice(streams); k = stack(); addr = random.getrandbits(random.choice((9, "
    "47, 64)))\n"
    "        n = random.getrandbits(random.choice((7, 16, 40))); t = random.getrandbits(51)\n"
    "        e = {'action': actions[a], ('device_free' if a == 8 and r(2) else 'addr'): addr, 'size': n, "
    "'stream': s,\n"
    "             'time_us': t, 'frames': k, 'compile_context': 'N/A', 'user_metadata': ''}\n"
    "        if not k and r(2): del e['frames']\n"
    "        trace.append(mix(e)); lines.append('e %d %d %d %d %d%s' % (a, addr, n, s, t, text(k)))\n"
    "        if r(30) == 0: trace.append({'action': 'annotate', 'name': 'x'}); skipped += 1\n"
    "    traces.append(trace); at = r(1 << 30) << 12; mine = []\n"
    "    for _ in range(random.choice((0, 1, 2, size // 10))):\n"
    "        at += r(3) << 21; address = at; blocks = []; sub = []; u = random.choice(streams); k = stack()\n"
    "        for _ in range(r(6) + 1):\n"
    "            n = (r(100) + 1) * 512; q = r(n + 1); z = r(3); b = stack()\n"
    "            d = {'address': at, 'size': n, 'requested_size': q, 'state': states[z], 'frames': b}\n"
    "            if r(3) == 0: del d['address']\n"
    "            blocks.append(mix(d)); sub.append('b %d %d %d %d%s' % (at, n, q, z, text(b))); at += n\n"
    "        sums = [r(9) for _ in range(3)]; pool = [r(3), r(3)]; small = r(2); grows = r(2)\n"
    "        head = 's %d %d %d %d %d %d %d %d %d %d%s' % (address, at - address, *sums, u, *pool, small, "
    "grows, text(k))\n"
    "        mine.append((mix({'device': device, 'address': address, 'total_size': at - address,\n"
    "            'allocated_size': sums[0], 'active_size': sums[1], 'requested_size': sums[2], 'stream': u,\n"
    "            'segment_type': 'small' if small else 'large', 'is_expandable': bool(grows), 'blocks': "
    "blocks,\n"
    "            'segment_pool_id': random.choice((tuple, list))(pool), 'frames': k}), [head] + sub))\n"
    "    for s in mine: lines += s[1]\n"
    "    random.shuffle(mine); segments += [s[0] for s in mine]\n"
    "    out += ['device %d %d' % (skipped, over[-1])] + lines\n"
    "settings = {'PYTORCH_CUDA_ALLOC_CONF': 'a:b', 'max_split_size': r(99) - 1, "
    "'garbage_collection_threshold': 0.5,\n"
    "            'expandable_segments': r(2) == 1, 'roundup_power2_divisions': {str(1 << i): i for i in "
    "range(16)}}\n"
    "out.append(\"settings 1 'a:b' %d 0.5 %d %s\" % (settings['max_split_size'], "
    "settings['expandable_segments'],\n"
    "           ' '.join(map(str, range(16)))))\n"
    "d = mix({'segments': segments, 'device_traces': traces, 'allocator_settings': settings, "
    "'external_annotations':\n"
    "         [{'name': 'n', 'stage': 'START'}] * r(4), 'trace_alloc_overflowed': over, 'other': [stacks]})\n"
    "for pickler in (pickle.Pickler, pickle._Pickler): pack(d, '\\n'.join(out).encode() + b'\\n', protocol, "
    "pickler)\n";

static void assert_history(const struct made *made, const char *expected)
{
    struct varve_message message = {""};
    struct history *history;
    if (read_bytes(made->data, made->bytes, &history, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    char *text = print_history(history);
    for (size_t i = 0, line = 1; text[i] != '\0' || expected[i] != '\0'; i++) {
        if (text[i] != expected[i]) {
            fail_msg("line %zu: …%.150s instead of …%.150s", line, text + i, expected + i);
        }
        line += text[i] == '\n';
    }
    free(text);
    history_free(history);
}

/* ---- tests ---- */

TEST(test_random)
{
    for (int number = 1; number <= test_rounds(10, 24); number++) {
        struct made made = {0};
        char arguments[60];
        int count = 0;
        snprintf(arguments, sizeof(arguments), "%d %d %d", number, 2 + number % 4, number % 5 == 0 ? 2500 : 60);
        FILE *pipe = python_open(random_snapshots, arguments);
        while (python_next(pipe, &made)) {
            assert_history(&made, made.expected);
            made_free(&made);
            count++;
        }
        assert_int_equal(count, 2);
    }
}

#define SETTINGS_UNKNOWN "settings 0 '' -1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"

/* Python that packs, and the history that it gives. */
static const struct {
    const char *made;
    const char *expected;
} shapes[] = {
    {"pack([])", SETTINGS_UNKNOWN},
    {"pack(snapshot(device_traces=[]))", SETTINGS_UNKNOWN},
    {"pack({'device_traces': [[event()], []]})", "device 0 0\ne 0 4096 512 0 7\ndevice 0 0\n" SETTINGS_UNKNOWN},
    {"pack({'segments': ()})", SETTINGS_UNKNOWN},
    {"pack({'segments': (segment(),), 'device_traces': ((event(),),)})", /* kept whole */
     "device 0 0\ne 0 4096 512 0 7\ns 2097152 2097152 0 0 0 0 0 0 1 0\nb 2097152 2097152 0 "
     "0\n" SETTINGS_UNKNOWN},
    {"pack([segment(), segment(address=-(4 << 20), device=1)])", /* of 1.x */
     "device 0 0\ns 2097152 2097152 0 0 0 0 0 0 1 0\nb 2097152 2097152 0 0\n"
     "device 0 0\ns 18446744073705357312 2097152 0 0 0 0 0 0 1 0\nb 18446744073705357312 2097152 0 "
     "0\n" SETTINGS_UNKNOWN},
    {"f = [{'filename': 'a.py', 'line': 3, 'name': 'g'}]\n"
     "h = [{'addr': 1, 'real_size': 1000, 'frames': f}, {'addr': 2, 'real_size': 2, 'frames': f}]\n"
     "pack([segment(blocks=[{'size': 1024, 'state': 'active_allocated', 'history': h},\n"
     "    {'size': 512, 'state': 'active_awaiting_free'}, {'size': 512, 'state': 'inactive', 'history': "
     "[]}])])",
     "device 0 0\ns 2097152 2097152 1024 1536 1512 0 0 0 1 0\nb 2097152 1024 1000 1 a.py:3:g\n"
     "b 2098176 512 512 2\nb 2098688 512 0 0\n" SETTINGS_UNKNOWN},
    {"e = event(frames=None, time_us=0)\npack(snapshot(device_traces=[[e]], trace_alloc_overflowed=True))",
     "device 0 1\ne 0 4096 512 0 0\n" SETTINGS_UNKNOWN},
    {"e = event(frames=None, time_us=0)\npack(snapshot(device_traces=[[e]],\n"
     "    allocator_settings={'trace_alloc_overflowed': [True], 'trace_alloc_max_entries': [1]}))",
     "device 0 1\ne 0 4096 512 0 0\nsettings 1 '' -1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"},
    {"pack(snapshot(trace_alloc_overflowed={0: False, 1: True}))", "device 0 0\ndevice 0 1\n" SETTINGS_UNKNOWN},
    {"pack(snapshot(allocator_settings={'max_split_size': 2**64 - 1, 'roundup_power2_divisions': 4}))",
     "device 0 0\nsettings 1 '' -1 0 0 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4\n"},
    {"e = event('annotate'); pack(snapshot(device_traces=[[e, event()]], more=[e, e]))",
     "device 1 0\ne 0 4096 512 0 7\n" SETTINGS_UNKNOWN},
};

TEST(test_shapes)
{
    FILE *pipe = python_open_each(&shapes[0].made, sizeof(shapes[0]), sizeof(shapes) / sizeof(shapes[0]));
    struct made made;
    size_t i = 0;
    for (; python_next(pipe, &made); i++) {
        assert_history(&made, shapes[i].expected);
        made_free(&made);
    }
    assert_int_equal(i, sizeof(shapes) / sizeof(shapes[0]));
}

/* ---- snapshots that are wrong ---- */

static const char plain[] =
    "f = [{'filename': 'a.py', 'line': i, 'name': 'g'} for i in range(9)]\n"
    "traces = [[event(frames=f[:i % 9], addr=i << 9) for i in range(40)] for _ in range(2)]\n"
    "segments = [segment(address=i << 21, frames=f, segment_pool_id=(0, 0)) for i in range(9)]\n"
    "settings = {'PYTORCH_CUDA_ALLOC_CONF': 'a:b', 'max_split_size': -1, 'garbage_collection_threshold': "
    "0.5}\n"
    "d = {'segments': segments, 'device_traces': traces, 'allocator_settings': settings, 'more': [f, "
    "traces]}\n"
    "for protocol in range(2, 6): pack(d, b'', protocol)\n";

/* Cut or with a byte changed, it ends in a message of one line or in a history. */
TEST(test_damaged)
{
    FILE *pipe = python_open(plain, "");
    struct made made = {0};
    uint64_t seed = 3;
    while (python_next(pipe, &made)) {
        for (int i = 0; i < test_rounds(500, 1500); i++) {
            struct varve_message message = {""};
            struct history *history = NULL;
            size_t at = random_below(&seed, made.bytes);
            char before = made.data[at];
            made.data[at] = (char)random_next(&seed);
            int error = read_bytes(made.data, i % 2 == 0 ? made.bytes : at + 1, &history, &message);
            assert_true((error == VARVE_OK) == (history != NULL));
            assert_true(error == VARVE_OK || (message.text[0] != '\0' && strchr(message.text, '\n') == NULL));
            history_free(history);
            made.data[at] = before;
        }
        made_free(&made);
    }
}

/* Keys that mean nothing here are kept once, however many there are. */
TEST(test_many_keys)
{
    FILE *pipe = python_open("pack({**snapshot(), **{'k%d' % i: i for i in range(5000)}})\n", "");
    struct made made = {0};
    struct varve_message message = {""};
    struct history *history = NULL;
    assert_true(python_next(pipe, &made));
    assert_int_equal(read_bytes(made.data, made.bytes, &history, &message), VARVE_OK);
    assert_true(history_text_bytes(history, history->rests.root) > 5000 * 10);
    assert_true(history->text_count < 100);
    history_free(history);
    made_free(&made);
    assert_false(python_next(pipe, &made));
}

/* Python that packs, and the end of the message; %zu… the byte is checked by the two that name it. */
static const struct {
    const char *made;
    const char *expected;
} errors[] = {
    {"pack(5)", "p: at byte 2: the pickle holds an integer, not a snapshot (a dict, or a list of segments)"},
    {"pack({})", ": not a snapshot: it has neither key 'segments' nor key 'device_traces'"},
    {"pack({'a': [1]})", ": not a snapshot: it has neither key 'segments' nor key 'device_traces'"},
    {"pack(([],))", "the pickle holds a tuple, not a snapshot (a dict, or a list of segments)"},
    {"pack([5])", ": segment 0: is an integer, not a dict"},
    {"pack(snapshot(segments=5))", ": 'segments' is an integer, not a list"},
    {"pack(snapshot(device_traces=None))", ": 'device_traces' is None, not a list"},
    {"pack(snapshot(device_traces=[event()]))", ": device 0: 'device_traces' is a dict, not a list"},
    {"pack(snapshot(device_traces=[[]] * 300))", ": device 1: 'device_traces' refers back to a consumed entry"},
    {"pack(snapshot(device_traces=[[] for _ in range(300)]))",
     ": device 256: 'device_traces' is for more than 256 devices"},
    {"pack(snapshot(device_traces=[[7]]))", ": event 0 of device 0: is an integer, not a dict"},
    {"e = event(); pack(snapshot(device_traces=[[e, e]]))", ": event 1 of device 0: refers back to a consumed entry"},
    {"e = event(); pack(snapshot(device_traces=[[e] + [event() for _ in range(3000)] + [e]]))",
     ": event 3001 of device 0: refers back to a consumed entry"},
    {"e = event(); e['frames'] = [e]; pack(snapshot(device_traces=[[e]]))",
     ": event 0 of device 0: is a frame of its own stack"},
    {"l = []; l.append(l); pack(snapshot(device_traces=l))",
     ": device 0: its trace was begun elsewhere in the snapshot"},
    {"d = snapshot(); d['segments'] = [d]; pack(d)", ": segment 0: key 'address' is missing"},
    {"pack([segment(device=256)])", ": segment 0: 'device' is an integer, not a device number from 0 to 255"},
    {"pack([without(segment(), 'address')])", ": segment 0: key 'address' is missing"},
    {"pack([without(segment(), 'total_size')])", ": segment 0: key 'total_size' is missing"},
    {"pack([without(segment(), 'blocks')])", ": segment 0: key 'blocks' is missing"},
    {"pack([segment(address=-4096)])", ": segment 0: 0xfffffffffffff000 with 2097152 bytes is no range of addresses"},
    {"pack([segment(), segment(address=3 << 20)])",
     "p: two segments of device 0 overlap: 0x200000 with 2097152 bytes and 0x300000"},
    {"pack([segment(blocks=[without(block(), 'size')])])", ": block 0 of segment 0: key 'size' is missing"},
    {"pack([segment(blocks=[without(block(), 'state')])])", ": block 0 of segment 0: key 'state' is missing"},
    {"pack([segment(blocks=[block(size=0)])])", ": block 0 of segment 0: has no bytes"},
    {"pack([segment(blocks=[block(size=1 << 20), block(size=1 << 20), block(size=1)])])",
     ": block 2 of segment 0: 0x400000 with 1 bytes is not within what is left of its segment (0x400000 to "
     "0x400000)"},
    {"pack([segment(blocks=[block(address=4096)])])", ": block 0 of segment 0: 0x1000 with 2097152 bytes is "
                                                      "not within what is left of its segment (0x200000 to "
                                                      "0x400000)"},
    {"import os\nclass E:\n    def __reduce__(self): return os.system, ('touch "
     "/tmp/never',)\npack(snapshot(x=E()))",
     ": opcode STACK_GLOBAL, which makes Python run code or look outside the file, is refused"},
};

TEST(test_errors)
{
    FILE *pipe = python_open_each(&errors[0].made, sizeof(errors[0]), sizeof(errors) / sizeof(errors[0]));
    struct made made;
    size_t i = 0;
    for (; python_next(pipe, &made); i++) {
        struct varve_message message = {""};
        struct history *history;
        size_t wanted = strlen(errors[i].expected);
        if (read_bytes(made.data, made.bytes, &history, &message) != VARVE_ERROR_FORMAT) {
            fail_msg("%s: %s", errors[i].made, message.text);
        }
        assert_null(history);
        size_t length = strlen(message.text);

        if (length < wanted || strcmp(message.text + length - wanted, errors[i].expected) != 0) {
            fail_msg("%s: '%s' instead of '%s'", errors[i].made, message.text, errors[i].expected);
        }
        made_free(&made);
    }
    assert_int_equal(i, sizeof(errors) / sizeof(errors[0]));
}

/* The byte is that of the opcode that pushed the wrong value. */
TEST(test_offset)
{
    static const char data[] = "\x80\x04}\x8c\x0d"
                               "device_tracesNs.";
    struct varve_message message = {""};
    struct history *history;
    assert_int_equal(read_bytes(data, sizeof(data) - 1, &history, &message), VARVE_ERROR_FORMAT);
    assert_string_equal(message.text, "p: at byte 18: 'device_traces' is None, not a list");
}

/* Odd, but no reason to refuse the rest; and the end of what is said of it. */
static const struct {
    const char *made;
    const char *expected;
} unknown[] = {
    {"pack(snapshot(device_traces=[[], [event(), without(event(), 'action')]]))",
     ": event 1 of device 1: key 'action' is missing"},
    {"pack(snapshot(device_traces=[[without(event(), 'addr')]]))", ": event 0 of device 0: key 'addr' is missing"},
    {"pack(snapshot(device_traces=[[without(event('oom'), 'addr')]]))", ": key 'device_free' is missing"},
    {"pack(snapshot(device_traces=[[without(event(), 'size')]]))", ": key 'size' is missing"},
    {"pack(snapshot(device_traces=[[event('fly\\x1b')]]))",
     ": event 0 of device 0: 'action' is the text 'fly?', not an action that is known"},
    {"pack(snapshot(device_traces=[[event(addr='0x10')]]))", ": 'addr' is the text '0x10', not an address"},
    {"pack(snapshot(device_traces=[[event(addr=2**64)]]))",
     ": 'addr' is an integer of more than 64 bits, not an address"},
    {"pack(snapshot(device_traces=[[event(size=-1)]]))", ": event 0 of device 0: 'size' is negative: -1"},
    {"pack(snapshot(device_traces=[[event(time_us=1.5)]]))",
     ": 'time_us' is a float, not an integer of 64 bits with sign"},
    {"pack(snapshot(device_traces=[[event(frames=3)]]))", ": 'frames' is an integer, not a list"},
    {"pack(snapshot(device_traces=[[event(frames=['f'])]]))", ": event 0 of device 0: is the text 'f', not a dict"},
    {"pack(snapshot(device_traces=[[event(frames=[{'name': 3}])]]))", ": 'name' is an integer, not a text"},
    {"pack([segment(segment_type='huge')])", ": segment 0: 'segment_type' is the text 'huge', not 'small' or 'large'"},
    {"pack([segment(segment_pool_id=(1, 2, 3))])", ": segment 0: 'segment_pool_id' is a tuple, not a pair of integers"},
    {"e = event(); l = []; e['frames'] = l; l.append(l); pack(snapshot(device_traces=[[e]]))",
     ": event 0 of device 0: is a list, not a dict"},
    {"pack([segment(blocks=[block(state='odd')])])",
     ": block 0 of segment 0: 'state' is the text 'odd', not a state that is known"},
    {"pack(snapshot(allocator_settings=[]))", ": 'allocator_settings' is a list, not a dict"},
    {"pack(snapshot(allocator_settings={'PYTORCH_CUDA_ALLOC_CONF': 'x' * 1024}))", "', not a text of up to 1023 bytes"},
    {"pack(snapshot(allocator_settings={'roundup_power2_divisions': {'3': 1}}))",
     ": a key of 'roundup_power2_divisions' is no power of two up to 32768"},
    {"pack(snapshot(allocator_settings={'garbage_collection_threshold': 'x'}))",
     ": 'garbage_collection_threshold' is the text 'x', not a number"},
    {"pack(snapshot(trace_alloc_overflowed='x'))", ": 'trace_alloc_overflowed' is the text 'x', not a list"},
    {"pack(snapshot(device_traces=[[event(stream=i) for i in range(65537)]]))",
     ": event 65536 of device 0: more than 65536 different streams"},
};

TEST(test_unknown)
{
    FILE *pipe = python_open_each(&unknown[0].made, sizeof(unknown[0]), sizeof(unknown) / sizeof(unknown[0]));
    struct made made;
    size_t i = 0;
    for (; python_next(pipe, &made); i++) {
        struct varve_message message = {""};
        struct history *history;
        if (read_bytes(made.data, made.bytes, &history, &message) != VARVE_OK) {
            fail_msg("%s: %s", unknown[i].made, message.text);
        }
        assert_string_equal(message.text, "");
        assert_int_equal(history->unknown.fields + history->unknown.entries, 1);
        const char *expected = unknown[i].expected + strspn(unknown[i].expected, ": ");
        size_t length = strlen(history->unknown.first);
        if (length < strlen(expected) || strcmp(history->unknown.first + length - strlen(expected), expected) != 0) {
            fail_msg("%s: '%s' instead of '%s'", unknown[i].made, history->unknown.first, expected);
        }
        history_free(history);
        made_free(&made);
    }
    assert_int_equal(i, sizeof(unknown) / sizeof(unknown[0]));
}
