/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/peft.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/hf/hf_priv.h"

#define CONFIG_NAME  "adapter_config.json"
#define WEIGHTS_NAME "adapter_model.safetensors"
#define PREFIX       "base_model.model."
#define A_TAIL       ".lora_A.weight"
#define B_TAIL       ".lora_B.weight"
#define WHY_BYTES    400
#define MAX_TENSORS  16384u

struct bt_peft {
    bt_folder_t folder;
    bt_folder_json_t config;
    bt_folder_file_t file;
    bt_safetensors_t st;
    bt_peft_module_t *modules;
    uint32_t n_modules;
    double alpha;
    bool rslora;
    const bt_json_node_t *alphas; /* alpha_pattern; NULL: none */
    char *why;
    size_t why_bytes;
};

static bt_status_t fail(bt_peft_t *peft, bt_status_t status, const char *fmt,
                        ...) __attribute__((format(printf, 3, 4)));

static bt_status_t fail(bt_peft_t *peft, bt_status_t status, const char *fmt,
                        ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(peft->why, peft->why_bytes, fmt, args);
    va_end(args);
    return status;
}

static const bt_json_node_t *setting(const bt_peft_t *peft, const char *name)
{
    return bt_hf_not_null(
        bt_json_get(peft->config.doc, peft->config.root, name));
}

/* ---- adapter_config.json ---- */

/* Settings that change nothing in what is computed with the saved tensors, or
 * are read here. */
static const char *const known[] = {
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out", /* matrices of adapters are not transposed */
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern", /* ranks are those of the tensors */
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_rslora",
};

/* True where a setting is off: null, false, or empty. */
static bool is_off(const bt_json_node_t *node)
{
    switch (node->kind) {
    case BT_JSON_NULL:
    case BT_JSON_FALSE:
        return true;
    case BT_JSON_ARRAY:
    case BT_JSON_OBJECT:
        return node->n == 0;
    default:
        return false;
    }
}

static bool is_known(const bt_json_node_t *key)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        if (bt_json_is(key, known[i])) {
            return true;
        }
    }
    return false;
}

/* Refuses what is switched on and not known here, such as use_dora, lora_bias,
 * modules_to_save, target_parameters, trainable_token_indices,
 * alora_invocation_tokens and layer_replication. */
static bt_status_t check_settings(bt_peft_t *peft)
{
    const bt_json_node_t *const root = peft->config.root;
    const bt_json_node_t *key = (root->n > 0) ? bt_json_first(root) : root;

    for (uint32_t i = 0; i < root->n; i++) {
        if (!is_known(key) && !is_off(key + 1)) {
            return fail(peft, BT_ERR_UNSUPPORTED,
                        CONFIG_NAME ": %s is not supported; its effect would "
                                    "be missing",
                        bt_printable(key->text, key->len).text);
        }
        key = bt_json_next(peft->config.doc, key + 1);
    }
    return BT_OK;
}

/* Initializations that change the base model's weights leave them changed. */
static bt_status_t check_initialization(bt_peft_t *peft)
{
    const bt_json_node_t *const how = setting(peft, "init_lora_weights");

    if ((how == NULL) || bt_json_is_bool(how) || bt_json_is(how, "gaussian") ||
        bt_json_is(how, "eva") || bt_json_is(how, "orthogonal")) {
        return BT_OK;
    }
    return fail(peft, BT_ERR_UNSUPPORTED,
                CONFIG_NAME ": init_lora_weights %s is of adapters to other "
                            "base weights; save it converted to plain LoRA",
                bt_hf_printable(how).text);
}

static bt_status_t read_config(bt_peft_t *peft)
{
    char reason[WHY_BYTES] = "";
    const bt_json_node_t *node;
    bt_status_t status =
        bt_folder_read_json(&peft->folder, CONFIG_NAME, BT_HF_CONFIG_BYTES,
                            reason, sizeof(reason), &peft->config);

    if (status != BT_OK) {
        return fail(peft, status, "%s", reason);
    }
    if (peft->config.root == NULL) {
        return fail(peft, BT_ERR_NOT_FOUND,
                    "the folder has no " CONFIG_NAME
                    ", so it is not an adapter's");
    }
    node = setting(peft, "peft_type");
    if (!bt_json_is(node, "LORA")) {
        return fail(peft, BT_ERR_UNSUPPORTED,
                    CONFIG_NAME ": peft_type %s is not supported, LORA is",
                    (node != NULL) ? bt_hf_printable(node).text : "null");
    }
    node = setting(peft, "bias");
    if ((node != NULL) && !bt_json_is(node, "none")) {
        return fail(peft, BT_ERR_UNSUPPORTED,
                    CONFIG_NAME ": bias %s is not supported, none is",
                    bt_hf_printable(node).text);
    }
    status = check_settings(peft);
    if (status == BT_OK) {
        status = check_initialization(peft);
    }
    if (status != BT_OK) {
        return status;
    }
    peft->rslora = bt_json_is_kind(setting(peft, "use_rslora"), BT_JSON_TRUE);
    peft->alphas = setting(peft, "alpha_pattern");
    if (bt_json_size(peft->alphas, BT_JSON_OBJECT) == 0) {
        peft->alphas = NULL;
    }
    if (!bt_json_as_double(setting(peft, "lora_alpha"), &peft->alpha)) {
        return fail(peft, BT_ERR_BAD_FILE,
                    CONFIG_NAME ": lora_alpha is not a number");
    }
    return BT_OK;
}

/* ---- the scale of a module ---- */

/* Matches as PEFT does, (.*\.)?(KEY)$, for keys whose dots are the only
 * wildcards. */
static bool matches(const bt_json_node_t *key, bt_gguf_str_t name)
{
    const char *text = key->text;
    size_t len = key->len;
    bool whole = false;
    size_t at;

    if ((len > 0) && (text[0] == '^')) {
        whole = true;
        text++;
        len--;
    }
    if ((len > 0) && (text[len - 1] == '$')) {
        len--;
    }
    if ((len > name.len) || (whole && (len != name.len))) {
        return false;
    }
    at = name.len - len;
    if ((at > 0) && (name.data[at - 1] != '.')) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if ((text[i] != '.') && (text[i] != name.data[at + i])) {
            return false;
        }
    }
    return true;
}

static bool is_plain(const bt_json_node_t *key)
{
    for (size_t i = 0; i < key->len; i++) {
        const bool at_end = ((key->text[i] == '^') && (i == 0)) ||
                            ((key->text[i] == '$') && (i + 1 == key->len));

        if (!at_end && (strchr("\\^$*+?{}[]()|", key->text[i]) != NULL)) {
            return false;
        }
    }
    return true;
}

static bt_status_t find_alpha(bt_peft_t *peft, bt_gguf_str_t name,
                              double *alpha_p)
{
    const bt_json_node_t *key;

    *alpha_p = peft->alpha;
    if (peft->alphas == NULL) {
        return BT_OK;
    }
    key = bt_json_first(peft->alphas);
    for (uint32_t i = 0; i < peft->alphas->n; i++) {
        if (!is_plain(key)) {
            return fail(peft, BT_ERR_UNSUPPORTED,
                        CONFIG_NAME ": alpha_pattern %s is a pattern that is "
                                    "not supported",
                        bt_printable(key->text, key->len).text);
        }
        if (matches(key, name)) {
            return bt_json_as_double(key + 1, alpha_p)
                       ? BT_OK
                       : fail(peft, BT_ERR_BAD_FILE,
                              CONFIG_NAME ": alpha_pattern %s is not a number",
                              bt_printable(key->text, key->len).text);
        }
        key = bt_json_next(peft->config.doc, key + 1);
    }
    return BT_OK;
}

static bt_status_t set_scale(bt_peft_t *peft, bt_peft_module_t *module)
{
    const double rank = (double)module->a->dims[0];
    double alpha;
    bt_status_t status = find_alpha(peft, module->name, &alpha);

    if (status != BT_OK) {
        return status;
    }
    module->scale = (float)(alpha / (peft->rslora ? sqrt(rank) : rank));
    return isfinite(module->scale)
               ? BT_OK
               : fail(peft, BT_ERR_BAD_FILE,
                      CONFIG_NAME ": lora_alpha is not a finite number");
}

/* ---- adapter_model.safetensors ---- */

static bool cut_name(bt_gguf_str_t name, const char *tail,
                     bt_gguf_str_t *module_p)
{
    const size_t n_head = strlen(PREFIX);
    const size_t n_tail = strlen(tail);

    if ((name.len <= n_head + n_tail) ||
        (memcmp(name.data, PREFIX, n_head) != 0) ||
        (memcmp(name.data + name.len - n_tail, tail, n_tail) != 0)) {
        return false;
    }
    *module_p = (bt_gguf_str_t){.data = name.data + n_head,
                                .len = name.len - n_head - n_tail};
    return true;
}

static bt_peft_module_t *find_module(bt_peft_t *peft, bt_gguf_str_t name)
{
    for (uint32_t i = 0; i < peft->n_modules; i++) {
        bt_peft_module_t *const m = &peft->modules[i];

        if ((m->name.len == name.len) &&
            (memcmp(m->name.data, name.data, name.len) == 0)) {
            return m;
        }
    }
    return NULL;
}

static bt_status_t take_tensor(bt_peft_t *peft, const bt_st_tensor_t *t)
{
    const bt_printable_t shown = bt_printable(t->name.data, t->name.len);
    bt_gguf_str_t name;
    bt_peft_module_t *module;
    bool is_a;

    is_a = cut_name(t->name, A_TAIL, &name);
    if (!is_a && !cut_name(t->name, B_TAIL, &name)) {
        return fail(peft, BT_ERR_UNSUPPORTED,
                    "tensor %s is no matrix of LoRA; its effect would be "
                    "missing",
                    shown.text);
    }
    if ((t->n_dims != 2) || (t->n_elems == 0) || (t->dims[0] > UINT32_MAX) ||
        (t->dims[1] > UINT32_MAX)) {
        return fail(peft, BT_ERR_BAD_FILE, "tensor %s is not a matrix",
                    shown.text);
    }
    if ((t->dtype != BT_ST_F32) && (t->dtype != BT_ST_F16) &&
        (t->dtype != BT_ST_BF16)) {
        return fail(peft, BT_ERR_UNSUPPORTED,
                    "tensor %s has the dtype %s; F32, F16 and BF16 are "
                    "supported",
                    shown.text, bt_st_dtype_name(t->dtype));
    }
    module = find_module(peft, name);
    if (module == NULL) {
        module = &peft->modules[peft->n_modules++];
        module->name = name;
    }
    if (is_a) {
        module->a = t;
    } else {
        module->b = t;
    }
    return BT_OK;
}

static bt_status_t finish_module(bt_peft_t *peft, bt_peft_module_t *module)
{
    const bt_printable_t shown =
        bt_printable(module->name.data, module->name.len);

    if ((module->a == NULL) || (module->b == NULL)) {
        return fail(peft, BT_ERR_BAD_FILE, "module %s has no %s", shown.text,
                    (module->a == NULL) ? "lora_A" : "lora_B");
    }
    if (module->a->dims[0] != module->b->dims[1]) {
        return fail(peft, BT_ERR_BAD_FILE,
                    "module %s: lora_A has %" PRIu64 " rows and lora_B %" PRIu64
                    " columns",
                    shown.text, module->a->dims[0], module->b->dims[1]);
    }
    return set_scale(peft, module);
}

static bt_status_t map_weights(bt_peft_t *peft)
{
    char reason[WHY_BYTES] = "";
    bt_status_t status = bt_folder_map(&peft->folder, WEIGHTS_NAME, reason,
                                       sizeof(reason), &peft->file);

    if (status != BT_OK) {
        peft->file.fd = -1;
        return fail(peft, status, "%s%s", reason,
                    (status == BT_ERR_NOT_FOUND)
                        ? " (pickled adapters, .bin, are not read)"
                        : "");
    }
    status = bt_safetensors_parse(
        (peft->file.base != NULL) ? peft->file.base : "", peft->file.bytes,
        reason, sizeof(reason), &peft->st);
    return (status == BT_OK) ? BT_OK
                             : fail(peft, status, WEIGHTS_NAME ": %s", reason);
}

static bt_status_t read_weights(bt_peft_t *peft)
{
    bt_status_t status = map_weights(peft);

    if (status != BT_OK) {
        return status;
    }
    if ((peft->st.n == 0) || (peft->st.n > MAX_TENSORS)) {
        return fail(peft, BT_ERR_BAD_FILE,
                    WEIGHTS_NAME " has %u tensors; 1 to %u are read",
                    peft->st.n, MAX_TENSORS);
    }
    peft->modules = bt_calloc(peft->st.n, sizeof(*peft->modules));
    if (peft->modules == NULL) {
        return fail(peft, BT_ERR_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < peft->st.n); i++) {
        status = take_tensor(peft, &peft->st.tensors[i]);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < peft->n_modules); i++) {
        status = finish_module(peft, &peft->modules[i]);
    }
    return status;
}

/* ---- all of it ---- */

static bt_status_t open_any(const char *path, const bt_folder_entry_t *entries,
                            uint32_t n, char *why, size_t why_bytes,
                            bt_peft_t **peft_p)
{
    bt_peft_t *const peft = bt_calloc(1, sizeof(*peft));
    bt_status_t status = BT_OK;

    if (peft == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    peft->file.fd = -1;
    peft->why = why;
    peft->why_bytes = why_bytes;
    if (path != NULL) {
        status = bt_folder_init(&peft->folder, path, why, why_bytes);
    } else {
        bt_folder_init_memory(&peft->folder, entries, n);
    }
    if (status == BT_OK) {
        status = read_config(peft);
    }
    if (status == BT_OK) {
        status = read_weights(peft);
    }
    if (status != BT_OK) {
        bt_peft_close(peft);
        return status;
    }
    *peft_p = peft;
    return BT_OK;
}

bt_status_t bt_peft_open(const char *path, char *why, size_t why_bytes,
                         bt_peft_t **peft_p)
{
    return open_any(path, NULL, 0, why, why_bytes, peft_p);
}

bt_status_t bt_peft_open_memory(const bt_folder_entry_t *entries, uint32_t n,
                                char *why, size_t why_bytes, bt_peft_t **peft_p)
{
    return open_any(NULL, entries, n, why, why_bytes, peft_p);
}

void bt_peft_close(bt_peft_t *peft)
{
    if (peft == NULL) {
        return;
    }
    bt_free(peft->modules);
    bt_safetensors_fini(&peft->st);
    bt_folder_unmap(&peft->file);
    bt_folder_json_fini(&peft->config);
    bt_free(peft);
}

const bt_peft_module_t *bt_peft_modules(const bt_peft_t *peft, uint32_t *n_p)
{
    *n_p = peft->n_modules;
    return peft->modules;
}
