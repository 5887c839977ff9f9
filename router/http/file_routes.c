/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/files, as OpenAI has it: files that clients upload, and read again.
 *
 *     POST ─▶ body ─▶ space reserved ─▶ parts read, file written ─▶ index
 *                                       (the pool's files thread)
 *
 * A tenant sees its own files only. File names are labels: nothing on disk has
 * them as its name.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/http/multipart.h"
#include "router/http/routes_priv.h"
#include "router/http/stored_page.h"
#include "router/store/store.h"

#define PURPOSE_BYTES BT_STORED_PURPOSE_BYTES
#define MOST_LISTED   10000u /* OpenAI's limit, and its default */
#define MOST_PAGE     1000u  /* files of one answer */

/* Purposes that mean something here; OpenAI's others begin what this server
 * does not have. */
static const char *const purposes[] = {"batch", "user_data"};

/* Work of a request at the pool. */
typedef struct file_job {
    bt_work_t work;
    bt_http_request_t *r; /* a reference */
    bt_store_t *store;
    bt_store_put_t *put; /* upload */
    bt_stored_t *object; /* delete: a reference */
    bool deletes;        /* the object, which is hidden */
    bt_strbuf_t data;    /* upload: the body */
    const char *type;    /* upload: Content-Type, the exchange's copy */
    bt_status_t status;
    bt_api_error_t error; /* upload, of a part: valid unless the status is OK */
    void (*then)(struct file_job *f);
} file_job_t;

/* ---- what all of them need ---- */

/* @return NULL: there is none, and the request was refused */
static bt_store_t *find_store(bt_http_request_t *r)
{
    bt_store_t *store = r->door->front->store;

    if (store == NULL) {
        bt_http_request_error(r, 501, NULL,
                              "the server keeps no files: --store DIR gives it "
                              "a folder for them");
    }
    return store;
}

/* @return NULL: there is none, and the request was refused */
static bt_stored_t *find_file(bt_http_request_t *r, const bt_store_t *store)
{
    bt_stored_t *object = bt_store_find(
        store, BT_STORE_FILE, bt_tenant_space(r->base.tenant), r->name);

    if (object == NULL) {
        bt_http_request_error(r, 404, "id", "no such File object: %.100s",
                              r->name);
    }
    return object;
}

/* A label is the purpose, a zero, and the file's name. */
static const char *purpose_of(const bt_stored_t *object)
{
    return object->label;
}

static const char *filename_of(const bt_stored_t *object)
{
    const size_t n = strlen(object->label);

    return (n < object->label_bytes) ? object->label + n + 1 : "";
}

static void write_file(const bt_stored_t *object, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "id", object->id);
    bt_json_str(json, "object", "file");
    bt_json_u64(json, "bytes", object->bytes);
    bt_json_u64(json, "created_at", object->created_us / 1000000);
    bt_json_u64(json, "expires_at", object->expires_s);
    bt_json_str(json, "filename", filename_of(object));
    bt_json_str(json, "purpose", purpose_of(object));
    bt_json_str(json, "status", "processed");
    bt_json_null(json, "status_details");
    bt_json_end_object(json);
}

static void respond_file(bt_http_request_t *r, const bt_stored_t *object)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    write_file(object, &json);
    bt_http_request_respond_json(r);
}

/* ---- jobs ---- */

/* @return NULL: no memory, and the request was refused */
static file_job_t *make_job(bt_http_request_t *r, bt_store_t *store,
                            bt_stored_t *object)
{
    file_job_t *f = bt_calloc(1, sizeof(*f));

    if (f == NULL) {
        bt_http_request_fail_for_memory(r);
        return NULL;
    }
    f->r = r;
    f->store = store;
    f->object = (object != NULL) ? bt_stored_ref(object) : NULL;
    return f;
}

/* An object counts until its file is gone, and is there again if that failed: a
 * client may delete it later. */
static void end_delete(const file_job_t *f, bool is_gone)
{
    if (f->object->space == NULL) {
        return; /* its time was over meanwhile */
    }
    if (is_gone) {
        bt_store_remove(f->store, f->object);
    } else {
        bt_store_hide(f->object, false);
    }
}

static void job_done(bt_pool_job_t *job)
{
    file_job_t *f = BT_CONTAINER_OF(job, file_job_t, work.job);
    bt_http_request_t *r = f->r;
    bt_stored_t *put =
        (f->put != NULL) ? bt_store_put_end(f->put) : NULL; /* borrowed */

    if (f->deletes) {
        end_delete(f, job->ran && (f->status == BT_OK));
    }
    if (bt_request_is_open(&r->base)) {
        if (!job->ran) {
            bt_http_request_error(r, 503, NULL, "the server is stopping");
        } else if (put != NULL) {
            respond_file(r, put);
        } else {
            f->then(f);
        }
    }
    bt_strbuf_fini(&f->data);
    bt_stored_unref(f->object);
    bt_free(f);
    bt_request_unref(&r->base);
}

static void post(file_job_t *f, void (*run)(bt_pool_job_t *),
                 void (*then)(file_job_t *))
{
    (void)bt_request_ref(&f->r->base);
    f->work.job.run = run;
    f->work.job.done = job_done;
    f->then = then;
    bt_work_init(&f->work, f->r->base.tenant, &f->r->base.client);
    bt_work_post(&f->work, f->r->door->front->pool, BT_POOL_FILES,
                 (f->put != NULL) ? f->data.len : 0);
}

/* ---- POST /v1/files ---- */

/* Fields of an upload; text is in the body, without a zero. */
typedef struct upload {
    const char *data;
    size_t bytes;
    bool has_file, has_anchor, has_seconds;
    char filename[BT_MULTIPART_FILENAME_BYTES];
    char purpose[PURPOSE_BYTES];
    uint64_t life_s; /* 0: not given */
} upload_t;

static bt_status_t refuse(bt_api_error_t *error, const char *param,
                          const char *why)
{
    return bt_api_error_invalid(error, param, "%s", why);
}

/* Copies a part's text. @return false: too long, or with a zero byte */
static bool copy_text(const bt_multipart_part_t *part, char *text, size_t size)
{
    if ((part->bytes >= size) ||
        (memchr(part->data, '\0', part->bytes) != NULL)) {
        return false;
    }
    memcpy(text, part->data, part->bytes);
    text[part->bytes] = '\0';
    return true;
}

static bt_status_t read_purpose(const bt_multipart_part_t *part,
                                upload_t *upload, bt_api_error_t *error)
{
    char text[PURPOSE_BYTES];

    if (upload->purpose[0] != '\0') {
        return refuse(error, "purpose", "purpose is given twice");
    }
    for (size_t i = 0;
         copy_text(part, text, sizeof(text)) && (i < BT_ARRAY_LEN(purposes));
         i++) {
        if (strcmp(text, purposes[i]) == 0) {
            memcpy(upload->purpose, text, sizeof(text));
            return BT_OK;
        }
    }
    return refuse(error, "purpose",
                  "purpose must be batch or user_data: this server has no use "
                  "for files of others");
}

static bt_status_t read_life(const bt_multipart_part_t *part, bool is_anchor,
                             upload_t *upload, bt_api_error_t *error)
{
    char text[PURPOSE_BYTES];
    bool *has = is_anchor ? &upload->has_anchor : &upload->has_seconds;

    if (*has) {
        return refuse(error, "expires_after", "expires_after is given twice");
    }
    *has = true;
    if (!copy_text(part, text, sizeof(text))) {
        text[0] = '\0';
    }
    if (is_anchor) {
        return (strcmp(text, "created_at") == 0)
                   ? BT_OK
                   : refuse(error, "expires_after",
                            "expires_after[anchor] must be created_at");
    }
    return (bt_parse_u64(text, &upload->life_s) &&
            (upload->life_s >= BT_STORE_LEAST_LIFE_S) &&
            (upload->life_s <= BT_STORE_MOST_LIFE_S))
               ? BT_OK
               : refuse(error, "expires_after",
                        "expires_after[seconds] must be a number from 3600 to "
                        "2592000");
}

static bt_status_t read_part(const bt_multipart_part_t *part, upload_t *upload,
                             bt_api_error_t *error)
{
    if (strcmp(part->name, "file") == 0) {
        if (upload->has_file || !part->is_file) {
            return refuse(error, "file",
                          "file must be given once, as a file with a name");
        }
        upload->has_file = true;
        upload->data = part->data;
        upload->bytes = part->bytes;
        memcpy(upload->filename, part->filename, sizeof(part->filename));
        return BT_OK;
    }
    if (part->is_file) {
        return bt_api_error_invalid(error, NULL, "%.64s is not a file here",
                                    part->name);
    }
    if (strcmp(part->name, "purpose") == 0) {
        return read_purpose(part, upload, error);
    }
    if (strcmp(part->name, "expires_after[anchor]") == 0) {
        return read_life(part, true, upload, error);
    }
    if (strcmp(part->name, "expires_after[seconds]") == 0) {
        return read_life(part, false, upload, error);
    }
    return bt_api_error_invalid(error, NULL,
                                "%.64s is no field of an upload: these are "
                                "file, purpose, expires_after[anchor] and "
                                "expires_after[seconds]",
                                part->name);
}

static bt_status_t read_parts(const file_job_t *f, upload_t *upload,
                              bt_api_error_t *error)
{
    const char *why = NULL;
    bt_multipart_part_t part;
    bt_multipart_t multipart;
    bt_status_t status = bt_multipart_init(
        &multipart, f->type, (f->data.len > 0) ? f->data.data : "", f->data.len,
        &why);

    while ((status == BT_OK) &&
           ((status = bt_multipart_next(&multipart, &part, &why)) == BT_OK)) {
        status = read_part(&part, upload, error);
        if (status != BT_OK) {
            return status;
        }
    }
    if (status != BT_ERR_NOT_FOUND) {
        return refuse(error, NULL, why);
    }
    if (!upload->has_file || (upload->filename[0] == '\0')) {
        return refuse(error, "file", "file is missing, or has no filename");
    }
    if (upload->purpose[0] == '\0') {
        return refuse(error, "purpose", "purpose is missing");
    }
    if (upload->has_anchor != upload->has_seconds) {
        return refuse(error, "expires_after",
                      "expires_after has an anchor and seconds, or is absent");
    }
    return BT_OK;
}

/* Reads the parts and writes the file. */
static void run_upload(bt_pool_job_t *job)
{
    file_job_t *f = BT_CONTAINER_OF(job, file_job_t, work.job);
    char label[PURPOSE_BYTES + BT_MULTIPART_FILENAME_BYTES];
    upload_t upload = {.has_file = false};
    int n;

    f->status = read_parts(f, &upload, &f->error);
    if (f->status != BT_OK) {
        return;
    }
    n = snprintf(label, sizeof(label), "%s%c%s", upload.purpose, '\0',
                 upload.filename);
    f->error.http_status = 0; /* no fault of the body's */
    f->status = bt_store_put_describe(f->put, label, (size_t)n, upload.life_s);
    if (f->status == BT_OK) {
        f->status = bt_store_put_write(f->put, upload.data, upload.bytes);
    }
    if (f->status == BT_OK) {
        f->status = bt_store_put_commit(f->put);
    }
}

static void refuse_upload(file_job_t *f)
{
    if (f->error.http_status == 0) {
        bt_http_request_error(f->r, 503, NULL, "the file cannot be kept: %s",
                              bt_status_str(f->status));
        return;
    }
    bt_http_request_fail(f->r, &f->error);
}

static bt_status_t reserve(bt_http_request_t *r, bt_store_t *store,
                           uint64_t bytes, bt_store_put_t **put_p)
{
    const bt_status_t status = bt_store_put_begin(
        store, BT_STORE_FILE, bt_tenant_space(r->base.tenant), bytes,
        bt_unix_us(), put_p);

    if (bt_store_refusal(status) != NULL) {
        bt_http_request_error(r, (status == BT_ERR_BUSY) ? 503 : 413, "file",
                              "%s", bt_store_refusal(status));
    } else if (status != BT_OK) {
        bt_http_request_fail_for_memory(r);
    }
    return status;
}

static void begin_upload(bt_http_request_t *r, bt_strbuf_t *body)
{
    bt_store_t *store = r->door->front->store;
    bt_api_error_t error = {0};
    file_job_t *f;

    if (bt_request_open_account(&r->base, body->cap, &error) != BT_OK) {
        bt_strbuf_fini(body);
        bt_http_request_fail(r, &error);
        return;
    }
    f = make_job(r, store, NULL);
    if (f == NULL) {
        bt_strbuf_fini(body);
        return;
    }
    f->data = *body;
    bt_strbuf_init(body, 0);
    if (!bt_arena_strdup(&r->base.arena,
                         bt_exchange_header(r->ex, "Content-Type"), &f->type)) {
        bt_http_request_fail_for_memory(r);
    } else if (reserve(r, store, f->data.len, &f->put) == BT_OK) {
        f->work.job.account = r->base.account;
        post(f, run_upload, refuse_upload);
        return;
    }
    bt_strbuf_fini(&f->data);
    bt_free(f);
}

/* ---- GET /v1/files ---- */

static const bt_stored_list_t list = {
    .kind = BT_STORE_FILE,
    .what = "File object",
    .names = "after, limit, order and purpose",
    .most_limit = MOST_LISTED,
    .most_page = MOST_PAGE,
    .has_order = true,
    .has_purpose = true,
    .write = write_file,
};

static void list_files(bt_http_request_t *r)
{
    bt_stored_page_t page = {.limit = MOST_LISTED};
    bt_api_error_t error = {0};
    bt_json_t json;

    if (bt_stored_page_read(r, &list, &page, &error) != BT_OK) {
        bt_http_request_fail(r, &error);
        return;
    }
    bt_http_request_begin_json(r, &json);
    bt_stored_page_write(r, &list, &page, &json);
    bt_http_request_respond_json(r);
}

void bt_route_files(bt_http_request_t *r)
{
    if (find_store(r) == NULL) {
        return;
    }
    if (bt_exchange_method(r->ex) == BT_HTTP_POST) {
        bt_http_request_take_body(r, begin_upload);
    } else {
        list_files(r);
    }
}

/* ---- one file ---- */

static void run_delete(bt_pool_job_t *job)
{
    file_job_t *f = BT_CONTAINER_OF(job, file_job_t, work.job);

    f->status = bt_store_unlink(f->store, f->object);
}

static void deleted(file_job_t *f)
{
    bt_json_t json;

    if (f->status != BT_OK) {
        bt_http_request_error(f->r, 503, NULL,
                              "the file cannot be deleted from the disk: %s",
                              bt_status_str(f->status));
        return;
    }
    bt_http_request_begin_json(f->r, &json);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "id", f->object->id);
    bt_json_str(&json, "object", "file");
    bt_json_bool(&json, "deleted", true);
    bt_json_end_object(&json);
    bt_http_request_respond_json(f->r);
}

void bt_route_file(bt_http_request_t *r)
{
    bt_store_t *store = find_store(r);
    bt_stored_t *object = (store != NULL) ? find_file(r, store) : NULL;
    file_job_t *f;

    if (object == NULL) {
        return;
    }
    if (bt_exchange_method(r->ex) != BT_HTTP_DELETE) {
        respond_file(r, object);
        return;
    }
    f = make_job(r, store, object);
    if (f != NULL) {
        bt_store_hide(object, true);
        f->deletes = true;
        post(f, run_delete, deleted);
    }
}

void bt_route_file_content(bt_http_request_t *r)
{
    const bt_store_t *store = find_store(r);
    bt_stored_t *object = (store != NULL) ? find_file(r, store) : NULL;

    if (object != NULL) {
        bt_download_begin(r, object);
    }
}
