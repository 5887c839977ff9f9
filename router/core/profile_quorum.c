/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/profile_quorum.h"

#include <string.h>

/* What workers can serve together, in ascending order. */
enum { NOTHING, ALONE, BOTH_ROLES };

typedef struct force {
    uint32_t roles;
    bool alone;
} force_t;

static void add(force_t *force, uint32_t roles, uint32_t flags)
{
    force->roles |= roles;
    force->alone = force->alone || (((roles & BT_ROLE_DECODE) != 0) &&
                                    ((flags & BT_HELLO_LOCAL_PREFILL) != 0));
}

static int worth(const force_t *force)
{
    if (force->roles == BT_ROLES_BOTH) {
        return BOTH_ROLES;
    }
    return force->alone ? ALONE : NOTHING;
}

static int worth_of_table(const bt_table_t *table)
{
    const bt_list_t *head = &table->workers;
    force_t force = {0};

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        const bt_instance_t *worker = BT_CONTAINER_OF(pos, bt_instance_t, link);

        add(&force, worker->roles, worker->hello.flags);
    }
    return worth(&force);
}

static void forget_old(bt_rivals_t *rivals, uint64_t now_us)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < rivals->n; i++) {
        if (now_us - rivals->list[i].seen_us < BT_RIVALS_KEEP_US) {
            rivals->list[n++] = rivals->list[i];
        }
    }
    rivals->n = n;
}

/* Stores a refused worker: in its own entry, a new one, or the one that was not
 * seen for longest. */
static void note(bt_rivals_t *rivals, const bt_msg_hello_t *hello,
                 uint64_t now_us)
{
    bt_rival_t *place = NULL;

    for (uint32_t i = 0; (i < rivals->n) && (place == NULL); i++) {
        if (rivals->list[i].hello.instance == hello->instance) {
            place = &rivals->list[i];
        }
    }
    if ((place == NULL) && (rivals->n < BT_RIVALS_MAX)) {
        place = &rivals->list[rivals->n++];
    }
    if (place == NULL) {
        place = &rivals->list[0];
        for (uint32_t i = 1; i < rivals->n; i++) {
            if (rivals->list[i].seen_us < place->seen_us) {
                place = &rivals->list[i];
            }
        }
    }
    place->hello = *hello;
    place->hello.ranks = NULL; /* borrowed from a message */
    place->hello.n_ranks = 0;
    place->seen_us = now_us;
}

static int worth_of_kind(const bt_rivals_t *rivals, const bt_table_t *table,
                         const bt_msg_hello_t *hello)
{
    force_t force = {0};

    for (uint32_t i = 0; i < rivals->n; i++) {
        const bt_msg_hello_t *other = &rivals->list[i].hello;

        if (bt_table_is_same_kind(table, other, hello)) {
            add(&force, other->role, other->flags);
        }
    }
    return worth(&force);
}

/* True when the worker is refused only because of the present workers, and not
 * because of its ranks. */
static bool is_rival(const bt_table_t *table, const bt_msg_hello_t *hello)
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

bool bt_rivals_come(bt_rivals_t *rivals, const bt_table_t *table,
                    const bt_msg_hello_t *hello, uint64_t now_us)
{
    if (!is_rival(table, hello)) {
        return false;
    }
    forget_old(rivals, now_us);
    note(rivals, hello, now_us);
    if (worth_of_table(table) == BOTH_ROLES) {
        rivals->better_since_us = 0;
    }
    if (worth_of_kind(rivals, table, hello) <= worth_of_table(table)) {
        return false;
    }
    if (rivals->better_since_us == 0) {
        rivals->better_since_us = now_us;
    }
    if (now_us - rivals->better_since_us < BT_RIVALS_WAIT_US) {
        return false;
    }
    memset(rivals, 0, sizeof(*rivals));
    return true;
}
