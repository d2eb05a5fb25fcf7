/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots that are wrong: each error names the entry and the key and says what is there instead; a byte
 * changed or a cut at any place ends in one line or in a history.
 * Costs: 1 s
 */
#include "support/history_python.h"
#include "support/random.h"

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
    {"pack(snapshot(device_traces=[[event(frames=[{'line': 'x'}])]]))", ": 'line' is the text 'x', not a line number"},
    {"e = event(); pack(snapshot(device_traces=[[e, e]]))", ": event 1 of device 0: refers back to a consumed entry"},
    {"e = event(); pack(snapshot(device_traces=[[e] + [event() for _ in range(3000)] + [e]]))",
     ": event 3001 of device 0: refers back to a consumed entry"},
    {"e = event(); e['frames'] = [e]; pack(snapshot(device_traces=[[e]]))",
     ": event 0 of device 0: is a frame of its own stack"},
    {"e = event(); l = []; e['frames'] = l; l.append(l); pack(snapshot(device_traces=[[e]]))",
     ": event 0 of device 0: is a list, not a dict"},
    {"l = []; l.append(l); pack(snapshot(device_traces=l))",
     ": device 0: its trace was begun elsewhere in the snapshot"},
    {"d = snapshot(); d['segments'] = [d]; pack(d)", ": segment 0: key 'address' is missing"},
    {"pack(snapshot(device_traces=[[event(stream=i) for i in range(65537)]]))",
     ": event 65536 of device 0: more than 65536 different streams"},
    {"pack([segment(device=256)])", ": segment 0: 'device' is an integer, not a device number from 0 to 255"},
    {"pack([without(segment(), 'address')])", ": segment 0: key 'address' is missing"},
    {"pack([without(segment(), 'total_size')])", ": segment 0: key 'total_size' is missing"},
    {"pack([without(segment(), 'blocks')])", ": segment 0: key 'blocks' is missing"},
    {"pack([segment(segment_type='huge')])", ": segment 0: 'segment_type' is the text 'huge', not 'small' or 'large'"},
    {"pack([segment(segment_pool_id=(1, 2, 3))])", ": segment 0: 'segment_pool_id' is a tuple, not a pair of integers"},
    {"pack([segment(address=-4096)])", ": segment 0: 0xfffffffffffff000 with 2097152 bytes is no range of addresses"},
    {"pack([segment(), segment(address=3 << 20)])",
     "p: two segments of device 0 overlap: 0x200000 with 2097152 bytes and 0x300000"},
    {"pack([segment(), segment(blocks=[block(state='odd')])])",
     ": block 0 of segment 1: 'state' is the text 'odd', not a state that is known"},
    {"pack([segment(blocks=[without(block(), 'size')])])", ": block 0 of segment 0: key 'size' is missing"},
    {"pack([segment(blocks=[without(block(), 'state')])])", ": block 0 of segment 0: key 'state' is missing"},
    {"pack([segment(blocks=[block(size=0)])])", ": block 0 of segment 0: has no bytes"},
    {"pack([segment(blocks=[block(size=1 << 20), block(size=1 << 20), block(size=1)])])",
     ": block 2 of segment 0: 0x400000 with 1 bytes is not within what is left of its segment (0x400000 to "
     "0x400000)"},
    {"pack([segment(blocks=[block(address=4096)])])", ": block 0 of segment 0: 0x1000 with 2097152 bytes is "
                                                      "not within what is left of its segment (0x200000 to "
                                                      "0x400000)"},
    {"pack(snapshot(allocator_settings=[]))", ": 'allocator_settings' is a list, not a dict"},
    {"pack(snapshot(allocator_settings={'PYTORCH_CUDA_ALLOC_CONF': 'x' * 1024}))", "', not a text of up to 1023 bytes"},
    {"pack(snapshot(allocator_settings={'roundup_power2_divisions': {'3': 1}}))",
     ": a key of 'roundup_power2_divisions' is no power of two up to 32768"},
    {"pack(snapshot(allocator_settings={'garbage_collection_threshold': 'x'}))",
     ": 'garbage_collection_threshold' is the text 'x', not a number"},
    {"pack(snapshot(trace_alloc_overflowed='x'))", ": 'trace_alloc_overflowed' is the text 'x', not a list"},
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
    static const char data[] = "\x80\x04}(\x8c\x0d"
                               "device_traces]]}(\x8c\x06"
                               "action\x8c\x05"
                               "alloc\x8c\x04"
                               "sizeNua.";
    struct varve_message message = {""};
    struct history *history;
    assert_int_equal(read_bytes(data, sizeof(data) - 1, &history, &message), VARVE_ERROR_FORMAT);
    assert_string_equal(message.text, "p: at byte 44: event 0 of device 0: 'size' is None, not a number of bytes");
}
