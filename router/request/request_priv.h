/* SPDX-License-Identifier: Apache-2.0 */
/** @file request_priv.h
 *
 * Shared by request*.c only.
 */
#ifndef BT_ROUTER_REQUEST_REQUEST_PRIV_H
#define BT_ROUTER_REQUEST_REQUEST_PRIV_H

#include "router/api/scores.h"
#include "router/core/core.h"
#include "router/frontend/prepare.h"
#include "router/request/request.h"
#include "router/text/harmony_parser.h"
#include "router/text/reasoning_parser.h"
#include "router/text/tools.h"

struct bt_choice {
    bt_row_t *row;
    bt_gen_t *gen; /* NULL: not begun, or ended */
    uint32_t index;
    bool first; /* nothing of the choice was streamed yet */
    bt_finish_t finish;
    uint32_t n_prompt, n_output, n_cached, n_kept;
    uint32_t max_new, n_used; /* token limit, and tokens used */
    bt_strbuf_t text;         /* not streamed: the answer so far */
    bt_reason_t reason;
    bt_harmony_t harmony; /* in place of `reason`, and of the calls' parser */
    bool is_harmony;
    bt_tools_t tools;      /* finds tool calls in the text */
    uint32_t n_calls_sent; /* streamed: calls that were sent */
    size_t args_sent;      /* ... bytes of the last sent call's arguments */
    bt_strbuf_t thought;   /* reasoning; streamed: the part not sent yet */
    bt_strbuf_t thoughts;  /* streamed response: all reasoning */
    uint32_t n_thought;    /* tokens up to the end of reasoning */
    uint32_t n_sorted;     /* tokens whose text was sorted */
    /* Tokens of the client's prediction, and those of them in the answer. */
    uint32_t n_predicted, n_accepted;
    const char *echo; /* stream: beginning of the first piece (prompt) */
    size_t echo_bytes;
    uint32_t *ids;         /* owned: n_output token ids, when requested */
    bool by_end_id;        /* last token is an end id */
    const char *stop_word; /* met by its text; NULL: none */
    /* Streamed: number of ids sent, and all ids while a piece is sent. */
    uint32_t n_ids_sent;
    const uint32_t *sent_ids;
    bt_gen_rows_t *rows;  /* a reference, once it has ended; NULL: none */
    bt_score_walk_t walk; /* position in the received log-probs */
    uint32_t n_scored;    /* tokens whose log-probs were streamed */
};

struct bt_input {
    bt_request_job_t job;
    bt_row_t *row; /* NULL once the row runs or is closed */
    bool is_inline;
    bt_pool_queue_t queue;
    size_t text_bytes; /* bytes to tokenize */
    uint32_t n_slots;  /* queue slots held */
    uint32_t priority; /* scheduler's level (priority.h) */
    uint64_t start_us, step_us;
    uint64_t tokenize_us; /* including the wait for the pool */
    bt_hash128_t adapter; /* that of lora_task_id; {0, 0}: the request's */
    bt_status_t status;   /* result of the last step */
    bt_api_error_t error; /* valid unless the status is BT_OK */
    bt_api_request_t api;
    bt_prepared_t prepared;
    bt_grammar_made_t grammar; /* time and result of its grammar */
};

/** Returns the digest of a row's adapter; {0, 0}: it has none. */
static inline bt_hash128_t bt_input_adapter(const bt_input_t *in)
{
    return ((in->adapter.lo | in->adapter.hi) != 0) ? in->adapter
                                                    : in->job.request->adapter;
}

/** Returns the series of a row's adapter; NULL: not counted. */
static inline bt_adapter_metrics_t *bt_row_adapter_metrics(const bt_row_t *row)
{
    return (row->adapter_metrics != NULL) ? row->adapter_metrics
                                          : row->request->adapter_metrics;
}

/* ---- request.c ---- */

/** Returns the result of a step at the pool: an error of the account, or that
 *  the server is stopping, comes first. */
bt_status_t bt_request_step_status(const bt_request_job_t *job,
                                   bt_status_t status, bt_api_error_t *error);

/** Refuses a request that is not parsed yet with request->error. */
void bt_request_refuse_unparsed(bt_request_t *request);

/* ---- request_history.c ---- */

/** Parses a body where responses are stored, without what it continues.
 *  @retval others  error_p is filled */
BT_MUST_CHECK bt_status_t bt_history_parse(bt_request_t *request,
                                           bt_api_request_t *api_p,
                                           bt_api_error_t *error_p);
/** Reads what a parsed request continues, and parses it again with that; then
 *  continues with bt_text_parsed(), or refuses it.
 *  @return false: it continues nothing, or that was read */
bool bt_history_begin(bt_request_t *request);
/** Decides whether the response is stored.
 *  @retval others  request->error is filled */
BT_MUST_CHECK bt_status_t bt_history_settle(bt_request_t *request,
                                            bt_api_request_t *api);
/** Frees what the request has of stored responses. */
void bt_history_drop(bt_request_t *request);

/* ---- request_parse.c ---- */

/** Sets what the door, not the body, decides.
 *  @retval others  request->error is filled */
BT_MUST_CHECK bt_status_t bt_text_settle(bt_request_t *request,
                                         bt_api_request_t *api);

/** Detaches an input from its row and frees it. */
void bt_input_free(bt_input_t *input);
/** Detaches an input from a row that is closed: frees it once the pool is done
 *  with it. */
void bt_input_leave(bt_input_t *input);
/** Checks whether the row, whose token counts are known now, is within its
 *  tenant's limits.
 *  @retval BT_ERR_BUSY  input->error says why not */
BT_MUST_CHECK bt_status_t bt_input_check_tokens(bt_input_t *input);
/** Returns the tokens that the n answers of prompt @a k may take; the prompt
 *  counts once. */
uint64_t bt_input_tokens(const bt_input_t *input, size_t k);

/* ---- request_run.c ---- */

/** Runs a row whose input is complete, now or at the end of the queue delay. */
void bt_row_ready(bt_row_t *row);
/** Begins a stream in front->waiting or front->placed. Afterwards the client
 *  may be gone: check row->is_open. */
void bt_row_begin_stream(bt_row_t *row);
/** Frees the parts of a row that its answers are made from. */
void bt_row_free_parts(bt_row_t *row);
/** Sends refusals whose delay is over (sched_admit.h). */
void bt_request_send_refused(bt_frontend_t *front, uint64_t now_us);

/* ---- request_output.c ---- */

/** Adds the tokens of a row that ends to the request's facts. */
void bt_row_add_facts(bt_row_t *row);
/** Cancels generations that still run. */
void bt_row_cancel(bt_row_t *row);
/** Callbacks of bt_core_ops_t; @a choice is the generation's user pointer. */
void bt_row_on_text(void *ctx, void *choice, const char *text, size_t bytes,
                    uint32_t n_output);
void bt_row_on_end(void *ctx, void *choice, const bt_gen_end_t *end);

#endif
