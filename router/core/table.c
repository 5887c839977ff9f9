/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "router/core/kv_links.h"

void bt_table_init(bt_table_t *table, bt_hash128_t model)
{
    memset(table, 0, sizeof(*table));
    bt_list_init(&table->workers);
    bt_list_init(&table->candidates);
    bt_list_init(&table->cuts);
    table->model = model;
}

void bt_table_fini(bt_table_t *table)
{
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &table->workers, link) {
        bt_table_remove(table, worker);
    }
    bt_sched_links_fini(&table->numbers);
}

/* All present workers passed this check, so any of them can be compared with.
 */
static bt_status_t check_against(const bt_table_t *table,
                                 const bt_msg_hello_t *mine,
                                 const bt_msg_hello_t *hello,
                                 char why[BT_TABLE_WHY_BYTES])
{
    /* Both are of one model: the text after the first blank, which identifies
     * the model, is equal. */
    const bool may_mix =
        strcmp(hello->profile + strcspn(hello->profile, " "),
               mine->profile + strcspn(mine->profile, " ")) == 0;

    if ((strcmp(hello->profile, mine->profile) != 0) &&
        !(table->mixes_profiles && may_mix)) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s has numeric profile %s, but %s has %s%s", hello->name,
                 hello->profile, mine->name, mine->profile,
                 may_mix ? " (--allow-mixed-numerics)" : "");
        return BT_ERR_MISMATCH;
    }
    if (hello->kv_type != mine->kv_type) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s stores KV as type %u, but %s as type %u (--kv-dtype)",
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
    if (!bt_hash128_equal(hello->layout, mine->layout)) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s has another KV block layout (%016" PRIx64
                 ") than %s (%016" PRIx64 ")",
                 hello->name, hello->layout.hi, mine->name, mine->layout.hi);
        return BT_ERR_MISMATCH;
    }
    return BT_OK;
}

/* True when both workers could serve together: equal numerics profile (unless
 * the table mixes profiles), KV type, block size and layout. */
static bool is_same_kind(const bt_table_t *table, const bt_msg_hello_t *a,
                         const bt_msg_hello_t *b)
{
    char why[BT_TABLE_WHY_BYTES];

    return check_against(table, a, b, why) == BT_OK;
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
    if (!bt_hash128_equal(bt_hello_base(hello), table->model)) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s runs another model (hash %016" PRIx64 " not %016" PRIx64
                 ")",
                 hello->name, bt_hello_base(hello).hi, table->model.hi);
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
    if ((hello->sleep_order > BT_TABLE_MAX_NUMBER) ||
        (hello->weights.update > BT_TABLE_MAX_NUMBER)) {
        snprintf(why, BT_TABLE_WHY_BYTES,
                 "%s names an order to sleep, or a replacement of weights, "
                 "after which no larger number would be left",
                 hello->name);
        return BT_ERR_MISMATCH;
    }
    if (bt_list_empty(&table->workers)) {
        return BT_OK;
    }
    return check_against(
        table,
        &BT_CONTAINER_OF(table->workers.next, bt_instance_t, link)->hello,
        hello, why);
}

/* Sets which tasks the worker can get with these roles. */
static void set_roles(bt_instance_t *worker, uint32_t roles)
{
    const bool prefills_itself =
        (roles == BT_ROLES_BOTH) ||
        ((worker->hello.flags & BT_HELLO_LOCAL_PREFILL) != 0);

    worker->roles = roles;
    worker->sched.roles =
        ((worker->hello.flags & BT_HELLO_FANOUT) != 0) ? BT_SCHED_FANOUT : 0;
    if ((worker->hello.flags & BT_HELLO_PROCESSORS) != 0) {
        worker->sched.roles |= BT_SCHED_PROCESSORS;
    }
    if ((worker->hello.flags & BT_HELLO_BEAMS) != 0) {
        worker->sched.roles |= BT_SCHED_BEAMS;
    }
    if ((worker->hello.flags & BT_HELLO_GRAMMARS) != 0) {
        worker->sched.roles |= BT_SCHED_GRAMMARS;
    }
    if ((worker->hello.flags & BT_HELLO_TABLES) != 0) {
        worker->sched.roles |= BT_SCHED_TABLES;
    }
    if (((worker->hello.flags & BT_HELLO_ADAPTERS) != 0) &&
        !worker->lacks_adapters) {
        worker->sched.roles |= BT_SCHED_ADAPTERS;
    }
    if ((roles & BT_ROLE_PREFILL) != 0) {
        worker->sched.roles |= BT_SCHED_PREFILL;
    }
    if ((roles & BT_ROLE_DECODE) != 0) {
        worker->sched.roles |=
            BT_SCHED_DECODE | (prefills_itself ? BT_SCHED_LOCAL : 0);
    }
    if (((worker->hello.flags & BT_HELLO_LOCAL_WEIGHED) != 0) &&
        (roles == BT_ROLE_DECODE)) {
        worker->sched.roles |= BT_SCHED_WEIGHED;
    }
}

bt_status_t bt_table_add(bt_table_t *table, const bt_msg_hello_t *hello,
                         bt_instance_t **worker_p)
{
    bt_instance_t *worker = bt_calloc(1, sizeof(*worker));
    bt_wire_rank_t *ranks = NULL;

    if (worker == NULL) {
        goto err;
    }
    if (bt_wire_ranks_copy(hello->ranks, hello->n_ranks, &ranks) != BT_OK) {
        goto err_worker;
    }
    worker->sched.number = bt_sched_links_free(&table->numbers);
    if (bt_sched_links_add(&table->numbers, worker->sched.number) != BT_OK) {
        goto err_ranks;
    }
    worker->sched.tells_links = (hello->flags & BT_HELLO_KV_LINKS) != 0;
    worker->is_awaited = !bt_table_ready(table);
    table->n_awaited += worker->is_awaited ? 1 : 0;
    worker->hello = *hello;
    worker->hello.ranks = ranks;
    bt_list_init(&worker->legs);
    worker->sched.id = hello->instance;
    set_roles(worker, hello->role);
    worker->sched.max_seats = hello->max_batch;
    worker->sched.n_blocks = hello->n_blocks;
    bt_list_push_back(&table->workers, &worker->link);
    bt_list_push_back(&table->candidates, &worker->sched.link);
    *worker_p = worker;
    return BT_OK;

err_ranks:
    bt_free(ranks);
err_worker:
    bt_free(worker);
err:
    return BT_ERR_NO_MEMORY;
}

void bt_table_remove(bt_table_t *table, bt_instance_t *worker)
{
    bt_wire_rank_t *ranks;

    BT_ASSERT(bt_list_empty(&worker->legs));
    bt_list_remove(&worker->link);
    bt_list_remove(&worker->sched.link);
    bt_kv_links_forget(table, worker);
    table->n_awaited -= worker->is_awaited ? 1 : 0;
    /* Owned since bt_table_add(); const only because messages borrow it. */
    memcpy(&ranks, &worker->hello.ranks, sizeof(ranks));
    bt_free(ranks);
    bt_free(worker);
}

bt_instance_t *bt_table_find(const bt_table_t *table, uint64_t instance)
{
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &table->workers, link) {
        if (worker->hello.instance == instance) {
            return worker;
        }
    }
    return NULL;
}

void bt_table_lacks_adapters(bt_instance_t *worker, bool lacks)
{
    worker->lacks_adapters = lacks;
    set_roles(worker, worker->roles);
}

bool bt_table_report(bt_instance_t *worker, const bt_msg_stats_t *stats)
{
    const uint32_t roles = stats->roles & BT_ROLES_BOTH;

    worker->stats = *stats;
    worker->has_stats = true;
    worker->sched.reported_seats = stats->active_requests;
    worker->sched.reported_blocks = stats->blocks_used;
    worker->sched.reported_waiting = stats->waiting_requests;
    if ((roles == 0) || (roles == worker->roles)) {
        return false;
    }
    set_roles(worker, roles);
    return true;
}

static bt_instance_t *instance_of(bt_sched_worker_t *sched)
{
    return (sched == NULL) ? NULL
                           : BT_CONTAINER_OF(sched, bt_instance_t, sched);
}

bool bt_table_pick(const bt_table_t *table, const bt_sched_request_t *request,
                   bt_pick_t *pick_p)
{
    bt_sched_placement_t placement;

    if (!bt_sched_place(&table->candidates, request, &placement)) {
        return false;
    }
    *pick_p = (bt_pick_t){.prefill = instance_of(placement.prefill),
                          .decode = instance_of(placement.decode),
                          .weighed = instance_of(placement.weighed),
                          .placement = placement};
    return true;
}

void bt_table_pick_weighed(bt_pick_t *pick)
{
    bt_sched_place_weighed(&pick->placement);
    pick->decode = pick->weighed;
    pick->prefill = NULL;
    pick->weighed = NULL;
}

uint32_t bt_table_common_capabilities(const bt_table_t *table)
{
    uint32_t common = BT_SCHED_CAPABILITIES;

    BT_LIST_FOR_EACH_ENTRY(const bt_sched_worker_t, worker, &table->candidates,
                           link) {
        common &= worker->roles;
    }
    return common;
}

bool bt_table_ready(const bt_table_t *table)
{
    const bt_sched_request_t request = {.n_tokens = 1, .max_new = 2};
    bt_sched_placement_t placement;

    return bt_sched_place(&table->candidates, &request, &placement) &&
           bt_sched_placement_is_healthy(&placement) &&
           !bt_kv_links_await(table);
}

uint32_t bt_table_context_tokens(const bt_table_t *table)
{
    uint32_t least = UINT32_MAX;

    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &table->workers, link) {
        const bt_msg_hello_t *hello = &worker->hello;
        const bt_kv_need_t need = bt_kv_need_of(hello);
        const uint64_t held = bt_kv_need_longest(&need, hello->n_blocks);

        if (hello->context_tokens < least) {
            least = hello->context_tokens;
        }
        if (((worker->roles & BT_ROLE_DECODE) != 0) && (held < least)) {
            least = (uint32_t)held;
        }
    }
    return least;
}

/* ---- KV blocks ---- */

bt_kv_need_t bt_kv_need_of(const bt_msg_hello_t *hello)
{
    const bool says = (hello->span_blocks > 0) || (hello->window_blocks > 0);

    return (bt_kv_need_t){
        .tokens_per_block = hello->tokens_per_block,
        .span_blocks = says ? hello->span_blocks : 1,
        .window_blocks = hello->window_blocks,
        .window_spans = hello->window_spans,
    };
}

uint64_t bt_kv_need_blocks(const bt_kv_need_t *need, uint64_t n_tokens)
{
    const uint64_t t = need->tokens_per_block;
    const uint64_t n = n_tokens / t + (n_tokens % t != 0);
    const uint64_t in_window =
        (n < need->window_spans) ? n : need->window_spans;

    return need->span_blocks * n + need->window_blocks * in_window;
}

uint64_t bt_kv_need_longest(const bt_kv_need_t *need, uint64_t n_blocks)
{
    const uint64_t each = need->span_blocks;
    const uint64_t within = each + need->window_blocks;
    const uint64_t all_windows =
        (uint64_t)need->window_blocks * need->window_spans;
    uint64_t n = n_blocks / within; /* if no attention window is full */

    if (n >= need->window_spans) {
        if (each == 0) {
            return UINT64_MAX;
        }
        n = (n_blocks - all_windows) / each;
    }
    return n * need->tokens_per_block;
}

/* ---- workers of another profile ---- */

/* Phases that workers can serve together, in ascending order. */
enum { NOTHING, ALONE, BOTH_ROLES };

typedef struct coverage {
    uint32_t roles;
    bool alone;
} coverage_t;

static void coverage_add(coverage_t *coverage, uint32_t roles, uint32_t flags)
{
    coverage->roles |= roles;
    coverage->alone =
        coverage->alone || (((roles & BT_ROLE_DECODE) != 0) &&
                            ((flags & BT_HELLO_LOCAL_PREFILL) != 0));
}

static int coverage_rank(const coverage_t *coverage)
{
    if (coverage->roles == BT_ROLES_BOTH) {
        return BOTH_ROLES;
    }
    return coverage->alone ? ALONE : NOTHING;
}

static int rank_of_table(const bt_table_t *table)
{
    coverage_t coverage = {0};

    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &table->workers, link) {
        coverage_add(&coverage, worker->roles, worker->hello.flags);
    }
    return coverage_rank(&coverage);
}

static void forget_old(bt_profile_quorum_t *quorum, uint64_t now_us)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < quorum->n; i++) {
        if (now_us - quorum->list[i].seen_us < BT_QUORUM_KEEP_US) {
            quorum->list[n++] = quorum->list[i];
        }
    }
    quorum->n = n;
}

/* Stores a refused worker: in its own entry, a new one, or the one that was not
 * seen for longest. */
static void store(bt_profile_quorum_t *quorum, const bt_msg_hello_t *hello,
                  uint64_t now_us)
{
    bt_refused_worker_t *entry = NULL;

    for (uint32_t i = 0; (i < quorum->n) && (entry == NULL); i++) {
        if (quorum->list[i].hello.instance == hello->instance) {
            entry = &quorum->list[i];
        }
    }
    if ((entry == NULL) && (quorum->n < BT_QUORUM_MAX_REFUSED)) {
        entry = &quorum->list[quorum->n++];
    }
    if (entry == NULL) {
        entry = &quorum->list[0];
        for (uint32_t i = 1; i < quorum->n; i++) {
            if (quorum->list[i].seen_us < entry->seen_us) {
                entry = &quorum->list[i];
            }
        }
    }
    entry->hello = *hello;
    entry->hello.ranks = NULL; /* borrowed from a message */
    entry->hello.n_ranks = 0;
    entry->seen_us = now_us;
}

static int rank_of_kind(const bt_profile_quorum_t *quorum,
                        const bt_table_t *table, const bt_msg_hello_t *hello)
{
    coverage_t coverage = {0};

    for (uint32_t i = 0; i < quorum->n; i++) {
        const bt_msg_hello_t *other = &quorum->list[i].hello;

        if (is_same_kind(table, other, hello)) {
            coverage_add(&coverage, other->role, other->flags);
        }
    }
    return coverage_rank(&coverage);
}

/* True when the worker is refused only because of the present workers, and not
 * because of its ranks. */
static bool is_of_another_kind(const bt_table_t *table,
                               const bt_msg_hello_t *hello)
{
    char why[BT_TABLE_WHY_BYTES];
    bt_table_t empty;

    bt_table_init(&empty, table->model);
    return !bt_list_empty(&table->workers) &&
           (bt_table_check(&empty, hello, why) == BT_OK) &&
           !is_same_kind(
               table,
               &BT_CONTAINER_OF(table->workers.next, bt_instance_t, link)
                    ->hello,
               hello);
}

bool bt_profile_quorum_refused(bt_profile_quorum_t *quorum,
                               const bt_table_t *table,
                               const bt_msg_hello_t *hello, uint64_t now_us)
{
    if (!is_of_another_kind(table, hello)) {
        return false;
    }
    forget_old(quorum, now_us);
    store(quorum, hello, now_us);
    if (rank_of_table(table) == BOTH_ROLES) {
        quorum->better_since_us = 0;
    }
    if (rank_of_kind(quorum, table, hello) <= rank_of_table(table)) {
        return false;
    }
    if (quorum->better_since_us == 0) {
        quorum->better_since_us = now_us;
    }
    if (now_us - quorum->better_since_us < BT_QUORUM_WAIT_US) {
        return false;
    }
    memset(quorum, 0, sizeof(*quorum));
    return true;
}
