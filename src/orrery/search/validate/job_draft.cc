#include "orrery/search/validate/job_draft.h"

#include <utility>

#include "orrery/base/check.h"
#include "orrery/base/units.h"

namespace orrery::search {

using formats::Node;

namespace {

constexpr int kKeysDeep = 2;                    // a section's keys, and those of a section in it
constexpr std::string_view kDraftName = "row";  // stands for the document in errors

// The first part of a path; `rest` is what follows it.
std::string_view FirstOf(std::string_view path, std::string_view* rest) {
  const std::size_t dot = path.find('.');
  *rest = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  return path.substr(0, dot);
}

Node ScalarOf(std::string text, bool quoted) {
  Node node;
  node.kind = Node::Kind::kScalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

}  // namespace

JobDraft::JobDraft() {
  document_.root.kind = Node::Kind::kMap;
  document_.sources = {std::string(kDraftName)};
}

const Node* JobDraft::Find(std::string_view key) const {
  const Node* node = &document_.root;
  for (std::string_view rest = key; node != nullptr && !rest.empty();) {
    const std::string_view first = FirstOf(rest, &rest);
    node = node->Find(first);
  }
  return node;
}

void JobDraft::Set(std::string_view key, const Node& value) { *document_.root.Make(key) = value; }
void JobDraft::Set(std::string_view key, std::string_view text) {
  *document_.root.Make(key) = ScalarOf(std::string(text), true);
}
void JobDraft::SetPlain(std::string_view key, std::string text) {
  *document_.root.Make(key) = ScalarOf(std::move(text), false);
}

void JobDraft::Set(std::string_view key, std::span<const int> list) {
  Node node;
  node.kind = Node::Kind::kList;
  for (const int value : list) node.items.push_back(ScalarOf(std::to_string(value), false));
  *document_.root.Make(key) = std::move(node);
}

void JobDraft::SetAll(std::string_view key, const std::string& json) {
  const auto parsed = formats::ParseJson(json, std::string(kDraftName));
  ORRERY_CHECK(parsed.ok(), "what the program wrote is JSON");
  SetEach(std::string(key), parsed->root, kKeysDeep);
}

void JobDraft::SetEach(const std::string& path, const Node& map, int deep) {
  for (const formats::Field& field : map.fields) {
    const std::string inner = fmt::format("{}.{}", path, field.key);
    if (deep > 1 && !field.value.fields.empty()) {
      SetEach(inner, field.value, deep - 1);
      continue;
    }
    Node value = field.value;
    value.line = value.column = 0;
    Set(inner, value);
  }
}

void JobDraft::Drop(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  Node* map = dot == std::string_view::npos ? &document_.root
              : Has(key)                    ? document_.root.Make(key.substr(0, dot))
                                            : nullptr;
  if (map == nullptr) return;
  const std::string_view last = key.substr(dot + 1);
  std::erase_if(map->fields, [&](const formats::Field& field) { return field.key == last; });
}

std::string_view JobDraft::Text(std::string_view key) const {
  const Node* node = Find(key);
  return node == nullptr ? std::string_view() : std::string_view(node->text);
}

std::int64_t JobDraft::Whole(std::string_view key, std::int64_t otherwise) const {
  const auto value = ParseInteger(Text(key));
  return value.ok() ? *value : otherwise;
}

Result<job::Job> JobDraft::Read(const job::ReadOptions& options) const {
  auto job = job::ReadJobTree(document_, "", options);
  if (job.ok()) return job;
  const std::string prefix = std::string(kDraftName) + ": ";
  std::string message = job.status().message();
  while (message.starts_with(prefix)) message.erase(0, prefix.size());
  return Status(job.status().code(), std::move(message));
}

}  // namespace orrery::search
