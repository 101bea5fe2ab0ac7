/* Walking a record section: the one parser that validation, lazy records and Arrow share. Needs no GIL.
 *
 *     Walk walk = walk_begin(bytes, size, record_count, last_offset_delta);
 *     while (walk_next(&walk, &record)) ...
 *     if (walk.error) ...       what is wrong, at record walk.index
 */
#ifndef KRAFTLOG_CODEC_WALK_H
#define KRAFTLOG_CODEC_WALK_H

#include "_codec_format.h"

/* One record as it lies in the section; sizes of -1 are nulls. */
typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_size, value_size;
    int32_t header_count;
    const uint8_t *key, *value;
    Cursor headers;
} RecordView;

typedef struct {
    Cursor cursor;
    int32_t index, record_count;
    int32_t previous_delta, last_offset_delta;
    const char *error;
} Walk;

static Walk walk_begin(const uint8_t *bytes, size_t size, int32_t record_count, int32_t last_offset_delta)
{
    Walk walk = {{bytes, bytes + size}, 0, record_count, -1, last_offset_delta, NULL};
    if (record_count < 0 || (uint64_t)record_count * MIN_RECORD_BYTES > size)
        walk.error = "more records than its bytes can hold";
    else if (record_count == 0 && size)
        walk.error = "bytes after the last record";
    return walk;
}

/* One header: a key that is not null, a nullable value. */
static inline bool header_next(Cursor *cursor, const uint8_t **key, int32_t *key_size, const uint8_t **value,
                               int32_t *value_size)
{
    return cursor_blob(cursor, key, key_size) && *key_size >= 0 && cursor_blob(cursor, value, value_size);
}

static inline bool walk_headers(Cursor *cursor, int32_t count)
{
    const uint8_t *bytes;
    int32_t size;
    while (count--)
        if (!header_next(cursor, &bytes, &size, &bytes, &size)) return false;
    return true;
}

/* The next record, or false at the end and on an error. */
static inline bool walk_next(Walk *walk, RecordView *record)
{
    if (walk->error || walk->index == walk->record_count) return false;
    int32_t size;
    const uint8_t *bytes;
    if (!cursor_varint(&walk->cursor, &size) || size < MIN_RECORD_BYTES - 1 ||
        !cursor_take(&walk->cursor, size, &bytes)) {
        walk->error = "its length does not fit in the batch";
        return false;
    }
    Cursor cursor = {bytes + 1, bytes + size}; /* from here on nothing reads past the record; attributes are unused */
    if (!cursor_varlong(&cursor, &record->timestamp_delta) || !cursor_varint(&cursor, &record->offset_delta)) {
        walk->error = "its deltas are cut";
        return false;
    }
    if (record->offset_delta <= walk->previous_delta || record->offset_delta > walk->last_offset_delta) {
        walk->error = "its offset delta does not ascend or passes the last offset delta";
        return false;
    }
    walk->previous_delta = record->offset_delta;
    if (!cursor_blob(&cursor, &record->key, &record->key_size) ||
        !cursor_blob(&cursor, &record->value, &record->value_size)) {
        walk->error = "its key or value does not fit";
        return false;
    }
    if (!cursor_varint(&cursor, &record->header_count) || record->header_count < 0) {
        walk->error = "its header count is cut or negative";
        return false;
    }
    record->headers = cursor;
    if (record->header_count && ((uint64_t)record->header_count > cursor_left(&cursor) / 2 ||
                                 !walk_headers(&cursor, record->header_count))) {
        walk->error = "its headers do not fit";
        return false;
    }
    if (cursor_left(&cursor)) {
        walk->error = "bytes after its headers";
        return false;
    }
    if (++walk->index == walk->record_count && cursor_left(&walk->cursor)) {
        walk->error = "bytes after the last record";
        return false;
    }
    return true;
}

/* base + delta, or false if that does not fit in 64 bits. */
static inline bool add_timestamp(int64_t base, int64_t delta, int64_t *out)
{
    if (delta > 0 ? base > INT64_MAX - delta : base < INT64_MIN - delta) return false;
    *out = base + delta;
    return true;
}

#endif
