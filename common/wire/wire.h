/* SPDX-License-Identifier: Apache-2.0 */
/** @file wire.h
 *
 * Control messages between router and workers, in msgpack. This module is the
 * only includer of msgpack.h.
 *
 * The two sides of a link speak the newest protocol version that both know, the
 * smaller of the two newest versions in their HELLO. docs/WIRE.md has the rules
 * of change.
 *
 * A message is a msgpack array [type, field, field, …], the fields in the order
 * of the structures below. New fields are appended: a decoder skips unknown
 * fields, and fields that an older peer did not send have their defaults (zero
 * and empty unless stated otherwise). Fields of the first version are required;
 * every count and length is bounded before memory is allocated. A whole message
 * of an unknown type is skipped.
 *
 *     number            uint, int or float 32
 *     bt_hash128_t      two numbers: lo, hi
 *     bt_req_key_t      two numbers: id, attempt
 *     text              str without control characters
 *     blob              bin
 *     token ids         bin, 4 bytes each, little endian
 *     bt_sampling_t     array of its fields; a bad word is a bin of token ids.
 *                       Not in the array: logit biases, a bin behind `space`,
 *                       8 bytes each: token id and float 32, little endian;
 *                       min_p, behind `wants`; end ids beyond the first
 *                       BT_WIRE_FIRST_END_IDS, behind min_p; and
 *                       bt_processor_options_t, a list behind max_drafts,
 *                       empty when all are off
 *     bt_token_t        array: id, attempt, index, token id, finish
 *     bt_token_score_t  array: token, bin of a score: its log-prob, then id and
 *                       log-prob of each alternative; float 64, little endian
 *     ranks, regions    array of arrays of their fields (bt_wire_rank_t,
 *                       bt_wire_region_t), behind the other fields. The blob of
 *                       a list of one travels in the field that existed before
 *                       there were lists, and is empty in the list; with
 *                       several items that older field is empty. So a peer
 *                       without lists understands lists of one, and takes no
 *                       others for one.
 *
 * Life of a request (R router, P prefill worker, D decode worker):
 *
 *     R → P  REQUEST(kind prefill)      R → D  REQUEST(kind generate)
 *     D → R  GRANT        R → P  GRANT (the same bytes)
 *     P → R  PREFILLED (timing)         P ══ KV ══▶ D
 *     P → R  TOKENS (index 0)           D → R  JOINED (timing), TOKENS …
 *     D → R  TOKENS with finish, or FAILED
 *     R → P, R → D  CANCEL at any time; each answers ENDED when all blocks,
 *     seats and leases of (request, attempt) are released.
 *
 * Every accepted REQUEST ends with exactly one ENDED from that worker.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_WIRE_WIRE_H
#define BT_COMMON_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/sched/sched_beam.h"
#include "common/sched/sched_cost.h"
#include "common/wire/prompt_table.h"
#include "common/wire/request.h"

#ifdef BT_WIRE_TEST_NEXT /* tests/integration/test_upgrade.py: a later build \
                          */
#define BT_WIRE_PROTOCOL 5
#else
#define BT_WIRE_PROTOCOL 4 /**< newest version that this build speaks */
#endif
#define BT_WIRE_PROTOCOL_MIN 4 /**< oldest version that this build speaks */

#define BT_WIRE_MAX_TOKENS (1u << 20) /**< tokens of one request */
#define BT_WIRE_MAX_TEXT   512        /**< bytes of an error text */
#define BT_WIRE_MAX_BLOB   (4u << 20) /**< bytes of a grant or export blob */
#define BT_WIRE_MAX_NAME   64
#define BT_WIRE_MAX_PATH   1024 /**< bytes of a path and its zero byte */
#define BT_WIRE_MAX_MODEL  256  /**< bytes of a model name and its zero byte */
#define BT_WIRE_MAX_AT     128  /**< bytes of an address with its interface */
#define BT_WIRE_MAX_WHY    160  /**< bytes of a reason */
#define BT_WIRE_MAX_BATCH  (1u << 14)  /**< tokens in one TOKENS message */
#define BT_WIRE_MAX_BYTES  (12u << 20) /**< bytes of one encoded message */
#define BT_WIRE_MAX_RANKS  64u         /**< tp x pp of one instance */
#define BT_WIRE_MAX_FANOUT 4096u       /**< requests of a fanout */
/** Number of end ids in the sampling array itself, as in protocol 2. */
#define BT_WIRE_FIRST_END_IDS   8
#define BT_WIRE_DRAFT_SOURCES   5u
#define BT_WIRE_DRAFT_POSITIONS 16u
#define BT_WIRE_MAX_ROWS        (1u << 18) /**< bytes in one ROWS message */
#define BT_WIRE_MAX_GRAMMAR     (1u << 16) /**< bytes of a grammar's program */
#define BT_WIRE_ADAPTER_PART    (1u << 20) /**< bytes of an adapter at a time */
/** Most regions of one grant: one for each pair of ranks. */
#define BT_WIRE_MAX_REGIONS (BT_WIRE_MAX_RANKS * BT_WIRE_MAX_RANKS)

typedef enum bt_msg_type {
    BT_MSG_HELLO = 1,
    BT_MSG_REQUEST = 2,
    BT_MSG_GRANT = 3,
    BT_MSG_CANCEL = 4,
    BT_MSG_TOKENS = 5,
    BT_MSG_PREFILLED = 6,
    BT_MSG_JOINED = 7,
    BT_MSG_FAILED = 8,
    BT_MSG_ENDED = 9,
    BT_MSG_STATS = 10,
    BT_MSG_PEER = 11,
    BT_MSG_PEER_GONE = 12,
    BT_MSG_DRAIN = 13,
    BT_MSG_ROLE = 14,            /**< to workers whose STATS have roles */
    BT_MSG_ROWS = 15,            /**< for requests with wants */
    BT_MSG_KV_LINK = 16,         /**< from workers with BT_HELLO_KV_LINKS */
    BT_MSG_BEAM = 17,            /**< for requests with beams */
    BT_MSG_WEIGHTS = 18,         /**< to workers with BT_HELLO_WEIGHTS */
    BT_MSG_WEIGHTS_CHECKED = 19, /**< from those */
    BT_MSG_SLEEP = 20,           /**< to workers with BT_HELLO_SLEEPS */
    BT_MSG_CACHE_RESET = 21,     /**< to workers with BT_HELLO_CACHE_RESET */
    BT_MSG_CACHE_IS_EMPTY = 22,  /**< from those */
    BT_MSG_ADAPTER = 23,       /**< to workers with BT_HELLO_ADAPTER_UPDATES */
    BT_MSG_ADAPTER_READY = 24, /**< from those */
    BT_MSG_ADAPTER_WANT = 25, /**< from workers with BT_HELLO_ADAPTER_CONTENT */
    BT_MSG_ADAPTER_PART = 26, /**< to those */
} bt_msg_type_t;

typedef enum bt_role {
    BT_ROLE_ROUTER = 0,
    BT_ROLE_PREFILL = 1,
    BT_ROLE_DECODE = 2,
} bt_role_t;

/** Set of both roles of a worker: the numbers of the roles are bits. */
#define BT_ROLES_BOTH ((uint32_t)BT_ROLE_PREFILL | (uint32_t)BT_ROLE_DECODE)

/** Key of a request, on every message about it. `id` is unique for one
 *  router process; links keep routers apart. */
typedef struct bt_req_key {
    uint64_t id;
    uint32_t attempt;
} bt_req_key_t;

/** Rank of an instance: what others need to send into its KV pool. */
typedef struct bt_wire_rank {
    uint64_t block_bytes; /**< block size of its pool; 0 = unknown */
    const uint8_t *kvt;   /**< kvtransfer export blob */
    uint32_t kvt_bytes;   /**< at least 1 */
} bt_wire_rank_t;

/** Weights that replace those of a worker. */
typedef struct bt_wire_weights {
    /** Number of the replacement: a later one is larger, on whatever router; 0:
     *  the weights that a worker started with. */
    uint64_t update;
    char version[BT_WIRE_MAX_NAME]; /**< their name, for clients */
    char path[BT_WIRE_MAX_PATH];    /**< path of their file or folder */
} bt_wire_weights_t;

/** Description of a process, sent when a link comes up (control hello payload).
 */
typedef struct bt_msg_hello {
    uint32_t protocol; /**< newest version it speaks: BT_WIRE_PROTOCOL */
    uint32_t role;     /**< bt_role_t; a worker of both roles: DECODE with
                            BT_HELLO_LOCAL_PREFILL, and its STATS have the
                            rest */
    uint64_t instance; /**< unique id of this worker process' life */
    char name[BT_WIRE_MAX_NAME];    /**< for logs: "decode-0" */
    bt_hash128_t model;             /**< bt_gguf_identity(); router: its own */
    char profile[BT_WIRE_MAX_NAME]; /**< numeric profile */
    uint32_t kv_type;               /**< bt_kv_type_t */
    uint32_t tokens_per_block;
    bt_hash128_t layout;     /**< hash of the KV block layout */
    uint32_t context_tokens; /**< longest sequence this worker takes */
    uint32_t max_batch;      /**< seats */
    uint32_t n_blocks;
    uint32_t flags; /**< BT_HELLO_* */
    /** Ranks in order: tp x pp of them, stage after stage (kv_route.h);
     *  NULL and 0 for a router. Rank 0 is the sender of this message. */
    const bt_wire_rank_t *ranks;
    uint32_t n_ranks;
    /* later fields */
    uint32_t protocol_min; /**< oldest version it speaks; default: protocol */
    char model_name[BT_WIRE_MAX_MODEL];  /**< name configured at a worker, or
                                              "" */
    char version_text[BT_WIRE_MAX_NAME]; /**< version of its build, "0.2.0",
                                              or "" */
    uint32_t tp, pp; /**< tensor and pipeline parallelism; default: 1 */
    /** Blocks of n_blocks that a sequence of n spans of tokens_per_block
     *  takes at most: span_blocks x n + window_blocks x min(n,
     *  window_spans). Defaults: 1, 0 and 0. */
    uint32_t span_blocks, window_blocks, window_spans;
    /** Weights in place of those that the worker started with. Defaults: 0
     *  and "", those. */
    bt_wire_weights_t weights;
    /** With weights.update: identity of the model that it started with, from
     *  whose file routers read the tokenizer; `model` is that of the weights
     *  in use. */
    bt_hash128_t base;
    /** Number of the last SLEEP that it has carried out; with BT_HELLO_ASLEEP
     *  it sleeps, or could not be woken. Default: 0, none. */
    uint64_t sleep_order;
#ifdef BT_WIRE_TEST_NEXT
    uint32_t test_next; /**< field of the later build; default: 7 */
#endif
} bt_msg_hello_t;

#define BT_HELLO_LOCAL_PREFILL 1u /**< a decode worker that also prefills */
/** Flag: computes requests of one prompt as a fanout (bt_msg_request_t.fanout).
 */
#define BT_HELLO_FANOUT 2u
/** Flag, with BT_HELLO_LOCAL_PREFILL: prefills locally where that costs less
 *  (--local-prefill auto), instead of taking a share of the prompt queue. */
#define BT_HELLO_LOCAL_WEIGHED 4u
/** Flag: prefix caching; a prompt that begins like an earlier one computes
 *  only the rest. */
#define BT_HELLO_KEEPS_PROMPTS 8u
/** Flag: sequences start and end in static batches (--batching-strategy V1). */
#define BT_HELLO_STATIC_BATCHES 16u
/** Flag: reports its KV links (bt_msg_kv_link_t). Every link of a worker
 *  without it counts as good. */
#define BT_HELLO_KV_LINKS 32u
/** Flag: searches with beams (bt_msg_request_t.beams). */
#define BT_HELLO_BEAMS 128u
/** Flag: draws as bt_processor_options_t says; a worker without it gets no
 *  request that has any. */
#define BT_HELLO_PROCESSORS 64u
/** Flag: restricts answers to a grammar (bt_msg_request_t.grammar); a worker
 *  without it gets no request that has one. */
#define BT_HELLO_GRAMMARS 256u
/** Flag: replaces its weights on demand (bt_msg_weights_t). */
#define BT_HELLO_WEIGHTS 512u
/** Flag: sleeps on demand (bt_msg_sleep_t). */
#define BT_HELLO_SLEEPS 1024u
/** Flag: sleeps: it has neither weights nor a KV pool, takes no requests, and
 *  its rank has no address. What else HELLO says is of the time before. */
#define BT_HELLO_ASLEEP 2048u
/** Flag: empties its prefix cache on demand (bt_msg_cache_reset_t). */
#define BT_HELLO_CACHE_RESET 4096u
/** Flag: computes rows of a prompt table (bt_msg_request_t.table); a worker
 *  without it gets no request that has one. */
#define BT_HELLO_TABLES 8192u
/** Flag: has LoRA adapters (bt_msg_request_t.adapter); a worker without it gets
 *  no request that names one. */
#define BT_HELLO_ADAPTERS 16384u
/** Flag: loads LoRA adapters on demand (bt_msg_adapter_t). */
#define BT_HELLO_ADAPTER_UPDATES 32768u
/** Flag: takes the content of LoRA adapters from routers
 *  (bt_msg_adapter_t.bytes). */
#define BT_HELLO_ADAPTER_CONTENT 65536u

typedef enum bt_request_kind {
    BT_REQUEST_PREFILL = 0,  /**< prefill and token #1, then transfer KV */
    BT_REQUEST_GENERATE = 1, /**< grant, receive KV, generate from token #2 */
    BT_REQUEST_LOCAL = 2,    /**< both phases here (--local-prefill) */
} bt_request_kind_t;

/** Request for one worker. */
typedef struct bt_msg_request {
    bt_req_key_t key;
    uint32_t kind;          /**< bt_request_kind_t */
    uint64_t peer;          /**< instance of the other worker; 0 for LOCAL; for
                                 PREFILL with max_new 1 the worker's own: KV goes
                                 nowhere */
    uint32_t n_prompt;      /**< tokens of the client's prompt */
    uint32_t n_tokens;      /**< prompt and tokens already sent (a re-run);
                                 0, in a fanout only: as the leader's */
    const uint32_t *tokens; /**< n_tokens ids */
    uint32_t max_new;       /**< still to generate, at least 1 */
    uint32_t deadline_ms;   /**< from arrival; 0 = none */
    uint32_t priority;      /**< levels; higher is sooner (sched_queue.h) */
    bt_sampling_t sampling;
    /** Namespace of the KV blocks: only blocks of one space are reused for
     *  one another (kv_prefix.h). {0, 0}: shared by all requests that set
     *  none. */
    bt_hash128_t space;
    /**
     * Leader of a fanout: key.id of the first of several requests of one
     * attempt number that differ only in their sampling and are sent to one set
     * of workers one after another. The worker computes, sends and holds their
     * prompt once, under the leader's key. 0 = a single request.
     */
    uint64_t fanout;
    uint32_t fanout_size; /**< requests of the fanout, the leader included */
    /** Extra results wanted. Those of the prompt are for single requests
     *  only. */
    bt_wants_t wants;
    /** Time from arrival to the TTFT target, which scheduling by deadline
     *  uses; 0 = none, 1 = also if it has passed. */
    uint32_t first_ms;
    /** Target of the mean inter-token latency; 0 = none. */
    uint32_t itl_ms;
    /** Speculative decoding: expected tokens of the answer, which are used as
     *  drafts; and most drafts of one iteration, 0 = none, UINT32_MAX (the
     *  default) = no bound. */
    const uint32_t *draft_ids;
    uint32_t n_draft_ids;
    uint32_t max_drafts;
    /** Beam search; only to workers with BT_HELLO_BEAMS, and never of kind
     *  PREFILL: that one computes the prompt's KV alone, its token does not
     *  count. width 0: none. */
    bt_sched_beam_params_t beams;
    /** Program of the grammar that the answer follows from its first token on
     *  (common/grammar/grammar.h); only to workers with BT_HELLO_GRAMMARS. In a
     *  fanout each request has it. Empty: none. */
    const uint8_t *grammar;
    uint32_t grammar_bytes;
    /** Most tokens of the answer, from the prompt's end on, if its text must be
     *  whole within them; 0: it may be cut. With a grammar alone. */
    uint32_t complete_within;
    /** Prompt table whose rows the token ids from BT_TABLE_TOKEN on are; only
     *  to workers with BT_HELLO_TABLES. A worker that generates has it too, for
     *  it computes the prompt of a sequence that it has paused. In a fanout
     *  each request has it, also one without tokens. */
    bt_table_rows_t table;
    /** Digest of the LoRA adapter that the sequence has (bt_adapter_t.digest);
     *  only to workers with BT_HELLO_ADAPTERS. `space` is one of the adapter's.
     *  {0, 0}: none. */
    bt_hash128_t adapter;
} bt_msg_request_t;

/** Receive region: where one rank of P may write into the pool of one rank
 *  of D. */
typedef struct bt_wire_region {
    uint32_t to, from;   /**< ranks of D and of P */
    const uint8_t *blob; /**< kvtransfer region descriptor */
    uint32_t blob_bytes; /**< at least 1 */
} bt_wire_region_t;

/** Grant of D: where the KV may be written. The router forwards regions
 *  unread. */
typedef struct bt_msg_grant {
    bt_req_key_t key;
    uint64_t instance; /**< instance of the decode worker */
    uint32_t n_cached; /**< leading tokens that D already holds */
    /** Receive regions, one for each pair of ranks that have heads and
     *  layers in common. */
    const bt_wire_region_t *regions;
    uint32_t n_regions;
} bt_msg_grant_t;

typedef struct bt_msg_cancel {
    bt_req_key_t key;
    uint32_t finish; /**< reason: BT_FINISH_* (STOP: a stop word was met) */
} bt_msg_cancel_t;

/** Token of a request; `index` 0 is token #1. */
typedef struct bt_token {
    bt_req_key_t key;
    uint32_t index;
    uint32_t id;
    uint32_t finish; /**< bt_finish_t */
} bt_token_t;

/** Log-probs of one token of a TOKENS message. */
typedef struct bt_token_score {
    uint32_t token; /**< index among the tokens of the message */
    bt_score_t score;
} bt_token_score_t;

/** All tokens of one iteration for one router. */
typedef struct bt_msg_tokens {
    uint32_t n;
    const bt_token_t *tokens;
    /* later fields */
    /** Scores of tokens whose requests want log-probs; `token` rises. */
    uint32_t n_scores;
    const bt_token_score_t *scores;
    /** Three numbers for each token whose request has had drafts: its index
     *  among the tokens, which rises, then the request's drafts so far that
     *  were verified, and those of them that were right. */
    uint32_t n_drafts;
    const uint32_t *drafts;
} bt_msg_tokens_t;

typedef enum bt_rows_kind {
    BT_ROWS_PROMPT_LOGPROBS = 0, /**< scores of the prompt's tokens */
    BT_ROWS_PROMPT_LOGITS = 1,   /**< rows behind the prompt's tokens */
    BT_ROWS_LOGITS = 2,          /**< rows that the answer's tokens are
                                      sampled from */
} bt_rows_kind_t;

/**
 * Part of the extra results that a request wants: sent on its worker's link
 * before the request ends, in order for each kind and row. Messages of unknown
 * kinds are skipped. Log-probs of the prompt arrive before token #1; logits are
 * sent as the link has capacity, so tokens overtake them.
 */
typedef struct bt_msg_rows {
    bt_req_key_t key;
    uint32_t kind;   /**< bt_rows_kind_t */
    uint32_t from;   /**< first token, of the prompt or of the answer */
    uint32_t n_top;  /**< log-probs: alternatives with each */
    uint32_t offset; /**< logits: first id of this piece of the row */
    /** Scores encoded as in bt_token_score_t, one after another; or floats,
     *  4 bytes each, little endian. */
    const uint8_t *data;
    uint32_t data_bytes;
} bt_msg_rows_t;

/** One answer of a request with beams. The worker sends all of them when the
 *  search is over: the best one, which ends the request, comes last. The
 * request has no TOKENS but those of its prefill, which do not count. */
typedef struct bt_msg_beam {
    bt_req_key_t key;
    uint32_t index;  /**< 0 = the best */
    uint32_t n;      /**< answers that come, index + 1 of them from here */
    uint32_t finish; /**< bt_finish_t */
    const uint32_t
        *ids;       /**< [n_ids] tokens of the answer, an end id included */
    uint32_t n_ids; /**< at least 1 */
    /** Log-prob of each token, 8 bytes each, little endian; none: not wanted.
     */
    const uint8_t *logprobs;
    uint32_t logprobs_bytes;
} bt_msg_beam_t;

/** Timing of the prefill; durations in µs. */
typedef struct bt_msg_prefilled {
    bt_req_key_t key;
    uint64_t queue_us;   /**< arrival to the first chunk */
    uint64_t compute_us; /**< sum over its chunks */
    uint32_t n_chunks;
    uint32_t n_cached; /**< tokens not computed (prefix reuse) */
} bt_msg_prefilled_t;

/** Notice that the KV is verified complete at D and the sequence may join;
 *  timing in µs. */
typedef struct bt_msg_joined {
    bt_req_key_t key;
    uint64_t grant_wait_us; /**< at P: KV ready, no grant yet */
    uint64_t transfer_us;   /**< transfer at P, and verification at D */
    uint64_t transfer_bytes;
    uint32_t n_descriptors; /**< 0, with 0 bytes, if reported for the leader
                                 (bt_msg_request_t.fanout) */
    uint64_t queue_us;      /**< at D: arrival to grant */
    uint64_t handover_us;   /**< at D: last byte's arrival to "may join" */
} bt_msg_joined_t;

typedef struct bt_msg_failed {
    bt_req_key_t key;
    int32_t status;              /**< bt_status_t */
    char text[BT_WIRE_MAX_TEXT]; /**< names the phase and the cause */
} bt_msg_failed_t;

/** Notice that everything of (request, attempt) is released on this worker. */
typedef struct bt_msg_ended {
    bt_req_key_t key;
    uint64_t decode_us; /**< time in the running batch */
    uint32_t n_iterations;
    uint64_t join_wait_us;     /**< "may join" to its first iteration's start */
    uint64_t transfer_tail_us; /**< at P: from KV complete and granted to D's
                                    notice that it has all; 0 = no such
                                    transfer */
    uint32_t n_pauses;         /**< at D: times it was preempted */
    uint64_t paused_us;        /**< at D: total time preempted */
    uint32_t n_drafted;        /**< drafts that were verified */
    uint32_t n_accepted;       /**< drafts that were right */
} bt_msg_ended_t;

/** State of a worker, sent every heartbeat interval. */
typedef struct bt_msg_stats {
    uint32_t active_requests;    /**< accepted, not ended */
    uint32_t max_requests;       /**< seats */
    uint32_t scheduled_requests; /**< in the last iteration */
    uint32_t context_requests;
    uint32_t generation_requests;
    /** Requests waiting for a seat, blocks, or the first chunk of their
     *  prefill. An older worker counts all that are not in its engine. */
    uint32_t waiting_requests;
    uint32_t paused_requests;
    uint32_t blocks_max, blocks_free, blocks_used, blocks_reused;
    uint32_t tokens_per_block;
    uint32_t total_context_tokens; /**< prompt tokens of the last iteration */
    uint32_t micro_batch_id;
    uint32_t leases; /**< open leases (D) or transfers (P) */
    uint32_t quarantined_blocks;
    uint32_t open_fds;
    uint64_t iteration_counter;
    uint64_t memory_cpu_bytes, memory_gpu_bytes, memory_pinned_bytes;
    uint64_t kv_bytes_sent, kv_bytes_received;
    uint64_t kv_stale_discarded; /**< stale or foreign writes refused */
    uint64_t kv_checksum_failures;
    /* later fields; counts since the worker started, 0 from an older one */
    uint64_t tokens_generated; /**< sampled here; P samples token #1 of each */
    uint64_t prompt_tokens;    /**< prompt tokens computed here */
    uint64_t tokens_reused;    /**< prompt tokens found in its prefix index */
    uint64_t process_cpu_ms;   /**< user and system */
    uint64_t resident_bytes;
    uint64_t start_unix_s;  /**< time of day at its start */
    uint32_t blocks_cached; /**< free blocks with a cached prefix, evictable */
    uint64_t kv_bytes_staged; /**< copied between slots and a device's pool */
    uint64_t kv_stage_waits;  /**< times that there was no slot */
    uint32_t roles; /**< current roles, bits of bt_role_t; 0 = not reported:
                         as in its HELLO, permanently */
    uint64_t kv_foreign_pieces; /**< received without secret or proof */
    uint64_t log_lines_dropped; /**< dropped because no reader kept up */
    bt_sched_rates_t rates;     /**< step rates */
    uint64_t lent_pieces;       /**< pieces computed on other workers' cores */
    uint64_t lent_us;           /**< time of those pieces */
    uint64_t lent_again;        /**< pieces computed twice */
    /** Preemptions, resumptions, and tokens whose K and V were recomputed
     *  (common/sched/sched_preempt.h). */
    uint64_t pauses, resumes, tokens_recomputed;
    /** Time slept between iterations to donate cores
     *  (common/sched/sched_pipeline.h). */
    uint64_t yielded_us;
    /** Blocks of sliding-window layers (common/kv/kv_block_pool.h): part of
     *  blocks_used now; and blocks evicted from the attention window since
     *  the start. */
    uint32_t blocks_windowed;
    uint64_t blocks_slid;
    /** Time without progress: the worker has work, and no operation of a
     *  layer has ended for this long; 0: it makes progress, or has no work. */
    uint64_t still_ms;
    uint32_t duty;            /**< bt_admin_state_t; an older build sends
                                 BT_ADMIN_STATE_AS_IT_IS            and accepts no change
                                 of duty */
    uint64_t kv_bytes_shared; /**< written by its device into another's pool */
    /** Iterations that began while the device computed the one before
     *  (common/sched/sched_pipeline.h). */
    uint64_t overlapped_iterations;
    /** Requests at D with a seat and blocks, whose KV is still computed or
     *  sent elsewhere. */
    uint32_t waiting_for_kv_requests;
    /** Speculative decoding: sequences that had drafts verified, once for each
     *  iteration; drafts that were verified and drafts that were right, by
     *  bt_draft_source_t; drafts that were right by position, from 0. */
    uint64_t draft_steps;
    uint64_t drafted[BT_WIRE_DRAFT_SOURCES], accepted[BT_WIRE_DRAFT_SOURCES];
    uint64_t accepted_at[BT_WIRE_DRAFT_POSITIONS];
    /** Grammars: masks of tokens that draws asked for, those that were there
     *  already, and the time of all, of sequences that are over; programs
     *  loaded. */
    uint64_t grammar_masks, grammar_mask_hits, grammar_mask_us, grammars_loaded;
} bt_msg_stats_t;

/** Whether a worker accepts requests. */
typedef enum bt_admin_state {
    BT_ADMIN_STATE_AS_IT_IS = 0, /**< not reported, or unchanged */
    BT_ADMIN_STATE_ON = 1,
    BT_ADMIN_STATE_OFF =
        2, /**< drained: finishes its requests, accepts no new ones */
    BT_ADMIN_STATE_END = 3, /**< drained, and then the process ends */
} bt_admin_state_t;

/** Command of R to a worker: change roles and duty. Requests that it has end
 *  as they began. Its next STATS, to every router, report the change. */
typedef struct bt_msg_role {
    uint32_t roles; /**< bits of bt_role_t; 0 = unchanged, duty only */
    /** bt_admin_state_t; sent to workers whose STATS have one. */
    uint32_t duty;
} bt_msg_role_t;

/** Peer announcement. R → P: a decode worker that transfers may name. R → D,
 *  with `sends`: a prefill worker that may send KV. */
typedef struct bt_msg_peer {
    uint64_t instance;
    char name[BT_WIRE_MAX_NAME];
    const bt_wire_rank_t *ranks; /**< as in its HELLO */
    uint32_t n_ranks;
    /* later fields */
    uint32_t tp, pp;     /**< default: 1 */
    bt_hash128_t layout; /**< as in its HELLO; 0 = unknown */
    uint32_t sends;      /**< 1: the peer sends to the reader; default 0: the
                              reader may send to the peer */
} bt_msg_peer_t;

typedef struct bt_msg_peer_gone {
    uint64_t instance;
} bt_msg_peer_gone_t;

typedef enum bt_kv_link_state {
    BT_KV_LINK_UNPROVEN = 0, /**< not tried yet, or being tried */
    BT_KV_LINK_PROVEN = 1,   /**< the decode worker has answered */
    BT_KV_LINK_FAILED = 2,   /**< proof failed, or the link was lost; retried */
} bt_kv_link_state_t;

/** State of P's KV link to a decode worker that PEER announced, P → R; sent
 *  with each change, and to a router that announces that worker. */
typedef struct bt_msg_kv_link {
    uint64_t instance;         /**< instance of the decode worker */
    uint32_t state;            /**< bt_kv_link_state_t; unknown values count as
                                    UNPROVEN */
    char at[BT_WIRE_MAX_AT];   /**< FAILED: "10.0.0.2:4711 on eth0", or "" */
    char why[BT_WIRE_MAX_WHY]; /**< FAILED: reason in words; else "" */
} bt_msg_kv_link_t;

/** Command of R to a worker: look at weights, or replace its own by them when
 *  the requests that it has are over. The first is answered by
 *  WEIGHTS_CHECKED, the second by a new HELLO, of a new instance, or, if it
 *  cannot be, by WEIGHTS_CHECKED. */
typedef struct bt_msg_weights {
    bt_wire_weights_t weights;
    uint32_t loads; /**< 0: look at them, 1: replace */
} bt_msg_weights_t;

/** Result of looking at weights. */
typedef struct bt_msg_weights_checked {
    uint64_t update;             /**< as in the command */
    int32_t status;              /**< bt_status_t; BT_OK: they can be loaded */
    bt_hash128_t model;          /**< BT_OK: identity of the model there */
    char text[BT_WIRE_MAX_TEXT]; /**< otherwise the reason */
} bt_msg_weights_checked_t;

/** Command of R to a worker: load a LoRA adapter, or drop it when no request
 *  has it and no other router loaded it. The first is answered by
 *  ADAPTER_READY. */
typedef struct bt_msg_adapter {
    bt_hash128_t adapter;         /**< digest of its content */
    uint32_t loads;               /**< 1: load it, 0: drop it */
    char name[BT_WIRE_MAX_MODEL]; /**< name, for the log */
    char path[BT_WIRE_MAX_PATH];  /**< path of its file or folder */
    /** Bytes of its content at the router, of which the worker asks by
     *  ADAPTER_WANT, part after part (bt_adapter_pack()); only to workers with
     *  BT_HELLO_ADAPTER_CONTENT. 0: it is at the path. */
    uint64_t bytes;
} bt_msg_adapter_t;

/** Result of loading an adapter. */
typedef struct bt_msg_adapter_ready {
    bt_hash128_t adapter;
    int32_t status;              /**< bt_status_t; BT_OK: it is here */
    char text[BT_WIRE_MAX_TEXT]; /**< otherwise the reason */
} bt_msg_adapter_ready_t;

/** A worker asks for the content of an adapter that it was ordered to load. The
 *  answer is one ADAPTER_PART; none comes when it was dropped meanwhile. */
typedef struct bt_msg_adapter_want {
    bt_hash128_t adapter;
    uint64_t offset; /**< first byte, below bt_msg_adapter_t.bytes */
} bt_msg_adapter_want_t;

/** Content of an adapter from an offset on: all that is left, or
 *  BT_WIRE_ADAPTER_PART. */
typedef struct bt_msg_adapter_part {
    bt_hash128_t adapter;
    uint64_t offset;
    const uint8_t *data;
    uint32_t data_bytes;
} bt_msg_adapter_part_t;

/** Command of R to a worker: give back the memory of weights and KV pool when
 *  the requests that it has are over, or take it again. The answer is a new
 *  HELLO, of a new instance. */
typedef struct bt_msg_sleep {
    /** Number; a later one is larger, on whatever router. That of an order to
     *  sleep is odd, so that HELLO tells what a worker was ordered, too. */
    uint64_t order;
    uint32_t sleeps; /**< 1: sleep, 0: wake */
} bt_msg_sleep_t;

/** True when an order of this number (bt_msg_sleep_t) is one to sleep. */
static inline bool bt_sleep_order_sleeps(uint64_t order)
{
    return (order % 2) != 0;
}

/** Command of R to a worker: empty the prefix cache. The blocks of requests
 *  that run stay theirs, and do not enter it later. */
typedef struct bt_msg_cache_reset {
    uint64_t number; /**< chosen by R, for the answer */
} bt_msg_cache_reset_t;

/** The prefix cache of a worker is empty. */
typedef struct bt_msg_cache_is_empty {
    uint64_t number;   /**< as in the command */
    uint32_t n_blocks; /**< KV blocks that were cached */
} bt_msg_cache_is_empty_t;

/** Decoded message. Pointers inside refer to memory owned by the decoder
 *  object and stay valid until its next use. */
typedef struct bt_msg {
    bt_msg_type_t type;
    union {
        bt_msg_hello_t hello;
        bt_msg_request_t request;
        bt_msg_grant_t grant;
        bt_msg_cancel_t cancel;
        bt_msg_tokens_t tokens;
        bt_msg_prefilled_t prefilled;
        bt_msg_joined_t joined;
        bt_msg_failed_t failed;
        bt_msg_ended_t ended;
        bt_msg_stats_t stats;
        bt_msg_peer_t peer;
        bt_msg_peer_gone_t peer_gone;
        bt_msg_role_t role;
        bt_msg_rows_t rows;
        bt_msg_kv_link_t kv_link;
        bt_msg_beam_t beam;
        bt_msg_weights_t weights;
        bt_msg_weights_checked_t weights_checked;
        bt_msg_sleep_t sleep;
        bt_msg_cache_reset_t cache_reset;
        bt_msg_cache_is_empty_t cache_is_empty;
        bt_msg_adapter_t adapter;
        bt_msg_adapter_ready_t adapter_ready;
        bt_msg_adapter_want_t adapter_want;
        bt_msg_adapter_part_t adapter_part;
    } u;
} bt_msg_t;

/** Returns the name of a role or a set of roles: "router", "prefill",
 *  "decode" or "both". */
const char *bt_role_name(uint32_t roles);
/**
 * Finds the set of roles with this name; a router's is the empty set.
 * @return false: unknown name; @a roles_p is unchanged
 */
BT_MUST_CHECK bool bt_role_named(const char *name, uint32_t *roles_p);
/** Returns "on", "off" or "end"; "on" if not reported. */
const char *bt_duty_name(uint32_t duty);

/** Protocol versions that one side speaks. */
typedef struct bt_wire_range {
    uint32_t oldest, newest;
} bt_wire_range_t;

#define BT_WIRE_RANGE_BYTES 32 /**< size of a range as text, with its zero */

/** Returns the range of this build. */
bt_wire_range_t bt_wire_range_ours(void);
/** Returns the range of the peer that sent @a hello. */
bt_wire_range_t bt_wire_range_of(const bt_msg_hello_t *hello);
/** Returns the version that a link between two sides uses. @return 0: there
 *  is no common version */
uint32_t bt_wire_common(bt_wire_range_t mine, bt_wire_range_t theirs);
/** Prints a range: "2", or "2 to 4". */
void bt_wire_range_print(bt_wire_range_t range, char out[BT_WIRE_RANGE_BYTES]);

/**
 * Copies a list with its blobs, in one piece of memory: bt_free().
 * @param [in]  n       0: *copy_p becomes NULL.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_wire_ranks_copy(const bt_wire_rank_t *ranks,
                                             uint32_t n,
                                             bt_wire_rank_t **copy_p);
BT_MUST_CHECK bt_status_t bt_wire_regions_copy(const bt_wire_region_t *regions,
                                               uint32_t n,
                                               bt_wire_region_t **copy_p);

/**
 * Appends the encoding of @a msg; errors stick in @a out: besides its own ones
 * BT_ERR_INVALID_PARAM for a value that bt_wire_decode() would refuse. Control
 * characters in bt_msg_failed_t.text become spaces; a text or name without a
 * zero byte in it is refused.
 */
void bt_wire_encode(const bt_msg_t *msg, bt_strbuf_t *out);

typedef struct bt_wire_decoder bt_wire_decoder_t;
BT_MUST_CHECK bt_status_t bt_wire_decoder_create(bt_wire_decoder_t **dec_p);
void bt_wire_decoder_destroy(bt_wire_decoder_t *dec);

/**
 * Decodes one message.
 *
 * @retval BT_OK               msg_p is filled, valid until the next call.
 * @retval BT_ERR_UNSUPPORTED  A message of a type that this build does not
 * know, from a newer peer: skip it, see bt_wire_skipped().
 * @retval BT_ERR_BAD_MESSAGE  Not msgpack, a wrong field type, a count or value
 *                             out of bounds, or trailing bytes. Drop the link.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_wire_decode(bt_wire_decoder_t *dec,
                                         const void *data, size_t bytes,
                                         bt_msg_t *msg_p);

/** Skipped messages of one unknown type. */
typedef struct bt_wire_skip {
    uint32_t type;
    uint64_t n; /**< messages of this type so far */
    bool say; /**< worth a log line: the first, the tenth, the hundredth … */
} bt_wire_skip_t;

/** Returns what bt_wire_decode() has just skipped with BT_ERR_UNSUPPORTED.
 *  Beyond a number of types all others are counted as one. */
bt_wire_skip_t bt_wire_skipped(const bt_wire_decoder_t *dec);

/** Encoded size in bytes of a score with n_top alternatives. */
#define BT_SCORE_BYTES(n_top) (8u + 12u * (uint32_t)(n_top))
/**
 * Encodes a score.
 * @param [out] bytes  BT_SCORE_BYTES(score->n_top)
 */
void bt_score_put(const bt_score_t *score, uint8_t *bytes);
/**
 * Decodes a score.
 * @param [in] n_top  at most BT_MAX_TOP_LOGPROBS
 */
void bt_score_get(const uint8_t *bytes, uint32_t n_top, bt_score_t *score_p);

/**
 * Checks the ranges of sampling parameters (no NaN, no negative temperature …).
 * @retval BT_ERR_INVALID_PARAM  *why_p names the field (static text).
 */
BT_MUST_CHECK bt_status_t bt_sampling_check(const bt_sampling_t *sampling,
                                            const char **why_p);

#endif
