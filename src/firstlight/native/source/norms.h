// LayerNorm (Ba, Kiros and Hinton 2016, arXiv:1607.06450), row by row.
#pragma once

#include <algorithm>
#include <cmath>

#include "elementwise.h"
#include "instruction.h"
#include "vectors.h"

namespace firstlight {

// The sum of fn(column, live) over a row, in four sums side by side.
template <class Fn>
inline float sum_over(std::int64_t width, Fn fn) {
  f32x16 part[4] = {};
  std::int64_t c = 0;
  for (; c + 4 * LANES <= width; c += 4 * LANES)
    for (int p = 0; p < 4; ++p) part[p] += fn(c + p * LANES, LANES);
  for (; c < width; c += LANES) part[0] += fn(c, int(std::min<std::int64_t>(LANES, width - c)));
  return sum((part[0] + part[1]) + (part[2] + part[3]));
}

// n: rows, width, stride of x, stride of y. f: eps. p: x, weight or null, bias or null, y.
template <class T>
void layer_norm(const Instruction& i, std::uint32_t piece) {
  std::int64_t width = i.n[1], end = std::min<std::int64_t>((piece + 1) * ROWS_OF_A_PIECE, i.n[0]);
  const T* weight = (const T*)i.p[1];
  const T* bias = (const T*)i.p[2];
  for (std::int64_t row = std::int64_t(piece) * ROWS_OF_A_PIECE; row < end; ++row) {
    const T* x = (const T*)i.p[0] + row * i.n[2];
    T* y = (T*)i.p[3] + row * i.n[3];
    float mean = sum_over(width, [&](std::int64_t c, int live) { return take(x + c, live); }) /
                 float(width);
    float squares = sum_over(width, [&](std::int64_t c, int live) {
      f32x16 v = take(x + c, live) - mean;
      for (int l = live; l < LANES; ++l) v[l] = 0.0f;
      return v * v;
    });
    float inverse = 1.0f / std::sqrt(squares / float(width) + float(i.f[0]));
    along(width, [&](std::int64_t c, int live) {
      f32x16 v = (take(x + c, live) - mean) * inverse;
      if (weight != nullptr) v *= take(weight + c, live);
      if (bias != nullptr) v += take(bias + c, live);
      put(y + c, v, live);
    });
  }
}

}  // namespace firstlight
