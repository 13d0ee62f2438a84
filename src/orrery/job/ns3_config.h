// ns-3's RDMA configurations as keys of `packet`: HPCC's config.txt, that of ASTRA-sim's ns-3 front
// end, and SimAI.conf. Lines of KEY and values; '#' begins a remark. What each key becomes stands
// in data/ns3_keys.yaml; one that is not there, or has a value that cannot be had, is an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/tree.h"

namespace orrery::job {

struct Ns3Config {
  formats::Document document;      // its root: keys of `packet`, each with its line in the file
  std::int64_t payload_bytes = 0;  // PACKET_PAYLOAD_SIZE; 0: not named
  std::vector<std::string> notes;  // keys without effect
};

// `nic_Bps` picks the thresholds of KMIN_MAP, KMAX_MAP and PMAX_MAP.
Result<Ns3Config> ReadNs3Config(std::string_view text, const std::string& name,
                                std::int64_t nic_Bps);

}  // namespace orrery::job
