/* SPDX-License-Identifier: Apache-2.0 */
/** @file api.h
 *
 * Parses and writes the client APIs, without sockets: from a JSON body to one
 * request description, and from results to JSON. The HTTP layer decides how the
 * JSON travels (one body, server-sent events).
 *
 *     triton:  POST /v2/models/{ensemble|tensorrt_llm_bls|NAME}
 *                                   [/versions/V]/generate[_stream]
 *     openai:  POST /v1/completions, /v1/chat/completions, /v1/responses
 *     anthropic: POST /v1/messages, /v1/messages/count_tokens
 *     ollama:  POST /api/chat, /api/generate
 *     vLLM:    POST /tokenize, /detokenize, /inference/v1/generate
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_API_API_H
#define BT_ROUTER_API_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/grammar/compile.h"
#include "common/sched/sched_slo.h"
#include "common/wire/request.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/api/sampling.h"
#include "router/core/core.h"
#include "router/core/rows.h"
#include "router/text/custom_input.h"
#include "router/text/tools.h"

#define BT_API_MAX_BIAS_WORDS 64 /**< also limits stop sequences of ids */
#define BT_API_MAX_STOPS      64
#define BT_API_MAX_MESSAGES   1024
#define BT_API_MAX_TOOLS      128
#define BT_API_MAX_PROMPTS    64   /**< choices of one completions call */
#define BT_API_MAX_STOP_BYTES 1024 /**< bytes of one stop word or bad word */
#define BT_API_MAX_NAME_BYTES 256  /**< bytes of a model name, id or role */
#define BT_API_IGNORED_BYTES  1024 /**< bytes of ignored field names */
#define BT_API_MAX_METADATA   16   /**< entries of a response's metadata, … */
#define BT_API_MAX_META_KEY   64   /**< … characters of a metadata key, … */
#define BT_API_MAX_META_VALUE 512  /**< … and of a metadata value */
#define BT_API_MAX_VALUES     (1u << 20) /**< JSON values in one body */

typedef enum bt_api_dialect {
    BT_API_GENERATE,
    BT_API_COMPLETIONS,
    BT_API_CHAT,
    BT_API_TOKENIZE,   /**< prompt to token ids */
    BT_API_DETOKENIZE, /**< token ids to text */
    BT_API_RESPONSES,
    BT_API_ANTHROPIC,       /**< messages */
    BT_API_ANTHROPIC_COUNT, /**< tokens of their prompt */
    BT_API_GENERATE_TOKENS, /**< vLLM's generate: token ids in and out */
    BT_API_OLLAMA_CHAT,
    BT_API_OLLAMA_GENERATE, /**< a prompt, with or without chat template */
} bt_api_dialect_t;

/** True for both of Ollama's APIs. */
static inline bool bt_api_is_ollama(bt_api_dialect_t dialect)
{
    return (dialect == BT_API_OLLAMA_CHAT) ||
           (dialect == BT_API_OLLAMA_GENERATE);
}

/** A client's priority as received; checked where priorities are used
 *  (priority.h). */
typedef enum bt_api_priority_kind {
    /** Written with a fraction or an exponent. */
    /** Not a number. */
    BT_API_PRIORITY_NONE,
    BT_API_PRIORITY_INTEGER,
    BT_API_PRIORITY_REAL,
    BT_API_PRIORITY_OTHER,
} bt_api_priority_kind_t;

typedef struct bt_api_priority {
    bt_api_priority_kind_t kind;
    int64_t integer;
    double real;
} bt_api_priority_t;

/** One prompt: text or token ids. */
typedef struct bt_api_prompt {
    char *text; /**< NULL when ids are given; may contain zero bytes, and ends
                   with one */
    size_t text_bytes;
    uint32_t *ids;
    size_t n_ids;
} bt_api_prompt_t;

#define BT_API_NO_ITEM  UINT16_MAX       /**< instructions, system */
#define BT_API_OLD_ITEM (UINT16_MAX - 1) /**< item of an earlier response */

/** Conversation of a chat, owned by its request. */
typedef struct bt_api_messages {
    /** Message list as JSON, as a chat template gets it (chat.h): each message
     *  with all its members; NULL: none. */
    char *json;
    size_t n;
    /** Responses, Anthropic: index of the client's item or message that each
     *  message comes from, BT_API_NO_ITEM or BT_API_OLD_ITEM. NULL: message i
     *  comes from item i. */
    uint16_t *items;
    /** Text of a final assistant message: its parts, joined, and the bytes of
     *  the last part; NULL: the final message is another role's, or has no
     *  text. */
    char *final;
    size_t final_bytes, final_part_bytes;
} bt_api_messages_t;

/** Whether the model is to think before it answers, where its template has the
 *  variable enable_thinking. */
typedef enum bt_api_thinking {
    BT_API_THINKING_DEFAULT, /**< the template's choice */
    BT_API_THINKING_OFF,
    BT_API_THINKING_ON,
} bt_api_thinking_t;

/** Tool settings of a request; owned by the request. */
typedef struct bt_api_tools {
    char *json;  /**< tool list for templates; NULL: no tool may be called */
    char *names; /**< names of all tools, each zero-terminated */
    size_t names_bytes;
    bool required; /**< answer must begin with a tool call */
    char *forced;  /**< name of the required tool; NULL: any */
    bool only_one; /**< parallel_tool_calls false */
    bool strict;   /**< some tool is strict: its arguments follow its schema */
    bool held;     /**< names and schemas are held although none is strict */
    bool needs_grammar; /**< a format whose calls cannot be held is refused */
    /** Responses: tools that chat templates get in another form than the client
     *  wrote (bt_api_special_tool_t); NULL: none. */
    char *special;
    size_t special_bytes;
} bt_api_tools_t;

/** Tool of a response that is not a plain function. Borrowed. */
typedef struct bt_api_special_tool {
    const char *name;  /**< as templates and the model have it */
    const char *space; /**< namespace that it stands in; "": none */
    const char *bare;  /**< as the client knows it */
    const char *type;  /**< "function", "custom" */
    /** Custom: what its arguments follow, as a format of a structural tag. */
    const char *format;
} bt_api_special_tool_t;

/** Finds a tool among bt_api_tools_t.special.
 *  @return false: it is a plain function */
bool bt_api_find_special_tool(const char *special, size_t bytes,
                              const char *name, size_t name_bytes,
                              bt_api_special_tool_t *tool_p);

/** Structured output: the description that an answer follows, as received.
 *  Owned by the request. */
typedef struct bt_api_grammar {
    const char *field; /**< field that gave it; static; NULL: there is none */
    bt_grammar_kind_t kind;
    char *text; /**< NULL: the kind has none */
    size_t bytes;
    bool compact, lenient; /**< as in bt_grammar_source_t */
    char *schema_name;     /**< OpenAI: name of the schema; NULL: none */
    char *format_json;     /**< Responses: text.format; NULL: as by default */
    char *guide_type, *guide; /**< TensorRT-LLM's fields, for
                                   bt_api_settle_guide() */
    bool completes;           /**< the text is whole within max_tokens */
} bt_api_grammar_t;

/** Text whose tokens get a logit bias. */
typedef struct bt_api_bias_word {
    char *text;
    float bias;
} bt_api_bias_word_t;

/** Field names of a door, used in errors of a beam search; static. */
typedef struct bt_api_beam_names {
    const char *stops, *top_k, *top_p, *top_p_decay, *stream;
} bt_api_beam_names_t;

/** Beam search of a request. */
typedef struct bt_api_beams {
    bool is_asked;        /**< OpenAI: use_beam_search */
    uint32_t width;       /**< generate: beam_width; 0: absent */
    uint32_t n_sequences; /**< generate: num_return_sequences; 0: absent */
    bool has_length_penalty, has_early_stopping;
    float length_penalty;
    uint32_t early_stopping; /**< bt_sched_beam_stop_t */
    bool is_on; /**< a search was asked for, if only with one beam */
    bt_sched_beam_params_t params; /**< width 0: none, or greedy */
    const bt_api_beam_names_t *names;
} bt_api_beams_t;

/** Field names used in errors of late checks; static. */
typedef struct bt_api_names {
    const char *prompt, *max_tokens, *bad_words, *biases;
} bt_api_names_t;

/** Bits of bt_api_request_t.given beside those of sampling.h. */
#define BT_GIVEN_EXCLUDE_INPUT     (1u << 16)
#define BT_GIVEN_SPECIAL_TOKENS    (1u << 17)
#define BT_GIVEN_GENERATION_PROMPT (1u << 18)

#define BT_API_MAX_DRY_BREAKERS 64
#define BT_TOP_P_MIN            1e-6f /**< TensorRT-LLM's default */

/** A client's wish to have its response stored. */
typedef enum bt_api_store {
    BT_API_STORE_DEFAULT, /**< left to the server */
    BT_API_STORE_NO,
    BT_API_STORE_YES,
} bt_api_store_t;

/** Prompt table of a request: ids of its prompts from the vocabulary's size on
 *  are rows of it. All zeros: none. */
typedef struct bt_api_table {
    bt_prompt_table_t *rows; /**< a reference; NULL: none */
    uint32_t vocab_size;     /**< number of rows, as the client says it */
    /** Numbers of the client that tell equal ids of different tables apart;
     * they count for KV reuse alone. Owned. */
    uint64_t *extra_ids;
    uint32_t n_extra_ids;
} bt_api_table_t;

/** LoRA adapter of a request by Triton's tensors. All zeros: none. */
typedef struct bt_api_lora {
    bool has_task;
    bool is_blank;    /**< all that was sent are zeros */
    uint64_t task_id; /**< lora_task_id */
    /** lora_weights and lora_config (inference/adapter/adapter_tensors.h), in
     *  one piece of memory. Owned; NULL: not sent. */
    struct bt_adapter_tensors *tensors;
} bt_api_lora_t;

/** Parsed body; free with bt_api_request_fini(). Everything is owned. */
typedef struct bt_api_request {
    bt_api_dialect_t dialect;
    char *model;              /**< model name from the client; NULL = absent */
    bt_api_prompt_t *prompts; /**< generate, completions: n_prompts */
    size_t n_prompts;
    bt_api_messages_t messages; /**< chat, tokenize, responses */
    uint32_t n;                 /**< choices computed per prompt */
    uint32_t best_of;           /**< completions, as received; 0: absent */
    uint32_t n_returned;        /**< number of best choices returned; 0: all */
    bool hides_logprobs;        /**< choices show no log-probs: those wanted
                                   rank them, or are the prompt's */
    bool has_max_tokens;        /**< false: the dialect's default applies */
    uint32_t max_tokens;
    bool fills_context; /**< without max_tokens the context is the bound */
    bool raw;           /**< Ollama's generate: no chat template */
    bool stream;
    /** Nothing is generated. Responses: the input's tokens are counted; Ollama:
     *  the model is to be loaded, which it is. */
    bool counts_only;
    bool include_usage;
    bool continuous_usage;
    bool ignore_eos;
    bool keeps_stop;      /**< include_stop_str_in_output */
    bool shows_special;   /**< skip_special_tokens false */
    bool no_bos;          /**< add_special_tokens false; for text prompts */
    bool token_texts;     /**< tokenize: return the texts of the tokens, too */
    bool keeps_reasoning; /**< chat: reasoning is part of the content */
    /** Chat: add_generation_prompt false; the final assistant message is
     *  continued. */
    bool no_generation_prompt, continues_final;
    bool return_token_ids; /**< each whole choice lists its ids, as does each
                              piece of a stream, one piece per token */
    /** Requested log-probs and logits: logprobs, top_logprobs; for generate
     *  return_log_probs, return_context_logits and return_generation_logits.
     */
    bt_wants_t wants;
    /** Tensors: bytes of raw logits that a stream accepts for this request; 0:
     *  as many as fit the client's buffer as text. */
    uint64_t stream_logits;
    /** Tensors: bytes of raw logits that the whole answer can hold for this
     *  request; 0: as many as fit an answer as JSON. */
    uint64_t whole_logits;
    bool echo; /**< completions: include the prompt before the answer */
    /** vLLM: log-probs of the prompt, with so many alternatives; and how many
     *  of wants.n_top are for them alone. */
    bool has_prompt_logprobs;
    uint32_t n_prompt_top, n_hidden_top;
    bool exclude_input_in_output;  /**< Triton: no prompt in the text */
    bool has_seed;                 /**< false: a random seed per request */
    bt_logit_bias_t *logit_biases; /**< biases used in `sampling` */
    /** Without bad words; end_ids holds the client's (end_id, stop_token_ids),
     *  to which the caller appends the model's. */
    bt_sampling_t sampling;
    uint32_t given; /**< options that the client set: BT_GIVEN_* */
    char *stops[BT_API_MAX_STOPS];
    uint32_t n_stops;
    char *bad_words[BT_MAX_BAD_WORDS]; /**< text, not yet tokenized */
    uint32_t n_bad_words;
    /** Tensors: banned sequences and stop sequences, as ids. */
    bt_bad_word_t *bad_ids, *stop_ids;
    uint32_t n_bad_ids, n_stop_ids;
    bt_api_bias_word_t *bias_words;
    uint32_t n_bias_words;
    const bt_api_names_t *names; /**< NULL: the dialect's */
    int64_t sequence_id;         /**< generate: echoed in the answer */
    bool sequence_start, sequence_end;
    char *id; /**< generate, tokens: request id, NULL = absent */
    /** Chat, for models' own templates: a list of documents, and an object of
     *  further variables, as JSON; NULL: none. */
    char *documents_json, *kwargs_json;
    bt_api_tools_t tools; /**< chat, tokenize, responses */
    /** How much the model thinks, for the chat template's variables; NULL:
     *  absent. */
    char *effort;
    /** Responses: also used as the first message; or NULL. */
    char *instructions;
    /** Responses: tools and tool_choice as received, as JSON; NULL: absent. */
    char *tools_json, *choice_json;
    /** Responses: object returned unchanged; NULL: none. */
    char *metadata_json;
    /** Responses of bt_api_parse_stored(): whether the response is to be
     *  stored, the id of the one that it continues (NULL: none), and the list
     *  of its own input items, as JSON. */
    bt_api_store_t store;
    char *previous_id;
    char *input_json;
    /** Speculative decoding: expected text or ids of the answer, NULL = absent;
     *  most drafts of an iteration, UINT32_MAX = no bound. */
    char *draft_text;
    size_t draft_text_bytes;
    uint32_t *draft_ids;
    uint32_t n_draft_ids;
    uint32_t max_drafts;
    /** Logits processors, whose other options are those of `sampling` as
     *  received: allowed ids; words that end a sequence for DRY; budget of the
     *  thinking part, below 0: none; prompt tokens that the presence and the
     *  frequency penalty of Triton's API ignore. */
    uint32_t *allowed_ids;
    uint32_t n_allowed_ids;
    char *dry_breakers[BT_API_MAX_DRY_BREAKERS];
    uint32_t n_dry_breakers;
    bool has_dry_breakers; /**< false: the default ones */
    int64_t thinking_budget;
    bt_api_thinking_t thinking;
    uint32_t prompt_ignore_length;
    bt_repetition_t repetition;
    /** Beam search: n is the number of answers then. */
    bt_api_beams_t beams;
    bt_api_grammar_t grammar;
    bt_api_table_t table;
    bt_api_lora_t lora;
    char *cache_salt; /**< NULL: blocks are shared with all requests that have
                         no salt */
    bt_api_priority_t priority;
    uint32_t timeout_ms;   /**< timeout in ms; 0 = the server's */
    bt_sched_slo_t target; /**< latency targets; each 0 = the server's */
    /** Names of unknown fields, "a, b[2].c", in printable ASCII without white
     *  space; as many as fit, then "...". */
    char ignored[BT_API_IGNORED_BYTES];
} bt_api_request_t;

/** True when the prompt consists of messages. */
static inline bool bt_api_is_chat(const bt_api_request_t *request)
{
    return request->messages.n > 0;
}

/** Reason why a request was refused, for the client. */
typedef struct bt_api_error {
    int http_status;        /**< 400, 404, 413, 429, 500, 503 … */
    const char *type;       /**< OpenAI's "type": "invalid_request_error" … */
    const char *param;      /**< field name or NULL; static */
    const char *code;       /**< OpenAI's "code"; static; NULL: by the status */
    uint32_t retry_after_s; /**< for 429 and 503; 0: unknown, soon */
    char message[512]; /**< one sentence that names the field and the limits */
} bt_api_error_t;

#define BT_API_CONTEXT_LENGTH "context_length_exceeded" /**< a `code` */

/** Fills all fields: the type by the status, code NULL; printf style. */
void bt_api_error_set(bt_api_error_t *error, int http_status, const char *param,
                      const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/** Fills the error of an invalid request: 400; printf style.
 *  @return BT_ERR_INVALID_PARAM */
bt_status_t bt_api_error_invalid(bt_api_error_t *error, const char *param,
                                 const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** bt_api_error_invalid() of the whole request: no parameter is named. */
#define BT_API_INVALID(error, ...) \
    bt_api_error_invalid(error, NULL, __VA_ARGS__)
/** Fills the error of a request that finds no memory: 503.
 *  @return BT_ERR_NO_MEMORY */
bt_status_t bt_api_error_no_memory(bt_api_error_t *error);

/**
 * Parses one body.
 *
 * Known options out of range, of a wrong type or not supported are errors that
 * name them, with the value received; unknown fields are ignored (in a generate
 * body they are request parameters); null means absent; a byte order mark is
 * skipped; Triton scalars may be arrays of one, and inside "parameters". Of
 * equal keys the last counts. Never logs.
 *
 * Default sampling: OpenAI samples at temperature 1; generate is greedy, and
 * samples at temperature 1 when it sets top_k > 1 or top_p < 1 without a
 * temperature. generate accepts top_p 0 for "off", and max_tokens has no
 * default here (has_max_tokens).
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  error_p is filled.
 * @retval BT_ERR_NO_MEMORY      error_p is filled (503).
 */
BT_MUST_CHECK bt_status_t bt_api_parse(bt_api_dialect_t dialect,
                                       const void *body, size_t bytes,
                                       bt_api_request_t *request_p,
                                       bt_api_error_t *error_p);
/** Parses the body of a response where responses are stored.
 *  @param [in] history  items of the conversation before the body's input, a
 *    list as JSON (api_stored.h); NULL: none
 *  @retval as bt_api_parse() */
BT_MUST_CHECK bt_status_t bt_api_parse_stored(const void *body, size_t bytes,
                                              const bt_strbuf_t *history,
                                              bt_api_request_t *request_p,
                                              bt_api_error_t *error_p);
/** Stores the names of members that a chat template ignores
 *  (bt_chat_request_t.unused), by their paths in the client's body. */
void bt_api_note_unused(bt_api_request_t *request, const char *paths);
/** Fills the error for a request with unknown fields, for a server that refuses
 *  such requests: names the fields and the likely spellings.
 *  @return false: the request has none */
bool bt_api_refuse_ignored(const bt_api_request_t *request,
                           bt_api_error_t *error_p);
/** Initializes a request to the defaults of a body without fields, for callers
 *  that fill it without JSON. */
void bt_api_request_init(bt_api_dialect_t dialect, bt_api_request_t *request);
void bt_api_request_fini(bt_api_request_t *request);
/** Turns off logits processors whose values change nothing; called once when
 *  all fields are set. */
void bt_api_processors_turn_off(bt_api_request_t *request);

/**
 * Checks the fields of a beam search, and sets what follows from them: greedy
 * sampling, and n. Refused are fields that a search would have to ignore. Not
 * checked: whether a request of BT_API_GENERATE is a stream
 * (bt_api_refuse_beam_stream()).
 * @param [in] names  static
 * @retval BT_ERR_INVALID_PARAM  error_p is filled
 */
BT_MUST_CHECK bt_status_t bt_api_settle_beams(bt_api_request_t *request,
                                              const bt_api_beam_names_t *names,
                                              bt_api_error_t *error_p);
/** Fills the error of a search that is to be streamed.
 *  @return BT_ERR_INVALID_PARAM */
bt_status_t bt_api_refuse_beam_stream(const bt_api_request_t *request,
                                      const char *field,
                                      bt_api_error_t *error_p);
/** Makes the description of TensorRT-LLM's fields; called once when all fields
 *  are set.
 *  @retval BT_ERR_INVALID_PARAM  error_p is filled */
BT_MUST_CHECK bt_status_t bt_api_settle_guide(bt_api_request_t *request,
                                              bt_api_error_t *error_p);
/** Returns the name of a kind, as "json_schema". */
const char *bt_api_grammar_kind_name(bt_grammar_kind_t kind);

/** Returns the stopping rule of TensorRT-LLM's number. */
uint32_t bt_api_early_stopping(double number);

/** Properties of an answer that the writers need. */
typedef struct bt_api_answer {
    bt_api_dialect_t dialect;
    const char *id;    /**< "cmpl-…", "chatcmpl-…", or generate's id */
    const char *model; /**< model name to print */
    const char *version;
    /** Version of the weights of its tokens; NULL: not told. */
    const char *weight_version;
    int64_t created; /**< seconds since 1970 */
    int64_t sequence_id;
    bool sequence_start, sequence_end;
    bool include_usage, continuous_usage;
    const bt_tokenizer_t *tok; /**< for texts of tokens, where needed */
    uint32_t context_tokens;   /**< tokenize */
    uint32_t prompt_tokens;    /**< tokens of the first prompt */
    bool token_texts;          /**< tokenize */
    uint32_t call_id_bytes;    /**< length of tool call ids; 0: as OpenAI's */
    /** Responses: parameters of the request. */
    float temperature, top_p;
    uint32_t max_tokens; /**< 0: not set */
    /** Generate: the choices are this many beams of one answer, 0: there is one
     *  choice; and the log-probs of the longest. */
    uint32_t n_beams, beam_tokens;
    const char *instructions;
    const char *metadata; /**< an object, as JSON; NULL: {} */
    const char *format;   /**< text.format, as JSON; NULL: text */
    const char *tools;    /**< tools, as JSON; NULL: [] */
    const char *choice;   /**< tool_choice, as JSON; NULL: "auto" */
    const char *effort;   /**< reasoning.effort; NULL: absent */
    bool only_one_call;   /**< parallel_tool_calls false */
    bool counts_only;     /**< as in bt_api_request_t */
    bool is_stored;       /**< store */
    /** previous_response_id; NULL: none. */
    const char *previous_id;
    const char *special; /**< bt_api_tools_t.special */
    size_t special_bytes;
    /** Output of bt_api_write_opening() for this answer, which each stream
     *  piece copies; NULL: each piece writes its own. */
    const char *opening;
    size_t opening_bytes;
} bt_api_answer_t;

typedef struct bt_api_choice {
    uint32_t index;
    const char *text; /**< piece (stream) or whole text */
    size_t text_bytes;
    bool no_new_text;    /**< piece whose text was sent before, or is empty */
    const char *thought; /**< reasoning text: piece or whole */
    size_t thought_bytes;
    /** Tool calls, all so far. For a piece, n_calls_sent of them were
     *  sent before, the last one up to args_sent bytes of its arguments. */
    const bt_tool_call_t *calls;
    uint32_t n_calls, n_calls_sent;
    size_t args_sent;
    bool is_cut_call; /**< answer ended within the last call */
    /** Responses, piece: all text and reasoning so far, including this piece.
     */
    const char *whole, *whole_thought;
    size_t whole_bytes, whole_thought_bytes;
    bt_finish_t finish;        /**< NONE while the choice continues */
    const uint32_t *token_ids; /**< ids of this text; NULL: not requested */
    uint32_t n_token_ids;
    bool by_end_id; /**< true when the choice's last token is an end id, which
                       has no text */
    const char *stop_word; /**< the stop word that ended it; NULL: none */
    /** Requested log-probs and logits; NULL: none. Tokens `from` to `to` of
     *  scores.n belong to the piece or choice; the logits are complete once the
     *  choice has finished. */
    bt_gen_rows_t *rows;
    uint32_t from, to;
    uint32_t n_hidden_top;   /**< alternatives of a token that are not shown:
                                the last ones */
    const uint32_t *offsets; /**< completions: text offset of each token */
    /** vLLM: log-probs of the prompt, and how many alternatives are shown;
     * NULL: not requested. */
    const bt_gen_rows_t *prompt_rows;
    uint32_t n_prompt_top;
    double cum_logprob; /**< sum over the answer's tokens before `to` */
    /** generate: requested numbers; valid once the choice has finished. */
    uint32_t perf_wants; /**< BT_WANT_* of perf_metrics.h */
    bt_gen_perf_t perf;
} bt_api_choice_t;

typedef struct bt_api_usage {
    uint32_t prompt_tokens;
    uint32_t completion_tokens;
    uint32_t cached_tokens;  /**< prompt tokens not computed */
    uint32_t kept_tokens;    /**< prompt tokens computed and kept for others */
    uint32_t thought_tokens; /**< completion tokens of reasoning */
    /** Tokens of the client's predictions of the answers that are over, 0:
     *  there were none; and those that stand in the answers. */
    uint32_t predicted_tokens, accepted_tokens;
} bt_api_usage_t;

/** Writes the whole answer as one JSON object. With slices, lists of tokens,
 *  log-probs and logits are read later: answer, choices and all they point to
 *  must stay until the last slice is written. */
void bt_api_put_answer(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n_choices,
                       const bt_api_usage_t *usage, bt_json_t *json);
/** Returns the approximate JSON size of an answer in bytes. */
size_t bt_api_answer_bytes(const bt_api_answer_t *answer,
                           const bt_api_choice_t *choices, size_t n);
/** Appends the whole answer as one JSON object. */
void bt_api_write_answer(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choices, size_t n_choices,
                         const bt_api_usage_t *usage, bt_strbuf_t *out);
/** Appends the common beginning of all pieces of a streamed OpenAI answer. */
void bt_api_write_opening(const bt_api_answer_t *answer, bt_strbuf_t *out);
/** Appends a piece of one choice of a streamed answer, as server-sent events.
 *  For chat, as with OpenAI, separate events carry the role, the piece's
 *  content, and the finish reason, which has an empty delta.
 *  @param first  chat: this choice's first piece (carries the role). */
void bt_api_write_chunks(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bool first,
                         const bt_api_usage_t *usage, bt_strbuf_t *out);
/** Kind of an item of a response. */
typedef enum bt_api_item_kind {
    BT_API_ITEM_NONE,
    BT_API_ITEM_REASONING,
    BT_API_ITEM_MESSAGE,
    BT_API_ITEM_CALL, /**< function_call, custom_tool_call */
} bt_api_item_kind_t;

/** Position in a response's stream. Zeroed: nothing was written. */
typedef struct bt_api_events {
    uint32_t sequence;       /**< number of the next event */
    uint32_t n_items;        /**< items that were begun */
    bt_api_item_kind_t open; /**< kind of the last item, if it is open */
    uint32_t n_messages;     /**< messages that were begun */
    uint32_t n_calls;        /**< calls that were begun */
    size_t text_from;        /**< where the last message's text begins */
    size_t object_from, object_bytes; /**< last response object in the output */
    bt_custom_input_t input;          /**< reader of the last call's input */
} bt_api_events_t;

/** Changes "store" from true to false in events that have a response object.
 *  @param [in] object_from  where it begins in the events */
void bt_api_events_not_stored(bt_strbuf_t *events, size_t object_from);
/** Responses: appends the complete server-sent events with which a stream
 *  begins, unless they were written. */
void bt_api_write_begin_events(const bt_api_answer_t *answer,
                               bt_api_events_t *events, bt_strbuf_t *out);
/** Responses: appends the events of a piece: the opening events where they are
 *  missing, reasoning, text, calls, and the closing events when the piece
 *  finishes. Each item ends before the next one begins. */
void bt_api_write_events(const bt_api_answer_t *answer,
                         const bt_api_choice_t *piece,
                         const bt_api_usage_t *usage, bt_api_events_t *events,
                         bt_strbuf_t *out);
/** Responses: appends the event of a stream that fails. */
void bt_api_write_error_event(const bt_api_error_t *error,
                              bt_api_events_t *events, bt_strbuf_t *out);
/** Kinds of content blocks of a streamed message. */
typedef enum bt_api_block {
    BT_API_BLOCK_NONE,
    BT_API_BLOCK_THINKING,
    BT_API_BLOCK_TEXT,
    BT_API_BLOCK_TOOL_USE,
} bt_api_block_t;

/** Blocks of a streamed message so far; zero before its first event. */
typedef struct bt_api_blocks {
    bool has_begun; /**< message_start was written */
    bt_api_block_t open;
    uint32_t n;          /**< blocks opened; the last one has index n - 1 */
    size_t n_text_bytes; /**< bytes of text that were written */
} bt_api_blocks_t;

/** Anthropic: appends the event with which a stream begins, unless it was
 *  written. */
void bt_api_write_anthropic_start(const bt_api_answer_t *answer,
                                  bt_api_blocks_t *blocks, bt_strbuf_t *out);
/** Anthropic: appends the events of a piece, and those of the end when the
 *  piece finishes. */
void bt_api_write_anthropic_events(const bt_api_answer_t *answer,
                                   const bt_api_choice_t *piece,
                                   const bt_api_usage_t *usage,
                                   bt_api_blocks_t *blocks, bt_strbuf_t *out);
/** Anthropic: appends the event of a stream that fails. */
void bt_api_write_anthropic_error_event(const bt_api_error_t *error,
                                        bt_strbuf_t *out);
/** Ollama: appends a piece as lines of JSON: what it says, if it says anything,
 *  and the last line when the piece finishes. A call is written once it is
 *  whole. */
void bt_api_write_ollama_lines(const bt_api_answer_t *answer,
                               const bt_api_choice_t *piece,
                               const bt_api_usage_t *usage, bt_strbuf_t *out);
/** Ollama: appends the line of a stream that fails. */
void bt_api_write_ollama_error_line(const bt_api_error_t *error,
                                    bt_strbuf_t *out);
#define BT_API_TIME_BYTES 80
/** Writes a time as RFC 3339 in UTC. @param [in] seconds  since 1970; beyond
 * the years that have four digits: 1970 */
const char *bt_api_format_time(int64_t seconds, char text[BT_API_TIME_BYTES]);
/** OpenAI: appends the object that ends a stream with its usage (`choices:
 *  []`). */
void bt_api_write_usage(const bt_api_answer_t *answer,
                        const bt_api_usage_t *usage, bt_strbuf_t *out);
/** Appends an error body in the dialect's form ({"error": "…"} for Triton and
 *  Ollama,
 *  {"error": {message, type, param, code}} for OpenAI, {"type": "error",
 *  "error": {type, message}} for Anthropic). */
void bt_api_write_error(bt_api_dialect_t dialect, const bt_api_error_t *error,
                        bt_strbuf_t *out);

/** Model as OpenAI's clients see it. */
typedef struct bt_api_model {
    const char *name;
    const char *root;   /**< path of an adapter; NULL: `name` */
    const char *parent; /**< model of an adapter; NULL: a model */
    int64_t created;    /**< seconds since 1970 */
    uint32_t context_tokens;
    const char *chat_template; /**< name of the template; NULL: none */
    bt_sampling_defaults_t sampling;
} bt_api_model_t;

/** Appends one model object. */
void bt_api_write_model(const bt_api_model_t *model, bt_strbuf_t *out);
/** Appends the list of `GET /v1/models`. */
void bt_api_write_models(const bt_api_model_t *models, size_t n,
                         bt_strbuf_t *out);

#endif
