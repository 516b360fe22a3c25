// y[rows, N] = x[rows, K] w^T (+ bias) in whole numbers: weights are codes as in codes.h, and each
// block of 32 values of a row is rounded to codes from -127 to 127 with a scale of its own.
//
// A block's products are summed exactly in 32 bits and scaled once, blocks in order: a row's result
// does not depend on the rows beside it.
//
// A row of codes is K/32 times 40 bytes: 32 codes, the scale, and what the block's sum is needed
// for: with INT4 their sum times the scale (float32), which a block's least value is multiplied by;
// with INT8 -128 times their sum (int32), since its codes are multiplied as code + 128. Codes of a
// row stand in the order in which unpacking gives those of the weight.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "codes.h"
#include "elementwise.h"
#include "instruction.h"
#include "linear.h"
#include "vectors.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace firstlight {

constexpr int CODES_BYTES = BLOCK + 8;  // of a block of x

#if defined(__AVX512VNNI__) || defined(__AVX2__)
constexpr bool DOTS_BYTES = true;
#else
constexpr bool DOTS_BYTES = false;
#endif

// acc + the four products of bytes of each lane; w unsigned, x signed, sums exact.
// SMALL: w is at most 15.
template <bool SMALL>
inline i32x16 dot_bytes(i32x16 acc, u32x16 w, std::uint32_t x) {
#if defined(__AVX512VNNI__)
  return (i32x16)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, _mm512_set1_epi32(int(x)));
#elif defined(__AVX2__)
  __m256i halves[2], sums[2], four = _mm256_set1_epi32(int(x));
  std::memcpy(halves, &w, 64);
  std::memcpy(sums, &acc, 64);
  for (int h = 0; h < 2; ++h) {
#if defined(__AVXVNNI__)
    sums[h] = _mm256_dpbusd_avx_epi32(sums[h], halves[h], four);
#else
    __m256i found;
    if constexpr (SMALL) {  // two products fit 16 bits
      found = _mm256_madd_epi16(_mm256_maddubs_epi16(halves[h], four), _mm256_set1_epi16(1));
    } else {
      __m256i low = _mm256_and_si256(halves[h], _mm256_set1_epi16(0xff));
      __m256i high = _mm256_srli_epi16(halves[h], 8);
      __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8);
      found = _mm256_add_epi32(_mm256_madd_epi16(low, even),
                               _mm256_madd_epi16(high, _mm256_srai_epi16(four, 8)));
    }
    sums[h] = _mm256_add_epi32(sums[h], found);
#endif
  }
  std::memcpy(&acc, sums, 64);
  return acc;
#else
  for (int byte = 0; byte < 4; ++byte)
    acc += (i32x16)(w >> (8 * byte) & 255u) * int(std::int8_t(x >> (8 * byte)));
  return acc;
#endif
}

// Codes of R rows, from one block on; rows are `apart` bytes from each other.
template <int R>
struct RowCodes {
  const char* data;
  std::int64_t apart;

  template <class V>
  V at(int row, int place) const {
    return load<V>(data + row * apart + place);
  }
  std::uint32_t four(int row, int place) const { return at<std::uint32_t>(row, place); }
  float scale(int row) const { return at<float>(row, BLOCK); }
};

// Adds a block of sixteen outputs times that of R rows.
template <int R>
inline void add_block(const Int4*, const char* block, RowCodes<R> x, f32x16 (&acc)[R]) {
  i32x16 sums[R] = {};
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) {
    u32x16 codes = load<u32x16>(block + Int4::HEAD + t * 64);
    u32x16 low = codes & 0x0f0f0f0fu, high = codes >> 4 & 0x0f0f0f0fu;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r] = dot_bytes<true>(sums[r], low, x.four(r, 8 * t));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r] = dot_bytes<true>(sums[r], high, x.four(r, 8 * t + 4));
  }
  f32x16 scale = load_float16(block), least = load_float16(block + 2 * LANES);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    acc[r] += __builtin_convertvector(sums[r], f32x16) * (scale * x.scale(r));
    acc[r] += least * x.template at<float>(r, BLOCK + 4);
  }
}

template <int R>
inline void add_block(const Int8*, const char* block, RowCodes<R> x, f32x16 (&acc)[R]) {
  i32x16 sums[R];
  for (int r = 0; r < R; ++r) sums[r] = i32x16{} + x.template at<std::int32_t>(r, BLOCK + 4);
#pragma GCC unroll 8
  for (int t = 0; t < 8; ++t) {
    u32x16 w = load<u32x16>(block + Int8::HEAD + t * 64) ^ 0x80808080u;  // code + 128
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r] = dot_bytes<false>(sums[r], w, x.four(r, 4 * t));
  }
  f32x16 scale = load_float16(block);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
    acc[r] += __builtin_convertvector(sums[r], f32x16) * (scale * x.scale(r));
}

// Sums and largest values of lanes, by halves.
inline i32x16 folded(i32x16 v, i32x16 (*join)(i32x16, i32x16)) {
  v = join(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = join(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = join(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  return join(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
}
inline i32x16 larger(i32x16 a, i32x16 b) { return a > b ? a : b; }
inline i32x16 added(i32x16 a, i32x16 b) { return a + b; }

// The scale of a block of x, and what its values are multiplied by to become codes.
struct BlockScale {
  float scale, inverse;

  BlockScale(f32x16 low, f32x16 high) {
    // As whole numbers, sizes are in order, and infinity and NaN are the largest.
    i32x16 size = larger((i32x16)low & 0x7fffffff, (i32x16)high & 0x7fffffff);
    std::int32_t bits = folded(size, larger)[0];
    float most;
    std::memcpy(&most, &bits, 4);
    bool is_finite = bits < 0x7f800000;
    scale = is_finite ? most / 127.0f : std::nanf("");  // the row is what its NaN make of it
    // Below 2^-119 an inverse is infinite, and the values are as good as zero.
    inverse = is_finite && most > 0x1p-119f ? 127.0f / most : 0.0f;
  }
};

// Codes of one block of x at `to`.
template <class T>
inline void codes_of_block(const T* x, bool is_int4, char* to) {
  f32x16 low = load16(x), high = load16(x + LANES);
  BlockScale found(low, high);
  i32x16 a{}, b{};
  if (found.inverse != 0) {
    const float rounder = 12582912.0f;  // leaves a whole number in the last bits
    a = (i32x16)(low * found.inverse + rounder) - 0x4b400000;
    b = (i32x16)(high * found.inverse + rounder) - 0x4b400000;
  }
  int sum = folded(a + b, added)[0];
  i8x16 codes[2] = {__builtin_convertvector(a, i8x16), __builtin_convertvector(b, i8x16)};
  if (is_int4)
    for (auto& half : codes)
      half = __builtin_shufflevector(half, half, 0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  std::memcpy(to, codes, BLOCK);
  std::memcpy(to + BLOCK, &found.scale, 4);
  float total = found.scale * float(sum);
  std::int32_t shifted = -128 * sum;
  if (is_int4) std::memcpy(to + BLOCK + 4, &total, 4);
  else std::memcpy(to + BLOCK + 4, &shifted, 4);
}

inline std::int64_t row_of_codes(std::int64_t k) { return k / BLOCK * CODES_BYTES; }

// kind: of the weight that the rows will meet. n: rows, K, stride of x. p: x, codes.
template <class T>
void round_rows(const Instruction& i, std::uint32_t piece) {
  std::int64_t k = i.n[1];
  std::int64_t begin = std::int64_t(piece) * ROWS_OF_A_PIECE;
  std::int64_t end = std::min(begin + ROWS_OF_A_PIECE, i.n[0]);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = (const T*)i.p[0] + row * i.n[2];
    char* to = (char*)i.p[1] + row * row_of_codes(k);
    for (std::int64_t b = 0; b * BLOCK < k; ++b)
      codes_of_block(x + b * BLOCK, i.kind == INT4, to + b * CODES_BYTES);
  }
}

// R rows times the panel of the output `first`.
template <class T, class Code, int R>
void tile_of_rows(const Linear<T>& op, std::int64_t row, std::int64_t first) {
  f32x16 acc[R] = {};
  std::int64_t apart = row_of_codes(op.k);
  const char* codes = (const char*)op.x + row * apart;
  const char* panel = op.w + first / LANES * op.panel;
  for (std::int64_t b = 0; b * BLOCK < op.k; ++b)
    add_block<R>((const Code*)nullptr, panel + b * Code::BYTES,
                 {codes + b * CODES_BYTES, apart}, acc);
  for (int r = 0; r < R; ++r) op.finish(acc[r], row + r, first);
}

// Panel by panel: few rows are as fast as memory, and that is fastest when read in sequence.
template <class T, class Code>
void piece_of_rows(const Instruction& i, std::uint32_t piece) {
  Linear<T> op(i);
  LinearPieces pieces(i);
  std::int64_t begin = piece / pieces.across * ROW_TILE;
  std::int64_t end = std::min(begin + ROW_TILE, pieces.rows);
  std::int64_t p = piece % pieces.across * pieces.per_piece;
  std::int64_t last = std::min(p + pieces.per_piece, pieces.panels);
  for (; p < last; ++p)
    Linear<T>::several(begin, end, [&]<int R>(std::int64_t row) {
      tile_of_rows<T, Code, R>(op, row, p * LANES);
    });
}

// kind: INT8 or INT4. n, p: as of `linear`, with codes of rows for x.
template <class T>
void linear_int8(const Instruction& i, std::uint32_t piece) {
  if (i.kind == INT4) piece_of_rows<T, Int4>(i, piece);
  else piece_of_rows<T, Int8>(i, piece);
}

}  // namespace firstlight
