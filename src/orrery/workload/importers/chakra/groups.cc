#include "orrery/workload/importers/chakra/groups.h"

#include <charconv>
#include <set>

#include "orrery/base/text.h"
#include "orrery/formats/tree.h"

namespace orrery::workload {
namespace {

using formats::Document;
using formats::Node;

constexpr formats::Limits kLimits{.bytes = 256 << 20, .depth = 8, .values = 20'000'000};

bool Number(std::string_view text, std::int64_t* out) {
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && at == text.data() + text.size();
}

Result<std::vector<std::uint32_t>> Members(const Document& document, const Node& list,
                                           std::size_t ranks) {
  if (list.kind != Node::Kind::kList) {
    return InvalidInput("{}: a list of ranks is expected", document.Where(list));
  }
  std::vector<std::uint32_t> members;
  std::set<std::int64_t> seen;
  for (const Node& item : list.items) {
    std::int64_t rank = 0;
    if (!Number(item.text, &rank) || rank < 0 || static_cast<std::size_t>(rank) >= ranks) {
      return InvalidInput("{}: '{}' is no rank; the trace has {}", document.Where(item),
                          Printable(item.text), ranks);
    }
    if (!seen.insert(rank).second) {
      return InvalidInput("{}: rank {} is a member twice", document.Where(item), rank);
    }
    members.push_back(static_cast<std::uint32_t>(rank));
  }
  return members;
}

}  // namespace

Result<ChakraGroups> ReadCommGroups(const std::string& path, std::size_t ranks) {
  ORRERY_ASSIGN_OR_RETURN(const Document document, formats::ReadDocument(path, kLimits));
  if (document.root.kind != Node::Kind::kMap) {
    return InvalidInput("{}: an object of groups is expected: {{\"1\": [0, 1], …}}",
                        Printable(path));
  }
  ChakraGroups groups;
  for (const formats::Field& field : document.root.fields) {
    std::int64_t id = 0;
    if (!Number(field.key, &id) || id <= 0) {
      return InvalidInput("{}: '{}' is no id of a group, a whole number from 1",
                          document.Where(field), Printable(field.key));
    }
    ORRERY_ASSIGN_OR_RETURN(groups[id], Members(document, field.value, ranks));
    if (groups[id].empty()) {
      return InvalidInput("{}: group {} has no members", document.Where(field), id);
    }
  }
  return groups;
}

Status AddProcessGroups(const formats::ChakraTrace& trace, std::size_t ranks,
                        ChakraGroups* groups) {
  for (const formats::ChakraNode::Text text : trace.group_lists) {
    // The converter writes a list of one text: ['[{"pg_name": …}]'] or ["[…]"].
    std::string_view json = trace.text(text);
    const std::size_t first = json.find("[{"), last = json.rfind("}]");
    if (first == json.npos || last == json.npos || last < first) continue;
    json = json.substr(first, last + 2 - first);
    std::string plain;
    for (std::size_t i = 0; i < json.size(); ++i) {
      if (json[i] == '\\' && i + 1 < json.size() && json[i + 1] == '"') continue;
      plain += json[i];
    }
    ORRERY_ASSIGN_OR_RETURN(const Document document,
                            formats::ParseJson(plain, "process groups", kLimits));
    for (const Node& entry : document.root.items) {
      const Node* name = entry.Find("pg_name");
      const Node* list = entry.Find("ranks");
      std::int64_t id = 0;
      if (name == nullptr || list == nullptr || !Number(name->text, &id) || id < 0) {
        return InvalidInput("process groups: an entry without pg_name, a number, and ranks");
      }
      std::vector<std::uint32_t>& members = (*groups)[id];
      ORRERY_ASSIGN_OR_RETURN(members, Members(document, *list, ranks));
      if (!members.empty()) continue;
      for (std::uint32_t r = 0; r < ranks; ++r) members.push_back(r);
    }
  }
  return {};
}

}  // namespace orrery::workload
