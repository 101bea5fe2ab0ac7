/* validate_records: what a leader checks of a decompressed section; _reference.py documents it. */
#ifndef KRAFTLOG_CODEC_VALIDATE_H
#define KRAFTLOG_CODEC_VALIDATE_H

#include "_codec_record.h"

typedef struct {
    int64_t base_timestamp, largest;
    bool is_consecutive, require_keys;
} Rules;

static void validate_walk(Walk *walk, Rules *rules)
{
    RecordView view;
    for (int32_t index = 0; walk_next(walk, &view); index++) {
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
    Rules rules = {.largest = -1};
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
