// NCCL's releases: the tables and the behaviour that its choices are made from. They decide, they
// do not price (white_box.h prices).
//
// data/nccl.yaml, embedded, a row a release that changed something, with its source; a user's file
// adds rows. Latencies in microseconds, bandwidths in GB/s = 1e9 byte/s, both as NCCL writes them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/formats/rows.h"

namespace orrery::collective::nccl {

using ByProtocol = std::array<double, 3>;  // LL, LL128, Simple
using BySpan = std::array<double, 3>;      // one domain, two, more

// What a release has of an architecture's GPUs.
struct Generation {
  int release = 0;     // the oldest that runs where nobody says
  double most_ll = 0;  // what LL gets of all channels of one domain
  BySpan ring_ll128{}, tree_ll128{}, tree_simple{}, nvls_tree{};  // per channel; 0: no bound
  double nvls_efficiency = 0;                                     // 0: no NVLS
  double plateau = 0;                        // times a ring's latency, Simple, where much moves
  double most_bus = 0;                       // of all channels; 0: no bound
  std::vector<double> steps, steps_between;  // that the search tries, highest first
  double nvlink_factor = 1;                  // of a link's effective rate
  std::array<double, 3> nvls_channels{};     // by span
  double efa_latency = 0;                    // us of a crossing, as AWS's plugin says
};

struct Release {
  std::string name;
  int version = 0;                                           // 22807
  std::array<ByProtocol, 2> base{}, nvlink{}, pci{}, net{};  // latencies by Algorithm (tree, ring)
  double nvls_nvlink = 0, nvls_net = 0, nvls_tree_net = 0;   // Simple only
  double collnet_direct_nvlink = 0, collnet_chain_nvlink = 0;
  double collnet_direct_net = 0, collnet_chain_net = 0;
  std::array<std::array<double, 2>, 2> most_ll{};           // by AMD CPU, then two domains or more
  std::array<std::array<double, 24>, 3> tree_correction{};  // by protocol and log2(bytes / 64)
  double ll_step_factor = 1;  // times an intra-domain step of LL over several domains
  double ll_share = 0, ll_share_inside = 0;  // of a ring's bandwidth; of others' than all-reduce
                                             // in one domain
  double lone_ll128_share = 0;               // of a ring's, one GPU a domain
  double nvls_gather_share = 0;              // of what the search finds
  double doubles_below = 0;                  // Hopper on doubles fewer channels between domains
  std::array<Generation, 4> generations;     // by cluster::Arch
#define ORRERY_NCCL_SWITCH(name, doc) bool name = false;
#include "orrery/collective/choice/release_switches.inc"
#undef ORRERY_NCCL_SWITCH

  const Generation& on(cluster::Arch arch) const {
    return generations[static_cast<std::size_t>(arch)];
  }
  // Index log2(bytes / 64); 1 beyond the table.
  double TreeCorrection(int protocol, int log_size) const {
    if (log_size < 0 || log_size > 23) return 1;
    return tree_correction[static_cast<std::size_t>(protocol)][static_cast<std::size_t>(log_size)];
  }
};

class Releases {
 public:
  static const Releases& BuiltIn();
  // The rows of a file; `file` stands for it in errors. A release that is there is an error.
  Status Add(std::string_view text, const std::string& file);

  // The row that holds for a version: the last one not later, else the first. O(log rows).
  const Release& At(int version) const;
  const Release& newest() const { return *releases_.back(); }

 private:
  formats::DataTable rows_{"release of NCCL"};
  std::vector<std::shared_ptr<const Release>> releases_;  // by version
};

inline const Releases& ReleasesOf(const Environment& environment) {
  return environment.releases != nullptr ? *environment.releases : Releases::BuiltIn();
}
// The release of an environment, and of a plan.
inline const Release& ReleaseOf(const Environment& environment) {
  if (environment.release != nullptr) return *environment.release;
  return ReleasesOf(environment).At(environment.version);
}
inline const Release& ReleaseOf(const Plan& plan) {
  return plan.release != nullptr ? *plan.release : ReleaseOf(Environment());
}

}  // namespace orrery::collective::nccl
