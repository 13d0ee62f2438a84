#include "orrery/workload/importers/pytorch/collective_names.h"

#include <array>
#include <charconv>
#include <iterator>

#include "orrery/base/check.h"
#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

using graph::Collective;
using graph::GroupSlot;

constexpr std::string_view kCollectiveLines[] = {
#include "orrery_data_traces_collectives.inc"
};
constexpr std::string_view kTypeLines[] = {
#include "orrery_data_traces_dtypes.inc"
};

// The first `columns` cells of a line.
template <std::size_t columns>
std::array<std::string_view, columns> Cells(std::string_view line) {
  std::array<std::string_view, columns> cells;
  for (std::string_view& cell : cells) {
    const std::size_t comma = line.find(',');
    cell = line.substr(0, comma);
    line = comma == std::string_view::npos ? std::string_view() : line.substr(comma + 1);
  }
  return cells;
}

struct CollectiveRow {
  std::string_view name;
  bool begins = false;
  NamedCollective means;
};

std::vector<CollectiveRow> ReadCollectives() {
  constexpr std::pair<std::string_view, SizeOf> kSizes[] = {{"none", SizeOf::kNone},
                                                            {"in", SizeOf::kIn},
                                                            {"out", SizeOf::kOut},
                                                            {"arg0", SizeOf::kFirst},
                                                            {"arg1", SizeOf::kSecond},
                                                            {"arg0*n", SizeOf::kFirstOfMember},
                                                            {"arg1*n", SizeOf::kSecondOfMember}};
  std::vector<CollectiveRow> rows;
  for (std::size_t i = 1; i < std::size(kCollectiveLines); ++i) {
    const auto [name, match, collective, size] = Cells<4>(kCollectiveLines[i]);
    CollectiveRow row{name, match == "begins", {}};
    row.means.messages = collective == "messages";
    bool known = row.means.messages;
    for (int c = 0; c < graph::kCollectives; ++c) {
      if (graph::Name(static_cast<Collective>(c)) != collective) continue;
      row.means.collective = static_cast<Collective>(c);
      known = true;
    }
    ORRERY_CHECK(known, "collectives.csv names an unknown collective");
    known = false;
    for (const auto& [word, meaning] : kSizes) {
      if (word != size) continue;
      row.means.size = meaning;
      known = true;
    }
    ORRERY_CHECK(known, "collectives.csv names an unknown size");
    rows.push_back(row);
  }
  return rows;
}
const std::vector<CollectiveRow>& Collectives() {
  static const std::vector<CollectiveRow> rows = ReadCollectives();
  return rows;
}

struct TypeRow {
  std::string_view name;
  NamedType means;
};
std::vector<TypeRow> ReadTypes() {
  std::vector<TypeRow> rows;
  for (std::size_t i = 1; i < std::size(kTypeLines); ++i) {
    const auto [name, type, bytes] = Cells<3>(kTypeLines[i]);
    TypeRow row{name, {}};
    bool known = false;
    for (int t = 0; t <= static_cast<int>(graph::kLastDType); ++t) {
      if (graph::Name(static_cast<graph::DType>(t)) != type) continue;
      row.means.type = static_cast<graph::DType>(t);
      known = true;
    }
    std::from_chars(bytes.data(), bytes.data() + bytes.size(), row.means.bytes);
    ORRERY_CHECK(known && row.means.bytes == graph::SizeOf(row.means.type),
                 "dtypes.csv names an unknown type, or one of another size");
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::optional<NamedCollective> FindCollective(std::string_view name) {
  for (const CollectiveRow& row : Collectives()) {
    if (row.begins ? name.starts_with(row.name) : name == row.name) return row.means;
  }
  return {};
}

std::vector<std::string_view> CollectiveNames() {
  std::vector<std::string_view> names;
  for (const CollectiveRow& row : Collectives()) names.push_back(row.name);
  return names;
}

std::optional<NamedType> FindType(std::string_view name) {
  static const std::vector<TypeRow> rows = ReadTypes();
  for (const TypeRow& row : rows) {
    if (row.name == name) return row.means;
  }
  return {};
}

bool IsCommKernel(std::string_view name) {
  return name.starts_with("ncclDevKernel") || name.starts_with("ncclKernel") ||
         name.starts_with("ncclSymDevKernel") || name.starts_with("rcclGenericKernel");
}

std::optional<NamedType> TypeOfKernel(std::string_view name) {
  while (!name.empty()) {
    const std::size_t end = name.find_first_of("_(");
    if (const auto type = FindType(name.substr(0, end))) return type;
    if (end == std::string_view::npos) break;
    name.remove_prefix(end + 1);
  }
  return {};
}

GroupSlot RoleOf(std::string_view description) {
  const std::string text = Lower(description);
  // Whole words first: Megatron's and torch's names of mesh dimensions.
  struct Named {
    std::string_view part;
    GroupSlot role;
  };
  static constexpr Named kNamed[] = {
      {"tensor", GroupSlot::kTp},           {"tp", GroupSlot::kTp},
      {"pipeline", GroupSlot::kPp},         {"pp", GroupSlot::kPp},
      {"context", GroupSlot::kCp},          {"cp", GroupSlot::kCp},
      {"expert", GroupSlot::kEp},           {"ep", GroupSlot::kEp},
      {"embedding", GroupSlot::kEmbedding}, {"shard", GroupSlot::kShard},
      {"replicate", GroupSlot::kReplica}};
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const bool letter = i < text.size() && text[i] >= 'a' && text[i] <= 'z';
    if (letter) {
      word += text[i];
      continue;
    }
    for (const Named& n : kNamed) {
      if (n.part == word) return n.role;
    }
    word.clear();
  }
  return GroupSlot::kDp;
}

}  // namespace orrery::workload
