// Lays weights out as the kernels read them, and reads codes back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codes.h"
#include "linear.h"

namespace firstlight {

// To nearest, ties to even; a scale is far from what float16 cannot hold, or is cut off there.
inline std::uint16_t to_float16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  std::uint16_t sign = std::uint16_t(bits >> 16 & 0x8000);
  float size = std::fabs(x);
  if (size >= 65504.0f) return sign | 0x7bff;
  if (size < 6.103515625e-05f)  // below the normal numbers: whole steps of 2^-24
    return sign | std::uint16_t(std::nearbyint(size * 16777216.0f));
  std::memcpy(&bits, &size, 4);
  bits += 0xfff + (bits >> 13 & 1);
  return sign | std::uint16_t((bits - (112u << 23)) >> 13);
}

inline float of_float16(std::uint16_t h) {
  std::uint32_t bits = std::uint32_t(h & 0x7fff) << 13;
  float size;
  std::memcpy(&size, &bits, 4);
  size *= 0x1p112f;
  return h & 0x8000 ? -size : size;
}

inline float code_of(float value, float scale, float low, float high) {
  return scale > 0 ? std::clamp(std::nearbyint(value / scale), low, high) : 0.0f;
}

// One block of one output: `lane` of a block that holds sixteen.
inline void pack_int4(const float* w, int lane, char* block) {
  auto [low, high] = std::minmax_element(w, w + BLOCK);
  std::uint16_t least = to_float16(*low), scale = to_float16((*high - of_float16(least)) / 15);
  std::memcpy(block + lane * 2, &scale, 2);
  std::memcpy(block + 32 + lane * 2, &least, 2);
  float step = of_float16(scale), from = of_float16(least);
  for (int t = 0; t < BLOCK / 8; ++t) {
    std::uint32_t word = 0;
    for (int s = 0; s < 4; ++s)
      for (int odd = 0; odd < 2; ++odd) {
        float code = code_of(w[8 * t + 2 * s + odd] - from, step, 0, 15);
        word |= std::uint32_t(code) << (4 * s + 16 * odd);
      }
    std::memcpy(block + Int4::HEAD + (t * LANES + lane) * 4, &word, 4);
  }
}

inline void pack_int8(const float* w, int lane, char* block) {
  float most = 0;
  for (int k = 0; k < BLOCK; ++k) most = std::max(most, std::fabs(w[k]));
  std::uint16_t scale = to_float16(most / 127);
  std::memcpy(block + lane * 2, &scale, 2);
  for (int k = 0; k < BLOCK; ++k) {
    auto code = std::int8_t(code_of(w[k], of_float16(scale), -127, 127));
    std::memcpy(block + Int8::HEAD + (k / 4 * LANES + lane) * 4 + k % 4, &code, 1);
  }
}

// Output `row` of a weight [n, k] into its panel.
template <class T>
void pack_row(int kind, const T* w, std::int64_t row, std::int64_t k, char* panels) {
  char* panel = panels + row / LANES * panel_bytes(kind, k);
  int lane = int(row % LANES);
  constexpr int STEP = Along<T>::K;
  if (kind == FLOAT32 || kind == BFLOAT16) {
    for (std::int64_t c = 0; c < k; ++c)
      std::memcpy(panel + ((c / STEP * LANES + lane) * STEP + c % STEP) * sizeof(T), w + c,
                  sizeof(T));
    return;
  }
  float block[BLOCK];
  std::int64_t bytes = kind == INT8 ? Int8::BYTES : Int4::BYTES;
  for (std::int64_t b = 0; b * BLOCK < k; ++b) {
    for (int c = 0; c < BLOCK; ++c) block[c] = widen(w[b * BLOCK + c]);
    if (kind == INT8) pack_int8(block, lane, panel + b * bytes);
    else pack_int4(block, lane, panel + b * bytes);
  }
}

// The values that the codes of output `row` stand for.
template <class T>
void unpack_row(int kind, const char* panels, std::int64_t row, std::int64_t k, T* w) {
  const char* panel = panels + row / LANES * panel_bytes(kind, k);
  int lane = int(row % LANES);
  for (std::int64_t c = 0; c < k; ++c) {
    const char* block = panel + c / BLOCK * (kind == INT8 ? Int8::BYTES : Int4::BYTES);
    std::uint16_t scale, least;
    int at = int(c % BLOCK);
    std::memcpy(&scale, block + lane * 2, 2);
    if (kind == INT8) {
      std::int8_t code = std::int8_t(block[Int8::HEAD + (at / 4 * LANES + lane) * 4 + at % 4]);
      narrow(float(code) * of_float16(scale), w + c);
      continue;
    }
    std::memcpy(&least, block + 32 + lane * 2, 2);
    std::uint32_t word;
    std::memcpy(&word, block + Int4::HEAD + (at / 8 * LANES + lane) * 4, 4);
    int code = int(word >> (at % 8 / 2 * 4 + at % 2 * 16) & 15);
    narrow(float(code) * of_float16(scale) + of_float16(least), w + c);
  }
}

// kind: WeightKind. n: outputs, k. p: weight, panels (zeros where there is no output).
template <class T>
void pack(const Instruction& i, std::uint32_t panel) {
  std::int64_t end = std::min<std::int64_t>((panel + 1) * LANES, i.n[0]);
  for (std::int64_t row = std::int64_t(panel) * LANES; row < end; ++row)
    pack_row<T>(i.kind, (const T*)i.p[0] + row * i.n[1], row, i.n[1], (char*)i.p[1]);
}

// kind, n: as above. p: panels, weight.
template <class T>
void unpack(const Instruction& i, std::uint32_t panel) {
  std::int64_t end = std::min<std::int64_t>((panel + 1) * LANES, i.n[0]);
  for (std::int64_t row = std::int64_t(panel) * LANES; row < end; ++row)
    unpack_row<T>(i.kind, (const char*)i.p[0], row, i.n[1], (T*)i.p[1] + row * i.n[1]);
}

}  // namespace firstlight
