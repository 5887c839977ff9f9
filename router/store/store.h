/* SPDX-License-Identifier: Apache-2.0 */
/** @file store.h
 *
 * Objects that the server keeps for its clients, on disk or in memory: bytes
 * with an id, the tenant they belong to, and a time at which they expire. Knows
 * nothing of HTTP, nor of what the bytes mean.
 *
 *     put_begin ─▶ put_write … put_commit ─▶ put_end ─▶ find, list ─▶ remove
 *     space is      ID.part: written, synced,  in the    reader_*      unlink
 *     reserved      renamed to ID              index
 *
 * A file of the folder is one object, mode 0600, in a folder of mode 0700:
 *
 *     header │ chunk 0: kind, times, tenant, label │ chunk 1 … n: the bytes
 *
 * Each chunk has a checksum, or with a key is sealed (common/crypt/key.h),
 * over its position and the object's id: an object that was altered, renamed,
 * cut or put together is not read. Files that are not whole when the store is
 * opened, because a process was killed, are removed; others' files are left
 * alone.
 *
 * An object belongs to a *space*, the name of its tenant ("": none): no
 * function finds it by another. All spaces share a limit of bytes and of
 * objects, and each space has one of its own.
 *
 * A store without a folder has its objects in memory, and none once it is
 * closed; all functions are the same, but it has no journals.
 *
 * Stores of several processes can share a folder, in which each has one of its
 * own, with its own lock, limits and index:
 *
 *     shared folder ─┬─ own folder of store A: lock, objects
 *                    └─ own folder of store B: lock, objects
 *
 * The objects of all of them are found on the disk by bt_store_look_up(), and
 * can be read and unlinked from each. Only its own store expires an object,
 * while it runs, which the lock tells; those whose store does not run any more
 * are removed by the others once they have expired by their clocks, and its
 * folder once nothing is in it.
 *
 * Threads: one owns the store and calls all functions, except those that are
 *          marked "any thread", which access files and may block.
 */
#ifndef BT_ROUTER_STORE_STORE_H
#define BT_ROUTER_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/pool.h"
#include "common/base/status.h"
#include "common/base/text.h"

#define BT_STORE_ID_BYTES    48 /**< with the zero byte */
#define BT_STORE_SPACE_BYTES 64 /**< with the zero byte */
#define BT_STORE_LABEL_BYTES 1024
#define BT_STORE_CHUNK_BYTES ((size_t)64 << 10)
#define BT_STORE_MAX_OBJECTS 65536u
/** Life in seconds that a client may ask for: OpenAI's limits. */
#define BT_STORE_LEAST_LIFE_S 3600u
#define BT_STORE_MOST_LIFE_S  2592000u
/** The fraction, 1 / this, of the free objects that one space may have, where
 *  there are several. */
#define BT_STORE_SPACE_FRACTION 16u
/** Name of a store's folder inside of another store's. */
#define BT_STORE_RESPONSES "responses"
/** Bytes by which each object counts more than its own. */
#define BT_STORE_OBJECT_BYTES 4096u

typedef struct bt_store bt_store_t;
typedef struct bt_store_put bt_store_put_t;
typedef struct bt_store_reader bt_store_reader_t;
typedef struct bt_store_journal bt_store_journal_t;
typedef struct bt_store_space bt_store_space_t; /**< store_priv.h */

typedef enum bt_store_kind {
    BT_STORE_FILE,     /**< "file-…" */
    BT_STORE_BATCH,    /**< "batch_…" */
    BT_STORE_RESPONSE, /**< "resp_…" */
    BT_STORE_N_KINDS,
} bt_store_kind_t;

typedef struct bt_store_config {
    const char *path;         /**< folder; created if its parent exists; "": in
                                   memory */
    const char *own_name;     /**< name of the store's folder in a shared one;
                                   NULL: the folder is not shared */
    const char *key_path;     /**< key file (common/crypt/key.h); "": none */
    const char *munge_socket; /**< for a key that is a credential */
    uint64_t limit_bytes;     /**< limit on all objects */
    uint64_t space_bytes;     /**< limit on those of one space */
    uint32_t limit_objects;   /**< limit on their number; 0:
                                   BT_STORE_MAX_OBJECTS, which is the most. If
                                   there are more when it is opened, the oldest
                                   are evicted */
    bool has_spaces;          /**< several spaces: one that has
                                   1 / BT_STORE_SPACE_FRACTION as many objects as are
                                   free gets no more, so that others always can */
    uint32_t ttl_s;           /**< longest life of an object */
} bt_store_config_t;

/** Object; read only, and owned by the store and by who has a reference. */
typedef struct bt_stored {
    bt_list_t link;  /**< in its space, the oldest first */
    bt_list_t by_id; /**< in the store's map */
    uint32_t refs;
    bt_store_space_t *space; /**< NULL: removed */
    bt_store_kind_t kind;
    bool is_hidden; /**< true while its file is being removed: neither found nor
                         to be listed */
    char id[BT_STORE_ID_BYTES];
    uint64_t created_us; /**< since 1970; no two objects have the same, and none
                              is before an older one: ahead of the clock, if
                              that was set back */
    uint64_t expires_s;  /**< since 1970 */
    uint64_t bytes;
    uint64_t journal_bytes; /**< charged for its journal */
    uint32_t label_bytes;
    void *user;  /**< data of its kind; NULL at first */
    char *label; /**< owned: what its kind adds, up to BT_STORE_LABEL_BYTES */
    uint64_t head_bytes; /**< bytes of the file before the object */
    char *data;          /**< owned: the bytes, in memory; NULL: on disk */
    char *holder;        /**< owned: name of the own folder of the store that
                              has it; NULL: found in the index */
} bt_stored_t;

/**
 * Opens a folder, which no other process may have open, and reads what is in
 * it. Failures are logged.
 * @retval BT_ERR_BAD_FILE      not a folder, or others may access it
 * @retval BT_ERR_UNAUTHORIZED  the folder, or the key, is not this user's alone
 * @retval BT_ERR_BUSY          another process has it open
 * @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_store_open(const bt_store_config_t *config,
                                        uint64_t now_us, bt_store_t **store_p);
/** Checks whether bt_store_open() would succeed; changes nothing, and does not
 *  read objects. Failures are logged. */
BT_MUST_CHECK bt_status_t bt_store_check(const bt_store_config_t *config);
/** Frees the store; no put and no reader may be left. NULL is allowed. */
void bt_store_close(bt_store_t *store);
/** Removes expired objects, their files at the pool; call it now and then, and
 *  do not close the store before the pool was stopped. */
void bt_store_tick(bt_store_t *store, bt_pool_t *pool, uint64_t now_us);

/* ---- the index ---- */

/** Finds an object. @return NULL: this space has none of this kind and id;
 *  borrowed */
bt_stored_t *bt_store_find(const bt_store_t *store, bt_store_kind_t kind,
                           const char *space, const char *id);
/** Returns the objects of a space in a list of bt_stored_t.link, of all kinds,
 *  the oldest first; NULL: it has none. */
bt_list_t *bt_store_list(const bt_store_t *store, const char *space);
bt_stored_t *bt_stored_ref(bt_stored_t *object); /**< @return @a object */
void bt_stored_unref(bt_stored_t *object);       /**< NULL is allowed */
/** Hides an object, whose file is about to be removed, or shows it again. It
 *  counts until it is removed: after its file. */
void bt_store_hide(bt_stored_t *object, bool is_hidden);
/** Takes an object out of the index. */
void bt_store_remove(bt_store_t *store, bt_stored_t *object);
/** Finds the oldest object of a space. @return NULL: there is none; borrowed */
bt_stored_t *bt_store_oldest(const bt_store_t *store, const char *space);
/** Finds the oldest object of the space that uses the most bytes, if those are
 *  at least @a bytes. @return NULL: there is none; borrowed */
bt_stored_t *bt_store_oldest_of_largest(const bt_store_t *store,
                                        uint64_t bytes);
/** Returns the bytes that a space uses, with those that are reserved. */
uint64_t bt_store_used(const bt_store_t *store, const char *space);
/** Takes an object out of the index. Its file is removed by the next put,
 * before that makes one, or by a later tick. */
void bt_store_evict(bt_store_t *store, bt_stored_t *object);
/** True when an object of this size fits where there is no other. */
bool bt_store_takes(const bt_store_t *store, uint64_t bytes);
/** True when the objects are in memory. */
bool bt_store_is_in_memory(const bt_store_t *store);
/** True when the store's folder is in a shared one. */
bool bt_store_is_shared(const bt_store_t *store);
/** Finds an object of any store of the shared folder, this one included, on the
 *  disk; any thread. Costs a search in the folder of each store.
 *  @param [out] object_p  a reference; the object is in no index
 *  @retval BT_ERR_NOT_FOUND  this space has none of this kind and id, or it has
 *      expired, is damaged, or is of another key
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_store_look_up(bt_store_t *store,
                                           bt_store_kind_t kind,
                                           const char *space, const char *id,
                                           uint64_t now_us,
                                           bt_stored_t **object_p);
/** Removes the file of an object for good, of one that is removed, hidden or
 *  looked up; any thread.
 *  @retval BT_ERR_IO  errno has the reason; it may be there, or come back when
 *      the store is opened again */
BT_MUST_CHECK bt_status_t bt_store_unlink(const bt_store_t *store,
                                          const bt_stored_t *object);

/** Use of a store at one moment. */
typedef struct bt_store_use {
    uint64_t bytes;       /**< charged, with what puts have reserved */
    uint64_t limit_bytes; /**< as it was opened with */
    uint32_t n_objects[BT_STORE_N_KINDS];
    uint64_t n_evicted; /**< objects since the store was opened */
} bt_store_use_t;

bt_store_use_t bt_store_use(const bt_store_t *store);

/** Calls @a fn for each object of a kind, of all spaces; it may not change the
 *  index. */
void bt_store_each(const bt_store_t *store, bt_store_kind_t kind,
                   void (*fn)(void *ctx, const char *space,
                              bt_stored_t *object),
                   void *ctx);
/** Sets what is called for each object of a kind that leaves the index, and has
 *  no `space` then; it may not change the index. NULL: nothing. */
void bt_store_on_remove(bt_store_t *store, bt_store_kind_t kind,
                        void (*fn)(void *ctx, bt_stored_t *object), void *ctx);
/** Charges an object for its journal, instead of what it was charged before.
 *  Nothing for an object that was removed.
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_BUSY  as bt_store_put_begin(); nothing was
 *      changed */
BT_MUST_CHECK bt_status_t bt_store_charge_journal(bt_store_t *store,
                                                  bt_stored_t *object,
                                                  uint64_t bytes);

/** Gives back what an object was charged for its journal. */
void bt_store_release_journal(bt_store_t *store, bt_stored_t *object);

/* ---- writing ---- */

/** Draws an id: the prefix of its kind, and 128 random bits. */
void bt_store_id_make(bt_store_kind_t kind, char id[BT_STORE_ID_BYTES]);
/**
 * Reserves space for an object.
 * @param [in]  bytes  at most; what it does not use is given back at the end
 * @param [out] put_p  bt_store_put_end() is due
 * @retval BT_ERR_TOO_LARGE  the space has no room for it
 * @retval BT_ERR_OVERFLOW   the space has as many objects as it may have
 * @retval BT_ERR_BUSY       the store has no room for it
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_store_put_begin(bt_store_t *store,
                                             bt_store_kind_t kind,
                                             const char *space, uint64_t bytes,
                                             uint64_t now_us,
                                             bt_store_put_t **put_p);
/** Returns why a put was refused, for a client: one sentence, with the limit's
 *  name. NULL: not for lack of room */
const char *bt_store_refusal(bt_status_t status);
/** Returns the id that the object will have. */
const char *bt_store_put_id(const bt_store_put_t *put);
/** Sets an id of bt_store_id_make() that no object has, before the first byte.
 */
void bt_store_put_set_id(bt_store_put_t *put, const char *id);
/** Sets label and life, before the first byte; any thread.
 *  @param [in] life_s  0: the store's; a longer one is the store's */
BT_MUST_CHECK bt_status_t bt_store_put_describe(bt_store_put_t *put,
                                                const void *label,
                                                size_t label_bytes,
                                                uint64_t life_s);
/** Appends bytes; any thread, one at a time.
 *  @retval BT_ERR_TOO_LARGE  more than were reserved; nothing was appended
 *  @retval BT_ERR_IO         nothing of it is left on the disk
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_store_put_write(bt_store_put_t *put,
                                             const void *data, size_t bytes);
/** Completes the file: it is on the disk, and stays, once this returns BT_OK;
 *  otherwise there is none. Any thread.
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_store_put_commit(bt_store_put_t *put);
/** Ends a put: puts a committed object into the index, else gives its space
 *  back; what was written of it is removed by a later tick.
 *  @return the object, borrowed; NULL: not committed */
bt_stored_t *bt_store_put_end(bt_store_put_t *put);

/* ---- reading; any thread, one at a time for each reader ---- */

/** Opens an object, to which the caller has a reference.
 *  @retval BT_ERR_NOT_FOUND (removed), BT_ERR_CORRUPT, BT_ERR_IO,
 *      BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_store_reader_open(const bt_store_t *store,
                                               const bt_stored_t *object,
                                               bt_store_reader_t **reader_p);
/** Reads the next bytes.
 *  @param [out] data_p   valid until the next call
 *  @param [out] bytes_p  0: the end
 *  @retval BT_ERR_CORRUPT, BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_store_reader_next(bt_store_reader_t *reader,
                                               const void **data_p,
                                               size_t *bytes_p);
void bt_store_reader_close(bt_store_reader_t *reader); /**< NULL is allowed */
/** Goes to byte @a at, a multiple of BT_STORE_CHUNK_BYTES, of the object or its
 *  end. */
void bt_store_reader_seek(bt_store_reader_t *reader, uint64_t at);
/** Reads an object from byte @a at, as in bt_store_reader_seek(), for @a most
 *  bytes, rounded up to chunks, or up to its end.
 *  @param [out] out  initialized, and empty
 *  @retval as bt_store_reader_open(); BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_store_read(const bt_store_t *store,
                                        const bt_stored_t *object, uint64_t at,
                                        uint64_t most, bt_strbuf_t *out);

/* ---- journals; any thread, one at a time for each journal ----
 *
 * Records that are appended to what an object is about, in a file beside it. A
 * record is there whole or not at all: one that a kill has torn is cut off when
 * the journal is opened again. */

/** Opens the journal of an object, to which the caller has a reference; makes
 *  it if there is none. Its records are read first.
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_CORRUPT, BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_store_journal_open(const bt_store_t *store,
                                                const bt_stored_t *object,
                                                bt_store_journal_t **journal_p);
/** Goes back to the first record. */
void bt_store_journal_rewind(bt_store_journal_t *journal);
/** Reads the next record. What is no record ends the journal, and is cut off,
 *  which is logged.
 *  @param [out] data_p   valid until the next call
 *  @param [out] bytes_p  0: there are no more, and records may be appended
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_store_journal_next(bt_store_journal_t *journal,
                                                const void **data_p,
                                                size_t *bytes_p);
/** Appends a record of at least one byte. @retval BT_ERR_IO  the journal cannot
 *  be used any more */
BT_MUST_CHECK bt_status_t bt_store_journal_append(bt_store_journal_t *journal,
                                                  const void *data,
                                                  size_t bytes);
/** Returns once all records are on the disk. @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_store_journal_sync(bt_store_journal_t *journal);
/** Replaces all records by one, and closes the journal in any case. If the
 *  machine fails soon after, the records may be as before.
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY  the records are as before */
BT_MUST_CHECK bt_status_t bt_store_journal_replace(bt_store_journal_t *journal,
                                                   const void *data,
                                                   size_t bytes);
void bt_store_journal_close(bt_store_journal_t *journal); /**< NULL is allowed
                                                           */

#endif
