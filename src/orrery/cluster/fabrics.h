// Interconnects as people write them: a host's NICs with their rate ("8x400 Gb/s") and words for
// fabrics (data/fabrics.yaml; a user's file adds rows before those that are there,
// docs/formats/data.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/row_values.h"

namespace orrery::cluster {

struct FabricName {
  std::string names;             // "a|b", lower case
  std::optional<Fabric> fabric;  // else the cluster's
  std::string cluster;           // whose latency, packets and headers; empty: the cluster's
  std::string note, refused;     // what `assumed` says; or why a run is refused
};

class Fabrics {
 public:
  static const Fabrics& BuiltIn();
  Status Add(std::string_view text, const std::string& file);
  // Of the first row with a name that stands in the text; null where there is none.
  const FabricName* Find(std::string_view text) const;
  // The names of fabrics that are modelled.
  std::vector<std::string_view> Names() const;

 private:
  formats::RowValues<FabricName> rows_{"fabric"};
};

// "8x400 Gb/s", "IB 8x NDR 400Gbps", "RoCE 16x100Gbps", "EFA 3200Gbps/node", "400Gbps/GPU": NICs of
// a node and the rate of each; {0, 0} when the text states none.
struct NicText {
  int nics = 0;  // 0: the rate is of the node
  std::int64_t gigabits = 0;
};
NicText ReadNics(std::string_view network, int gpus_per_node);
// Refuses a fabric that a person types where anything but a name and such a rate stands in it;
// columns of tables may say more.
Status CheckFabricText(std::string_view text);
// "8 NICs of 400 Gb/s a host, InfiniBand".
std::string DescribeFabric(const Spec& spec);

}  // namespace orrery::cluster
