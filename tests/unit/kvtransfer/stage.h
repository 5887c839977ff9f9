/* SPDX-License-Identifier: Apache-2.0 */
/** @file stage.h  Short words for the tests of staged pools. */
#ifndef BT_TESTS_UNIT_KVTRANSFER_STAGE_H
#define BT_TESTS_UNIT_KVTRANSFER_STAGE_H

#include "tests/unit/kvtransfer/each_kind.h"

#define ROUNDS 60 /* of mem: more than anything takes that is not withheld */
#define SLOT   BT_KVT_STAGE_SLOT_BYTES

__attribute__((unused)) static void rounds(pair_t *pair, int n)
{
    for (int i = 0; i < n; i++) {
        (void)pair_pump(pair);
    }
}

__attribute__((unused)) static void
open_with(pair_t *pair, uint32_t number, size_t pool_bytes, uint32_t n_slots)
{
    pair_n_slots = n_slots;
    pair_open(pair, &pair_kinds[number], pool_bytes);
    pair_n_slots = 0;
    pair_import(pair);
}

/** A region of @a bytes (with id, no more than the pool) and a transfer with
 *  all of it posted. */
__attribute__((unused)) static track_t *begin(pair_t *pair, uint64_t id,
                                              uint64_t first, uint64_t bytes)
{
    track_t *t = pair_region(pair, id, PAIR_SENDER, first, bytes, bytes, 1);

    assert_true(id % 64 + bytes <= pair->pool_bytes);
    prep(pair, t);
    post(t, 0, bytes);
    return t;
}

__attribute__((unused)) static void close_region(track_t *t)
{
    t->closing = true;
    bt_kvt_region_close(t->region);
}

#endif
