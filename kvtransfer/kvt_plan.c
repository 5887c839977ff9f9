/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_plan.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

static int compare_runs(const void *a_v, const void *b_v)
{
    const bt_kvt_run_t *a = a_v;
    const bt_kvt_run_t *b = b_v;

    return (a->offset > b->offset) - (a->offset < b->offset);
}

/** Checks the extents. @param [out] sorted  n_extents runs, scratch */
static bt_status_t extents_check(const bt_kvt_extent_t *extents,
                                 uint32_t n_extents, uint64_t pool_bytes,
                                 bt_kvt_run_t *sorted)
{
    for (uint32_t i = 0; i < n_extents; i++) {
        if ((extents[i].bytes == 0) || (extents[i].bytes > pool_bytes) ||
            (extents[i].offset > pool_bytes - extents[i].bytes)) {
            return BT_ERR_INVALID_PARAM;
        }
        sorted[i].offset = extents[i].offset;
        sorted[i].bytes = extents[i].bytes;
    }
    qsort(sorted, n_extents, sizeof(*sorted), compare_runs);
    for (uint32_t i = 1; i < n_extents; i++) {
        if (sorted[i - 1].offset + sorted[i - 1].bytes > sorted[i].offset) {
            return BT_ERR_INVALID_PARAM;
        }
    }
    return BT_OK;
}

bt_status_t bt_kvt_map_init(const bt_kvt_extent_t *extents, uint32_t n_extents,
                            uint64_t pool_bytes, bt_kvt_map_t *map)
{
    bt_status_t status;

    map->n_runs = 0;
    map->bytes = 0;
    if ((n_extents == 0) || (n_extents > BT_KVT_MAX_EXTENTS)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (!bt_array_grow(&map->runs, &map->cap, n_extents, sizeof(*map->runs))) {
        return BT_ERR_NO_MEMORY;
    }
    status = extents_check(extents, n_extents, pool_bytes, map->runs);
    if (status != BT_OK) {
        return status;
    }

    for (uint32_t i = 0; i < n_extents; i++) {
        bt_kvt_run_t *last =
            (map->n_runs == 0) ? NULL : map->runs + map->n_runs - 1;

        if ((last != NULL) &&
            (last->offset + last->bytes == extents[i].offset)) {
            last->bytes += extents[i].bytes;
        } else {
            bt_kvt_run_t *run = &map->runs[map->n_runs++];

            run->start = map->bytes;
            run->offset = extents[i].offset;
            run->bytes = extents[i].bytes;
        }
        /* Extents do not overlap, so the sum is at most the pool. */
        map->bytes += extents[i].bytes;
    }
    return BT_OK;
}

void bt_kvt_map_fini(bt_kvt_map_t *map)
{
    bt_free(map->runs);
    memset(map, 0, sizeof(*map));
}

static bool is_in(const bt_kvt_map_t *map, uint64_t offset, uint64_t bytes)
{
    return (bytes > 0) && (bytes <= map->bytes) &&
           (offset <= map->bytes - bytes);
}

/** Returns the run with region byte @a offset, which is in the region. */
static const bt_kvt_run_t *run_of(const bt_kvt_map_t *map, uint64_t offset)
{
    uint32_t lo = 0;
    uint32_t hi = map->n_runs;

    while (hi - lo > 1) {
        const uint32_t mid = lo + (hi - lo) / 2;

        if (map->runs[mid].start <= offset) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return &map->runs[lo];
}

/** Returns the part of @a run from region byte @a offset on: at most @a bytes.
 */
static bt_kvt_run_t rest_of(const bt_kvt_run_t *run, uint64_t offset,
                            uint64_t bytes)
{
    const uint64_t at = offset - run->start;
    const uint64_t rest = run->bytes - at;

    return (bt_kvt_run_t){.start = offset,
                          .offset = run->offset + at,
                          .bytes = (rest < bytes) ? rest : bytes};
}

uint64_t bt_kvt_map_find(const bt_kvt_map_t *map, uint64_t offset,
                         uint64_t bytes, uint64_t *pool_offset_p)
{
    bt_kvt_run_t run;

    if (!is_in(map, offset, bytes)) {
        return 0;
    }
    run = rest_of(run_of(map, offset), offset, bytes);
    *pool_offset_p = run.offset;
    return run.bytes;
}

uint32_t bt_kvt_map_runs(const bt_kvt_map_t *map, uint64_t offset,
                         uint64_t bytes, bt_kvt_run_t *runs, uint32_t max)
{
    const bt_kvt_run_t *run;
    uint32_t n = 0;

    if (!is_in(map, offset, bytes)) {
        return 0;
    }
    run = run_of(map, offset);
    while ((bytes > 0) && (n < max)) {
        runs[n] = rest_of(run++, offset, bytes);
        offset += runs[n].bytes;
        bytes -= runs[n].bytes;
        n++;
    }
    return (bytes == 0) ? n : 0;
}

/** @return index of the first range that ends after @a offset. */
static uint32_t ranges_find(const bt_kvt_ranges_t *set, uint64_t offset)
{
    uint32_t lo = 0;
    uint32_t hi = set->n;

    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;

        if (set->ranges[mid].end > offset) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

static bt_status_t ranges_insert(bt_kvt_ranges_t *set, uint32_t at,
                                 uint64_t begin, uint64_t end)
{
    if (!bt_array_grow(&set->ranges, &set->cap, set->n + 1,
                       sizeof(*set->ranges))) {
        return BT_ERR_NO_MEMORY;
    }
    memmove(set->ranges + at + 1, set->ranges + at,
            (set->n - at) * sizeof(*set->ranges));
    set->ranges[at].begin = begin;
    set->ranges[at].end = end;
    set->n++;
    return BT_OK;
}

bt_status_t bt_kvt_ranges_add(bt_kvt_ranges_t *set, uint64_t offset,
                              uint64_t bytes)
{
    const uint64_t end = offset + bytes;
    const uint32_t at = ranges_find(set, offset);
    bool joins_prev, joins_next;

    BT_ASSERT((bytes > 0) && (end > offset));
    if ((at < set->n) && (set->ranges[at].begin < end)) {
        return BT_ERR_EXISTS;
    }

    joins_prev = (at > 0) && (set->ranges[at - 1].end == offset);
    joins_next = (at < set->n) && (set->ranges[at].begin == end);
    if (joins_prev && joins_next) {
        set->ranges[at - 1].end = set->ranges[at].end;
        set->n--;
        memmove(set->ranges + at, set->ranges + at + 1,
                (set->n - at) * sizeof(*set->ranges));
    } else if (joins_prev) {
        set->ranges[at - 1].end = end;
    } else if (joins_next) {
        set->ranges[at].begin = offset;
    } else {
        const bt_status_t status = ranges_insert(set, at, offset, end);

        if (status != BT_OK) {
            return status;
        }
    }
    set->bytes += bytes;
    return BT_OK;
}

bool bt_kvt_ranges_have(const bt_kvt_ranges_t *set, uint64_t offset,
                        uint64_t bytes)
{
    const uint32_t at = ranges_find(set, offset);

    return (at < set->n) && (set->ranges[at].begin <= offset) &&
           (set->ranges[at].end - offset >= bytes);
}

void bt_kvt_ranges_clear(bt_kvt_ranges_t *set)
{
    set->n = 0;
    set->bytes = 0;
}

void bt_kvt_ranges_fini(bt_kvt_ranges_t *set)
{
    bt_free(set->ranges);
    memset(set, 0, sizeof(*set));
}
