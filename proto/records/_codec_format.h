/* Primitives of the record format: big-endian integers, varints, and the one cursor through which hostile bytes are
 * read. A cursor knows where its bytes end; every reader compares what it needs with what is left (`cursor_left`) and
 * never computes a pointer from an unchecked length. Readers return false and leave the cursor where it failed.
 */
#ifndef KRAFTLOG_CODEC_FORMAT_H
#define KRAFTLOG_CODEC_FORMAT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    HEADER_BYTES = 61,     /* of a batch; format.py has the layout */
    MIN_RECORD_BYTES = 7,  /* length, attributes, two deltas, two lengths, header count: one byte each */
    MAX_VARINT_BYTES = 10,
};

/* Sections from this size on are checked without the GIL: about 10 us of work, ten times the cost of letting it go. */
#define GIL_RELEASE_BYTES (64 * 1024)

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

static inline size_t cursor_left(const Cursor *cursor) { return (size_t)(cursor->end - cursor->at); }

static inline bool cursor_byte(Cursor *cursor, uint8_t *out)
{
    if (cursor->at == cursor->end) return false;
    *out = *cursor->at++;
    return true;
}

/* `size` bytes as they lie there; `size` must not be negative. */
static inline bool cursor_take(Cursor *cursor, int64_t size, const uint8_t **out)
{
    if (size < 0 || (uint64_t)size > cursor_left(cursor)) return false;
    *out = cursor->at;
    cursor->at += size;
    return true;
}

/* An unsigned varint of at most `bits` bits; padding with zero groups is legal up to the type's longest form. */
static inline bool cursor_unsigned(Cursor *cursor, int bits, uint64_t *out)
{
    uint64_t number = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        uint8_t byte;
        if (!cursor_byte(cursor, &byte)) return false;
        uint64_t group = byte & 0x7f;
        if (shift > bits - 7 && group >> (bits - shift)) return false; /* bits that the type cannot hold */
        number |= group << shift;
        if (byte < 0x80) {
            *out = number;
            return true;
        }
    }
    return false;
}

static inline int64_t from_zigzag(uint64_t number) { return (int64_t)(number >> 1) ^ -(int64_t)(number & 1); }

static inline bool cursor_varint(Cursor *cursor, int32_t *out)
{
    if (cursor->at != cursor->end && *cursor->at < 0x80) { /* nearly all */
        *out = (int32_t)from_zigzag(*cursor->at++);
        return true;
    }
    uint64_t number;
    if (!cursor_unsigned(cursor, 32, &number)) return false;
    *out = (int32_t)from_zigzag(number);
    return true;
}

static inline bool cursor_varlong(Cursor *cursor, int64_t *out)
{
    if (cursor->at != cursor->end && *cursor->at < 0x80) {
        *out = from_zigzag(*cursor->at++);
        return true;
    }
    uint64_t number;
    if (!cursor_unsigned(cursor, 64, &number)) return false;
    *out = from_zigzag(number);
    return true;
}

/* A nullable blob: varint size (-1: null), bytes. A null has size -1 and points at no byte of its own. */
static inline bool cursor_blob(Cursor *cursor, const uint8_t **bytes, int32_t *size)
{
    if (!cursor_varint(cursor, size) || *size < -1) return false;
    return cursor_take(cursor, *size < 0 ? 0 : *size, bytes);
}

/* ---- writing; the caller has made room ---- */

static inline uint64_t to_zigzag(int64_t number) { return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63); }

static inline int varint_size(uint64_t number)
{
    int size = 1;
    while (number >= 0x80) {
        number >>= 7;
        size++;
    }
    return size;
}

static inline uint8_t *put_varint(uint8_t *at, uint64_t number)
{
    while (number >= 0x80) {
        *at++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *at++ = (uint8_t)number;
    return at;
}

static inline uint8_t *put_blob(uint8_t *at, const uint8_t *bytes, int64_t size)
{
    at = put_varint(at, to_zigzag(size));
    if (size > 0) {
        memcpy(at, bytes, (size_t)size);
        at += size;
    }
    return at;
}

#endif
