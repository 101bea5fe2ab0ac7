/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) and Kafka's murmur2.
 *
 * Three ways for the CRC: the SSE4.2 instruction over three interleaved streams (the instruction has a latency of
 * three cycles, so one stream uses a third of the unit), slicing by eight tables, and one table for big-endian hosts.
 */
#ifndef KRAFTLOG_CODEC_CRC_H
#define KRAFTLOG_CODEC_CRC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_SSE42_CRC 1
#include <nmmintrin.h>
#endif

static uint32_t crc_table[8][256];

static void crc_init_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
        crc_table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int table = 1; table < 8; table++) {
            uint32_t before = crc_table[table - 1][byte];
            crc_table[table][byte] = crc_table[0][before & 255] ^ (before >> 8);
        }
}

/* `crc` is the inverted running value in all of the following. */
static uint32_t crc_by_tables(uint32_t crc, const uint8_t *bytes, size_t size)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        word ^= crc;
        crc = crc_table[7][word & 255] ^ crc_table[6][(word >> 8) & 255] ^ crc_table[5][(word >> 16) & 255] ^
              crc_table[4][(word >> 24) & 255] ^ crc_table[3][(word >> 32) & 255] ^
              crc_table[2][(word >> 40) & 255] ^ crc_table[1][(word >> 48) & 255] ^ crc_table[0][word >> 56];
    }
#endif
    while (size--) crc = crc_table[0][(crc ^ *bytes++) & 255] ^ (crc >> 8);
    return crc;
}

#ifdef HAVE_SSE42_CRC
enum { CRC_STREAM_BYTES = 4096 };

/* What CRC_STREAM_BYTES zero bytes make of a CRC, by its four bytes: appends one stream's CRC to another's. */
static uint32_t crc_zeros[4][256];
static bool crc_has_instruction;

static void crc_init_zeros(void)
{
    uint32_t by_bit[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (int count = 0; count < CRC_STREAM_BYTES; count++) crc = crc_table[0][crc & 255] ^ (crc >> 8);
        by_bit[bit] = crc;
    }
    for (int part = 0; part < 4; part++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (byte >> bit & 1) crc ^= by_bit[part * 8 + bit];
            crc_zeros[part][byte] = crc;
        }
}

static inline uint32_t crc_after_zeros(uint32_t crc)
{
    return crc_zeros[0][crc & 255] ^ crc_zeros[1][crc >> 8 & 255] ^ crc_zeros[2][crc >> 16 & 255] ^
           crc_zeros[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *bytes, size_t size)
{
    uint64_t first = crc;
    for (; size >= 3 * CRC_STREAM_BYTES; bytes += 3 * CRC_STREAM_BYTES, size -= 3 * CRC_STREAM_BYTES) {
        uint64_t second = 0, third = 0;
        for (int at = 0; at < CRC_STREAM_BYTES; at += 8) {
            uint64_t words[3];
            memcpy(&words[0], bytes + at, 8);
            memcpy(&words[1], bytes + CRC_STREAM_BYTES + at, 8);
            memcpy(&words[2], bytes + 2 * CRC_STREAM_BYTES + at, 8);
            first = _mm_crc32_u64(first, words[0]);
            second = _mm_crc32_u64(second, words[1]);
            third = _mm_crc32_u64(third, words[2]);
        }
        first = crc_after_zeros((uint32_t)first) ^ second;
        first = crc_after_zeros((uint32_t)first) ^ third;
    }
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        first = _mm_crc32_u64(first, word);
    }
    while (size--) first = _mm_crc32_u8((uint32_t)first, *bytes++);
    return (uint32_t)first;
}
#endif

static void crc_init(void)
{
    crc_init_tables();
#ifdef HAVE_SSE42_CRC
    crc_init_zeros();
    crc_has_instruction = __builtin_cpu_supports("sse4.2") != 0;
#endif
}

/* CRC-32C of `bytes`, continued from `crc` (0 to begin). Needs no GIL. */
static uint32_t crc32c(uint32_t crc, const uint8_t *bytes, size_t size)
{
#ifdef HAVE_SSE42_CRC
    if (crc_has_instruction) return ~crc_by_instruction(~crc, bytes, size);
#endif
    return ~crc_by_tables(~crc, bytes, size);
}

/* Kafka's Utils.murmur2: MurmurHash2, 32 bits, seed 0x9747b28c, little-endian words. */
static uint32_t murmur2(const uint8_t *bytes, size_t size)
{
    const uint32_t multiplier = 0x5bd1e995u;
    uint32_t digest = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; bytes += 4, size -= 4) {
        uint32_t word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                        (uint32_t)bytes[3] << 24;
        word *= multiplier;
        word ^= word >> 24;
        digest = digest * multiplier ^ word * multiplier;
    }
    if (size) {
        for (size_t at = 0; at < size; at++) digest ^= (uint32_t)bytes[at] << (8 * at);
        digest *= multiplier;
    }
    digest ^= digest >> 13;
    digest *= multiplier;
    return digest ^ digest >> 15;
}

#endif
