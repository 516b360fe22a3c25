// Weights of a few bits in blocks of 32 values of k, sixteen outputs beside each other.
//
// INT4: w = scale * code + least, codes 0..15 (as GGUF's Q4_1, also in size: 5 bits a weight).
//   A block is 16 scales and 16 least values in float16, then four times 16 lanes of 32 bits. Lane i
//   of the t-th holds output i: nibble s of its lower half is k = 8t + 2s, of its upper half the
//   next k.
// INT8: w = scale * code, codes -127..127 (as Q8_0). A block is 16 scales in float16, then eight
//   times 16 lanes of 32 bits: lane i of the t-th holds output i, bytes k = 4t .. 4t + 3.
//
// Codes are multiplied as they are, exact in bfloat16 too; a block's sum is scaled once.
#pragma once

#include <cstdint>
#include <vector>

#include "vectors.h"

namespace firstlight {

constexpr int BLOCK = 32;

// One step along k: a single k in float32, a pair in bfloat16.
template <class T>
struct Along;
template <>
struct Along<float> {
  static constexpr int K = 1;
  using Weight = f32x16;
  static f32x16 add(f32x16 acc, Weight w, const float* x) { return acc + w * *x; }
};
template <>
struct Along<bf16> {
  static constexpr int K = 2;
  using Weight = u32x16;
  static f32x16 add(f32x16 acc, Weight w, const bf16* x) {
    std::uint32_t pair;
    std::memcpy(&pair, x, 4);
    return dot_pairs(acc, w, pair);
  }
};

// Two neighbouring k of sixteen outputs as whole numbers, as the weights of T.
inline void as_weights(i32x16 even, i32x16 odd, f32x16 (&to)[2]) {
  to[0] = __builtin_convertvector(even, f32x16);
  to[1] = __builtin_convertvector(odd, f32x16);
}
inline void as_weights(i32x16 even, i32x16 odd, u32x16 (&to)[1]) {
  u32x16 low = (u32x16)__builtin_convertvector(even, f32x16);
  u32x16 high = (u32x16)__builtin_convertvector(odd, f32x16);
  to[0] = low >> 16 | (high & 0xffff0000u);  // exact: a bfloat16 holds whole numbers to 256
}

inline f32x16 load_float16(const char* from) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_cvtph_ps(load<__m256i>(from));
#else
  u32x16 bits = __builtin_convertvector(load<u16x16>(from), u32x16);
  f32x16 size = (f32x16)((bits & 0x7fffu) << 13) * 0x1p112f;
  return (f32x16)((u32x16)size | (bits & 0x8000u) << 16);
#endif
}

struct Int4 {
  static constexpr int PAIRS = 4;  // pairs of k in a vector of codes
  static constexpr int HEAD = 2 * LANES * 2;
  static constexpr int BYTES = HEAD + BLOCK / 2 / PAIRS * 64;

  template <class W>
  static void unpack(u32x16 codes, int pair, W& to) {
#if defined(__AVX512BF16__)
    if constexpr (sizeof(W) == 64) {
      // The lookup reads five bits of each 16; the table is the same whatever the fifth is.
      alignas(64) static constexpr std::uint16_t TABLE[32] = {
          0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120,
          0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
          0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
      __m512i at = _mm512_srli_epi16((__m512i)codes, unsigned(4 * pair));
      to[0] = (u32x16)_mm512_permutexvar_epi16(at, load<__m512i>(TABLE));
      return;
    }
#endif
    as_weights((i32x16)(codes >> (4 * pair) & 15u), (i32x16)(codes >> (16 + 4 * pair) & 15u), to);
  }

  template <int R, int P>
  static void scale(const f32x16 (&part)[R][P], f32x16 (&acc)[R][P], int p, const char* block,
                    const float* totals, std::int64_t apart) {
    f32x16 scale = load_float16(block), least = load_float16(block + 32);
    for (int r = 0; r < R; ++r)
      acc[r][p] += part[r][p] * scale + least * totals[r * apart];
  }
};

struct Int8 {
  static constexpr int PAIRS = 2;
  static constexpr int HEAD = LANES * 2;
  static constexpr int BYTES = HEAD + BLOCK / 2 / PAIRS * 64;

  template <class W>
  static void unpack(u32x16 codes, int pair, W& to) {
    as_weights((i32x16)(codes << (24 - 16 * pair)) >> 24, (i32x16)(codes << (16 - 16 * pair)) >> 24,
               to);
  }

  template <int R, int P>
  static void scale(const f32x16 (&part)[R][P], f32x16 (&acc)[R][P], int p, const char* block,
                    const float*, std::int64_t) {
    f32x16 scale = load_float16(block);
    for (int r = 0; r < R; ++r) acc[r][p] += part[r][p] * scale;
  }
};

// The weights of one pair of k: two vectors in float32, one in bfloat16.
template <class T>
using PairOf = typename Along<T>::Weight[2 / Along<T>::K];

// Adds a block's codes times x; `panels` are `apart` bytes from each other.
template <class Code, class T, int R, int P>
inline void accumulate_codes(f32x16 (&acc)[R][P], const T* x, std::int64_t ldx, const char* panels,
                             std::int64_t apart) {
  constexpr int STEPS = 2 / Along<T>::K;
  for (int t = 0; t < BLOCK / 2 / Code::PAIRS; ++t) {
    u32x16 codes[P];
    for (int p = 0; p < P; ++p) codes[p] = load<u32x16>(panels + p * apart + Code::HEAD + t * 64);
#pragma GCC unroll 4
    for (int pair = 0; pair < Code::PAIRS; ++pair) {
      PairOf<T> w[P];
      for (int p = 0; p < P; ++p) Code::unpack(codes[p], pair, w[p]);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
          for (int s = 0; s < STEPS; ++s) {
            int at = (t * Code::PAIRS + pair) * 2 + s * Along<T>::K;
            acc[r][p] = Along<T>::add(acc[r][p], w[p][s], x + r * ldx + at);
          }
    }
  }
}

// Memory of one thread, kept from call to call.
struct Scratch {
  std::vector<char> wide;
  std::vector<float> totals;
};

// Sums of each block of x, [rows][k / 32]: what a block's least value is multiplied by.
template <class T>
inline const float* block_totals(const T* x, std::int64_t ldx, std::int64_t rows, std::int64_t k,
                                 Scratch& scratch) {
  std::int64_t blocks = k / BLOCK;
  if (std::int64_t(scratch.totals.size()) < rows * blocks) scratch.totals.resize(rows * blocks);
  float* to = scratch.totals.data();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t b = 0; b < blocks; ++b, ++to) {
      const T* from = x + r * ldx + b * BLOCK;
      *to = sum(load16(from) + load16(from + LANES));
    }
  return scratch.totals.data();
}

// Codes of panels as weights of T, `apart` bytes from panel to panel; null if they are not widened.
template <class T>
struct Wide {
  const char* data = nullptr;
  std::int64_t apart = 0;
};

template <class Code, class T>
inline Wide<T> widen(const char* panels, std::int64_t apart, int count, std::int64_t k,
                     Scratch& scratch) {
  std::int64_t each = k * LANES * std::int64_t(sizeof(T));
  auto& memory = scratch.wide;
  if (std::int64_t(memory.size()) < each * count + 64) memory.resize(each * count + 64);
  char* to = (char*)((std::uintptr_t(memory.data()) + 63) & ~std::uintptr_t(63));
  Wide<T> wide{to, each};
  for (int p = 0; p < count; ++p)
    for (std::int64_t b = 0; b * BLOCK < k; ++b)
      for (int t = 0; t < BLOCK / 2 / Code::PAIRS; ++t) {
        u32x16 codes = load<u32x16>(panels + p * apart + b * Code::BYTES + Code::HEAD + t * 64);
        for (int pair = 0; pair < Code::PAIRS; ++pair, to += sizeof(PairOf<T>)) {
          PairOf<T> w;
          Code::unpack(codes, pair, w);
          std::memcpy(to, w, sizeof w);
        }
      }
  return wide;
}

}  // namespace firstlight
