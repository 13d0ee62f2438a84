// Themis's order of dimensions for the chunks of a collective: each chunk begins in the dimension
// that has least to do, so that no dimension's bandwidth lies idle.
//
// ASTRA-sim holds this code and documents it (inter-dimension-scheduling), but its reader never
// turns it on. Loads are in the time that 1 MiB takes over the first dimension.
// Source: Rashidi et al., Themis, ISCA'22; ASTRA-sim's OfflineGreedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "orrery/astra/config.h"

namespace orrery::astra {

class GreedyScheduler {
 public:
  GreedyScheduler(const NetworkConfig& network, std::size_t ranks);

  struct Chunk {
    std::vector<int> order;   // of dimensions
    std::uint64_t bytes = 0;  // of the chunk
  };
  // The chunk of a rank's number `chunk`: settled by the first rank that asks, the same for all.
  // `left`: bytes of the collective not yet in chunks; `wanted`: a chunk's usual size.
  Chunk Next(std::uint64_t chunk, std::uint64_t left, std::uint64_t wanted, unsigned involved,
             bool flexible, Collective collective);
  // A collective begins at another time than the last: no loads are known.
  void Forget();

 private:
  struct Load {
    int dimension = 0;
    double elapsed = 0;
  };
  struct Kept {
    Chunk chunk;
    std::size_t asked = 0;
  };
  bool Used(int d, unsigned involved) const { return (involved >> d & 1u) != 0; }
  double Share(int d, bool gather) const;
  std::uint64_t BytesFor(double elapsed, int d, bool gather) const;
  std::uint64_t Slack(std::size_t at, unsigned involved, bool gather) const;
  void Spend(int d, bool gather, Load* load, std::uint64_t* bytes) const;
  Chunk Decide(std::uint64_t left, std::uint64_t wanted, unsigned involved, bool flexible,
               bool gather);
  Chunk InOrder(std::uint64_t bytes, std::uint64_t counted, unsigned involved, bool gather);

  std::vector<Dimension> dimensions_;
  std::size_t ranks_;
  std::vector<Load> loads_;
  std::map<std::uint64_t, Kept> kept_;
};

}  // namespace orrery::astra
