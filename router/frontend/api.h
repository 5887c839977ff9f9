/* SPDX-License-Identifier: Apache-2.0 */
/** @file api.h
 *
 * The clients' dialects, without sockets: from a JSON body to one request
 * description, and from results to JSON. How the JSON travels (one body, server
 * sent events) is the door's.
 *
 *     triton:  POST /v2/models/{ensemble|tensorrt_llm_bls|NAME}
 *                                   [/versions/V]/generate[_stream]
 *     openai:  POST /v1/completions, /v1/chat/completions, /v1/responses
 *     vLLM:    POST /tokenize, /detokenize
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_FRONTEND_API_H
#define BT_ROUTER_FRONTEND_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "common/sched/sched_slo.h"
#include "common/wire/request.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/core/rows.h"
#include "router/frontend/sampling.h"
#include "router/text/tools.h"

#define BT_API_MAX_BIAS_WORDS 64 /**< and so many stop sequences of ids */
#define BT_API_MAX_STOPS      64
#define BT_API_MAX_MESSAGES   1024
#define BT_API_MAX_TOOLS      128
#define BT_API_MAX_PROMPTS    64         /**< choices of one completions call */
#define BT_API_MAX_STOP_BYTES 1024       /**< of one stop word or bad word */
#define BT_API_MAX_NAME_BYTES 256        /**< of model, id and role */
#define BT_API_IGNORED_BYTES  1024       /**< of the names of fields */
#define BT_API_MAX_METADATA   16         /**< entries of a response's, … */
#define BT_API_MAX_META_KEY   64         /**< … characters of a key of it, */
#define BT_API_MAX_META_VALUE 512        /**< … and of a value */
#define BT_API_MAX_VALUES     (1u << 20) /**< JSON values in one body */

typedef enum bt_api_dialect {
    BT_API_GENERATE,
    BT_API_COMPLETIONS,
    BT_API_CHAT,
    BT_API_TOKENIZE,   /**< what a prompt is in tokens */
    BT_API_DETOKENIZE, /**< and back */
    BT_API_RESPONSES,
} bt_api_dialect_t;

/** A client's priority, as it came: whether it is one is asked where it counts
 *  (priority.h). */
typedef enum bt_api_priority_kind {
    BT_API_PRIORITY_NONE,
    BT_API_PRIORITY_INTEGER,
    BT_API_PRIORITY_REAL,  /**< written with a fraction or an exponent */
    BT_API_PRIORITY_OTHER, /**< no number */
} bt_api_priority_kind_t;

typedef struct bt_api_priority {
    bt_api_priority_kind_t kind;
    int64_t integer;
    double real;
} bt_api_priority_t;

/** One prompt: text or token ids. */
typedef struct bt_api_prompt {
    char *text; /**< NULL when ids are given; zero bytes may be in it, and one
                   is behind it */
    size_t text_bytes;
    uint32_t *ids;
    size_t n_ids;
} bt_api_prompt_t;

/** The conversation of a chat, owned by its request. */
typedef struct bt_api_messages {
    /** A list, as a chat template gets it (chat.h): each message with all its
     *  members; NULL: none. */
    char *json;
    size_t n;
    /** Responses: which item of the input each is, UINT16_MAX: none. NULL: each
     *  is the message of its number. */
    uint16_t *places;
    /** What the last one says, where it is the assistant's: its parts, joined,
     *  and the bytes of the last; NULL: it is not, or says nothing. */
    char *final;
    size_t final_bytes, final_part_bytes;
} bt_api_messages_t;

/** What a request says of tools; owned by it. */
typedef struct bt_api_tools {
    char *json; /**< the list, as templates have it; NULL: none may be called */
    char *names; /**< of all, each with its zero */
    size_t names_bytes;
    bool required; /**< the answer is to begin with a call */
    char *forced;  /**< ... of this one; NULL: of any */
    bool only_one; /**< parallel_tool_calls false */
} bt_api_tools_t;

/** Tokens of a text whose logits get a bias. */
typedef struct bt_api_bias_word {
    char *text;
    float bias;
} bt_api_bias_word_t;

/** What errors call the fields that are checked late; static. */
typedef struct bt_api_names {
    const char *prompt, *max_tokens, *bad_words, *biases;
} bt_api_names_t;

/** A parsed body; free with bt_api_request_fini(). Everything is owned. */
typedef struct bt_api_request {
    bt_api_dialect_t dialect;
    char *model;              /**< as the client named it; NULL = absent */
    bt_api_prompt_t *prompts; /**< generate, completions: n_prompts */
    size_t n_prompts;
    bt_api_messages_t messages; /**< chat, tokenize, responses */
    uint32_t n;                 /**< choices per prompt that are computed */
    uint32_t n_told;            /**< the best of them that are told; 0: all */
    bool hides_logprobs; /**< they are for the choice of the best alone */
    bool has_max_tokens; /**< absent: the dialect's default applies */
    uint32_t max_tokens;
    bool stream;
    bool include_usage;
    bool continuous_usage;
    bool ignore_eos;
    bool keeps_stop;      /**< include_stop_str_in_output */
    bool shows_special;   /**< skip_special_tokens false */
    bool no_bos;          /**< add_special_tokens false; of a text */
    bool token_texts;     /**< tokenize: tell the texts of the tokens, too */
    bool keeps_reasoning; /**< chat: what is thought is content */
    /** Chat: add_generation_prompt false; the last message, the assistant's, is
     *  gone on with. */
    bool no_generation_prompt, continues_final;
    bool return_token_ids; /**< each whole choice lists its ids, as does each
                                piece of a stream, one piece a token */
    /** Beside tokens: logprobs, top_logprobs; of generate return_log_probs,
     *  return_context_logits and return_generation_logits. */
    bt_wants_t wants;
    /** Tensors: bytes of logits that a stream takes of this request, as they
     *  are; 0: as many as fit into its client's buffer as text. */
    uint64_t stream_logits;
    /** Tensors: bytes of logits, as they are, that the whole answer has room
     * for of this request; 0: as many as fit into an answer as JSON. */
    uint64_t whole_logits;
    bool echo; /**< completions: the prompt comes before the answer */
    bool exclude_input_in_output;  /**< Triton's: no prompt in the text */
    bool says_exclude_input;       /**< the client gave the one above */
    bool has_seed;                 /**< absent: a random seed per request */
    bt_logit_bias_t *logit_biases; /**< those of sampling */
    bt_sampling_t sampling; /**< without bad words. end_ids holds what the
                                 client gave (end_id, stop_token_ids): the
                                 caller appends the model's */
    uint32_t said;          /**< what of it the client gave: BT_SAYS_* */
    char *stops[BT_API_MAX_STOPS];
    uint32_t n_stops;
    char *bad_words[BT_MAX_BAD_WORDS]; /**< text, to be tokenized */
    uint32_t n_bad_words;
    /** Tensors: banned sequences, and those that end the text, as ids. */
    bt_bad_word_t *bad_ids, *stop_ids;
    uint32_t n_bad_ids, n_stop_ids;
    bt_api_bias_word_t *bias_words;
    uint32_t n_bias_words;
    const bt_api_names_t *names; /**< NULL: those of the dialect */
    int64_t sequence_id;         /**< generate: echoed */
    bool sequence_start, sequence_end;
    char *id; /**< generate: request id, NULL = absent */
    /** Chat, for models' own templates: a list, and an object of further
     *  variables, as JSON; NULL: none. */
    char *documents_json, *kwargs_json;
    bt_api_tools_t tools; /**< chat, tokenize */
    char *instructions;   /**< responses: also the first message; or NULL */
    char *metadata_json;  /**< responses: an object, given back; NULL: none */
    char *cache_salt; /**< NULL: blocks are shared with all that have none */
    bt_api_priority_t priority;
    uint32_t timeout_ms;   /**< 0 = the server's */
    bt_sched_slo_t target; /**< each 0 = the server's */
    /** Names of fields that nobody here knows, "a, b[2].c", in printable ASCII
     *  without white space; as many as there is room for, then "...". */
    char ignored[BT_API_IGNORED_BYTES];
} bt_api_request_t;

/** Is its prompt made of messages? */
static inline bool bt_api_is_chat(const bt_api_request_t *request)
{
    return request->messages.n > 0;
}

/** Why a request was refused, for the client. */
typedef struct bt_api_error {
    int http_status;        /**< 400, 404, 413, 429, 500, 503 … */
    const char *type;       /**< OpenAI's "type": "invalid_request_error" … */
    const char *param;      /**< field name or NULL; static */
    const char *code;       /**< OpenAI's "code"; static; NULL: by the status */
    uint32_t retry_after_s; /**< of 429 and 503; 0: nobody knows, soon */
    char message[512];      /**< one sentence, names the field and the limits */
} bt_api_error_t;

#define BT_API_CONTEXT_LENGTH "context_length_exceeded" /**< a code */

/** Set all fields, no code; printf style. */
void bt_api_error_set(bt_api_error_t *error, int http_status, const char *type,
                      const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/**
 * Parse one body.
 *
 * Known options out of range, of a wrong type or not supported are errors that
 * name them, with what was sent; unknown fields are ignored (in a generate body
 * they are request parameters); null means absent; a byte order mark is
 * skipped; Triton scalars may come as arrays of one, and inside "parameters".
 * Of equal keys the last counts. Never logs.
 *
 * Sampling when not said otherwise: OpenAI draws at temperature 1; generate is
 * greedy, and draws at temperature 1 when it gives top_k > 1 or top_p < 1
 * without a temperature. generate takes top_p 0 for "off", and max_tokens has
 * no default here (has_max_tokens).
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  error_p is filled.
 * @retval BT_ERR_NO_MEMORY      error_p is filled (503).
 */
BT_MUST_CHECK bt_status_t bt_api_parse(bt_api_dialect_t dialect,
                                       const void *body, size_t bytes,
                                       bt_api_request_t *request_p,
                                       bt_api_error_t *error_p);
/** Keep the names of members that a chat template does not look at
 *  (bt_chat_request_t.unused), as the client knows their places. */
void bt_api_note_unused(bt_api_request_t *request, const char *places);
/** The error of a request with fields that nobody knows, for a server that
 *  wants none: names them and what may have been meant.
 *  @return false: it has none */
bool bt_api_refuse_ignored(const bt_api_request_t *request,
                           bt_api_error_t *error_p);
/** What a body without any field would give: for who fills it in another way.
 */
void bt_api_request_init(bt_api_dialect_t dialect, bt_api_request_t *request);
void bt_api_request_fini(bt_api_request_t *request);

/** What the writers need to know of an answer. */
typedef struct bt_api_answer {
    bt_api_dialect_t dialect;
    const char *id;    /**< "cmpl-…", "chatcmpl-…", or generate's id */
    const char *model; /**< name to print */
    const char *version;
    int64_t created; /**< seconds since 1970 */
    int64_t sequence_id;
    bool sequence_start, sequence_end;
    bool include_usage, continuous_usage;
    const bt_tokenizer_t *tok; /**< for texts of tokens, where one is told of */
    const char *fingerprint;   /**< OpenAI's system_fingerprint; NULL = null */
    uint32_t context_tokens;   /**< tokenize */
    bool token_texts;          /**< tokenize */
    uint32_t call_id_bytes;    /**< of calls of tools; 0: as OpenAI's */
    /** Responses: what it was asked with. */
    float temperature, top_p;
    uint32_t max_tokens; /**< 0: it did not say */
    const char *instructions;
    const char *metadata; /**< an object, as JSON; NULL: {} */
    /** What bt_api_write_opening() wrote for this answer, so that each of many
     *  pieces copies it; NULL: each writes it. */
    const char *opening;
    size_t opening_bytes;
} bt_api_answer_t;

typedef struct bt_api_choice {
    uint32_t index;
    const char *text; /**< piece (stream) or whole */
    size_t text_bytes;
    bool no_new_text; /**< of a piece: its text was told before, or is empty */
    const char *thought; /**< what is no content: piece or whole */
    size_t thought_bytes;
    /** Chat: calls of tools, all so far. Of a piece those are told already of
     *  which n_calls_told is the number, the last of them up to args_told. */
    const bt_tool_call_t *calls;
    uint32_t n_calls, n_calls_told;
    size_t args_told;
    bool is_cut_call; /**< it ended within the last of them */
    /** Responses, of a piece: all text and thought so far, with it. */
    const char *whole, *whole_thought;
    size_t whole_bytes, whole_thought_bytes;
    bt_finish_t finish;        /**< NONE while it goes on */
    const uint32_t *token_ids; /**< of this text; NULL: not asked for */
    uint32_t n_token_ids;
    bool by_end_id; /**< the last of all of them is an end id: no text */
    /** What was asked for beside tokens; NULL: nothing. Of it scores.n tokens
     *  from `from` to `to` are the piece's or the choice's; its logits are
     *  whole once it has finished. */
    bt_gen_rows_t *rows;
    uint32_t from, to;
    const uint32_t *offsets; /**< completions: of each token in the text */
    double cum_logprob;      /**< of the answer's tokens before `to` */
} bt_api_choice_t;

typedef struct bt_api_usage {
    uint32_t prompt_tokens;
    uint32_t completion_tokens;
    uint32_t cached_tokens;  /**< of the prompts', those not computed */
    uint32_t kept_tokens;    /**< ...those computed and kept for others */
    uint32_t thought_tokens; /**< of the completions', while it was thinking */
} bt_api_usage_t;

/** Write the whole answer as one JSON object. With slices its lists of tokens,
 *  log-probs and logits are read later: answer, choices and what they point to
 *  must stay until the last slice is written. */
void bt_api_put_answer(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n_choices,
                       const bt_api_usage_t *usage, bt_json_t *json);
/** Append the whole answer as one JSON object. */
void bt_api_write_answer(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choices, size_t n_choices,
                         const bt_api_usage_t *usage, bt_strbuf_t *out);
/** Append what all pieces of a streamed OpenAI answer begin with. */
void bt_api_write_opening(const bt_api_answer_t *answer, bt_strbuf_t *out);
/** Append a piece of one choice of an answer that streams, as server sent
 *  events. Of chat, as OpenAI's: the role alone, what the piece says, and the
 *  reason of the end, which has an empty delta, are events of their own.
 *  @param first  chat: this choice's first piece (carries the role). */
void bt_api_write_chunks(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bool first,
                         const bt_api_usage_t *usage, bt_strbuf_t *out);
/** Responses: append the events with which a stream begins, whole as server
 *  sent events are, unless they were written.
 *  @param [in,out] sequence  of the next event of this stream; from 0 */
void bt_api_write_begin_events(const bt_api_answer_t *answer,
                               uint32_t *sequence, bt_strbuf_t *out);
/** Responses: append the events that a piece is: those above, where they are
 *  missing, what it thought, its text, and the last ones where it finishes. */
void bt_api_write_events(const bt_api_answer_t *answer,
                         const bt_api_choice_t *piece,
                         const bt_api_usage_t *usage, uint32_t *sequence,
                         bt_strbuf_t *out);
/** Responses: the event of a stream that fails. */
void bt_api_write_error_event(const bt_api_error_t *error, uint32_t *sequence,
                              bt_strbuf_t *out);
/** OpenAI: append the object that ends a stream with its usage
 *  (`choices: []`). */
void bt_api_write_usage(const bt_api_answer_t *answer,
                        const bt_api_usage_t *usage, bt_strbuf_t *out);
/** Append an error body in the dialect's form ({"error": "…"} for Triton,
 *  {"error": {message, type, param, code}} for OpenAI). */
void bt_api_write_error(bt_api_dialect_t dialect, const bt_api_error_t *error,
                        bt_strbuf_t *out);

/** A model as OpenAI's clients see it. */
typedef struct bt_api_model {
    const char *name;
    int64_t created; /**< seconds since 1970 */
    uint32_t context_tokens;
    const char *chat_template; /**< its name; NULL: none */
    bt_sampling_defaults_t sampling;
} bt_api_model_t;

/** Append one model object. */
void bt_api_write_model(const bt_api_model_t *model, bt_strbuf_t *out);
/** Append the list of `GET /v1/models`. */
void bt_api_write_models(const bt_api_model_t *models, size_t n,
                         bt_strbuf_t *out);

#endif
