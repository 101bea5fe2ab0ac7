/* The header of a batch: fields as they lie there, the part that the CRC covers, and BatchHeader objects. */
#ifndef KRAFTLOG_CODEC_BATCH_H
#define KRAFTLOG_CODEC_BATCH_H

#include "_codec_crc.h"
#include "_codec_python.h"

#include <structmember.h>

enum {
    LOG_OVERHEAD = 12, /* base_offset and batch_length, which batch_length does not count */
    MAGIC_V2 = 2,
    ATTRIBUTES_POSITION = 21, /* where the CRC's cover begins */
    COMPRESSION_MASK = 0x07,
    TIMESTAMP_TYPE_BIT = 0x08,
    CONTROL_BIT = 0x20,
};

typedef struct {
    int64_t base_offset, base_timestamp, max_timestamp, producer_id;
    uint32_t crc;
    int32_t batch_length, leader_epoch, last_offset_delta, base_sequence, record_count;
    int16_t attributes, producer_epoch;
    uint8_t magic;
    const uint8_t *covered, *section; /* of a whole batch: what the CRC covers, and the records */
    size_t covered_size, section_size;
} BatchView;

/* CRC-32C with the GIL held at the call; big data are read without it. */
static uint32_t crc_of(uint32_t crc, const uint8_t *bytes, size_t size)
{
    if (size < GIL_RELEASE_BYTES) return crc32c(crc, bytes, size);
    Py_BEGIN_ALLOW_THREADS
    crc = crc32c(crc, bytes, size);
    Py_END_ALLOW_THREADS
    return crc;
}

static inline uint64_t big_endian(const uint8_t *bytes, int width)
{
    uint64_t number = 0;
    for (int at = 0; at < width; at++) number = number << 8 | bytes[at];
    return number;
}

/* Read the 61 bytes of a header; nothing is checked. */
static void batch_fields(const uint8_t *bytes, BatchView *batch)
{
    batch->base_offset = (int64_t)big_endian(bytes, 8);
    batch->batch_length = (int32_t)big_endian(bytes + 8, 4);
    batch->leader_epoch = (int32_t)big_endian(bytes + 12, 4);
    batch->magic = bytes[16];
    batch->crc = (uint32_t)big_endian(bytes + 17, 4);
    batch->attributes = (int16_t)big_endian(bytes + 21, 2);
    batch->last_offset_delta = (int32_t)big_endian(bytes + 23, 4);
    batch->base_timestamp = (int64_t)big_endian(bytes + 27, 8);
    batch->max_timestamp = (int64_t)big_endian(bytes + 35, 8);
    batch->producer_id = (int64_t)big_endian(bytes + 43, 8);
    batch->producer_epoch = (int16_t)big_endian(bytes + 51, 2);
    batch->base_sequence = (int32_t)big_endian(bytes + 53, 4);
    batch->record_count = (int32_t)big_endian(bytes + 57, 4);
}

/* Adding any offset delta to a good base offset stays within 64 bits (format.MAX_OFFSET). */
static inline bool base_offset_is_good(int64_t base_offset)
{
    return base_offset >= 0 && base_offset <= INT64_MAX - INT32_MAX;
}

/* The next whole v2 batch; false, and the cursor as it was, for anything else. */
static bool batch_next(Cursor *cursor, BatchView *batch)
{
    Cursor ahead = *cursor;
    const uint8_t *bytes;
    if (!cursor_take(&ahead, HEADER_BYTES, &bytes)) return false;
    batch_fields(bytes, batch);
    int64_t section_size = (int64_t)batch->batch_length - (HEADER_BYTES - LOG_OVERHEAD);
    if (batch->magic != MAGIC_V2 || !base_offset_is_good(batch->base_offset) ||
        !cursor_take(&ahead, section_size, &batch->section))
        return false;
    batch->section_size = (size_t)section_size;
    batch->covered = bytes + ATTRIBUTES_POSITION;
    batch->covered_size = HEADER_BYTES - ATTRIBUTES_POSITION + batch->section_size;
    *cursor = ahead;
    return true;
}

/* ---- BatchHeader objects ---- */

enum { HEADER_FIELDS = 13 };

/* Where the slots of the BatchHeader class lie in its objects. Filling them directly takes a third of the time of the
 * frozen dataclass's own __init__, and headers are read by everyone. */
static PyTypeObject *header_class;
static Py_ssize_t header_slots[HEADER_FIELDS];

static int header_find_slots(PyObject *class)
{
    static const char *const names[HEADER_FIELDS] = {
        "base_offset",    "batch_length",  "leader_epoch", "magic",          "crc",           "attributes",  "last_offset_delta",
        "base_timestamp", "max_timestamp", "producer_id",  "producer_epoch", "base_sequence", "record_count",
    };
    if (!PyType_Check(class)) {
        PyErr_SetString(PyExc_TypeError, "parse_header() needs the BatchHeader class");
        return -1;
    }
    for (int field = 0; field < HEADER_FIELDS; field++) {
        PyObject *slot = PyObject_GetAttrString(class, names[field]);
        if (!slot) return -1;
        bool ok = Py_IS_TYPE(slot, &PyMemberDescr_Type) && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX;
        if (ok) header_slots[field] = ((PyMemberDescrObject *)slot)->d_member->offset;
        Py_DECREF(slot);
        if (!ok) {
            PyErr_Format(PyExc_TypeError, "BatchHeader.%s is no slot", names[field]);
            return -1;
        }
    }
    Py_XSETREF(header_class, (PyTypeObject *)Py_NewRef(class));
    return 0;
}

static PyObject *header_new(const BatchView *batch)
{
    PyObject *header = header_class->tp_alloc(header_class, 0);
    if (!header) return NULL;
    PyObject *const values[HEADER_FIELDS] = {
        PyLong_FromLongLong(batch->base_offset),    PyLong_FromLong(batch->batch_length),
        PyLong_FromLong(batch->leader_epoch),       PyLong_FromLong(batch->magic),
        PyLong_FromUnsignedLong(batch->crc),        PyLong_FromLong(batch->attributes),
        PyLong_FromLong(batch->last_offset_delta),  PyLong_FromLongLong(batch->base_timestamp),
        PyLong_FromLongLong(batch->max_timestamp),  PyLong_FromLongLong(batch->producer_id),
        PyLong_FromLong(batch->producer_epoch),     PyLong_FromLong(batch->base_sequence),
        PyLong_FromLong(batch->record_count),
    };
    bool ok = true;
    for (int field = 0; field < HEADER_FIELDS; field++) {
        *(PyObject **)((char *)header + header_slots[field]) = values[field]; /* NULL: an unset slot */
        ok = ok && values[field];
    }
    if (!ok) Py_CLEAR(header);
    return header;
}

/* parse_header(BatchHeader, buffer, position): the header there; the caller has checked that there is one. */
static PyObject *parse_header(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t position;
    Py_buffer buffer;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "parse_header() takes 3 arguments");
        return NULL;
    }
    if (int64_argument(arguments[2], &position) < 0) return NULL;
    if ((PyObject *)header_class != arguments[0] && header_find_slots(arguments[0]) < 0) return NULL;
    if (PyObject_GetBuffer(arguments[1], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *header = NULL;
    if (position < 0 || position > buffer.len || buffer.len - position < HEADER_BYTES) {
        PyErr_SetString(PyExc_ValueError, "parse_header: no room for a header");
    } else {
        BatchView batch;
        batch_fields((const uint8_t *)buffer.buf + position, &batch);
        header = header_new(&batch);
    }
    PyBuffer_Release(&buffer);
    return header;
}

/* batch_crc(buffer, position, size): the CRC that the bytes of the batch there give. */
static PyObject *batch_crc(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t position, size;
    Py_buffer buffer;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "batch_crc() takes 3 arguments");
        return NULL;
    }
    if (int64_argument(arguments[1], &position) < 0 || int64_argument(arguments[2], &size) < 0) return NULL;
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result = NULL;
    if (position < 0 || position > buffer.len || size < HEADER_BYTES || size > buffer.len - position) {
        PyErr_SetString(PyExc_ValueError, "batch_crc: no such batch");
    } else {
        const uint8_t *covered = (const uint8_t *)buffer.buf + position + ATTRIBUTES_POSITION;
        size_t covered_size = (size_t)size - ATTRIBUTES_POSITION;
        result = PyLong_FromUnsignedLong(crc_of(0, covered, covered_size));
    }
    PyBuffer_Release(&buffer);
    return result;
}

#endif
