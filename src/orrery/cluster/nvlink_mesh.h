// NVLinks between particular GPUs of a host, without a switch: pairs that bridges join, cliques,
// the cube mesh of DGX-1.
//
// Written as text: "0-1:12 2-3:12" are two pairs of 12 links each; one link where no number
// stands. A link carries data both ways at once. GPUs that are not joined reach each other over the
// host's PCIe tree, as NCCL does it, which goes round by a third GPU's NVLinks (its NVB) for
// messages alone; that is not modelled.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::cluster {

class NvlinkMesh {
 public:
  static constexpr int kMostGpus = 16;

  NvlinkMesh() = default;
  // Of a host of so many GPUs. Errors name where in the text.
  static Result<NvlinkMesh> Parse(std::string_view text, int gpus);

  bool any() const { return most_ > 0; }
  // Between two GPUs of a host.
  int links(std::size_t a, std::size_t b) const { return any() ? count_[a * gpus_ + b] : 0; }
  int most() const { return most_; }  // links of the GPU that has most
  std::size_t pairs() const { return pairs_; }
  std::size_t gpus() const { return gpus_; }
  // Where the link from a to b stands among a host's, ordered by a, then b. REQUIRES: links(a, b).
  std::size_t index(std::size_t a, std::size_t b) const { return index_[a * gpus_ + b]; }

  // Rings over all of these GPUs (ascending), by links that no other of them takes in that
  // direction: as many as a bounded search finds, which is all that there are on pairs, cliques and
  // DGX-1's mesh. An order for each; none where NVLink closes no ring.
  std::vector<std::vector<std::uint32_t>> Rings(std::span<const std::uint32_t> gpus) const;

 private:
  std::size_t gpus_ = 0, pairs_ = 0;
  int most_ = 0;
  std::vector<std::uint16_t> count_;  // by GPU and GPU
  std::vector<std::uint32_t> index_;
};

}  // namespace orrery::cluster
