#include "simai_arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"

namespace orrery::app {
namespace {

struct Row {
  std::string_view brief, full;  // "-w", "--workload"
  // "": its value stands alone; "--csv": behind this; "--set KEY=": as this key; "--cluster": as
  // the cluster, or as the topology of one that is named; "-": left out.
  std::string_view becomes;
  std::string_view refused;  // why it cannot be had
  bool flag = false;
};
constexpr std::string_view kAutomatic =
    "SimAI's automatic bus bandwidths are not had: give a table (-busbw FILE), or --cluster NAME "
    "in place of it for what NCCL would do there";
constexpr Row kRows[] = {
    {"-w", "--workload", "", ""},
    {"-g", "--gpus", "--set simai.gpus=", ""},
    {"-g_p_s", "--gpus-per-server", "-", ""},
    {"-r", "--result", "--csv", ""},
    {"-busbw", "--bus-bandwidth", "--set simai.busbw=", ""},
    {"-v", "--visual", "-", "", true},
    {"-tp_o", "--tp-overlap-ratio", "--set simai.tp_overlap=", ""},
    {"-dp_o", "--dp-overlap-ratio", "--set simai.dp_overlap=", ""},
    {"-ep_o", "--ep-overlap-ratio", "--set simai.ep_overlap=", ""},
    {"-pp_o", "--pp-overlap-ratio", "--set simai.pp_overlap=", ""},
    {"-t", "--thread", "-", ""},
    {"-n", "--network-topo", "--cluster", ""},
    {"-c", "--config", "--set packet.config=", ""},
    {"-nv", "--nvlink", "", kAutomatic},
    {"-nic", "--nic_busbw", "", kAutomatic},
    {"-n_p_s", "--nic_per_server", "", kAutomatic},
    {"-nic_t", "--nic_type", "", kAutomatic},
    {"-g_type", "--gpu_type", "", kAutomatic},
};

// SimAI's environment variables.
struct Variable {
  const char* name;
  std::string_view key;  // of --set; empty: it changes nothing, and `why` says why
  bool inverted = false;
  std::string_view why;
};
constexpr Variable kVariables[] = {
    {"AS_NVLS_ENABLE", "nccl.NCCL_NVLS_ENABLE"},
    {"AS_PXN_ENABLE", "nccl.NCCL_PXN_DISABLE", true},
    {"AS_SEND_LAT", "", false, "what a send takes is measured (docs/constants.md)"},
    {"AS_LOG_LEVEL", "", false, "nothing is logged"},
    {"AS_NVLSTREE_ENABLE", "", false, "SimAI does not read it"},
};

Status ReadVariables(const VariableOf& variable, std::vector<std::string>* out,
                     std::vector<std::string>* notes) {
  for (const Variable& row : kVariables) {
    const char* given = variable(row.name);
    if (given == nullptr) continue;
    const std::string_view value(given);
    if (row.key.empty()) {
      notes->push_back(
          fmt::format("{}={} changes nothing here: {}", row.name, Printable(value, 40), row.why));
      continue;
    }
    if (value != "0" && value != "1") {
      return InvalidInput("{}: '{}' is neither 0 nor 1", row.name, Printable(value, 40));
    }
    const bool on = (value == "1") != row.inverted;
    out->insert(out->end(), {"--set", fmt::format("{}={}", row.key, on ? 1 : 0)});
  }
  return {};
}

bool Has(std::span<const std::string> words, std::string_view option) {
  return std::ranges::any_of(words, [option](const std::string& word) {
    return word == option || word.starts_with(std::string(option) + "=");
  });
}

}  // namespace

bool IsSimaiCommand(std::span<const std::string> words) {
  if (words.empty() || words[0] != "simulate") return false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--format=simai") return true;
    if (words[i] == "--format" && i + 1 < words.size() && words[i + 1] == "simai") return true;
  }
  return false;
}

Result<std::vector<std::string>> FromSimai(std::span<const std::string> words,
                                           const VariableOf& variable,
                                           std::vector<std::string>* notes) {
  std::vector<std::string> out;
  std::string topology;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto row = std::ranges::find_if(
        kRows, [&word](const Row& r) { return word == r.brief || word == r.full; });
    if (row == std::end(kRows)) {
      out.push_back(word);
      continue;
    }
    if (!row->refused.empty()) return InvalidInput("{}: {}", word, row->refused);
    std::string value;
    if (!row->flag) {
      if (++i == words.size()) return InvalidInput("{} needs a value", word);
      value = words[i];
    }
    if (row->becomes == "-") {
      notes->push_back(fmt::format("{} changes nothing here", word));
    } else if (row->becomes == "--cluster") {
      topology = value;
    } else if (row->becomes == "--csv") {
      out.insert(out.end(), {"--csv", value + "ranks.csv"});
    } else if (row->becomes.empty()) {
      out.push_back(value);
    } else {
      out.insert(out.end(), {"--set", std::string(row->becomes.substr(6)) + value});
    }
  }
  // They are the simulator's; SimAI's analytical model reads none.
  if (topology.empty()) return out;
  ORRERY_RETURN_IF_ERROR(ReadVariables(variable, &out, notes));
  if (Has(out, "--cluster")) {
    out.insert(out.end(), {"--set", "cluster.topology.file=" + topology});
  } else {
    out.insert(out.end(), {"--cluster", topology});
  }
  if (!Has(out, "--network")) out.insert(out.end(), {"--network", "packet"});
  return out;
}

}  // namespace orrery::app
