/* SPDX-License-Identifier: Apache-2.0 */
/* A stored response, as it is read back. First byte, modulo 4:
 *   0  the object's bytes, in memory
 *   1  a file of the folder
 *   2  length of a description, the description, the object's bytes: a file
 *      whose checksums are right
 *   3  a journal */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "router/api/api_stored.h"
#include "router/store/store_priv.h"

#define ID    "resp_00112233445566778899aabbccddeeff"
#define OWN   "own"
#define OTHER "other" /* the folder of another store */

static char top[64];
static bt_store_t *store;

static void remove_all(void)
{
    char command[96];

    bt_store_close(store);
    snprintf(command, sizeof(command), "rm -rf %s", top);
    BT_ASSERT_ALWAYS(system(command) == 0);
}

/* Opens a store that has another one beside it, once. */
static void open_store(void)
{
    bt_store_config_t config = {.path = top,
                                .own_name = OWN,
                                .key_path = "",
                                .munge_socket = "",
                                .limit_bytes = (uint64_t)1 << 40,
                                .space_bytes = (uint64_t)1 << 40,
                                .ttl_s = 1};
    char path[96];

    snprintf(top, sizeof(top), "%s/baton-fuzz-XXXXXX",
             (access("/dev/shm", W_OK) == 0) ? "/dev/shm" : "/tmp");
    BT_ASSERT_ALWAYS(mkdtemp(top) != NULL);
    BT_ASSERT_ALWAYS(bt_store_open(&config, 1, &store) == BT_OK);
    snprintf(path, sizeof(path), "%s/" OTHER, top);
    BT_ASSERT_ALWAYS(mkdir(path, 0700) == 0);
    BT_ASSERT_ALWAYS(atexit(remove_all) == 0);
}

static int create(const char *folder, const char *name)
{
    char path[160];
    int fd;

    snprintf(path, sizeof(path), "%s/%s/%s", top, folder, name);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    BT_ASSERT_ALWAYS(fd >= 0);
    return fd;
}

/* ---- what is made of a response ---- */

static void check_list(const bt_api_stored_t *stored)
{
    static const bt_api_items_page_t pages[] = {
        {.limit = 100, .is_ascending = true},
        {.limit = 1},
        {.limit = 2, .is_ascending = true, .after = "m1"}};
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    bt_strbuf_t out;

    for (size_t i = 0; i < BT_ARRAY_LEN(pages); i++) {
        bt_status_t status;

        bt_strbuf_init(&out, (size_t)64 << 20);
        status = bt_api_stored_put_items(stored, ID, &pages[i], &out);
        if (status == BT_OK) {
            BT_ASSERT_ALWAYS(bt_json_doc_parse_client(out.data, out.len,
                                                      UINT32_MAX, &fault,
                                                      &doc) == BT_OK);
            BT_ASSERT_ALWAYS(
                bt_json_size(bt_json_get(doc, bt_json_doc_root(doc), "data"),
                             BT_JSON_ARRAY) <= pages[i].limit);
            bt_json_doc_free(doc);
        } else {
            BT_ASSERT_ALWAYS((status == BT_ERR_CORRUPT) ||
                             ((status == BT_ERR_NOT_FOUND) && (i == 2)));
        }
        bt_strbuf_fini(&out);
    }
}

/* Parses a body that continues the history. */
static void check_history(bt_api_history_t *history)
{
    static const char body[] =
        "{\"input\":\"x\",\"previous_response_id\":\"" ID "\"}";
    bt_api_request_t request;
    bt_api_error_t error = {0};
    bt_strbuf_t items;

    bt_strbuf_init(&items, SIZE_MAX / 2);
    if ((bt_api_history_read(history, &error) != BT_OK) ||
        (bt_api_history_put_items(history, &items, &error) != BT_OK)) {
        BT_ASSERT_ALWAYS((error.http_status >= 400) &&
                         (error.message[0] != '\0'));
    } else if (bt_api_parse_stored(body, sizeof(body) - 1, &items, &request,
                                   &error) == BT_OK) {
        bt_json_doc_t *doc = NULL;
        bt_json_fault_t fault;

        BT_ASSERT_ALWAYS(request.messages.n >= 1);
        BT_ASSERT_ALWAYS(bt_json_doc_parse_client(request.messages.json,
                                                  strlen(request.messages.json),
                                                  8 * BT_API_MAX_VALUES, &fault,
                                                  &doc) == BT_OK);
        BT_ASSERT_ALWAYS(bt_json_size(bt_json_doc_root(doc), BT_JSON_ARRAY) ==
                         request.messages.n);
        bt_json_doc_free(doc);
        bt_api_request_fini(&request);
    } else {
        BT_ASSERT_ALWAYS((error.http_status == 400) &&
                         (error.message[0] != '\0'));
    }
    bt_strbuf_fini(&items);
}

static void check_object(bt_store_t *in, const bt_stored_t *object)
{
    bt_api_stored_t stored;

    if (bt_api_stored_read(in, object, &stored) == BT_OK) {
        BT_ASSERT_ALWAYS(stored.items_bytes + stored.response_bytes +
                             BT_API_STORED_HEAD_BYTES ==
                         object->bytes);
        check_list(&stored);
        bt_api_stored_fini(&stored);
    }
}

/* ---- the four ---- */

static void run_in_memory(const uint8_t *data, size_t size)
{
    static const bt_store_config_t config = {.path = "",
                                             .key_path = "",
                                             .munge_socket = "",
                                             .limit_bytes = (uint64_t)1 << 40,
                                             .space_bytes = (uint64_t)1 << 40,
                                             .ttl_s = 1};
    static bt_store_t *memory; /* kept: it has a large map */
    bt_api_history_t history;
    bt_api_error_t error;
    bt_stored_t *object;
    bt_store_put_t *put;

    BT_ASSERT_ALWAYS((memory != NULL) ||
                     (bt_store_open(&config, 1, &memory) == BT_OK));
    BT_ASSERT_ALWAYS(bt_store_put_begin(memory, BT_STORE_RESPONSE, "s", size, 1,
                                        &put) == BT_OK);
    bt_store_put_set_id(put, ID);
    BT_ASSERT_ALWAYS(bt_store_put_describe(put, "", 0, 0) == BT_OK);
    BT_ASSERT_ALWAYS(bt_store_put_write(put, data, size) == BT_OK);
    BT_ASSERT_ALWAYS(bt_store_put_commit(put) == BT_OK);
    object = bt_store_put_end(put);
    check_object(memory, object);
    BT_ASSERT_ALWAYS(bt_api_history_find(memory, "s", ID, &history, &error) ==
                     BT_OK);
    check_history(&history);
    bt_api_history_fini(&history);
    bt_store_remove(memory, object);
}

/* Reads the file of the other store. */
static void read_file(const char *space)
{
    bt_api_history_t history;
    bt_api_error_t error = {0};
    bt_stored_t *object = NULL;
    const bt_status_t status =
        bt_store_look_up(store, BT_STORE_RESPONSE, space, ID, 1000000, &object);

    if (status != BT_OK) {
        BT_ASSERT_ALWAYS(status == BT_ERR_NOT_FOUND);
        return;
    }
    BT_ASSERT_ALWAYS((object->kind == BT_STORE_RESPONSE) &&
                     (object->label_bytes <= BT_STORE_LABEL_BYTES) &&
                     (object->expires_s > 1));
    check_object(store, object);
    bt_stored_unref(object);
    if (bt_api_history_look_up(store, space, ID, 1000000, &history, &error) ==
        BT_OK) {
        check_history(&history);
    } else {
        BT_ASSERT_ALWAYS((error.http_status == 400) &&
                         (error.message[0] != '\0'));
    }
    bt_api_history_fini(&history);
}

static void run_file(const uint8_t *data, size_t size)
{
    const int fd = create(OTHER, ID);

    BT_ASSERT_ALWAYS(bt_write_all(fd, data, size) == BT_OK);
    close(fd);
    read_file("s");
}

static void run_summed(const uint8_t *data, size_t size)
{
    static bt_store_chunk_t chunk;
    const size_t n = (size > 0) ? data[0] : 0;
    const size_t n_about = (n < size) ? n : size - (size > 0);
    const uint8_t *at = data + (size > 0);
    size_t left = size - (size > 0);
    uint8_t header[BT_STORE_HEADER_BYTES];
    char space[BT_STORE_SPACE_BYTES] = "";
    const int fd = create(OTHER, ID);

    bt_store_header_make(&store->folder, header);
    BT_ASSERT_ALWAYS(bt_write_all(fd, header, sizeof(header)) == BT_OK);
    chunk.is_last = false;
    chunk.bytes = n_about;
    memcpy(chunk.data, at, n_about);
    for (uint64_t index = 0;; index++) {
        at += chunk.bytes;
        left -= chunk.bytes;
        BT_ASSERT_ALWAYS(bt_store_chunk_write(&store->folder, ID, index, &chunk,
                                              fd) == BT_OK);
        if (chunk.is_last) {
            break;
        }
        chunk.bytes =
            (left < BT_STORE_CHUNK_BYTES) ? left : BT_STORE_CHUNK_BYTES;
        chunk.is_last = chunk.bytes == left;
        memcpy(chunk.data, at, chunk.bytes);
    }
    close(fd);
    if ((n_about > 20) && (data[18] < BT_STORE_SPACE_BYTES) &&
        (20u + data[18] <= n_about)) {
        memcpy(space, data + 21, data[18]); /* that of the description */
    }
    read_file(space);
}

/* Reads all records. @return their number and bytes; or that it cannot be */
static bt_status_t read_journal(bt_store_journal_t *journal, size_t *n_p,
                                size_t *bytes_p)
{
    const void *record;
    size_t bytes = 1;
    bt_status_t status = BT_OK;

    *n_p = *bytes_p = 0;
    while ((status == BT_OK) && (bytes > 0)) {
        status = bt_store_journal_next(journal, &record, &bytes);
        if ((status == BT_OK) && (bytes > 0)) {
            (*n_p)++;
            *bytes_p += bytes;
        }
    }
    return status;
}

static void run_journal(const uint8_t *data, size_t size)
{
    const bt_stored_t object = {.id = ID};
    const int fd = create(OWN, ID BT_STORE_JOURNAL);
    bt_store_journal_t *journal = NULL;
    size_t n, bytes, n_then, bytes_then;

    BT_ASSERT_ALWAYS(bt_write_all(fd, data, size) == BT_OK);
    close(fd);
    if (bt_store_journal_open(store, &object, &journal) != BT_OK) {
        return;
    }
    BT_ASSERT_ALWAYS(read_journal(journal, &n, &bytes) == BT_OK);
    BT_ASSERT_ALWAYS(bytes <= size);
    /* Whatever there was, a record that is appended is there. */
    BT_ASSERT_ALWAYS(bt_store_journal_append(journal, "record", 6) == BT_OK);
    bt_store_journal_close(journal);
    BT_ASSERT_ALWAYS(bt_store_journal_open(store, &object, &journal) == BT_OK);
    BT_ASSERT_ALWAYS(read_journal(journal, &n_then, &bytes_then) == BT_OK);
    BT_ASSERT_ALWAYS((n_then == n + 1) && (bytes_then == bytes + 6));
    bt_store_journal_close(journal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const runs[])(const uint8_t *, size_t) = {
        run_in_memory, run_file, run_summed, run_journal};

    if (store == NULL) {
        open_store();
    }
    if (size > 0) {
        runs[data[0] % BT_ARRAY_LEN(runs)](data + 1, size - 1);
    }
    return 0;
}
