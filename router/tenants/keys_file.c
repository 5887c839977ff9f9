/* SPDX-License-Identifier: Apache-2.0 */
#include "router/tenants/keys_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/text.h"
#include "common/sched/sched_admit.h"

#define BLANK         " \t"
#define DEFAULT_RATES 60u /* default burst, in seconds of the rate */

/* ---- lines and words ---- */

typedef struct parse {
    bt_keys_file_t file;
    uint32_t cap_tenants, cap_keys;
    uint32_t line; /* number of the current line */
    char *names;   /* owned: tenant name of each key, NAME_BYTES each */
    char *why;
} parse_t;

__attribute__((format(printf, 2, 3))) static bt_status_t
complain(const parse_t *p, const char *fmt, ...)
{
    const int n = snprintf(p->why, BT_KEYS_WHY_BYTES, "line %u: ", p->line);
    va_list args;

    va_start(args, fmt);
    vsnprintf(p->why + n, BT_KEYS_WHY_BYTES - (size_t)n, fmt, args);
    va_end(args);
    return BT_ERR_BAD_FILE;
}

static bt_status_t no_memory(const parse_t *p)
{
    snprintf(p->why, BT_KEYS_WHY_BYTES, "out of memory");
    return BT_ERR_NO_MEMORY;
}

/* Returns the next word of a line, zero-terminated in place. @return NULL:
 * there is none */
static char *next_word(char **at_p)
{
    char *word = *at_p + strspn(*at_p, BLANK);
    char *end = word + strcspn(word, BLANK);

    if (*word == '\0') {
        return NULL;
    }
    *at_p = (*end == '\0') ? end : end + 1;
    *end = '\0';
    return word;
}

bool bt_tenant_name_is_valid(const char *name, size_t bytes)
{
    static const char also[] = "._-";

    if ((bytes == 0) || (bytes >= BT_TENANT_NAME_BYTES) || (name[0] == '.')) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        const char c = name[i];

        if (!(((c >= 'a') && (c <= 'z')) || ((c >= 'A') && (c <= 'Z')) ||
              ((c >= '0') && (c <= '9')) ||
              ((c != '\0') && (strchr(also, c) != NULL)))) {
            return false;
        }
    }
    return true;
}

static bt_status_t take_name(parse_t *p, const char *word,
                             char name[BT_TENANT_NAME_BYTES])
{
    if (word == NULL) {
        return complain(p, "the tenant's name is missing");
    }
    if (!bt_tenant_name_is_valid(word, strlen(word))) {
        return complain(
            p,
            "'%.40s' is no tenant's name: letters, digits, '.', '_' "
            "and '-', at most %d, no dot first",
            bt_printable(word, strlen(word)).text, BT_TENANT_NAME_BYTES - 1);
    }
    snprintf(name, BT_TENANT_NAME_BYTES, "%s", word);
    return BT_OK;
}

/* ---- a tenant ---- */

typedef struct field {
    const char *name;
    size_t at; /* offset in bt_tenant_limits_t of a uint32_t */
    uint32_t least, most;
} field_t;

#define FIELD(name, member, least, most)                        \
    {                                                           \
        name, offsetof(bt_tenant_limits_t, member), least, most \
    }

static const field_t fields[] = {
    FIELD("weight", weight, 1, BT_TENANT_MAX_WEIGHT),
    FIELD("tokens-per-second", rate, 1, BT_SCHED_BUCKET_MOST),
    FIELD("burst-tokens", burst, 1, BT_SCHED_BUCKET_MOST),
    FIELD("requests", requests, 1, 1000000),
    FIELD("grammar-ms-per-minute", grammar_ms, 1, BT_TENANT_MAX_GRAMMAR_MS),
    FIELD("kv-percent", kv_percent, 1, 100),
    FIELD("priority", max_priority, 0, BT_TENANT_MAX_PRIORITY),
    FIELD("ttft-target-ms", ttft_target_ms, 1, BT_TENANT_MAX_TTFT_MS),
    FIELD("itl-target-ms", itl_target_ms, 1, BT_TENANT_MAX_ITL_MS),
};

void bt_tenant_limits_init(bt_tenant_limits_t *limits)
{
    *limits = (bt_tenant_limits_t){
        .weight = 1,
        .kv_percent = 100,
        .max_priority = BT_TENANT_MAX_PRIORITY,
    };
}

static bool read_number(const char *text, uint32_t least, uint32_t most,
                        uint32_t *value_p)
{
    uint64_t value = 0;

    if (!bt_parse_u64(text, &value) || (value < least) || (value > most)) {
        return false;
    }
    *value_p = (uint32_t)value;
    return true;
}

/* Parses a field. @param [in,out] seen  bits of the fields that were present */
static bt_status_t take_field(parse_t *p, char *word, bt_keys_tenant_t *tenant,
                              uint32_t *seen)
{
    char *equals = strchr(word, '=');
    uint32_t value = 0;

    if (strcmp(word, "admin") == 0) {
        tenant->limits.admin = true;
        return BT_OK;
    }
    if (equals != NULL) {
        *equals = '\0';
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(fields); i++) {
        const field_t *f = &fields[i];

        if (strcmp(word, f->name) != 0) {
            continue;
        }
        if ((*seen & (1u << i)) != 0) {
            return complain(p, "%s is said twice", f->name);
        }
        *seen |= 1u << i;
        if ((equals == NULL) ||
            !read_number(equals + 1, f->least, f->most, &value)) {
            return complain(p, "%s is a whole number from %u to %u", f->name,
                            f->least, f->most);
        }
        memcpy((char *)&tenant->limits + f->at, &value, sizeof(value));
        return BT_OK;
    }
    return complain(
        p,
        "a tenant has no '%.40s'; it has weight, tokens-per-second, "
        "burst-tokens, requests, grammar-ms-per-minute, kv-percent, "
        "priority, ttft-target-ms, itl-target-ms and admin",
        bt_printable(word, strlen(word)).text);
}

/* Returns the line of an earlier tenant of this name; 0: it is new. */
static uint32_t line_of_tenant(const bt_keys_file_t *file, const char *name)
{
    for (uint32_t i = 0; i < file->n_tenants; i++) {
        if (strcmp(file->tenants[i].name, name) == 0) {
            return file->tenants[i].line;
        }
    }
    return 0;
}

static bt_status_t take_tenant(parse_t *p, char *rest)
{
    bt_keys_tenant_t tenant = {.line = p->line};
    bt_status_t status = take_name(p, next_word(&rest), tenant.name);
    uint32_t seen = 0;
    uint32_t before;
    char *word;

    if (status != BT_OK) {
        return status;
    }
    before = line_of_tenant(&p->file, tenant.name);
    if (before != 0) {
        return complain(p, "tenant %s is in line %u already", tenant.name,
                        before);
    }
    bt_tenant_limits_init(&tenant.limits);
    while ((word = next_word(&rest)) != NULL) {
        status = take_field(p, word, &tenant, &seen);
        if (status != BT_OK) {
            return status;
        }
    }
    if ((tenant.limits.burst > 0) && (tenant.limits.rate == 0)) {
        return complain(p, "burst-tokens goes with tokens-per-second");
    }
    if ((tenant.limits.rate > 0) && (tenant.limits.burst == 0)) {
        const uint64_t burst = (uint64_t)tenant.limits.rate * DEFAULT_RATES;

        tenant.limits.burst = (burst < BT_SCHED_BUCKET_MOST)
                                  ? (uint32_t)burst
                                  : BT_SCHED_BUCKET_MOST;
    }
    if (p->file.n_tenants == BT_KEYS_MAX_TENANTS) {
        return complain(p, "there are more than 1024 tenants");
    }
    if (!bt_array_grow(&p->file.tenants, &p->cap_tenants, p->file.n_tenants + 1,
                       sizeof(tenant))) {
        return no_memory(p);
    }
    p->file.tenants[p->file.n_tenants++] = tenant;
    return BT_OK;
}

/* ---- a key ---- */

static bool read_hash(const char *hex, uint8_t hash[BT_KEY_BYTES])
{
    if (strlen(hex) != (size_t)2 * BT_KEY_BYTES) {
        return false;
    }
    for (size_t i = 0; i < BT_KEY_BYTES; i++) {
        const int high = bt_hex_digit(hex[2 * i]);
        const int low = bt_hex_digit(hex[2 * i + 1]);

        if ((high < 0) || (low < 0)) {
            return false;
        }
        hash[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static bt_status_t take_key(parse_t *p, char *rest)
{
    static const char *const kinds[BT_KEY_N_HASHES] = {
        [BT_KEY_HASH_BLAKE2B] = "blake2b:",
        [BT_KEY_HASH_SHA256] = "sha256:",
    };
    bt_keys_entry_t key = {.line = p->line};
    char name[BT_TENANT_NAME_BYTES];
    bt_status_t status = take_name(p, next_word(&rest), name);
    const char *word;
    uint32_t cap = p->cap_keys;
    unsigned kind = 0;

    if (status != BT_OK) {
        return status;
    }
    word = next_word(&rest);
    while ((word != NULL) && (kind < BT_KEY_N_HASHES) &&
           (strncmp(word, kinds[kind], strlen(kinds[kind])) != 0)) {
        kind++;
    }
    if ((word == NULL) || (kind == BT_KEY_N_HASHES) ||
        !read_hash(word + strlen(kinds[kind]), key.hash)) {
        return complain(p,
                        "behind the tenant's name stands blake2b: or sha256: "
                        "and 64 hexadecimal digits, as baton key new prints "
                        "them");
    }
    key.kind = (bt_key_hash_kind_t)kind;
    if (p->file.n_keys == BT_KEYS_MAX_KEYS) {
        return complain(p, "there are more than 8192 keys");
    }
    if (!bt_array_grow(&p->names, &cap, p->file.n_keys + 1, sizeof(name)) ||
        !bt_array_grow(&p->file.keys, &p->cap_keys, p->file.n_keys + 1,
                       sizeof(key))) {
        return no_memory(p);
    }
    memcpy(p->names + (size_t)p->file.n_keys * sizeof(name), name,
           sizeof(name));
    key.tenant = p->file.n_keys; /* of its name, until all are known */
    p->file.keys[p->file.n_keys++] = key;
    return BT_OK;
}

/* ---- the whole ---- */

static bt_status_t take_line(parse_t *p, char *line)
{
    char *rest = line;
    const char *word = next_word(&rest);

    if ((word == NULL) || (word[0] == '#')) {
        return BT_OK;
    }
    if (strcmp(word, "tenant") == 0) {
        return take_tenant(p, rest);
    }
    if (strcmp(word, "key") == 0) {
        return take_key(p, rest);
    }
    return complain(p, "it begins with '%.40s', and not with tenant, key or #",
                    bt_printable(word, strlen(word)).text);
}

static int by_hash(const void *a, const void *b)
{
    const bt_keys_entry_t *x = a;
    const bt_keys_entry_t *y = b;
    const int order = memcmp(x->hash, y->hash, sizeof(x->hash));

    return (order != 0) ? order : (x->line > y->line) - (x->line < y->line);
}

typedef struct named {
    const char *name;
    uint32_t index;
} named_t;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named_t *)a)->name, ((const named_t *)b)->name);
}

/* Replaces the keys' tenant names by indices. */
static bt_status_t find_tenants(parse_t *p)
{
    const uint32_t n = p->file.n_tenants;
    named_t *sorted = bt_calloc((size_t)n + 1, sizeof(*sorted));
    bt_status_t status = BT_OK;

    if (sorted == NULL) {
        return no_memory(p);
    }
    for (uint32_t i = 0; i < n; i++) {
        sorted[i] = (named_t){p->file.tenants[i].name, i};
    }
    qsort(sorted, n, sizeof(*sorted), by_name);
    for (uint32_t i = 0; (i < p->file.n_keys) && (status == BT_OK); i++) {
        bt_keys_entry_t *key = &p->file.keys[i];
        const named_t wanted = {.name = p->names +
                                        (size_t)i * BT_TENANT_NAME_BYTES};
        const named_t *found =
            bsearch(&wanted, sorted, n, sizeof(*sorted), by_name);

        if (found != NULL) {
            key->tenant = found->index;
            continue;
        }
        p->line = key->line;
        status = complain(p, "no line says `tenant %s`, whose key this is",
                          wanted.name);
    }
    bt_free(sorted);
    return status;
}

static bt_status_t finish(parse_t *p)
{
    bt_status_t status;

    if (p->file.n_keys == 0) {
        snprintf(p->why, BT_KEYS_WHY_BYTES,
                 "it has no key, so nobody could use the server");
        return BT_ERR_BAD_FILE;
    }
    status = find_tenants(p);
    if (status != BT_OK) {
        return status;
    }
    qsort(p->file.keys, p->file.n_keys, sizeof(*p->file.keys), by_hash);
    for (uint32_t i = 1; i < p->file.n_keys; i++) {
        const bt_keys_entry_t *key = &p->file.keys[i];

        if (memcmp(key[-1].hash, key->hash, sizeof(key->hash)) == 0) {
            p->line = key->line;
            return complain(p, "the key is in line %u already", key[-1].line);
        }
    }
    return BT_OK;
}

static bt_status_t take_lines(parse_t *p, const char *text, size_t bytes)
{
    char line[BT_KEYS_MAX_LINE + 1];
    bt_status_t status = BT_OK;
    size_t at = 0;

    while ((at < bytes) && (status == BT_OK)) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t n = (end != NULL) ? (size_t)(end - text) - at : bytes - at;

        p->line++;
        if (n > BT_KEYS_MAX_LINE) {
            return complain(p, "it has more than 1024 bytes");
        }
        if (memchr(text + at, '\0', n) != NULL) {
            return complain(p, "it has a zero byte");
        }
        memcpy(line, text + at, n);
        at += n + 1;
        n -= ((n > 0) && (line[n - 1] == '\r')) ? 1 : 0;
        line[n] = '\0';
        status = take_line(p, line);
    }
    return status;
}

bt_status_t bt_keys_file_parse(const char *text, size_t bytes,
                               bt_keys_file_t *file_p,
                               char why[BT_KEYS_WHY_BYTES])
{
    parse_t p = {.why = why};
    bt_status_t status;

    if (bytes > BT_KEYS_MAX_BYTES) {
        snprintf(why, BT_KEYS_WHY_BYTES, "it has more than %zu bytes",
                 BT_KEYS_MAX_BYTES);
        return BT_ERR_BAD_FILE;
    }
    status = take_lines(&p, text, bytes);
    if (status == BT_OK) {
        status = finish(&p);
    }
    bt_free(p.names);
    if (status != BT_OK) {
        bt_keys_file_fini(&p.file);
        return status;
    }
    *file_p = p.file;
    return BT_OK;
}

void bt_keys_file_fini(bt_keys_file_t *file)
{
    bt_free(file->tenants);
    bt_free(file->keys);
    *file = (bt_keys_file_t){0};
}

/* ---- the file ---- */

static bt_status_t check_mode(int fd, char warning[BT_KEYS_WHY_BYTES],
                              char why[BT_KEYS_WHY_BYTES])
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        snprintf(why, BT_KEYS_WHY_BYTES, "%m");
        return BT_ERR_IO;
    }
    if (!S_ISREG(st.st_mode)) {
        snprintf(why, BT_KEYS_WHY_BYTES, "it is not a file");
        return BT_ERR_IO;
    }
    if ((st.st_mode & S_IWOTH) != 0) {
        snprintf(why, BT_KEYS_WHY_BYTES,
                 "its mode is %04o, so everybody could let himself in: chmod "
                 "600",
                 (unsigned)(st.st_mode & 07777u));
        return BT_ERR_UNAUTHORIZED;
    }
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        snprintf(warning, BT_KEYS_WHY_BYTES,
                 "its mode is %04o, which lets others at it: chmod 600",
                 (unsigned)(st.st_mode & 07777u));
    }
    if (st.st_size > (off_t)BT_KEYS_MAX_BYTES) {
        snprintf(why, BT_KEYS_WHY_BYTES, "it has more than %zu bytes",
                 BT_KEYS_MAX_BYTES);
        return BT_ERR_BAD_FILE;
    }
    return BT_OK;
}

bt_status_t bt_keys_file_read(const char *path, bt_keys_file_t *file_p,
                              char warning[BT_KEYS_WHY_BYTES],
                              char why[BT_KEYS_WHY_BYTES])
{
    /* Opening a pipe would block. */
    BT_CLEANUP(close)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    bt_status_t status;
    size_t bytes = 0;
    char *text;

    warning[0] = '\0';
    if (fd < 0) {
        const int err = errno;

        snprintf(why, BT_KEYS_WHY_BYTES, "%m");
        return (err == ENOENT) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
    }
    status = check_mode(fd, warning, why);
    if (status != BT_OK) {
        return status;
    }
    text = bt_calloc(BT_KEYS_MAX_BYTES + 1, 1);
    if (text == NULL) {
        snprintf(why, BT_KEYS_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    status = bt_read_file(fd, text, BT_KEYS_MAX_BYTES, &bytes);
    if (status != BT_OK) {
        snprintf(why, BT_KEYS_WHY_BYTES, "%m");
    } else {
        status = bt_keys_file_parse(text, bytes, file_p, why);
    }
    bt_free(text);
    return status;
}

/* ---- lookup of a key ---- */

#define FRONT_BYTES 8 /* compared in the search */

/* Returns the first entry whose hash begins like this one, or the insertion
 * point. Hashes cannot be chosen, so the duration leaks nothing. */
static uint32_t first_of(const bt_keys_file_t *file, const uint8_t *hash)
{
    uint32_t low = 0;
    uint32_t high = file->n_keys;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (memcmp(file->keys[middle].hash, hash, FRONT_BYTES) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t bt_keys_file_find(const bt_keys_file_t *file, const char *key,
                           size_t bytes)
{
    uint32_t found = file->n_tenants;
    uint8_t hash[BT_KEY_BYTES];

    if ((bytes == 0) || (bytes > BT_KEYS_MAX_KEY_BYTES)) {
        return found;
    }
    for (unsigned kind = 0; kind < BT_KEY_N_HASHES; kind++) {
        bt_key_hash((bt_key_hash_kind_t)kind, key, bytes, hash);
        for (uint32_t i = first_of(file, hash);
             (i < file->n_keys) &&
             (memcmp(file->keys[i].hash, hash, FRONT_BYTES) == 0);
             i++) {
            const bt_keys_entry_t *entry = &file->keys[i];

            if ((entry->kind == (bt_key_hash_kind_t)kind) &&
                (bt_key_equal(entry->hash, hash, sizeof(hash)) == 1)) {
                found = entry->tenant;
            }
        }
    }
    bt_key_wipe(hash, sizeof(hash));
    return found;
}
