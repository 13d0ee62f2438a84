// What NCCL expects of each algorithm and protocol: the cost table that its choice is made from, by
// its own tables (nccl_tables.h). It decides; white_box.h and formula.h price.
// Source: NVIDIA/nccl src/graph/tuning.cc and src/enqueue.cc, docs/collectives.md.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "orrery/collective/choice/nccl_tables.h"
#include "orrery/collective/collective.h"

namespace orrery::collective {

inline constexpr double kNotAvailable = 1e30;
inline constexpr int kMostHeads = 32;  // NCCL_MAX_NVLS_ARITY

inline int Log2(std::int64_t value) {
  return value < 1 ? -1 : std::bit_width(static_cast<std::uint64_t>(value)) - 1;
}

// All that NCCL's formulas read, once per plan.
struct Question {
  graph::Collective collective;
  std::int64_t bytes;
  const GroupShape* shape;
  const cluster::Spec* spec;
  const Environment* environment;
  nccl::Channels found;
  int ranks() const { return shape->ranks; }
  int domains() const { return shape->domains; }
  const nccl::Release& release() const { return *environment->release; }
  const nccl::Generation& gpu() const { return release().on(spec->device.arch); }
  bool over_pcie(Ways ways) const { return OverPcie(*spec, *shape, ways); }
  std::size_t span() const { return static_cast<std::size_t>(std::min(shape->domains, 3) - 1); }
};

// Microseconds; kNotAvailable where NCCL has none, or nothing here runs it. `direct`: GPUs without
// a switch of their own.
double ExpectedUs(const Question& q, Algorithm algorithm, Protocol protocol, bool direct);
// NVLS in one domain, NVLSTree over several, whether or not this version runs it.
double NvlsTimeUs(const Question& q, bool tree);
// CollNetDirect, CollNetChain, and NVLS over several domains.
double CollNetTimeUs(const Question& q, Algorithm algorithm);
// What NCCL expects of an all-reduce by NVLS over several domains.
double CollNetAllReduceGBps(const Question& q);
// Switches reduce, NCCL may use them, and the group is one for which it does.
bool HasCollNet(const Question& q);
// GPUs of a domain that stand beside NICs.
inline int CollNetHeads(const GroupShape& shape) {
  return std::max(1, std::min(shape.ranks_per_domain, shape.nics));
}

}  // namespace orrery::collective
