/* The C twin of _reference.py: the hot loops over record sections. Optional; tests hold both equal.
 *
 *     _codec_format.h   big-endian integers, varints, the bounds-checked cursor
 *     _codec_crc.h      CRC-32C, murmur2
 *     _codec_snappy.h   raw Snappy blocks
 *     _codec_walk.h     the parser of a record section
 *     _codec_python.h   error classes, bytes-like arguments, growable memory
 *     _codec_append.h   RecordAppender
 *     _codec_batch.h    batch headers
 *     _codec_record.h   Record, decode_records, decode_run
 *     _codec_validate.h validate_records
 *     _codec_compact.h  offset map of compaction, and which records it leaves
 *     _codec_arrow.h    records into Arrow's buffers
 *     _codec_arrow_rows.h   rows of Arrow columns into batches
 *
 * One translation unit, because every call between the parts is worth inlining.
 */
#include "_codec_python.h"

#include "_codec_append.h"
#include "_codec_arrow.h"
#include "_codec_arrow_rows.h"
#include "_codec_batch.h"
#include "_codec_compact.h"
#include "_codec_crc.h"
#include "_codec_record.h"
#include "_codec_snappy.h"
#include "_codec_validate.h"

static PyObject *py_crc32c(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "crc32c() takes 1 or 2 arguments");
        return NULL;
    }
    unsigned long crc = count == 2 ? PyLong_AsUnsignedLong(arguments[1]) : 0;
    if (crc == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    Py_buffer data;
    if (PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t result = crc_of((uint32_t)crc, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(result);
}

/* CRC by tables alone, so that tests reach it on machines that have the instruction. */
static PyObject *py_crc32c_by_tables(PyObject *Py_UNUSED(module), PyObject *object)
{
    Py_buffer data;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t result = ~crc_by_tables(~0u, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(result);
}

static PyObject *py_murmur2(PyObject *Py_UNUSED(module), PyObject *object)
{
    Py_buffer data;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t result = murmur2(data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(result);
}

static PyObject *py_snappy_compress(PyObject *Py_UNUSED(module), PyObject *object)
{
    Py_buffer data;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *block = NULL;
    if ((uint64_t)data.len > UINT32_MAX)
        PyErr_SetString(RecordTooLargeError, "a snappy block holds less than 4 GiB");
    else
        block = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)snappy_bound((size_t)data.len));
    if (block) {
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(block);
        size_t size;
        Py_BEGIN_ALLOW_THREADS
        size = snappy_compress(out, data.buf, (size_t)data.len);
        Py_END_ALLOW_THREADS
        _PyBytes_Resize(&block, (Py_ssize_t)size);
    }
    PyBuffer_Release(&data);
    return block;
}

static PyObject *py_snappy_decompress(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    int64_t limit;
    Py_buffer data;
    PyObject *plain = NULL;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "snappy_decompress() takes 2 arguments");
        return NULL;
    }
    if (int64_argument(arguments[1], &limit) < 0 || PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    Cursor cursor = {data.buf, (const uint8_t *)data.buf + data.len};
    uint64_t size;
    if (!cursor_unsigned(&cursor, 32, &size)) {
        PyErr_SetString(InvalidRecordError, "snappy size is cut or too long");
    } else if (limit < 0 || size > (uint64_t)limit) {
        PyErr_Format(InvalidRecordError, "snappy block of %llu bytes exceeds the limit of %lld",
                     (unsigned long long)size, (long long)limit);
    } else if (size / SNAPPY_MAX_EXPANSION > (uint64_t)data.len) {
        PyErr_Format(InvalidRecordError, "snappy block claims %llu bytes from %zd", (unsigned long long)size,
                     data.len);
    } else {
        plain = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    }
    if (plain) {
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(plain);
        const char *error;
        Py_BEGIN_ALLOW_THREADS
        error = snappy_decompress(cursor, out, (size_t)size);
        Py_END_ALLOW_THREADS
        if (error) {
            PyErr_SetString(InvalidRecordError, error);
            Py_CLEAR(plain);
        }
    }
    PyBuffer_Release(&data);
    return plain;
}

static PyMethodDef appender_methods[] = {
    {"append", (PyCFunction)(void (*)(void))appender_append, METH_FASTCALL | METH_KEYWORDS,
     "append(timestamp_ms, key=None, value=None, headers=()) -> size_bytes"},
    {"section", (PyCFunction)appender_section, METH_NOARGS, "The records so far, uncompressed, as a memoryview."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject AppenderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kraftlog.proto.records._codec.RecordAppender",
    .tp_doc = "Collects records into a record section. Not safe for concurrent use.",
    .tp_basicsize = sizeof(Appender),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = appender_new,
    .tp_dealloc = (destructor)appender_dealloc,
    .tp_methods = appender_methods,
    .tp_getset = appender_attributes,
    .tp_as_buffer = &appender_buffer,
};

static PyTypeObject SourceType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kraftlog.proto.records._codec.Source",
    .tp_basicsize = sizeof(Source),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)source_dealloc,
};

static PyTypeObject RecordType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kraftlog.proto.records._codec.Record",
    .tp_doc = "One record as a consumer sees it. Immutable; safe from any thread.",
    .tp_basicsize = sizeof(Record),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = record_construct,
    .tp_dealloc = (destructor)record_dealloc,
    .tp_repr = (reprfunc)record_repr,
    .tp_hash = (hashfunc)record_hash,
    .tp_richcompare = record_compare,
    .tp_methods = record_methods,
    .tp_getset = record_attributes,
};

static PyTypeObject MemoryType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kraftlog.proto.records._codec.Memory",
    .tp_basicsize = sizeof(Memory),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)memory_dealloc,
    .tp_as_buffer = &memory_buffer,
};

static PyTypeObject ColumnsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kraftlog.proto.records._codec.ArrowColumns",
    .tp_doc = "ArrowColumns(key, value, offset, timestamp, timestampType, headers): which columns to collect.",
    .tp_basicsize = sizeof(ArrowColumns),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = columns_new,
    .tp_dealloc = (destructor)columns_dealloc,
    .tp_methods = columns_methods,
};

#define FASTCALL(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

static PyMethodDef module_methods[] = {
    {"crc32c", FASTCALL(py_crc32c), NULL},
    {"crc32c_by_tables", py_crc32c_by_tables, METH_O, NULL},
    {"murmur2", py_murmur2, METH_O, NULL},
    {"snappy_compress", py_snappy_compress, METH_O, NULL},
    {"snappy_decompress", FASTCALL(py_snappy_decompress), NULL},
    {"parse_header", FASTCALL(parse_header), NULL},
    {"batch_crc", FASTCALL(batch_crc), NULL},
    {"decode_run", FASTCALL(decode_run), NULL},
    {"validate_records", FASTCALL(validate_records), NULL},
    {"decode_records", FASTCALL(decode_records), NULL},
    {"sip_hash", FASTCALL(py_sip_hash), NULL},
    {"add_keys", FASTCALL(add_keys), NULL},
    {"filter_records", FASTCALL(filter_records), NULL},
    {"append_columns", FASTCALL(append_columns), NULL},
    {"partition_column", FASTCALL(partition_column), NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_codec",
    .m_doc = "The C twin of kraftlog.proto.records._reference.",
    .m_size = -1,
    .m_methods = module_methods,
};

static int import_errors(void)
{
    PyObject *errors = PyImport_ImportModule("kraftlog.proto.errors");
    if (!errors) return -1;
    InvalidRecordError = PyObject_GetAttrString(errors, "InvalidRecordError");
    InvalidTimestampError = PyObject_GetAttrString(errors, "InvalidTimestampError");
    RecordTooLargeError = PyObject_GetAttrString(errors, "RecordTooLargeError");
    Py_DECREF(errors);
    return InvalidRecordError && InvalidTimestampError && RecordTooLargeError ? 0 : -1;
}

PyMODINIT_FUNC PyInit__codec(void)
{
    crc_init();
    if (import_errors() < 0 || PyType_Ready(&SourceType) < 0 || PyType_Ready(&MemoryType) < 0) return NULL;
    PyObject *module = PyModule_Create(&module_definition);
    if (!module) return NULL;
    if (PyModule_AddType(module, &AppenderType) < 0 || PyModule_AddType(module, &RecordType) < 0 ||
        PyModule_AddType(module, &ColumnsType) < 0 ||
        PyModule_AddStringConstant(module, "NAME", "c") < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
