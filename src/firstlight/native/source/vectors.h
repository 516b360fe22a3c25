// Sixteen float32 lanes on any CPU: GCC and Clang split the vectors where registers are narrower.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace firstlight {

constexpr int LANES = 16;
using f32x16 = float __attribute__((vector_size(64)));
using i32x16 = std::int32_t __attribute__((vector_size(64)));
using u32x16 = std::uint32_t __attribute__((vector_size(64)));
using u16x16 = std::uint16_t __attribute__((vector_size(32)));
using i8x16 = std::int8_t __attribute__((vector_size(16)));
using u8x16 = std::uint8_t __attribute__((vector_size(16)));

struct bf16 {
  std::uint16_t bits;
};

template <class V>
inline V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
inline void store(void* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

inline f32x16 splat(float x) { return x - f32x16{}; }

inline float widen(float x) { return x; }
inline float widen(bf16 x) {
  std::uint32_t bits = std::uint32_t(x.bits) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// To nearest, ties to even, as torch rounds; a NaN stays one.
inline std::uint16_t rounded(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t(bits >> 16 | 0x40);
  return std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline void narrow(float x, float* to) { *to = x; }
inline void narrow(float x, bf16* to) { to->bits = rounded(x); }

inline u32x16 rounded(f32x16 x) {
  u32x16 bits = (u32x16)x;
  u32x16 up = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  u32x16 nan = (bits >> 16) | 0x40;
  u32x16 is_nan = (u32x16)((bits & 0x7fffffffu) > 0x7f800000u);
  return (up & ~is_nan) | (nan & is_nan);
}

inline f32x16 load16(const float* from) { return load<f32x16>(from); }
inline f32x16 load16(const bf16* from) {
  return (f32x16)(__builtin_convertvector(load<u16x16>(from), u32x16) << 16);
}
inline void store16(float* to, f32x16 v) { store(to, v); }
inline void store16(bf16* to, f32x16 v) {
  store(to, __builtin_convertvector(rounded(v), u16x16));
}

// What a value becomes when it is stored as T: operations of a model round their results.
template <class T>
inline f32x16 as_stored(f32x16 v);
template <>
inline f32x16 as_stored<float>(f32x16 v) { return v; }
template <>
inline f32x16 as_stored<bf16>(f32x16 v) { return (f32x16)(rounded(v) << 16); }

// The first n lanes; the others are zero.
template <class T>
inline f32x16 load_part(const T* from, int n) {
  f32x16 v{};
  for (int i = 0; i < n; ++i) v[i] = widen(from[i]);
  return v;
}
template <class T>
inline void store_part(T* to, f32x16 v, int n) {
  for (int i = 0; i < n; ++i) narrow(v[i], to + i);
}

inline float sum(f32x16 v) {
  using f32x8 = float __attribute__((vector_size(32)));
  using f32x4 = float __attribute__((vector_size(16)));
  f32x8 e = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
            __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  f32x4 q = __builtin_shufflevector(e, e, 0, 1, 2, 3) + __builtin_shufflevector(e, e, 4, 5, 6, 7);
  return (q[0] + q[2]) + (q[1] + q[3]);
}

inline float largest(f32x16 v) {
  float most = v[0];
  for (int i = 1; i < LANES; ++i) most = v[i] > most ? v[i] : most;
  return most;
}

// e^x to about two units in the last place: 2^n times a polynomial on [-ln2/2, ln2/2].
inline f32x16 exp(f32x16 x) {
  const f32x16 low = splat(-87.3f), high = splat(88.7f);
  x = x < low ? low : x;
  x = x > high ? high : x;
  // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the last bits.
  f32x16 shifted = x * 1.44269504f + 12582912.0f, k = shifted - 12582912.0f;
  f32x16 r = x - k * 0.693359375f;
  r = r - k * -2.12194440e-4f;
  f32x16 p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  return (f32x16)((u32x16)p + ((u32x16)shifted << 23));
}

// acc + x[0] w[2i] + x[1] w[2i + 1] for the lanes i; w and x are pairs of bfloat16.
inline f32x16 dot_pairs(f32x16 acc, u32x16 w, std::uint32_t x) {
#if defined(__AVX512BF16__)
  __m512i pair = _mm512_set1_epi32(int(x));
  return (f32x16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)w, (__m512bh)pair);
#else
  f32x16 even = (f32x16)(w << 16), odd = (f32x16)(w & 0xffff0000u);
  return acc + even * widen(bf16{std::uint16_t(x)}) + odd * widen(bf16{std::uint16_t(x >> 16)});
#endif
}

}  // namespace firstlight
