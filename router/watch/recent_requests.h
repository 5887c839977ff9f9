/* SPDX-License-Identifier: Apache-2.0 */
/** @file recent_requests.h
 *
 * Recently finished generations: their timing records and placement, for
 * debugging slow requests. The latest 1,024, in memory that is allocated once
 * (1.6 MB, touched as they come). The beginnings of prompt and answer are kept
 * only if the operator enables it (--expose-request-text).
 *
 * Pure. Threads: one owns it.
 */
#ifndef BT_ROUTER_WATCH_RECENT_REQUESTS_H
#define BT_ROUTER_WATCH_RECENT_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "router/observe/record.h"

#define BT_PAST_KEPT    1024u
#define BT_PAST_ENDED   160u
#define BT_PAST_TROUBLE 256u

typedef struct bt_recent_request {
    char model[BT_CONFIG_MODEL_NAME_BYTES];
    uint64_t begin_unix_ms;
    uint64_t begin_us; /**< begin by the core's clock */
    bt_ledger_t ledger;
    bt_gen_origin_t origin;
    bt_finish_t finish;
    int http_status;
    char trouble[BT_PAST_TROUBLE];
    uint32_t n_tries;
    bt_gen_attempt_t tries[BT_GEN_MAX_ATTEMPTS]; /**< without `ended` */
    char ended[BT_GEN_MAX_ATTEMPTS][BT_PAST_ENDED];
    char *prompt, *answer; /**< owned: the beginnings; NULL: not kept */
} bt_recent_request_t;

typedef struct bt_recent_requests {
    uint64_t n_ever;
    bt_recent_request_t *ring; /**< owned; BT_PAST_KEPT entries */
} bt_recent_requests_t;

BT_MUST_CHECK bt_status_t bt_recent_requests_init(bt_recent_requests_t *past);
void bt_recent_requests_fini(
    bt_recent_requests_t *past); /**< a zeroed one is allowed */

/** Beginnings of prompt and answer; NULL: not kept. */
typedef struct bt_recent_requests_texts {
    char *prompt, *answer; /**< owned */
} bt_recent_requests_texts_t;

/** Adds a finished generation.
 *  @param unix_minus_core_ns  offset from the core's clock to the time of day
 *  @param texts               taken over */
void bt_recent_requests_add(bt_recent_requests_t *past, const char *model,
                            const bt_gen_record_t *record,
                            int64_t unix_minus_core_ns,
                            bt_recent_requests_texts_t texts);

/** Filter of generations; all zero: all. */
typedef struct bt_recent_requests_filter {
    const char *model; /**< or NULL */
    uint64_t slow_us;  /**< total time is at least this */
    bool missed;       /**< only those that missed a target */
    bool failed;       /**< only those that ended with an error */
    uint64_t before;   /**< only those that ended before this number; 0: all */
    uint32_t limit;    /**< most entries; 0: no limit */
} bt_recent_requests_filter_t;

/** Finds a generation by its number, or by the id of its answer (choice 0).
 *  @return NULL: not kept */
const bt_recent_request_t *
bt_recent_requests_find(const bt_recent_requests_t *past, const char *id);
/** Writes the generations that match the filter, the latest first, as the
 *  fields kept and requests. */
void bt_recent_requests_write(const bt_recent_requests_t *past,
                              const bt_recent_requests_filter_t *filter,
                              bt_json_t *json);
/** Writes one generation with its phases, as an object. */
void bt_recent_requests_write_one(const bt_recent_request_t *one,
                                  bt_json_t *json);

/* ---- recent_requests_write.c ---- */

/** Writes the fields of one generation that a list has too. */
void bt_recent_requests_write_fields(const bt_recent_request_t *one,
                                     bt_json_t *json);
bool bt_recent_requests_missed(const bt_recent_request_t *one);

/* ---- phases ----
 *
 * A timing record as consecutive phases that add up to its total time. The
 * record's own parts already do; the part between the first two tokens is
 * split further by the durations that workers report:
 *
 *     ledger   parse tokenize queue prefill_queue prefill first_token
 *     phases   parse tokenize queue prefill_queue prefill first_token
 *
 *     ledger   handover                                     decode
 *     phases   grant_wait kv_transfer join_wait second_token decode
 *
 * Reported durations are capped at the time that there was. Without a first or
 * second token, its phase is called "rest". */

#define BT_WATERFALL_PHASES 11u

typedef enum bt_phase_site {
    BT_AT_ROUTER,
    BT_AT_PREFILL, /**< where the prefill runs */
    BT_AT_DECODE,  /**< where the decode runs */
} bt_phase_site_t;

typedef struct bt_phase {
    const char *name; /**< static */
    bt_phase_site_t at;
    uint64_t start_us; /**< since the beginning */
    uint64_t length_us;
    uint32_t n_chunks; /**< chunks of the prefill; else 0 */
} bt_phase_t;

typedef struct bt_waterfall {
    uint32_t n; /**< phases that took any time */
    bt_phase_t phases[BT_WATERFALL_PHASES];
} bt_waterfall_t;

/** Splits the timing record of a finished generation into phases. */
void bt_waterfall_of(const bt_ledger_t *ledger, bt_waterfall_t *waterfall_p);

#endif
