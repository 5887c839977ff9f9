/* SPDX-License-Identifier: Apache-2.0 */
/** @file core.h
 *
 * The router's requests and workers, without sockets: events come in as calls
 * with the time, messages to workers and text to clients go out through a
 * small table of functions.
 *
 * A *generation* is one sequence to generate (a client's call may hold
 * several). Its life, in short; gen_life.h has all of it:
 *
 *     submit ─▶ WAITING ─▶ prefill ─▶ KV transfer ─▶ decode ─▶ ENDED ─▶ freed
 *                  ▲  (REQUEST to   (token #1)      (JOINED)      (all legs
 *                  │   both)   │         │             │           back)
 *                  └───────────┴─────────┴─────────────┘
 *                     re-run, attempt + 1: a worker was lost
 *
 * For its client a generation ends exactly once, with on_end(), unless the
 * client gave it up first with bt_core_cancel(). For the workers it ends when
 * each (worker, attempt), a *leg*, answered ENDED or was lost; only then the
 * generation is freed, so the workers' loads are right at any time.
 *
 * Generations of one prompt that are submitted together are sent together: to
 * the same workers, as a *group* (bt_msg_request_t.group) whose prompt is
 * computed, sent and held once. That is all they have in common; a re-run is
 * for each by itself, and so are all of them where workers take no groups.
 *
 * A re-run sends the prompt and the tokens that exist already to another pair.
 * Tokens depend only on request and model, so the text goes on as it would
 * have. While only silent workers are here, nothing is sent: they speak again
 * or are lost soon, and the times to wait begin when the last one is.
 *
 * Those that wait do so by tenant: whose turn it is among tenants is decided
 * by their weights (sched_fair.h), among those of one by priority and age. With
 * several tenants in force what is sent ahead is bounded for each (flows.c), so
 * that one that floods stands before nobody else at the workers.
 *
 * Threads: one thread owns a core.
 */
#ifndef BT_ROUTER_CORE_CORE_H
#define BT_ROUTER_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "common/sched/sched_fair.h"
#include "common/sched/sched_order.h"
#include "common/sched/sched_safety_factor.h"
#include "common/sched/sched_slo.h"
#include "common/wire/wire.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/core/prompt.h"
#include "router/core/rows.h"
#include "router/core/table.h"
#include "router/observe/metrics.h"
#include "router/observe/record.h"

/** One worker finds another's death before we do: so long a re-run does not go
 *  to that one, which would waste an attempt. */
#define BT_CORE_HOLD_MS 250

typedef struct bt_core bt_core_t;
typedef struct bt_gen bt_gen_t; /**< one generation */

/** Whose a generation is, as far as the core wants to know. All zero: nobody's
 *  in particular, which is a tenant, too. */
typedef struct bt_gen_tenant {
    uint64_t id;         /**< nobody else's, ever */
    uint32_t weight;     /**< sched_fair.h; 0 counts as 1 */
    uint32_t kv_percent; /**< of the decode workers' blocks; 0 counts as 100 */
} bt_gen_tenant_t;

/** What to generate. Everything is copied by bt_core_submit(), but for the
 *  prompt, of which it takes a reference. */
typedef struct bt_gen_spec {
    bt_prompt_t *prompt;    /**< at least 1 token */
    uint32_t max_new;       /**< at least 1 */
    bt_sampling_t sampling; /**< with end ids, bad words, biases and
                                 seed */
    const char *const *stops;
    uint32_t n_stops;
    /** Token sequences that end it; they stay in its output. */
    const bt_bad_word_t *stop_ids;
    uint32_t n_stop_ids;
    bool every_token;   /**< on_text() for each, with no text as well */
    bool keeps_stop;    /**< what ends it, stop word or end id, is text, too */
    bool shows_special; /**< special tokens are text, as they are spelled */
    /** Special tokens that are text even so, or NULL; lives as long as the
     *  core. */
    const bt_token_set_t *shown;
    bt_hash128_t space; /**< bt_msg_request_t.space */
    bt_wants_t wants;   /**< what it is to be told beside tokens */
    bt_gen_tenant_t tenant;
    uint32_t priority;     /**< among those of its tenant */
    uint32_t timeout_ms;   /**< 0 = the server's; longer than that is cut */
    bt_sched_slo_t target; /**< each 0 = the server's */
    uint64_t parse_us, tokenize_us; /**< for the ledger */
    uint32_t n_of_request;          /**< the same */
    uint64_t held_us; /**< it could have come so much earlier; a wait */
    bt_gen_origin_t origin;
} bt_gen_spec_t;

/** How a generation ended, for its client. */
typedef struct bt_gen_end {
    bt_finish_t finish; /**< STOP, LENGTH or ERROR */
    const char *text;   /**< the last piece, may be empty */
    size_t text_bytes;
    uint32_t n_prompt;
    uint32_t n_output;       /**< tokens generated, an end id included */
    const uint32_t *ids;     /**< n_output of them; NULL for an ERROR */
    bool by_end_id;          /**< the last of them is an end id: no text */
    uint32_t n_cached;       /**< bt_core_n_cached() */
    uint32_t n_kept;         /**< bt_core_n_kept() */
    int http_status;         /**< of an ERROR: 500, 503 or 504 */
    const char *message;     /**< of an ERROR: phase, worker and cause */
    uint64_t first_token_us; /**< as BT_TIME_FIRST_TOKEN; 0 = none came */
    bt_gen_rows_t *rows; /**< what it wanted: to be referenced or used at once;
                              NULL: nothing, or an ERROR */
    /** The last attempt; NULL when there was none. */
    const bt_gen_attempt_t *attempt;
} bt_gen_end_t;

/** What may be new of a worker. */
typedef enum bt_worker_news {
    BT_WORKER_JOINED,
    BT_WORKER_LOST,     /**< its link ended, for whatever reason */
    BT_WORKER_SILENT,   /**< nothing comes from it, or its work does not move */
    BT_WORKER_STARVED,  /**< nothing comes from it, for it gets no core */
    BT_WORKER_BACK,     /**< none of these any more */
    BT_WORKER_DRAINING, /**< it takes nothing new */
    BT_WORKER_DRAINED,  /**< ...and has nothing left */
    BT_WORKER_ON,       /**< it takes requests again */
    BT_WORKER_ROLE,     /**< it has another one */
} bt_worker_news_t;

typedef struct bt_core_ops {
    /** Post to a worker; @a ctx is send_ctx. Failure shows as a lost worker
     *  later. */
    void (*send)(void *ctx, bt_instance_t *worker, const bt_msg_t *msg);
    void *send_ctx;
    /** A generation is sent to workers for the first time: what becomes of it
     *  from here on is its answer or a failure. Also from inside
     *  bt_core_submit(), and it must not call the core. May be NULL. */
    void (*on_placed)(void *ctx, void *user);
    /** Text that is certain. May call bt_core_cancel() on this generation.
     *  @param n_output  tokens generated so far */
    void (*on_text)(void *ctx, void *user, const char *text, size_t bytes,
                    uint32_t n_output);
    /** The end; the generation is unknown to the client afterwards. */
    void (*on_end)(void *ctx, void *user, const bt_gen_end_t *end);
    /** All durations of a generation are known, ended well or not. Once per
     *  generation, at its end or (when a worker's part is late) soon after. */
    void (*on_ledger)(void *ctx, const bt_ledger_t *ledger);
    /** Once per generation, when no worker has a part of it any more, or from
     *  bt_core_record_rest(). May be NULL. */
    void (*on_record)(void *ctx, const bt_gen_record_t *record);
    /** KV reached a decode worker. @param first  of this generation */
    void (*on_transfer)(void *ctx, const bt_msg_joined_t *joined, bool first);
    /** May be NULL. */
    void (*on_time)(void *ctx, bt_gen_time_kind_t which, uint64_t us);
    /** An attempt is sent, for a reason. May be NULL. */
    void (*on_sent)(void *ctx, bt_sched_cause_t cause);
    /** An attempt failed, whatever comes of its generation. May be NULL. */
    void (*on_loss)(void *ctx, bt_gen_loss_t loss);
    /** Its attempt was given up, and it runs again. May be NULL. */
    void (*on_rerun)(void *ctx, const bt_gen_origin_t *origin, const char *why);
    /** Between the workers of an attempt. May be NULL.
     *  @param joined  of one that ENDED, else NULL */
    void (*on_handover)(void *ctx, const bt_gen_origin_t *origin,
                        const bt_gen_attempt_t *attempt,
                        bt_handover_phase_t phase,
                        const bt_msg_joined_t *joined);
    /** Something is new of a worker. May be NULL.
     *  @param text  a few words: why, or what it is now */
    void (*on_worker)(void *ctx, const bt_instance_t *worker,
                      bt_worker_news_t news, const char *text);
    /** bt_detok_init(), …_push() and …_finish(), or a test's. */
    void (*detok_init)(bt_detok_t *detok, const bt_tokenizer_t *tok);
    void (*detok_push)(bt_detok_t *detok, uint32_t id, bt_strbuf_t *out);
    void (*detok_finish)(bt_detok_t *detok, bt_strbuf_t *out);
    void *ctx;
} bt_core_ops_t;

typedef struct bt_core_config {
    bt_hash128_t model;        /**< identity of our model file */
    const bt_tokenizer_t *tok; /**< borrowed; for detokenizing */
    uint32_t n_vocab;          /**< larger ids are a worker's error */
    uint32_t max_queue;        /**< generations in flight */
    uint64_t max_logits_bytes; /**< of all generations; see bt_core_submit() */
    uint32_t worker_wait_ms;   /**< without a pair, each attempt, since a worker
                                    was last expected */
    uint32_t request_timeout_ms; /**< whole generation, not 0 */
    uint32_t still_ms;      /**< a worker whose work does not move is avoided */
    bt_sched_order_t order; /**< of those that wait for workers */
    bt_sched_slo_t target;  /**< of those that have none of their own */
    /** There are several: none may have much ahead of others at the workers. */
    bool has_tenants;
    bool mixes_profiles; /**< see bt_table_t */
} bt_core_config_t;

BT_MUST_CHECK bt_status_t bt_core_create(const bt_core_config_t *config,
                                         const bt_core_ops_t *ops,
                                         bt_core_t **core_p);
/** Frees everything; calls none of the ops. NULL is allowed. */
void bt_core_destroy(bt_core_t *core);

/* ---- generations ---- */

/**
 * Start a generation. on_text() and on_end() are never called from inside.
 *
 * @retval BT_OK
 * @retval BT_ERR_BUSY       max_queue are in flight: try again later.
 * @retval BT_ERR_TOO_LARGE  its logits, with those of all in flight, are more
 *                           than max_logits_bytes: try again later.
 * @retval BT_ERR_TIMED_OUT  its targets cannot be met: bt_core_late() has it.
 * @retval BT_ERR_INVALID_PARAM  a stop word is too long.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_core_submit(bt_core_t *core,
                                         const bt_gen_spec_t *spec, void *user,
                                         uint64_t now_us, bt_gen_t **gen_p);
/**
 * Start several generations of one prompt that differ in their draws, all or
 * none; otherwise as bt_core_submit().
 *
 * @param [in]  specs   n of them, at least 1; the same in all but sampling and
 *                      origin.
 * @param [in]  users   n of them.
 * @param [out] gens_p  n of them; of no use after a failure.
 */
BT_MUST_CHECK bt_status_t bt_core_submit_group(bt_core_t *core,
                                               const bt_gen_spec_t *specs,
                                               void *const *users, uint32_t n,
                                               uint64_t now_us,
                                               bt_gen_t **gens_p);
/** Why the last one was refused that was late. */
typedef struct bt_core_late {
    bool first; /**< the time to its first token, else that between tokens */
    uint32_t target_ms;
    uint64_t forecast_ms;
    uint32_t retry_s; /**< at least 1 */
} bt_core_late_t;
const bt_core_late_t *bt_core_late(const bt_core_t *core);
/** What it has been told beside text, from inside on_text(): n_output tokens of
 *  it count. NULL: it wanted nothing. */
bt_gen_rows_t *bt_core_rows(const bt_gen_t *gen);
/** Tokens of its prompt that were not computed, for their KV was there; 0 until
 *  that is known, which is before its first token. */
uint32_t bt_core_n_cached(const bt_gen_t *gen);
/** Tokens of its prompt that were computed, and whose KV is kept for others; as
 *  the one above. */
uint32_t bt_core_n_kept(const bt_gen_t *gen);
/** Append the text that waits for more, as at an end: what may begin a stop
 * word, and half a character. Before bt_core_cancel() of one whose answer
 * counts. Want of memory sticks in @a out. */
void bt_core_end_text(const bt_core_t *core, bt_gen_t *gen, bt_strbuf_t *out);
/** The client is gone: no call about this generation any more, the workers
 *  are told. @a gen must not be used afterwards. */
void bt_core_cancel(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
/** The tokens so far, until the next call to the core.
 *  @param [out] n_p  as bt_core_ops_t.on_text() has it */
const uint32_t *bt_core_output(const bt_gen_t *gen, uint32_t *n_p);
/** End all generations with an error (the server is stopping). */
void bt_core_end_all(bt_core_t *core, const char *why, uint64_t now_us);
/** on_record() for all whose clients wait no more but whose workers do not
 *  answer: the process ends. */
void bt_core_record_rest(bt_core_t *core);
/** Deadlines and waiting generations; call every 50 ms or so. */
void bt_core_tick(bt_core_t *core, uint64_t now_us);

uint32_t bt_core_n_in_flight(const bt_core_t *core); /**< clients wait */
uint32_t bt_core_n_waiting(const bt_core_t *core);   /**< for workers */
uint32_t bt_core_n_legs(const bt_core_t *core); /**< workers owe an ENDED */

/* ---- workers ---- */

bt_table_t *bt_core_table(bt_core_t *core);
/** What the metrics' gauges are made of, as it is now; the other fields of
 *  @a view stay. Valid until the next call to the core.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_core_view(const bt_core_t *core,
                                       bt_metrics_view_t *view);
void bt_core_view_fini(bt_metrics_view_t *view);
/**
 * A worker's link came up with this hello. Tells the prefill workers about
 * decode workers (PEER) and starts what waited.
 *
 * @param [in]  link_user  kept in worker->link_user before anything is sent
 * @param [out] why        on refusal the reason, for the log and the worker
 * @retval BT_OK, BT_ERR_MISMATCH, BT_ERR_EXISTS (same instance),
 * BT_ERR_NO_MEMORY
 * @retval BT_ERR_STALE  it differs from those that are here, who cannot serve:
 *                       let all of them go, and call this again (rivals.h)
 */
BT_MUST_CHECK bt_status_t bt_core_worker_up(bt_core_t *core,
                                            const bt_msg_hello_t *hello,
                                            void *link_user, uint64_t now_us,
                                            char why[BT_TABLE_WHY_BYTES],
                                            bt_instance_t **worker_p);
/** Nothing has come from it for a while, or something comes again. */
void bt_core_worker_suspect(bt_core_t *core, bt_instance_t *worker,
                            bool suspect, uint64_t now_us);
/** Nothing has come from it for a while, for it waits for a core. New requests
 *  avoid it; what it has, it keeps. */
void bt_core_worker_starved(bt_core_t *core, bt_instance_t *worker,
                            uint64_t now_us);
/** More bytes wait on its link than should, or few enough again: meanwhile it
 *  is sent no request. May be called from inside ops.send (behind: true). */
void bt_core_worker_behind(bt_core_t *core, bt_instance_t *worker, bool behind,
                           uint64_t now_us);
/** By order of the launcher that runs it: tell the worker of this name to be of
 *  these roles (bits of bt_role_t), unless it is, or is of a build that cannot.
 *  It has come true when its STATS say so; until then say it again. */
void bt_core_order_role(bt_core_t *core, const char *name, uint32_t roles);
/** A worker that is not here starts, or will by itself: who waits for one goes
 *  on waiting, to its own deadline if need be. */
void bt_core_expect_worker(bt_core_t *core, uint64_t now_us);
/** By order of whoever runs the cluster: tell this worker once.
 *  @param [in] roles  bits of bt_role_t; 0 = as they are
 *  @param [in] duty   or BT_DUTY_AS_IT_IS
 *  @retval BT_ERR_UNSUPPORTED  Its build takes no such order: nothing is sent.
 */
BT_MUST_CHECK bt_status_t bt_core_order_worker(bt_core_t *core,
                                               bt_instance_t *worker,
                                               uint32_t roles,
                                               bt_admin_state_t duty);
/** The worker is lost and freed; its generations are re-run or end. */
void bt_core_worker_down(bt_core_t *core, bt_instance_t *worker,
                         const char *reason, uint64_t now_us);
/**
 * A message of a worker. Messages about unknown or foreign attempts are
 * dropped.
 * @retval BT_OK
 * @retval BT_ERR_BAD_MESSAGE  Not a message that a worker sends: drop it.
 */
BT_MUST_CHECK bt_status_t bt_core_message(bt_core_t *core,
                                          bt_instance_t *worker,
                                          const bt_msg_t *msg, uint64_t now_us);

#endif
