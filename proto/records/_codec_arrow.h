/* ArrowColumns: records straight into the buffers of Arrow's columnar layout, without one Python object per record;
 * arrow.py wraps them as arrays without copying. _reference_arrow.py is the reference.
 */
#ifndef KRAFTLOG_CODEC_ARROW_H
#define KRAFTLOG_CODEC_ARROW_H

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

static PyMethodDef columns_methods[] = {
    {"add", (PyCFunction)(void (*)(void))columns_add, METH_FASTCALL, "Add the records of one batch's section."},
    {"add_run", (PyCFunction)(void (*)(void))columns_add_run, METH_FASTCALL, "Add the batches of a buffer, while simple."},
    {"finish", (PyCFunction)columns_finish, METH_NOARGS, "The buffers by column name."},
    {NULL, NULL, 0, NULL},
};

#endif
