/* What the parts below share of the Python side: error classes, bytes-like arguments, owned memory. */
#ifndef KRAFTLOG_CODEC_PYTHON_H
#define KRAFTLOG_CODEC_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_codec_format.h"

/* Classes of kraftlog.proto.errors, set when the module is loaded. */
static PyObject *InvalidRecordError, *InvalidTimestampError, *RecordTooLargeError;

/* A key, value or header value given from Python: bytes, any other contiguous buffer, or None (size -1). */
typedef struct {
    const uint8_t *bytes;
    int64_t size;
    Py_buffer view; /* view.obj is NULL when nothing is to be released */
} Blob;

static int blob_get(PyObject *object, Blob *blob)
{
    blob->view.obj = NULL;
    if (object == NULL || object == Py_None) {
        blob->bytes = NULL;
        blob->size = -1;
        return 0;
    }
    if (PyBytes_CheckExact(object)) {
        blob->bytes = (const uint8_t *)PyBytes_AS_STRING(object);
        blob->size = PyBytes_GET_SIZE(object);
        return 0;
    }
    if (PyObject_GetBuffer(object, &blob->view, PyBUF_SIMPLE) < 0) return -1;
    blob->bytes = blob->view.buf;
    blob->size = blob->view.len;
    return 0;
}

static inline void blob_release(Blob *blob)
{
    if (blob->view.obj) PyBuffer_Release(&blob->view);
}

/* A nullable key, value or header value as a new Python object. */
static inline PyObject *blob_object(const uint8_t *bytes, int64_t size)
{
    if (size < 0) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
}

/* An int argument of 64 or 32 bits; -1 with an exception set if it does not fit. */
static int int64_argument(PyObject *object, int64_t *out)
{
    *out = PyLong_AsLongLong(object);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int int32_argument(PyObject *object, int32_t *out)
{
    int64_t number;
    if (int64_argument(object, &number) < 0) return -1;
    if (number < INT32_MIN || number > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%lld does not fit in 32 bits", (long long)number);
        return -1;
    }
    *out = (int32_t)number;
    return 0;
}

/* Growable bytes. Growing needs no GIL (malloc, not PyMem). */
typedef struct {
    uint8_t *bytes;
    size_t size, capacity;
} Growable;

/* Make room for `extra` more bytes; false when memory is out. */
static bool grow(Growable *growable, size_t extra)
{
    if (extra <= growable->capacity - growable->size) return true;
    if (extra > (size_t)PY_SSIZE_T_MAX - growable->size) return false;
    size_t needed = growable->size + extra, capacity = growable->capacity;
    if (capacity < 4096) capacity = 4096;
    while (capacity < needed) capacity = capacity > (size_t)PY_SSIZE_T_MAX / 2 ? needed : capacity * 2;
    uint8_t *bytes = realloc(growable->bytes, capacity);
    if (!bytes) return false;
    growable->bytes = bytes;
    growable->capacity = capacity;
    return true;
}

#endif
