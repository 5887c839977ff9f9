/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_priv.h
 *
 * Types and functions shared by the files of the core only. table.c,
 * kv_links.c, stops.c and gen_life.c do not depend on the rest.
 */
#ifndef BT_ROUTER_CORE_CORE_PRIV_H
#define BT_ROUTER_CORE_CORE_PRIV_H

#include "common/base/containers.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_queue.h"
#include "common/sched/sched_slo.h"
#include "router/core/core.h"
#include "router/core/gen_life.h"
#include "router/core/stops.h"

/** Role of a worker in an attempt. */
typedef enum bt_part {
    BT_PART_PREFILL, /**< prefill; its KV goes to another worker */
    BT_PART_DECODE,  /**< generation from another worker's KV */
    BT_PART_LOCAL,   /**< both phases: no KV transfer */
} bt_part_t;

/** One attempt at one worker (a *leg* of the generation). */
typedef struct bt_leg {
    bt_list_t link; /**< link in worker->legs while open */
    bt_gen_t *gen;
    bt_instance_t *worker; /**< NULL once closed */
    bt_leg_state_t state;
    bt_part_t part;
    uint32_t attempt;
    /** True for the leader of a fanout: other generations need the KV that the
     *  worker computes here, whatever happens to its own answer. */
    bool leads;
    bool granted; /**< decode worker granted a lease for the KV */
    /* Counted at the worker while COMPUTING. */
    uint64_t prefill_tokens, prefill_us;
    uint32_t n_held; /**< estimated cached prompt tokens; 0: not estimated */
    /** Seats and KV blocks counted at the worker until CLOSED. */
    uint32_t seats;
    uint64_t blocks;
} bt_leg_t;

/** Attempt under way; when OVER, number and start of the last one. */
typedef struct bt_attempt {
    bt_attempt_state_t state;
    bt_attempt_state_t lost_in; /**< state before LOST */
    uint32_t number;            /**< counts from 1; 0: no attempt was made */
    uint32_t from;              /**< n_output at the start of the attempt */
    /** NULL when OVER, and where the attempt has no such part; a LOCAL attempt
     *  uses `decode`. */
    bt_leg_t *prefill, *decode;
} bt_attempt_t;

#define BT_CORE_FLOW_BUCKETS 256

/** Workers that a generation needs; a flow has one waiting queue for each kind.
 */
typedef enum bt_worker_need {
    BT_NEED_PAIR,    /**< workers for both phases */
    BT_NEED_PREFILL, /**< one token is missing: no decode worker */
    BT_NEED_N
} bt_worker_need_t;

/** Per-tenant state of the core. Exists while the tenant has generations, and
 *  while it has received more than its fair share. */
typedef struct bt_core_flow {
    bt_list_t by_id; /**< link in core->flows */
    uint64_t id;
    bt_sched_flow_t fair; /**< backlogged while n_waiting > 0 */
    uint32_t kv_percent;
    /** WAITING generations by bt_gen_t.turn, one queue per need: when no worker
     *  takes the first, none takes a later one. */
    bt_list_t waiting[BT_NEED_N];
    uint32_t n_waiting;
    uint32_t n_gens;      /**< generations not yet freed */
    double mean_output;   /**< mean tokens per answer; 0: none has ended */
    uint64_t ended_at_us; /**< when the last generation ended */
    /* Of its open legs. */
    /** Forecast prefill time of legs that are COMPUTING. */
    uint64_t prefill_us;
    uint64_t seats, blocks; /**< seats and KV blocks at workers that generate */
    /* State of the pass over all waiting generations. */
    uint64_t pass; /**< number of the pass that the members below belong to */
    bt_list_t *at[BT_NEED_N]; /**< next entry of each queue */
    bool is_done;    /**< nothing more of this flow can be sent in this pass */
    bool is_limited; /**< the reason is a limit of this tenant */
} bt_core_flow_t;

struct bt_gen {
    bt_list_t by_id;     /**< link in core->gens_by_id until freed */
    bt_list_t live_link; /**< in core->live until the end for its client */
    uint64_t id;
    /** Id of the first generation of the fanout it was submitted with, for the
     *  first attempt; 0: no fanout. */
    uint64_t fanout;
    void *user;
    bt_core_flow_t *flow;  /**< flow of its tenant */
    uint64_t charged;      /**< work charged to the flow; 0: none yet */
    uint64_t tag;          /**< virtual time of the flow before the charge */
    uint32_t expected_new; /**< output tokens assumed in the charge */
    bool shares_prompt;    /**< the fanout's leader is charged the prompt */
    uint32_t level;        /**< priority at the workers */
    bt_gen_state_t state;
    bt_attempt_t attempt;

    bt_prompt_t *prompt; /**< one reference */
    uint32_t max_new;
    uint32_t n_output;              /**< tokens in order so far */
    uint32_t n_drafted, n_accepted; /**< drafts of the attempt so far */
    uint32_t cap_output;
    uint32_t *output; /**< owned */
    bt_sampling_t sampling;
    bt_bad_word_t *bad_words;          /**< owned */
    bt_logit_bias_t *logit_biases;     /**< owned */
    struct {                           /* beam_answers.c */
        bt_sched_beam_params_t params; /**< width 0: no beam search */
        bt_gen_beam_t *others;         /**< [n_returned - 1] owned */
        bt_strbuf_t *texts;            /**< [n_returned - 1] owned */
    } beams;
    uint32_t max_drafts;     /**< as in bt_msg_request_t.max_drafts */
    bt_bad_word_t *stop_ids; /**< n_stop_ids sequences, owned */
    uint32_t n_stop_ids;
    bt_repetition_t repetition;
    /** Owned; [n - 1]: last tokens of the output that equal those n before
     *  them; NULL: repetition is off. */
    uint32_t *runs;
    bool every_token, keeps_stop;
    bt_gen_weights_t weights; /**< see bt_core_weights_of() */
    bool is_held; /**< submitted while the core holds: waits for its release */
    bt_hash128_t space;
    bt_hash128_t adapter; /* {0, 0}: none */
    /** Owned log-probs and logits; NULL: none requested. */
    bt_gen_rows_t *rows;
    /** Queue position by arrival; linked in a queue while WAITING. */
    bt_sched_turn_t turn;
    /** Owned tokens received ahead of n_output, unordered. */
    bt_token_t *early;
    uint32_t n_early, cap_early;
    bt_detok_t detok;
    bt_stops_t stops;

    bt_leg_t legs[2 * BT_GEN_MAX_ATTEMPTS];
    uint32_t n_legs, n_open_legs;
    bt_avoid_t avoid; /**< workers at fault for the ends of earlier attempts */
    uint64_t lost;    /**< instance reported lost by its peer */
    /** Time in us until which `lost` is not tried again. */
    uint64_t hold_until_us;
    bool hands_over; /**< KV transfer in progress, as far as the router knows */
    bt_gen_attempt_t attempts[BT_GEN_MAX_ATTEMPTS];
    bt_gen_origin_t origin;
    bt_finish_t finish; /**< valid once ENDED */
    int http_status;
    bool is_ambiguous, is_exhausted; /**< see bt_gen_end_t */
    /** Reason why the last attempt failed; after a failure, the message sent to
     *  the client. */
    char trouble[480];

    uint64_t arrived_us, waiting_since_us, deadline_us;
    bt_sched_slo_t target;
    /** Forecast TTFT and ITL in us before the safety factor; 0 if none. */
    uint64_t forecast_first_us, forecast_between_us;
    bool was_probe; /**< admitted although forecast to miss its target */
    bool is_probe;  /**< without a token yet: no other probe is admitted */
    uint64_t first_token_at_us, second_token_at_us, last_token_at_us;
    bt_ledger_t ledger;
};

struct bt_core {
    bt_core_config_t config;
    bt_core_ops_t ops;
    bt_table_t table;
    bt_profile_quorum_t quorum; /**< refused workers */
    bt_list_t live;         /**< generations whose client waits, oldest first */
    bt_hmap_t gens_by_id;   /**< hash map by bt_gen_t.by_id */
    bt_list_t *gen_buckets; /**< owned */
    bt_hmap_t flows;        /**< hash map by bt_core_flow_t.by_id */
    bt_list_t flow_buckets[BT_CORE_FLOW_BUCKETS];
    bt_sched_fair_t fair;     /**< fair queueing among flows */
    uint32_t n_flows, n_gens; /* n_gens: total over all flows */
    uint64_t n_passes;
    bt_wire_weights_t weights;  /**< weights in force */
    bt_hash128_t weights_model; /**< identity of the model there */
    bt_core_sleep_t sleep;      /**< whether the workers are to sleep */
    uint32_t holds;             /**< BT_CORE_HOLD_* in force */
    uint32_t n_held;            /**< live generations with is_held */
    bool has_eased; /**< a tenant has less work ahead than at the last pass */
    /** Default cost estimate before any worker has measured. */
    bt_sched_cost_t cost;
    /** Rates last reported by any worker; used for workers without their own.
     */
    bt_sched_rates_t rates;
    bt_sched_token_cost_t price; /**< price of work in tokens */
    uint64_t n_seats;            /**< seats in use, over all flows */
    uint32_t n_live, n_waiting, n_legs;
    bt_gen_rows_held_t logits_bytes; /**< also of answers still written */
    uint64_t next_id;
    /** Mean tokens of successful generations: output, and KV context. */
    double mean_output, mean_context;
    uint64_t lengths_at_us;          /**< when the means were last updated */
    bt_sched_prefix_estimate_t held; /**< estimates of caches */
    bt_sched_safety_factor_t first_margin, between_margin;
    bt_sched_probe_t probe;
    /** Forecast of the last judged request, as in bt_gen_t. */
    uint64_t forecast_first_us, forecast_between_us;
    bool judged_probe; /**< request is a probe if it is admitted */
    bt_core_late_t late;
    bt_list_t adapters; /**< loaded at run time (adapter_orders.c) */
    /** Time in us when workers were last present, even if only silent ones,
     * were lost, or were expected. */
    uint64_t expected_us;
    uint64_t lost_us; /**< when a worker was last lost; 0: none was */
    uint64_t tick_us; /**< last bt_core_tick() */
    /** When workers with each set of capabilities were last there, or any
     *  workers were not. */
    uint64_t able_us[BT_SCHED_N_CAPABILITY_SETS];
    /** Scratch: a prompt and the tokens from which a retry continues. Large
     *  enough for the longest sequence submitted so far. */
    uint32_t *joined;
    uint32_t cap_joined;
    bt_strbuf_t raw;  /**< scratch: text of one token */
    bt_strbuf_t text; /**< scratch: text after stop-word matching */
};

/* record.c */
/** Returns the loss kind for the status of a worker's FAILED; call before
 *  the worker's part is closed. */
bt_gen_loss_t bt_gen_loss_of(const bt_gen_t *gen, int32_t status);
/** Returns the loss kind for a passed deadline; call before the worker's part
 *  is closed. */
bt_gen_loss_t bt_gen_loss_of_deadline(const bt_gen_t *gen);
/** Records the arrival time of the next token in order. */
void bt_gen_note_token(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
/** Computes the derived fields of the timing record. */
void bt_gen_close_ledger(bt_gen_t *gen);
/** Reports a phase of the KV hand-over, once per phase of one that has BEGUN.
 */
void bt_gen_handover(const bt_core_t *core, bt_gen_t *gen,
                     bt_handover_phase_t phase, const bt_msg_joined_t *joined);
void bt_gen_record(bt_core_t *core, bt_gen_t *gen);
/** Reports the timing record of an ended generation when all durations are
 *  known, and frees the generation when no worker needs it. @a gen may be gone
 *  afterwards. */
void bt_gen_settle(bt_core_t *core, bt_gen_t *gen);

/* transitions.c: no other file changes a state */
/** Applies an input to a generation, whose state must allow the transition.
 *  @param now_us  time of SUBMIT, SENT, LOST and END */
void bt_gen_move(bt_core_t *core, bt_gen_t *gen, bt_gen_input_t input,
                 uint64_t now_us);
/** Applies an input to the attempt.
 *  @return false: a worker's message came at a wrong time, nothing was done */
bool bt_attempt_move(bt_gen_t *gen, bt_attempt_input_t input);
/** Applies an input to a leg (one attempt at one worker).
 *  @return false: a worker's message came at a wrong time, nothing was done */
bool bt_leg_move(bt_core_t *core, bt_leg_t *leg, bt_leg_input_t input);

/** Returns the slack in us by which a request lets others go first
 *  (sched_queue.h). */
uint64_t bt_core_slack_us(const bt_core_t *core, uint32_t n_tokens,
                          uint64_t since_us, uint64_t deadline_us,
                          const bt_sched_slo_t *target);

/* slo_admission.c */
void bt_core_init_margins(bt_core_t *core);
/** Decides whether a request can meet its latency targets.
 *  @retval BT_OK             admitted; core->judged_probe says if as a probe
 *  @retval BT_ERR_TIMED_OUT  n generations would miss a target: see core->late
 */
BT_MUST_CHECK bt_status_t bt_core_judge(bt_core_t *core,
                                        const bt_gen_spec_t *spec, uint32_t n,
                                        uint64_t now_us);
/** Updates the mean lengths, and the safety factors of the forecasts, from a
 *  generation that succeeded. */
void bt_core_note_lengths(bt_core_t *core, const bt_gen_t *gen,
                          uint64_t now_us);
void bt_core_note_promise(bt_core_t *core, const bt_gen_t *gen,
                          uint64_t now_us);
/** Ends a probe, which has a token or has ended. Does nothing for other
 *  generations. */
void bt_core_probe_over(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
/** Limits a worker's seats to as many as keep the server's ITL target. */
void bt_core_limit_seats(const bt_core_t *core, bt_instance_t *worker,
                         uint64_t now_us);

/** Prefills that go before a request. */
typedef struct bt_core_ahead {
    uint64_t us;
    uint32_t n;
} bt_core_ahead_t;

/** Returns the prefills at a worker that go before that turn. */
bt_core_ahead_t bt_core_ahead_at(const bt_instance_t *worker,
                                 const bt_sched_turn_t *turn);
/** Returns the mean number of KV context tokens of a generating sequence. */
uint32_t bt_core_mean_context(const bt_core_t *core);

/* placement_cost.c */
/** Estimated cached prompt tokens at the workers of a pick, for each worker in
 *  the pick. 0: none, or not estimated. */
typedef struct bt_core_held {
    uint32_t prefill, decode;
} bt_core_held_t;
/** Compares aggregated and disaggregated prefill, where the pick offers both,
 *  and stores the better one in @a pick.
 *  @param [in] tokens  prompt and output so far */
void bt_core_weigh(const bt_core_t *core, const bt_gen_t *gen,
                   const uint32_t *tokens, uint64_t now_us, bt_pick_t *pick,
                   bt_core_held_t *held_p);
/** Compares the cached tokens estimated for a request at a worker with the
 *  number that the worker reported. */
void bt_core_held_was(bt_leg_t *leg, uint32_t n_cached);
/** Records that the worker now has the KV of the request's prompt. */
void bt_core_held_now(bt_core_t *core, const bt_leg_t *leg);
/** Updates the number of generations at a worker sent by others, after its
 *  STATS were stored. */
void bt_core_count_others(bt_instance_t *worker);

/* workers.c */
/** Handles a prefill worker's report on its link to a decode worker. */
void bt_core_kv_link(bt_core_t *core, bt_instance_t *prefill,
                     const bt_msg_kv_link_t *report, uint64_t now_us);
/** Returns the forecast time in us to prefill @a n_tokens. @param worker  NULL:
 *  at any worker */
uint64_t bt_core_prompt_us(const bt_core_t *core, const bt_instance_t *worker,
                           uint32_t n_tokens);
/** Marks a worker as draining: no new requests are sent to it. */
void bt_core_worker_drains(const bt_core_t *core, bt_instance_t *worker);
/** Handles a worker's STATS; a role that the worker has gained is used at once.
 */
void bt_core_worker_stats(bt_core_t *core, bt_instance_t *worker,
                          const bt_msg_stats_t *stats, uint64_t now_us);

/* adapter_orders.c */
void bt_core_adapters_joined(const bt_core_t *core, bt_instance_t *worker);
void bt_core_adapters_left(const bt_core_t *core, const bt_instance_t *worker);
void bt_core_adapter_ready(bt_core_t *core, bt_instance_t *worker,
                           const bt_msg_adapter_ready_t *ready);
/** Sends a worker the part of an adapter's content that it asks for. */
void bt_core_adapter_want(const bt_core_t *core, bt_instance_t *worker,
                          const bt_msg_adapter_want_t *want);
void bt_core_adapters_free(bt_core_t *core);

/* weights.c */
/** Checks whether a worker's weights are those that its number stands for. */
bool bt_core_weights_fit(const bt_core_t *core, const bt_msg_hello_t *hello,
                         char why[BT_TABLE_WHY_BYTES]);
/** Compares the weights of a worker that joined with those in force. */
void bt_core_weights_joined(bt_core_t *core, bt_instance_t *worker,
                            uint64_t now_us);
/** Takes what a worker says of weights: that it can load them, or that it
 *  cannot, which is an error where these are in force. */
void bt_core_weights_checked(const bt_core_t *core, bt_instance_t *worker,
                             const bt_msg_weights_checked_t *checked,
                             uint64_t now_us);
/** Orders workers that have refused to load the weights in force to try it
 *  again, after a while. */
void bt_core_weights_tick(bt_core_t *core, uint64_t now_us);
/** Sets the weights of a generation that is about to be sent. */
void bt_gen_bind_weights(const bt_core_t *core, bt_gen_t *gen);
/** Ends a generation whose attempt was lost and which cannot run again, because
 *  its weights are not in force any more. @return false: it can */
bool bt_gen_fails_for_weights(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);

/* sleep.c */
/** Compares a worker that joined with the order in force. */
void bt_core_sleep_joined(bt_core_t *core, bt_instance_t *worker,
                          uint64_t now_us);
/** Counts a worker that goes, if it does so to carry out an order. */
void bt_core_sleep_left(bt_core_t *core, const bt_instance_t *worker,
                        uint64_t now_us);
/** Takes the duty that a worker reports: one that had not carried out an order
 *  yet when the opposite was sent may have withdrawn it. */
void bt_core_sleep_stats(const bt_core_t *core, bt_instance_t *worker,
                         uint32_t duty);
/** Repeats the order to workers that could not be woken. */
void bt_core_sleep_tick(bt_core_t *core, uint64_t now_us);
/** Takes a worker's word that its prefix cache is empty. */
void bt_core_cache_is_empty(bt_instance_t *worker,
                            const bt_msg_cache_is_empty_t *msg);

/* beam_answers.c */
/** Prepares a new generation for a beam search.
 *  @retval BT_ERR_UNSUPPORTED  there are workers, and none has beams
 *  @retval BT_ERR_NO_MEMORY  free with bt_gen_free_beams() */
BT_MUST_CHECK bt_status_t bt_gen_make_beams(
    const bt_core_t *core, bt_gen_t *gen, const bt_sched_beam_params_t *params);
void bt_gen_free_beams(bt_gen_t *gen);
/** Handles an answer of a beam search. The last one ends the generation. */
void bt_gen_take_beam(bt_core_t *core, bt_gen_t *gen, const char *worker,
                      const bt_msg_beam_t *m, uint64_t now_us);
static inline bool bt_gen_has_beams(const bt_gen_t *gen)
{
    return gen->beams.params.width > 0;
}
/** Returns the seats that a generation takes where it generates. */
static inline uint32_t bt_gen_seats(const bt_gen_t *gen)
{
    return bt_gen_has_beams(gen) ? gen->beams.params.width : 1;
}
/** Returns the most KV blocks of a generation where it generates: beams share
 *  the whole blocks of the prompt. */
uint64_t bt_gen_blocks(const bt_gen_t *gen, const bt_kv_need_t *need);

/** Returns the number of tokens of the prompt and of the output so far. */
static inline uint32_t bt_gen_n_tokens(const bt_gen_t *gen)
{
    return gen->prompt->n + gen->n_output;
}

/* core.c */
bt_gen_t *bt_gen_find(bt_core_t *core, uint64_t id);

/* generation.c */
const char *bt_gen_phase_name(const bt_gen_t *gen);
/** Fails a generation whose deadline has passed: the error names the current
 *  phase, or the phase in which its attempt was just lost. */
void bt_gen_fail_for_deadline(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
void bt_gen_token(bt_core_t *core, bt_gen_t *gen, const bt_token_t *token,
                  uint64_t now_us);
/** Ends a generation with an error for the client; printf style. Open legs are
 *  canceled. */
void bt_gen_fail(bt_core_t *core, bt_gen_t *gen, int http_status,
                 uint64_t now_us, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/** Processes tokens that waited for earlier tokens or for their log-probs and
 *  logits. */
void bt_gen_take_early(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
void bt_gen_free(bt_core_t *core, bt_gen_t *gen);

/* tenant_queues.c */
/** Returns the flow of a tenant, created on first use; counts one more
 *  generation for the flow.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_flow_ref(bt_core_t *core,
                                      const bt_gen_tenant_t *tenant,
                                      bt_core_flow_t **flow_p);
/** Uncounts a freed generation. When the last generation of all flows is freed,
 *  all flows are freed. */
void bt_flow_unref(bt_core_t *core, bt_core_flow_t *flow);
void bt_flow_free_all(bt_core_t *core);
/** Adds a generation to its flow's waiting queue, or removes it. */
void bt_flow_enqueue(bt_core_t *core, bt_gen_t *gen, bt_worker_need_t need);
void bt_flow_dequeue(bt_core_t *core, bt_gen_t *gen);
/** Charges a generation that is sent, unless it was charged already.
 *  @param leads  its prompt is computed for this generation */
void bt_flow_charge(bt_core_t *core, bt_gen_t *gen, bool leads);
/** Settles the charge of an ended generation: unused work is refunded to the
 *  tenant, extra work is charged. */
void bt_flow_settle(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
/** Capacity of the workers, for bt_flow_is_limited(). */
typedef struct bt_flow_capacity {
    uint64_t n_prefill, n_decode; /**< workers that take requests */
    uint64_t seats, blocks;
    bt_kv_need_t need; /**< KV block need of decode workers */
} bt_flow_capacity_t;
void bt_flow_capacity_read(const bt_core_t *core,
                           bt_flow_capacity_t *capacity_p);
/** Returns the priority of a generation at workers, one of which computes its
 *  prompt. */
uint32_t bt_flow_level(const bt_core_t *core, const bt_gen_t *gen,
                       const bt_instance_t *worker);
/** True when the tenant has as much work ahead, or as much of the KV, as it may
 *  have now. */
bool bt_flow_is_limited(const bt_core_t *core, const bt_gen_t *gen,
                        const bt_flow_capacity_t *capacity);

/* attempt.c */
/** Sends waiting generations to workers that accept them, in order, until this
 *  many prompt tokens are on their way. The rest follows at the next call,
 *  which every end at a worker and every tick makes. */
#define BT_CORE_TURN_TOKENS 65536u
void bt_gen_dispatch_waiting(bt_core_t *core, uint64_t now_us);
/** True when the generation has a LoRA adapter. */
static inline bool bt_gen_has_adapter(const bt_gen_t *gen)
{
    return (gen->adapter.lo | gen->adapter.hi) != 0;
}

/** Returns the capabilities (BT_SCHED_*) that workers of the generation need.
 */
uint32_t bt_gen_capabilities(const bt_gen_t *gen);
/** True when there are workers for both phases that have these capabilities. */
bool bt_core_has_workers(const bt_core_t *core, uint32_t capabilities);
/** Handles a LOST attempt, with the reason in gen->trouble: the generation
 *  waits to run again, or fails. The other workers of the attempt are notified;
 *  the caller dispatches waiting generations.
 *  @param leg  whose worker ends by itself */
void bt_gen_rerun(bt_core_t *core, bt_gen_t *gen, const bt_leg_t *leg,
                  uint64_t now_us);
/** Sends CANCEL for all open legs, except optionally one. */
void bt_gen_cancel_legs(bt_core_t *core, bt_gen_t *gen, bt_finish_t why,
                        const bt_leg_t *except);
/** Returns the worker's part in texts: "prefill" or "decode". */
const char *bt_leg_part_name(const bt_leg_t *leg);
/** True when the leg (one attempt at one worker) belongs to the attempt under
 *  way. */
bool bt_leg_is_current(const bt_leg_t *leg);
/** True when the worker still has work to do for the attempt under way;
 *  false when the last token is already here, ahead of others. */
bool bt_leg_needed(const bt_leg_t *leg);
/** Reports that a worker released its part of an attempt.
 *  @param ended  true: regular end, when the worker's part is done
 *  @return true: the attempt is LOST with it */
bool bt_leg_release(const bt_leg_t *leg, bool ended);

#endif
