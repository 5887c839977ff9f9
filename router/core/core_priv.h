/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_priv.h  Shared by the files of the core only:
 *
 *     core.c        the core as a whole, deadlines
 *     gen_life.c    what may happen in which state; pure
 *     moves.c       what is done when a state changes
 *     generation.c  a generation: birth, tokens in order, end
 *     attempt.c     its attempts, and their legs at workers
 *     local.c       which worker computes a prompt, where that is weighed
 *     flows.c       tenants: what is theirs, and what they may have ahead
 *     workers.c     workers come, fall silent and go
 *     kv_links.c    between which of them KV can travel; pure
 *     rivals.c      those that were refused may be right; pure
 *     messages.c    what they say
 *     record.c      what others learn of all that
 *
 * table.c, kv_links.c, stops.c and gen_life.c know nothing of the rest. */
#ifndef BT_ROUTER_CORE_CORE_PRIV_H
#define BT_ROUTER_CORE_CORE_PRIV_H

#include "common/base/hmap.h"
#include "common/sched/sched_age.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_disagg.h"
#include "common/sched/sched_prefix_estimate.h"
#include "common/sched/sched_queue.h"
#include "common/sched/sched_token_cost.h"
#include "router/core/core.h"
#include "router/core/gen_life.h"
#include "router/core/kv_need.h"
#include "router/core/rivals.h"
#include "router/core/stops.h"

/** What a worker does for an attempt. */
typedef enum bt_part {
    BT_PART_PREFILL, /**< the context phase; its KV goes to another worker */
    BT_PART_DECODE,  /**< generation, with the KV of another worker */
    BT_PART_LOCAL,   /**< both phases: no KV is handed over */
} bt_part_t;

/** One attempt at one worker. */
typedef struct bt_leg {
    bt_list_t link; /**< in worker->legs while open */
    bt_gen_t *gen;
    bt_instance_t *worker; /**< NULL once closed */
    bt_leg_state_t state;
    bt_part_t part;
    uint32_t attempt;
    /** Others need the KV that it stands for, whatever becomes of its own
     *  answer: it is the leader's of a group. */
    bool leads;
    bool granted; /**< of a decode worker: it gave a lease */
    /* Counted at the worker while COMPUTING. */
    uint64_t prefill_tokens, prefill_us;
    uint32_t n_held; /**< tokens that it was thought to have, if asked */
    uint64_t blocks; /**< counted there until CLOSED */
} bt_leg_t;

/** The attempt under way; when OVER, the last one's number and beginning. */
typedef struct bt_attempt {
    bt_attempt_state_t state;
    bt_attempt_state_t lost_in; /**< LOST: the state before */
    uint32_t number;            /**< from 1 on; 0: none was made */
    uint32_t from;              /**< n_output when it began */
    /** NULL when OVER, and where it has no such part; LOCAL is in decode. */
    bt_leg_t *prefill, *decode;
} bt_attempt_t;

#define BT_CORE_FLOW_BUCKETS 256

/** Whom a generation needs; a flow has a queue of those that wait for each. */
typedef enum bt_preflight_need {
    BT_NEED_PAIR,    /**< workers for both phases */
    BT_NEED_PREFILL, /**< one token is missing: no decode worker */
    BT_NEED_N
} bt_preflight_need_t;

/** A tenant's part of the core. It is there while anything of it is, and while
 *  it has had more than its share. */
typedef struct bt_core_flow {
    bt_list_t by_id; /**< in core->flows */
    uint64_t id;
    bt_sched_flow_t fair; /**< backlogged while n_waiting > 0 */
    uint32_t kv_percent;
    /** The WAITING ones, by bt_gen_t.turn, in a queue for each need: where the
     *  first finds nobody, none behind it does. */
    bt_list_t waiting[BT_NEED_N];
    uint32_t n_waiting;
    uint32_t n_gens;      /**< not freed */
    double mean_output;   /**< tokens of its answers; 0: none has ended */
    uint64_t ended_at_us; /**< the last of those */
    /* Of its open legs. */
    uint64_t prefill_us;    /**< of those COMPUTING */
    uint64_t seats, blocks; /**< where it generates */
    /* Of the look through all that wait that is under way. */
    uint64_t look;            /**< its number: what follows is of it */
    bt_list_t *at[BT_NEED_N]; /**< next of each queue */
    bool is_done;             /**< nothing of it can be sent */
    bool is_limited;          /**< ...for a limit of its own */
} bt_core_flow_t;

struct bt_gen {
    bt_list_t by_id;     /**< in core->gens_by_id until it is freed */
    bt_list_t live_link; /**< in core->live until the client's end */
    uint64_t id;
    /** Id of the first of those that it was submitted with, for the first
     *  attempt; 0: none. */
    uint64_t group;
    void *user;
    bt_core_flow_t *flow; /**< its tenant's */
    uint64_t charged;     /**< work that was charged for it; 0: none yet */
    uint64_t tag;         /**< its flow's time before that */
    uint32_t thought_new; /**< ...for so many tokens */
    bool shares_prompt;   /**< ...without its prompt, which another pays */
    uint32_t level;       /**< its priority at the workers */
    bt_gen_state_t state;
    bt_attempt_t attempt;

    bt_prompt_t *prompt; /**< a reference */
    uint32_t max_new;
    uint32_t n_output; /**< tokens in order so far */
    uint32_t cap_output;
    uint32_t *output; /**< owned */
    bt_sampling_t sampling;
    bt_bad_word_t *bad_words;      /**< owned */
    bt_logit_bias_t *logit_biases; /**< owned */
    bt_bad_word_t *stop_ids;       /**< owned; n_stop_ids of them */
    uint32_t n_stop_ids;
    bool every_token, keeps_stop;
    bt_hash128_t space;
    bt_gen_rows_t *rows;  /**< owned; NULL: nothing is wanted */
    bt_sched_turn_t turn; /**< since it arrived; in a queue while WAITING */
    bt_token_t *early;    /**< owned: tokens ahead of n_output, unordered */
    uint32_t n_early, cap_early;
    bt_detok_t detok;
    bt_stops_t stops;

    bt_leg_t legs[2 * BT_GEN_MAX_ATTEMPTS];
    uint32_t n_legs, n_open_legs;
    bt_avoid_t avoid;       /**< at fault for the ends of earlier attempts */
    uint64_t lost;          /**< instance that its peer reports lost */
    uint64_t hold_until_us; /**< until then that one is not tried again */
    bool hands_over;        /**< KV is on its way, as far as is known here */
    bt_gen_attempt_t attempts[BT_GEN_MAX_ATTEMPTS];
    bt_gen_origin_t origin;
    bt_finish_t finish; /**< once ENDED */
    int http_status;
    /** Why the last attempt was given up; once failed, what clients heard. */
    char trouble[480];

    uint64_t arrived_us, waiting_since_us, deadline_us;
    bt_sched_slo_t target;
    /** What it was taken for, without the margins; 0: nothing was forecast. */
    uint64_t forecast_first_us, forecast_between_us;
    bool was_probe; /**< it was taken though it would be late */
    bool is_probe;  /**< ...and has no token yet: no other one is taken so */
    uint64_t first_token_at_us, second_token_at_us, last_token_at_us;
    bt_ledger_t ledger;
};

struct bt_core {
    bt_core_config_t config;
    bt_core_ops_t ops;
    bt_table_t table;
    bt_rivals_t rivals;     /**< of those in the table */
    bt_list_t live;         /**< generations whose client waits, oldest first */
    bt_hmap_t gens_by_id;   /**< bt_gen_t.by_id */
    bt_list_t *gen_buckets; /**< owned */
    bt_hmap_t flows;        /**< bt_core_flow_t.by_id */
    bt_list_t flow_buckets[BT_CORE_FLOW_BUCKETS];
    bt_sched_fair_t fair;     /**< among flows */
    uint32_t n_flows, n_gens; /* n_gens: of all of them */
    uint64_t n_looks;
    bool has_eased;       /**< a tenant has less ahead than at the last look */
    bt_sched_cost_t cost; /**< a guess, before any worker has measured */
    /** Of the worker that last said some: for one that has none yet. */
    bt_sched_rates_t rates;
    bt_sched_token_cost_t price; /**< of work */
    uint64_t n_seats;            /**< of all flows */
    uint32_t n_live, n_waiting, n_legs;
    bt_gen_rows_held_t logits_bytes; /**< of all rows, those of answers that are
                                          being written included */
    uint64_t next_id;
    /** Of the generations that ended well: tokens drawn, and in the cache. */
    double mean_output, mean_context;
    uint64_t lengths_at_us;          /**< the last of those */
    bt_sched_prefix_estimate_t held; /**< where prompts are weighed */
    bt_sched_safety_factor_t first_margin, between_margin;
    bt_sched_probe_t probe;
    /** Of the request that was judged last: bt_gen_t has the same. */
    uint64_t forecast_first_us, forecast_between_us;
    bool judged_probe; /**< it is one, if it is taken */
    bt_core_late_t late;
    /** When workers were here last, if only silent ones, or expected. */
    uint64_t hope_us;
    /** Scratch: a prompt and the tokens that a re-run goes on from. There is
     *  room for the longest that could ever be. */
    uint32_t *joined;
    uint32_t cap_joined;
    bt_strbuf_t raw;  /**< scratch: text of one token */
    bt_strbuf_t text; /**< scratch: after the stop words */
};

/* record.c */
/** Tell of a failed attempt. */
void bt_gen_loss(const bt_core_t *core, bt_gen_loss_t loss);
/** What a worker's FAILED comes to; before its leg lets go. */
bt_gen_loss_t bt_gen_loss_of(const bt_gen_t *gen, int32_t status);
/** ...and the end of its time. */
bt_gen_loss_t bt_gen_loss_of_deadline(const bt_gen_t *gen);
void bt_gen_time(const bt_core_t *core, bt_gen_time_kind_t which, uint64_t us);
/** A token came, the next in order. */
void bt_gen_note_token(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
/** The parts of the ledger that follow from others. */
void bt_gen_close_ledger(bt_gen_t *gen);
/** What comes of its hand-over: once for one that has BEGUN. */
void bt_gen_handover(const bt_core_t *core, bt_gen_t *gen,
                     bt_handover_phase_t phase, const bt_msg_joined_t *joined);
/** on_worker(). */
void bt_core_worker_news(const bt_core_t *core, const bt_instance_t *worker,
                         bt_worker_news_t news, const char *text);
/** on_record(). */
void bt_gen_record(bt_core_t *core, bt_gen_t *gen);
/** Of a generation that has ended: report the ledger when everything is known,
 *  free what nobody needs. It may be gone afterwards. */
void bt_gen_settle(bt_core_t *core, bt_gen_t *gen);

/* moves.c: nobody else changes a state */
/** The state must allow it.
 *  @param now_us  of SUBMIT, SENT, LOST and END */
void bt_gen_move(bt_core_t *core, bt_gen_t *gen, bt_gen_input_t input,
                 uint64_t now_us);
/** @return false: a worker said it at a wrong time, nothing was done */
bool bt_attempt_hear(bt_gen_t *gen, bt_attempt_input_t input);
/** @return false: likewise */
bool bt_leg_hear(bt_core_t *core, bt_leg_t *leg, bt_leg_input_t input);

/** What it grants others before it (sched_order.h). */
uint64_t bt_core_slack_us(const bt_core_t *core, uint32_t n_tokens,
                          uint64_t since_us, uint64_t deadline_us,
                          const bt_sched_slo_t *target);

/* targets.c */
/** Its own targets, else the server's. */
static inline bt_sched_slo_t bt_core_target_of(const bt_core_t *core,
                                               const bt_gen_spec_t *spec)
{
    const bt_sched_slo_t *own = &spec->target;
    const bt_sched_slo_t *all = &core->config.target;

    return (bt_sched_slo_t){
        .ttft_ms = (own->ttft_ms > 0) ? own->ttft_ms : all->ttft_ms,
        .itl_ms = (own->itl_ms > 0) ? own->itl_ms : all->itl_ms,
    };
}
void bt_core_init_margins(bt_core_t *core);
/** @retval BT_OK             taken; core->judged_probe says if as a probe
 *  @retval BT_ERR_TIMED_OUT  n of them would be late: core->late */
BT_MUST_CHECK bt_status_t bt_core_judge(bt_core_t *core,
                                        const bt_gen_spec_t *spec, uint32_t n,
                                        uint64_t now_us);
/** A generation ended well: what answers are like, what promises are worth. */
void bt_core_note_lengths(bt_core_t *core, const bt_gen_t *gen,
                          uint64_t now_us);
void bt_core_note_promise(bt_core_t *core, const bt_gen_t *gen,
                          uint64_t now_us);
/** It would be late and is taken all the same. */
void bt_core_probe_sent(bt_core_t *core, bt_gen_t *gen);
/** It has a token, or has ended. Nothing where it is no probe. */
void bt_core_probe_over(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
/** As many seats as keep the server's target between tokens. */
void bt_core_limit_seats(const bt_core_t *core, bt_instance_t *worker,
                         uint64_t now_us);

/** Context phases that go first. */
typedef struct bt_core_ahead {
    uint64_t us;
    uint32_t n;
} bt_core_ahead_t;

/** Those of a worker that go before that turn. */
bt_core_ahead_t bt_core_ahead_at(const bt_instance_t *worker,
                                 const bt_sched_turn_t *turn);
/** Tokens of those that generate, in the mean. */
uint32_t bt_core_mean_context(const bt_core_t *core);

/* local.c */
/** What is thought to be at the workers of a pick; of each of them that there
 *  is. 0: nothing, or it was not asked. */
typedef struct bt_core_held {
    uint32_t prefill, decode;
} bt_core_held_t;
/** Weigh the two ways, where the pick has them, and put in it what is better.
 *  @param [in] tokens  of prompt and output so far */
void bt_core_weigh(const bt_core_t *core, const bt_gen_t *gen,
                   const uint32_t *tokens, uint64_t now_us, bt_pick_t *pick,
                   bt_core_held_t *held_p);
/** Of the tokens of a leg so many were there: told by its worker. */
void bt_core_held_was(bt_leg_t *leg, uint32_t n_cached);
/** The worker of a leg has the KV of its prompt now. */
void bt_core_held_now(bt_core_t *core, const bt_leg_t *leg);
/** Its STATS are here, and what it said before. */
void bt_core_count_others(bt_instance_t *worker);

/* workers.c */
/** A prefill worker says how its link to a decode worker is. */
void bt_core_kv_link(bt_core_t *core, bt_instance_t *prefill,
                     const bt_msg_kv_link_t *said, uint64_t now_us);
/** What computing so many tokens takes. @param worker  NULL: at any */
uint64_t bt_core_prompt_us(const bt_core_t *core, const bt_instance_t *worker,
                           uint32_t n_tokens);
/** It takes nothing new. */
void bt_core_worker_drains(const bt_core_t *core, bt_instance_t *worker);
/** What it reports; a role that it has now is used at once. */
void bt_core_worker_stats(bt_core_t *core, bt_instance_t *worker,
                          const bt_msg_stats_t *stats, uint64_t now_us);

/** Tokens of the prompt and of the output so far. */
static inline uint32_t bt_gen_n_tokens(const bt_gen_t *gen)
{
    return gen->prompt->n + gen->n_output;
}

/* core.c */
bt_gen_t *bt_gen_find(bt_core_t *core, uint64_t id);

/* generation.c */
const char *bt_gen_phase_name(const bt_gen_t *gen);
/** Its deadline has passed: the error names the phase that it is in, or that
 * its attempt was lost in just now. */
void bt_gen_fail_for_deadline(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
void bt_gen_token(bt_core_t *core, bt_gen_t *gen, const bt_token_t *token,
                  uint64_t now_us);
/** End with an error for the client; printf style. Open legs are canceled. */
void bt_gen_fail(bt_core_t *core, bt_gen_t *gen, int http_status,
                 uint64_t now_us, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/** Tokens that waited for what belongs to them. */
void bt_gen_take_early(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
void bt_gen_free(bt_core_t *core, bt_gen_t *gen);

/* flows.c */
/** The flow of a tenant, made when it is asked for first; counts one more
 *  generation of it.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_flow_hold(bt_core_t *core,
                                       const bt_gen_tenant_t *tenant,
                                       bt_core_flow_t **flow_p);
/** A generation of it is freed; of the last of all, all flows are. */
void bt_flow_drop(bt_core_t *core, bt_core_flow_t *flow);
void bt_flow_free_all(bt_core_t *core);
/** It begins, or ends, to wait. */
void bt_flow_wait(bt_core_t *core, bt_gen_t *gen, bt_preflight_need_t need);
void bt_flow_rest(bt_core_t *core, bt_gen_t *gen);
/** It is sent, for the first time or again. @param leads  its prompt is
 *  computed for it */
void bt_flow_charge(bt_core_t *core, bt_gen_t *gen, bool leads);
/** It ended: what it did not need is its tenant's again. */
void bt_flow_settle(bt_core_t *core, bt_gen_t *gen, uint64_t now_us);
/** What the workers have, for bt_flow_is_limited(). */
typedef struct bt_flow_room {
    uint64_t n_prefill, n_decode; /**< workers that take requests */
    uint64_t seats, blocks;
    bt_kv_need_t need; /**< of those that generate */
} bt_flow_room_t;
void bt_flow_room_read(const bt_core_t *core, bt_flow_room_t *room_p);
/** Its priority at workers, one of which computes its prompt. */
uint32_t bt_flow_level(const bt_core_t *core, const bt_gen_t *gen,
                       const bt_instance_t *worker);
/** Has its tenant as much ahead, or of the KV, as it may have now? */
bool bt_flow_is_limited(const bt_core_t *core, const bt_gen_t *gen,
                        const bt_flow_room_t *room);

/* attempt.c */
/** Send those that wait to workers that take them, in their order, until so
 *  many prompt tokens are on their way: the rest at the next call, which every
 *  end at a worker and every tick make. */
#define BT_CORE_TURN_TOKENS 65536u
void bt_gen_dispatch_waiting(bt_core_t *core, uint64_t now_us);
/** The attempt is LOST for the reason in gen->trouble: it waits to run again,
 *  or fails. The others that have it are told; what waits is the caller's to
 *  dispatch.
 *  @param leg  whose worker ends by itself */
void bt_gen_rerun(bt_core_t *core, bt_gen_t *gen, const bt_leg_t *leg,
                  uint64_t now_us);
/** CANCEL to all open legs, or to all but one worker's. */
void bt_gen_cancel_legs(bt_core_t *core, bt_gen_t *gen, bt_finish_t why,
                        const bt_leg_t *except);
/** Of the worker in this part, for texts: "prefill" or "decode". */
const char *bt_leg_part_name(const bt_leg_t *leg);
/** Is it of the attempt under way? */
bool bt_leg_is_current(const bt_leg_t *leg);
/** Has its worker yet to do something for the attempt under way? Not when that
 *  has its last token already, ahead of others. */
bool bt_leg_needed(const bt_leg_t *leg);
/** Its worker lets go of it.
 *  @param ended  as it does when its part is done
 *  @return true: the attempt is LOST with it */
bool bt_leg_lets_go(const bt_leg_t *leg, bool ended);

#endif
