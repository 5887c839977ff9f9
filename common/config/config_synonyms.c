/* SPDX-License-Identifier: Apache-2.0 */
/* Options of vLLM, SGLang, llama-server, text-generation-inference and
 * trtllm-serve, for users and scripts that know those: each is a synonym of
 * a Baton option, has no effect here, which is noted, or is refused with an
 * alternative. The program's own options take precedence; a row with a name
 * of ours is for its spelling with _. Options of
 * tritonserver are in config_triton.c. Source: the options' texts of the
 * releases of 2024 to 2026. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "common/config/config_options.h"

#define MOST_OURS  3
#define TEXT_BYTES 128

typedef enum fate {
    AS,       /* options in `ours` that the program has, with an equal value */
    HOST,     /* the host of the address `ours` */
    FRACTION, /* `ours` in percent */
    LAYERS,   /* of a model on a GPU: none, or all */
    KV_TYPE,  /* `ours`, with a mapping of values */
    ON,       /* `ours` is on; takes no value */
    OFF,      /* `ours` is off; takes no value */
    AUTO,     /* only the value auto is accepted, which is the behaviour */
    NO_WORD,  /* has no effect and takes no value */
    NONE,     /* has no effect */
    REFUSED,  /* `why` has the alternative; its value may be a secret */
} fate_t;

typedef struct row {
    const char *name;
    const char *letters; /* behind one dash; NULL: it has no such name */
    fate_t fate;
    const char *ours[MOST_OURS];
    const char *why; /* it has no effect, or the alternative */
} row_t;

static const char as_in_file[] = "weights are computed as the file has them; "
                                 "baton convert makes files of other types";
static const char kv_share[] =
    "--kv-memory SIZE is the memory for the KV cache of each worker, and "
    "--kv-free-percent N the share for it of what the model leaves";
static const char kv_types[] = "--kv-dtype bf16, f16, int8 or fp8 is the type "
                               "of keys and values";
static const char keys[] = "--api-keys FILE has the hashes of keys, and baton "
                           "key new TENANT makes one; others on this machine "
                           "can read a key that is an argument";
static const char more_workers[] = "--prefill N and --decode N start more "
                                   "workers";
static const char mapped[] = "weights are always mapped";

static const row_t rows[] = {
    {"host", NULL, HOST, {"http"}, ""},
    {"hostname", NULL, HOST, {"http"}, ""},
    {"model", "m", AS, {"model"}, ""},
    {"model-path", NULL, AS, {"model"}, ""},
    {"model-id", NULL, AS, {"model"}, ""},
    {"served-model-name", NULL, AS, {"served-model-name"}, ""},
    {"alias", "a", AS, {"served-model-name"}, ""},
    {"max-model-len", NULL, AS, {"max-seq-len"}, ""},
    {"max-seq-len", NULL, AS, {"max-seq-len"}, ""},
    {"max-total-tokens", NULL, AS, {"max-seq-len"}, ""},
    {"context-length", NULL, AS, {"max-seq-len"}, ""},
    {"ctx-size", "c", AS, {"max-seq-len"}, ""},
    {"max-num-seqs", NULL, AS, {"max-batch-size"}, ""},
    {"max-batch-size", NULL, AS, {"max-batch-size"}, ""},
    {"max-running-requests", NULL, AS, {"max-batch-size"}, ""},
    {"parallel", "np", AS, {"max-batch-size"}, ""},
    {"max-concurrent-requests", NULL, AS, {"max-concurrent-requests"}, ""},
    {"max-num-batched-tokens", NULL, AS, {"chunk-tokens"}, ""},
    {"max-num-tokens", NULL, AS, {"chunk-tokens"}, ""},
    {"chunked-prefill-size", NULL, AS, {"chunk-tokens"}, ""},
    {"ubatch-size", "ub", AS, {"chunk-tokens"}, ""},
    {"batch-size",
     "b",
     REFUSED,
     {NULL},
     "--chunk-tokens N is the tokens of a prompt in one iteration, and "
     "--max-batch-size N the sequences of a worker"},
    {"tensor-parallel-size", "tp", AS, {"prefill-tp", "decode-tp", "tp"}, ""},
    {"tp-size", NULL, AS, {"prefill-tp", "decode-tp", "tp"}, ""},
    {"tp", NULL, AS, {"prefill-tp", "decode-tp", "tp"}, ""},
    {"num-shard", NULL, AS, {"prefill-tp", "decode-tp", "tp"}, ""},
    {"pipeline-parallel-size", "pp", AS, {"prefill-pp", "decode-pp", "pp"}, ""},
    {"pp-size", NULL, AS, {"prefill-pp", "decode-pp", "pp"}, ""},
    {"pp", NULL, AS, {"prefill-pp", "decode-pp", "pp"}, ""},
    {"data-parallel-size", "dp", REFUSED, {NULL}, more_workers},
    {"dp-size", NULL, REFUSED, {NULL}, more_workers},
    {"dp", NULL, REFUSED, {NULL}, more_workers},
    {"threads",
     "t",
     AS,
     {"threads"},
     "--prefill-threads N and --decode-threads N are those of each worker"},
    {"gpu-memory-utilization", NULL, REFUSED, {NULL}, kv_share},
    {"mem-fraction-static", NULL, REFUSED, {NULL}, kv_share},
    {"cuda-memory-fraction", NULL, REFUSED, {NULL}, kv_share},
    {"kv-cache-free-gpu-memory-fraction",
     NULL,
     FRACTION,
     {"kv-free-percent"},
     ""},
    {"n-gpu-layers", "ngl", LAYERS, {"backend"}, ""},
    {"gpu-layers", NULL, LAYERS, {"backend"}, ""},
    {"device",
     NULL,
     REFUSED,
     {NULL},
     "--backend cpu, cuda or auto says what computes, and --devices LIST which "
     "GPUs"},
    {"api-key", NULL, REFUSED, {NULL}, keys},
    {"api-key-file", NULL, REFUSED, {NULL}, keys},
    {"dtype", NULL, AUTO, {NULL}, as_in_file},
    {"quantization", "q", REFUSED, {NULL}, as_in_file},
    {"quantize", NULL, REFUSED, {NULL}, as_in_file},
    {"kv-cache-dtype", NULL, KV_TYPE, {"kv-dtype"}, kv_types},
    {"cache-type-k", "ctk", REFUSED, {NULL}, kv_types},
    {"cache-type-v", "ctv", REFUSED, {NULL}, kv_types},
    {"block-size", NULL, AS, {"tokens-per-block"}, ""},
    {"page-size", NULL, AS, {"tokens-per-block"}, ""},
    {"enable-prefix-caching", NULL, ON, {"prefix-cache"}, ""},
    {"no-enable-prefix-caching", NULL, OFF, {"prefix-cache"}, ""},
    {"disable-radix-cache", NULL, OFF, {"prefix-cache"}, ""},
    {"enable-chunked-prefill",
     NULL,
     NO_WORD,
     {NULL},
     "prompts are always computed in chunks"},
    {"cont-batching", "cb", NO_WORD, {NULL}, "batching is always continuous"},
    {"jinja", NULL, NO_WORD, {NULL}, "templates are always Jinja's"},
    {"chat-template-file", NULL, AS, {"chat-template"}, ""},
    {"mlock", NULL, NO_WORD, {NULL}, mapped},
    {"no-mmap", NULL, NO_WORD, {NULL}, mapped},
    {"enforce-eager", NULL, NO_WORD, {NULL}, "nothing is compiled"},
    {"trust-remote-code", NULL, NO_WORD, {NULL}, "no code of models is run"},
    {"disable-log-requests",
     NULL,
     NO_WORD,
     {NULL},
     "requests are logged only by --access-log and --trace-file"},
    {"no-enable-log-requests",
     NULL,
     NO_WORD,
     {NULL},
     "requests are logged only by --access-log and --trace-file"},
    {"enable-metrics",
     NULL,
     NO_WORD,
     {NULL},
     "--metrics is where they are always served"},
    {"swap-space", NULL, NONE, {NULL}, "KV blocks are not swapped"},
    {"seed", "s", REFUSED, {NULL}, "each request names its seed"},
    {"tokenizer",
     NULL,
     REFUSED,
     {NULL},
     "the tokenizer is that in the model's file or folder"},
    {"hf-repo",
     "hf",
     REFUSED,
     {NULL},
     "baton pull OWNER/REPO[:FILE] fetches a model, and --model NAME serves "
     "it"},
    {"ssl-certfile", NULL, AS, {"tls-cert"}, ""},
    {"ssl-cert-file", NULL, AS, {"tls-cert"}, ""},
    {"ssl-keyfile", NULL, AS, {"tls-key"}, ""},
    {"ssl-key-file", NULL, AS, {"tls-key"}, ""},
    {"ssl-ca-certs",
     NULL,
     REFUSED,
     {NULL},
     "--tls-client-ca FILE has the CA certificates of clients"},
    {"allowed-origins",
     NULL,
     REFUSED,
     {NULL},
     "--cors-origins ORIGIN[,ORIGIN] names web pages that may use the server"},
    {"timeout",
     "to",
     REFUSED,
     {NULL},
     "--request-timeout-ms and --idle-timeout-ms are for that"},
    {"tool-call-parser", NULL, AS, {"tool-call-parser"}, ""},
    {"reasoning-parser", NULL, AS, {"reasoning-parser"}, ""},
    {"enable-auto-tool-choice",
     NULL,
     NO_WORD,
     {NULL},
     "tools are taken wherever the chat template has them"},
};

/* _ counts as -, as in several of those servers. */
static bool is_name(const char *ours, const char *name, size_t n)
{
    size_t i = 0;

    while ((i < n) && (ours[i] != '\0') &&
           (ours[i] == ((name[i] == '_') ? '-' : name[i]))) {
        i++;
    }
    return (i == n) && (ours[i] == '\0');
}

/* @a arg with its dashes. */
static const row_t *find(const char *arg, size_t n)
{
    const bool is_long = (n > 2) && (memcmp(arg, "--", 2) == 0);

    if (!is_long && ((n < 2) || (arg[0] != '-'))) {
        return NULL;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        if (is_long ? is_name(rows[i].name, arg + 2, n - 2)
                    : ((rows[i].letters != NULL) &&
                       is_name(rows[i].letters, arg + 1, n - 1))) {
            return &rows[i];
        }
    }
    return NULL;
}

bool bt_config_synonyms_know(const bt_config_store_t *store, const char *arg)
{
    const size_t n = strcspn(arg, "=");
    const bt_option_t *const own = (strncmp(arg, "--", 2) == 0)
                                       ? bt_config_option_find(arg + 2, n - 2)
                                       : NULL;

    return ((own == NULL) || ((own->programs & store->program) == 0)) &&
           (find(arg, n) != NULL);
}

const bt_option_t *bt_config_synonym_of(const char *name, size_t n)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const char *const ours = rows[i].ours[0];

        if ((ours != NULL) && is_name(rows[i].name, name, n)) {
            return bt_config_option_find(ours, strlen(ours));
        }
    }
    return NULL;
}

static bt_status_t refuse(const bt_config_store_t *store, const char *where,
                          const char *why)
{
    bt_config_complain(store, "%s is not served: %s", where, why);
    return BT_ERR_INVALID_PARAM;
}

/* Sets the row's options that the program has. */
static bt_status_t set(bt_config_store_t *store, const row_t *row,
                       const char *value, const char *where)
{
    const bt_option_t *option = NULL;
    bool is_set = false;

    for (size_t i = 0; (i < MOST_OURS) && (row->ours[i] != NULL); i++) {
        bt_status_t status;

        option = bt_config_option_find(row->ours[i], strlen(row->ours[i]));
        BT_ASSERT(option != NULL);
        if ((option->programs & store->program) == 0) {
            continue;
        }
        status = bt_config_store_set(store, option, value,
                                     BT_CONFIG_COMMAND_LINE, where);
        if (status != BT_OK) {
            return status;
        }
        is_set = true;
    }
    if (is_set) {
        return BT_OK;
    }
    if (row->why[0] != '\0') {
        return refuse(store, where, row->why);
    }
    bt_config_complain(store, "%s is --%s, which %s does not have", where,
                       row->ours[0], bt_config_program_name(store->program));
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t take_fraction(bt_config_store_t *store, const row_t *row,
                                 const char *value, const char *where)
{
    char *end;
    const double share = strtod(value, &end);
    char percent[TEXT_BYTES];

    if ((value[0] == '\0') || (*end != '\0') ||
        !((share > 0) && (share <= 1))) {
        bt_config_complain(store, "%s: '%.64s' is no number above 0 up to 1",
                           where, value);
        return BT_ERR_INVALID_PARAM;
    }
    /* 0 would select the default behaviour. */
    snprintf(percent, sizeof(percent), "%u",
             (share < 0.01) ? 1u : (unsigned)(share * 100 + 1e-9));
    return set(store, row, percent, where);
}

/* A model is on one kind of processor as a whole. */
static bt_status_t take_layers(bt_config_store_t *store, const row_t *row,
                               const char *value, const char *where)
{
    static const char *const all[] = {"all", "auto", "-1", "-2"};
    bool is_all =
        (value[0] != '\0') && (strspn(value, "0123456789") == strlen(value));

    if (is_all && (strspn(value, "0") == strlen(value))) {
        return set(store, row, "cpu", where);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        is_all = is_all || (strcmp(value, all[i]) == 0);
    }
    if (!is_all) {
        bt_config_complain(store, "%s: '%.64s' is no number of layers", where,
                           value);
        return BT_ERR_INVALID_PARAM;
    }
    bt_config_note(store,
                   "%s %s: a GPU computes all layers, where there is one "
                   "(--backend auto), or none (--backend cpu)",
                   where, value);
    return set(store, row, "auto", where);
}

static bt_status_t take_kv_type(bt_config_store_t *store, const row_t *row,
                                const char *value, const char *where)
{
    static const struct {
        const char *theirs;
        const char *ours; /* NULL: default behaviour */
    } names[] = {
        {"auto", NULL},   {"bfloat16", "bf16"}, {"bf16", "bf16"},
        {"fp16", "f16"},  {"float16", "f16"},   {"fp8", "fp8"},
        {"int8", "int8"}, {"fp8_e4m3", "fp8"},  {"f16", "f16"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        if (strcmp(names[i].theirs, value) == 0) {
            return (names[i].ours == NULL)
                       ? BT_OK
                       : set(store, row, names[i].ours, where);
        }
    }
    bt_config_complain(store, "%s %.64s is not served: %s", where, value,
                       row->why);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t take_host(bt_config_store_t *store, const row_t *row,
                             const char *value, const char *where)
{
    const bt_option_t *const option =
        bt_config_option_find(row->ours[0], strlen(row->ours[0]));

    if ((option->programs & store->program) == 0) {
        return set(store, row, value, where); /* which says so */
    }
    if ((value[0] == '\0') || (strlen(value) >= BT_CONFIG_TRITON_BYTES)) {
        bt_config_complain(store, "%s: '%.64s' is no host", where, value);
        return BT_ERR_INVALID_PARAM;
    }
    snprintf(store->triton_hosts[0], BT_CONFIG_TRITON_BYTES, "%s", value);
    store->says_host = true;
    return BT_OK;
}

static bt_status_t take(bt_config_store_t *store, const row_t *row,
                        const char *value, const char *where)
{
    switch (row->fate) {
    case AS:
        return set(store, row, value, where);
    case HOST:
        return take_host(store, row, value, where);
    case FRACTION:
        return take_fraction(store, row, value, where);
    case LAYERS:
        return take_layers(store, row, value, where);
    case KV_TYPE:
        return take_kv_type(store, row, value, where);
    case ON:
        return set(store, row, "on", where);
    case OFF:
        return set(store, row, "off", where);
    case AUTO:
        if (strcmp(value, "auto") == 0) {
            return BT_OK;
        }
        bt_config_complain(store, "%s %.64s is not served: %s", where, value,
                           row->why);
        return BT_ERR_INVALID_PARAM;
    default:
        bt_config_note(store, "%s has no effect: %s", where, row->why);
        return BT_OK;
    }
}

static bool has_value(fate_t fate)
{
    return (fate != ON) && (fate != OFF) && (fate != NO_WORD) &&
           (fate != REFUSED);
}

bt_status_t bt_config_synonyms_take(bt_config_store_t *store, const char *arg,
                                    const char *next, bool *used_p)
{
    const size_t n = strcspn(arg, "=");
    const row_t *const row = find(arg, n);
    const char *value = (arg[n] == '=') ? arg + n + 1 : NULL;
    char where[TEXT_BYTES];

    BT_ASSERT(row != NULL);
    *used_p = false;
    snprintf(where, sizeof(where), "%.*s", (int)n, arg);
    if (row->fate == REFUSED) {
        /* The next argument is its value, if any: never printed. */
        *used_p = (value == NULL) && (next != NULL) && (next[0] != '-');
        return refuse(store, where, row->why);
    }
    if ((value != NULL) && !has_value(row->fate)) {
        bt_config_complain(store, "%s takes no value", where);
        return BT_ERR_INVALID_PARAM;
    }
    if ((value == NULL) && has_value(row->fate)) {
        if ((next == NULL) || (strncmp(next, "--", 2) == 0)) {
            bt_config_complain(store, "%s needs a value", where);
            return BT_ERR_INVALID_PARAM;
        }
        value = next;
        *used_p = true;
    }
    return take(store, row, value, where);
}
