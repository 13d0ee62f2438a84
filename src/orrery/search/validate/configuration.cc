#include "orrery/search/validate/configuration.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/search/validate/names.h"

namespace orrery::search {
namespace {

constexpr std::array<std::string_view, 57> kTraining = {
    // the model
    "model", "params_b", "arch", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab",
    "seq_len", "experts", "topk", "layer_kind", "task", "proxy_layers_of",
    // the machine
    "gpu", "gpu_mem_gb", "gpus", "gpus_per_node", "network", "nic_gbps_per_gpu", "nvlink_gen",
    "fabric", "oversubscription", "gpu_power_w",
    // the plan
    "tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "zero_group", "seq_parallel", "recompute",
    "micro_batch", "global_batch", "grad_accum", "precision", "param_dtype", "compute_dtype",
    "reduce_dtype", "offload",
    // the software
    "framework", "framework_family", "framework_version", "measured_date", "dp_overlap",
    "tp_comm_overlap", "ep_overlap", "moe_dispatcher", "moe_routing", "attention_kernel",
    "cuda_graphs", "config_extra",
    // which meter measured memory, and where
    "mem_kind", "mem_rank"};
constexpr std::array<std::string_view, 10> kTrainingRequired = {
    "framework_family", "gpu", "gpus", "layers",      "hidden", "heads",
    "seq_len",          "tp",  "pp",   "global_batch"};

constexpr std::array<std::string_view, 9> kCollectiveColumns = {
    "system",  "gpu",        "nodes",      "gpus_per_node", "nccl_version",
    "network", "collective", "size_bytes", "dtype"};
constexpr std::array<std::string_view, 5> kCollectivesRequired = {"gpu", "nodes", "gpus_per_node",
                                                                  "collective", "size_bytes"};

constexpr std::array<std::string_view, 12> kWithheld = {
    "id",           "source",         "source_table", "notes",
    "step_time_s",  "tflops_per_gpu", "mfu_pct",      "tokens_per_s_per_gpu",
    "peak_mem_gib", "time_us_oop",    "algbw_GBps",   "busbw_GBps"};

std::size_t IndexOf(std::span<const std::string_view> columns, std::string_view column) {
  const auto at = std::find(columns.begin(), columns.end(), column);
  ORRERY_CHECK(at != columns.end(), "a prediction reads configuration columns only");
  return static_cast<std::size_t>(at - columns.begin());
}

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

// Of "a|b", a choice that `fits`.
template <class Fits>
bool AnyChoice(std::string_view choices, const Fits& fits) {
  while (!choices.empty()) {
    const std::size_t bar = std::min(choices.find('|'), choices.size());
    if (fits(choices.substr(0, bar))) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

}  // namespace

std::span<const std::string_view> ConfigurationColumns(TableKind kind) {
  if (kind == TableKind::kTraining) return kTraining;
  return kCollectiveColumns;
}

std::span<const std::string_view> RequiredColumns(TableKind kind) {
  if (kind == TableKind::kTraining) return kTrainingRequired;
  return kCollectivesRequired;
}

std::span<const std::string_view> WithheldColumns() { return kWithheld; }

namespace {

// Of the columns that nothing reads, the one that was surely meant by this name.
std::string MeantBy(const formats::CsvTable& table, TableKind kind, std::string_view name) {
  const auto known = ConfigurationColumns(kind);
  std::vector<std::string_view> others;
  for (const std::string_view column : table.header()) {
    const auto is = [&](std::span<const std::string_view> columns) {
      return std::find(columns.begin(), columns.end(), column) != columns.end();
    };
    if (!is(known) && !is(WithheldColumns())) others.push_back(column);
  }
  const std::vector<std::string> near = Nearest(name, others, 1);
  return near.empty() ? "" : near.front();
}

Status MissingColumns(const formats::CsvTable& table, TableKind kind,
                      const std::vector<std::string_view>& missing) {
  std::vector<std::string> remedies;
  for (const std::string_view name : missing) {
    const std::string column = MeantBy(table, kind, name);
    if (column.empty()) continue;
    remedies.push_back(fmt::format("rename '{}' to '{}'", Printable(column, 40), name));
  }
  const bool one = missing.size() == 1;
  if (remedies.size() < missing.size()) {
    remedies.push_back(fmt::format("add {} to the header", !remedies.empty() ? "the others"
                                                           : one             ? "it"
                                                                             : "them"));
  }
  return InvalidInput("{}:1: missing column{}: {}; {}", table.name(), one ? "" : "s",
                      fmt::join(missing, ", "), fmt::join(remedies, ", "));
}

}  // namespace

Result<TableKind> KindOf(const formats::CsvTable& table) {
  if (const std::size_t at = table.header().front().find_first_of(";\t");
      table.columns() == 1 && at != std::string::npos) {
    return InvalidInput("{}:1: one column, with '{}' in its name; separate fields by commas",
                        table.name(), Printable(table.header().front().substr(at, 1)));
  }
  const bool collectives = table.Find("collective") || table.Find("size_bytes");
  const bool training = table.Find("hidden") || table.Find("tp") || table.Find("framework_family");
  if (collectives == training) {
    return InvalidInput(
        "{}:1: neither a table of training runs nor of collectives; training needs the columns {}; "
        "collectives need {}",
        table.name(), fmt::join(kTrainingRequired, ", "), fmt::join(kCollectivesRequired, ", "));
  }
  const TableKind kind = training ? TableKind::kTraining : TableKind::kCollectives;
  std::vector<std::string_view> missing;
  for (const std::string_view column : RequiredColumns(kind)) {
    if (!table.Find(column)) missing.push_back(column);
  }
  if (missing.empty()) return kind;
  return MissingColumns(table, kind, missing);
}

Configuration::Configuration(TableKind kind, const formats::CsvTable& table, std::size_t row)
    : kind_(kind) {
  for (const std::string_view column : ConfigurationColumns(kind)) {
    const auto at = table.Find(column);
    cells_.push_back(at ? table.cell(row, *at) : std::string_view());
  }
}

void Configuration::Translate(const Words& words, std::vector<std::string>* assumed) {
  const std::span<const std::string_view> columns = ConfigurationColumns(kind_);
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const std::string_view means = words.Meaning(columns[i], cells_[i]);
    if (means == cells_[i]) continue;
    assumed->push_back(fmt::format("{}={}: {}", columns[i], Printable(cells_[i], 40), means));
    cells_[i] = means;
  }
}

std::string_view Configuration::text(std::string_view column) const {
  return cells_[IndexOf(ConfigurationColumns(kind_), column)];
}

Result<std::optional<std::int64_t>> Configuration::Whole(std::string_view column, std::int64_t min,
                                                         std::int64_t max) const {
  const std::string_view cell = text(column);
  if (cell.empty()) return std::optional<std::int64_t>();
  const auto value = ParseNumber(cell);
  if (!value || *value != std::floor(*value) || *value < static_cast<double>(min) ||
      *value > static_cast<double>(max)) {
    return InvalidInput("{}={}: not a whole number from {} to {}; correct it or leave it blank",
                        column, Printable(cell, 40), min, max);
  }
  return std::optional<std::int64_t>(static_cast<std::int64_t>(*value));
}

Result<std::optional<double>> Configuration::Number(std::string_view column, double min,
                                                    double max) const {
  const std::string_view cell = text(column);
  if (cell.empty()) return std::optional<double>();
  const auto value = ParseNumber(cell);
  if (!value || *value < min || *value > max) {
    return InvalidInput("{}={}: not a number from {} to {}; correct it or leave it blank", column,
                        Printable(cell, 40), min, max);
  }
  return value;
}

Result<std::optional<bool>> Configuration::Flag(std::string_view column) const {
  const std::string_view cell = text(column);
  if (cell.empty()) return std::optional<bool>();
  if (cell == "0") return std::optional<bool>(false);
  if (cell == "1") return std::optional<bool>(true);
  return InvalidInput("{}={}: must be 0, 1 or blank", column, Printable(cell, 40));
}

Result<std::int64_t> Configuration::Needed(std::string_view column, std::int64_t min,
                                           std::int64_t max) const {
  ORRERY_ASSIGN_OR_RETURN(const std::optional<std::int64_t> value, Whole(column, min, max));
  if (!value) return InvalidInput("{} is blank: the run cannot be set up without it", column);
  return *value;
}

bool IsOneOf(std::string_view text, std::string_view choices) {
  return AnyChoice(choices, [&](std::string_view choice) { return choice == text; });
}

bool BeginsWithOneOf(std::string_view text, std::string_view choices) {
  return choices.empty() ||
         AnyChoice(choices, [&](std::string_view choice) { return text.starts_with(choice); });
}

Result<std::optional<double>> ReadOutcome(const formats::CsvTable& table, std::size_t row,
                                          std::string_view column) {
  const auto at = table.Find(column);
  if (!at || table.cell(row, *at).empty()) return std::optional<double>();
  const auto value = ParseNumber(table.cell(row, *at));
  if (!value || *value <= 0) {
    return InvalidInput("{}: '{}' is not a positive number; correct it or leave it blank",
                        table.Where(row, column), Printable(table.cell(row, *at), 40));
  }
  return value;
}

}  // namespace orrery::search
