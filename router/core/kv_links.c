/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/kv_links.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

/* ---- reasons ---- */

static bt_cut_t *cut_find(bt_table_t *table, const bt_instance_t *prefill,
                          const bt_instance_t *decode)
{
    BT_LIST_FOR_EACH_ENTRY(bt_cut_t, cut, &table->cuts, link) {
        if ((cut->prefill == prefill) && (cut->decode == decode)) {
            return cut;
        }
    }
    return NULL;
}

static void cut_drop(bt_table_t *table, bt_cut_t *cut)
{
    if (cut != NULL) {
        bt_list_remove(&cut->link);
        table->n_cuts--;
        bt_free(cut);
    }
}

/* Stores the reason of a failed link. @return true when it is new */
static bool cut_note(bt_table_t *table, const bt_instance_t *prefill,
                     const bt_instance_t *decode,
                     const bt_msg_kv_link_t *report)
{
    bt_cut_t *cut = cut_find(table, prefill, decode);

    if ((cut != NULL) && (strcmp(cut->at, report->at) == 0) &&
        (strcmp(cut->why, report->why) == 0)) {
        return false;
    }
    if ((cut == NULL) && (table->n_cuts < BT_TABLE_MAX_CUTS)) {
        cut = bt_calloc(1, sizeof(*cut));
        if (cut != NULL) {
            cut->prefill = prefill;
            cut->decode = decode;
            bt_list_push_back(&table->cuts, &cut->link);
            table->n_cuts++;
        }
    }
    if (cut == NULL) { /* list is full, or no memory */
        return false;
    }
    memcpy(cut->at, report->at, sizeof(cut->at));
    memcpy(cut->why, report->why, sizeof(cut->why));
    return true;
}

void bt_cut_print(const bt_cut_t *cut, char text[BT_CUT_TEXT])
{
    const bool has_at = cut->at[0] != '\0';

    snprintf(text, BT_CUT_TEXT, "%s cannot reach %s%s%s: %s",
             cut->prefill->hello.name, cut->decode->hello.name,
             has_at ? " at " : "", cut->at, cut->why);
}

const bt_cut_t *bt_kv_links_first_cut(const bt_table_t *table)
{
    return bt_list_empty(&table->cuts)
               ? NULL
               : BT_CONTAINER_OF(table->cuts.next, bt_cut_t, link);
}

/* ---- links ---- */

bt_kv_link_news_t bt_kv_link_report(bt_table_t *table, bt_instance_t *prefill,
                                    const bt_instance_t *decode,
                                    const bt_msg_kv_link_t *report)
{
    bt_sched_links_t *links = &prefill->sched.links;
    const uint32_t number = decode->sched.number;
    const bool was_used = bt_sched_links_has(links, number);
    const bool was_cut = bt_sched_links_has(&prefill->cut, number);

    if (report->state == BT_KV_LINK_PROVEN) {
        if (was_used || (bt_sched_links_add(links, number) != BT_OK)) {
            return BT_KV_LINK_SAME;
        }
        bt_sched_links_remove(&prefill->cut, number);
        cut_drop(table, cut_find(table, prefill, decode));
        return BT_KV_LINK_IS_USED;
    }
    bt_sched_links_remove(links, number);
    if (report->state != BT_KV_LINK_FAILED) {
        bt_sched_links_remove(&prefill->cut, number);
        cut_drop(table, cut_find(table, prefill, decode));
        return (was_used || was_cut) ? BT_KV_LINK_IS_UNUSED : BT_KV_LINK_SAME;
    }
    (void)!bt_sched_links_add(&prefill->cut, number); /* else not counted */
    return cut_note(table, prefill, decode, report) ? BT_KV_LINK_IS_CUT
           : (was_used || !was_cut)                 ? BT_KV_LINK_IS_UNUSED
                                                    : BT_KV_LINK_SAME;
}

void bt_kv_links_forget(bt_table_t *table, bt_instance_t *worker)
{
    const uint32_t number = worker->sched.number;
    BT_LIST_FOR_EACH_ENTRY(bt_cut_t, cut, &table->cuts, link) {
        if ((cut->prefill == worker) || (cut->decode == worker)) {
            cut_drop(table, cut);
        }
    }
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, other, &table->workers, link) {
        bt_sched_links_remove(&other->sched.links, number);
        bt_sched_links_remove(&other->cut, number);
    }
    bt_sched_links_remove(&table->numbers, number);
    bt_sched_links_fini(&worker->sched.links);
    bt_sched_links_fini(&worker->cut);
}

bt_kv_link_counts_t bt_kv_links_count(const bt_table_t *table)
{
    const bt_list_t *head = &table->workers;
    bt_kv_link_counts_t counts = {0};
    uint64_t n_decode = 0, n_pairs = 0;

    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, head, link) {
        n_decode += ((worker->roles & BT_ROLE_DECODE) != 0) ? 1 : 0;
    }
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, head, link) {
        if (worker->sched.tells_links &&
            ((worker->roles & BT_ROLE_PREFILL) != 0)) {
            n_pairs += n_decode;
            n_pairs -= ((worker->roles & BT_ROLE_DECODE) != 0) ? 1 : 0;
            counts.n_proven += worker->sched.links.n;
            counts.n_failed += worker->cut.n;
        }
    }
    if (n_pairs > counts.n_proven + counts.n_failed) {
        counts.n_unproven = n_pairs - counts.n_proven - counts.n_failed;
    }
    return counts;
}

/* ---- who is waited for ---- */

static bool is_there(const bt_instance_t *worker, bt_role_t role)
{
    return (worker->sched.health != BT_SCHED_DRAINING) &&
           ((worker->roles & (uint32_t)role) != 0);
}

/* True when a prefill worker is present that reaches @a decode; NULL: any. */
static bool has_prefill(const bt_table_t *table, const bt_instance_t *decode)
{
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &table->workers, link) {
        if (is_there(worker, BT_ROLE_PREFILL) &&
            ((decode == NULL) ||
             bt_sched_reaches(&worker->sched, &decode->sched))) {
            return true;
        }
    }
    return false;
}

bool bt_kv_links_await(const bt_table_t *table)
{
    if ((table->n_awaited == 0) || !has_prefill(table, NULL)) {
        return false;
    }
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &table->workers, link) {
        if (worker->is_awaited && is_there(worker, BT_ROLE_DECODE) &&
            ((worker->sched.roles & BT_SCHED_LOCAL) == 0) &&
            !has_prefill(table, worker)) {
            return true;
        }
    }
    return false;
}

void bt_kv_links_settle(bt_table_t *table)
{
    if ((table->n_awaited == 0) || !bt_table_ready(table)) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &table->workers, link) {
        worker->is_awaited = false;
    }
    table->n_awaited = 0;
}
