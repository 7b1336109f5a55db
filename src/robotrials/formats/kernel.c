/* Ids of the rows of a table, hashes of ids, checksums, and numbers in lines of JSON; kernel.py says what they are. */

#include "native.h"

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
static const uint32_t START[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

/* As many whole blocks into each of one or two states. */
typedef void (*Compress)(uint32_t *const *states, const uint8_t *const *blocks, int64_t n_blocks, int n_lanes);

INLINE uint32_t turned(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

/* SHA-256 (FIPS 180-4) over whole blocks, on any machine. */
static void compress_one(uint32_t *state, const uint8_t *blocks, int64_t n_blocks) {
    for (; n_blocks > 0; n_blocks--, blocks += 64) {
        uint32_t w[64], s[8];
        for (int t = 0; t < 16; t++)
            w[t] = (uint32_t)blocks[4 * t] << 24 | (uint32_t)blocks[4 * t + 1] << 16 | (uint32_t)blocks[4 * t + 2] << 8 | blocks[4 * t + 3];
        for (int t = 16; t < 64; t++) {
            uint32_t a = w[t - 15], b = w[t - 2];
            w[t] = w[t - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[t - 7] + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
        }
        memcpy(s, state, sizeof s);
        for (int t = 0; t < 64; t++) {
            uint32_t e = s[4], a = s[0];
            uint32_t up = s[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + ROUND[t] + w[t];
            uint32_t down = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
            memmove(s + 1, s, 7 * sizeof *s);
            s[4] += up;
            s[0] = up + down;
        }
        for (int k = 0; k < 8; k++) state[k] += s[k];
    }
}

static void compress_plain(uint32_t *const *states, const uint8_t *const *blocks, int64_t n_blocks, int n_lanes) {
    for (int l = 0; l < n_lanes; l++) compress_one(states[l], blocks[l], n_blocks);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

/* The same with the processor's own instructions, which keep a state as (a b e f) and (c d g h). Each waits for the one
   before it, so that two messages side by side take little longer than one. */
#define SHA __attribute__((target("sha,sse4.1")))
#define WIDEST 2
#define EACH _Pragma("GCC unroll 2") for (int l = 0; l < lanes; l++)

SHA INLINE void compress_lanes(const int lanes, uint32_t *const *states, const uint8_t *const *blocks, int64_t n_blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef[WIDEST], cdgh[WIDEST], first[WIDEST], second[WIDEST], w[WIDEST][4];
    EACH {
        __m128i dcba = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)states[l]), 0xB1);
        __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(states[l] + 4)), 0x1B);
        abef[l] = _mm_alignr_epi8(dcba, hgfe, 8);
        cdgh[l] = _mm_blend_epi16(hgfe, dcba, 0xF0);
    }
    for (int64_t block = 0; block < n_blocks; block++) {
        EACH {
            first[l] = abef[l];
            second[l] = cdgh[l];
            for (int k = 0; k < 4; k++)
                w[l][k] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(blocks[l] + 64 * block + 16 * k)), swap);
        }
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++) {
            EACH {
                __m128i now = _mm_add_epi32(w[l][r & 3], _mm_loadu_si128((const __m128i *)(ROUND + 4 * r)));
                cdgh[l] = _mm_sha256rnds2_epu32(cdgh[l], abef[l], now);
                abef[l] = _mm_sha256rnds2_epu32(abef[l], cdgh[l], _mm_shuffle_epi32(now, 0x0E));
                if (r < 12) {
                    __m128i sum = _mm_add_epi32(
                        _mm_sha256msg1_epu32(w[l][r & 3], w[l][(r + 1) & 3]),
                        _mm_alignr_epi8(w[l][(r + 3) & 3], w[l][(r + 2) & 3], 4)
                    );
                    w[l][r & 3] = _mm_sha256msg2_epu32(sum, w[l][(r + 3) & 3]);
                }
            }
        }
        EACH {
            abef[l] = _mm_add_epi32(abef[l], first[l]);
            cdgh[l] = _mm_add_epi32(cdgh[l], second[l]);
        }
    }
    EACH {
        __m128i feba = _mm_shuffle_epi32(abef[l], 0x1B), dchg = _mm_shuffle_epi32(cdgh[l], 0xB1);
        _mm_storeu_si128((__m128i *)states[l], _mm_blend_epi16(feba, dchg, 0xF0));
        _mm_storeu_si128((__m128i *)(states[l] + 4), _mm_alignr_epi8(dchg, feba, 8));
    }
}

SHA static void compress_fast(uint32_t *const *states, const uint8_t *const *blocks, int64_t n_blocks, int n_lanes) {
    if (n_lanes == 2) compress_lanes(2, states, blocks, n_blocks);
    else compress_lanes(1, states, blocks, n_blocks);
}

static Compress compress_here(void) {
    unsigned a, b, c, d;
    int has_sse41 = __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 19);
    return has_sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29) ? compress_fast : compress_plain;
}
#else
static Compress compress_here(void) { return compress_plain; }
#endif

/* Write a whole number, or `null` for the smallest, and give where it ends. */
static uint8_t *write_number(uint8_t *at, int64_t value) {
    int n = 1;
    if (value == INT64_MIN) return memcpy(at, "null", 4), at + 4;
    uint64_t left = value < 0 ? (uint64_t)-value : (uint64_t)value;
    if (value < 0) *at++ = '-';
    for (uint64_t bound = 10; n < 19 && left >= bound; bound *= 10) n++;
    for (int k = n - 1; k > 0; k--, left /= 10) at[k] = (uint8_t)('0' + left % 10);
    *at = (uint8_t)('0' + left);
    return at + n;
}

/* The eight hex digits of a word, all at once: a nibble per byte, then its letter. */
static void write_hex(uint8_t *at, uint32_t word) {
    uint64_t x = word;
    x = (x << 32 | x >> 16) & 0x0000ffff0000ffff;
    x = (x << 16 | x >> 8) & 0x00ff00ff00ff00ff;
    x = (x << 8 | x >> 4) & 0x0f0f0f0f0f0f0f0f;
    uint64_t is_letter = (x + 0x0606060606060606) >> 4 & 0x0101010101010101;
    x += 0x3030303030303030 + is_letter * ('a' - '0' - 10);
    for (int k = 0; k < 8; k++) at[k] = (uint8_t)(x >> 8 * k);
}

static int row_ids_run(Arg *a) {
    const uint8_t *texts = U1(0), *suffix = U1(4);
    const int64_t *ends = I8(1), *codes = I8(2), *numbers = I8(3);
    int64_t cells = LENGTH('c'), n = LENGTH('n'), columns = LENGTH('k'), n_suffix = LENGTH('s'), n_hex = LENGTH('h');
    Compress compress = a[6].n ? compress_plain : compress_here();
    for (int64_t row = 0; row < n; row++)
        if (codes[row] < 0 || codes[row] >= cells) return -1;
    for (int64_t c = 0; c < cells; c++)
        if (ends[c] < (c ? ends[c - 1] : 0) || ends[c] > LENGTH('t')) return -1;
    if (n_hex > 64) return -1;
    /* What the rows of a cell share is hashed once, as far as it fills blocks; the rest of it is copied for each row. */
    Rooms rooms;
    size_t longest = (size_t)(64 + 21 * columns + n_suffix + 128);
    if (open_rooms(&rooms, room_size(32 * (size_t)cells + 1) + 2 * room_size(longest)) < 0) return -1;
    uint32_t *shared = room(&rooms, 32 * (size_t)cells + 1);
    uint8_t *messages[2] = {room(&rooms, longest), room(&rooms, longest)};
    for (int64_t c = 0; c < cells; c++) {
        uint32_t *state = shared + 8 * c;
        const uint8_t *text = texts + (c ? ends[c - 1] : 0);
        memcpy(state, START, 32);
        compress(&state, &text, (texts + ends[c] - text) / 64, 1);
    }
    for (int64_t row = 0; row < n; row += 2) {
        uint32_t own[2][8], *states[2] = {own[0], own[1]};
        const uint8_t *rest[2] = {messages[0], messages[1]};
        int64_t n_blocks[2] = {0, 0};
        int n_lanes = row + 1 < n ? 2 : 1;
        for (int l = 0; l < n_lanes; l++) {
            int64_t c = codes[row + l], length = ends[c] - (c ? ends[c - 1] : 0), n_left = length % 64;
            memcpy(own[l], shared + 8 * c, 32);
            memcpy(messages[l], texts + ends[c] - n_left, (size_t)n_left);
            uint8_t *at = messages[l] + n_left;
            for (int64_t k = 0; k < columns; k++) {
                *at++ = ',';
                at = write_number(at, numbers[k * n + row + l]);
            }
            memcpy(at, suffix, (size_t)n_suffix);
            at += n_suffix;
            uint64_t bits = 8 * (uint64_t)(length - n_left + (at - messages[l]));
            n_blocks[l] = (at - messages[l] + 9 + 63) / 64;
            *at++ = 0x80;
            memset(at, 0, (size_t)(messages[l] + 64 * n_blocks[l] - at));
            for (int k = 0; k < 8; k++) messages[l][64 * n_blocks[l] - 1 - k] = (uint8_t)(bits >> 8 * k);
        }
        if (n_lanes == 2 && n_blocks[0] == n_blocks[1]) compress(states, rest, n_blocks[0], 2);
        else
            for (int l = 0; l < n_lanes; l++) compress(states + l, rest + l, n_blocks[l], 1);
        for (int l = 0; l < n_lanes; l++) {
            uint8_t hex[64];
            for (int k = 0; 8 * k < n_hex; k++) write_hex(hex + 8 * k, own[l][k]);
            memcpy(U1(5) + (row + l) * n_hex, hex, (size_t)n_hex);
        }
    }
    free(rooms.block);
    return 0;
}
KERNEL(row_ids, "b:t l:c l:n l:kn b:s B:nh n")

static int fnv1a_run(Arg *a) {
    const uint8_t *letters = U1(0);
    uint64_t *hashes = (uint64_t *)I8(1);
    for (int64_t row = 0; row < LENGTH('n'); row++, letters += LENGTH('h')) {
        uint64_t hash = 0xcbf29ce484222325;
        for (int64_t k = 0; k < LENGTH('h'); k++) hash = (hash ^ letters[k]) * 0x100000001b3;
        hashes[row] = hash;
    }
    return 0;
}
KERNEL(fnv1a, "b:nh L:n")

/* CRC-32C, eight bytes a step: TABLES[k] is the remainder of a byte that k zero bytes follow. */
static uint32_t TABLES[8][256];

static void fill_tables(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
        TABLES[0][value] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int value = 0; value < 256; value++)
            TABLES[k][value] = TABLES[k - 1][value] >> 8 ^ TABLES[0][TABLES[k - 1][value] & 0xFF];
}

static int crc32c_run(Arg *a) {
    const uint8_t *data = U1(0);
    int64_t n = LENGTH('n');
    uint32_t crc = ~(uint32_t)I8(1)[0];
    if (!TABLES[7][255]) fill_tables();
    for (; n >= 8; n -= 8, data += 8) {
        uint32_t low = crc ^ (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = TABLES[7][low & 0xFF] ^ TABLES[6][low >> 8 & 0xFF] ^ TABLES[5][low >> 16 & 0xFF] ^ TABLES[4][low >> 24] ^
              TABLES[3][data[4]] ^ TABLES[2][data[5]] ^ TABLES[1][data[6]] ^ TABLES[0][data[7]];
    }
    for (; n > 0; n--, data++) crc = crc >> 8 ^ TABLES[0][(crc ^ *data) & 0xFF];
    I8(1)[0] = (int64_t)(uint32_t)~crc;
    return 0;
}
SHORT_KERNEL(crc32c, "b:n L:o") /* milliseconds at most, and no thread meets half-filled tables */

/* Numbers in lines of JSON. The text ends with a newline, which nothing but the end of a line steps over: every byte that
   is looked at lies inside it. Whatever is not as told ends it all, and a reader that knows all of JSON takes over. */
static const uint64_t FIVES[28] = {
    1, 5, 25, 125, 625, 3125, 15625, 78125, 390625, 1953125, 9765625, 48828125, 244140625, 1220703125, 6103515625,
    30517578125, 152587890625, 762939453125, 3814697265625, 19073486328125, 95367431640625, 476837158203125,
    2384185791015625, 11920928955078125, 59604644775390625, 298023223876953125, 1490116119384765625, 7450580596923828125,
};

INLINE int is_digit(uint8_t letter) { return (uint8_t)(letter - '0') < 10; }
INLINE const uint8_t *spaces(const uint8_t *at) {
    while (*at == ' ') at++;
    return at;
}

/* Append digits to a number; how many it has, zeros before it not counted, says whether it still fits. */
INLINE const uint8_t *read_digits(const uint8_t *at, uint64_t *number, int64_t *n_digits) {
    for (; is_digit(*at); at++) {
        *number = 10 * *number + (uint64_t)(*at - '0');
        *n_digits += *n_digits || *number; /* 2^64 is 0 again */
    }
    return at;
}

/* digits / 10^places for digits > 0, rounded once. */
INLINE int divide(uint64_t digits, int64_t places, double *value) {
#if defined(__SIZEOF_INT128__) && defined(__GNUC__)
    uint64_t five = FIVES[places], bits;
    if (digits <= 1ull << 53 && places <= 22) { /* both are doubles, and halving is exact */
        bits = (uint64_t)(1023 - places) << 52;
        memcpy(value, &bits, 8);
        *value *= (double)digits / (double)five;
        return 1;
    }
    /* 63 bits or more of the quotient, the last of them set where something is left: converting rounds them once. */
    int up = __builtin_clzll(digits), up_five = __builtin_clzll(five);
    unsigned __int128 dividend = (unsigned __int128)(digits << up) << 63;
    uint64_t quotient = (uint64_t)(dividend / (five << up_five));
    quotient |= (unsigned __int128)quotient * (five << up_five) != dividend;
    bits = (uint64_t)(1023 + up_five - up - 63 - places) << 52;
    memcpy(value, &bits, 8);
    *value *= (double)quotient;
    return 1;
#else
    (void)digits, (void)places, (void)value;
    return 0;
#endif
}

/* Read a finite number as Python's float() does, and give where it ends; NULL for anything else, and for the whole number
   -0, whose sign a column of whole numbers loses. */
INLINE const uint8_t *read_number(const uint8_t *at, double *value) {
    const uint8_t *start = at, *from;
    int is_negative = *at == '-';
    uint64_t digits = 0, power = 0;
    int64_t n_digits = 0, n_power = 0, places = 0;
    at += is_negative;
    if (!is_digit(*at) || (*at == '0' && is_digit(at[1]))) return NULL;
    from = at = read_digits(at, &digits, &n_digits);
    if (*at == '.') {
        at = read_digits(from + 1, &digits, &n_digits);
        places = at - (from + 1);
        if (!places) return NULL;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        int is_small = *at == '-';
        at += is_small || *at == '+';
        if (!is_digit(*at)) return NULL;
        at = read_digits(at, &power, &n_power);
        if (n_power < 4) places += is_small ? (int64_t)power : -(int64_t)power;
    }
    if (is_negative && !n_digits && at == from) return NULL;
    if (!n_digits) *value = 0;
    else if (n_digits > 19 || n_power > 3 || places < 0 || places > 27 || !divide(digits, places, value)) {
        char *stop = NULL;
        *value = fabs(PyOS_string_to_double((const char *)start, &stop, NULL));
        if (stop == (const char *)at && *value <= 1.7976931348623157e308) return *value = is_negative ? -*value : *value, at;
        PyErr_Clear();
        return NULL;
    }
    if (is_negative) *value = -*value;
    return at;
}

INLINE const uint8_t *read_bool(const uint8_t *at, const uint8_t *end, double *value) {
    *value = *at == 't';
    int n = *value ? 4 : 5;
    return end - at > n && !memcmp(at, *value ? "true" : "false", (size_t)n) ? at + n : NULL;
}

static int step_numbers_run(Arg *a) {
    const uint8_t *at = U1(0), *end = at + LENGTH('t'), *keys = U1(1);
    const int64_t *ends = I8(2), *widths = I8(3);
    int64_t n_columns = LENGTH('c'), n_values = LENGTH('v'), each = 0;
    a[0].n = 0;
    for (int64_t c = 0; c < n_columns; c++) {
        if (ends[c] < (c ? ends[c - 1] : 0) || ends[c] > LENGTH('k')) return -1;
        if (widths[c] < -1 || widths[c] > n_values - each) return -1;
        each += widths[c] < 1 ? 1 : widths[c];
    }
    if (!each || n_values % each || at == end || end[-1] != '\n') return 0;
    int64_t n = n_values / each;
    for (int64_t row = 0; row < n; row++) {
        double *block = F8(4);
        if (at == end) return 0;
        for (int64_t c = 0; c < n_columns; c++) {
            int64_t width = widths[c], size = width < 1 ? 1 : width, n_key = ends[c] - (c ? ends[c - 1] : 0);
            double *own = block + row;
            at = spaces(at);
            if (*at != (c ? ',' : '{')) return 0;
            at = spaces(at + 1);
            if (end - at <= n_key || memcmp(at, keys + ends[c] - n_key, (size_t)n_key)) return 0;
            at = spaces(at + n_key);
            if (*at != ':') return 0;
            at = spaces(at + 1);
            if (width < 1) {
                at = width ? read_bool(at, end, own) : read_number(at, own);
                if (!at) return 0;
            }
            for (int64_t k = 0; k < width; k++) {
                if (*at != (k ? ',' : '[')) return 0;
                at = read_number(spaces(at + 1), own + k * n);
                if (!at) return 0;
                at = spaces(at);
            }
            if (width > 0 && *at++ != ']') return 0;
            block += n * size;
        }
        at = spaces(at);
        if (*at != '}') return 0;
        at = spaces(at + 1);
        if (*at++ != '\n') return 0;
    }
    a[0].n = at == end;
    return 0;
}
KERNEL_OF(step_numbers, "b:t b:k l:c l:c D:v", 1, 1) /* tenths of a millisecond, and Python's float() for odd numbers */

static PyMethodDef methods[] = {
    ENTRY(row_ids), ENTRY(fnv1a), ENTRY(crc32c), ENTRY(step_numbers), {NULL, NULL, 0, NULL},
};
MODULE(methods)
