/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"

#define SHARE_ONE 65536u /* a load share of 1 in fixed point */

/* Outstanding prompt tokens of the best prefill worker from which on a decode
 * worker takes prompts too, and how many more for each that it has. */
#define LOCAL_FROM_TOKENS 1024u
#define LOCAL_SHARE       4u

void bt_table_init(bt_table_t *table, bt_hash128_t model)
{
    memset(table, 0, sizeof(*table));
    bt_list_init(&table->workers);
    table->model = model;
}

void bt_table_fini(bt_table_t *table)
{
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &table->workers)
    {
        bt_table_remove(BT_CONTAINER_OF(pos, bt_instance_t, link));
    }
}

const char *bt_role_name(uint32_t role)
{
    static const char *const names[] = {"router", "prefill", "decode"};

    return (role < BT_ARRAY_LEN(names)) ? names[role] : "unknown";
}

static bool hash_equal(bt_hash128_t a, bt_hash128_t b)
{
    return (a.lo == b.lo) && (a.hi == b.hi);
}

/* All workers here passed the same check, so any of them is the measure. */
static bt_status_t check_against(const bt_msg_hello_t *mine,
                                 const bt_msg_hello_t *hello,
                                 char why[BT_TABLE_WHY_BYTES])
{
    if (strcmp(hello->profile, mine->profile) != 0) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s has numeric profile %s, but %s has %s", hello->name,
                 hello->profile, mine->name, mine->profile);
        return BT_ERR_MISMATCH;
    }
    if (hello->kv_type != mine->kv_type) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s stores KV as type %u, but %s as type %u (--kv-type)",
                 hello->name, hello->kv_type, mine->name, mine->kv_type);
        return BT_ERR_MISMATCH;
    }
    if (hello->tokens_per_block != mine->tokens_per_block) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s has %u tokens per block, but %s has %u "
                 "(--tokens-per-block)",
                 hello->name, hello->tokens_per_block, mine->name,
                 mine->tokens_per_block);
        return BT_ERR_MISMATCH;
    }
    if (!hash_equal(hello->layout, mine->layout)) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s has another KV block layout (%016" PRIx64
                 ") than %s (%016" PRIx64 ")",
                 hello->name, hello->layout.hi, mine->name, mine->layout.hi);
        return BT_ERR_MISMATCH;
    }
    return BT_OK;
}

bt_status_t bt_table_check(const bt_table_t *table, const bt_msg_hello_t *hello,
                           char why[BT_TABLE_WHY_BYTES])
{
    const bt_wire_range_t theirs = bt_wire_range_of(hello);
    const bt_wire_range_t ours = bt_wire_range_ours();

    if (bt_wire_common(ours, theirs) == 0) {
        char theirs_text[BT_WIRE_RANGE_BYTES];
        char ours_text[BT_WIRE_RANGE_BYTES];

        bt_wire_range_print(theirs, theirs_text);
        bt_wire_range_print(ours, ours_text);
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s speaks protocol %s, this router speaks %s", hello->name,
                 theirs_text, ours_text);
        return BT_ERR_MISMATCH;
    }
    if ((hello->role != BT_ROLE_PREFILL) && (hello->role != BT_ROLE_DECODE)) {
        snprintf(why, BT_TABLE_WHY_BYTES, "%s is no worker (role %s)",
                 hello->name, bt_role_name(hello->role));
        return BT_ERR_MISMATCH;
    }
    if (!hash_equal(hello->model, table->model)) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s runs another model (hash %016" PRIx64 " not %016" PRIx64
                 ")",
                 hello->name, hello->model.hi, table->model.hi);
        return BT_ERR_MISMATCH;
    }
    if ((hello->max_batch == 0) || (hello->n_blocks == 0) ||
        (hello->tokens_per_block == 0) || (hello->context_tokens == 0)) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s offers nothing (%u seats, %u blocks of %u tokens, context "
                 "of %u tokens)",
                 hello->name, hello->max_batch, hello->n_blocks,
                 hello->tokens_per_block, hello->context_tokens);
        return BT_ERR_MISMATCH;
    }
    if (bt_list_empty(&table->workers)) {
        return BT_OK;
    }
    return check_against(
        &BT_CONTAINER_OF(table->workers.next, bt_instance_t, link)->hello,
        hello, why);
}

bt_status_t bt_table_add(bt_table_t *table, const bt_msg_hello_t *hello,
                         bt_instance_t **worker_p)
{
    bt_instance_t *worker = bt_calloc(1, sizeof(*worker));

    if (worker == NULL) {
        goto err;
    }
    worker->hello = *hello;
    if (hello->kvt != NULL) {
        worker->hello.kvt = bt_memdup(hello->kvt, hello->kvt_bytes);
        if (worker->hello.kvt == NULL) {
            goto err_worker;
        }
    }
    bt_list_init(&worker->legs);
    bt_list_push_back(&table->workers, &worker->link);
    *worker_p = worker;
    return BT_OK;

err_worker:
    bt_free(worker);
err:
    return BT_ERR_NO_MEMORY;
}

void bt_table_remove(bt_instance_t *worker)
{
    uint8_t *kvt;

    BT_ASSERT(bt_list_empty(&worker->legs));
    bt_list_remove(&worker->link);
    /* Owned since bt_table_add(); const only because messages borrow it. */
    memcpy(&kvt, &worker->hello.kvt, sizeof(kvt));
    bt_free(kvt);
    bt_free(worker);
}

bt_instance_t *bt_table_find(const bt_table_t *table, uint64_t instance)
{
    const bt_list_t *head = &table->workers;

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        bt_instance_t *worker = BT_CONTAINER_OF(pos, bt_instance_t, link);

        if (worker->hello.instance == instance) {
            return worker;
        }
    }
    return NULL;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

/* How full the worker is; smaller is better. */
static uint64_t load_of(const bt_instance_t *worker)
{
    const uint64_t seats =
        max_u64(worker->seats, worker->stats.active_requests);
    const uint64_t blocks = max_u64(worker->blocks, worker->stats.blocks_used);

    if (worker->hello.role == BT_ROLE_PREFILL) {
        /* One more request costs about as much as a token where there are
         * none outstanding, so that idle workers take turns. */
        return worker->prefill_tokens + worker->stats.waiting_requests;
    }
    return max_u64(seats * SHARE_ONE / worker->hello.max_batch,
                   blocks * SHARE_ONE / worker->hello.n_blocks);
}

static bool is_avoided(const bt_avoid_t *avoid, const bt_instance_t *worker)
{
    for (uint32_t i = 0; (avoid != NULL) && (i < avoid->n); i++) {
        if (avoid->instances[i] == worker->hello.instance) {
            return true;
        }
    }
    return false;
}

static bool better(const bt_avoid_t *avoid, const bt_instance_t *a,
                   const bt_instance_t *b)
{
    const bool avoid_a = is_avoided(avoid, a);
    const uint64_t load_a = load_of(a);
    const uint64_t load_b = load_of(b);

    if (a->state != b->state) {
        return a->state == BT_INSTANCE_UP;
    }
    if (avoid_a != is_avoided(avoid, b)) {
        return !avoid_a;
    }
    if (load_a != load_b) {
        return load_a < load_b;
    }
    return a->last_taken < b->last_taken;
}

/* The best worker of a role that has all @a flags; NULL when none takes
 * requests. */
static bt_instance_t *best(const bt_table_t *table, const bt_avoid_t *avoid,
                           bt_role_t role, uint32_t flags)
{
    const bt_list_t *head = &table->workers;
    bt_instance_t *found = NULL;

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        bt_instance_t *worker = BT_CONTAINER_OF(pos, bt_instance_t, link);

        if ((worker->hello.role != role) ||
            (worker->state == BT_INSTANCE_DRAINING) ||
            ((worker->hello.flags & flags) != flags)) {
            continue;
        }
        if ((found == NULL) || better(avoid, worker, found)) {
            found = worker;
        }
    }
    return found;
}

static bool healthy(const bt_instance_t *worker)
{
    return (worker != NULL) && (worker->state == BT_INSTANCE_UP);
}

bool bt_pick_is_healthy(const bt_pick_t *pick)
{
    return healthy(pick->decode) &&
           ((pick->prefill == NULL) || healthy(pick->prefill));
}

/* Should the decode worker do both phases, since prompts queue up? Its batch
 * waits for each chunk: it gets a share of the queue only, and none of a short
 * one. */
static bool relieves(const bt_instance_t *local, const bt_instance_t *prefill)
{
    return prefill->prefill_tokens >=
           LOCAL_FROM_TOKENS + LOCAL_SHARE * local->prefill_tokens;
}

bool bt_table_pick(const bt_table_t *table, const bt_avoid_t *avoid,
                   bt_pick_t *pick_p)
{
    bt_instance_t *prefill = best(table, avoid, BT_ROLE_PREFILL, 0);
    bt_instance_t *decode = best(table, avoid, BT_ROLE_DECODE, 0);
    bt_instance_t *local =
        best(table, avoid, BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);

    if (healthy(prefill)
            ? healthy(local) && relieves(local, prefill)
            : healthy(local) || ((prefill == NULL) && (local != NULL))) {
        prefill = NULL;
        decode = local;
    } else if (prefill == NULL) {
        return false;
    }
    if (decode == NULL) {
        return false;
    }
    pick_p->prefill = prefill;
    pick_p->decode = decode;
    return true;
}

void bt_table_take(bt_table_t *table, const bt_pick_t *pick)
{
    table->n_taken++;
    pick->decode->last_taken = table->n_taken;
    if (pick->prefill != NULL) {
        pick->prefill->last_taken = table->n_taken;
    }
}

bool bt_table_ready(const bt_table_t *table)
{
    bt_pick_t pick;

    return bt_table_pick(table, NULL, &pick) && bt_pick_is_healthy(&pick);
}

uint32_t bt_table_context_tokens(const bt_table_t *table)
{
    const bt_list_t *head = &table->workers;
    uint32_t least = UINT32_MAX;

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        const bt_msg_hello_t *hello =
            &BT_CONTAINER_OF(pos, bt_instance_t, link)->hello;
        const uint64_t held =
            (uint64_t)hello->n_blocks * hello->tokens_per_block;

        if (hello->context_tokens < least) {
            least = hello->context_tokens;
        }
        if ((hello->role == BT_ROLE_DECODE) && (held < least)) {
            least = (uint32_t)held;
        }
    }
    return least;
}
