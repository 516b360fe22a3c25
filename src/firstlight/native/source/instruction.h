// What Python hands over: one operation with its sizes, scalars and addresses.
#pragma once

#include <cstdint>

namespace firstlight {

enum class Op : std::int32_t {
  LINEAR = 0,
  RMS_NORM = 1,
  ROTATE = 2,
  GATE = 3,
  ADD = 4,
  STORE_KV = 5,
  ATTEND = 6,
  MERGE_SPLITS = 7,
  ATTEND_TILES = 8,
  PACK = 9,
  UNPACK = 10,
  ACTIVATE = 11,
  ROUND_ROWS = 12,
  LINEAR_INT8 = 13,
  LAYER_NORM = 20,
  LAY_OUT_SEGMENTS = 21,
  ATTEND_SEGMENTS = 22,
};

// Which names the fields have is said at each kernel.
struct Instruction {
  Op op;
  std::int32_t is_bf16;  // of activations; else float32
  std::int32_t kind;
  std::uint32_t pieces;  // filled in by `prepare`
  std::int64_t n[16];
  double f[4];
  void* p[12];
};

}  // namespace firstlight
