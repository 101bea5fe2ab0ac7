/* Record: one record of a batch, lazily. It holds pointers into the section and, through Source, the buffer itself;
 * keys and values become Python objects when they are asked for.
 */
#ifndef KRAFTLOG_CODEC_RECORD_H
#define KRAFTLOG_CODEC_RECORD_H

#include "_codec_append.h"
#include "_codec_batch.h"
#include "_codec_walk.h"

/* What the records of one batch share. */
typedef struct {
    PyObject_HEAD
    Py_buffer view; /* keeps the section's bytes where they are */
    PyObject *topic, *partition, *timestamp_type, *leader_epoch;
} Source;

typedef struct {
    PyObject_HEAD
    Source *source;
    const uint8_t *key, *value;
    Cursor headers;
    int64_t offset, timestamp;
    int32_t key_size, value_size, header_count;
} Record;

static PyTypeObject SourceType, RecordType;
static PyObject *make_record; /* kraftlog.proto.records.make_record; looked up when first needed, it imports this */

static void source_dealloc(Source *self)
{
    if (self->view.obj) PyBuffer_Release(&self->view);
    Py_DECREF(self->topic);
    Py_DECREF(self->partition);
    Py_DECREF(self->timestamp_type);
    Py_DECREF(self->leader_epoch);
    PyObject_Free(self);
}

static Source *source_new(PyObject *buffer, PyObject *topic, PyObject *partition, PyObject *timestamp_type,
                          PyObject *leader_epoch)
{
    Source *self = PyObject_New(Source, &SourceType);
    if (!self) return NULL;
    self->topic = Py_NewRef(topic);
    self->partition = Py_NewRef(partition);
    self->timestamp_type = Py_NewRef(timestamp_type);
    self->leader_epoch = Py_NewRef(leader_epoch);
    self->view.obj = NULL;
    /* Of a memoryview take another view on the same bytes, so that the caller may release its own. */
    PyObject *holder = PyMemoryView_Check(buffer) ? PyMemoryView_FromObject(buffer) : Py_NewRef(buffer);
    if (!holder || PyObject_GetBuffer(holder, &self->view, PyBUF_SIMPLE) < 0) Py_CLEAR(self);
    Py_XDECREF(holder);
    return self;
}

static inline Record *record_new(Source *source, const RecordView *view, int64_t offset, int64_t timestamp)
{
    Record *self = PyObject_New(Record, &RecordType);
    if (!self) return NULL;
    self->source = (Source *)Py_NewRef(source);
    self->key = view->key;
    self->key_size = view->key_size;
    self->value = view->value;
    self->value_size = view->value_size;
    self->headers = view->headers;
    self->header_count = view->header_count;
    self->offset = offset;
    self->timestamp = timestamp;
    return self;
}

static void record_dealloc(Record *self)
{
    Py_DECREF(self->source);
    PyObject_Free(self);
}

/* Record(topic, partition, offset, timestamp, timestamp_type, key, value, headers=(), leader_epoch=-1): the fields
 * are encoded into a section of one record, so that there is only one kind of Record. */
static PyObject *record_construct(PyTypeObject *Py_UNUSED(type), PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"topic", "partition",  "offset",  "timestamp",    "timestamp_type",
                            "key",   "value",      "headers", "leader_epoch", NULL};
    PyObject *topic, *partition, *timestamp_type, *key_object, *value_object, *header_object = NULL, *epoch = NULL;
    long long offset, timestamp;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOLLOOO|OO:Record", names, &topic, &partition, &offset,
                                     &timestamp, &timestamp_type, &key_object, &value_object, &header_object, &epoch))
        return NULL;
    PyObject *bytes = NULL;
    Source *source = NULL;
    Record *self = NULL;
    Blob key, value;
    HeaderArguments headers;
    PyObject *leader_epoch = epoch ? Py_NewRef(epoch) : PyLong_FromLong(-1);
    if (!leader_epoch) return NULL;
    if (blob_get(key_object, &key) < 0) goto release_epoch;
    if (blob_get(value_object, &value) < 0) goto release_key;
    if (headers_get(header_object, &headers) < 0) goto release_value;
    uint64_t body = record_body_size(0, 0, key.size, value.size, headers.size);
    if (body > INT32_MAX) {
        PyErr_Format(RecordTooLargeError, "record of %llu bytes exceeds %d, the format's limit",
                     (unsigned long long)body, INT32_MAX);
        goto release_headers;
    }
    size_t size = (size_t)body + (size_t)varint_size(to_zigzag((int64_t)body));
    bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!bytes) goto release_headers;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(bytes);
    put_headers(put_record(at, body, 0, 0, key.bytes, key.size, value.bytes, value.size), &headers);
    source = source_new(bytes, topic, partition, timestamp_type, leader_epoch);
    if (source) {
        RecordView view;
        Walk walk = walk_begin(at, size, 1, 0);
        if (walk_next(&walk, &view))
            self = record_new(source, &view, offset, timestamp);
        else
            PyErr_SetString(InvalidRecordError, walk.error);
    }
    Py_XDECREF(source);
    Py_DECREF(bytes);
release_headers:
    headers_release(&headers);
release_value:
    blob_release(&value);
release_key:
    blob_release(&key);
release_epoch:
    Py_DECREF(leader_epoch);
    return (PyObject *)self;
}

static PyObject *record_topic(Record *self, void *Py_UNUSED(closure)) { return Py_NewRef(self->source->topic); }
static PyObject *record_partition(Record *self, void *Py_UNUSED(closure)) { return Py_NewRef(self->source->partition); }
static PyObject *record_timestamp_type(Record *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->source->timestamp_type);
}
static PyObject *record_leader_epoch(Record *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->source->leader_epoch);
}
static PyObject *record_offset(Record *self, void *Py_UNUSED(closure)) { return PyLong_FromLongLong(self->offset); }
static PyObject *record_timestamp(Record *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->timestamp);
}
static PyObject *record_key(Record *self, void *Py_UNUSED(closure)) { return blob_object(self->key, self->key_size); }
static PyObject *record_value(Record *self, void *Py_UNUSED(closure))
{
    return blob_object(self->value, self->value_size);
}
static PyObject *record_key_size(Record *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(self->key_size); }
static PyObject *record_value_size(Record *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(self->value_size); }

/* The headers are parsed again: a mutable buffer may have changed since they were checked. */
static PyObject *record_headers(Record *self, void *Py_UNUSED(closure))
{
    PyObject *headers = PyTuple_New(self->header_count);
    Cursor cursor = self->headers;
    for (int32_t index = 0; headers && index < self->header_count; index++) {
        const uint8_t *key, *value;
        int32_t key_size, value_size;
        if (!header_next(&cursor, &key, &key_size, &value, &value_size)) {
            PyErr_SetString(InvalidRecordError, "the record's buffer changed while the record was in use");
            Py_CLEAR(headers);
            break;
        }
        PyObject *name = PyUnicode_DecodeUTF8((const char *)key, key_size, "replace");
        PyObject *content = blob_object(value, value_size);
        PyObject *pair = name && content ? PyTuple_Pack(2, name, content) : NULL;
        Py_XDECREF(name);
        Py_XDECREF(content);
        if (!pair) Py_CLEAR(headers);
        else PyTuple_SET_ITEM(headers, index, pair);
    }
    return headers;
}

/* The constructor's arguments that make an equal record. */
static PyObject *record_fields(Record *self)
{
    PyObject *key = record_key(self, NULL), *value = record_value(self, NULL), *headers = record_headers(self, NULL);
    PyObject *fields = NULL;
    if (key && value && headers)
        fields = Py_BuildValue("(OOLLOOOOO)", self->source->topic, self->source->partition, (long long)self->offset,
                               (long long)self->timestamp, self->source->timestamp_type, key, value, headers,
                               self->source->leader_epoch);
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return fields;
}

/* Pickled by value, through a function that makes the record of whichever twin the reader runs. */
static PyObject *record_reduce(Record *self, PyObject *Py_UNUSED(ignored))
{
    if (!make_record) {
        PyObject *package = PyImport_ImportModule("kraftlog.proto.records");
        if (!package) return NULL;
        make_record = PyObject_GetAttrString(package, "make_record");
        Py_DECREF(package);
        if (!make_record) return NULL;
    }
    PyObject *fields = record_fields(self);
    return fields ? Py_BuildValue("(ON)", make_record, fields) : NULL;
}

static PyObject *record_compare(PyObject *self, PyObject *other, int operator)
{
    if ((operator != Py_EQ && operator != Py_NE) || !Py_IS_TYPE(other, &RecordType)) Py_RETURN_NOTIMPLEMENTED;
    PyObject *left = record_fields((Record *)self), *right = left ? record_fields((Record *)other) : NULL;
    PyObject *result = right ? PyObject_RichCompare(left, right, operator) : NULL;
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static Py_hash_t record_hash(Record *self)
{
    PyObject *place = Py_BuildValue("(OOL)", self->source->topic, self->source->partition, (long long)self->offset);
    if (!place) return -1;
    Py_hash_t hash = PyObject_Hash(place);
    Py_DECREF(place);
    return hash;
}

/* At most 32 bytes of a key or value, for display. */
static PyObject *blob_excerpt(const uint8_t *bytes, int32_t size)
{
    PyObject *shown = blob_object(bytes, size > 32 ? 32 : size);
    if (!shown) return NULL;
    PyObject *text = size > 32 ? PyUnicode_FromFormat("%R+%d bytes", shown, size - 32) : PyObject_Repr(shown);
    Py_DECREF(shown);
    return text;
}

static PyObject *record_repr(Record *self)
{
    PyObject *key = blob_excerpt(self->key, self->key_size), *value = blob_excerpt(self->value, self->value_size);
    PyObject *text = NULL;
    if (key && value)
        text = PyUnicode_FromFormat(
            "Record(topic=%R, partition=%S, offset=%lld, timestamp=%lld, key=%U, value=%U, headers=%d)",
            self->source->topic, self->source->partition, (long long)self->offset, (long long)self->timestamp, key,
            value, self->header_count);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return text;
}

static PyGetSetDef record_attributes[] = {
    {"topic", (getter)record_topic, NULL, NULL, NULL},
    {"partition", (getter)record_partition, NULL, NULL, NULL},
    {"offset", (getter)record_offset, NULL, NULL, NULL},
    {"timestamp", (getter)record_timestamp, NULL, "ms since the epoch, -1: none", NULL},
    {"timestamp_type", (getter)record_timestamp_type, NULL, NULL, NULL},
    {"key", (getter)record_key, NULL, NULL, NULL},
    {"value", (getter)record_value, NULL, NULL, NULL},
    {"headers", (getter)record_headers, NULL, "tuple of (str, bytes or None)", NULL},
    {"leader_epoch", (getter)record_leader_epoch, NULL, "-1: unknown", NULL},
    {"serialized_key_size", (getter)record_key_size, NULL, "bytes, -1 for None", NULL},
    {"serialized_value_size", (getter)record_value_size, NULL, "bytes, -1 for None", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef record_methods[] = {
    {"__reduce__", (PyCFunction)record_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- decoding ---- */

static void raise_walk_error(const Walk *walk)
{
    PyErr_Format(InvalidRecordError, "record %d: %s", (int)walk->index, walk->error);
}

/* How a batch's deltas become offsets and timestamps, and which offsets are wanted. */
typedef struct {
    int64_t base_offset, base_timestamp, append_time;
    int64_t min_offset, end_offset; /* exclusive */
    int32_t timestamp_type;
    bool has_append_time; /* then it is the timestamp of every record */
} BatchPart;

static BatchPart batch_part(const BatchView *batch, int64_t min_offset, int64_t end_offset)
{
    bool has_append_time = (batch->attributes & TIMESTAMP_TYPE_BIT) != 0;
    return (BatchPart){
        .base_offset = batch->base_offset,
        .base_timestamp = batch->base_timestamp,
        .append_time = batch->max_timestamp,
        .min_offset = min_offset,
        .end_offset = end_offset,
        .timestamp_type = has_append_time,
        .has_append_time = has_append_time,
    };
}

/* Offset and timestamp of a record; false, and the walk in error, if the timestamp does not fit in 64 bits. */
static inline bool record_place(Walk *walk, const RecordView *record, const BatchPart *part, int64_t *offset,
                                int64_t *timestamp)
{
    if (!add_timestamp(part->base_timestamp, record->timestamp_delta, timestamp)) {
        walk->error = "its timestamp does not fit in 64 bits";
        return false;
    }
    if (part->has_append_time) *timestamp = part->append_time;
    *offset = part->base_offset + record->offset_delta;
    return true;
}

/* The records of a walk from part->min_offset on, as a list; NULL with walk->error or with an exception set. */
static PyObject *decode_walk(Source *source, Walk *walk, const BatchPart *part)
{
    if (walk->error) return NULL;
    PyObject *records = PyList_New(walk->record_count);
    Py_ssize_t kept = 0;
    RecordView view;
    int64_t offset, timestamp;
    while (records && walk_next(walk, &view) && record_place(walk, &view, part, &offset, &timestamp)) {
        if (offset < part->min_offset) continue;
        Record *record = record_new(source, &view, offset, timestamp);
        if (record) PyList_SET_ITEM(records, kept++, (PyObject *)record);
        else Py_CLEAR(records);
    }
    if (walk->error) Py_CLEAR(records);
    if (records && kept < walk->record_count && PyList_SetSlice(records, kept, walk->record_count, NULL) < 0)
        Py_CLEAR(records);
    return records;
}

static PyObject *decode_records(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int32_t record_count, last_offset_delta;
    BatchPart part = {.end_offset = INT64_MAX};
    if (count != 11) {
        PyErr_SetString(PyExc_TypeError, "decode_records() takes 11 arguments");
        return NULL;
    }
    part.has_append_time = arguments[5] != Py_None;
    if (int32_argument(arguments[1], &record_count) < 0 || int32_argument(arguments[2], &last_offset_delta) < 0 ||
        int64_argument(arguments[3], &part.base_offset) < 0 || int64_argument(arguments[4], &part.base_timestamp) < 0 ||
        (part.has_append_time && int64_argument(arguments[5], &part.append_time) < 0) ||
        int64_argument(arguments[6], &part.min_offset) < 0)
        return NULL;
    if (!base_offset_is_good(part.base_offset)) {
        PyErr_SetString(InvalidRecordError, "base offset is out of range");
        return NULL;
    }
    Source *source = source_new(arguments[0], arguments[7], arguments[8], arguments[9], arguments[10]);
    if (!source) return NULL;
    Walk walk = walk_begin(source->view.buf, (size_t)source->view.len, record_count, last_offset_delta);
    PyObject *records = decode_walk(source, &walk, &part);
    if (walk.error) raise_walk_error(&walk);
    Py_DECREF(source);
    return records;
}

/* ---- decode_run ---- */

/* The source of a run's records; neighbouring batches of one epoch and timestamp type share it. */
typedef struct {
    PyObject *buffer, *topic, *partition, *timestamp_types;
    Source *source;
    int32_t leader_epoch, timestamp_type;
} RunSource;

static Source *run_source(RunSource *run, const BatchView *batch, int32_t timestamp_type)
{
    if (run->source && run->leader_epoch == batch->leader_epoch && run->timestamp_type == timestamp_type)
        return run->source;
    PyObject *leader_epoch = PyLong_FromLong(batch->leader_epoch);
    if (!leader_epoch) return NULL;
    Py_XSETREF(run->source, source_new(run->buffer, run->topic, run->partition,
                                       PyTuple_GET_ITEM(run->timestamp_types, timestamp_type), leader_epoch));
    Py_DECREF(leader_epoch);
    run->leader_epoch = batch->leader_epoch;
    run->timestamp_type = timestamp_type;
    return run->source;
}

/* The next batch of a run, with a good CRC if `check`; false where it ends: at what is cut, damaged or compressed. */
static bool run_next(Cursor *cursor, bool check, BatchView *batch)
{
    Cursor ahead = *cursor;
    if (!batch_next(&ahead, batch) || batch->attributes & COMPRESSION_MASK) return false;
    if (check && crc_of(0, batch->covered, batch->covered_size) != batch->crc) return false;
    *cursor = ahead;
    return true;
}

/* Whether a reader from `min_offset` on passes over the whole batch: a control batch, or one before its position. */
static bool run_skips(const BatchView *batch, int64_t min_offset)
{
    return batch->attributes & CONTROL_BIT || batch->base_offset + batch->last_offset_delta < min_offset;
}

/* Append the records of one batch to a list: 1 done, 0 the batch is invalid (nothing appended), -1 an exception. */
static int run_batch(RunSource *run, const BatchView *batch, int64_t min_offset, PyObject *records)
{
    BatchPart part = batch_part(batch, min_offset, INT64_MAX);
    Source *source = run_source(run, batch, part.timestamp_type);
    if (!source) return -1;
    Walk walk = walk_begin(batch->section, batch->section_size, batch->record_count, batch->last_offset_delta);
    PyObject *found = decode_walk(source, &walk, &part);
    if (!found) return walk.error ? 0 : -1;
    int result = PyList_SetSlice(records, PyList_GET_SIZE(records), PyList_GET_SIZE(records), found);
    Py_DECREF(found);
    return result < 0 ? -1 : 1;
}

/* decode_run(buffer, position, min_offset, check, topic, partition, timestamp_types): the records of the batches from
 * `position` on that need no detour, and where they end. The caller goes on from there, batch by batch: a compressed
 * batch is decompressed by Python, a bad one gets its error from the code that words it. */
static PyObject *decode_run(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t position, min_offset;
    if (count != 7 || !PyTuple_Check(arguments[6]) || PyTuple_GET_SIZE(arguments[6]) != 2) {
        PyErr_SetString(PyExc_TypeError, "decode_run() takes 7 arguments, the last a pair");
        return NULL;
    }
    int check = PyObject_IsTrue(arguments[3]);
    if (check < 0 || int64_argument(arguments[1], &position) < 0 || int64_argument(arguments[2], &min_offset) < 0)
        return NULL;
    Py_buffer buffer;
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *records = NULL;
    if (position < 0 || position > buffer.len) PyErr_SetString(PyExc_ValueError, "decode_run: position out of range");
    else records = PyList_New(0);
    const uint8_t *bytes = buffer.buf;
    Cursor cursor = {bytes, bytes + buffer.len}, ahead;
    if (records) cursor.at += position;
    RunSource run = {arguments[0], arguments[4], arguments[5], arguments[6], NULL, 0, 0};
    BatchView batch;
    int done = 1;
    while (records && done == 1 && (ahead = cursor, run_next(&ahead, check, &batch))) {
        if (!run_skips(&batch, min_offset)) done = run_batch(&run, &batch, min_offset, records);
        if (done == 1) cursor = ahead;
    }
    if (done < 0) Py_CLEAR(records);
    Py_XDECREF(run.source);
    PyObject *result = records ? Py_BuildValue("(Nn)", records, (Py_ssize_t)(cursor.at - bytes)) : NULL;
    PyBuffer_Release(&buffer);
    return result;
}

#endif
