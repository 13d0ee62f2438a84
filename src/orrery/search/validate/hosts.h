// What hosts bring that a table of measured runs names: data/hosts.yaml; a user's file adds rows
// before those that are there (docs/formats/data.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/formats/row_values.h"
#include "orrery/search/validate/configuration.h"

namespace orrery::search {

using Variables = std::vector<std::pair<std::string, std::string>>;  // NCCL's

struct Host {
  std::string names;               // "a|b", lower case: one of them stands in the row's words
  std::string note;                // what `assumed` says
  std::optional<bool> cpu_is_amd;  // where it is not the cluster's
  double efa_latency_us = 0;       // of collective::Environment
  Variables nccl;
  std::vector<collective::TunerRow> tuner;
};

class Hosts {
 public:
  static const Hosts& BuiltIn();
  Status Add(std::string_view text, const std::string& file);
  // Those that a row of collectives names, in the order of the table.
  std::vector<const Host*> Named(const Configuration& row) const;

 private:
  formats::RowValues<Host> rows_{"host"};
};

// The words of a row's system and network, in lower case.
std::string WordsOf(const Configuration& row);
// Whether words name something and do not say that it is left out.
enum class Named { kNot, kOn, kOff };
Named NamedIn(std::string_view words, std::string_view name);

}  // namespace orrery::search
