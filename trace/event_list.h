/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vocabulary of events: one list from which the enum, the names, the field descriptions, the SQL views
 * and the LTTng tracepoints are generated.
 *
 * X(code, NAME, name, group, addr, size, requested, arg, meaning)
 *   code       stable number, stored in records and databases: never reuse or renumber
 *   addr…arg   what the record's fields of that name hold, "" if unused; sizes in bytes
 * A new kind is one X here (and its derivation, if it feeds a derived table). Its group says which allocator,
 * recorder or API emits and numbers it. Codes stay below VARVE_KIND_LIMIT, because every ring counts losses per
 * kind: another limit is another VARVE_TRANSPORT_VERSION.
 */
#ifndef VARVE_TRACE_EVENT_LIST_H
#define VARVE_TRACE_EVENT_LIST_H

#define VARVE_KIND_LIMIT 128

/* clang-format off */
#define VARVE_EVENT_LIST(X) \
    X( 1, ALLOC,            alloc,            allocator, "block address", "rounded size", "requested size", \
      "segment id in bits 0-31, in bits 32-63 the size of the free block it was cut from, or of a block given out " \
      "whole the request's rounded size (units of 512 bytes; 4294967295: that or more)", \
      "a block was handed out; cause says where it came from") \
    X( 2, FREE_REQUESTED,   free_requested,   allocator, "block address", "rounded size", "requested size", \
      "segment id", \
      "the program gave a block back; it may still be in use by other streams") \
    X( 3, FREE_COMPLETED,   free_completed,   allocator, "block address", "rounded size", "requested size", \
      "segment id", \
      "a block became reusable") \
    X( 4, SPLIT,            split,            allocator, "address of the front part", "size of the front part", \
      "size of the remainder", "segment id", \
      "a free block was cut in two") \
    X( 5, MERGE,            merge,            allocator, "address of the survivor", "size of the survivor afterwards", \
      "size of the absorbed block", "address of the absorbed block", \
      "a free block absorbed one neighbour; cause says the side") \
    X( 6, SEGMENT_ALLOC,    segment_alloc,    allocator, "segment address", "segment size", "size asked for", \
      "segment id", \
      "memory was obtained from the device") \
    X( 7, SEGMENT_FREE,     segment_free,     allocator, "segment address", "segment size", "", "segment id", \
      "memory was given back to the device; cause says why") \
    X( 8, SEGMENT_MAP,      segment_map,      allocator, "first address mapped", "bytes mapped", "", "segment id", \
      "an expandable segment grew") \
    X( 9, SEGMENT_UNMAP,    segment_unmap,    allocator, "first address unmapped", "bytes unmapped", "", "segment id", \
      "an expandable segment shrank") \
    X(10, RECORD_STREAM,    record_stream,    allocator, "block address", "rounded size", "", \
      "stream that uses the block", \
      "a block was marked as used by another stream") \
    X(11, OOM_RETRY,        oom_retry,        allocator, "", "bytes asked for", "bytes freed by this stage", \
      "outcome: 1 if the request succeeded afterwards", \
      "one stage of the out-of-memory chain; cause names the stage") \
    X(12, OOM,              oom,              allocator, "bytes of the largest free block, 0 if unknown", \
      "bytes asked for", "bytes allocated", "bytes reserved", \
      "the request failed after the whole chain") \
    X(13, EMPTY_CACHE,      empty_cache,      allocator, "", "bytes released", "", "segments released", \
      "the program asked to release unused segments") \
    X(14, CONFIG,           config,           allocator, "", "", "", "option number", \
      "a setting took effect") \
    X(15, MARK_BEGIN,       mark_begin,       allocator, "name, bytes 0-7", "name, bytes 8-15", "name, bytes 16-23", \
      "number, 0: none", \
      "a named phase of the program began") \
    X(16, MARK_END,         mark_end,         allocator, "name, bytes 0-7", "name, bytes 8-15", "name, bytes 16-23", \
      "number, 0: none", \
      "a named phase of the program ended") \
    X(17, STORAGE_CREATE,   storage_create,   storage, "data address", "bytes", "elements", \
      "element type in bits 0-7, id of the allocation that it lies in in the others", \
      "a storage was created") \
    X(18, STORAGE_DESTROY,  storage_destroy,  storage, "data address", "bytes", "", "", \
      "a storage was destroyed") \
    X(19, VIEW,             view,             storage, "data address", "bytes", "", "id of the base storage", \
      "a view of a storage was made") \
    X(20, COPY,             copy,             storage, "destination", "bytes", "id of the source", "source address", \
      "elements were copied between storages") \
    X(21, CAST,             cast,             storage, "destination", "bytes", "id of the source", "source address", \
      "elements were converted to another type") \
    X(22, TRANSFER,         transfer,         storage, "destination", "bytes", "id of the source", "source address", \
      "elements were copied from another memory") \
    X(23, SHARE,            share,            storage, "data address", "bytes", "", "", \
      "a storage was created in shared memory, or attached to") \
    X(24, MAP,              map,              storage, "data address", "bytes", "", "file offset", \
      "a storage was mapped from a file") \
    X(25, LEAK,             leak,             storage, "data address", "bytes", "references to it", "age in ns", \
      "the tracker found that a storage looks leaked; the cause says what of it the trace does not show: it is on a " \
      "cycle or kept by one, held by views, untouched") \
    X(26, OP,               op,               remat, "", "bytes of the outputs", "bytes of the inputs", "cost in ns", \
      "an operator of the program ran; id: its number, pool: number of its name") \
    X(27, EVICT,            evict,            remat, "data address, 0 if unknown", "bytes", \
      "the planner's clock: 1 and the ns of all runs", "score, bits of a double; NaN: it had none", \
      "a storage was evicted; cause says why, id: number of the storage, pool: of the name of the operator that made " \
      "it") \
    X(28, REMAT,            remat,            remat, "data address, 0 if unknown", "bytes", \
      "depth; 1: the program's operator needs it", "cost in ns, 0 if collateral", \
      "a storage was computed again; cause: it was needed, or made beside one that was; id and pool as of evict") \
    X(29, PIN,              pin,              remat, "data address, 0 if unknown", "bytes", "", "", \
      "a storage was protected from eviction; failed: after a failed budget, a storage that could not be evicted, " \
      "and cause why; id and pool as of evict") \
    X(30, UNPIN,            unpin,            remat, "data address, 0 if unknown", "bytes", "", "", \
      "a storage may be evicted again; id and pool as of evict") \
    X(31, BUDGET,           budget,           remat, "", \
      "budget, all bits set: none; failed: bytes that the operator needs", "", "failed: bytes that can't be evicted", \
      "the memory budget is set; failed: an operator did not get its memory below it; id: its number, pool: number " \
      "of its name") \
    X(32, HEAP_ALLOC,       heap_alloc,       heap, "address returned, 0 if it failed", "bytes asked for", \
      "the same, filled by the collector", "alignment asked for, else 0", \
      "the malloc family; cause names the function") \
    X(33, HEAP_FREE,        heap_free,        heap, "address", "bytes of the allocation", "", "", \
      "free; with cause realloc: a realloc call is about to give the block up") \
    X(34, HEAP_REALLOC,     heap_realloc,     heap, "address returned", "bytes asked for", \
      "the same, filled by the collector", "old address", \
      "a realloc call ended; flag failed: the old block is still valid") \
    X(35, MMAP,             mmap,             heap, "first address", "bytes, whole pages", "bytes asked for", \
      "protection in bits 0-31, flags in bits 32-63", \
      "the program mapped memory; cause names the function") \
    X(36, MUNMAP,           munmap,           heap, "first address", "bytes, whole pages", "", "", \
      "the program unmapped memory; cause names the function") \
    X(37, DEV_ALLOC,        dev_alloc,        device, "device address", "bytes", "ns that the call took", \
      "0; failed: CUresult of the call", \
      "memory from the CUDA API; cause names the function, pool the kind of memory (bits 12-15) and the context") \
    X(38, DEV_FREE,         dev_free,         device, "device address", "bytes", "ns that the call took", \
      "0; failed: CUresult of the call", \
      "memory given back; cause names the function") \
    X(39, DEV_ALLOC_ASYNC,  dev_alloc_async,  device, "device address", "bytes", "ns that the call took", \
      "0; failed: CUresult of the call", \
      "stream-ordered allocation; pool: kind of memory (bits 12-15) and number of the driver's pool") \
    X(40, DEV_FREE_ASYNC,   dev_free_async,   device, "device address", "bytes", "ns that the call took", \
      "0; failed: CUresult of the call", \
      "stream-ordered free") \
    X(41, VMM_RESERVE,      vmm_reserve,      device, "first virtual address", "bytes", "ns that the call took", \
      "0; failed: CUresult of the call", \
      "virtual addresses were reserved") \
    X(42, VMM_CREATE,       vmm_create,       device, "", "bytes", "ns that the call took", \
      "handle; failed: CUresult of the call", \
      "physical memory was created, or with cause cuMemRetainAllocationHandle or cuMemImportFromShareableHandle got " \
      "one more reference or came from elsewhere") \
    X(43, VMM_MAP,          vmm_map,          device, "first virtual address", "bytes", "ns that the call took", \
      "handle; failed: CUresult of the call", \
      "physical memory was mapped") \
    X(44, VMM_UNMAP,        vmm_unmap,        device, "first virtual address", "bytes", "ns that the call took", \
      "0; failed: CUresult of the call", \
      "physical memory was unmapped, all mappings of the range") \
    X(45, VMM_RELEASE,      vmm_release,      device, "", "bytes", "ns that the call took", \
      "handle; failed: CUresult of the call", \
      "a reference to physical memory was given back") \
    X(46, VMM_ADDRESS_FREE, vmm_address_free, device, "first virtual address", "bytes", "ns that the call took", \
      "0; failed: CUresult of the call", \
      "virtual addresses were given back") \
    X(47, DEV_OOM,          dev_oom,          device, "", "bytes asked for", "ns that the call took", \
      "CUresult of the call", \
      "a device allocation failed for want of memory; cause names the function") \
    X(48, DEV_POOL,         dev_pool,         device, "handle of the pool", "bytes it holds, if known", \
      "ns that the call took; from CUPTI: its release threshold", \
      "from CUPTI: bytes in use; else what was set; failed: CUresult", \
      "a memory pool of the driver was made, changed or destroyed; cause says what, pool its number") \
    X(49, PROCESS_START,    process_start,    process, "", "", "", "parent process id", \
      "a process allocated for the first time") \
    X(50, PROCESS_EXIT,     process_exit,     process, "", "", "", "", \
      "a process reached its exit handlers") \
    X(51, THREAD_START,     thread_start,     process, "", "", "", "", \
      "a thread recorded for the first time") \
    X(52, MODULE,           module,           process, "load address", "bytes mapped", "", \
      "module number in the process", \
      "an executable or library was mapped") \
    X(53, LOST,             lost,             process, "", "bytes of the lost allocations", "", \
      "number of lost events", \
      "events of this thread were dropped before this one") \
    X(54, VMM_SET_ACCESS,   vmm_set_access,   device, "first virtual address", "bytes", "ns that the call took", \
      "number of devices whose access was set; failed: CUresult", \
      "a range of mapped memory became accessible") \
    X(55, DEV_RESET,        dev_reset,        device, "", "", "ns that the call took", "0; failed: CUresult", \
      "a context ended, and with it what it had allocated; cause names the function, pool the context (bits 0-11; 0: " \
      "all of the device)") \
    X(56, DEV_SYNC,         dev_sync,         device, "handle of the event, if it is one", "", \
      "ns that the call took", "CUresult of the call", \
      "the program waited for the device; cause names the function") \
    X(57, DEV_MEMORY,       dev_memory,       device, "", "total bytes of the device", "bytes that are free", "", \
      "what the driver says of the device as a whole, other processes included") \
    X(58, DEVICE,           device,           device, "first half of the UUID", "total bytes", "", \
      "second half of the UUID", \
      "what the number of a device means in this process") \
    X(59, DEVICE_NAME,      device_name,      device, "name, bytes 0-7", "name, bytes 8-15", "name, bytes 16-23", \
      "name, bytes 24-31", \
      "the name of a device") \
    X(60, STREAM,           stream,           device, "handle of the stream", "", "", "", \
      "what the number of a stream means in this process and device") \
    X(61, POOL,             pool,             allocator, "capture id", "user id", "", "1 if it is the small pool", \
      "what the number of a pool means in this allocator") \
    X(62, CUPTI_MEMORY,     cupti_memory,     device, "address", "bytes", \
      "CUPTI's time of the operation, ns of CLOCK_REALTIME", \
      "correlation id in bits 0-31, operation (1 allocation, 2 release) in bits 32-39", \
      "an activity record of CUPTI; pool: kind of memory (bits 12-15)") \
    X(63, CUPTI_STATE,      cupti_state,      device, "", \
      "of cupti_refused: the kind of activity record, 0: CUPTI as a whole", "CUPTI's time, ns of CLOCK_REALTIME", \
      "begin: CUPTI's version; refused, fatal: CUptiResult; end: 1 if the subscription was given up; dropped: " \
      "records", \
      "CUPTI's recorder says what became of it; cause says what") \
    X(64, OP_NAME,          op_name,          remat, "name, bytes 0-7", "name, bytes 8-15", "name, bytes 16-23", \
      "name, bytes 24-31", \
      "what the number of an operator's name (pool of other events of this group, 1 to 65535) means in this process; " \
      "id: the number") \
    X(65, MAIN_END,         main_end,         process, "", "", "", "", \
      "the program's own code is over: main returned, exit was called, or a Python interpreter begins to tear itself " \
      "down; exit handlers and static destructors come after it") \
    X(66, PYTHON_ALLOC,     python_alloc,     heap, "address returned, 0 if it failed", "bytes asked for", \
      "the same, filled by the collector", "", \
      "a Python interpreter's allocator handed out memory for an object or buffer; cause names the function") \
    X(67, PYTHON_FREE,      python_free,      heap, "address", "bytes of the allocation", "", "", \
      "a Python interpreter gave memory back to its allocator; with cause realloc: a realloc call is about to give " \
      "it up") \
    X(68, PYTHON_REALLOC,   python_realloc,   heap, "address returned", "bytes asked for", \
      "the same, filled by the collector", "old address", \
      "a realloc call of a Python interpreter ended; flag failed: the old memory is still valid")
/* clang-format on */

/*
 * Why or how an event happened. One numbering for all kinds, so that the views need one table.
 * X(code, NAME, text)
 */
/* clang-format off */
#define VARVE_CAUSE_LIST(X) \
    X( 0, NONE,              "") \
    X( 1, CACHE,             "cache") \
    X( 2, NEW_SEGMENT,       "new_segment") \
    X( 3, AFTER_CALLBACKS,   "after_callbacks") \
    X( 4, AFTER_GC,          "after_gc") \
    X( 5, AFTER_RELEASE,     "after_release") \
    X( 6, AFTER_RETRY,       "after_retry") \
    X( 7, EMPTY_CACHE,       "empty_cache") \
    X( 8, RETRY,             "retry") \
    X( 9, RELEASE_AVAILABLE, "release_available") \
    X(10, GC,                "gc") \
    X(11, POOL_DESTROYED,    "pool_destroyed") \
    X(12, CALLBACKS,         "callbacks") \
    X(13, RELEASE_CACHED,    "release_cached") \
    X(14, PREVIOUS,          "previous") \
    X(15, NEXT,              "next") \
    X(16, MALLOC,            "malloc") \
    X(17, CALLOC,            "calloc") \
    X(18, REALLOC,           "realloc") \
    X(19, REALLOCARRAY,      "reallocarray") \
    X(20, POSIX_MEMALIGN,    "posix_memalign") \
    X(21, ALIGNED_ALLOC,     "aligned_alloc") \
    X(22, MEMALIGN,          "memalign") \
    X(23, VALLOC,            "valloc") \
    X(24, PVALLOC,           "pvalloc") \
    X(25, FREE,              "free") \
    X(26, MMAP,              "mmap") \
    X(27, MUNMAP,            "munmap") \
    X(28, MREMAP,            "mremap") \
    X(29, INHERITED,         "inherited") \
    X(30, UNKNOWN_ADDRESS,   "unknown_address") \
    X(31, REMAINDER,         "remainder") \
    X(32, OVERMAPPED,        "overmapped") \
    X( 33, CUDA_MALLOC,                         "cudaMalloc") \
    X( 34, CUDA_MALLOC_MANAGED,                 "cudaMallocManaged") \
    X( 35, CUDA_MALLOC_PITCH,                   "cudaMallocPitch") \
    X( 36, CUDA_MALLOC_3D,                      "cudaMalloc3D") \
    X( 37, CUDA_MALLOC_ARRAY,                   "cudaMallocArray") \
    X( 38, CUDA_MALLOC_3D_ARRAY,                "cudaMalloc3DArray") \
    X( 39, CUDA_MALLOC_MIPMAPPED_ARRAY,         "cudaMallocMipmappedArray") \
    X( 40, CUDA_MALLOC_HOST,                    "cudaMallocHost") \
    X( 41, CUDA_HOST_ALLOC,                     "cudaHostAlloc") \
    X( 42, CUDA_HOST_REGISTER,                  "cudaHostRegister") \
    X( 43, CUDA_MALLOC_ASYNC,                   "cudaMallocAsync") \
    X( 44, CUDA_MALLOC_FROM_POOL_ASYNC,         "cudaMallocFromPoolAsync") \
    X( 45, CUDA_FREE,                           "cudaFree") \
    X( 46, CUDA_FREE_ARRAY,                     "cudaFreeArray") \
    X( 47, CUDA_FREE_MIPMAPPED_ARRAY,           "cudaFreeMipmappedArray") \
    X( 48, CUDA_FREE_HOST,                      "cudaFreeHost") \
    X( 49, CUDA_HOST_UNREGISTER,                "cudaHostUnregister") \
    X( 50, CUDA_FREE_ASYNC,                     "cudaFreeAsync") \
    X( 51, CUDA_DEVICE_RESET,                   "cudaDeviceReset") \
    X( 52, CUDA_DEVICE_SYNCHRONIZE,             "cudaDeviceSynchronize") \
    X( 53, CUDA_STREAM_SYNCHRONIZE,             "cudaStreamSynchronize") \
    X( 54, CUDA_EVENT_SYNCHRONIZE,              "cudaEventSynchronize") \
    X( 55, CU_MEM_ALLOC,                        "cuMemAlloc") \
    X( 56, CU_MEM_ALLOC_MANAGED,                "cuMemAllocManaged") \
    X( 57, CU_MEM_ALLOC_PITCH,                  "cuMemAllocPitch") \
    X( 58, CU_ARRAY_CREATE,                     "cuArrayCreate") \
    X( 59, CU_ARRAY_3D_CREATE,                  "cuArray3DCreate") \
    X( 60, CU_MIPMAPPED_ARRAY_CREATE,           "cuMipmappedArrayCreate") \
    X( 61, CU_MEM_ALLOC_HOST,                   "cuMemAllocHost") \
    X( 62, CU_MEM_HOST_ALLOC,                   "cuMemHostAlloc") \
    X( 63, CU_MEM_HOST_REGISTER,                "cuMemHostRegister") \
    X( 64, CU_MEM_ALLOC_ASYNC,                  "cuMemAllocAsync") \
    X( 65, CU_MEM_ALLOC_FROM_POOL_ASYNC,        "cuMemAllocFromPoolAsync") \
    X( 66, CU_MEM_FREE,                         "cuMemFree") \
    X( 67, CU_ARRAY_DESTROY,                    "cuArrayDestroy") \
    X( 68, CU_MIPMAPPED_ARRAY_DESTROY,          "cuMipmappedArrayDestroy") \
    X( 69, CU_MEM_FREE_HOST,                    "cuMemFreeHost") \
    X( 70, CU_MEM_HOST_UNREGISTER,              "cuMemHostUnregister") \
    X( 71, CU_MEM_FREE_ASYNC,                   "cuMemFreeAsync") \
    X( 72, CU_MEM_ADDRESS_RESERVE,              "cuMemAddressReserve") \
    X( 73, CU_MEM_ADDRESS_FREE,                 "cuMemAddressFree") \
    X( 74, CU_MEM_CREATE,                       "cuMemCreate") \
    X( 75, CU_MEM_RELEASE,                      "cuMemRelease") \
    X( 76, CU_MEM_MAP,                          "cuMemMap") \
    X( 77, CU_MEM_UNMAP,                        "cuMemUnmap") \
    X( 78, CU_MEM_SET_ACCESS,                   "cuMemSetAccess") \
    X( 79, CU_MEM_RETAIN_ALLOCATION_HANDLE,     "cuMemRetainAllocationHandle") \
    X( 80, CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE, "cuMemImportFromShareableHandle") \
    X( 81, CU_MEM_POOL_CREATE,                  "cuMemPoolCreate") \
    X( 82, CU_MEM_POOL_DESTROY,                 "cuMemPoolDestroy") \
    X( 83, CU_MEM_POOL_TRIM_TO,                 "cuMemPoolTrimTo") \
    X( 84, CU_MEM_POOL_SET_ATTRIBUTE,           "cuMemPoolSetAttribute") \
    X( 85, CU_IPC_OPEN_MEM_HANDLE,              "cuIpcOpenMemHandle") \
    X( 86, CU_IPC_CLOSE_MEM_HANDLE,             "cuIpcCloseMemHandle") \
    X( 87, CU_DEVICE_PRIMARY_CTX_RESET,         "cuDevicePrimaryCtxReset") \
    X( 88, CU_DEVICE_PRIMARY_CTX_RELEASE,       "cuDevicePrimaryCtxRelease") \
    X( 89, CU_CTX_DESTROY,                      "cuCtxDestroy") \
    X( 90, CU_CTX_SYNCHRONIZE,                  "cuCtxSynchronize") \
    X( 91, CU_STREAM_SYNCHRONIZE,               "cuStreamSynchronize") \
    X( 92, CU_EVENT_SYNCHRONIZE,                "cuEventSynchronize") \
    X( 93, CU_MEM_GET_INFO,                     "cuMemGetInfo") \
    X( 94, GRAPH,                               "graph") \
    X( 95, CUPTI_BEGIN,                         "cupti_begin") \
    X( 96, CUPTI_REFUSED,                       "cupti_refused") \
    X( 97, CUPTI_END,                           "cupti_end") \
    X( 98, CUPTI_FATAL,                         "cupti_fatal") \
    X( 99, CUPTI_DROPPED,                       "cupti_dropped") \
    X(100, CUPTI_CLOCK,                         "cupti_clock") \
    X(101, POOL_CREATED,                        "pool_created") \
    X(102, POOL_DESTROYED_BY_DRIVER,            "pool_destroyed_by_driver") \
    X(103, POOL_TRIMMED,                        "pool_trimmed") \
    X(104, OPERATOR_NEW,                        "operator new") \
    X(105, OPERATOR_DELETE,                     "operator delete") \
    X(106, LEAK_CYCLE,                          "cycle") \
    X(107, LEAK_HELD,                           "held by views") \
    X(108, LEAK_UNTOUCHED,                      "untouched") \
    X(109, EVICT_RELEASED,                      "released") \
    X(110, EVICT_BUDGET,                        "budget") \
    X(111, EVICT_ALLOCATOR,                     "allocator") \
    X(112, EVICT_REQUESTED,                     "requested") \
    X(113, EVICT_BANISHED,                      "banished") \
    X(114, REMAT_DIRECT,                        "direct") \
    X(115, REMAT_COLLATERAL,                    "collateral") \
    X(116, BLOCKED_PINNED,                      "pinned") \
    X(117, BLOCKED_INPUT,                       "input") \
    X(118, LAST_RESORT,                         "last_resort")
/* clang-format on */

/*
 * Types of the elements of storages. X(code, NAME, name, bytes): codes as in the arg of storage_create, names as in
 * PyTorch's short form and in ml_dtypes.
 */
/* clang-format off */
#define VARVE_ELEMENT_LIST(X) \
    X(0, F64,  "f64",  8) \
    X(1, F32,  "f32",  4) \
    X(2, F16,  "f16",  2) \
    X(3, BF16, "bf16", 2) \
    X(4, I64,  "i64",  8) \
    X(5, I32,  "i32",  4) \
    X(6, I16,  "i16",  2) \
    X(7, I8,   "i8",   1) \
    X(8, U8,   "u8",   1) \
    X(9, BOOL, "bool", 1)
/* clang-format on */

#endif
