/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of PyTorch's snapshots: random ones of protocols 2 to 5 and of both picklers of Python, with the
 * expected history beside them, and the shapes of old and of newer versions.
 * Runs threads: files are read ahead by one.
 * Costs: 2 s, full 3 s
 */
#include "support/history_python.h"

#include <inttypes.h>

/* ---- a history as text, the same as the Python below prints ---- */

static void print_stack(FILE *out, const struct history *history, uint32_t number)
{
    const struct history_stack *stack = &history->stacks[number];
    for (uint32_t i = 0; i < stack->frame_count; i++) {
        const struct history_frame *frame = &history->frames[stack->first_frame + i];
        fprintf(out, " %s:%u:%s", history->texts[frame->file], frame->line, history->texts[frame->function]);
    }
    fputc('\n', out);
}

static void print_device(FILE *out, const struct history *history, const struct history_device *device)
{
    fprintf(out, "device %zu %d\n", device->skipped_count, device->has_overflowed);
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        fprintf(out, "e %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64, event->action, event->addr, event->size,
                history->streams[event->stream], event->time_us);
        print_stack(out, history, event->stack);
    }
    for (size_t i = 0; i < device->segment_count; i++) {
        const struct history_segment *segment = &device->segments[i];
        fprintf(out,
                "s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                " %d %d",
                segment->addr, segment->size, segment->allocated, segment->active, segment->requested,
                history->streams[segment->stream], segment->pool_id[0], segment->pool_id[1], segment->is_small,
                segment->is_expandable);
        print_stack(out, history, segment->stack);
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct history_block *block = &device->blocks[segment->first_block + j];
            fprintf(out, "b %" PRIu64 " %" PRIu64 " %" PRIu64 " %d", block->addr, block->size, block->requested,
                    block->state);
            print_stack(out, history, block->stack);
        }
    }
}

static char *print_history(const struct history *history)
{
    const struct history_settings *settings = &history->settings;
    size_t bytes;
    char *text = NULL;
    FILE *out = open_memstream(&text, &bytes);
    for (size_t i = 0; i < history->device_count; i++) {
        print_device(out, history, &history->devices[i]);
    }
    fprintf(out, "settings %d '%s' %" PRId64 " %g %d", settings->is_known, settings->text, settings->max_split_size,
            settings->garbage_collection_threshold, settings->expandable_segments);
    for (int i = 0; i < 16; i++) {
        fprintf(out, " %" PRIu64, settings->divisions[i]);
    }
    fputc('\n', out);
    fclose(out);
    return text;
}

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
