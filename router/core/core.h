/* SPDX-License-Identifier: Apache-2.0 */
/** @file core.h
 *
 * Manages the router's requests and workers, without sockets. Events come in as
 * calls that carry the time; messages to workers and text to clients go out
 * through a small table of functions (bt_core_ops_t).
 *
 * A *generation* is one sequence to generate (a client's call may hold
 * several); gen_life.h draws its states. For its client a generation ends
 * exactly once, with on_end(), unless the client canceled it first with
 * bt_core_cancel(). For the workers it ends when each *leg*, the part of one
 * attempt at one worker, is closed by ENDED or by the loss of the worker. Only
 * then is the generation freed, so the load counted for each worker is correct
 * at any time.
 *
 * Generations of one prompt that are submitted together are sent together: to
 * the same workers, as a *fanout* (bt_msg_request_t.fanout) whose prompt is
 * computed, sent and held once. They share nothing else: each of them is
 * retried separately, and each is sent separately where workers do not support
 * fanouts.
 *
 * A retry sends the prompt and the tokens that exist already to another pair of
 * workers. Tokens depend only on request and model, so the text continues as it
 * would have. While all workers are silent, nothing is sent: each of them
 * either resumes or is soon declared lost, and the wait limits start when the
 * last one is lost.
 *
 * Waiting generations are queued per tenant (tenant_queues.c). The order
 * between tenants follows their weights (sched_fair.h), the order within a
 * tenant follows priority and age.
 *
 * Threads: one thread owns a core.
 */
#ifndef BT_ROUTER_CORE_CORE_H
#define BT_ROUTER_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_fair.h"
#include "common/sched/sched_queue.h"
#include "common/sched/sched_slo.h"
#include "common/wire/wire.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/core/rows.h"
#include "router/core/table.h"
#include "router/observe/metrics.h"
#include "router/observe/record.h"

/** Time in ms for which a retry avoids a worker that its peer reported lost. A
 *  peer may detect the failure before the router does, and an attempt sent
 *  there would be wasted. */
#define BT_CORE_HOLD_MS 250

typedef struct bt_core bt_core_t;
typedef struct bt_gen bt_gen_t; /**< one sequence to generate */
typedef struct bt_core_adapter bt_core_adapter_t; /**< loaded LoRA adapter */

/** Tenant of a generation, as far as the core needs it. All zero means no
 *  particular tenant, which is treated as a tenant, too. */
typedef struct bt_gen_tenant {
    uint64_t id;         /**< unique, never reused */
    uint32_t weight;     /**< weight in sched_fair.h; 0 counts as 1 */
    uint32_t kv_percent; /**< share of KV blocks; 0 counts as 100 */
} bt_gen_tenant_t;

/** Weights of a generation. */
typedef struct bt_gen_weights {
    uint64_t update; /**< as in bt_wire_weights_t */
    char version[BT_WIRE_MAX_NAME];
} bt_gen_weights_t;

/** Generation request. bt_core_submit() copies everything except the prompt, to
 *  which it takes a reference. */
typedef struct bt_gen_spec {
    bt_prompt_t *prompt; /**< prompt of at least 1 token */
    uint32_t max_new;    /**< maximum new tokens; at least 1 */
    /** Includes end ids, bad words, biases and seed; ids of processors are the
     *  prompt's. */
    bt_sampling_t sampling;
    const char *const *stops;
    uint32_t n_stops;
    /** Token sequences that end the generation; they stay in its output. */
    const bt_bad_word_t *stop_ids;
    uint32_t n_stop_ids;
    bt_repetition_t repetition;
    bool every_token;   /**< call on_text() for each token, even without text */
    bool keeps_stop;    /**< include the stop word or end id in the text */
    bool shows_special; /**< include special tokens in the text, as spelled */
    /** Special tokens shown even when `shows_special` is false, or NULL; lives
     *  as long as the core. */
    const bt_token_set_t *shown;
    bt_hash128_t space;   /**< as in bt_msg_request_t.space */
    bt_hash128_t adapter; /**< as in bt_msg_request_t.adapter */
    uint32_t max_drafts;  /**< as in bt_msg_request_t.max_drafts */
    /** Beam search: the generation has `n_returned` answers, the best of which
     *  is its output; without stops, stop_ids of several tokens, alternatives
     * and logits. width 0: none. */
    bt_sched_beam_params_t beams;
    bt_wants_t wants; /**< requested log-probs and logits */
    bt_gen_tenant_t tenant;
    uint32_t priority;     /**< priority within the tenant */
    uint32_t timeout_ms;   /**< timeout in ms; 0 = the server's, which also caps
                              larger values */
    bt_sched_slo_t target; /**< latency targets; each 0 = the server's */
    /** Parsing and tokenizing time for the timing record. */
    uint64_t parse_us, tokenize_us;
    uint32_t n_of_request; /**< for the timing record */
    uint64_t held_us; /**< held back before submission; counts as waiting */
    bt_gen_origin_t origin;
} bt_gen_spec_t;

/** Measured numbers of a generation that succeeded. */
typedef struct bt_gen_perf {
    uint64_t arrival_us; /**< times are those of bt_now_us() */
    uint64_t first_scheduled_us, first_token_us, last_token_us;
    uint32_t n_prompt, n_output;    /**< tokens */
    uint32_t n_blocks;              /**< KV blocks of a layer's tokens */
    uint32_t n_reused_blocks;       /**< blocks that were cached */
    uint32_t n_drafted, n_accepted; /**< drafts of the last attempt */
} bt_gen_perf_t;
/** One answer of a generation with beams. */
typedef struct bt_gen_beam {
    uint32_t *ids; /**< [n] tokens, an end id included */
    uint32_t n;
    bt_finish_t finish; /**< STOP or LENGTH */
    bool by_end_id;     /**< the last token is an end id, without text */
    const char *text;   /**< whole text */
    size_t text_bytes;
    bt_gen_rows_t *rows; /**< requested log-probs; NULL: none */
} bt_gen_beam_t;

/** Outcome of a generation, for its client. */
typedef struct bt_gen_end {
    bt_finish_t finish; /**< STOP, LENGTH or ERROR */
    const char *text;   /**< the last piece, may be empty */
    size_t text_bytes;
    uint32_t n_prompt;
    const bt_prompt_t *prompt; /**< NULL for an ERROR */
    uint32_t n_output;         /**< tokens generated, including an end id */
    const uint32_t *ids;       /**< n_output token ids; NULL for an ERROR */
    bool by_end_id;            /**< the last token is an end id, without text */
    const char *stop_word;     /**< the stop word that ended it; NULL: none */
    uint32_t n_cached;         /**< see bt_core_n_cached() */
    uint32_t n_kept;           /**< see bt_core_n_kept() */
    int http_status; /**< HTTP status for an ERROR: 400, 500, 503 or 504 */
    /** Error message for an ERROR: phase, worker and cause. */
    const char *message;
    /** ERROR because its deadline passed after workers had it, or because all
     *  attempts that it gets have failed: another try may go the same way. */
    bool is_exhausted;
    bool is_ambiguous; /**< ERROR because the request's grammar could not be
                            followed further */
    uint64_t first_token_us;  /**< as BT_TIME_FIRST_TOKEN; 0: no token */
    bt_gen_weights_t weights; /**< see bt_core_weights_of() */
    /** Requested log-probs and logits, valid in the call only unless
     *  referenced; NULL: none requested, or an ERROR. */
    bt_gen_rows_t *rows;
    /** Beam search: answers behind the best one, in order; valid in the call
     *  only. */
    const bt_gen_beam_t *others;
    uint32_t n_others;
    /** The last attempt; NULL when there was none. */
    const bt_gen_attempt_t *attempt;
    bt_gen_perf_t perf; /**< zero for an ERROR */
} bt_gen_end_t;

/** Kinds of worker events. */
typedef enum bt_worker_event {
    BT_WORKER_JOINED,
    BT_WORKER_LOST,     /**< link closed, for whatever reason */
    BT_WORKER_SILENT,   /**< sends no messages, or makes no progress */
    BT_WORKER_STARVED,  /**< silent because it gets no CPU core */
    BT_WORKER_BACK,     /**< neither silent, starved nor stalled any more */
    BT_WORKER_DRAINING, /**< worker accepts no new requests */
    BT_WORKER_DRAINED,  /**< draining worker has no requests left */
    BT_WORKER_ON,       /**< worker accepts requests again */
    BT_WORKER_ROLE,     /**< worker has another role */
} bt_worker_event_t;

/** Callbacks; all are set. */
typedef struct bt_core_ops {
    /** Posts a message to a worker; @a ctx is send_ctx. A failure shows later
     *  as a lost worker. */
    void (*send)(void *ctx, bt_instance_t *worker, const bt_msg_t *msg);
    void *send_ctx;
    /** A generation is sent to workers for the first time; from here on its
     *  result is an answer or a failure. Also called from inside
     *  bt_core_submit(), and must not call the core. */
    void (*on_placed)(void *ctx, void *user);
    /** Text that is final. May call bt_core_cancel() on this generation.
     *  @param n_output  tokens generated so far */
    void (*on_text)(void *ctx, void *user, const char *text, size_t bytes,
                    uint32_t n_output);
    /** Generation ended; the client must not use it afterwards. */
    void (*on_end)(void *ctx, void *user, const bt_gen_end_t *end);
    /** All durations of a generation are known, whether it succeeded or not.
     *  Called once per generation, at its end or, when a worker reports later,
     *  soon after. */
    void (*on_ledger)(void *ctx, const bt_ledger_t *ledger);
    /** Once per generation, when no worker holds a part of the generation any
     *  more, or from bt_core_record_rest(). */
    void (*on_record)(void *ctx, const bt_gen_record_t *record);
    /** KV reached a decode worker. @param first  first transfer of this
     *  generation */
    void (*on_transfer)(void *ctx, const bt_msg_joined_t *joined, bool first);
    /** One duration of a generation was measured. */
    void (*on_time)(void *ctx, bt_gen_time_kind_t which, uint64_t us);
    /** An attempt was sent; @a cause says why. */
    void (*on_sent)(void *ctx, bt_sched_cause_t cause);
    /** An attempt failed, whether or not the generation is retried. */
    void (*on_loss)(void *ctx, bt_gen_loss_t loss);
    /** An attempt failed, and the generation runs again. */
    void (*on_rerun)(void *ctx, const bt_gen_origin_t *origin, const char *why);
    /** KV hand-over between the workers of an attempt changed phase.
     *  @param joined  message of a hand-over that ENDED, else NULL */
    void (*on_handover)(void *ctx, const bt_gen_origin_t *origin,
                        const bt_gen_attempt_t *attempt,
                        bt_handover_phase_t phase,
                        const bt_msg_joined_t *joined);
    /** The state of a worker changed.
     *  @param text  a few words: the reason, or the new state */
    void (*on_worker)(void *ctx, const bt_instance_t *worker,
                      bt_worker_event_t news, const char *text);
    /** Detokenizer: bt_detok_init(), …_push() and …_finish(), or a test's. */
    void (*detok_init)(bt_detok_t *detok, const bt_tokenizer_t *tok);
    void (*detok_push)(bt_detok_t *detok, uint32_t id, bt_strbuf_t *out);
    void (*detok_finish)(bt_detok_t *detok, bt_strbuf_t *out);
    void *ctx;
} bt_core_ops_t;

typedef struct bt_core_config {
    bt_hash128_t model;        /**< identity of the router's model file */
    const bt_tokenizer_t *tok; /**< borrowed; for detokenizing */
    /** Vocabulary size; larger token ids are a worker's error. */
    uint32_t n_vocab;
    uint32_t max_queue;        /**< maximum generations in flight */
    uint64_t max_logits_bytes; /**< limit for all; see bt_core_submit() */
    uint32_t worker_wait_ms;   /**< maximum wait in ms of each attempt without a
                                  usable pair of workers, counted from when a
                                  worker was last expected */
    /** Limit in ms for a whole generation, not 0. */
    uint32_t request_timeout_ms;
    uint32_t still_ms; /**< time in ms without progress after which a worker is
                          avoided; 0: never */
    bt_sched_order_t order; /**< order of generations that wait for workers */
    /** Default latency targets of generations without their own. */
    bt_sched_slo_t target;
    /** True when several tenants are in force: work sent ahead to the workers
     *  is bounded per tenant. */
    bool has_tenants;
    bool mixes_profiles; /**< see bt_table_t.mixes_profiles */
} bt_core_config_t;

BT_MUST_CHECK bt_status_t bt_core_create(const bt_core_config_t *config,
                                         const bt_core_ops_t *ops,
                                         bt_core_t **core_p);
/** Frees everything without calling any of the ops. NULL is allowed. */
void bt_core_destroy(bt_core_t *core);

/* ---- generations ---- */

/**
 * Starts @a n generations of one prompt that are sampled independently, all or
 * none. Never calls on_text() or on_end() from inside.
 *
 * @param [in]  specs   n specs, at least 1; equal in all but sampling and
 *   origin.
 * @param [in]  users   n user pointers.
 * @param [out] gens_p  n generations; undefined after a failure.
 * @retval BT_OK
 * @retval BT_ERR_BUSY       max_queue generations are in flight: try again
 *   later.
 * @retval BT_ERR_TOO_LARGE  its logits, with those of all generations in
 *   flight, exceed max_logits_bytes: try again later.
 * @retval BT_ERR_TIMED_OUT  its latency targets cannot be met: see
 *   bt_core_late().
 * @retval BT_ERR_INVALID_PARAM  a stop word is too long.
 * @retval BT_ERR_UNSUPPORTED  none of the workers searches with beams.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_core_submit(bt_core_t *core,
                                         const bt_gen_spec_t *specs,
                                         void *const *users, uint32_t n,
                                         uint64_t now_us, bt_gen_t **gens_p);
/** Reason for the last rejection due to a latency target. */
typedef struct bt_core_late {
    bool first; /**< true: TTFT target, false: ITL target */
    uint32_t target_ms;
    uint64_t forecast_ms;
    uint32_t retry_s; /**< seconds until a retry; at least 1 */
} bt_core_late_t;
const bt_core_late_t *bt_core_late(const bt_core_t *core);
/** Returns the log-probs and logits received so far; call from inside
 *  on_text(). Data of the first n_output tokens count. NULL: none were
 *  requested. */
bt_gen_rows_t *bt_core_rows(const bt_gen_t *gen);
/** Returns the number of prompt tokens whose KV was cached and not computed; 0
 *  until known, which is before the first token. */
uint32_t bt_core_n_cached(const bt_gen_t *gen);
/** Returns the number of prompt tokens that were computed and whose KV is kept
 *  for other requests; 0 until known, which is before the first token. */
uint32_t bt_core_n_kept(const bt_gen_t *gen);
/** Appends the text that is held back, as at an end: a possible beginning of a
 *  stop word, and an incomplete character. Call before bt_core_cancel() for a
 *  generation whose answer counts. An allocation failure sticks in @a out. */
void bt_core_end_text(const bt_core_t *core, bt_gen_t *gen, bt_strbuf_t *out);
/** Cancels a generation whose client is gone: no more calls are made about
 *  @a gen, and its workers are notified. @a gen must not be used afterwards. */
void bt_core_cancel(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
/** Returns the tokens so far, valid until the next call to the core.
 *  @param [out] n_p  number of tokens, as in bt_core_ops_t.on_text() */
const uint32_t *bt_core_output(const bt_gen_t *gen, uint32_t *n_p);
/** Ends all generations with an error (the server is stopping). */
void bt_core_end_all(bt_core_t *core, const char *why, uint64_t now_us);
/* A core that *holds* sends nothing that is submitted from then on: it waits,
 * to its deadline if need be. What was submitted before runs to its end,
 * retries included, also if it waits yet. */

/** Reasons to hold; the core holds while there is one. */
#define BT_CORE_HOLD_PAUSE   1u /**< an operator's (pause.h) */
#define BT_CORE_HOLD_WEIGHTS 2u /**< the workers get other weights */
#define BT_CORE_HOLD_SLEEP   4u /**< the workers sleep, or are to sleep */

#define BT_SLEEP_WAKE_US \
    1800000000u /**< most time that workers take to come back from a sleep */

/** Begins to hold. Harmless when repeated. @param why  BT_CORE_HOLD_* */
void bt_core_hold(bt_core_t *core, uint32_t why);
/** Ends one reason. Without another, what was held is sent. Harmless without
 *  that reason. */
void bt_core_release(bt_core_t *core, uint32_t why, uint64_t now_us);
bool bt_core_holds(const bt_core_t *core);
/** Returns the number of generations that the core holds back. */
uint32_t bt_core_n_held(const bt_core_t *core);
/** Returns the number of generations in flight that are not held back. */
uint32_t bt_core_n_begun(const bt_core_t *core);
/** Ends those with an error. */
void bt_core_end_begun(bt_core_t *core, const char *why, uint64_t now_us);
/** Calls on_record() for all generations that ended for their clients but whose
 *  workers have not answered: the process ends. */
void bt_core_record_rest(bt_core_t *core);
/** Checks deadlines and dispatches waiting generations; call every 50 ms or so.
 */
void bt_core_tick(bt_core_t *core, uint64_t now_us);

/** Generations whose client waits. */
uint32_t bt_core_n_in_flight(const bt_core_t *core);
/** Generations that wait for workers. */
uint32_t bt_core_n_waiting(const bt_core_t *core);
/** (worker, attempt) pairs whose worker still owes an ENDED. */
uint32_t bt_core_n_legs(const bt_core_t *core);

/* ---- workers ---- */

bt_table_t *bt_core_table(bt_core_t *core);
/** Fills the fields of @a view that the core provides for the metrics' gauges;
 *  the other fields are unchanged. Valid until the next call to the core.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_core_view(const bt_core_t *core,
                                       bt_metrics_view_t *view);
void bt_core_view_fini(bt_metrics_view_t *view);
/**
 * Adds a worker whose link came up with this hello. Announces decode workers to
 * the prefill workers (PEER) and dispatches waiting generations.
 *
 * @param [in]  link_user  stored in worker->link_user before anything is sent
 * @param [out] why        reason for a refusal, for the log and the worker
 * @retval BT_OK, BT_ERR_MISMATCH, BT_ERR_EXISTS (instance is linked already),
 *   BT_ERR_NO_MEMORY
 * @retval BT_ERR_STALE  the worker differs from the present ones, which cannot
 *   serve: disconnect all of them and call this again (table.h)
 */
BT_MUST_CHECK bt_status_t bt_core_worker_up(bt_core_t *core,
                                            const bt_msg_hello_t *hello,
                                            void *link_user, uint64_t now_us,
                                            char why[BT_TABLE_WHY_BYTES],
                                            bt_instance_t **worker_p);
/** Reports that a worker has been silent for a while, or sends again. */
void bt_core_worker_suspect(bt_core_t *core, bt_instance_t *worker,
                            bool suspect, uint64_t now_us);
/** Reports that a worker has been silent for a while because it waits for a CPU
 *  core. New requests avoid that worker; it keeps the requests it has. */
void bt_core_worker_starved(bt_core_t *core, bt_instance_t *worker,
                            uint64_t now_us);
/** Reports that too many bytes are queued on a worker's link, or few enough
 *  again; meanwhile no request is sent to the worker. May be called from inside
 *  ops.send (behind: true). */
void bt_core_worker_behind(bt_core_t *core, bt_instance_t *worker, bool behind,
                           uint64_t now_us);
/** Orders the worker of this name, on behalf of the launcher that runs it, to
 *  take these roles (bits of bt_role_t). Sends nothing if the worker has these
 *  roles or its build does not support role changes. The order has taken effect
 *  when the worker's STATS say so; until then repeat the call. */
void bt_core_order_role(bt_core_t *core, const char *name, uint32_t roles);
/** Returns when a worker was last lost, in microseconds of bt_now_us(); 0: none
 *  was. */
uint64_t bt_core_lost_us(const bt_core_t *core);
/** Reports that a missing worker is starting or will start by itself:
 *  generations that wait for one keep waiting, to their own deadlines if need
 *  be. */
void bt_core_expect_worker(bt_core_t *core, uint64_t now_us);
/** Sends one worker an order of the cluster's operator, once.
 *  @param [in] roles  bits of bt_role_t; 0 = unchanged
 *  @param [in] duty   new duty, or BT_ADMIN_STATE_AS_IT_IS
 *  @retval BT_ERR_UNSUPPORTED  The worker's build takes no such order: nothing
 *    is sent. */
BT_MUST_CHECK bt_status_t bt_core_order_worker(bt_core_t *core,
                                               bt_instance_t *worker,
                                               uint32_t roles,
                                               bt_admin_state_t duty);
/* Weights of the workers (docs/TRAINING_LOOPS.md). One replacement is in force;
 * workers that have not carried it out get no new requests, and are ordered to
 * load it, also when they join. A replacement by another router comes with the
 * first worker that has carried it out. */

/** Returns the weights in force; update 0, version "default": those of the
 *  model's file. */
const bt_wire_weights_t *bt_core_weights(const bt_core_t *core);
/** Puts weights in force, whose update is larger than that of those before.
 *  Generations with tokens of others whose workers are lost end with an error.
 *  @param model  identity of the model there */
void bt_core_set_weights(bt_core_t *core, const bt_wire_weights_t *weights,
                         bt_hash128_t model, uint64_t now_us);
/** Asks a worker to look at weights; worker->checked has the answer later. */
void bt_core_check_weights(const bt_core_t *core, bt_instance_t *worker,
                           const bt_wire_weights_t *weights);
/** Returns the weights that a generation's tokens are of; those in force before
 *  it was sent. */
const bt_gen_weights_t *bt_core_weights_of(const bt_gen_t *gen);
/* LoRA adapters that workers load while they run (docs/LORA.md). */

/** Orders the workers to load an adapter; those that have it already, or have
 *  it by another name, are not ordered again.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_core_adapter_load(bt_core_t *core,
                                               bt_hash128_t digest,
                                               const char *name,
                                               const char *path);
/** Orders the workers to load an adapter, as bt_core_adapter_load() does, whose
 *  content they get from here.
 *  @param [in] content  owned from BT_OK on: bt_free() */
BT_MUST_CHECK bt_status_t bt_core_adapter_give(bt_core_t *core,
                                               bt_hash128_t digest,
                                               const char *name,
                                               uint8_t *content, size_t bytes);
/** True while requests have the adapter. */
bool bt_core_adapter_is_used(const bt_core_t *core, bt_hash128_t digest);
/** Looks at what the workers have said of an adapter that they were ordered to
 *  load.
 *  @param [out] why  On failure the reason, for the user.
 *  @retval BT_OK             all have it
 *  @retval BT_ERR_BUSY       some have not answered yet
 *  @retval BT_ERR_PEER_LOST  there are no workers
 *  @retval BT_ERR_NOT_FOUND  it was not ordered, or was dropped
 *  @retval others            one cannot load it */
BT_MUST_CHECK bt_status_t bt_core_adapter_look(const bt_core_t *core,
                                               bt_hash128_t digest, char *why,
                                               size_t why_bytes);
/** From now on requests may have the adapter: workers that lack it get no
 *  requests that have any. One that was not ordered is left out. */
void bt_core_adapter_offer(bt_core_t *core, bt_hash128_t digest);
/** Forgets an adapter when no request has it, then workers drop it. */
void bt_core_adapter_drop(bt_core_t *core, bt_hash128_t digest);
/** Keeps an adapter for a request, from before it is submitted until it cannot
 *  run again: workers that join meanwhile load it, also after it was dropped.
 *  @return for bt_core_adapter_unref(); NULL: it was not loaded so */
bt_core_adapter_t *bt_core_adapter_ref(const bt_core_t *core,
                                       bt_hash128_t digest);
/** Ends what bt_core_adapter_ref() began. NULL is allowed. */
void bt_core_adapter_unref(bt_core_t *core, bt_core_adapter_t *adapter);

/* Sleep of the workers (docs/TRAINING_LOOPS.md). One order is in force, the one
 * with the largest number of any router: workers that are not as ordered are
 * told, also when they join. */

/** Order in force. While it carries out an order a worker is not linked, and
 *  comes back as another instance: it is still one of those who are told. */
typedef struct bt_core_sleep {
    uint64_t order;     /**< number of the order; 0: none, the workers serve */
    bool is_asleep;     /**< the workers are to sleep, and the core holds */
    uint32_t n_told;    /**< workers that were there when it came or joined
                             later, those on their way to another instance
                             included */
    uint64_t since_us;  /**< when it came */
    uint32_t n_between; /**< workers on their way to another instance */
    uint64_t left_us;   /**< when the last of them left */
} bt_core_sleep_t;

const bt_core_sleep_t *bt_core_sleep(const bt_core_t *core);
/** Puts an order in force, whose number is larger than that of the one before
 *  and says which it is (bt_sleep_order_sleeps()). Generations that run are
 * left to their workers, which finish them. */
void bt_core_set_sleep(bt_core_t *core, uint64_t number, uint64_t now_us);
/** True for a worker that sleeps, or serves, as the order in force says, and
 * was sent no order that it may still carry out. */
bool bt_core_sleep_is_obeyed(const bt_core_t *core,
                             const bt_instance_t *worker);

/** Orders a worker to empty its prefix cache; worker->emptied has the answer
 *  later. @return false: it is of a version that cannot */
BT_MUST_CHECK bool bt_core_reset_cache(const bt_core_t *core,
                                       bt_instance_t *worker, uint64_t number);

/** Removes and frees a lost worker; its generations are retried or end. */
void bt_core_worker_down(bt_core_t *core, bt_instance_t *worker,
                         const char *reason, uint64_t now_us);
/**
 * Handles a message of a worker. Messages about unknown or foreign attempts are
 * dropped.
 * @retval BT_OK
 * @retval BT_ERR_BAD_MESSAGE  Not a message that a worker sends: drop it.
 */
BT_MUST_CHECK bt_status_t bt_core_message(bt_core_t *core,
                                          bt_instance_t *worker,
                                          const bt_msg_t *msg, uint64_t now_us);

#endif
