/* Log compaction: the table from keys to their latest offsets, and which records of a batch stay; _reference_compact.py
 * documents both.
 *
 * The table is a block of 24-byte slots, open addressing with linear probing:
 *
 *     0   16   SipHash-2-4-128 of the key; the first 8 bytes, little-endian, modulo the slots say where it starts
 *     16  8    latest offset + 1, little-endian; 0: the slot is free
 */
#ifndef KRAFTLOG_CODEC_COMPACT_H
#define KRAFTLOG_CODEC_COMPACT_H

#include "_codec_python.h"
#include "_codec_record.h"
#include "_codec_walk.h"

enum { SLOT_BYTES = 24, SIP_KEY_BYTES = 16 };

/* From here on others get the GIL meanwhile. A record takes some 0.2 us here, many times what it takes elsewhere, and a
 * pass goes from batch to batch for seconds: whoever wants the GIL of a thread that never lets it go waits for 5 ms. */
#define COMPACT_GIL_RELEASE_BYTES (4 * 1024)

static inline uint64_t little_endian(const uint8_t *bytes, int width)
{
    uint64_t number = 0;
    for (int at = width; at--;) number = number << 8 | bytes[at];
    return number;
}

static inline void put_little_endian(uint8_t *bytes, uint64_t number)
{
    for (int at = 0; at < 8; at++, number >>= 8) bytes[at] = (uint8_t)number;
}

/* ---- SipHash-2-4 with 128 bits of output (Aumasson and Bernstein) ---- */

typedef struct {
    uint64_t first, second;
} Hash;

#define ROTATE(number, bits) ((number) << (bits) | (number) >> (64 - (bits)))

static inline void sip_rounds(uint64_t v[4], int count)
{
    while (count--) {
        v[0] += v[1]; v[1] = ROTATE(v[1], 13); v[1] ^= v[0]; v[0] = ROTATE(v[0], 32);
        v[2] += v[3]; v[3] = ROTATE(v[3], 16); v[3] ^= v[2];
        v[0] += v[3]; v[3] = ROTATE(v[3], 21); v[3] ^= v[0];
        v[2] += v[1]; v[1] = ROTATE(v[1], 17); v[1] ^= v[2]; v[2] = ROTATE(v[2], 32);
    }
}

static Hash sip_hash(const uint8_t *key, const uint8_t *bytes, size_t size)
{
    uint64_t k0 = little_endian(key, 8), k1 = little_endian(key + 8, 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261,
                     k1 ^ 0x7465646279746573};
    const uint8_t *whole_end = bytes + (size - size % 8);
    for (; bytes != whole_end; bytes += 8) {
        uint64_t word = little_endian(bytes, 8);
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)(size & 0xff) << 56 | little_endian(bytes, (int)(size % 8));
    v[3] ^= last;
    sip_rounds(v, 2);
    v[0] ^= last;
    v[2] ^= 0xee;
    sip_rounds(v, 4);
    Hash hash = {v[0] ^ v[1] ^ v[2] ^ v[3], 0};
    v[1] ^= 0xdd;
    sip_rounds(v, 4);
    hash.second = v[0] ^ v[1] ^ v[2] ^ v[3];
    return hash;
}

/* ---- the table ---- */

typedef struct {
    uint8_t *bytes;
    uint64_t slots;
    const uint8_t *sip_key;
} Table;

/* The key's slot, or the free one where it would go; NULL if the table has no free slot and not the key. */
static uint8_t *table_find(const Table *table, Hash hash)
{
    if (!table->slots) return NULL;
    uint64_t number = hash.first % table->slots;
    for (uint64_t left = table->slots; left--;) {
        uint8_t *slot = table->bytes + number * SLOT_BYTES;
        if (!little_endian(slot + 16, 8) ||
            (little_endian(slot, 8) == hash.first && little_endian(slot + 8, 8) == hash.second))
            return slot;
        if (++number == table->slots) number = 0;
    }
    return NULL;
}

/* ---- the hashes of the records to come ---- */

/* Slots are all over the table: asked for some records ahead, their memory is there when it is their turn. */
enum { AHEAD = 16 };

typedef struct {
    Walk walk; /* what is wrong with a record is for the walk behind to find */
    Hash hashes[AHEAD];
} Lookahead;

static void ahead_step(Lookahead *ahead, const Table *table)
{
    RecordView view;
    int32_t index = ahead->walk.index;
    if (!walk_next(&ahead->walk, &view) || view.key_size < 0 || !table->slots) return;
    Hash hash = sip_hash(table->sip_key, view.key, (size_t)view.key_size);
    const uint8_t *slot = table->bytes + hash.first % table->slots * SLOT_BYTES;
    __builtin_prefetch(slot);
    __builtin_prefetch(slot + SLOT_BYTES - 1);
    ahead->hashes[index % AHEAD] = hash;
}

static Lookahead ahead_begin(const Walk *walk, const Table *table)
{
    Lookahead ahead = {.walk = *walk};
    for (int count = AHEAD; count--;) ahead_step(&ahead, table);
    return ahead;
}

/* The hash of the record that `walk` is at; to be asked for once for each. Of no meaning if it has no key. */
static inline Hash ahead_hash(Lookahead *ahead, const Walk *walk, const Table *table)
{
    Hash hash = ahead->hashes[(walk->index - 1) % AHEAD];
    ahead_step(ahead, table);
    return hash;
}

/* The records of one batch and what is done with them. */
typedef struct {
    Table table;
    int64_t base_offset;
    int64_t min_offset;           /* adding: records below are passed over */
    int64_t end_offset;           /* filtering: records from here on stay */
    uint64_t used, max_used;      /* adding */
    int64_t base_timestamp;       /* filtering, as all that follows */
    bool drop_tombstones, force_horizon, has_horizon;
    int64_t horizon;
    Growable out;                 /* the survivors, once one record was dropped */
    bool is_changed, has_tombstones, is_out_of_memory;
    int32_t kept;
    int64_t largest;
} Compaction;

/* Returns the index of the first record that found no room; record_count if all did. */
static int32_t compact_add(Walk *walk, Compaction *work)
{
    RecordView view;
    Lookahead ahead = ahead_begin(walk, &work->table);
    while (walk_next(walk, &view)) {
        Hash hash = ahead_hash(&ahead, walk, &work->table);
        int64_t offset = work->base_offset + view.offset_delta;
        if (view.key_size < 0 || offset < work->min_offset) continue;
        uint8_t *slot = table_find(&work->table, hash);
        bool is_free = slot && !little_endian(slot + 16, 8);
        if (!slot || (is_free && work->used >= work->max_used)) return walk->index - 1;
        if (is_free) {
            put_little_endian(slot, hash.first);
            put_little_endian(slot + 8, hash.second);
            work->used++;
        }
        put_little_endian(slot + 16, (uint64_t)offset + 1);
    }
    return walk->record_count;
}

static bool compact_keeps(const Compaction *work, const RecordView *view, Hash hash)
{
    int64_t offset = work->base_offset + view->offset_delta;
    if (offset >= work->end_offset) return true;
    if (view->key_size < 0 || (view->value_size < 0 && work->drop_tombstones)) return false;
    const uint8_t *slot = table_find(&work->table, hash);
    return !slot || (int64_t)(little_endian(slot + 16, 8) - 1) <= offset; /* a free slot holds 0: -1 */
}

static bool compact_put(Compaction *work, const uint8_t *bytes, size_t size)
{
    if (!grow(&work->out, size)) {
        work->is_out_of_memory = true;
        return false;
    }
    if (size) memcpy(work->out.bytes + work->out.size, bytes, size); /* nothing before the first record: no memory yet */
    work->out.size += size;
    return true;
}

static void compact_filter(Walk *walk, Compaction *work, const uint8_t *section)
{
    const uint8_t *record = section;
    RecordView view;
    Lookahead ahead = ahead_begin(walk, &work->table);
    for (; walk_next(walk, &view); record = walk->cursor.at) {
        Hash hash = ahead_hash(&ahead, walk, &work->table);
        int64_t timestamp;
        if (!add_timestamp(work->base_timestamp, view.timestamp_delta, &timestamp)) {
            walk->error = "its timestamp does not fit in 64 bits";
            return;
        }
        if (!compact_keeps(work, &view, hash)) {
            if (!work->is_changed && !compact_put(work, section, (size_t)(record - section))) return;
            work->is_changed = true;
            continue;
        }
        if (work->is_changed && !compact_put(work, record, (size_t)(walk->cursor.at - record))) return;
        if (view.value_size < 0) work->has_tombstones = true;
        if (!work->kept++ || timestamp > work->largest) work->largest = timestamp;
    }
}

/* Let the survivors' timestamps count from the delete horizon. */
static void compact_rebase(Walk *walk, Compaction *work, Growable *out)
{
    RecordView view;
    while (walk_next(walk, &view)) {
        int64_t timestamp = 0, delta;
        add_timestamp(work->base_timestamp, view.timestamp_delta, &timestamp);
        if (__builtin_sub_overflow(timestamp, work->horizon, &delta)) {
            walk->error = "its timestamp is too far from the delete horizon";
            return;
        }
        size_t headers_size = cursor_left(&view.headers);
        uint64_t body = record_body_size(delta, view.offset_delta, view.key_size, view.value_size,
                                         (uint64_t)varint_size(to_zigzag(view.header_count)) + headers_size);
        if (body > INT32_MAX) {
            walk->error = "its size does not fit in 32 bits";
            return;
        }
        if (!grow(out, (size_t)body + MAX_VARINT_BYTES)) {
            work->is_out_of_memory = true;
            return;
        }
        uint8_t *at = put_record(out->bytes + out->size, body, delta, view.offset_delta, view.key, view.key_size,
                                 view.value, view.value_size);
        at = put_varint(at, to_zigzag(view.header_count));
        if (headers_size) memcpy(at, view.headers.at, headers_size);
        out->size = (size_t)(at - out->bytes) + headers_size;
    }
}

static void compact_run(Walk *walk, Compaction *work, const uint8_t *section, size_t size, int32_t last_offset_delta)
{
    compact_filter(walk, work, section);
    bool sets_horizon = work->has_horizon && work->kept && (work->has_tombstones || work->force_horizon);
    work->has_horizon = sets_horizon;
    if (walk->error || work->is_out_of_memory || !sets_horizon) return;
    Growable out = {NULL, 0, 0};
    *walk = walk_begin(work->is_changed ? work->out.bytes : section, work->is_changed ? work->out.size : size,
                       work->kept, last_offset_delta);
    compact_rebase(walk, work, &out);
    free(work->out.bytes);
    work->out = out;
    work->is_changed = true;
}

/* ---- arguments ---- */

typedef struct {
    Py_buffer table, sip_key, section;
    int32_t record_count, last_offset_delta;
} CompactBuffers;

static void compact_release(CompactBuffers *buffers)
{
    if (buffers->table.obj) PyBuffer_Release(&buffers->table);
    if (buffers->sip_key.obj) PyBuffer_Release(&buffers->sip_key);
    if (buffers->section.obj) PyBuffer_Release(&buffers->section);
}

/* The first six arguments: table, sip_key, section, record_count, last_offset_delta, base_offset. */
static int compact_arguments(PyObject *const *arguments, int table_flags, CompactBuffers *buffers, Compaction *work)
{
    buffers->table.obj = buffers->sip_key.obj = buffers->section.obj = NULL;
    if (int32_argument(arguments[3], &buffers->record_count) < 0 ||
        int32_argument(arguments[4], &buffers->last_offset_delta) < 0 ||
        int64_argument(arguments[5], &work->base_offset) < 0 ||
        PyObject_GetBuffer(arguments[0], &buffers->table, table_flags) < 0 ||
        PyObject_GetBuffer(arguments[1], &buffers->sip_key, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(arguments[2], &buffers->section, PyBUF_SIMPLE) < 0)
        return -1;
    if (buffers->table.len % SLOT_BYTES || buffers->sip_key.len != SIP_KEY_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a table has slots of 24 bytes and a key of 16");
        return -1;
    }
    if (!base_offset_is_good(work->base_offset)) {
        PyErr_SetString(InvalidRecordError, "base offset is out of range");
        return -1;
    }
    work->table = (Table){buffers->table.buf, (uint64_t)buffers->table.len / SLOT_BYTES, buffers->sip_key.buf};
    return 0;
}

static PyObject *add_keys(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    CompactBuffers buffers;
    Compaction work = {.used = 0};
    int64_t used, max_used;
    if (count != 9) {
        PyErr_SetString(PyExc_TypeError, "add_keys() takes 9 arguments");
        return NULL;
    }
    if (int64_argument(arguments[6], &work.min_offset) < 0 || int64_argument(arguments[7], &used) < 0 ||
        int64_argument(arguments[8], &max_used) < 0)
        return NULL;
    work.used = (uint64_t)used;
    work.max_used = (uint64_t)max_used;
    PyObject *result = NULL;
    if (compact_arguments(arguments, PyBUF_WRITABLE, &buffers, &work) == 0) {
        Walk walk = walk_begin(buffers.section.buf, (size_t)buffers.section.len, buffers.record_count,
                               buffers.last_offset_delta);
        int32_t done;
        if (buffers.section.len >= COMPACT_GIL_RELEASE_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            done = compact_add(&walk, &work);
            Py_END_ALLOW_THREADS
        } else {
            done = compact_add(&walk, &work);
        }
        if (walk.error) raise_walk_error(&walk);
        else if (done == walk.record_count) result = Py_BuildValue("(Li)", (long long)work.used, -1);
        else result = Py_BuildValue("(Li)", (long long)work.used, walk.previous_delta);
    }
    compact_release(&buffers);
    return result;
}

static PyObject *filter_records(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    CompactBuffers buffers;
    Compaction work = {.largest = -1};
    if (count != 11) {
        PyErr_SetString(PyExc_TypeError, "filter_records() takes 11 arguments");
        return NULL;
    }
    int drop_tombstones = PyObject_IsTrue(arguments[8]), force_horizon = PyObject_IsTrue(arguments[10]);
    work.has_horizon = arguments[9] != Py_None;
    if (drop_tombstones < 0 || force_horizon < 0 || int64_argument(arguments[6], &work.base_timestamp) < 0 ||
        int64_argument(arguments[7], &work.end_offset) < 0 ||
        (work.has_horizon && int64_argument(arguments[9], &work.horizon) < 0))
        return NULL;
    work.drop_tombstones = drop_tombstones;
    work.force_horizon = force_horizon;
    PyObject *result = NULL;
    if (compact_arguments(arguments, PyBUF_SIMPLE, &buffers, &work) == 0) {
        const uint8_t *section = buffers.section.buf;
        size_t size = (size_t)buffers.section.len;
        Walk walk = walk_begin(section, size, buffers.record_count, buffers.last_offset_delta);
        if (buffers.section.len >= COMPACT_GIL_RELEASE_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            compact_run(&walk, &work, section, size, buffers.last_offset_delta);
            Py_END_ALLOW_THREADS
        } else {
            compact_run(&walk, &work, section, size, buffers.last_offset_delta);
        }
        if (work.is_out_of_memory) PyErr_NoMemory();
        else if (walk.error) raise_walk_error(&walk);
        else if (work.is_changed)
            result = Py_BuildValue("(iLOy#)", work.kept, (long long)work.largest, work.has_horizon ? Py_True : Py_False,
                                   work.out.bytes ? (const char *)work.out.bytes : "", (Py_ssize_t)work.out.size);
        else
            result = Py_BuildValue("(iLOO)", work.kept, (long long)work.largest, Py_False, Py_None);
        free(work.out.bytes);
    }
    compact_release(&buffers);
    return result;
}

static PyObject *py_sip_hash(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer key, data;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "sip_hash() takes 2 arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &key, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result = NULL;
    if (key.len != SIP_KEY_BYTES) {
        PyErr_SetString(PyExc_ValueError, "sip_hash() needs a key of 16 bytes");
    } else if (PyObject_GetBuffer(arguments[1], &data, PyBUF_SIMPLE) == 0) {
        Hash hash = sip_hash(key.buf, data.buf, (size_t)data.len);
        uint8_t digest[16];
        put_little_endian(digest, hash.first);
        put_little_endian(digest + 8, hash.second);
        PyBuffer_Release(&data);
        result = PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
    }
    PyBuffer_Release(&key);
    return result;
}

#endif
