/* SPDX-License-Identifier: Apache-2.0 */
/** @file call_priv.h  Shared by call*.c only. */
#ifndef BT_ROUTER_FRONTEND_CALL_PRIV_H
#define BT_ROUTER_FRONTEND_CALL_PRIV_H

#include "router/frontend/call.h"
#include "router/frontend/intake.h"
#include "router/frontend/scores.h"
#include "router/text/reason.h"
#include "router/text/tools.h"

#define BT_CALL_ID_BYTES 64

typedef struct bt_choice {
    bt_call_t *call;
    bt_gen_t *gen; /* NULL: not begun, or ended */
    uint32_t index;
    bool first; /* nothing was streamed of it yet */
    bt_finish_t finish;
    uint32_t n_prompt, n_output, n_cached, n_kept;
    uint32_t max_new, n_used; /* tokens that it may take, and took */
    bt_strbuf_t text;         /* not streamed: the answer so far */
    bt_reason_t reason;
    bt_tools_t tools;      /* finds the calls in what it says */
    uint32_t n_calls_told; /* streamed: of them */
    size_t args_told;      /* ... bytes of the last one's arguments */
    bt_strbuf_t thought;   /* what it thought; streamed: and was not told yet */
    bt_strbuf_t thoughts;  /* of a streamed response: all of that */
    uint32_t n_thought;    /* tokens until it ended thinking */
    char *echo; /* a stream's: what its first piece begins with; owned */
    size_t echo_bytes;
    uint32_t *ids;  /* owned: n_output token ids, when asked for */
    bool by_end_id; /* the last of them is an end id */
    /* Streamed: those that were told, and all there are while one is told. */
    uint32_t n_told;
    const uint32_t *told_from;
    bt_gen_rows_t *rows;  /* a reference, once it has ended; NULL: none */
    bt_score_walk_t walk; /* along what the core has told beside text */
    uint32_t n_scored;    /* tokens whose log-probs were streamed */
} bt_choice_t;

struct bt_call {
    bt_frontend_t *front;
    bt_intake_t *intake;   /* owned until the call runs or is refused */
    bt_served_t *served;   /* of a call that runs */
    bt_tenant_t *tenant;   /* a reference; the same */
    bt_account_t *account; /* a reference, or NULL */
    bt_name_t name;        /* by which it was called */
    uint32_t n_pieces;     /* of a stream, told so far */
    uint64_t piece_us;     /* when the last was, or it began */
    bt_reply_t *reply;     /* NULL: it had its last word, or the client left */
    bt_api_answer_t answer;
    char id[BT_CALL_ID_BYTES];
    char *given_id;      /* of a generate call; owned or NULL */
    char *model;         /* as printed; owned */
    bt_strbuf_t opening; /* of the events of a stream */
    bool stream;
    bool want_ids;    /* the answer lists token ids */
    bool is_echo;     /* max_tokens 0: what is drawn is not told */
    bool pinned;      /* a function of this file uses it: do not free */
    bool accumulates; /* each piece has all text so far */
    bt_list_t held;   /* in front->held, until others have come */
    /* A stream: in front->waiting until it is placed, then in front->placed
     * until it is told to begin. */
    bt_list_t unbegun;
    bool is_placed;  /* one of its choices is with workers, or was */
    bt_list_t paced; /* in front->paced, until tell_us */
    uint64_t tell_us;
    bt_api_error_t *refusal; /* what it is told then; owned */
    uint64_t ready_us;       /* when it could begin */
    uint64_t n_prompt_tokens;
    uint32_t n_choices, n_open;
    uint32_t n_of_prompt, n_told; /* choices of a prompt, and its best */
    bool hides_logprobs;
    char *tool_names;              /* owned or NULL; see bt_tools_spec_t */
    char *instructions, *metadata; /* of a response; owned or NULL */
    bt_choice_t *choices;          /* owned */
    bt_api_choice_t *whole; /* owned: the choices of an answer that is whole */
    bt_strbuf_t text;       /* tokenize, detokenize: the answer ... */
    bt_token_vec_t tokens;  /* ... and its ids, owned */
    uint32_t n_refs;        /* of doors that still write the answer */
    bt_call_tally_t own_tally;
    bt_call_tally_t *tally; /* of the request: own_tally, or several calls' */
};

/** What the writers need to know of its answers. */
void bt_call_fill_answer(bt_call_t *call, const bt_api_request_t *request);
/** What the answers are made of. @return false when memory is short. */
bool bt_call_make_choices(bt_call_t *call, const bt_intake_t *in);
/** All of its generations, or as many as could be; then it fails.
 *  @retval others  of bt_core_submit_group() */
BT_MUST_CHECK bt_status_t bt_call_submit_all(bt_call_t *call,
                                             const bt_intake_t *in);

/** Its choices are with the core: a stream begins now if one is placed, else
 *  later. The client may be gone afterwards: call->reply tells. */
void bt_call_begin_stream(bt_call_t *call);
/** One that is in front->waiting or front->placed. The client may be gone
 *  afterwards, the call only where it is not pinned. */
void bt_call_begin_now(bt_call_t *call);

/** What its answers would have been made of. */
void bt_call_free_parts(bt_call_t *call);
/** Frees the call once nothing leads to it any more. */
void bt_call_release(bt_call_t *call);
/** For the last word, or none. */
bt_reply_t *bt_call_take_reply(bt_call_t *call);
/** Hold what it is told back, if its tenant's pace says so: nothing of it is
 *  kept but that. @return false: it is to be told now */
bool bt_call_hold_refusal(bt_call_t *call, bt_tenant_t *tenant,
                          const bt_api_error_t *error);

#endif
