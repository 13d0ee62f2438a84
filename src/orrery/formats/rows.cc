#include "orrery/formats/rows.h"

#include <algorithm>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

// Larger than a job file may be, for it comes from whoever installs Orrery or runs it.
constexpr Limits kLimits{.bytes = 4 << 20, .depth = 16, .values = 200'000};

// A text, or a list of texts.
Result<std::vector<std::string>> Texts(const Document& document, const Field& field) {
  const Node& node = field.value;
  if (node.kind == Node::Kind::kScalar) return std::vector<std::string>{node.text};
  std::vector<std::string> texts;
  for (const Node& item : node.items) {
    if (item.kind == Node::Kind::kScalar) texts.push_back(item.text);
  }
  if (texts.empty() || texts.size() != node.items.size()) {
    return InvalidInput("{}: {} takes a text or a list of texts", document.Where(node), field.key);
  }
  return texts;
}

}  // namespace

std::string Lines(std::span<const std::string_view> lines) {
  std::string text;
  for (const std::string_view line : lines) text.append(line).push_back('\n');
  return text;
}

void Overlay(const Node& over, Node* under) {
  if (over.kind != Node::Kind::kMap || under->kind != Node::Kind::kMap) {
    *under = over;
    return;
  }
  for (const Field& field : over.fields) {
    if (Node* at = under->Find(field.key)) {
      Overlay(field.value, at);
    } else {
      under->fields.push_back(field);
    }
  }
}

const DataRow* DataTable::Find(std::string_view name) const {
  const auto at = std::ranges::find(rows_, name, &DataRow::name);
  return at == rows_.end() ? nullptr : &*at;
}

Status DataTable::AddRow(const Field& field, std::vector<std::string>* used) {
  const std::string where = document_.Where(field);
  if (field.value.kind != Node::Kind::kMap) {
    return InvalidInput("{}: the {} '{}' takes keys with values", where, what_,
                        Printable(field.key, 60));
  }
  if (const DataRow* other = Find(field.key)) {
    return InvalidInput("{}: the {} '{}' is a row already ({}:{}); choose another name", where,
                        what_, Printable(field.key, 60), document_.sources[other->keys.source],
                        other->line);
  }
  DataRow row;
  row.name = field.key;
  row.line = field.line;
  Node own = field.value;
  std::vector<std::string> sources;
  row.keys.kind = Node::Kind::kMap;
  for (const Field& key : field.value.fields) {
    if (key.key != "like" && key.key != "source" && key.key != "description") continue;
    std::erase_if(own.fields, [&](const Field& f) { return f.key == key.key; });
    ORRERY_ASSIGN_OR_RETURN(std::vector<std::string> texts, Texts(document_, key));
    if (key.key == "source") {
      sources = std::move(texts);
      continue;
    }
    if (key.key == "description") row.description = texts.front();
    if (key.key != "like") continue;
    for (const std::string& name : texts) {
      const DataRow* base = Find(name);
      if (base == nullptr) {
        std::vector<std::string_view> valid;
        for (const DataRow& r : rows_) valid.push_back(r.name);
        return InvalidInput("{}: like: {} above", document_.Where(key),
                            UnknownName(what_, Printable(name, 60), valid));
      }
      Overlay(base->keys, &row.keys);
      std::erase_if(row.keys.fields,
                    [](const Field& f) { return f.key == "aliases" || f.key == "meant_by"; });
      for (const std::string& text : base->sources) {
        if (std::ranges::find(row.sources, text) == row.sources.end()) row.sources.push_back(text);
      }
      used->push_back(name);
    }
  }
  Overlay(own, &row.keys);
  row.keys.source = field.value.source;
  for (std::string& text : sources) {
    if (std::ranges::find(row.sources, text) == row.sources.end()) {
      row.sources.push_back(std::move(text));
    }
  }
  if (row.sources.empty()) {
    return InvalidInput("{}: the {} '{}' has no source; say who states it: source: TEXT", where,
                        what_, Printable(field.key, 60));
  }
  rows_.push_back(std::move(row));
  return {};
}

Status DataTable::Add(std::string_view text, const std::string& file) {
  ORRERY_ASSIGN_OR_RETURN(Document document, ParseYaml(text, file, kLimits));
  if (document.root.kind == Node::Kind::kNull) return {};
  if (document.root.kind != Node::Kind::kMap) {
    return InvalidInput("{}: a table of {}s is a map from a row's name to its keys", file, what_);
  }
  document_.TakeSources(document.sources, &document.root);
  const std::size_t first = rows_.size();
  std::vector<std::string> used;
  Status status;
  for (const Field& field : document.root.fields) {
    status = AddRow(field, &used);
    if (!status.ok()) break;
  }
  for (std::size_t i = first; status.ok() && i < rows_.size(); ++i) {
    if (!rows_[i].part() || std::ranges::find(used, rows_[i].name) != used.end()) continue;
    status = InvalidInput("{}:{}: no row is like the part '{}'; take it out", file, rows_[i].line,
                          Printable(rows_[i].name, 60));
  }
  if (!status.ok()) rows_.resize(first);
  return status;
}

}  // namespace orrery::formats
