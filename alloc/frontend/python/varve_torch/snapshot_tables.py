# SPDX-License-Identifier: Apache-2.0
"""The dictionary of torch.cuda.memory._snapshot(), made from varve's allocator: the keys of PyTorch 2.11, so that its
own _memory_viz.py and other tools read it. Frames are empty: stacks go into the trace, and not through the
program's memory."""

from .native_library import DIVISIONS, UNLIMITED

PICKLE_PROTOCOL = 4  # the newest that all readers of snapshots know
STATES = ("inactive", "active_allocated", "active_pending_free")
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
           "oom", "snapshot")
OOM = ACTIONS.index("oom")
DEFAULT_POOL = (0, 0)


def block_entry(block):
    return {"address": block.addr, "size": block.bytes, "requested_size": block.requested, "state": STATES[block.state],
            "frames": []}


def segment_entry(segment, blocks):
    first, end = segment.first_block, segment.first_block + segment.block_count
    return {
        "device": segment.device,
        "address": segment.addr,
        "total_size": segment.bytes,
        "allocated_size": segment.allocated,
        "active_size": segment.active,
        "requested_size": segment.requested,
        "stream": segment.stream,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": (segment.pool_capture, segment.pool_user),
        "is_expandable": bool(segment.is_expandable),
        "frames": [],
        "blocks": [block_entry(blocks[index]) for index in range(first, end)],
    }


def event_entry(event):
    return {
        "action": ACTIONS[event.action],
        "device_free" if event.action == OOM else "addr": event.addr,
        "size": event.bytes,
        "stream": event.stream,
        "time_us": event.time_us,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": [],
    }


def settings_entry(settings):
    return {
        "PYTORCH_CUDA_ALLOC_CONF": settings.text.decode(errors="replace"),
        "max_split_size": -1 if settings.max_split_size == UNLIMITED else settings.max_split_size,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": bool(settings.expandable_segments),
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": bool(settings.release_lock_on_cudamalloc),
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": bool(settings.graph_capture_record_stream_reuse),
        "roundup_power2_divisions": {str(1 << entry): settings.roundup_power2_divisions[entry]
                                     for entry in range(DIVISIONS)},
    }


def snapshot_dictionary(library, pool=DEFAULT_POOL, include_traces=True):
    """`pool`: of that private pool only; (0, 0): everything."""
    with library.snapshot() as snapshot:
        segments = [
            segment_entry(snapshot.segments[index], snapshot.blocks) for index in range(snapshot.segment_count)
            if tuple(pool) == DEFAULT_POOL
            or tuple(pool) == (snapshot.segments[index].pool_capture, snapshot.segments[index].pool_user)
        ]
        traces = [[] for _ in range(library.device_count())]
        for index in range(snapshot.event_count if include_traces else 0):
            event = snapshot.events[index]
            while len(traces) <= event.device:
                traces.append([])
            traces[event.device].append(event_entry(event))
    return {"segments": segments, "device_traces": traces, "external_annotations": [],
            "allocator_settings": settings_entry(library.settings())}
