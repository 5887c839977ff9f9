/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/profile_quorum.h"

#include <string.h>

/* What workers can serve together, in ascending order. */
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

        if (bt_table_is_same_kind(table, other, hello)) {
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
           !bt_table_is_same_kind(
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
