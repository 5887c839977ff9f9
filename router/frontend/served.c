/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/served.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "common/base/strbuf.h"

#define WHY_BYTES           512
#define TEMPLATE_FILE_LIMIT (1u << 20)

static void set_name(bt_served_t *served, const bt_config_t *config)
{
    bt_gguf_str_t name = {0};
    size_t n = 0;

    if (config->model_name[0] != '\0') {
        name.data = config->model_name;
        name.len = strlen(config->model_name);
    } else if (bt_gguf_get_str(served->gguf, "general.name", &name) != BT_OK) {
        name.len = 0;
    }
    for (size_t i = 0; (i < name.len) && (n + 1 < sizeof(served->name)); i++) {
        const char c = name.data[i];

        /* A name that goes into paths, headers, logs and metrics. */
        if ((c > ' ') && (c < 0x7f) && (c != '/') && (c != '"') &&
            (c != '\\')) {
            served->name[n++] = c;
        } else if ((c == ' ') || (c == '/')) {
            served->name[n++] = '-';
        }
    }
    served->name[n] = '\0';
    if (n == 0) {
        snprintf(served->name, sizeof(served->name), "model");
    }
}

static bt_status_t read_context(bt_served_t *served, const bt_config_t *config)
{
    bt_gguf_str_t arch = {0};
    char key[128];
    bt_status_t status =
        bt_gguf_get_str(served->gguf, "general.architecture", &arch);

    if (status == BT_OK) {
        snprintf(key, sizeof(key), "%.*s.context_length",
                 (arch.len < 64) ? (int)arch.len : 64, arch.data);
        status = bt_gguf_get_u32(served->gguf, key, &served->context_tokens);
    }
    if ((status != BT_OK) || (served->context_tokens == 0)) {
        BT_LOG_ERROR("model %s: no context length in the file", config->model);
        return BT_ERR_BAD_FILE;
    }
    if (config->context_tokens > served->context_tokens) {
        BT_LOG_ERROR("context-tokens %u exceeds the model's %u",
                     config->context_tokens, served->context_tokens);
        return BT_ERR_INVALID_PARAM;
    }
    if (config->context_tokens != 0) {
        served->context_tokens = config->context_tokens;
    }
    return BT_OK;
}

static bt_status_t read_file(const char *path, bt_strbuf_t *out)
{
    FILE *file = fopen(path, "re");
    char piece[4096];
    size_t n;

    if (file == NULL) {
        return BT_ERR_NOT_FOUND;
    }
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0) {
        bt_strbuf_append(out, piece, n);
    }
    if (ferror(file) != 0) {
        out->status = BT_ERR_IO;
    }
    fclose(file);
    return bt_strbuf_status(out);
}

/* --chat-template: the name of a family, or a file with a Jinja template that
 * is recognised. */
static bt_status_t chosen_template(const char *option,
                                   const bt_chat_template_t **chat_p)
{
    const bt_chat_template_t *chat = bt_chat_template_by_name(option);
    bt_strbuf_t text;
    bt_status_t status;

    if (chat != NULL) {
        *chat_p = chat;
        return BT_OK;
    }
    bt_strbuf_init(&text, TEMPLATE_FILE_LIMIT);
    status = read_file(option, &text);
    if (status == BT_ERR_NOT_FOUND) {
        BT_LOG_ERROR("chat-template %s is neither a file nor one of %s", option,
                     bt_chat_template_names());
    } else if (status != BT_OK) {
        BT_LOG_ERROR("chat-template %s: %s", option, bt_status_str(status));
    } else {
        chat = (text.len > 0) ? bt_chat_template_recognise(text.data, text.len)
                              : NULL;
        if (chat == NULL) {
            BT_LOG_ERROR("chat-template %s is not recognised; the families "
                         "are %s",
                         option, bt_chat_template_names());
            status = BT_ERR_UNSUPPORTED;
        } else {
            *chat_p = chat;
        }
    }
    bt_strbuf_fini(&text);
    return status;
}

static bt_status_t find_template(bt_served_t *served, const bt_config_t *config)
{
    bt_gguf_str_t jinja = {0};

    if (config->chat_template[0] != '\0') {
        return chosen_template(config->chat_template, &served->chat);
    }
    if (bt_gguf_get_str(served->gguf, "tokenizer.chat_template", &jinja) ==
        BT_OK) {
        served->chat = bt_chat_template_recognise(jinja.data, jinja.len);
    }
    if (served->chat == NULL) {
        BT_LOG_INFO("the model file's chat template is %s; chat requests need "
                    "--chat-template",
                    (jinja.len == 0) ? "missing" : "not recognised");
    }
    return BT_OK;
}

bt_status_t bt_served_load(const bt_config_t *config, bt_served_t *served_p)
{
    bt_served_t served = {0};
    char why[WHY_BYTES] = "";
    struct stat info;
    bt_status_t status;

    if (config->model[0] == '\0') {
        BT_LOG_ERROR("no model given: use --model PATH");
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_gguf_open(config->model, why, sizeof(why), &served.gguf);
    if (status == BT_OK) {
        status = bt_tokenizer_load(served.gguf, why, sizeof(why), &served.tok);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: %s", config->model, why);
        goto err_served;
    }
    status = read_context(&served, config);
    if (status != BT_OK) {
        goto err_served;
    }
    status = find_template(&served, config);
    if (status != BT_OK) {
        goto err_served;
    }
    set_name(&served, config);
    served.identity = bt_gguf_identity(served.gguf);
    if (stat(config->model, &info) == 0) {
        served.created = info.st_mtim.tv_sec;
    }
    *served_p = served;
    return BT_OK;

err_served:
    bt_served_close(&served);
    return status;
}

void bt_served_close(bt_served_t *served)
{
    bt_tokenizer_destroy(served->tok);
    bt_gguf_close(served->gguf);
    served->tok = NULL;
    served->gguf = NULL;
}

bool bt_served_is_named(const bt_served_t *served, const char *name)
{
    return (strcmp(name, served->name) == 0) ||
           (strcmp(name, "ensemble") == 0) ||
           (strcmp(name, "tensorrt_llm_bls") == 0);
}
