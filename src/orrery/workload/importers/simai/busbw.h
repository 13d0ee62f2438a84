// SimAI's table of bus bandwidths (busbw.yaml): what a collective of a communicator reaches, in
// nccl-tests' sense, in GB/s of 2^30 bytes.
//
//   time = bytes / busbw · factor     all-reduce 2 (n - 1)/n, others (n - 1)/n, messages 1
//
// The file is no YAML: a line of any text, then sections TP, DP, EP and PP of lines "allreduce,:
// 300" ("busbw: 47.5" in PP), null where there is none. EP's are those of DP_EP's communicators,
// too.
// Source: SimAI 1.5's reader and its analytical model's formula (docs/formats/simai.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/graph/graph.h"

namespace orrery::workload {

class BusBandwidths {
 public:
  // Errors name line and value.
  static Result<BusBandwidths> Parse(std::string_view text, const std::string& name);

  // Of a collective of `bytes` over `members` of a group; kSend over the pipeline. An error where
  // the table has no number for it.
  Result<SimTime> Time(graph::GroupSlot group, graph::Collective collective, std::int64_t bytes,
                       std::int64_t members) const;

 private:
  Status Add(std::string_view section, std::string_view key, std::string_view value);

  std::string name_;
  std::map<std::pair<graph::GroupSlot, graph::Collective>, double> known_;  // byte/s
};

}  // namespace orrery::workload
