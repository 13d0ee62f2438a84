#include "orrery/formats/section.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::formats {

std::string Source::Path(const std::string& relative) const {
  if (relative.starts_with('/') || folder.empty()) return relative;
  return folder + "/" + relative;
}

bool LooksLikeFile(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".json") ||
         text.ends_with(".yaml") || text.ends_with(".yml") || text.ends_with(".xml") ||
         text.ends_with(".topo");
}

std::string FullName(const OptionTable& table, std::string_view key) {
  if (table.path.empty()) return std::string(key);
  return fmt::format("{}.{}", table.path, key);
}

Section::Section(const OptionTable& table) : table_(&table), values_(table.options.size()) {}

std::size_t Section::Index(std::string_view name) const {
  const Option* option = FindOption(table_->options, name);
  ORRERY_CHECK(option != nullptr, "a section is asked only for keys of its table");
  return static_cast<std::size_t>(option - table_->options.data());
}

const Setting* Section::Find(std::string_view name) const {
  const std::optional<Setting>& setting = values_[Index(name)];
  return setting ? &*setting : nullptr;
}

std::string Section::Where(std::string_view name) const {
  const Setting* setting = Find(name);
  const std::string key = FullName(*table_, name);
  return setting == nullptr || setting->where.empty() ? key
                                                      : fmt::format("{}: {}", setting->where, key);
}

OptionValue Section::Value(std::string_view name) const {
  if (const Setting* setting = Find(name)) return setting->value;
  const Option& option = table_->options[Index(name)];
  Result<OptionValue> value = ParseOption(option, option.fallback);
  ORRERY_CHECK(value.ok(), "the fallback of an option is one of its values");
  return *value;
}

bool Section::Bool(std::string_view name) const { return std::get<bool>(Value(name)); }
std::int64_t Section::Integer(std::string_view name) const {
  return std::get<std::int64_t>(Value(name));
}
double Section::Real(std::string_view name) const { return std::get<double>(Value(name)); }
std::string Section::Text(std::string_view name) const {
  return std::get<std::string>(Value(name));
}

void Section::Set(std::string_view name, OptionValue value, std::string where) {
  values_[Index(name)] = Setting{std::move(value), std::move(where)};
}

Result<OptionValue> ReadOption(const Option& option, const Node& node) {
  if (node.kind == Node::Kind::kScalar) return ParseOption(option, node.text);
  if (node.kind == Node::Kind::kMap) {
    return InvalidInput("a section stands where {} is expected", Expected(option));
  }
  std::vector<std::string> items;
  for (const Node& item : node.items) {
    if (item.kind != Node::Kind::kScalar) {
      return InvalidInput("the list holds something else than plain values");
    }
    items.push_back(item.text);
  }
  return ParseOptionList(option, items);
}

Result<Section> Section::Read(const Document& document, const Node& map, const OptionTable& table,
                              std::span<const std::string_view> others) {
  Section section(table);
  if (map.kind == Node::Kind::kNull) return section;
  const std::string name(table.path.empty() ? "the job file" : table.path);
  if (map.kind != Node::Kind::kMap) {
    return InvalidInput("{}: {} takes keys with values, not {}", document.Where(map), name,
                        map.kind == Node::Kind::kList ? std::string("a list")
                                                      : fmt::format("'{}'", Printable(map.text)));
  }
  for (const Field& field : map.fields) {
    if (std::find(others.begin(), others.end(), field.key) != others.end()) continue;
    const Option* option = FindOption(table.options, field.key);
    if (option == nullptr) {
      std::vector<std::string_view> valid = OptionNames(table.options);
      valid.insert(valid.end(), others.begin(), others.end());
      return InvalidInput("{}: {}", document.Where(field),
                          UnknownName(fmt::format("key of {}", name), Printable(field.key), valid));
    }
    if (field.value.kind == Node::Kind::kNull) continue;
    Result<OptionValue> value = ReadOption(*option, field.value);
    const std::string where = document.Where(field.value);
    if (!value.ok()) {
      return std::move(value).TakeStatus().In(
          fmt::format("{}: {}", where, FullName(table, field.key)));
    }
    section.Set(field.key, *std::move(value), where);
  }
  return section;
}

namespace {

// Every node of a value from the command line names its own source.
void Mark(Node* node, std::uint32_t source) {
  node->source = source;
  node->line = node->column = 0;
  for (Node& item : node->items) Mark(&item, source);
  for (Field& field : node->fields) {
    field.line = field.column = 0;
    Mark(&field.value, source);
  }
}

}  // namespace

Status ApplySet(std::string_view assignment, Document* document) {
  const std::string source = fmt::format("--set {}", Printable(assignment));
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return InvalidInput("{}: write key.path=value, for example --set parallel.tp=4", source);
  }
  const std::string_view text = assignment.substr(equals + 1);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] == '#') {
    return InvalidInput("{}: no value; write key.path=value (null leaves the key out)", source);
  }
  ORRERY_ASSIGN_OR_RETURN(Document value, ParseYaml(text, source));
  const auto index = static_cast<std::uint32_t>(document->sources.size());
  document->sources.push_back(source);
  Mark(&value.root, index);
  const std::string_view keys = assignment.substr(0, equals);
  const std::size_t most = Limits().depth;
  if (static_cast<std::size_t>(std::ranges::count(keys, '.')) >= most) {
    return InvalidInput("{}: more than {} keys in one another", source, most);
  }
  Node* at = &document->root;
  if (at->kind == Node::Kind::kNull) at->kind = Node::Kind::kMap;
  for (std::string_view path = keys; !path.empty();) {
    const std::size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    // `cluster: name` becomes `cluster: {preset: name}` when a key below it is set; so does model.
    if (at->kind == Node::Kind::kScalar) {
      Node name = std::move(*at);
      *at = Node{};
      at->kind = Node::Kind::kMap;
      at->source = name.source;
      at->line = name.line;
      at->column = name.column;
      at->fields.push_back({"preset", name.line, name.column, std::move(name)});
    }
    if (at->kind == Node::Kind::kNull) at->kind = Node::Kind::kMap;
    if (at->kind != Node::Kind::kMap || key.empty()) {
      return InvalidInput("{}: there is no key '{}'; lists are set whole", source, Printable(key));
    }
    Node* next = at->Find(key);
    if (next == nullptr) {
      Node fresh;
      fresh.source = index;
      at->fields.push_back({key, 0, 0, std::move(fresh)});
      next = &at->fields.back().value;
    }
    for (Field& field : at->fields) {
      if (path.empty() && field.key == key) field.line = field.column = 0;  // no place in a file
    }
    at = next;
  }
  *at = std::move(value.root);
  return {};
}

}  // namespace orrery::formats
