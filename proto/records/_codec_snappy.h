/* Raw Snappy blocks; _snappy.py describes the format and is the reference. Needs no GIL. */
#ifndef KRAFTLOG_CODEC_SNAPPY_H
#define KRAFTLOG_CODEC_SNAPPY_H

#include "_codec_format.h"

enum {
    SNAPPY_BLOCK_BYTES = 1 << 16, /* matches stay within a block, so that 16-bit offsets do */
    SNAPPY_TABLE_BITS = 13,
    SNAPPY_MAX_EXPANSION = 64, /* a 3-byte copy gives at most 64 bytes: what claims more is a lie */
};

/* Room for the worst case: literals only, with their tags. */
static size_t snappy_bound(size_t size) { return MAX_VARINT_BYTES + size + size / 32 + 64; }

static uint8_t *snappy_put_literal(uint8_t *out, const uint8_t *from, size_t size)
{
    if (!size) return out;
    if (size <= 60) {
        *out++ = (uint8_t)((size - 1) << 2);
    } else if (size <= 256) {
        *out++ = 60 << 2;
        *out++ = (uint8_t)(size - 1);
    } else { /* at most SNAPPY_BLOCK_BYTES */
        *out++ = 61 << 2;
        *out++ = (uint8_t)(size - 1);
        *out++ = (uint8_t)((size - 1) >> 8);
    }
    memcpy(out, from, size);
    return out + size;
}

static uint8_t *snappy_put_copy(uint8_t *out, size_t offset, size_t length)
{
    while (length) {
        size_t step = length < 64 ? length : 64;
        *out++ = (uint8_t)((step - 1) << 2 | 2);
        *out++ = (uint8_t)offset;
        *out++ = (uint8_t)(offset >> 8);
        length -= step;
    }
    return out;
}

static inline uint32_t snappy_word(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, 4);
    return word;
}

static uint8_t *snappy_compress_block(uint8_t *out, const uint8_t *plain, size_t size)
{
    uint16_t seen[1 << SNAPPY_TABLE_BITS]; /* latest position of a hash; 0 also means none, the word decides */
    memset(seen, 0, sizeof seen);
    size_t literal = 0, position = 1, misses = 32;
    while (position + 4 <= size) {
        uint32_t word = snappy_word(plain + position);
        uint32_t hash = word * 0x1e35a7bdu >> (32 - SNAPPY_TABLE_BITS);
        size_t candidate = seen[hash];
        seen[hash] = (uint16_t)position;
        if (snappy_word(plain + candidate) != word) {
            position += misses++ >> 5; /* look less and less closely at what does not compress */
            continue;
        }
        misses = 32;
        size_t length = 4;
        while (position + length < size && plain[candidate + length] == plain[position + length]) length++;
        out = snappy_put_literal(out, plain + literal, position - literal);
        out = snappy_put_copy(out, position - candidate, length);
        position += length;
        literal = position;
    }
    return snappy_put_literal(out, plain + literal, size - literal);
}

/* Compress into `out`, which has room for snappy_bound(size) bytes; the number of bytes written. */
static size_t snappy_compress(uint8_t *out, const uint8_t *plain, size_t size)
{
    uint8_t *at = put_varint(out, size);
    for (size_t start = 0; start < size; start += SNAPPY_BLOCK_BYTES) {
        size_t block = size - start < SNAPPY_BLOCK_BYTES ? size - start : SNAPPY_BLOCK_BYTES;
        at = snappy_compress_block(at, plain + start, block);
    }
    return (size_t)(at - out);
}

static bool snappy_little_endian(Cursor *cursor, int width, uint32_t *out)
{
    const uint8_t *bytes;
    if (!cursor_take(cursor, width, &bytes)) return false;
    uint32_t number = 0;
    for (int at = 0; at < width; at++) number |= (uint32_t)bytes[at] << (8 * at);
    *out = number;
    return true;
}

/* Decompress the elements at `cursor` into exactly `size` bytes at `out`; what is wrong, or NULL. */
static const char *snappy_decompress(Cursor cursor, uint8_t *out, size_t size)
{
    size_t done = 0;
    uint8_t tag;
    while (cursor_byte(&cursor, &tag)) {
        uint32_t length = (uint32_t)(tag >> 2), offset = 0;
        int kind = tag & 3;
        if (kind == 0) {
            const uint8_t *literal;
            if (length >= 60 && !snappy_little_endian(&cursor, (int)length - 59, &length))
                return "snappy literal is cut";
            uint64_t bytes = (uint64_t)length + 1;
            if (bytes > size - done || !cursor_take(&cursor, (int64_t)bytes, &literal))
                return "snappy literal runs past the end";
            memcpy(out + done, literal, (size_t)bytes);
            done += (size_t)bytes;
            continue;
        }
        if (!snappy_little_endian(&cursor, kind == 1 ? 1 : kind == 2 ? 2 : 4, &offset)) return "snappy copy is cut";
        if (kind == 1) {
            length = (tag >> 2 & 7) + 4;
            offset |= (uint32_t)(tag & 0xe0) << 3;
        } else {
            length += 1;
        }
        if (offset == 0 || offset > done || length > size - done) return "snappy copy points outside of the block";
        if (offset >= length) {
            memcpy(out + done, out + done - offset, length);
        } else { /* source and target overlap: the pattern repeats */
            for (uint32_t at = 0; at < length; at++) out[done + at] = out[done + at - offset];
        }
        done += length;
    }
    return done == size ? NULL : "snappy block gave fewer bytes than it claims";
}

#endif
