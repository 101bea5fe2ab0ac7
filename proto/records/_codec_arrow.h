/* Records straight to and from Arrow's buffers, without one Python object per record.
 *
 * ArrowColumns collects the records of any number of batches into the buffers of Arrow's columnar layout; arrow.py
 * wraps them as arrays without copying. append_columns goes the other way: rows of Arrow columns into a RecordAppender.
 */
#ifndef KRAFTLOG_CODEC_ARROW_H
#define KRAFTLOG_CODEC_ARROW_H

#include "_codec_append.h"
#include "_codec_crc.h"
#include "_codec_record.h"

/* ---- memory handed to Arrow ---- */

typedef struct {
    PyObject_HEAD
    Growable bytes;
} Memory;

static PyTypeObject MemoryType;

static void memory_dealloc(Memory *self)
{
    free(self->bytes.bytes);
    PyObject_Free(self);
}

static int memory_getbuffer(Memory *self, Py_buffer *view, int flags)
{
    static uint64_t nothing;
    void *bytes = self->bytes.bytes ? (void *)self->bytes.bytes : &nothing;
    return PyBuffer_FillInfo(view, (PyObject *)self, bytes, (Py_ssize_t)self->bytes.size, 1, flags);
}

static PyBufferProcs memory_buffer = {(getbufferproc)memory_getbuffer, NULL};

/* Move a growable's bytes into a new Python object. */
static PyObject *memory_take(Growable *growable)
{
    Memory *self = PyObject_New(Memory, &MemoryType);
    if (!self) return NULL;
    self->bytes = *growable;
    *growable = (Growable){NULL, 0, 0};
    return (PyObject *)self;
}

/* ---- columns ---- */

/* A column of variable width: int32 ends after a leading 0, one validity bit a row, and the bytes. */
typedef struct {
    Growable offsets, validity, data;
    int64_t count, null_count;
} Binary;

typedef struct {
    PyObject_HEAD
    bool want_key, want_value, want_offset, want_timestamp, want_timestamp_type, want_headers;
    bool is_ascii; /* all header keys so far */
    int64_t count;
    Growable offsets, timestamps, timestamp_types; /* int64, int64 in us, int32 */
    Binary key, value, header_key, header_value;
    Binary headers; /* as lists: offsets count headers, `data` is unused */
} ArrowColumns;

typedef enum { COLUMNS_OK, COLUMNS_NO_MEMORY, COLUMNS_TOO_LARGE } ColumnsResult;

static inline bool put_bit(Growable *bits, int64_t index, bool value)
{
    if ((index & 7) == 0) {
        if (!grow(bits, 1)) return false;
        bits->bytes[bits->size++] = 0;
    }
    if (value) bits->bytes[index >> 3] |= (uint8_t)(1 << (index & 7));
    return true;
}

static inline bool put_int32(Growable *growable, int32_t number)
{
    if (!grow(growable, sizeof number)) return false;
    memcpy(growable->bytes + growable->size, &number, sizeof number);
    growable->size += sizeof number;
    return true;
}

static inline bool put_int64(Growable *growable, int64_t number)
{
    if (!grow(growable, sizeof number)) return false;
    memcpy(growable->bytes + growable->size, &number, sizeof number);
    growable->size += sizeof number;
    return true;
}

static inline ColumnsResult binary_add(Binary *column, const uint8_t *bytes, int32_t size)
{
    size_t taken = size > 0 ? (size_t)size : 0;
    if (taken > (size_t)INT32_MAX - column->data.size) return COLUMNS_TOO_LARGE;
    if (!grow(&column->data, taken) || !put_bit(&column->validity, column->count, size >= 0))
        return COLUMNS_NO_MEMORY;
    if (taken) memcpy(column->data.bytes + column->data.size, bytes, taken);
    column->data.size += taken;
    column->count++;
    column->null_count += size < 0;
    return put_int32(&column->offsets, (int32_t)column->data.size) ? COLUMNS_OK : COLUMNS_NO_MEMORY;
}

static bool is_ascii(const uint8_t *bytes, int32_t size)
{
    uint8_t bits = 0;
    for (int32_t at = 0; at < size; at++) bits |= bytes[at];
    return bits < 0x80;
}

/* A record's headers as one list; none at all is a null, as Spark's Kafka source has it. */
static ColumnsResult headers_add(ArrowColumns *self, const RecordView *record)
{
    Cursor cursor = record->headers;
    for (int32_t index = 0; index < record->header_count; index++) {
        const uint8_t *key, *value;
        int32_t key_size, value_size;
        /* walk_next has checked them; a buffer that changes meanwhile must still not be read past its end */
        if (!header_next(&cursor, &key, &key_size, &value, &value_size)) break;
        self->is_ascii = self->is_ascii && is_ascii(key, key_size);
        ColumnsResult result = binary_add(&self->header_key, key, key_size);
        if (result == COLUMNS_OK) result = binary_add(&self->header_value, value, value_size);
        if (result != COLUMNS_OK) return result;
    }
    if (self->header_key.count > INT32_MAX) return COLUMNS_TOO_LARGE;
    if (!put_bit(&self->headers.validity, self->headers.count, record->header_count > 0)) return COLUMNS_NO_MEMORY;
    self->headers.count++;
    self->headers.null_count += record->header_count == 0;
    return put_int32(&self->headers.offsets, (int32_t)self->header_key.count) ? COLUMNS_OK : COLUMNS_NO_MEMORY;
}

/* Milliseconds as Arrow's microseconds; what does not fit is clamped, a hostile timestamp must not stop a reader. */
static int64_t to_microseconds(int64_t ms)
{
    const int64_t limit = INT64_MAX / 1000;
    return (ms > limit ? limit : ms < -limit ? -limit : ms) * 1000;
}

static ColumnsResult columns_add_record(ArrowColumns *self, const RecordView *record, int64_t offset, int64_t timestamp,
                                        int32_t timestamp_type)
{
    ColumnsResult result = COLUMNS_OK;
    if (self->want_key) result = binary_add(&self->key, record->key, record->key_size);
    if (result == COLUMNS_OK && self->want_value) result = binary_add(&self->value, record->value, record->value_size);
    if (result == COLUMNS_OK && self->want_headers) result = headers_add(self, record);
    if (result != COLUMNS_OK) return result;
    if ((self->want_offset && !put_int64(&self->offsets, offset)) ||
        (self->want_timestamp && !put_int64(&self->timestamps, to_microseconds(timestamp))) ||
        (self->want_timestamp_type && !put_int32(&self->timestamp_types, timestamp_type)))
        return COLUMNS_NO_MEMORY;
    self->count++;
    return COLUMNS_OK;
}

static ColumnsResult columns_add_walk(ArrowColumns *self, Walk *walk, const BatchPart *part)
{
    RecordView view;
    int64_t offset, timestamp;
    while (walk_next(walk, &view) && record_place(walk, &view, part, &offset, &timestamp)) {
        if (offset < part->min_offset || offset >= part->end_offset) continue;
        ColumnsResult result = columns_add_record(self, &view, offset, timestamp, part->timestamp_type);
        if (result != COLUMNS_OK) return result;
    }
    return COLUMNS_OK;
}

/* Add the section of a walk; 0, or -1 with an exception set. The GIL is let go for big ones. */
static int columns_add_section(ArrowColumns *self, Walk *walk, const BatchPart *part, size_t size)
{
    ColumnsResult result = COLUMNS_OK;
    if (self->want_value && !walk->error && !grow(&self->value.data, size)) { /* usually all it takes */
        result = COLUMNS_NO_MEMORY;
    } else if (size >= GIL_RELEASE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        result = columns_add_walk(self, walk, part);
        Py_END_ALLOW_THREADS
    } else {
        result = columns_add_walk(self, walk, part);
    }
    if (walk->error)
        raise_walk_error(walk);
    else if (result == COLUMNS_NO_MEMORY)
        PyErr_NoMemory();
    else if (result == COLUMNS_TOO_LARGE)
        PyErr_SetString(RecordTooLargeError, "an Arrow column of more than 2 GiB: decode fewer batches at a time");
    else
        return 0;
    return -1;
}

/* add(section, record_count, last_offset_delta, base_offset, base_timestamp, append_time, min_offset, end_offset,
 *     timestamp_type): after an error the columns hold a part of the batch and must be thrown away. */
static PyObject *columns_add(ArrowColumns *self, PyObject *const *arguments, Py_ssize_t count)
{
    int32_t record_count, last_offset_delta;
    BatchPart part = {.base_offset = 0};
    if (count != 9) {
        PyErr_SetString(PyExc_TypeError, "add() takes 9 arguments");
        return NULL;
    }
    part.has_append_time = arguments[5] != Py_None;
    if (int32_argument(arguments[1], &record_count) < 0 || int32_argument(arguments[2], &last_offset_delta) < 0 ||
        int64_argument(arguments[3], &part.base_offset) < 0 || int64_argument(arguments[4], &part.base_timestamp) < 0 ||
        (part.has_append_time && int64_argument(arguments[5], &part.append_time) < 0) ||
        int64_argument(arguments[6], &part.min_offset) < 0 || int64_argument(arguments[7], &part.end_offset) < 0 ||
        int32_argument(arguments[8], &part.timestamp_type) < 0)
        return NULL;
    if (!base_offset_is_good(part.base_offset)) {
        PyErr_SetString(InvalidRecordError, "base offset is out of range");
        return NULL;
    }
    Py_buffer section;
    if (PyObject_GetBuffer(arguments[0], &section, PyBUF_SIMPLE) < 0) return NULL;
    Walk walk = walk_begin(section.buf, (size_t)section.len, record_count, last_offset_delta);
    int result = columns_add_section(self, &walk, &part, (size_t)section.len);
    PyBuffer_Release(&section);
    return result < 0 ? NULL : PyLong_FromLongLong(self->count);
}

/* add_run(buffer, position, min_offset, end_offset, check): add the batches from `position` on that need no detour,
 * as decode_run does; where they end. A batch with bad records raises, and the columns must be thrown away. */
static PyObject *columns_add_run(ArrowColumns *self, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t position, min_offset, end_offset;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "add_run() takes 5 arguments");
        return NULL;
    }
    int check = PyObject_IsTrue(arguments[4]);
    if (check < 0 || int64_argument(arguments[1], &position) < 0 || int64_argument(arguments[2], &min_offset) < 0 ||
        int64_argument(arguments[3], &end_offset) < 0)
        return NULL;
    Py_buffer buffer;
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    if (position < 0 || position > buffer.len) {
        PyErr_SetString(PyExc_ValueError, "add_run: position out of range");
        PyBuffer_Release(&buffer);
        return NULL;
    }
    const uint8_t *bytes = buffer.buf;
    Cursor cursor = {bytes + position, bytes + buffer.len};
    BatchView batch;
    int result = 0;
    while (result == 0 && run_next(&cursor, check, &batch)) {
        if (run_skips(&batch, min_offset) || batch.base_offset >= end_offset) continue;
        BatchPart part = batch_part(&batch, min_offset, end_offset);
        Walk walk = walk_begin(batch.section, batch.section_size, batch.record_count, batch.last_offset_delta);
        result = columns_add_section(self, &walk, &part, batch.section_size);
        if (walk.error)
            PyErr_Format(InvalidRecordError, "batch at offset %lld: record %d: %s", (long long)batch.base_offset,
                         (int)walk.index, walk.error);
    }
    PyBuffer_Release(&buffer);
    return result < 0 ? NULL : PyLong_FromSsize_t((Py_ssize_t)(cursor.at - bytes));
}

/* (rows, nulls, validity or None, offsets, data) */
static PyObject *binary_take(Binary *column)
{
    PyObject *validity = column->null_count ? memory_take(&column->validity) : Py_NewRef(Py_None);
    PyObject *offsets = validity ? memory_take(&column->offsets) : NULL;
    PyObject *data = offsets ? memory_take(&column->data) : NULL;
    if (!data) {
        Py_XDECREF(validity);
        Py_XDECREF(offsets);
        return NULL;
    }
    return Py_BuildValue("(LLNNN)", (long long)column->count, (long long)column->null_count, validity, offsets, data);
}

static bool set_item(PyObject *dict, const char *name, PyObject *item)
{
    bool ok = item && PyDict_SetItemString(dict, name, item) == 0;
    Py_XDECREF(item);
    return ok;
}

/* finish(): the buffers by column name; the object is empty afterwards and not to be used again. */
static PyObject *columns_finish(ArrowColumns *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *columns = PyDict_New();
    if (!columns) return NULL;
    bool ok = set_item(columns, "count", PyLong_FromLongLong(self->count)) &&
              set_item(columns, "is_ascii", PyBool_FromLong(self->is_ascii));
    if (ok && self->want_key) ok = set_item(columns, "key", binary_take(&self->key));
    if (ok && self->want_value) ok = set_item(columns, "value", binary_take(&self->value));
    if (ok && self->want_offset) ok = set_item(columns, "offset", memory_take(&self->offsets));
    if (ok && self->want_timestamp) ok = set_item(columns, "timestamp", memory_take(&self->timestamps));
    if (ok && self->want_timestamp_type) ok = set_item(columns, "timestampType", memory_take(&self->timestamp_types));
    if (ok && self->want_headers)
        ok = set_item(columns, "headers", binary_take(&self->headers)) &&
             set_item(columns, "header_key", binary_take(&self->header_key)) &&
             set_item(columns, "header_value", binary_take(&self->header_value));
    if (!ok) Py_CLEAR(columns);
    return columns;
}

static PyObject *columns_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    int key, value, offset, timestamp, timestamp_type, headers;
    if (!PyArg_ParseTuple(arguments, "pppppp:ArrowColumns", &key, &value, &offset, &timestamp, &timestamp_type,
                          &headers))
        return NULL;
    ArrowColumns *self = (ArrowColumns *)type->tp_alloc(type, 0); /* zeroed */
    if (!self) return NULL;
    self->want_key = key;
    self->want_value = value;
    self->want_offset = offset;
    self->want_timestamp = timestamp;
    self->want_timestamp_type = timestamp_type;
    self->want_headers = headers;
    self->is_ascii = true;
    Growable *leading[] = {&self->key.offsets, &self->value.offsets, &self->header_key.offsets,
                           &self->header_value.offsets, &self->headers.offsets};
    for (size_t index = 0; index < sizeof leading / sizeof *leading; index++)
        if (!put_int32(leading[index], 0)) {
            Py_DECREF(self);
            return PyErr_NoMemory();
        }
    return (PyObject *)self;
}

static void binary_free(Binary *column)
{
    free(column->offsets.bytes);
    free(column->validity.bytes);
    free(column->data.bytes);
}

static void columns_dealloc(ArrowColumns *self)
{
    free(self->offsets.bytes);
    free(self->timestamps.bytes);
    free(self->timestamp_types.bytes);
    binary_free(&self->key);
    binary_free(&self->value);
    binary_free(&self->header_key);
    binary_free(&self->header_value);
    binary_free(&self->headers);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- from Arrow ---- */

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

static PyMethodDef columns_methods[] = {
    {"add", (PyCFunction)(void (*)(void))columns_add, METH_FASTCALL, "Add the records of one batch's section."},
    {"add_run", (PyCFunction)(void (*)(void))columns_add_run, METH_FASTCALL, "Add the batches of a buffer, while simple."},
    {"finish", (PyCFunction)columns_finish, METH_NOARGS, "The buffers by column name."},
    {NULL, NULL, 0, NULL},
};

#endif
