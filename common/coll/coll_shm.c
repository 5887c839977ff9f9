/* SPDX-License-Identifier: Apache-2.0 */
#include "common/coll/coll_shm.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/thread.h"

#define TILE 512u /* floats that are added at once */

typedef struct sum {
    const float *const *parts;
    size_t at; /* of the tile */
    size_t n;
} sum_t;

static void sum_range(const sum_t *sum, uint32_t begin, uint32_t end,
                      float *out)
{
    float other[TILE];
    uint32_t middle;

    if (end - begin == 1) {
        memcpy(out, sum->parts[begin] + sum->at, sum->n * sizeof(*out));
        return;
    }
    middle = bt_coll_tree_middle(begin, end);
    sum_range(sum, begin, middle, out);
    sum_range(sum, middle, end, other);
    for (size_t i = 0; i < sum->n; i++) {
        out[i] += other[i];
    }
}

void bt_coll_tree_sum(const float *const *parts, uint32_t n_parts, size_t n,
                      float *out)
{
    float tile[TILE]; /* out may be one of the parts */

    for (size_t at = 0; at < n; at += TILE) {
        const sum_t sum = {
            .parts = parts, .at = at, .n = (n - at < TILE) ? n - at : TILE};

        sum_range(&sum, 0, n_parts, tile);
        memcpy(out + at, tile, sum.n * sizeof(*out));
    }
}

/* Is [from, to) the whole of a node below [begin, end)? */
static bool is_node(uint32_t begin, uint32_t end, uint32_t from, uint32_t to)
{
    while ((begin != from) || (end != to)) {
        const uint32_t middle = bt_coll_tree_middle(begin, end);

        if ((end - begin < 2) || ((from < middle) && (to > middle))) {
            return false;
        }
        begin = (from < middle) ? begin : middle;
        end = (from < middle) ? middle : end;
    }
    return true;
}

bool bt_coll_tree_divides(uint32_t n_parts, uint32_t size)
{
    const uint32_t each = (size > 0) ? n_parts / size : 0;

    if ((size == 0) || (each == 0) || (n_parts % size != 0)) {
        return false;
    }
    for (uint32_t r = 0; r < size; r++) {
        if (!is_node(0, n_parts, r * each, (r + 1) * each)) {
            return false;
        }
    }
    return true;
}

#define LINE       64u
#define ALIGN_SLOT 4096u
/** Size above which a sum is computed in parts: below, the extra round costs
 *  more. */
#define SHORT_BYTES 16384u
#define SPIN_NS     20000u   /**< covers the skew of a layer between ranks */
#define YIELD_NS    200000u  /**< then the core is yielded */
#define SLEEP_NS    50000000 /**< most that a lost wake-up costs */
#define BEGUN_NS    1000000  /**< nothing wakes a rank for its begun receives */

/* In the segment. */
typedef struct head {
    _Atomic uint32_t round; /**< round whose piece is in the slot; wraps */
    _Atomic uint32_t n_asleep;
    _Atomic uint32_t is_broken; /**< used in rank 0's head only */
    uint8_t pad[LINE - 3 * sizeof(uint32_t)];
} head_t;

/* Ring in the segment; both counts wrap. A rank that writes one wakes those
 * waiting for it, as with rounds. */
typedef struct channel {
    head_t filled; /* slots that were ever filled */
    head_t taken;
} channel_t;

/* Arguments of recv_begin(). */
typedef struct begun {
    uint8_t *buf;
    size_t bytes;
    size_t taken; /* bytes received so far */
} begun_t;

struct bt_coll_shm {
    bt_collectives_t base;
    bt_coll_shm_t *all; /* this object, or the one whose stage it is */
    head_t *heads;
    head_t *first; /* of all ranks, where is_broken is */
    uint8_t *slots;
    size_t slot_bytes;
    uint32_t round;
    /* Of all ranks alone: */
    bt_coll_shm_t *stage; /* owned; NULL: there is one, or it has one rank */
    uint32_t stage_size;
    channel_t *out, *in;              /* NULL: there is one stage */
    begun_t begun[BT_COLL_MAX_BEGUN]; /* a ring, the oldest at first_begun */
    uint32_t first_begun, n_begun;
};

_Static_assert(sizeof(head_t) == LINE, "ranks write to lines of their own");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "words are shared by processes");

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Bytes of the heads and slots of some ranks that make rounds together. */
static size_t rounds_bytes(uint32_t size, size_t slot_bytes)
{
    size_t bytes;

    if ((size < 2) || (size > BT_COLL_SHM_MAX_RANKS) || (slot_bytes == 0) ||
        (slot_bytes > SIZE_MAX / 2 - ALIGN_SLOT) ||
        __builtin_mul_overflow(round_up(slot_bytes, ALIGN_SLOT), 2 * size,
                               &bytes) ||
        __builtin_add_overflow(bytes, round_up(size * LINE, ALIGN_SLOT),
                               &bytes)) {
        return 0;
    }
    return bytes;
}

static size_t channel_bytes(size_t slot_bytes)
{
    return round_up(sizeof(channel_t), ALIGN_SLOT) +
           BT_COLL_SHM_CHANNEL_SLOTS * round_up(slot_bytes, ALIGN_SLOT);
}

/* Heads of a stage, 0 if it has no rounds of its own. */
static size_t stage_bytes(uint32_t size, uint32_t stage_size, size_t slot_bytes)
{
    return ((stage_size == size) || (stage_size == 1))
               ? 0
               : rounds_bytes(stage_size, slot_bytes);
}

size_t bt_coll_shm_bytes(uint32_t size, uint32_t stage_size, size_t slot_bytes)
{
    const size_t all = rounds_bytes(size, slot_bytes);
    size_t more;
    size_t bytes;

    if ((all == 0) || (stage_size == 0) || (size % stage_size != 0)) {
        return 0;
    }
    if (stage_size == size) {
        return all;
    }
    /* At most four times `all`, which fits. */
    if ((slot_bytes > SIZE_MAX / 16 / size) ||
        __builtin_add_overflow(size / stage_size *
                                   stage_bytes(size, stage_size, slot_bytes),
                               size * channel_bytes(slot_bytes), &more) ||
        __builtin_add_overflow(all, more, &bytes)) {
        return 0;
    }
    return bytes;
}

static uint8_t *slot_of(const bt_coll_shm_t *shm, uint32_t rank)
{
    const size_t i = 2 * (size_t)rank + (shm->round & 1u);

    return shm->slots + i * shm->slot_bytes;
}

/* ---- rounds ---- */

static bool has_come(const head_t *head, uint32_t round)
{
    /* Not behind it, also where counts begin again. */
    return (int32_t)(atomic_load_explicit(&head->round, memory_order_acquire) -
                     round) >= 0;
}

static bool is_broken(const bt_coll_shm_t *shm)
{
    return atomic_load_explicit(&shm->first->is_broken, memory_order_acquire) !=
           0;
}

static void sleep_on(head_t *head, uint32_t round, long most_ns)
{
    const struct timespec most = {.tv_sec = 0, .tv_nsec = most_ns};
    const uint32_t seen = atomic_load(&head->round);

    if ((int32_t)(seen - round) < 0) {
        syscall(SYS_futex, &head->round, FUTEX_WAIT, seen, &most, NULL, 0);
    }
}

static bool take_begun(bt_coll_shm_t *all);

static bt_status_t wait_for(const bt_coll_shm_t *shm, head_t *head,
                            uint32_t round)
{
    const uint64_t begin_ns = bt_now_ns();
    uint64_t waited_ns = 0;

    for (uint32_t i = 0; !has_come(head, round); i++) {
        const bool is_due = take_begun(shm->all);

        if (waited_ns < SPIN_NS) {
            bt_cpu_relax();
        } else if (waited_ns < YIELD_NS) {
            sched_yield();
        } else {
            atomic_fetch_add(&head->n_asleep, 1);
            sleep_on(head, round, is_due ? BEGUN_NS : SLEEP_NS);
            atomic_fetch_sub(&head->n_asleep, 1);
        }
        /* Data sent before the break is valid. */
        if (is_broken(shm) && !has_come(head, round)) {
            return BT_ERR_PEER_LOST;
        }
        if ((i % 64 == 0) || (waited_ns >= SPIN_NS)) {
            waited_ns = bt_now_ns() - begin_ns;
        }
    }
    return BT_OK;
}

static void begin_round(bt_coll_shm_t *shm)
{
    shm->round++;
}

static void say_round(head_t *head, uint32_t round)
{
    atomic_store(&head->round, round); /* ordered before the check of
                                          n_asleep */
    if (atomic_load(&head->n_asleep) != 0) {
        syscall(SYS_futex, &head->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

/* The piece is in this rank's slot. */
static void say(bt_coll_shm_t *shm)
{
    say_round(&shm->heads[shm->base.rank], shm->round);
}

static bt_status_t wait_for_all(bt_coll_shm_t *shm)
{
    bt_status_t status = BT_OK;

    for (uint32_t r = 0; (status == BT_OK) && (r < shm->base.size); r++) {
        if (r != shm->base.rank) {
            status = wait_for(shm, &shm->heads[r], shm->round);
        }
    }
    return status;
}

/* ---- sums ---- */

/* out = the sum of n floats from @a at on, of all slots. */
static void sum_slots(const bt_coll_shm_t *shm, size_t at, size_t n, float *out)
{
    const float *parts[BT_COLL_SHM_MAX_RANKS];

    for (uint32_t r = 0; r < shm->base.size; r++) {
        parts[r] = (const float *)(const void *)slot_of(shm, r) + at;
    }
    bt_coll_tree_sum(parts, shm->base.size, n, out);
}

static bt_status_t publish(bt_coll_shm_t *shm, const void *data, size_t bytes)
{
    begin_round(shm);
    memcpy(slot_of(shm, shm->base.rank), data, bytes);
    say(shm);
    return wait_for_all(shm);
}

static bt_status_t sum_short(bt_coll_shm_t *shm, float *buf, size_t n)
{
    const bt_status_t status = publish(shm, buf, n * sizeof(*buf));

    if (status == BT_OK) {
        sum_slots(shm, 0, n, buf);
    }
    return status;
}

/* Begin of rank r's part of n floats. */
static size_t part_of(const bt_coll_shm_t *shm, uint32_t r, size_t n)
{
    const size_t lines = (n + 15) / 16; /* whole lines of 16 */
    const size_t at = lines * r / shm->base.size * 16;

    return (at < n) ? at : n;
}

static bt_status_t sum_long(bt_coll_shm_t *shm, float *buf, size_t n)
{
    const uint32_t me = shm->base.rank;
    const size_t mine = part_of(shm, me, n);
    const size_t n_mine = part_of(shm, me + 1, n) - mine;
    bt_status_t status = publish(shm, buf, n * sizeof(*buf));

    if (status != BT_OK) {
        return status;
    }
    sum_slots(shm, mine, n_mine, buf + mine);
    status = publish(shm, buf + mine, n_mine * sizeof(*buf));
    for (uint32_t r = 0; (status == BT_OK) && (r < shm->base.size); r++) {
        const size_t at = part_of(shm, r, n);

        if (r != me) {
            memcpy(buf + at, slot_of(shm, r),
                   (part_of(shm, r + 1, n) - at) * sizeof(*buf));
        }
    }
    return status;
}

static bt_status_t all_reduce_sum(void *ctx, float *buf, size_t n)
{
    bt_coll_shm_t *shm = ctx;
    const size_t most = shm->slot_bytes / sizeof(*buf);
    bt_status_t status = BT_OK;

    for (size_t i = 0; (status == BT_OK) && (i < n); i += most) {
        const size_t m = (n - i < most) ? n - i : most;

        status = (m * sizeof(*buf) <= SHORT_BYTES) ? sum_short(shm, buf + i, m)
                                                   : sum_long(shm, buf + i, m);
    }
    return status;
}

/* ---- the others ---- */

static bt_status_t all_gather(void *ctx, const void *send, void *recv,
                              size_t bytes_each)
{
    bt_coll_shm_t *shm = ctx;
    bt_status_t status = BT_OK;

    for (size_t i = 0; (status == BT_OK) && (i < bytes_each);
         i += shm->slot_bytes) {
        const size_t left = bytes_each - i;
        const size_t m = (left < shm->slot_bytes) ? left : shm->slot_bytes;

        status = publish(shm, (const uint8_t *)send + i, m);
        for (uint32_t r = 0; (status == BT_OK) && (r < shm->base.size); r++) {
            memcpy((uint8_t *)recv + r * bytes_each + i, slot_of(shm, r), m);
        }
    }
    return status;
}

/* Receivers signal their arrival, too: the root must not run ahead. */
static bt_status_t broadcast(void *ctx, void *buf, size_t bytes, uint32_t root)
{
    bt_coll_shm_t *shm = ctx;
    bt_status_t status = BT_OK;

    if (root >= shm->base.size) {
        return BT_ERR_INVALID_PARAM;
    }
    for (size_t i = 0; (status == BT_OK) && (i < bytes); i += shm->slot_bytes) {
        const size_t left = bytes - i;
        const size_t m = (left < shm->slot_bytes) ? left : shm->slot_bytes;

        begin_round(shm);
        if (shm->base.rank == root) {
            memcpy(slot_of(shm, root), (uint8_t *)buf + i, m);
        }
        say(shm);
        status = wait_for_all(shm);
        if ((status == BT_OK) && (shm->base.rank != root)) {
            memcpy((uint8_t *)buf + i, slot_of(shm, root), m);
        }
    }
    return status;
}

/* ---- channels ---- */

static uint8_t *channel_slot(const bt_coll_shm_t *shm, channel_t *channel,
                             uint32_t n)
{
    return (uint8_t *)channel + round_up(sizeof(*channel), ALIGN_SLOT) +
           (n % BT_COLL_SHM_CHANNEL_SLOTS) * shm->slot_bytes;
}

static bt_status_t send_to(void *ctx, const void *buf, size_t bytes,
                           uint32_t to)
{
    bt_coll_shm_t *shm = ctx;
    channel_t *out = shm->out;
    const uint8_t *at = buf;
    bt_status_t status = BT_OK;

    if ((out == NULL) ||
        (to != (shm->base.rank + shm->stage_size) % shm->base.size)) {
        return BT_ERR_INVALID_PARAM;
    }
    while ((status == BT_OK) && (bytes > 0)) {
        const size_t m = (bytes < shm->slot_bytes) ? bytes : shm->slot_bytes;
        const uint32_t n =
            atomic_load_explicit(&out->filled.round, memory_order_relaxed);

        status = wait_for(shm, &out->taken, n + 1 - BT_COLL_SHM_CHANNEL_SLOTS);
        if (status == BT_OK) {
            memcpy(channel_slot(shm, out, n), at, m);
            say_round(&out->filled, n + 1);
        }
        at += m;
        bytes -= m;
    }
    return status;
}

/* True when its channel ends here. */
static bool is_behind(const bt_coll_shm_t *shm, uint32_t from)
{
    return (shm->in != NULL) &&
           ((from + shm->stage_size) % shm->base.size == shm->base.rank);
}

/* ---- receiving in two parts ---- */

static begun_t *begun_at(bt_coll_shm_t *shm, uint32_t i)
{
    return &shm->begun[(shm->first_begun + i) % BT_COLL_MAX_BEGUN];
}

/* A slot into it. */
static void take_slot(const bt_coll_shm_t *all, begun_t *begun, uint32_t n)
{
    const size_t left = begun->bytes - begun->taken;
    const size_t m = (left < all->slot_bytes) ? left : all->slot_bytes;

    memcpy(begun->buf + begun->taken, channel_slot(all, all->in, n), m);
    begun->taken += m;
    say_round(&all->in->taken, n + 1);
}

/* Takes data of begun receives, oldest first. @return true: more is expected */
static bool take_begun(bt_coll_shm_t *all)
{
    for (uint32_t i = 0; i < all->n_begun; i++) {
        begun_t *begun = begun_at(all, i);

        while (begun->taken < begun->bytes) {
            const uint32_t n = atomic_load_explicit(&all->in->taken.round,
                                                    memory_order_relaxed);

            if (!has_come(&all->in->filled, n + 1)) {
                return true;
            }
            take_slot(all, begun, n);
        }
    }
    return false;
}

static bt_status_t recv_begin(void *ctx, void *buf, size_t bytes, uint32_t from)
{
    bt_coll_shm_t *shm = ctx;

    if (!is_behind(shm, from)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (shm->n_begun == BT_COLL_MAX_BEGUN) {
        return BT_ERR_BUSY;
    }
    *begun_at(shm, shm->n_begun) = (begun_t){.buf = buf, .bytes = bytes};
    shm->n_begun++;
    return BT_OK;
}

static bt_status_t recv_end(void *ctx)
{
    bt_coll_shm_t *shm = ctx;
    const begun_t *first = begun_at(shm, 0);
    bt_status_t status = BT_OK;

    if (shm->n_begun == 0) {
        return BT_ERR_INVALID_PARAM;
    }
    while ((status == BT_OK) && (first->taken < first->bytes)) {
        const uint32_t n =
            atomic_load_explicit(&shm->in->taken.round, memory_order_relaxed);

        status = wait_for(shm, &shm->in->filled, n + 1);
        (void)take_begun(shm);
    }
    shm->first_begun = (shm->first_begun + 1) % BT_COLL_MAX_BEGUN;
    shm->n_begun--;
    return status;
}

static bt_status_t recv_from(void *ctx, void *buf, size_t bytes, uint32_t from)
{
    const bt_coll_shm_t *shm = ctx;
    const bt_status_t status = (shm->n_begun > 0)
                                   ? BT_ERR_INVALID_PARAM
                                   : recv_begin(ctx, buf, bytes, from);

    return (status == BT_OK) ? recv_end(ctx) : status;
}

/* ---- life ---- */

/* Ranks that make rounds together, at this offset of the segment. */
static void open_rounds(bt_coll_shm_t *shm, uint8_t *at, uint32_t rank,
                        uint32_t size, size_t slot_bytes)
{
    shm->heads = (head_t *)(void *)at;
    shm->slots = at + round_up(size * LINE, ALIGN_SLOT);
    shm->slot_bytes = round_up(slot_bytes, ALIGN_SLOT);
    shm->all = shm;
    shm->base = (bt_collectives_t){.ctx = shm,
                                   .rank = rank,
                                   .size = size,
                                   .all_reduce_sum = all_reduce_sum,
                                   .all_gather = all_gather,
                                   .broadcast = broadcast};
}

/* @param [in] at Offset behind what all ranks share. */
static bt_status_t open_stages(bt_coll_shm_t *shm, uint8_t *at,
                               size_t slot_bytes)
{
    const uint32_t size = shm->base.size;
    const uint32_t n = shm->stage_size;
    const uint32_t rank = shm->base.rank;
    const size_t bytes = stage_bytes(size, n, slot_bytes);
    uint8_t *channels = at + size / n * bytes;

    if (bytes > 0) {
        shm->stage = bt_calloc(1, sizeof(*shm->stage));
        if (shm->stage == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        open_rounds(shm->stage, at + rank / n * bytes, rank % n, n, slot_bytes);
        shm->stage->first = shm->first;
        shm->stage->all = shm;
    }
    shm->out =
        (channel_t *)(void *)(channels + rank * channel_bytes(slot_bytes));
    shm->in = (channel_t *)(void *)(channels + (rank + size - n) % size *
                                                   channel_bytes(slot_bytes));
    return BT_OK;
}

bt_status_t bt_coll_shm_open(void *segment, size_t bytes, uint32_t rank,
                             uint32_t size, uint32_t stage_size,
                             size_t slot_bytes, bt_coll_shm_t **shm_p)
{
    const size_t needed = bt_coll_shm_bytes(size, stage_size, slot_bytes);
    bt_coll_shm_t *shm;

    if ((needed == 0) || (bytes < needed) || (rank >= size) ||
        ((uintptr_t)segment % LINE != 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    shm = bt_calloc(1, sizeof(*shm));
    if (shm == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    open_rounds(shm, segment, rank, size, slot_bytes);
    shm->first = shm->heads;
    shm->stage_size = stage_size;
    shm->base.send = send_to;
    shm->base.recv = recv_from;
    shm->base.recv_begin = recv_begin;
    shm->base.recv_end = recv_end;
    if ((stage_size < size) &&
        (open_stages(shm, (uint8_t *)segment + rounds_bytes(size, slot_bytes),
                     slot_bytes) != BT_OK)) {
        bt_free(shm);
        return BT_ERR_NO_MEMORY;
    }
    *shm_p = shm;
    return BT_OK;
}

void bt_coll_shm_close(bt_coll_shm_t *shm)
{
    if (shm != NULL) {
        bt_free(shm->stage);
    }
    bt_free(shm);
}

const bt_collectives_t *bt_coll_shm_collectives(const bt_coll_shm_t *shm)
{
    return &shm->base;
}

const bt_collectives_t *bt_coll_shm_stage(const bt_coll_shm_t *shm)
{
    if (shm->stage_size == shm->base.size) {
        return &shm->base;
    }
    return (shm->stage != NULL) ? &shm->stage->base : NULL;
}

/* Ranks asleep in a stage, or at a channel, check again soon (SLEEP_NS). */
void bt_coll_shm_break(bt_coll_shm_t *shm)
{
    atomic_store(&shm->first->is_broken, 1);
    for (uint32_t r = 0; r < shm->base.size; r++) {
        syscall(SYS_futex, &shm->heads[r].round, FUTEX_WAKE, INT32_MAX, NULL,
                NULL, 0);
    }
}
