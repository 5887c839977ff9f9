/* SPDX-License-Identifier: Apache-2.0 */
/** @file request.h
 *
 * One request of a client, from its head to its line in the log, whatever the
 * protocol. A door (HTTP, gRPC) embeds a bt_request_t in its own type, so that
 * each request is one object:
 *
 *     RECEIVE ─▶ AUTHENTICATE ─▶ PARSE ─▶ TOKENIZE ─▶ QUEUE ─▶ RUN ─┐
 *        │             │           │          │         │           ▼
 *        └─────────────┴───────────┴──────────┴─────────┴───────▶ RESPOND
 *               (an error, or an answer that needs no model)        │
 *                                                                   ▼
 *                             (any phase: the client left) ───▶    LOG ─▶ freed
 *
 * A request has *rows*, each with the choices of its prompts. A chat request
 * has one row; a batch of tensors has a row for each prompt, and its phase is
 * that of the most advanced row. Requests that need no model have no rows.
 *
 *     request ─┬─▶ arena: texts of the client, rows, choices
 *              ├─▶ rows ─┬─▶ input:   parsed body, tokenized prompts
 *              │         │            (freed once the row runs)
 *              │         └─▶ choices: one generation of the core each
 *              └─▶ tensors (router/triton/infer_request.h)
 *
 * A door and a dialect answer a request by a table of functions
 * (bt_request_ops_t):
 *
 *     a whole answer     ────────────────────▶ finish(choices)
 *     a stream  ── begin ── piece ── piece ──▶ finish(no choices)
 *                (or an error before begin: a refusal)
 *     at any time        ────────────────────▶ error
 *
 * A request ends in one way: it is closed, which cancels what still runs, then
 * exactly one of the last finish() and error() is called, unless the client
 * left before (bt_request_gone()).
 *
 * References are held by the door, until it has logged the request; by each job
 * at the pool; and by functions that use the request after calling the door.
 *
 * Threads: everything on the event loop's thread, except the pool's jobs, which
 * access their input, or an answer that does not change any more.
 */
#ifndef BT_ROUTER_REQUEST_REQUEST_H
#define BT_ROUTER_REQUEST_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/alloc.h"
#include "common/config/config.h"
#include "common/wire/wire.h"
#include "router/api/api.h"
#include "router/api/api_stored.h"
#include "router/frontend/frontend.h"
#include "router/frontend/work.h"

/** Bodies up to this size are handled on the event loop: that takes some 100
 *  us, less than waking a thread. */
#define BT_REQUEST_INLINE_BYTES 2048u

typedef struct bt_request bt_request_t;
typedef struct bt_row bt_row_t;
typedef struct bt_input bt_input_t;     /**< request_priv.h */
typedef struct bt_choice bt_choice_t;   /**< request_priv.h */
typedef struct bt_tensors bt_tensors_t; /**< router/triton */

typedef enum bt_request_phase {
    BT_REQUEST_RECEIVE,
    BT_REQUEST_AUTHENTICATE,
    BT_REQUEST_PARSE,
    BT_REQUEST_TOKENIZE,
    BT_REQUEST_QUEUE,
    BT_REQUEST_RUN,
    BT_REQUEST_RESPOND,
    BT_REQUEST_LOG,
} bt_request_phase_t;

typedef struct bt_request_ops {
    /** Checks a request before its body is parsed.
     *  @retval others  request->error is filled */
    bt_status_t (*admit)(bt_request_t *request);
    /** Parses request->body; on the pool if it is long.
     *  @retval others  request->error is filled */
    bt_status_t (*parse)(bt_request_t *request);
    /** Continues on the event loop once the body is parsed: finds the model and
     *  begins the rows. */
    void (*parsed)(bt_request_t *request);
    /** Called first for a stream: the request is admitted. Workers have it, or
     *  it has waited so long for busy ones that the client should get a sign of
     *  life. An answer or a failure follows, not a refusal. May call
     *  bt_request_gone(). NULL: nothing to send. */
    void (*begin)(bt_row_t *row);
    /** Called for a stream's new final text of one choice; with choice->finish
     *  at its end (the text may be empty then). May call bt_request_gone().
     *  @param first  first piece of this choice
     *  @param usage  of the whole row so far */
    void (*piece)(bt_row_t *row, const bt_api_choice_t *choice, bool first,
                  const bt_api_usage_t *usage);
    /** Called when all choices of a row ended successfully. The request owns
     *  the row's answer, the choices and everything that both point to, which
     *  are immutable from here on.
     *  @param choices  n whole choices; a stream: none, they were sent as
     *    pieces
     *  @param usage    valid in this callback only */
    void (*finish)(bt_row_t *row, const bt_api_choice_t *choices, size_t n,
                   const bt_api_usage_t *usage);
    /** Called when the request, which is closed, was refused or failed; a
     *  stream may have sent pieces. */
    void (*error)(bt_request_t *request, const bt_api_error_t *error);
    /** Frees what a dialect has added. NULL: nothing. */
    void (*destroy)(bt_request_t *request);
} bt_request_ops_t;

/** One job of the pool for a request, to which it holds a reference. Embedded
 *  in the object that the job works on. */
typedef struct bt_request_job {
    bt_work_t work;
    bt_request_t *request;
    bt_account_t *account; /**< borrowed; NULL: the request's */
    bool posted;           /**< next() was not called yet */
    void (*next)(bt_pool_job_t *job);
} bt_request_job_t;

#define BT_REQUEST_JOB_OF(pool_job, type, member) \
    BT_CONTAINER_OF(pool_job, type, member.work.job)

/** Properties of a request for log and metrics. They stay valid until the
 *  request is freed. */
typedef struct bt_request_facts {
    char model[BT_CONFIG_MODEL_NAME_BYTES]; /**< "": no model was found */
    uint32_t n_prompt, n_output;            /**< total tokens of all choices */
    uint64_t first_token_us; /**< time from the row's start; 0 = none yet */
    bt_finish_t finish;      /**< finish reason of the last choice */
    /** bt_api_request_t.ignored, where clients are informed of ignored fields.
     */
    char ignored[BT_API_IGNORED_BYTES];
    /** Workers of the last choice; "" = not placed, or both phases at one
     *  worker. */
    char prefill[BT_WIRE_MAX_NAME], decode[BT_WIRE_MAX_NAME];
    /** Identifiers of the answer; "" and zeros until known. With several rows,
     *  those of the last one. */
    char answer_id[64];
    uint8_t trace_id[16];
} bt_request_facts_t;

/** Row of a request: the choices of its prompts, answered together. */
struct bt_row {
    bt_request_t *request;
    uint32_t index;
    bool is_open;      /**< neither answered nor closed */
    bt_input_t *input; /**< owned until the row runs or is refused */
    bt_core_adapter_t *kept_adapter; /**< reference of the core: the adapter of
                                          its lora_task_id; or NULL */
    bt_adapter_metrics_t *adapter_metrics; /**< that adapter's; or NULL */
    bt_api_answer_t answer;
    char id[64];
    bt_strbuf_t opening; /**< opening of a stream's events */
    bool stream;
    bool want_ids;    /**< the answer lists token ids */
    bool is_echo;     /**< max_tokens 0: generated text is not returned */
    bool accumulates; /**< each piece repeats all text so far */
    bool hides_logprobs;
    bool skips_front; /**< choices show no log-probs of the prompt */
    /** Log-probs of the prompt are shown apart, with so many alternatives; the
     *  number of alternatives that are requested for them alone. */
    bool has_prompt_logprobs;
    uint32_t n_prompt_top, n_hidden_top;
    const char *grammar_field; /**< field whose grammar answers follow, if they
                                    follow one; static */
    uint32_t perf_wants;       /**< BT_WANT_* of perf_metrics.h */
    bt_gen_perf_t perf;        /**< numbers of the choice that ended last */
    bool is_placed;            /**< one of the choices was sent to workers */
    bt_list_t held;    /**< link in front->held, until the batch is complete */
    bt_list_t unbegun; /**< stream: link in front->waiting until placed, then in
                          front->placed until begin() */
    uint64_t ready_us; /**< time at which the row could begin */
    uint64_t piece_us; /**< time of the last piece, or of the start */
    uint32_t n_pieces; /**< stream pieces sent so far */
    uint64_t first_token_us; /**< time of the choice that ended first */
    uint64_t n_prompt_tokens;
    uint32_t n_choices, n_open;
    uint32_t n_of_prompt,
        n_returned;         /**< choices per prompt: computed, returned */
    bool has_beams;         /**< the choices of a prompt are the answers of one
                                 generation, its first one's */
    const char *tool_names; /**< see bt_tools_spec_t; or NULL */
    bt_choice_t *choices;
    bt_strbuf_t text;      /**< tokenize, detokenize: the answer … */
    bt_token_vec_t tokens; /**< … and its ids, owned */
    /** Tensors: a piece was sent, with the log-probs of the sent tokens; ids
     *  before the output's; and the choices of the whole answer. */
    bool has_sent;
    double cum_logprob;
    uint32_t *prompt;
    size_t n_prompt;
    const bt_api_choice_t *choice;
    size_t n_answers; /**< choices from there: one, or its beams */
};

struct bt_request {
    const bt_request_ops_t *ops;
    bt_frontend_t *front;
    uint32_t n_refs;
    bt_request_phase_t phase;
    uint64_t start_us;
    bt_arena_t arena;
    bt_request_job_t job; /**< job of the whole request, one at a time:
                             unpacking, tensors, writing the answer */

    bt_gen_weights_t weights; /**< weights of its tokens; "": none yet */

    /* Set by the door before bt_request_begin(). */
    bt_api_dialect_t dialect;
    const char *model;   /**< from the path, or NULL: the body names it; printed
                            in the answer */
    const char *version; /**< from the path, or NULL */
    /** generate: true for generate_stream. Only the path decides: some clients
     *  send "stream": true to generate and expect one object. OpenAI: ignored,
     *  the body decides. */
    bool stream;
    bool counts_only;        /**< the prompt's tokens are counted, no more */
    const char *traceparent; /**< W3C Trace Context, or NULL */
    const char *request_id;  /**< X-Request-Id, owned by the door; or NULL */
    bt_tenant_t *tenant;     /**< a reference; NULL: not determined */
    bt_work_client_t client; /**< client within the tenant */
    bool is_background;      /**< runs at the lowest priority level */

    bt_account_t *account; /**< a reference; NULL: too small to be counted */
    bt_served_t *served;   /**< NULL: not found yet */
    bt_hash128_t adapter;  /**< digest of its LoRA adapter; {0, 0}: none */
    bt_core_adapter_t *kept_adapter; /**< reference of served->core, or NULL */
    bt_adapter_metrics_t *adapter_metrics; /**< NULL: not counted */
    bt_name_t name;                        /**< model name used by the client */
    uint32_t context_tokens;

    /* Steps of the whole request (bt_request_step()). */
    bt_strbuf_t body;
    bool is_inline; /**< short: runs on the event loop */
    bt_pool_queue_t queue;
    size_t work_bytes; /**< bytes to process, for the pool's order */
    uint32_t n_slots;  /**< queue slots held until it is parsed */
    uint64_t step_us, parse_us;
    bt_status_t (*run)(bt_request_t *request);
    void (*then)(bt_request_t *request);
    bt_status_t status;   /**< result of the last step */
    bt_api_error_t error; /**< error of that step, or of the request */

    /** Responses: what this one continues; owned; NULL: nothing, or it was
     *  read. And its input items, if it is stored; owned; NULL: it is not. */
    bt_api_history_t *history;
    char *kept_items;
    bool asks_to_store; /**< the client did; else it is the server's default */

    bt_row_t *rows;
    size_t n_rows;
    bt_tensors_t *tensors; /**< owned; NULL: none */
    bt_list_t stoppable;   /**< in front->stoppable, or unlinked */
    /** The request is counted once: when all of its sequences have succeeded or
     *  the first has failed. */
    uint32_t n_sequences, n_ok;
    bool failed;
    bool is_exhausted;  /**< `error` is that of a generation whose end says so
                             (bt_gen_end_t.is_exhausted) */
    bt_list_t paced;    /**< link in front->paced, until refuse_us */
    uint64_t refuse_us; /**< when `error` is due */
    bt_request_facts_t facts;
};

/* ---- request.c: the life of a request ---- */

/** Creates a request in the phase RECEIVE, with the door's reference.
 *  @param bytes  size of the door's type, which begins with a bt_request_t; the
 *                rest is zeroed
 *  @return NULL: no memory */
bt_request_t *bt_request_create(bt_frontend_t *front,
                                const bt_request_ops_t *ops, size_t bytes);
bt_request_t *bt_request_ref(bt_request_t *request); /**< @return @a request */
/** Drops a reference; the last one frees the request. */
void bt_request_unref(bt_request_t *request);
/** Moves a request forward, or does nothing if it is that far. */
void bt_request_move(bt_request_t *request, bt_request_phase_t phase);
/** True until the request is answered, has failed, or its client has left. */
static inline bool bt_request_is_open(const bt_request_t *request)
{
    return request->phase < BT_REQUEST_RESPOND;
}
/** Closes a request for its last answer: cancels what still runs. */
void bt_request_close(bt_request_t *request);
/** Closes a request because its client left. The door logs it then. */
void bt_request_gone(bt_request_t *request);
/** Closes a request, and calls error() with request->error, unless it is
 * closed.
 */
void bt_request_fail(bt_request_t *request);
/** Fails with 503: no memory for the request, or for its answer. */
void bt_request_fail_for_memory(bt_request_t *request);
/** Fails a request that did not run with request->error, and counts the
 * refusal. A 429 may be delayed by a quarter of a second for a tenant with many
 * refusals; the request holds no slot in the queue meanwhile. */
void bt_request_refuse(bt_request_t *request);
/** Refuses with 503: no memory. */
void bt_request_refuse_for_memory(bt_request_t *request);
/** Turns a tenant's denial into a 429 error, worded as OpenAI's servers do. */
void bt_request_deny(const bt_tenant_denial_t *denial, bt_api_error_t *error_p);
/** Runs a job at the pool, or at once. next() is called on the event loop, with
 *  a reference to the request, whether or not the job ran; it may post again.
 */
void bt_request_post(bt_request_job_t *job, bool at_once,
                     void (*run)(bt_pool_job_t *),
                     void (*next)(bt_pool_job_t *), bt_pool_queue_t queue,
                     size_t bytes);
/** Opens the account for the memory of the pool's work, unless it is open.
 *  @retval BT_ERR_BUSY  refused; error_p says why */
BT_MUST_CHECK bt_status_t bt_request_open_account(bt_request_t *request,
                                                  size_t bytes,
                                                  bt_api_error_t *error_p);
/** Runs a step of the whole request, at the pool unless it is inline; then
 *  continues with then(), unless the step failed, which refuses the request.
 *  @param run  returns the status, and fills request->error */
void bt_request_step(bt_request_t *request,
                     bt_status_t (*run)(bt_request_t *request),
                     void (*then)(bt_request_t *request));
/** Changes the number of queue slots that *n_slots_p holds. */
void bt_request_hold_slots(bt_request_t *request, uint32_t *n_slots_p,
                           uint32_t n);
/** Finds the model of this name, else the default one, and sets `served`.
 *  @param [in] version  NULL or "": any
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_BUSY  request->error is filled */
BT_MUST_CHECK bt_status_t bt_request_find_model(bt_request_t *request,
                                                const char *name,
                                                const char *version);
/** Writes a request that is no exchange of its own into the access log;
 *  parameters as for bt_request_log(). */
void bt_request_log_only(const bt_frontend_t *front, bt_access_t *access,
                         const bt_request_facts_t *facts, uint64_t start_us,
                         int http_status);
/** Returns the space of stores that the request's tenant has. */
const char *bt_request_space(const bt_request_t *request);
/** Writes a request into the access log and the metrics.
 *  @param [in] access  route, path, method, client, id, tenant; the rest is
 *                      filled in
 *  @param [in] facts   NULL: nothing was generated */
void bt_request_log(const bt_frontend_t *front, bt_access_t *access,
                    const bt_request_facts_t *facts, uint64_t start_us,
                    int http_status);
/** Status in the log for a client that left, as in nginx. */
#define BT_REQUEST_CLIENT_LEFT 499

/* ---- request_parse.c, request_run.c, request_output.c ---- */

/** Begins a request with its body, which is taken over (and left empty): it is
 *  parsed, tokenized and run, now or later, on the pool if that takes long. The
 *  request may be freed afterwards. */
void bt_request_begin(bt_request_t *request, bt_strbuf_t *body);
/** Functions of bt_request_ops_t for dialects of text, whose body is JSON. */
bt_status_t bt_text_admit(bt_request_t *request);
bt_status_t bt_text_parse(bt_request_t *request);
void bt_text_parsed(bt_request_t *request);
/** Creates the rows of a request. @return false: no memory */
bool bt_request_make_rows(bt_request_t *request, size_t n);
/** Begins a row of a parsed request, which is taken over (and left zeroed). */
void bt_row_begin(bt_row_t *row, bt_api_request_t *api);
/** Ends a row with the answer generated so far, as a success; reports it from
 *  inside.
 *  @return false: the row is not running yet; nothing was done */
bool bt_row_stop(bt_row_t *row);
/** Cancels a row, without a word to the door. */
void bt_row_close(bt_row_t *row);

/** Begins all rows that were held for batching, at the end of the queue delay.
 */
void bt_request_begin_held(bt_frontend_t *front);
/** Functions that the frontend calls: its cores' events, and the end of a
 *  callback of the event loop. */
extern const bt_frontend_ops_t bt_request_frontend_ops;

#endif
