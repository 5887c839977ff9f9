/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options: parsed, checked and printed. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/config/config_options.h"

#define HOST_BYTES 256
#define WHY_BYTES  160
#define HOUR_MS    3600000u

/* Powers of 1024, whatever they are called: memory is not sold by powers of
 * 1000, and 2g, 2GB and 2GiB of one command line should not be two sizes. */
static const struct {
    const char *suffix;
    unsigned shift;
} size_units[] = {
    {"", 0},     {"b", 0},   {"k", 10},   {"kb", 10},  {"kib", 10},
    {"m", 20},   {"mb", 20}, {"mib", 20}, {"g", 30},   {"gb", 30},
    {"gib", 30}, {"t", 40},  {"tb", 40},  {"tib", 40},
};

/* Parses digits only. @return the first character after them, NULL when
 * there are none or the number does not fit. */
static const char *parse_digits(const char *text, uint64_t *number_p)
{
    uint64_t number = 0;
    const char *c = text;

    for (; (*c >= '0') && (*c <= '9'); c++) {
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*c - '0'), &number)) {
            return NULL;
        }
    }
    if (c == text) {
        return NULL;
    }
    *number_p = number;
    return c;
}

static bt_status_t parse_size(const char *text, uint64_t *number_p)
{
    uint64_t number;
    const char *rest = parse_digits(text, &number);

    if (rest == NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    rest += strspn(rest, " "); /* "2 GB" */
    for (size_t i = 0; i < BT_ARRAY_LEN(size_units); i++) {
        if (strcasecmp(rest, size_units[i].suffix) == 0) {
            if (__builtin_mul_overflow(
                    number, UINT64_C(1) << size_units[i].shift, number_p)) {
                return BT_ERR_INVALID_PARAM;
            }
            return BT_OK;
        }
    }
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t parse_flag(const char *text, uint64_t *number_p)
{
    static const char *const words[] = {"no",  "yes", "false", "true",
                                        "off", "on",  "0",     "1"};

    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *number_p = i % 2;
            return BT_OK;
        }
    }
    return BT_ERR_INVALID_PARAM;
}

/* The word of "a, b, c" that text is, in letters of either case; or NULL. */
static const char *find_choice(const char *choices, const char *text)
{
    const size_t n = strlen(text);

    for (const char *c = choices; *c != '\0';) {
        const size_t n_word = strcspn(c, ",");

        if ((n_word == n) && (strncasecmp(c, text, n) == 0)) {
            return c;
        }
        c += n_word;
        c += strspn(c, ", ");
    }
    return NULL;
}

void bt_config_value_spell(const bt_option_t *option, char *text)
{
    const char *const word = (option->type == BT_OPTION_CHOICE)
                                 ? find_choice(option->choices, text)
                                 : NULL;

    if (word != NULL) {
        memcpy(text, word, strlen(text));
    }
}

static bt_status_t parse_number(const bt_option_t *option, const char *text,
                                uint64_t *number_p, char *reason, size_t bytes)
{
    const bool is_size =
        (option->type == BT_OPTION_SIZE) || (option->type == BT_OPTION_SIZE32);
    const char *const space = (option->unit[0] == '\0') ? "" : " ";
    uint64_t number = 0;
    const bool ok = is_size ? (parse_size(text, &number) == BT_OK)
                            : bt_parse_u64(text, &number);

    if (ok && (number >= option->min) && (number <= option->max)) {
        *number_p = number;
        return BT_OK;
    }

    if (is_size) {
        snprintf(reason, bytes,
                 "'%s' is not a size from %" PRIu64 " to %" PRIu64
                 " bytes, written like 512m, 2g or 2GB",
                 text, option->min, option->max);
    } else {
        snprintf(reason, bytes,
                 "'%s' is not a whole number from %" PRIu64 " to %" PRIu64
                 "%s%s",
                 text, option->min, option->max, space, option->unit);
    }
    return BT_ERR_INVALID_PARAM;
}

/* Targets of models: `--model-targets NAME=TTFT/ITL,...`. */
typedef struct targets {
    const char *name; /* inside the option's text */
    size_t n_name;
    uint32_t ttft_ms, itl_ms;
} targets_t;

/* Parses a whole number of ms up to most. @return what is behind it, or NULL */
static const char *read_ms(const char *text, uint32_t most, uint32_t *ms_p)
{
    uint64_t ms;
    const char *const rest = parse_digits(text, &ms);

    if ((rest == NULL) || (ms > most)) {
        return NULL;
    }
    *ms_p = (uint32_t)ms;
    return rest;
}

/* Parses the first entry of a text that is not empty. @return false: invalid;
 * else @a text_p is behind the entry and its comma */
static bool next_targets(const char **text_p, targets_t *targets_p)
{
    targets_t targets = {.name = *text_p};
    const char *text = strchr(targets.name, '=');

    if (text == NULL) {
        return false;
    }
    targets.n_name = (size_t)(text - targets.name);
    if (!bt_config_is_model_name(targets.name, targets.n_name)) {
        return false;
    }
    text = read_ms(text + 1, 24 * HOUR_MS, &targets.ttft_ms);
    if ((text == NULL) || (*text != '/')) {
        return false;
    }
    text = read_ms(text + 1, HOUR_MS, &targets.itl_ms);
    if ((text == NULL) || ((*text != ',') && (*text != '\0')) ||
        ((text[0] == ',') && (text[1] == '\0'))) {
        return false;
    }
    *text_p = text + ((*text == ',') ? 1 : 0);
    *targets_p = targets;
    return true;
}

static bool are_adapters(const char *text)
{
    const size_t n = strlen(text);
    bt_config_adapter_t adapter;
    bt_status_t status = BT_OK;

    if ((n > 0) && (text[n - 1] == ';')) {
        return false; /* what is appended would come behind an empty one */
    }
    while (status == BT_OK) {
        status = bt_config_adapter_next(&text, &adapter);
    }
    return status == BT_ERR_NOT_FOUND;
}

bt_status_t bt_config_value_parse(const bt_option_t *option, const char *text,
                                  bt_option_value_t *value_p, char *reason,
                                  size_t bytes)
{
    bt_option_value_t value = {.number = 0, .text = text};
    char host[HOST_BYTES];
    targets_t targets;
    bt_config_sampling_t sampling;
    char why[WHY_BYTES];
    const char *path;
    uint16_t port;

    switch (option->type) {
    case BT_OPTION_TEXT:
        break;
    case BT_OPTION_MODELS:
        if ((bt_config_model_split(text, &path) != 0) && (path[0] == '\0')) {
            snprintf(reason, bytes, "'%s' names no file", text);
            return BT_ERR_INVALID_PARAM;
        }
        break;
    case BT_OPTION_TARGETS:
        for (const char *rest = text; *rest != '\0';) {
            if (!next_targets(&rest, &targets)) {
                snprintf(reason, bytes,
                         "'%s' is not NAME=TTFT/ITL, in ms, such as "
                         "small=500/30,large=2000/60",
                         text);
                return BT_ERR_INVALID_PARAM;
            }
        }
        break;
    case BT_OPTION_ADAPTERS:
        if (!are_adapters(text)) {
            snprintf(reason, bytes,
                     "'%s' is not NAME=PATH, a name as a model has it and the "
                     "path of a LoRA adapter",
                     text);
            return BT_ERR_INVALID_PARAM;
        }
        break;
    case BT_OPTION_SAMPLING:
        if (bt_config_sampling_read(text, &sampling, why, sizeof(why)) !=
            BT_OK) {
            snprintf(reason, bytes, "'%s': %s", text, why);
            return BT_ERR_INVALID_PARAM;
        }
        break;
    case BT_OPTION_SWITCH:
        if (parse_flag(text, &value.number) == BT_OK) {
            value.text = (value.number != 0) ? "on" : "off";
        }
        if (find_choice(option->choices, value.text) == NULL) {
            snprintf(reason, bytes, "'%s' is not one of: %s", text,
                     option->choices);
            return BT_ERR_INVALID_PARAM;
        }
        break;
    case BT_OPTION_CHOICE:
        if (find_choice(option->choices, text) == NULL) {
            snprintf(reason, bytes, "'%s' is not one of: %s", text,
                     option->choices);
            return BT_ERR_INVALID_PARAM;
        }
        break;
    case BT_OPTION_ADDRESS:
        if (bt_config_split_address(text, host, sizeof(host), &port) != BT_OK) {
            snprintf(reason, bytes,
                     "'%s' is not ADDR:PORT, such as 127.0.0.1:8000 or "
                     "[::1]:8000",
                     text);
            return BT_ERR_INVALID_PARAM;
        }
        break;
    case BT_OPTION_FLAG:
        if (parse_flag(text, &value.number) != BT_OK) {
            snprintf(reason, bytes, "'%s' is not yes or no", text);
            return BT_ERR_INVALID_PARAM;
        }
        break;
    case BT_OPTION_COUNT:
    case BT_OPTION_PORT:
    case BT_OPTION_SIZE:
    case BT_OPTION_SIZE32:
        if (parse_number(option, text, &value.number, reason, bytes) != BT_OK) {
            return BT_ERR_INVALID_PARAM;
        }
        break;
    }
    *value_p = value;
    return BT_OK;
}

void bt_config_value_print(const bt_option_t *option, uint64_t number,
                           bt_strbuf_t *out)
{
    static const char letters[] = "kmgt";
    size_t unit = 0; /* how many times 1024 was divided out */

    if (option->type == BT_OPTION_FLAG) {
        bt_strbuf_puts(out, (number != 0) ? "yes" : "no");
        return;
    }
    if ((option->type == BT_OPTION_SIZE) ||
        (option->type == BT_OPTION_SIZE32)) {
        while ((number != 0) && (number % 1024 == 0) &&
               (unit < sizeof(letters) - 1)) {
            number /= 1024;
            unit++;
        }
    }
    bt_strbuf_printf(out, "%" PRIu64, number);
    if (unit > 0) {
        bt_strbuf_append(out, &letters[unit - 1], 1);
    }
}

static bt_status_t parse_port(const char *text, uint16_t *port_p)
{
    uint64_t port;

    if ((strlen(text) > 5) || !bt_parse_u64(text, &port) ||
        (port > UINT16_MAX)) {
        return BT_ERR_INVALID_PARAM;
    }
    *port_p = (uint16_t)port;
    return BT_OK;
}

bt_status_t bt_config_split_ports(const char *text, uint16_t *first_p,
                                  uint16_t *last_p)
{
    const char *const dash = strchr(text, '-');
    char first_text[8] = "";
    uint16_t first, last;

    if (text[0] == '\0') {
        *first_p = *last_p = 0;
        return BT_OK;
    }
    if ((dash == NULL) || ((size_t)(dash - text) >= sizeof(first_text))) {
        return BT_ERR_INVALID_PARAM;
    }
    memcpy(first_text, text, (size_t)(dash - text));
    if ((parse_port(first_text, &first) != BT_OK) ||
        (parse_port(dash + 1, &last) != BT_OK) || (first == 0) ||
        (first > last)) {
        return BT_ERR_INVALID_PARAM;
    }
    *first_p = first;
    *last_p = last;
    return BT_OK;
}

bt_status_t bt_config_split_address(const char *text, char *host,
                                    size_t host_bytes, uint16_t *port_p)
{
    const char *const colon = strrchr(text, ':');
    const char *start = text;
    size_t n;

    if (colon == NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    n = (size_t)(colon - text);
    if (text[0] == '[') {
        if ((n < 3) || (text[n - 1] != ']')) {
            return BT_ERR_INVALID_PARAM;
        }
        start++;
        n -= 2;
    } else if (memchr(text, ':', n) != NULL) {
        return BT_ERR_INVALID_PARAM; /* a bare IPv6 address is ambiguous */
    }
    if ((n == 0) || (n >= host_bytes) || (memchr(start, '[', n) != NULL) ||
        (memchr(start, ']', n) != NULL) || (memchr(start, '/', n) != NULL) ||
        (memchr(start, ' ', n) != NULL)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (parse_port(colon + 1, port_p) != BT_OK) {
        return BT_ERR_INVALID_PARAM;
    }
    memcpy(host, start, n);
    host[n] = '\0';
    return BT_OK;
}

bool bt_config_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, host, &v4) == 1) {
        return (ntohl(v4.s_addr) >> 24) == 127;
    }
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6) ||
               (IN6_IS_ADDR_V4MAPPED(&v6) && (v6.s6_addr[12] == 127));
    }
    return strcasecmp(host, "localhost") == 0;
}

void bt_config_model_targets(const bt_config_t *config, const char *model,
                             uint32_t *ttft_ms_p, uint32_t *itl_ms_p)
{
    const char *text = config->model_targets;
    targets_t targets;

    *ttft_ms_p = config->ttft_target_ms;
    *itl_ms_p = config->itl_target_ms;
    while ((*text != '\0') && next_targets(&text, &targets)) {
        if ((strlen(model) == targets.n_name) &&
            (memcmp(model, targets.name, targets.n_name) == 0)) {
            *ttft_ms_p = targets.ttft_ms;
            *itl_ms_p = targets.itl_ms;
        }
    }
}

/* Sampling that a model's requests have by default:
 * `--override-generation-config JSON`, an option of vLLM. */

typedef struct field {
    const char *name;
    double min, max;
    size_t value; /* a double of bt_config_sampling_t */
    size_t said;  /* its has_* member */
} field_t;

#define FIELD(name, min, max)                                      \
    {                                                              \
#name, (min), (max), offsetof(bt_config_sampling_t, name), \
            offsetof(bt_config_sampling_t, has_##name)             \
    }

static const field_t fields[] = {
    FIELD(temperature, 0.0, 100.0),
    FIELD(top_p, 1e-6, 1.0),
    FIELD(top_k, 0.0, 1e6),
    FIELD(min_p, 0.0, 1.0),
    FIELD(repetition_penalty, 0.01, 100.0),
};

static const field_t *find(const bt_json_node_t *key)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(fields); i++) {
        if (bt_json_is(key, fields[i].name)) {
            return &fields[i];
        }
    }
    return NULL;
}

static bt_status_t read_field(const bt_json_node_t *key,
                              const bt_json_node_t *value,
                              bt_config_sampling_t *sampling, char *why,
                              size_t bytes)
{
    const field_t *field = find(key);
    double number = 0.0;

    if (field == NULL) {
        snprintf(why, bytes,
                 "%.*s is none of temperature, top_p, top_k, min_p and "
                 "repetition_penalty",
                 (int)((key->len < 40) ? key->len : 40), key->text);
        return BT_ERR_INVALID_PARAM;
    }
    if (!bt_json_as_double(value, &number) || (number < field->min) ||
        (number > field->max)) {
        snprintf(why, bytes, "%s is not a number from %g to %g", field->name,
                 field->min, field->max);
        return BT_ERR_INVALID_PARAM;
    }
    memcpy((char *)sampling + field->value, &number, sizeof(number));
    *((bool *)((char *)sampling + field->said)) = true;
    return BT_OK;
}

bt_status_t bt_config_sampling_read(const char *text,
                                    bt_config_sampling_t *sampling_p, char *why,
                                    size_t why_bytes)
{
    bt_config_sampling_t sampling = {0};
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *root, *key;
    bt_status_t status = BT_OK;

    if (text[0] == '\0') {
        *sampling_p = sampling;
        return BT_OK;
    }
    if (bt_json_doc_parse(text, strlen(text), why, why_bytes, &doc) != BT_OK) {
        return BT_ERR_INVALID_PARAM;
    }
    root = bt_json_doc_root(doc);
    if (!bt_json_is_kind(root, BT_JSON_OBJECT)) {
        snprintf(why, why_bytes, "it is no JSON object");
        status = BT_ERR_INVALID_PARAM;
    } else {
        key = bt_json_first(root);
        for (uint32_t i = 0; (i < root->n) && (status == BT_OK); i++) {
            status = read_field(key, bt_json_next(doc, key), &sampling, why,
                                why_bytes);
            key = bt_json_next(doc, bt_json_next(doc, key));
        }
    }
    bt_json_doc_free(doc);
    if (status == BT_OK) {
        *sampling_p = sampling;
    }
    return status;
}
