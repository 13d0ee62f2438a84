// Logical dimensions of collectives: rings of NPUs a stride apart, or of a communicator's members,
// and the two binary trees laid over such a ring.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace orrery::astra {

struct Ring {
  std::uint32_t size = 1, stride = 1;
  const std::vector<std::uint32_t>* members = nullptr;  // of a communicator; else by stride
  bool local = false;  // of a communicator: hand-overs take 10 ns whatever endpoint-delay says

  // `rank`: any of the ring's.
  std::uint32_t PlaceOf(std::uint32_t rank) const {
    if (members == nullptr) return (rank / stride) % size;
    std::uint32_t place = 0;
    while ((*members)[place] != rank) ++place;
    return place;
  }
  std::uint32_t At(std::uint32_t place, std::uint32_t rank, std::uint32_t own) const {
    return members == nullptr ? rank - own * stride + place * stride : (*members)[place];
  }
};

// A place in one of the two trees over `size` places, a power of two: a root with one child, below
// it a complete binary tree numbered in order. The root is the first place of one tree, the last of
// the other.
struct TreePlace {
  static constexpr std::int64_t kNone = -1;
  std::int64_t parent = kNone, left = kNone, right = kNone;
  bool root() const { return parent == kNone; }
  bool leaf() const { return parent != kNone && left == kNone; }

  static TreePlace Of(std::uint32_t place, std::uint32_t size, bool root_last) {
    const std::int64_t shift = root_last ? -1 : 0;  // from places of the complete tree, from 1
    const std::int64_t root = root_last ? size - 1 : 0;
    TreePlace out;
    if (place == root) {
      (root_last ? out.left : out.right) = size / 2 + shift;
      return out;
    }
    const std::uint32_t q = root_last ? place + 1 : place;
    const std::uint32_t bit = 1u << std::countr_zero(q);
    if (bit > 1) {
      out.left = q - bit / 2 + shift;
      out.right = q + bit / 2 + shift;
    }
    if (q == size / 2) {
      out.parent = root;
    } else {
      out.parent = ((q & (2 * bit)) != 0 ? q - bit : q + bit) + shift;
    }
    return out;
  }
};

}  // namespace orrery::astra
