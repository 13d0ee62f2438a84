// What the names in a profile mean: which communication, the size of what, which element type.
//
// The tables are data/traces/collectives.csv and dtypes.csv, with a source a row. A name that is
// not there is no communication that a simulation could run, and is refused by whoever meets it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "orrery/graph/graph.h"

namespace orrery::workload {

// Where the bytes of graph::Comm stand.
enum class SizeOf : std::uint8_t {
  kNone,
  kIn,              // "In msg nelems"
  kOut,             // "Out msg nelems"
  kFirst,           // the operator's first argument
  kSecond,          // its second
  kFirstOfMember,   // its first, times the members of the group
  kSecondOfMember,  // its second, times the members
};
struct NamedCollective {
  graph::Collective collective = graph::Collective::kAllReduce;
  SizeOf size = SizeOf::kNone;
  bool messages = false;  // a kernel of sends and receives, which says not what they are
};
std::optional<NamedCollective> FindCollective(std::string_view name);

struct NamedType {
  graph::DType type = graph::DType::kFp32;
  std::int64_t bytes = 4;
};
std::optional<NamedType> FindType(std::string_view name);

// Whether a kernel of this name communicates (NCCL's, RCCL's).
bool IsCommKernel(std::string_view name);
// The element type that the name of NCCL's kernel ends in ("…_AllReduce_Sum_bf16_RING_LL(…)").
std::optional<NamedType> TypeOfKernel(std::string_view name);

// What a group is for, from its description ("dp", "mesh_tp", …); data parallelism if it says
// nothing.
graph::GroupSlot RoleOf(std::string_view description);

// All names that are collectives, for messages.
std::vector<std::string_view> CollectiveNames();

}  // namespace orrery::workload
