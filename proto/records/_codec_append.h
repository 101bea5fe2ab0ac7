/* RecordAppender: collects records into a section; _reference.py documents it. */
#ifndef KRAFTLOG_CODEC_APPEND_H
#define KRAFTLOG_CODEC_APPEND_H

#include "_codec_python.h"

#define MAX_TIMESTAMP (INT64_MAX - 1) /* its difference to -1 (no timestamp) still fits in 64 bits */

typedef struct {
    PyObject_HEAD
    Growable section;
    int64_t base_timestamp, max_timestamp;
    int64_t record_count;
    Py_ssize_t exports; /* buffers of the section that Python holds; while there are any it must not move */
} Appender;

static PyTypeObject AppenderType;

/* A header given from Python. `key` points into the str object, which `headers` of the caller keeps alive. */
typedef struct {
    const char *key;
    Py_ssize_t key_size;
    Blob value;
} HeaderArgument;

typedef struct {
    PyObject *sequence; /* owns the (key, value) pairs while they are used */
    HeaderArgument *items;
    Py_ssize_t count;
    uint64_t size; /* of the encoded header section, count included */
} HeaderArguments;

static void headers_release(HeaderArguments *headers)
{
    for (Py_ssize_t index = 0; index < headers->count; index++) blob_release(&headers->items[index].value);
    PyMem_Free(headers->items);
    Py_XDECREF(headers->sequence);
}

/* Read an iterable of (str, bytes-like or None), or None for no headers. Everything is acquired before anything is written, because asking an
 * object for its buffer may run Python code. */
static int headers_get(PyObject *object, HeaderArguments *headers)
{
    *headers = (HeaderArguments){NULL, NULL, 0, 1};
    if (object == NULL || object == Py_None || (PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 0)) return 0;
    headers->sequence = PySequence_Tuple(object);
    if (!headers->sequence) return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(headers->sequence);
    headers->items = PyMem_Calloc((size_t)count + 1, sizeof *headers->items);
    if (!headers->items) {
        PyErr_NoMemory();
        goto fail;
    }
    headers->size = (uint64_t)varint_size(to_zigzag(count));
    for (Py_ssize_t index = 0; index < count; index++) {
        HeaderArgument *item = &headers->items[index];
        PyObject *pair = PyTuple_GET_ITEM(headers->sequence, index);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
            PyErr_SetString(PyExc_TypeError, "a header is a tuple of str and bytes or None");
            goto fail;
        }
        item->key = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), &item->key_size);
        if (!item->key || blob_get(PyTuple_GET_ITEM(pair, 1), &item->value) < 0) goto fail;
        headers->count = index + 1;
        headers->size += (uint64_t)varint_size(to_zigzag(item->key_size)) + (uint64_t)item->key_size +
                         (uint64_t)varint_size(to_zigzag(item->value.size)) +
                         (uint64_t)(item->value.size > 0 ? item->value.size : 0);
    }
    return 0;
fail:
    headers_release(headers);
    return -1;
}

static uint8_t *put_headers(uint8_t *at, const HeaderArguments *headers)
{
    at = put_varint(at, to_zigzag(headers->count));
    for (Py_ssize_t index = 0; index < headers->count; index++) {
        const HeaderArgument *item = &headers->items[index];
        at = put_blob(at, (const uint8_t *)item->key, item->key_size);
        at = put_blob(at, item->value.bytes, item->value.size);
    }
    return at;
}

/* Bytes of a record after its length field. */
static uint64_t record_body_size(int64_t timestamp_delta, int64_t offset_delta, int64_t key_size, int64_t value_size,
                                 uint64_t headers_size)
{
    return 1 + (uint64_t)varint_size(to_zigzag(timestamp_delta)) + (uint64_t)varint_size(to_zigzag(offset_delta)) +
           (uint64_t)varint_size(to_zigzag(key_size)) + (uint64_t)(key_size > 0 ? key_size : 0) +
           (uint64_t)varint_size(to_zigzag(value_size)) + (uint64_t)(value_size > 0 ? value_size : 0) + headers_size;
}

/* The state and room that the next record needs; sets `delta` and `body`. */
static int appender_prepare(Appender *self, int64_t timestamp, int64_t key_size, int64_t value_size,
                            uint64_t headers_size, int64_t *delta, uint64_t *body)
{
    if (timestamp < -1 || timestamp > MAX_TIMESTAMP) {
        PyErr_Format(InvalidTimestampError, "timestamp %lld ms is out of range: give -1 (none) or more",
                     (long long)timestamp);
        return -1;
    }
    if (self->exports) {
        PyErr_SetString(PyExc_BufferError, "the section is in use: release its memoryview before appending");
        return -1;
    }
    *delta = self->record_count ? timestamp - self->base_timestamp : 0;
    *body = record_body_size(*delta, self->record_count, key_size, value_size, headers_size);
    if (*body > INT32_MAX || self->record_count == INT32_MAX) {
        PyErr_Format(RecordTooLargeError, "record of %llu bytes exceeds %d, the format's limit",
                     (unsigned long long)*body, INT32_MAX);
        return -1;
    }
    if (!grow(&self->section, (size_t)*body + MAX_VARINT_BYTES)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Write what precedes the headers. */
static uint8_t *put_record(uint8_t *at, uint64_t body, int64_t delta, int64_t index, const uint8_t *key,
                           int64_t key_size, const uint8_t *value, int64_t value_size)
{
    at = put_varint(at, to_zigzag((int64_t)body));
    *at++ = 0; /* attributes */
    at = put_varint(at, to_zigzag(delta));
    at = put_varint(at, to_zigzag(index));
    at = put_blob(at, key, key_size);
    return put_blob(at, value, value_size);
}

static void appender_commit(Appender *self, const uint8_t *end, int64_t timestamp)
{
    self->section.size = (size_t)(end - self->section.bytes);
    if (self->record_count++ == 0)
        self->base_timestamp = self->max_timestamp = timestamp;
    else if (timestamp > self->max_timestamp)
        self->max_timestamp = timestamp;
}

static int appender_add(Appender *self, int64_t timestamp, const Blob *key, const Blob *value,
                        const HeaderArguments *headers)
{
    int64_t delta;
    uint64_t body;
    if (appender_prepare(self, timestamp, key->size, value->size, headers->size, &delta, &body) < 0) return -1;
    uint8_t *at = put_record(self->section.bytes + self->section.size, body, delta, self->record_count, key->bytes,
                             key->size, value->bytes, value->size);
    appender_commit(self, put_headers(at, headers), timestamp);
    return 0;
}

/* Bind positional and keyword arguments to append's four parameters. */
static int append_arguments(PyObject *const *arguments, Py_ssize_t count, PyObject *keywords, PyObject *bound[4])
{
    static const char *const names[4] = {"timestamp_ms", "key", "value", "headers"};
    if (count > 4) {
        PyErr_Format(PyExc_TypeError, "append() takes at most 4 arguments (%zd given)", count);
        return -1;
    }
    for (Py_ssize_t index = 0; index < count; index++) bound[index] = arguments[index];
    for (Py_ssize_t at = 0; keywords && at < PyTuple_GET_SIZE(keywords); at++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, at);
        int index = 0;
        while (index < 4 && PyUnicode_CompareWithASCIIString(name, names[index]) != 0) index++;
        if (index == 4 || bound[index]) {
            PyErr_Format(PyExc_TypeError, "append() got an unexpected or repeated argument %R", name);
            return -1;
        }
        bound[index] = arguments[count + at];
    }
    if (!bound[0]) {
        PyErr_SetString(PyExc_TypeError, "append() needs timestamp_ms");
        return -1;
    }
    return 0;
}

static PyObject *appender_append(Appender *self, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    PyObject *bound[4] = {NULL, NULL, NULL, NULL};
    if (append_arguments(arguments, count, keywords, bound) < 0) return NULL;
    int64_t timestamp = PyLong_AsLongLong(bound[0]);
    if (timestamp == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError))
            PyErr_Format(InvalidTimestampError, "timestamp %S ms is out of range", bound[0]);
        return NULL;
    }
    Blob key, value;
    HeaderArguments headers;
    int result = -1;
    if (blob_get(bound[1], &key) < 0) return NULL;
    if (blob_get(bound[2], &value) < 0) goto release_key;
    if (headers_get(bound[3], &headers) < 0) goto release_value;
    result = appender_add(self, timestamp, &key, &value, &headers);
    headers_release(&headers);
release_value:
    blob_release(&value);
release_key:
    blob_release(&key);
    return result < 0 ? NULL : PyLong_FromSize_t(HEADER_BYTES + self->section.size);
}

static PyObject *appender_section(Appender *self, PyObject *Py_UNUSED(ignored))
{
    return PyMemoryView_FromObject((PyObject *)self);
}

static int appender_getbuffer(Appender *self, Py_buffer *view, int flags)
{
    static uint8_t nothing;
    void *bytes = self->section.bytes ? self->section.bytes : &nothing;
    if (PyBuffer_FillInfo(view, (PyObject *)self, bytes, (Py_ssize_t)self->section.size, 1, flags) < 0) return -1;
    self->exports++;
    return 0;
}

static void appender_releasebuffer(Appender *self, Py_buffer *Py_UNUSED(view)) { self->exports--; }

static PyObject *appender_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords))
{
    Appender *self = (Appender *)type->tp_alloc(type, 0); /* zeroed */
    if (self) self->base_timestamp = self->max_timestamp = -1;
    return (PyObject *)self;
}

static void appender_dealloc(Appender *self)
{
    free(self->section.bytes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *appender_size_bytes(Appender *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(HEADER_BYTES + self->section.size);
}

static PyObject *appender_record_count(Appender *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->record_count);
}

static PyObject *appender_base_timestamp(Appender *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->base_timestamp);
}

static PyObject *appender_max_timestamp(Appender *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->max_timestamp);
}

static PyGetSetDef appender_attributes[] = {
    {"size_bytes", (getter)appender_size_bytes, NULL, "Size of the uncompressed batch so far, header included.", NULL},
    {"record_count", (getter)appender_record_count, NULL, "Records so far.", NULL},
    {"base_timestamp", (getter)appender_base_timestamp, NULL, "Timestamp of the first record.", NULL},
    {"max_timestamp", (getter)appender_max_timestamp, NULL, "Largest timestamp.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyBufferProcs appender_buffer = {
    (getbufferproc)appender_getbuffer,
    (releasebufferproc)appender_releasebuffer,
};

#endif
