/* SPDX-License-Identifier: Apache-2.0 */
/** @file wire.h
 *
 * The control messages between router and workers, as msgpack. The only
 * includer of msgpack.h is this module.
 *
 * Two sides of a link speak a version of this protocol that both know: the
 * smaller of the newest that each can, which HELLO tells. docs/WIRE.md has the
 * rules of change.
 *
 * A message is a msgpack array [type, field, field, …], the fields in the order
 * of the structures below. New fields come at the end: a decoder passes over
 * those that it does not know, and those that an older peer did not send have
 * their defaults (zero and empty where nothing else is said). Fields that were
 * there from the first are required; every count and length is bounded before
 * memory is taken. A whole message of an unknown type is passed over.
 *
 *     number         uint, int or float 32
 *     bt_hash128_t   two numbers: lo, hi
 *     bt_req_key_t   two numbers: id, attempt
 *     text           str without control characters
 *     blob           bin
 *     token ids      bin, 4 bytes each, little endian
 *     bt_sampling_t  array of its fields; a bad word is a bin of token ids;
 *                    logit biases are not among them but behind `space`, a bin,
 *                    8 bytes each: token id and float 32, little endian; nor
 *                    is min_p, which is behind `wants`; end ids beyond the
 *                    first BT_WIRE_FIRST_END_IDS are behind min_p
 *     bt_token_t     array: id, attempt, index, token id, finish
 *     bt_token_score_t  array: token, bin of a score: its log-prob, then of
 * each alternative id and log-prob; float 64, little endian ranks, windows
 * array of arrays of their fields (bt_wire_rank_t, bt_wire_window_t), behind
 * the other fields. The blob of a list of one travels in the field that was
 * there before there were lists, and its place in the list is empty; with
 *                    several that field is empty. So who knows no lists
 *                    understands those of one, and takes no others for one.
 *
 * Life of a request (R router, P prefill worker, D decode worker):
 *
 *     R → P  REQUEST(kind prefill)      R → D  REQUEST(kind generate)
 *     D → R  GRANT        R → P  GRANT (the same bytes)
 *     P → R  PREFILLED (ledger)         P ══ KV ══▶ D
 *     P → R  TOKENS (index 0)           D → R  JOINED (ledger), TOKENS …
 *     D → R  TOKENS with finish, or FAILED
 *     R → P, R → D  CANCEL at any time; each answers ENDED when all blocks,
 *     seats and leases of (request, attempt) are back.
 *
 * Every accepted REQUEST ends with exactly one ENDED from that worker.
 * Threads: pure functions.
 */
#ifndef BT_COMMON_WIRE_WIRE_H
#define BT_COMMON_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "common/sched/sched_cost.h"
#include "common/wire/request.h"

#define BT_WIRE_PROTOCOL     3 /**< the newest that this build speaks */
#define BT_WIRE_PROTOCOL_MIN 3 /**< and the oldest */

#define BT_WIRE_MAX_TOKENS (1u << 20) /**< of one request */
#define BT_WIRE_MAX_TEXT   512        /**< bytes of an error text */
#define BT_WIRE_MAX_BLOB   (4u << 20) /**< bytes of a grant or export blob */
#define BT_WIRE_MAX_NAME   64
#define BT_WIRE_MAX_MODEL  256 /**< of a model's name, with its zero byte */
#define BT_WIRE_MAX_AT     128 /**< of an address with its interface */
#define BT_WIRE_MAX_WHY    160 /**< of a reason */
#define BT_WIRE_MAX_BATCH  (1u << 14)  /**< tokens in one TOKENS message */
#define BT_WIRE_MAX_BYTES  (12u << 20) /**< of one encoded message */
#define BT_WIRE_MAX_RANKS  64u         /**< tp x pp of one instance */
#define BT_WIRE_MAX_GROUP  4096u       /**< requests of a group */
/** End ids that stand in the sampling itself, as protocol 2 has them. */
#define BT_WIRE_FIRST_END_IDS 8
#define BT_WIRE_MAX_ROWS      (1u << 18) /**< bytes in one ROWS message */
/** Of one grant: at most one for each pair of ranks. */
#define BT_WIRE_MAX_WINDOWS (BT_WIRE_MAX_RANKS * BT_WIRE_MAX_RANKS)

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
    BT_MSG_ROLE = 14,    /**< to those whose STATS say roles */
    BT_MSG_ROWS = 15,    /**< of requests with wants */
    BT_MSG_KV_LINK = 16, /**< to routers that say BT_HELLO_KV_LINKS */
} bt_msg_type_t;

typedef enum bt_role {
    BT_ROLE_ROUTER = 0,
    BT_ROLE_PREFILL = 1,
    BT_ROLE_DECODE = 2,
} bt_role_t;

/** A worker's roles are a set of bits, and these numbers are bits. */
#define BT_ROLES_BOTH ((uint32_t)BT_ROLE_PREFILL | (uint32_t)BT_ROLE_DECODE)

/** Who a request belongs to, on every message about it. `id` is unique for
 *  one router incarnation; links keep routers apart. */
typedef struct bt_req_key {
    uint64_t id;
    uint32_t attempt;
} bt_req_key_t;

/** One rank of an instance: what others need to send into its KV pool. */
typedef struct bt_wire_rank {
    uint64_t block_bytes; /**< of a block of its pool; 0 = not said */
    const uint8_t *kvt;   /**< kvtransfer export blob */
    uint32_t kvt_bytes;   /**< at least 1 */
} bt_wire_rank_t;

/** What a process says of itself when a link comes up (rpc hello payload). */
typedef struct bt_msg_hello {
    uint32_t protocol; /**< the newest it speaks: BT_WIRE_PROTOCOL */
    uint32_t role;     /**< bt_role_t; of a worker of both: DECODE, with
                            BT_HELLO_LOCAL_PREFILL. Its STATS say more */
    uint64_t instance; /**< unique id of this worker process' life */
    char name[BT_WIRE_MAX_NAME];    /**< for people: "decode-0" */
    bt_hash128_t model;             /**< bt_gguf_identity(); router: its own */
    char profile[BT_WIRE_MAX_NAME]; /**< numeric profile */
    uint32_t kv_type;               /**< bt_kv_type_t */
    uint32_t tokens_per_block;
    bt_hash128_t layout;     /**< hash of the KV block layout */
    uint32_t context_tokens; /**< longest sequence this worker takes */
    uint32_t max_batch;      /**< seats */
    uint32_t n_blocks;
    uint32_t flags; /**< BT_HELLO_* */
    /** By rank: tp x pp of them, stage after stage (kv_reshard.h); NULL and 0
     *  for a router. Rank 0 is the one who speaks here. */
    const bt_wire_rank_t *ranks;
    uint32_t n_ranks;
    /* later fields */
    uint32_t protocol_min; /**< the oldest it speaks; default: protocol */
    char model_name[BT_WIRE_MAX_MODEL];  /**< that a worker was told, or "" */
    char version_text[BT_WIRE_MAX_NAME]; /**< of its build, "0.1.0", or "" */
    uint32_t tp, pp; /**< how the model is split over its ranks; default: 1 */
    /** Of n_blocks a sequence of n spans of tokens_per_block takes at most
     *  span_blocks x n + window_blocks x min(n, window_spans); defaults: 1, 0
     *  and 0. */
    uint32_t span_blocks, window_blocks, window_spans;
} bt_msg_hello_t;

#define BT_HELLO_LOCAL_PREFILL 1u /**< a decode worker that also prefills */
/** Hands KV over to, or takes it from, instances of several ranks. */
#define BT_HELLO_RANKS 2u
/** Knows bt_msg_request_t.group. */
#define BT_HELLO_GROUPS 4u
/** ...and that those behind its first one have no tokens. */
#define BT_HELLO_GROUP_PROMPT 8u
/** Knows bt_msg_request_t.wants; without, no such request is sent there. */
#define BT_HELLO_ROWS 16u
/** With BT_HELLO_LOCAL_PREFILL: where that costs less (--local-prefill auto).
 *  A router that does not know it gives it a share of a queue. */
#define BT_HELLO_LOCAL_WEIGHED 32u
/** A prompt that begins like an earlier one computes only the rest there. */
#define BT_HELLO_KEEPS_PROMPTS 64u
/** Who generates there starts and ends in batches (--batching-strategy V1). */
#define BT_HELLO_STATIC_BATCHES 128u
/** A router that reads the duty in STATS. For another a worker that drained is
 *  gone until it links itself anew. */
#define BT_HELLO_DUTY 256u
/** A worker that tells how its KV links are (bt_msg_kv_link_t), and a router
 *  that reads it. Of a worker that does not, every link is thought to be well.
 */
#define BT_HELLO_KV_LINKS 512u

typedef enum bt_request_kind {
    BT_REQUEST_PREFILL = 0,  /**< context phase and token #1, then hand over */
    BT_REQUEST_GENERATE = 1, /**< grant, receive KV, generate from token #2 */
    BT_REQUEST_LOCAL = 2,    /**< both phases here (--local-prefill) */
} bt_request_kind_t;

typedef struct bt_msg_request {
    bt_req_key_t key;
    uint32_t kind; /**< bt_request_kind_t */
    uint64_t peer; /**< instance of the other worker; 0 for LOCAL; for PREFILL
                        the worker's own where max_new is 1: no other gets KV */
    uint32_t n_prompt;      /**< tokens of the client's prompt */
    uint32_t n_tokens;      /**< prompt and tokens already sent (a re-run); 0,
                                 in a group alone: as its leader's */
    const uint32_t *tokens; /**< n_tokens */
    uint32_t max_new;       /**< still to generate, at least 1 */
    uint32_t deadline_ms;   /**< from arrival; 0 = none */
    uint32_t priority;      /**< levels; higher is sooner (sched_queue.h) */
    bt_sampling_t sampling;
    /** Whose blocks these are: only those of one space are used again for one
     *  another (kv_prefix.h). {0, 0}: of all that say nothing. */
    bt_hash128_t space;
    /** Requests of one attempt number that differ in their sampling alone, sent
     *  to the same workers one behind another: key.id of the first of them,
     *  their leader. The worker computes, sends and holds their prompt once,
     *  under the leader's key. 0 = a request by itself. */
    uint64_t group;
    uint32_t group_size; /**< of them, the leader included */
    /** Those of the prompt are for a request by itself. */
    bt_wants_t wants;
    /** From arrival to the target of the first token, which is what an order by
     *  deadlines goes by; 0 = none, 1 = also where it is over. */
    uint32_t first_ms;
    /** Target of the mean time between its tokens; 0 = none. */
    uint32_t itl_ms;
} bt_msg_request_t;

/** Where one rank of P may write into the pool of one rank of D. */
typedef struct bt_wire_window {
    uint32_t to, from;   /**< ranks of D and of P */
    const uint8_t *blob; /**< kvtransfer window descriptor */
    uint32_t blob_bytes; /**< at least 1 */
} bt_wire_window_t;

/** D's answer: where the KV may go. The router passes windows on unread. */
typedef struct bt_msg_grant {
    bt_req_key_t key;
    uint64_t instance; /**< of the decode worker */
    uint32_t n_cached; /**< leading tokens that D already holds */
    /** One for each pair of ranks that have heads and layers in common. */
    const bt_wire_window_t *windows;
    uint32_t n_windows;
} bt_msg_grant_t;

typedef struct bt_msg_cancel {
    bt_req_key_t key;
    uint32_t finish; /**< why: BT_FINISH_* (STOP: a stop word was met) */
} bt_msg_cancel_t;

/** One token of one request; `index` 0 is token #1. */
typedef struct bt_token {
    bt_req_key_t key;
    uint32_t index;
    uint32_t id;
    uint32_t finish; /**< bt_finish_t */
} bt_token_t;

typedef struct bt_token_score {
    uint32_t token; /**< its place among the tokens of the message */
    bt_score_t score;
} bt_token_score_t;

/** All tokens of one iteration for one router. */
typedef struct bt_msg_tokens {
    uint32_t n;
    const bt_token_t *tokens;
    /* later fields */
    /** Of those whose requests want log-probs; `token` rises. */
    uint32_t n_scores;
    const bt_token_score_t *scores;
} bt_msg_tokens_t;

typedef enum bt_rows_kind {
    BT_ROWS_PROMPT_LOGPROBS = 0, /**< scores of the prompt's tokens */
    BT_ROWS_PROMPT_LOGITS = 1,   /**< rows behind the prompt's tokens */
    BT_ROWS_LOGITS = 2,          /**< rows that the answer's are drawn from */
} bt_rows_kind_t;

/** A part of what a request wants: on its worker's link before the end of it,
 *  in order for each kind and row. Messages of unknown kinds are passed over.
 *  Log-probs of the prompt are there before token #1; logits come as the link
 *  has room, so tokens overtake them. */
typedef struct bt_msg_rows {
    bt_req_key_t key;
    uint32_t kind;   /**< bt_rows_kind_t */
    uint32_t from;   /**< the first token, of the prompt or of the answer */
    uint32_t n_top;  /**< of log-probs: alternatives with each */
    uint32_t offset; /**< of logits: the first id of this piece of the row */
    /** Scores as in bt_token_score_t, one behind another; or floats, 4 bytes
     *  each, little endian. */
    const uint8_t *data;
    uint32_t data_bytes;
} bt_msg_rows_t;

/** Ledger of the context phase; durations in µs. */
typedef struct bt_msg_prefilled {
    bt_req_key_t key;
    uint64_t queue_us;   /**< arrival to the first chunk */
    uint64_t compute_us; /**< sum over its chunks */
    uint32_t n_chunks;
    uint32_t n_cached; /**< tokens not computed (prefix reuse) */
} bt_msg_prefilled_t;

/** KV is proven complete at D, the sequence may join; ledger in µs. */
typedef struct bt_msg_joined {
    bt_req_key_t key;
    uint64_t grant_wait_us; /**< at P: KV ready, no grant yet */
    uint64_t transfer_us;   /**< data under way at P, and checked at D */
    uint64_t transfer_bytes;
    uint32_t n_descriptors; /**< 0, and no bytes, where they are told of the
                                 leader (bt_msg_request_t.group) */
    uint64_t queue_us;      /**< at D: arrival to grant */
    uint64_t handover_us;   /**< at D: last byte's arrival to "may join" */
} bt_msg_joined_t;

typedef struct bt_msg_failed {
    bt_req_key_t key;
    int32_t status;              /**< bt_status_t */
    char text[BT_WIRE_MAX_TEXT]; /**< names the phase and the cause */
} bt_msg_failed_t;

/** Everything of (request, attempt) is returned on this worker. */
typedef struct bt_msg_ended {
    bt_req_key_t key;
    uint64_t decode_us; /**< time in the running batch */
    uint32_t n_iterations;
    uint64_t join_wait_us;     /**< "may join" to its first iteration's start */
    uint64_t transfer_tail_us; /**< at P: KV complete and granted to D's word
                                    that it has all; 0 = no such transfer */
    uint32_t n_pauses;  /**< at D: it made room for others in the batch... */
    uint64_t paused_us; /**< ...and was out of it so long, in all */
} bt_msg_ended_t;

/** State of a worker, sent every heartbeat interval. */
typedef struct bt_msg_stats {
    uint32_t active_requests;    /**< accepted, not ended */
    uint32_t max_requests;       /**< seats */
    uint32_t scheduled_requests; /**< in the last iteration */
    uint32_t context_requests;
    uint32_t generation_requests;
    /** For their turn here: a seat, blocks, the first chunk of their context
     *  phase. An older worker counts all that are not in its engine. */
    uint32_t waiting_requests;
    uint32_t paused_requests;
    uint32_t blocks_max, blocks_free, blocks_used, blocks_reused;
    uint32_t tokens_per_block;
    uint32_t total_context_tokens; /**< context tokens of the last iteration */
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
    uint64_t tokens_generated; /**< drawn here; P draws token #1 of each */
    uint64_t prompt_tokens;    /**< context tokens computed here */
    uint64_t tokens_reused;    /**< prompt tokens found in its prefix index */
    uint64_t process_cpu_ms;   /**< user and system */
    uint64_t resident_bytes;
    uint64_t start_unix_s;  /**< time of day at its start */
    uint32_t blocks_cached; /**< of the free ones, with a prefix that can go */
    uint64_t kv_bytes_staged; /**< copied between slots and a device's pool */
    uint64_t kv_stage_waits;  /**< times that there was no slot */
    uint32_t roles; /**< bits of bt_role_t that it has now; 0 = not said: that
                         of its HELLO, for good */
    uint64_t kv_foreign_pieces; /**< came without secret or proof */
    uint64_t log_lines_dropped; /**< nobody read them */
    bt_sched_rates_t rates;     /**< what its steps take */
    uint64_t lent_pieces;       /**< computed on other workers' cores */
    uint64_t lent_us;           /**< in that time */
    uint64_t lent_again;        /**< pieces done twice */
    /** Of sequences that made room for others (common/sched/sched_preempt.h):
     *  tokens whose K and V were computed once more. */
    uint64_t pauses, resumes, tokens_recomputed;
    /** That it slept between iterations, for who wanted its cores
     *  (common/sched/sched_core_donation.h). */
    uint64_t yielded_us;
    /** Of layers that see a window (common/kv/kv_hold.h): of blocks_used now;
     *  and those that sequences let go of since its start. */
    uint32_t blocks_windowed;
    uint64_t blocks_slid;
    /** It has work, and no operation of a layer has ended for so long; 0: it
     *  gets on, or has none. */
    uint64_t still_ms;
    uint32_t duty; /**< bt_duty_t; of an older build BT_DUTY_AS_IT_IS: it takes
                        no orders about that */
    uint64_t kv_bytes_shared; /**< that its device wrote into another's pool */
    /** Iterations that began while its device was at the one before
     *  (common/sched/sched_overlap.h). */
    uint64_t steps_ahead;
    /** At D, with a seat and blocks: their KV is computed or sent elsewhere. */
    uint32_t waiting_for_kv_requests;
} bt_msg_stats_t;

/** Does a worker take requests? */
typedef enum bt_duty {
    BT_DUTY_AS_IT_IS = 0, /**< not said */
    BT_DUTY_ON = 1,
    BT_DUTY_OFF = 2, /**< drained: it finishes what it has, takes nothing new */
    BT_DUTY_END = 3, /**< the same, and then the process ends */
} bt_duty_t;

/** R → a worker: be of these roles, on duty or off from now on. What it has
 *  ends as it began. Its next STATS, to every router, say so. */
typedef struct bt_msg_role {
    uint32_t roles; /**< bits of bt_role_t; 0 = as they are, with a duty only */
    uint32_t duty;  /**< bt_duty_t; sent to those whose STATS say theirs */
} bt_msg_role_t;

/** R → P: a decode worker that transfers may name. R → D, with `sends`: a
 *  prefill worker that may come with KV. */
typedef struct bt_msg_peer {
    uint64_t instance;
    char name[BT_WIRE_MAX_NAME];
    const bt_wire_rank_t *ranks; /**< as in its HELLO */
    uint32_t n_ranks;
    /* later fields */
    uint32_t tp, pp;     /**< default: 1 */
    bt_hash128_t layout; /**< as in its HELLO; 0 = not said */
    uint32_t sends;      /**< 1: it sends to the reader; default 0: the reader
                              may send to it */
} bt_msg_peer_t;

typedef struct bt_msg_peer_gone {
    uint64_t instance;
} bt_msg_peer_gone_t;

typedef enum bt_kv_link_state {
    BT_KV_LINK_UNPROVEN = 0, /**< not tried yet, or it is being tried */
    BT_KV_LINK_PROVEN = 1,   /**< the decode worker has answered */
    BT_KV_LINK_FAILED = 2,   /**< it could not be proven, or was lost; it is
                                  tried again */
} bt_kv_link_state_t;

/** P → R: how its link to a decode worker that PEER told of is now; with each
 *  change, and to a router that tells of that worker. */
typedef struct bt_msg_kv_link {
    uint64_t instance; /**< the decode worker's */
    uint32_t state;    /**< bt_kv_link_state_t; another one: as UNPROVEN */
    char at[BT_WIRE_MAX_AT];   /**< FAILED: "10.0.0.2:4711 on eth0", or "" */
    char why[BT_WIRE_MAX_WHY]; /**< FAILED: for people; else "" */
} bt_msg_kv_link_t;

/** Any message, decoded. Pointers inside lead into memory owned by the
 *  decoder object and stay valid until its next use. */
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
    } u;
} bt_msg_t;

/** "router", "prefill", "decode" or "both"; of a role or a set of them. */
const char *bt_role_name(uint32_t roles);
/** The set of roles that has this name; a router's is none.
 *  @return false: nobody's name; @a roles_p is as it was */
BT_MUST_CHECK bool bt_role_named(const char *name, uint32_t *roles_p);
/** "on", "off" or "end"; of one not said "on". */
const char *bt_duty_name(uint32_t duty);

/** Versions of the protocol that one side speaks. */
typedef struct bt_wire_range {
    uint32_t oldest, newest;
} bt_wire_range_t;

#define BT_WIRE_RANGE_BYTES 32 /**< of one as text, with its zero byte */

/** This build's. */
bt_wire_range_t bt_wire_range_ours(void);
/** That of the peer who said @a hello. */
bt_wire_range_t bt_wire_range_of(const bt_msg_hello_t *hello);
/** What a link between the two speaks. @return 0: there is no such version */
uint32_t bt_wire_common(bt_wire_range_t mine, bt_wire_range_t theirs);
/** "2", or "2 to 4". */
void bt_wire_range_print(bt_wire_range_t range, char out[BT_WIRE_RANGE_BYTES]);

/** A copy of a list with its blobs, in one piece of memory: bt_free().
 *  @param [in]  n       0: *copy_p becomes NULL.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_wire_ranks_copy(const bt_wire_rank_t *ranks,
                                             uint32_t n,
                                             bt_wire_rank_t **copy_p);
BT_MUST_CHECK bt_status_t bt_wire_windows_copy(const bt_wire_window_t *windows,
                                               uint32_t n,
                                               bt_wire_window_t **copy_p);

/** Append the encoding of @a msg; errors stick in @a out: besides its own ones
 *  BT_ERR_INVALID_PARAM for a value that bt_wire_decode() would refuse. Control
 *  characters in bt_msg_failed_t.text become spaces, a text or name without a
 *  zero byte in it is refused. */
void bt_wire_encode(const bt_msg_t *msg, bt_strbuf_t *out);

typedef struct bt_wire_decoder bt_wire_decoder_t;
BT_MUST_CHECK bt_status_t bt_wire_decoder_create(bt_wire_decoder_t **dec_p);
void bt_wire_decoder_destroy(bt_wire_decoder_t *dec);

/**
 * @retval BT_OK               msg_p is filled, valid until the next call.
 * @retval BT_ERR_UNSUPPORTED  A message of a type that this build does not
 *                             know, from a newer peer: go on without it, see
 *                             bt_wire_skipped().
 * @retval BT_ERR_BAD_MESSAGE  Not msgpack, a wrong field type, a count or value
 *                             out of bounds, bytes left over. Drop the link.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_wire_decode(bt_wire_decoder_t *dec,
                                         const void *data, size_t bytes,
                                         bt_msg_t *msg_p);

typedef struct bt_wire_skip {
    uint32_t type;
    uint64_t n; /**< messages of it so far */
    bool say;   /**< worth a line: the first, the tenth, the hundredth … */
} bt_wire_skip_t;

/** What bt_wire_decode() has just passed over with BT_ERR_UNSUPPORTED. Of very
 *  many types the later ones are counted as one. */
bt_wire_skip_t bt_wire_skipped(const bt_wire_decoder_t *dec);

/** Bytes of a score with so many alternatives, as it travels. */
#define BT_SCORE_BYTES(n_top) (8u + 12u * (uint32_t)(n_top))
/** @param [out] bytes  BT_SCORE_BYTES(score->n_top) */
void bt_score_put(const bt_score_t *score, uint8_t *bytes);
/** @param [in] n_top  at most BT_MAX_TOP_LOGPROBS */
void bt_score_get(const uint8_t *bytes, uint32_t n_top, bt_score_t *score_p);

/** Ranges of the sampling parameters (no NaN, no negative temperature …).
 *  @retval BT_ERR_INVALID_PARAM  *why_p names the field (static text). */
BT_MUST_CHECK bt_status_t bt_sampling_check(const bt_sampling_t *sampling,
                                            const char **why_p);

#endif
