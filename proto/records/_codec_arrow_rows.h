/* append_columns: rows of Arrow columns straight into a RecordAppender; partition_column: partitions of a key column.
 * The buffers come from this process, but their offsets are checked like any other.
 */
#ifndef KRAFTLOG_CODEC_ARROW_ROWS_H
#define KRAFTLOG_CODEC_ARROW_ROWS_H

#include "_codec_append.h"
#include "_codec_arrow.h"
#include "_codec_crc.h"

/* A large_binary array given from Python as (length, offset, validity or None, offsets, data or None). */
typedef struct {
    int64_t length, first; /* rows, and where they begin in the buffers */
    Py_buffer validity, offsets, data; /* .obj is NULL where there is none */
} BinaryArgument;

static void binary_argument_release(BinaryArgument *column)
{
    if (column->validity.obj) PyBuffer_Release(&column->validity);
    if (column->offsets.obj) PyBuffer_Release(&column->offsets);
    if (column->data.obj) PyBuffer_Release(&column->data);
}

static int optional_buffer(PyObject *object, Py_buffer *view)
{
    return object == Py_None ? 0 : PyObject_GetBuffer(object, view, PyBUF_SIMPLE);
}

/* None stands for a column of nulls. The buffers must cover the rows; offsets are checked row by row. */
static int binary_argument_get(PyObject *object, int64_t rows, BinaryArgument *column)
{
    memset(column, 0, sizeof *column);
    if (object == Py_None) return 0;
    long long length, first;
    PyObject *validity, *offsets, *data;
    if (!PyArg_ParseTuple(object, "LLOOO", &length, &first, &validity, &offsets, &data)) return -1;
    column->length = length;
    column->first = first;
    if (optional_buffer(validity, &column->validity) < 0 || optional_buffer(offsets, &column->offsets) < 0 ||
        optional_buffer(data, &column->data) < 0)
        goto fail;
    if (first < 0 || length < rows || first > INT64_MAX / 16 - length ||
        column->offsets.len / (Py_ssize_t)sizeof(int64_t) < first + length + 1 ||
        (column->validity.obj && column->validity.len < (first + length + 7) / 8)) {
        PyErr_SetString(PyExc_ValueError, "an Arrow column is shorter than its table");
        goto fail;
    }
    return 0;
fail:
    binary_argument_release(column);
    memset(column, 0, sizeof *column);
    return -1;
}

/* The bytes of one row, size -1 for a null; false if the offsets are nonsense. */
static bool binary_argument_row(const BinaryArgument *column, int64_t row, const uint8_t **bytes, int64_t *size)
{
    *bytes = NULL;
    *size = -1;
    if (!column->offsets.obj) return true;
    int64_t at = column->first + row, bounds[2];
    if (column->validity.obj && !(((const uint8_t *)column->validity.buf)[at >> 3] >> (at & 7) & 1)) return true;
    memcpy(bounds, (const uint8_t *)column->offsets.buf + at * (int64_t)sizeof(int64_t), sizeof bounds);
    if (bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] > column->data.len) return false;
    *bytes = (const uint8_t *)column->data.buf + bounds[0];
    *size = bounds[1] - bounds[0];
    return true;
}

typedef struct {
    BinaryArgument key, value, header_key, header_value;
    Py_buffer timestamps, header_ends; /* int64: ms per row; headers up to and including each row's */
} Rows;

static void rows_release(Rows *rows)
{
    binary_argument_release(&rows->key);
    binary_argument_release(&rows->value);
    binary_argument_release(&rows->header_key);
    binary_argument_release(&rows->header_value);
    if (rows->timestamps.obj) PyBuffer_Release(&rows->timestamps);
    if (rows->header_ends.obj) PyBuffer_Release(&rows->header_ends);
}

static int64_t int64_at(const Py_buffer *buffer, int64_t index)
{
    int64_t number;
    memcpy(&number, (const uint8_t *)buffer->buf + index * (int64_t)sizeof number, sizeof number);
    return number;
}

/* Size of a row's encoded headers in `size`, their range in first..last. */
static const char *row_headers(const Rows *rows, int64_t row, int64_t *first, int64_t *last, uint64_t *size)
{
    *first = *last = 0;
    *size = 1;
    if (!rows->header_ends.obj) return NULL;
    *first = row ? int64_at(&rows->header_ends, row - 1) : 0;
    *last = int64_at(&rows->header_ends, row);
    if (*first < 0 || *last < *first || *last > rows->header_key.length || *last > rows->header_value.length)
        return "an Arrow list column has wrong offsets";
    *size = (uint64_t)varint_size(to_zigzag(*last - *first));
    for (int64_t index = *first; index < *last; index++) {
        const uint8_t *bytes;
        int64_t key_size, value_size;
        if (!binary_argument_row(&rows->header_key, index, &bytes, &key_size) ||
            !binary_argument_row(&rows->header_value, index, &bytes, &value_size))
            return "an Arrow column has wrong offsets";
        if (key_size < 0) return "a header without a key";
        *size += (uint64_t)varint_size(to_zigzag(key_size)) + (uint64_t)key_size +
                 (uint64_t)varint_size(to_zigzag(value_size)) + (uint64_t)(value_size > 0 ? value_size : 0);
    }
    return NULL;
}

static uint8_t *put_row_headers(uint8_t *at, const Rows *rows, int64_t first, int64_t last)
{
    at = put_varint(at, to_zigzag(last - first));
    for (int64_t index = first; index < last; index++) {
        const uint8_t *bytes;
        int64_t size;
        (void)binary_argument_row(&rows->header_key, index, &bytes, &size); /* checked by row_headers */
        at = put_blob(at, bytes, size);
        (void)binary_argument_row(&rows->header_value, index, &bytes, &size);
        at = put_blob(at, bytes, size);
    }
    return at;
}

/* Append one row if the batch stays within max_bytes: 1 done, 0 the batch is full, -1 an exception is set. */
static int append_row(Appender *self, const Rows *rows, int64_t row, uint64_t max_bytes)
{
    const uint8_t *key, *value;
    int64_t key_size, value_size, first, last, delta, timestamp = int64_at(&rows->timestamps, row);
    uint64_t headers_size, body;
    const char *error = row_headers(rows, row, &first, &last, &headers_size);
    if (!error && (!binary_argument_row(&rows->key, row, &key, &key_size) ||
                   !binary_argument_row(&rows->value, row, &value, &value_size)))
        error = "an Arrow column has wrong offsets";
    if (error) {
        PyErr_Format(PyExc_ValueError, "row %lld: %s", (long long)row, error);
        return -1;
    }
    if (appender_prepare(self, timestamp, key_size, value_size, headers_size, &delta, &body) < 0) return -1;
    uint64_t total = HEADER_BYTES + self->section.size + (uint64_t)varint_size(to_zigzag((int64_t)body)) + body;
    if (total > max_bytes) {
        if (self->record_count) return 0;
        PyErr_Format(RecordTooLargeError, "row %lld: batch of %llu bytes exceeds max_batch_bytes=%llu", (long long)row,
                     (unsigned long long)total, (unsigned long long)max_bytes);
        return -1;
    }
    uint8_t *at = put_record(self->section.bytes + self->section.size, body, delta, self->record_count, key, key_size,
                             value, value_size);
    appender_commit(self, put_row_headers(at, rows, first, last), timestamp);
    return 1;
}

/* append_columns(appender, row, end_row, max_bytes, timestamps, key, value, header_ends, header_key, header_value):
 * append rows from `row` on until end_row or until the batch would pass max_bytes; the first row not appended. */
static PyObject *append_columns(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t row, end_row, max_bytes;
    Rows rows;
    memset(&rows, 0, sizeof rows);
    if (count != 10 || !PyObject_TypeCheck(arguments[0], &AppenderType)) {
        PyErr_SetString(PyExc_TypeError, "append_columns() takes a RecordAppender and 9 more arguments");
        return NULL;
    }
    Appender *self = (Appender *)arguments[0];
    if (int64_argument(arguments[1], &row) < 0 || int64_argument(arguments[2], &end_row) < 0 ||
        int64_argument(arguments[3], &max_bytes) < 0)
        return NULL;
    if (row < 0 || end_row < row || end_row > INT64_MAX / 16 || max_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "append_columns: rows or size out of range");
        return NULL;
    }
    PyObject *result = NULL;
    if (PyObject_GetBuffer(arguments[4], &rows.timestamps, PyBUF_SIMPLE) < 0 ||
        binary_argument_get(arguments[5], end_row, &rows.key) < 0 ||
        binary_argument_get(arguments[6], end_row, &rows.value) < 0 ||
        optional_buffer(arguments[7], &rows.header_ends) < 0 ||
        binary_argument_get(arguments[8], 0, &rows.header_key) < 0 ||
        binary_argument_get(arguments[9], 0, &rows.header_value) < 0)
        goto release;
    Py_ssize_t needed = (Py_ssize_t)end_row * (Py_ssize_t)sizeof(int64_t);
    if (rows.timestamps.len < needed || (rows.header_ends.obj && rows.header_ends.len < needed)) {
        PyErr_SetString(PyExc_ValueError, "an Arrow column is shorter than its table");
        goto release;
    }
    int appended = 1;
    while (row < end_row && (appended = append_row(self, &rows, row, (uint64_t)max_bytes)) == 1) row++;
    if (appended >= 0) result = PyLong_FromLongLong(row);
release:
    rows_release(&rows);
    return result;
}

/* partition_column(length, key column, partition_count): int32 partitions of the keys, -1 for nulls. */
static PyObject *partition_column(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t length;
    int32_t partitions;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "partition_column() takes 3 arguments");
        return NULL;
    }
    BinaryArgument keys;
    if (int64_argument(arguments[0], &length) < 0 || int32_argument(arguments[2], &partitions) < 0) return NULL;
    if (length < 0 || length > INT64_MAX / 16 || partitions <= 0) {
        PyErr_SetString(PyExc_ValueError, "partition_column: length or partition count out of range");
        return NULL;
    }
    if (binary_argument_get(arguments[1], length, &keys) < 0) return NULL;
    Growable out = {NULL, 0, 0};
    bool ok = grow(&out, (size_t)length * sizeof(int32_t));
    if (!ok) PyErr_NoMemory();
    for (int64_t row = 0; ok && row < length; row++) {
        const uint8_t *bytes;
        int64_t size;
        ok = binary_argument_row(&keys, row, &bytes, &size);
        if (!ok) PyErr_SetString(PyExc_ValueError, "an Arrow column has wrong offsets");
        else put_int32(&out, size < 0 ? -1 : (int32_t)((murmur2(bytes, (size_t)size) & 0x7fffffff) % (uint32_t)partitions));
    }
    binary_argument_release(&keys);
    PyObject *result = ok ? memory_take(&out) : NULL;
    free(out.bytes);
    return result;
}

#endif
