/* Record: one record of a batch, lazily. It holds pointers into the section and, through Source, the buffer itself;
 * keys and values become Python objects when they are asked for.
 */
#ifndef KRAFTLOG_CODEC_RECORD_H
#define KRAFTLOG_CODEC_RECORD_H

#include "_codec_append.h"
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
    PyBuffer_Release(&self->view);
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
    if (PyObject_GetBuffer(buffer, &self->view, PyBUF_SIMPLE) < 0) {
        Py_DECREF(self);
        return NULL;
    }
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

/* ---- decode_records ---- */

static void raise_walk_error(const Walk *walk)
{
    PyErr_Format(InvalidRecordError, "record %d: %s", (int)walk->index, walk->error);
}

static PyObject *decode_records(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int32_t record_count, last_offset_delta;
    int64_t base_offset, base_timestamp, append_time = 0, min_offset;
    if (count != 11) {
        PyErr_SetString(PyExc_TypeError, "decode_records() takes 11 arguments");
        return NULL;
    }
    bool has_append_time = arguments[5] != Py_None;
    if (int32_argument(arguments[1], &record_count) < 0 || int32_argument(arguments[2], &last_offset_delta) < 0 ||
        int64_argument(arguments[3], &base_offset) < 0 || int64_argument(arguments[4], &base_timestamp) < 0 ||
        (has_append_time && int64_argument(arguments[5], &append_time) < 0) ||
        int64_argument(arguments[6], &min_offset) < 0)
        return NULL;
    if (base_offset > INT64_MAX - INT32_MAX) { /* format.MAX_OFFSET: adding a delta cannot overflow */
        PyErr_SetString(InvalidRecordError, "base offset is out of range");
        return NULL;
    }
    Source *source = source_new(arguments[0], arguments[7], arguments[8], arguments[9], arguments[10]);
    if (!source) return NULL;
    Walk walk = walk_begin(source->view.buf, (size_t)source->view.len, record_count, last_offset_delta);
    PyObject *records = walk.error ? NULL : PyList_New(record_count);
    Py_ssize_t kept = 0;
    RecordView view;
    while (records && walk_next(&walk, &view)) {
        int64_t timestamp, offset = base_offset + view.offset_delta;
        if (!add_timestamp(base_timestamp, view.timestamp_delta, &timestamp)) {
            walk.error = "its timestamp does not fit in 64 bits";
            break;
        }
        if (offset < min_offset) continue;
        Record *record = record_new(source, &view, offset, has_append_time ? append_time : timestamp);
        if (!record) {
            Py_CLEAR(records);
            break;
        }
        PyList_SET_ITEM(records, kept++, (PyObject *)record);
    }
    if (walk.error) {
        raise_walk_error(&walk);
        Py_CLEAR(records);
    } else if (records && kept < record_count && PyList_SetSlice(records, kept, record_count, NULL) < 0) {
        Py_CLEAR(records);
    }
    Py_DECREF(source);
    return records;
}

/* ---- validate_records ---- */

typedef struct {
    int64_t base_timestamp, largest;
    bool is_consecutive, require_keys;
} Rules;

static void validate_walk(Walk *walk, Rules *rules)
{
    RecordView view;
    int32_t index = 0;
    for (; walk_next(walk, &view); index++) {
        int64_t timestamp;
        if (!add_timestamp(rules->base_timestamp, view.timestamp_delta, &timestamp))
            walk->error = "its timestamp does not fit in 64 bits";
        else if (rules->is_consecutive && view.offset_delta != index)
            walk->error = "its offset delta is not its place in the batch";
        else if (rules->require_keys && view.key_size < 0)
            walk->error = "compacted topics need a key";
        else if (timestamp > rules->largest || index == 0)
            rules->largest = timestamp;
    }
}

static PyObject *validate_records(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int32_t record_count, last_offset_delta;
    Rules rules = {0, -1, false, false};
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "validate_records() takes 6 arguments");
        return NULL;
    }
    if (int32_argument(arguments[1], &record_count) < 0 || int32_argument(arguments[2], &last_offset_delta) < 0 ||
        int64_argument(arguments[3], &rules.base_timestamp) < 0)
        return NULL;
    int is_consecutive = PyObject_IsTrue(arguments[4]), require_keys = PyObject_IsTrue(arguments[5]);
    if (is_consecutive < 0 || require_keys < 0) return NULL;
    rules.is_consecutive = is_consecutive;
    rules.require_keys = require_keys;
    Py_buffer section;
    if (PyObject_GetBuffer(arguments[0], &section, PyBUF_SIMPLE) < 0) return NULL;
    Walk walk = walk_begin(section.buf, (size_t)section.len, record_count, last_offset_delta);
    if (section.len >= GIL_RELEASE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        validate_walk(&walk, &rules);
        Py_END_ALLOW_THREADS
    } else {
        validate_walk(&walk, &rules);
    }
    PyBuffer_Release(&section);
    if (walk.error) {
        raise_walk_error(&walk);
        return NULL;
    }
    return PyLong_FromLongLong(rules.largest);
}

#endif
