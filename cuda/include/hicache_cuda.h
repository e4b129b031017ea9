/* HiCache's copies between GPU memory and pinned host memory: the C ABI.
 *
 * Knows addresses, strides, streams and events; refuses to know tensors, layouts' names, pools and models.
 * Plain C: no exceptions, no torch. Nothing that is called per copy allocates or waits for the device;
 * creating, destroying and registering do both. A stream comes last, as a `cudaStream_t` in an integer.
 *
 * On error: every function returns 0, one of the negative `hicache_cuda_status`, or a positive `cudaError_t`
 * (`hicache_cuda_error_name` names either). Wrong arguments are refused before anything is enqueued. After a
 * CUDA error in the middle of a copy, what was enqueued before it still runs: its pages are undefined.
 *
 * Threads: calls for one engine must not overlap, except the `query` functions, which may run beside any
 * call but `destroy`. No function leaves another current device behind, nor disturbs a graph capture that
 * another thread is making; a stream under capture is refused (HICACHE_CUDA_CAPTURING).
 */
#ifndef HICACHE_CUDA_H
#define HICACHE_CUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HICACHE_CUDA_AXES 4       /* axes inside one page of one plane */
#define HICACHE_CUDA_LAYER_SETS 3 /* rotating sets of per-layer events: loads under way at a time */
#define HICACHE_CUDA_TICKETS 64   /* completion events per direction */

typedef enum hicache_cuda_status {
    HICACHE_CUDA_OK = 0,
    HICACHE_CUDA_PENDING = -1,   /* a query: not finished yet */
    HICACHE_CUDA_NO_DRIVER = -2, /* no driver, or one that is older than this build needs */
    HICACHE_CUDA_NO_DEVICE = -3, /* a driver, but no (visible) device */
    HICACHE_CUDA_ARGUMENT = -4,  /* an argument that can't be meant */
    HICACHE_CUDA_MEMORY = -5,    /* no CPU memory for the engine's own tables */
    HICACHE_CUDA_ALIAS = -6,     /* the device sees registered memory at addresses that differ from piece to piece */
    HICACHE_CUDA_CAPTURING = -7, /* the stream is being captured into a graph: copies stay outside of graphs */
    HICACHE_CUDA_FULL = -8       /* too many registered regions */
} hicache_cuda_status;

typedef enum hicache_cuda_direction { HICACHE_CUDA_IN = 0 /* host -> device */, HICACHE_CUDA_OUT = 1 } hicache_cuda_direction;

typedef enum hicache_cuda_route {
    HICACHE_CUDA_AUTO = 0,   /* by the engine's thresholds: `run`, then whether it may stage, else a kernel */
    HICACHE_CUDA_KERNEL = 1, /* multiprocessors read or write host memory themselves */
    HICACHE_CUDA_ENGINE = 2, /* the copy engine, run by run, in batches */
    HICACHE_CUDA_STAGED = 3  /* the copy engine moves whole pages to or from device staging, a kernel re-orders there */
} hicache_cuda_route;

/* ---- What is copied -------------------------------------------------------------------------------------
 *
 * One plane is what one tensor holds: (slots, page) on both sides, in different orders inside a page. With
 * page = pages[j], plane = planes[p] and 0 <= i[k] < axes[k].extent, byte b < run of a run is at
 *
 *     device: plane.device + page.device * device_page + sum_k i[k] * axes[k].device + b
 *     host:   plane.host   + page.host   * host_page   + sum_k i[k] * axes[k].host   + b
 *
 * All sizes and strides are bytes. Both sides' sets of bytes must be free of overlaps.
 */
typedef struct hicache_axis {
    int64_t device, host; /* from one index to the next, per side */
    uint32_t extent;      /* >= 1; an unused axis has extent 1 */
    uint32_t reserved;
} hicache_axis;

typedef struct hicache_strided {
    int64_t device_page, host_page;       /* from slot s to slot s + 1, per side */
    hicache_axis axes[HICACHE_CUDA_AXES]; /* outermost first; lanes follow the last one, so: the host's order */
    uint64_t run;                         /* bytes that are contiguous on both sides, >= 1 */
    uint32_t width;                       /* 16, 8, 4 or 1; divides run, all strides and all planes' addresses */
    uint32_t reserved;
} hicache_strided;

typedef struct hicache_plane {
    uint64_t device, host; /* of slot 0; `host` as the CPU sees it, registered with the engine */
} hicache_plane;

typedef struct hicache_page {
    uint32_t device, host; /* slots */
} hicache_page;

typedef struct hicache_copy {
    hicache_strided shape;
    const hicache_plane *planes; /* [plane_count] */
    const hicache_page *pages;   /* [page_count], read before the call returns: no upload, nothing to keep */
    uint32_t plane_count, page_count;
    uint32_t route; /* hicache_cuda_route */
    uint32_t reserved;
} hicache_copy;

/* ---- The machine ---------------------------------------------------------------------------------------- */

typedef struct hicache_cuda_machine {
    int32_t driver;  /* CUDA version of the driver, 1000 * major + 10 * minor; 0 without one */
    int32_t devices; /* visible devices */
} hicache_cuda_machine;

/* OK, NO_DRIVER, NO_DEVICE, or a CUDA error. Fills `machine` with what is known in any case. */
int32_t hicache_cuda_probe(hicache_cuda_machine *machine);

/* A static name for any value that these functions return; never NULL. */
const char *hicache_cuda_error_name(int32_t code);

/* ---- The engine: streams, events, staging --------------------------------------------------------------- */

typedef struct hicache_cuda_engine hicache_cuda_engine;

typedef struct hicache_cuda_settings {
    int32_t device;
    uint32_t layers;             /* per-layer events in a set, >= 1 */
    uint64_t engine_run[2];      /* by direction: runs of at least so many bytes go by the copy engine */
    uint64_t staging[2];         /* by direction: bytes of device memory for staging, 0 = never stage; two halves */
    uint32_t multiprocessors[2]; /* by direction: thread groups (one per multiprocessor) of a direct kernel, >= 1 */
} hicache_cuda_settings;

/* Two streams of the highest priority, all events, staging. On failure nothing is left behind. */
int32_t hicache_cuda_create(const hicache_cuda_settings *settings, hicache_cuda_engine **engine);

/* Waits for the engine's own streams, unregisters what is still registered, frees everything. NULL is fine. */
int32_t hicache_cuda_destroy(hicache_cuda_engine *engine);

/* Pins memory from `base` on and maps it for the device, in `pieces` [piece_count] of so many bytes, one behind
 * another. None should end inside of a page of the cache: the driver refuses a copy that spans two, so the copy
 * engine's runs are cut there. `base`, and all sizes but the last, must be multiples of 4096. All or nothing: what
 * was pinned before a failure is unpinned again. */
int32_t hicache_cuda_register(hicache_cuda_engine *engine, void *base, const uint64_t *pieces, uint32_t piece_count);

/* Undoes one `register`. Waits for the engine's own streams first. */
int32_t hicache_cuda_unregister(hicache_cuda_engine *engine, void *base);

/* ---- Copies, in order of calls per direction ------------------------------------------------------------ */

/* What follows in this direction starts after everything that `stream` has now. Loads: nobody still reads the
 * slots that they fill. Backups: the forward that writes the slots has written them. */
int32_t hicache_cuda_fence(hicache_cuda_engine *engine, uint32_t direction, uint64_t stream);

/* Enqueues one copy. All host bytes must be registered. STAGED needs the planes' host bytes of one page to be
 * one dense hull (outwards: without any gap, since whole hulls are written). */
int32_t hicache_cuda_enqueue(hicache_cuda_engine *engine, uint32_t direction, const hicache_copy *copy);

/* The route that AUTO takes for this copy, a `hicache_cuda_route`; or an error. */
int32_t hicache_cuda_choose(const hicache_cuda_engine *engine, uint32_t direction, const hicache_copy *copy);

/* Loads: layer `layer` of the load that uses `set` (< HICACHE_CUDA_LAYER_SETS) is complete after what was enqueued. */
int32_t hicache_cuda_record_layer(hicache_cuda_engine *engine, uint32_t set, uint32_t layer);

/* `stream` continues after that layer. Must follow `record_layer`: an event never recorded orders nothing. */
int32_t hicache_cuda_wait_layer(hicache_cuda_engine *engine, uint32_t set, uint32_t layer, uint64_t stream);

/* OK or PENDING. */
int32_t hicache_cuda_query_layer(hicache_cuda_engine *engine, uint32_t set, uint32_t layer);

/* Everything enqueued so far in this direction belongs to `ticket`; its event is that of ticket % HICACHE_CUDA_TICKETS. */
int32_t hicache_cuda_record_done(hicache_cuda_engine *engine, uint32_t direction, uint64_t ticket);

/* `stream` continues after that ticket: an engine that re-uses a page's slot before the host knows it is free. */
int32_t hicache_cuda_wait_done(hicache_cuda_engine *engine, uint32_t direction, uint64_t ticket, uint64_t stream);

/* OK or PENDING. */
int32_t hicache_cuda_query_done(hicache_cuda_engine *engine, uint32_t direction, uint64_t ticket);

#ifdef __cplusplus
}
#endif

#endif
