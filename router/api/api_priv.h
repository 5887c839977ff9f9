/* SPDX-License-Identifier: Apache-2.0 */
/** @file api_priv.h  Shared by the files api_*.c of this folder only. */
#ifndef BT_ROUTER_API_API_PRIV_H
#define BT_ROUTER_API_API_PRIV_H

#include "common/base/json.h"
#include "common/base/json_doc.h"
#include "router/api/api.h"

/* ---- api_values.c: values with their limits, and errors that name them ----
 */

#define BT_API_G  1u    /**< generate */
#define BT_API_C  2u    /**< completions */
#define BT_API_H  4u    /**< chat */
#define BT_API_T  8u    /**< tokenize */
#define BT_API_D  16u   /**< detokenize */
#define BT_API_R  32u   /**< responses */
#define BT_API_M  64u   /**< Anthropic's messages, and their count */
#define BT_API_LC 128u  /**< Ollama's chat */
#define BT_API_LG 256u  /**< Ollama's generate */
#define BT_API_I  1024u /**< vLLM's generate of token ids, and … */
#define BT_API_S  2048u /**< … its sampling_params */
#define BT_API_O  (BT_API_C | BT_API_H)
#define BT_API_A  (BT_API_G | BT_API_O)
#define BT_API_L  (BT_API_LC | BT_API_LG)

typedef struct bt_api_parse {
    const bt_json_doc_t *doc; /**< body; NULL: none is read */
    bt_api_request_t *request;
    bt_api_error_t *error;
    bool only_the_best; /**< top_p 0 */
    bool has_max_completion_tokens;
    bool says_no_tools;         /**< tool_choice is "none" */
    bool can_store;             /**< responses are stored */
    const bt_strbuf_t *history; /**< as in bt_api_parse_stored() */
    /** Responses: list of the tools that may be called; NULL: all. */
    const bt_json_node_t *allowed_tools;
    uint32_t n_bias_weights; /**< number of weights for request->bias_words, in
                                their order */
} bt_api_parse_t;

typedef struct bt_api_field bt_api_field_t;

/** Reader of a field's value, which is not null. */
typedef bt_status_t bt_api_read_t(bt_api_parse_t *parse,
                                  const bt_api_field_t *field,
                                  const bt_json_node_t *value);

/** Known field of a body. */
struct bt_api_field {
    const char *name;
    uint32_t dialects; /**< BT_API_G … */
    bt_api_read_t *read;
    size_t offset;   /**< offset in bt_api_request_t */
    double min, max; /**< range of a number */
    uint32_t given;  /**< BT_GIVEN_*, set in the request */
};

/** Fills the error: 400, invalid_request_error. @return BT_ERR_INVALID_PARAM */
#define bt_api_refuse(parse, ...) \
    bt_api_error_invalid((parse)->error, __VA_ARGS__)
/** Fills the error of a value that must be @a kind, "a list".
 *  @return BT_ERR_INVALID_PARAM */
bt_status_t bt_api_refuse_kind(bt_api_parse_t *parse, const char *param,
                               const char *kind, const bt_json_node_t *value);
#define BT_API_SHOWN_BYTES 96

/** Formats a value for an error's text: numbers, words and the beginning of a
 *  string as received; "an array" or "an object"; "nothing" for NULL. */
const char *bt_api_show(const bt_json_node_t *value,
                        char shown[BT_API_SHOWN_BYTES]);
/** bt_api_show() into memory of the block in which the macro is used. */
#define BT_API_SHOW(value) bt_api_show(value, (char[BT_API_SHOWN_BYTES]){0})

/** True when a member is absent or null. */
static inline bool bt_api_is_none(const bt_json_node_t *value)
{
    return (value == NULL) || (value->kind == BT_JSON_NULL);
}

/** Reads an integer from min to max in any notation: 3.0 and 3e0 are 3. */
BT_MUST_CHECK bt_status_t bt_api_integer(bt_api_parse_t *parse,
                                         const char *name,
                                         const bt_json_node_t *value,
                                         int64_t min, int64_t max,
                                         int64_t *number_p);
/** Reads any integer, modulo 2^64. */
BT_MUST_CHECK bt_status_t bt_api_integer_mod_2_64(bt_api_parse_t *parse,
                                                  const char *name,
                                                  const bt_json_node_t *value,
                                                  uint64_t *number_p);
/** Reads a number; infinite beyond the range of a double. @return false: not a
 *  number */
bool bt_api_real(const bt_json_node_t *value, double *real_p);
/** Reads a list of token ids, or one id of a generate body ([5] comes as 5),
 *  in place of an earlier list.
 *  @param [out] ids_p  owned by the caller; NULL for an empty list */
BT_MUST_CHECK bt_status_t bt_api_ids(bt_api_parse_t *parse, const char *name,
                                     const bt_json_node_t *value,
                                     uint32_t **ids_p, uint32_t *n_p);
/** Reads a string or a list of strings, in place of earlier words.
 *  @param [in,out] words  room for max of them, *n_p owned */
BT_MUST_CHECK bt_status_t bt_api_words(bt_api_parse_t *parse, const char *name,
                                       const bt_json_node_t *value,
                                       char **words, uint32_t *n_p,
                                       uint32_t max);
/** Copies the text of an array or object without white space between its
 *  tokens, so that the copy is one line; numbers and strings as received. */
BT_MUST_CHECK bt_status_t bt_api_raw(bt_api_parse_t *parse,
                                     const bt_json_node_t *value,
                                     char **text_p);
/** Copies a string without zero characters; the caller owns the copy. */
BT_MUST_CHECK bt_status_t bt_api_string(bt_api_parse_t *parse, const char *name,
                                        const bt_json_node_t *value,
                                        size_t max_bytes, char **text_p);

/* Readers for the field table. */
bt_api_read_t bt_api_read_bool, bt_api_read_u32, bt_api_read_float;
/** Reads a short string into a char *. */
bt_api_read_t bt_api_read_name;
/** Reads a list or an object (min: BT_JSON_ARRAY or BT_JSON_OBJECT) as JSON
 *  text into a char *; an empty one counts as absent. */
bt_api_read_t bt_api_read_json;
/** Reads {"token id": bias, …}. */
bt_api_read_t bt_api_read_logit_bias;
/** Reads embedding_bias_words and embedding_bias_weights: lists of equal
 *  length, which bt_api_check_biases() checks in the end. */
bt_api_read_t bt_api_read_bias_words, bt_api_read_bias_weights;
BT_MUST_CHECK bt_status_t bt_api_check_biases(bt_api_parse_t *parse);
/** Accepts any value of a known field that has no effect. */
bt_api_read_t bt_api_read_ignored;
/** Reads a bool that is true when the field is false. */
bt_api_read_t bt_api_read_not;
/** Refuses a known but unsupported field, unless its value changes nothing
 *  (false, 0, "", [] or {}). */
bt_api_read_t bt_api_read_unsupported;

/* ---- api_draft.c ---- */

/** Reads OpenAI's {"type": "content", "content": string or text parts}. */
bt_api_read_t bt_api_read_prediction;
/** Reads a list of token ids. */
bt_api_read_t bt_api_read_draft_ids;
/** Takes true and false, which are the same here. */
bt_api_read_t bt_api_read_use_draft_logits;

/* ---- api_processors.c ---- */

/** Sets the defaults of options that are not 0. */
void bt_api_processors_init(bt_api_request_t *request);
void bt_api_processors_fini(bt_api_request_t *request);
bt_api_read_t bt_api_read_allowed_ids, bt_api_read_dry_breakers,
    bt_api_read_thinking_budget, bt_api_read_repetition;
/** Reads an integer from -1 on into a uint32_t, UINT32_MAX for -1: no token
 *  (BT_NO_TOKEN), or no bound. */
bt_api_read_t bt_api_read_u32_or_none;
/** Refuses all values but 0. */
bt_api_read_t bt_api_read_mirostat;
/* ---- api_grammar.c ---- */

void bt_api_grammar_fini(bt_api_grammar_t *grammar);
/** Read fields of structured output: OpenAI's response_format; vLLM's
 *  structured_outputs; a JSON schema as an object or a string; a regex; a list
 *  of choices; a grammar in EBNF or Lark; one in EBNF; a structural tag. */
bt_api_read_t bt_api_read_response_format, bt_api_read_structured_outputs,
    bt_api_read_schema, bt_api_read_regex, bt_api_read_choice,
    bt_api_read_grammar, bt_api_read_ebnf, bt_api_read_structural_tag;
/** Read vLLM's options of them: the engine with its options; a pattern for
 *  white space, which is refused. */
bt_api_read_t bt_api_read_guided_backend, bt_api_read_whitespace_pattern;
/** Reads a string of TensorRT-LLM's guide into a char *. */
bt_api_read_t bt_api_read_guide;
/** Reads Anthropic's output format, a JSON schema. */
bt_api_read_t bt_api_read_output_format;
/** Reads Ollama's format: "json", a JSON schema, or "" for none. */
bt_api_read_t bt_api_read_ollama_format;
/** Reads the format of Responses' text. */
BT_MUST_CHECK bt_status_t bt_api_read_text_format(bt_api_parse_t *parse,
                                                  const bt_json_node_t *format);

/* ---- api_strict_schema.c ---- */

/** Checks what strict: true asks of a schema.
 *  @param [in] field  at fault
 *  @param [in] what, name  "response_format" or "function", and the schema's
 *          name, for the sentence */
BT_MUST_CHECK bt_status_t bt_api_check_strict_schema(
    bt_api_parse_t *parse, const char *field, const char *what,
    const char *name, const bt_json_node_t *schema);

/* ---- api_beams.c ---- */

bt_api_read_t bt_api_read_early_stopping, bt_api_read_length_penalty;

/* ---- api_parse.c: fields of an object ---- */

/** Reads all fields of an object.
 *  @param [in] dialect  BT_API_G …
 *  @param [in] path     prefix of unknown fields' names, "parameters." */
BT_MUST_CHECK bt_status_t bt_api_read_fields(bt_api_parse_t *parse,
                                             uint32_t dialect, const char *path,
                                             const bt_json_node_t *object);

/* ---- api_parse.c: unknown fields ---- */

/** Stores the name of an unknown field for the client. */
void bt_api_note_unknown(bt_api_request_t *request, const char *name,
                         size_t bytes);
/** Notes the members of an object that are not in @a known, and not null.
 *  @param [in] path   path of the object, as "stream_options"
 *  @param [in] known  ends with NULL */
void bt_api_note_members(bt_api_parse_t *parse, const char *path,
                         const bt_json_node_t *object,
                         const char *const *known);

/* ---- api_prompt.c ---- */

bt_api_read_t bt_api_read_text_input, bt_api_read_prompt;
/** Frees prompts and messages, also half-built ones. */
void bt_api_prompts_fini(bt_api_request_t *request);

/** Reads one prompt of token ids, in place of earlier prompts. */
BT_MUST_CHECK bt_status_t bt_api_take_ids(bt_api_parse_t *parse,
                                          const char *name,
                                          const bt_json_node_t *value);

/* ---- api_messages.c ---- */

bt_api_read_t bt_api_read_messages;
/** Creates a conversation of one message, the user's, behind the history. */
BT_MUST_CHECK bt_status_t bt_api_take_user(bt_api_parse_t *parse,
                                           const bt_json_node_t *text);
/** Inserts a system message before the others. */
BT_MUST_CHECK bt_status_t bt_api_prepend_system(bt_api_parse_t *parse,
                                                const char *text);
/** Appends a text of a final assistant message; texts are joined by line ends.
 */
void bt_api_add_final(bt_api_parse_t *parse, const bt_json_node_t *part,
                      bt_strbuf_t *text);
/** Moves the text of a final assistant message to the request; an empty one is
 *  none. Frees @a text in any case. */
BT_MUST_CHECK bt_status_t bt_api_keep_final(bt_api_parse_t *parse,
                                            bt_strbuf_t *text);
/** Moves the list of messages to the request. @param [in,out] text  still to be
 *  freed */
BT_MUST_CHECK bt_status_t bt_api_keep_messages(bt_api_parse_t *parse,
                                               bt_strbuf_t *text);
void bt_api_messages_fini(bt_api_request_t *request);

/* ---- api_tools.c ---- */

bt_api_read_t bt_api_read_tools, bt_api_read_tool_choice;
/** Checks that a field is a list of at most BT_API_MAX_TOOLS entries. */
bt_api_read_t bt_api_check_tool_list;
/** Adds the name of a tool. */
BT_MUST_CHECK bt_status_t bt_api_add_tool_name(bt_api_parse_t *parse,
                                               const char *name, size_t n);
/** Checks what strict: true asks of a tool's parameters. */
BT_MUST_CHECK bt_status_t
bt_api_check_strict_tool(bt_api_parse_t *parse, const bt_json_node_t *name,
                         const bt_json_node_t *parameters);
/** Writes the id of a call of an answer. */
void bt_api_put_call_id(const bt_api_answer_t *answer, uint32_t choice,
                        uint32_t call, const char *key, bt_json_t *json);
/** Tool as received. */
typedef struct bt_api_tool {
    const bt_json_node_t *name, *parameters, *strict; /**< NULL: absent */
    size_t index;                                     /**< in tools */
} bt_api_tool_t;
/** Checks a tool, and adds its name to the request's.
 *  @param [in] at      path of its members, "function." or ""
 *  @param [in] schema  member that has the parameters */
BT_MUST_CHECK bt_status_t bt_api_take_tool(bt_api_parse_t *parse,
                                           const bt_api_tool_t *tool,
                                           const char *at, const char *schema);
#define BT_API_CALL_ID_BYTES 32
/** Makes the id of a call: equal in all pieces, and different for each call of
 *  each answer; the prefix and 24 characters, or as many as the template
 *  wants. */
void bt_api_make_call_id(const bt_api_answer_t *answer, uint32_t choice,
                         uint32_t call, const char *prefix,
                         char id[BT_API_CALL_ID_BYTES]);
/** Writes the "tool_calls" of an assistant's message.
 *  @param [in] where  "messages[3]", for errors
 *  @param [in,out] json  gets the list as a value */
BT_MUST_CHECK bt_status_t bt_api_write_calls(bt_api_parse_t *parse,
                                             const char *where,
                                             const bt_json_node_t *value,
                                             bt_json_t *json);
/** Writes a value as received. @param [in] key  NULL: in an array, or already
 *  written */
void bt_api_put_value(bt_json_t *json, const char *key,
                      const bt_json_node_t *value);
/** Checks that tool_choice matches the tools. */
BT_MUST_CHECK bt_status_t bt_api_check_tools(bt_api_parse_t *parse);
void bt_api_tools_fini(bt_api_tools_t *tools);
/** True when the choice has calls, or arguments, that were not sent yet. */
bool bt_api_has_new_calls(const bt_api_choice_t *choice);
/** Writes the tool calls of a message or of a piece's delta; nothing if there
 *  are none. */
void bt_api_put_calls(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, bool piece,
                      bt_json_t *json);

/* ---- api_response_tools.c ---- */

/** Read the tools of a response, and which of them it may call. */
bt_api_read_t bt_api_read_response_tools, bt_api_read_response_tool_choice;
/** Leaves the tools that tool_choice allows. */
BT_MUST_CHECK bt_status_t bt_api_check_response_tools(bt_api_parse_t *parse);

/* ---- api_responses.c ---- */

bt_api_read_t bt_api_read_input, bt_api_read_instructions, bt_api_read_store,
    bt_api_read_previous, bt_api_read_truncation, bt_api_read_text,
    bt_api_read_metadata, bt_api_read_include;
/** Read how much the model thinks: chat's reasoning_effort, and Responses'
 *  object. */
bt_api_read_t bt_api_read_effort, bt_api_read_reasoning;
/** Turns the instructions into the first message. */
BT_MUST_CHECK bt_status_t bt_api_check_responses(bt_api_parse_t *parse);

/* ---- api_response_write.c ---- */

/** Writes the answer of a request that counts tokens of its input. */
void bt_api_put_input_tokens(uint32_t n, bt_json_t *json);
/** Writes a response, as a member of this key.
 *  @param [in] key     NULL: as a whole
 *  @param [in] choice  the only one; NULL: it is still generated */
void bt_api_put_response(const bt_api_answer_t *answer, const char *key,
                         const bt_api_choice_t *choice,
                         const bt_api_usage_t *usage, bt_json_t *json);

/* ---- api_anthropic.c ---- */

bt_api_read_t bt_api_read_anthropic_messages, bt_api_read_system,
    bt_api_read_anthropic_tools, bt_api_read_anthropic_tool_choice,
    bt_api_read_thinking, bt_api_read_output_config;
/** Checks what a message needs, and turns the system's text into the first
 *  message. */
BT_MUST_CHECK bt_status_t bt_api_check_anthropic(bt_api_parse_t *parse);

/* ---- api_anthropic_write.c ---- */

/** Writes the message of an answer. */
void bt_api_put_anthropic(const bt_api_answer_t *answer,
                          const bt_api_choice_t *choice,
                          const bt_api_usage_t *usage, bt_json_t *json);
/** Writes the members of an error body. */
void bt_api_put_anthropic_error(const bt_api_error_t *error, bt_json_t *json);

/** Writes the arguments of a call as an object. Those that are none, as
 *  max_tokens cut them or as the model wrote them, are in its member
 *  INVALID_JSON. */
void bt_api_put_arguments(bt_json_t *json, const char *key,
                          const bt_strbuf_t *arguments);

/* ---- api_write.c ---- */

/** Returns why a choice ended, as OpenAI says it; NULL: it has not. */
const char *bt_api_finish_reason(const bt_api_choice_t *choice);
/** Write the members "usage", and "token_ids" where they are requested. */
void bt_api_put_usage(const bt_api_usage_t *usage, bt_json_t *json);
void bt_api_put_token_ids(const bt_api_choice_t *choice, bt_json_t *json);

/** Writes the tokens of a choice or piece with their log-probs, as chats have
 *  them: a list. */
void bt_api_put_token_list(const bt_api_answer_t *answer,
                           const bt_api_choice_t *choice, const char *key,
                           bt_json_t *json);

/* ---- api_token_ids.c ---- */

bt_api_read_t bt_api_read_token_ids, bt_api_read_sampling_params,
    bt_api_read_prompt_logprobs;
#define BT_API_SAMPLING_PARAMS "sampling_params"
/** Field names in errors of BT_API_GENERATE_TOKENS. */
extern const bt_api_names_t bt_api_tokens_names;
/** Adds the log-probs of the prompt to what is wanted; called once when the
 *  others are. */
BT_MUST_CHECK bt_status_t bt_api_check_prompt_logprobs(bt_api_parse_t *parse);

/* ---- api_token_ids_write.c ---- */

/** Writes the member "prompt_logprobs", if it is requested. */
void bt_api_put_prompt_logprobs(const bt_tokenizer_t *tok,
                                const bt_api_choice_t *choice, bt_json_t *json);
/** Writes the answer of a request of token ids. */
void bt_api_put_tokens(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n_choices,
                       const bt_api_usage_t *usage, bt_json_t *json);
/** Writes an event of its stream.
 *  @param [in] piece  NULL: the last event, which has the usage */
void bt_api_put_tokens_event(const bt_api_answer_t *answer,
                             const bt_api_choice_t *piece,
                             const bt_api_usage_t *usage, bt_json_t *json);

/* ---- api_ollama.c ---- */

bt_api_read_t bt_api_read_ollama_messages, bt_api_read_ollama_prompt,
    bt_api_read_think;
/** Read options: a bound of the answer, whose negative values mean none; a
 * seed, of which -1 is a random one; how far penalties look back. */
bt_api_read_t bt_api_read_num_predict, bt_api_read_ollama_seed,
    bt_api_read_repeat_last_n;
/** Checks what a request needs, and turns a prompt into messages. */
BT_MUST_CHECK bt_status_t bt_api_check_ollama(bt_api_parse_t *parse);

/* ---- api_ollama_write.c ---- */

/** Writes the whole answer. */
void bt_api_put_ollama(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice,
                       const bt_api_usage_t *usage, bt_json_t *json);

/* ---- api_fields.c ---- */

/** Returns a field by name, or NULL when the @a n bytes of @a name are unknown
 *  in this dialect. */
const bt_api_field_t *bt_api_find_field(uint32_t dialect, const char *name,
                                        size_t n);
/** Returns the field name of this dialect that is closest to @a name, or NULL.
 */
const char *bt_api_nearest_field(uint32_t dialect, const char *name, size_t n);

/** Writes the member weight_version, if it is told. */
void bt_api_put_weights(const bt_api_answer_t *answer, bt_json_t *json);

#endif
