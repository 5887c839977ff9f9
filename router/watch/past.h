/* SPDX-License-Identifier: Apache-2.0 */
/** @file past.h
 *
 * The generations that ended lately: their ledgers and where they were placed,
 * for people who ask why one was slow. The latest 1,024, in memory that is
 * taken once (1.6 MB, used as they come). Texts of prompt and answer are here
 * only where the operator says so (--request-texts): their beginnings.
 *
 * Pure. Threads: one owns it.
 */
#ifndef BT_ROUTER_WATCH_PAST_H
#define BT_ROUTER_WATCH_PAST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "router/observe/record.h"

#define BT_PAST_KEPT    1024u
#define BT_PAST_ENDED   160u
#define BT_PAST_TROUBLE 256u

typedef struct bt_past_one {
    char model[BT_CONFIG_MODEL_NAME_BYTES];
    uint64_t begin_unix_ms;
    uint64_t begin_us; /**< the same, by the core's clock */
    bt_ledger_t ledger;
    bt_gen_origin_t origin;
    bt_finish_t finish;
    int http_status;
    char trouble[BT_PAST_TROUBLE];
    uint32_t n_tries;
    bt_gen_attempt_t tries[BT_GEN_MAX_ATTEMPTS]; /**< without `ended` */
    char ended[BT_GEN_MAX_ATTEMPTS][BT_PAST_ENDED];
    char *prompt, *answer; /**< owned: how they begin; NULL: not kept */
} bt_past_one_t;

typedef struct bt_past {
    uint64_t n_ever;
    bt_past_one_t *ring; /**< owned; BT_PAST_KEPT of them */
} bt_past_t;

BT_MUST_CHECK bt_status_t bt_past_init(bt_past_t *past);
void bt_past_fini(bt_past_t *past); /**< also of a zeroed one */

/** How prompt and answer begin; NULL: that is not kept. */
typedef struct bt_past_texts {
    char *prompt, *answer; /**< owned */
} bt_past_texts_t;

/** @param unix_minus_core_ns  turns the core's clock into the time of day
 *  @param texts               taken over */
void bt_past_add(bt_past_t *past, const char *model,
                 const bt_gen_record_t *record, int64_t unix_minus_core_ns,
                 bt_past_texts_t texts);

/** What is asked for; all zero: all. */
typedef struct bt_past_filter {
    const char *model; /**< or NULL */
    uint64_t slow_us;  /**< that took at least so long */
    bool missed;       /**< that missed a target */
    bool failed;       /**< that ended with an error */
    uint64_t before;   /**< number: those that ended before it; 0: all */
    uint32_t limit;    /**< 0: none */
} bt_past_filter_t;

/** By its number, or by the id of its answer: then choice 0. @return NULL: it
 *  is not kept */
const bt_past_one_t *bt_past_find(const bt_past_t *past, const char *id);
/** Those that the filter lets through, the latest first, as fields: kept and
 *  requests. */
void bt_past_write(const bt_past_t *past, const bt_past_filter_t *filter,
                   bt_json_t *json);
/** One with its stations, as an object. */
void bt_past_write_one(const bt_past_one_t *one, bt_json_t *json);

/* ---- past_write.c ---- */

/** The fields that a list has, too. */
void bt_past_write_fields(const bt_past_one_t *one, bt_json_t *json);
bool bt_past_missed(const bt_past_one_t *one);

#endif
