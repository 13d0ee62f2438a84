// Groups that have their links to themselves.
//
// A meet is secluded if all of its connections stay on links inside a host or an NVLink domain, and
// only its members send over those links, here or in other meets. So while all of its members stand
// still in a collective of theirs, nothing else can come onto its links.
//
// Cost: O(hops of all connections), once.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/engine/straight/wiring.h"

namespace orrery::engine {

class Secluded {
 public:
  struct Meet {
    std::vector<std::uint32_t> links;
    std::vector<std::uint32_t> wires;  // all that cross one of them
    std::vector<std::uint32_t> meets;  // that these belong to, itself among them; sorted
    bool secluded = false;
  };

  // Nobody is secluded.
  Secluded() = default;
  Secluded(const LoopInputs& in, const Wiring& wiring);

  // Null: it is not secluded.
  const Meet* Find(std::uint32_t meet) const {
    return meet < meets_.size() && meets_[meet].secluded ? &meets_[meet] : nullptr;
  }

 private:
  std::vector<Meet> meets_;
};

}  // namespace orrery::engine
