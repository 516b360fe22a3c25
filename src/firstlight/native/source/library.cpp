// The functions that Python calls.

#include <algorithm>
#include <exception>

#include "attention.h"
#include "elementwise.h"
#include "instruction.h"
#include "int8_rows.h"
#include "linear.h"
#include "machine.h"
#include "norms.h"
#include "pack.h"
#include "segments.h"
#include "threads.h"
#include "tiles.h"

namespace firstlight {

std::uint32_t pieces_of(const Instruction& i) {
  switch (i.op) {
    case Op::LINEAR:
    case Op::LINEAR_INT8: return LinearPieces(i).count();
    case Op::ATTEND: return AttendPieces(i).count();
    case Op::MERGE_SPLITS: return std::uint32_t(i.n[0]);
    case Op::PACK:
    case Op::UNPACK: return std::uint32_t((i.n[0] + LANES - 1) / LANES);
    case Op::ATTEND_TILES: {
      std::int64_t each = tile_rows(i.n[2]);
      return std::uint32_t((i.n[0] + each - 1) / each * i.n[1]);
    }
    case Op::LAY_OUT_SEGMENTS:
    case Op::ATTEND_SEGMENTS:
      return std::uint32_t(i.n[1] * ((i.n[0] + SEGMENT_TILE - 1) / SEGMENT_TILE));
    default: return row_pieces(i.n[0]);
  }
}

template <class T>
void compute(const Instruction& i, std::uint32_t piece, Scratch& scratch) {
  switch (i.op) {
    case Op::LINEAR: return linear<T>(i, piece, scratch);
    case Op::RMS_NORM: return rms_norm<T>(i, piece);
    case Op::ROTATE: return rotate<T>(i, piece);
    case Op::GATE: return gate<T>(i, piece);
    case Op::ADD: return add<T>(i, piece);
    case Op::ACTIVATE: return activate<T>(i, piece);
    case Op::LAYER_NORM: return layer_norm<T>(i, piece);
    case Op::LAY_OUT_SEGMENTS: return lay_out_segments<T>(i, piece);
    case Op::ATTEND_SEGMENTS: return attend_segments<T>(i, piece);
    case Op::STORE_KV: return store_kv<T>(i, piece);
    case Op::ATTEND: return attend<T>(i, piece);
    case Op::MERGE_SPLITS: return merge_splits<T>(i, piece);
    case Op::ATTEND_TILES: return attend_tiles<T>(i, piece);
    case Op::PACK: return pack<T>(i, piece);
    case Op::UNPACK: return unpack<T>(i, piece);
    case Op::ROUND_ROWS: return round_rows<T>(i, piece);
    case Op::LINEAR_INT8: return linear_int8<T>(i, piece);
  }
}

struct Program final : Job {
  const Instruction* instructions;
  int count;
  Scratch* scratch;  // one per thread

  Program(const Instruction* from, int n, Scratch* s)
      : instructions(from), count(n), scratch(s) {}
  int size() const override { return count; }
  std::uint32_t pieces(int i) const override { return instructions[i].pieces; }
  void work(int i, std::uint32_t piece, int thread) const override {
    const Instruction& one = instructions[i];
    if (one.is_bf16) compute<bf16>(one, piece, scratch[thread]);
    else compute<float>(one, piece, scratch[thread]);
  }
};

}  // namespace firstlight

using namespace firstlight;

extern "C" {

// Changes with the layout of Instruction and with these functions.
std::int32_t fl_version() { return 2; }
// Of sixteen outputs.
std::int64_t fl_panel_bytes(std::int32_t kind, std::int64_t k) { return panel_bytes(kind, k); }
std::int64_t fl_instruction_bytes() { return sizeof(Instruction); }
// Whether this CPU has an instruction that sums products of bytes.
std::int32_t fl_dots_bytes() { return DOTS_BYTES; }

// Null if there is no memory for it.
void* fl_open(std::int32_t threads) {
  try {
    return Machines::all().open(threads);
  } catch (const std::exception&) {
    return nullptr;
  }
}
void fl_close(void* machine) { Machines::all().close((Machine*)machine); }
// How many there are: the system may give fewer than asked for.
std::int32_t fl_threads(void* machine) { return ((Machine*)machine)->team.size(); }
void fl_resize(void* machine, std::int32_t threads) { ((Machine*)machine)->resize(threads); }

// Once for each program, before it is run.
void fl_prepare(Instruction* instructions, std::int32_t n) {
  for (int i = 0; i < n; ++i) instructions[i].pieces = pieces_of(instructions[i]);
}

void fl_run(void* machine, const Instruction* instructions, std::int32_t n) {
  auto* m = (Machine*)machine;
  std::lock_guard<std::mutex> lock(m->one_caller);
  for (std::int32_t i = 0; i < n; i += Team::CAPACITY)
    m->run(Program(instructions + i, std::min<std::int32_t>(n - i, Team::CAPACITY),
                   m->scratch.data()));
}

}  // extern "C"
