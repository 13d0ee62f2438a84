#include "orrery/job/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "orrery/base/check.h"
#include "orrery/base/units.h"
#include "orrery/formats/write_yaml.h"

namespace orrery::job {

using formats::Document;
using formats::Field;
using formats::Node;

namespace {

constexpr int kKeysDeep = 2;  // a section's keys, and those of a section in it

// `model` and `cluster` alone name what their section starts from.
std::string PathOf(std::string_view key) {
  const bool named = key == "model" || key == "cluster";
  return fmt::format("{}{}", key, named ? ".preset" : "");
}

Node ScalarOf(std::string text, bool quoted) {
  Node node;
  node.kind = Node::Kind::kScalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

// YAML has no control characters.
Node TextNode(std::string_view text) {
  std::string clean(text);
  std::ranges::replace_if(
      clean, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return ScalarOf(std::move(clean), true);
}

Node TextsOf(std::span<const std::string> texts) {
  Node node;
  node.kind = Node::Kind::kList;
  for (const std::string& text : texts) node.items.push_back(TextNode(text));
  return node;
}

// Nothing of a value but itself: it stood elsewhere.
void ForgetPlaces(Node* node) {
  node->source = 0;
  node->line = node->column = 0;
  for (Node& item : node->items) ForgetPlaces(&item);
  for (Field& field : node->fields) {
    field.line = field.column = 0;
    ForgetPlaces(&field.value);
  }
}

// Where a field of the top stands: model and cluster, single keys, sections.
std::size_t RankOf(const Field& field) {
  constexpr std::array<std::string_view, 8> kOrder = {
      "model", "cluster", "", "parallel", "training", "framework_options", "nccl", "memory"};
  const bool section = !field.value.fields.empty();
  const std::string_view name = section || field.key == "model" || field.key == "cluster"
                                    ? std::string_view(field.key)
                                    : std::string_view();
  return static_cast<std::size_t>(std::ranges::find(kOrder, name) - kOrder.begin());
}

}  // namespace

Draft::Draft(std::string name) {
  document_.root.kind = Node::Kind::kMap;
  document_.sources = {std::move(name)};
}

const Node* Draft::Find(std::string_view key) const { return document_.root.At(PathOf(key)); }

void Draft::Set(std::string_view key, const Node& value) {
  Node* const node = document_.root.Make(PathOf(key));
  *node = value;
  ForgetPlaces(node);
}

void Draft::Set(std::string_view key, std::string_view yaml) {
  const auto parsed = formats::ParseYaml(fmt::format("value: {}", yaml), "value");
  const bool one = parsed.ok() && parsed->root.fields.size() == 1;
  Set(key, one ? parsed->root.fields.front().value : TextNode(yaml));
}

void Draft::SetText(std::string_view key, std::string_view text) { Set(key, TextNode(text)); }

void Draft::SetPlain(std::string_view key, std::string text) {
  Set(key, ScalarOf(std::move(text), false));
}

void Draft::Set(std::string_view key, std::span<const int> list) {
  Node node;
  node.kind = Node::Kind::kList;
  for (const int value : list) node.items.push_back(ScalarOf(std::to_string(value), false));
  Set(key, node);
}

void Draft::SetTexts(std::string_view key, std::span<const std::string> texts) {
  Set(key, TextsOf(texts));
}

void Draft::SetAll(std::string_view key, const std::string& json) {
  const auto parsed = formats::ParseJson(json, std::string(key));
  ORRERY_CHECK(parsed.ok(), "what the program wrote is JSON");
  SetEach(std::string(key), parsed->root, kKeysDeep);
}

void Draft::SetEach(const std::string& path, const Node& map, int deep) {
  for (const Field& field : map.fields) {
    const std::string inner = fmt::format("{}.{}", path, field.key);
    if (deep > 1 && !field.value.fields.empty()) {
      SetEach(inner, field.value, deep - 1);
    } else {
      Set(inner, field.value);
    }
  }
}

void Draft::SaidBy(std::string_view key, std::string_view source) {
  if (!Has(key)) return;
  document_.root.Make(PathOf(key))->source = static_cast<std::uint32_t>(document_.sources.size());
  document_.sources.emplace_back(source);
}

void Draft::Drop(std::string_view key) {
  if (!Has(key)) return;
  const std::string path = PathOf(key);
  const std::size_t dot = path.rfind('.');
  Node* const map =
      dot == std::string::npos ? &document_.root : document_.root.Make(path.substr(0, dot));
  const std::string_view last = std::string_view(path).substr(dot + 1);
  std::erase_if(map->fields, [&](const Field& field) { return field.key == last; });
}

Draft Draft::Only(std::string_view section) const {
  Draft only;
  only.document_.sources = document_.sources;
  const Node* const found = document_.root.Find(section);
  if (found != nullptr) *only.document_.root.Make(section) = *found;
  return only;
}

void Draft::Replace(std::string_view section, const Draft& only) {
  std::erase_if(document_.root.fields, [&](const Field& field) { return field.key == section; });
  const Node* const found = only.document_.root.Find(section);
  if (found == nullptr) return;
  Node* const mine = document_.root.Make(section);
  *mine = *found;
  document_.TakeSources(only.document_.sources, mine);
}

std::string_view Draft::Text(std::string_view key) const {
  const Node* node = Find(key);
  return node == nullptr ? std::string_view() : std::string_view(node->text);
}

std::int64_t Draft::Whole(std::string_view key, std::int64_t otherwise) const {
  const auto value = ParseInteger(Text(key));
  return value.ok() ? *value : otherwise;
}

Document Draft::Finished() const {
  Document document = document_;
  std::vector<Field>& fields = document.root.fields;
  std::erase_if(fields, [](const Field& field) {
    return field.value.kind == Node::Kind::kMap && field.value.fields.empty();
  });
  for (Field& field : fields) {
    const bool name_alone =
        field.value.fields.size() == 1 && field.value.fields.front().key == "preset";
    if (name_alone) field.value = Node(field.value.fields.front().value);
  }
  std::ranges::stable_sort(fields, {}, RankOf);
  if (!assume_.empty()) *document.root.Make("assume") = TextsOf(assume_);
  return document;
}

std::string Draft::Yaml() const { return formats::WriteYaml(Finished().root); }

Result<Job> Draft::Read(const ReadOptions& options, const std::string& folder) const {
  return ReadJobTree(Finished(), folder, options);
}

}  // namespace orrery::job
