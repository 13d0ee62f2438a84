// Internal to the binary form: what its reader and its writer must have alike.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "orrery/graph/graph.h"

namespace orrery::graph {

enum GroupForm : std::uint8_t { kListed = 0, kStepped = 1 };

// The first byte of a communication: its collective, and whether it differs.
inline constexpr std::uint64_t kDiffers = 0x80;
// The first byte of an operation: its kind in four bits, whether it differs in one, and the number
// of its dependencies in three.
inline constexpr std::uint64_t kOpKindBits = 0x0f, kOpDiffers = 0x10, kManyDeps = 7;
inline constexpr int kDepShift = 5;
static_assert(kOpKinds <= 16 && kCollectives <= 128);

using KernelsBefore = std::tuple<Gemm, Attention, MemoryBound, Timed, Generic>;

// What an operation is expected to be: the last one of its kind, with the next entry of its table.
class OpsBefore {
 public:
  Op Expected(OpKind kind) const {
    Op op = last_[static_cast<std::size_t>(kind)];
    op.kind = kind;
    if (HasIndex(kind)) op.index = next_[static_cast<std::size_t>(kind)];
    return op;
  }
  void Saw(const Op& op) {
    last_[static_cast<std::size_t>(op.kind)] = op;
    next_[static_cast<std::size_t>(op.kind)] = op.index + 1;
  }

 private:
  std::array<Op, kOpKinds> last_{};
  std::array<std::uint32_t, kOpKinds> next_{};
};

}  // namespace orrery::graph
