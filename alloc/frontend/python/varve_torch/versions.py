# SPDX-License-Identifier: Apache-2.0
"""What differs between PyTorch's versions and can't be asked for. What can be is asked for where it is used: by the
names that torch._C has, by what a call hands over."""

import re

NEVER = (99,)
TEXT = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
POOL = "St4pairIyyE"

# from which version on
FEATURES = {
    "snapshots without their history": (2, 11),  # torch._C._cuda_memorySnapshot takes (a, b, include_traces)
    "pools of history entries": (2, 12),  # an entry has its pool_id
}

# where the class of the pluggable allocator is: from 2.5 on, and before
LIBRARIES = ("libtorch_cuda.so", "libtorch_python.so")

# name in PyTorch: (what its exported name ends with, or None if it is the base class's; our function; the first version
# that has it so; the first one that has it otherwise)
VIRTUAL_FUNCTIONS = (
    ("name", "B5cxx11Ev", "name_method", (2, 3), NEVER),
    ("raw_delete", "EPv", "raw_delete_method", (2, 3), NEVER),
    ("cacheInfo", "EaPm", "cache_info_method", (2, 3), NEVER),
    ("getMemoryFraction", "Ea", "get_memory_fraction_method", (2, 6), NEVER),
    ("emptyCache", f"E{POOL}", "empty_cache_method", (2, 8), NEVER),
    ("getDeviceStats", "Ea", "device_stats_method", (2, 3), (2, 12)),
    ("resetAccumulatedStats", "Ea", "reset_accumulated_stats_method", (2, 3), NEVER),
    ("resetPeakStats", "Ea", "reset_peak_stats_method", (2, 3), NEVER),
    ("getExpandableSegmentSizes", "Ea", "expandable_sizes_method", (2, 10), NEVER),
    ("recordHistory", None, "is_history_enabled_method", (2, 3), NEVER),  # as isHistoryEnabled's exception says
    ("attachOutOfMemoryObserver", "ESt8functionIFvlmmmEE", "attach_oom_observer_method", (2, 3), NEVER),
    ("enablePeerAccess", "Eaa", "enable_peer_access_method", (2, 3), NEVER),
    ("memcpyAsync", "EPviPKvimP11CUstream_stb", "memcpy_async_method", (2, 3), NEVER),
    ("getPoolUseCount", None, "pool_use_count_method", (2, 6), NEVER),
    ("ensureExistsAndIncrefPool", None, "take_pool_method", (2, 6), (2, 8)),
    ("createOrIncrefPool", None, "take_pool_of_method", (2, 8), (2, 11)),
    ("createOrIncrefPool", None, "take_pool_shared_method", (2, 11), NEVER),
    ("setUseOnOOM", None, "use_on_oom_method", (2, 8), (2, 11)),
    ("setUseOnOOM", None, "set_use_on_oom_method", (2, 11), NEVER),
    ("setNoSplit", None, "no_split_method", (2, 10), NEVER),
    ("checkPoolLiveAllocations", None, "check_pool_method", (2, 3), NEVER),
    ("getCheckpointState", f"Ea{POOL}", "checkpoint_method", (2, 3), NEVER),
    # From 2.5 to 2.8 deleters get an object of the class's in place of an address.
    ("setCheckpointPoolState", "EaSt10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE", "restore_method",
     (2, 9), NEVER),
    ("shareIpcHandle", "EPv", "share_method", (2, 5), NEVER),
    ("getIpcDevPtr", f"E{TEXT}", "open_shared_method", (2, 3), NEVER),
)


def version_of(torch):
    """Of what is on the way to a version it is not known how far it has come: it counts as the version before."""
    major, minor, more = re.match(r"([0-9]+)\.([0-9]+)(.*)", torch.__version__).groups()
    return int(major), int(minor) - bool(re.match(r"[.0-9]*(a|b|rc|\.?dev)", more))


def has(torch, feature):
    return version_of(torch) >= FEATURES[feature]


def snapshot_alone(torch):
    """Of all pools, without the history, which of a long run takes minutes; None: this PyTorch can't leave it out."""
    if has(torch, "snapshots without their history"):
        return torch._C._cuda_memorySnapshot((0, 0, False))
    return None
