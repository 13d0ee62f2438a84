// A document as a tree: what YAML and JSON have in common, with the place of every value.
//
// No meaning: scalars keep their text as written (schemas give them a type). Documents come from
// strangers, so reading is bounded: bytes, depth, values. Refused by name: anchors and aliases,
// tags, keys given twice, several documents, text that is not UTF-8, control characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

struct Field;

struct Node {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;        // kScalar: a text in quotes, never a number or a bool
  std::string text;           // kScalar
  std::vector<Node> items;    // kList
  std::vector<Field> fields;  // kMap, in file order
  std::uint32_t source = 0;   // index into Document::sources
  std::int32_t line = 0;      // from 1; 0: not from a file
  std::int32_t column = 0;    // from 1; 0: unknown

  const Node* Find(std::string_view key) const;
  Node* Find(std::string_view key);
  const Node* At(std::string_view path) const;  // the node at "a.b.c"; null: there is none
  // The node at "a.b.c"; what of the sections on the way is not there is made.
  Node* Make(std::string_view path);
};

struct Field {
  std::string key;
  std::int32_t line = 0, column = 0;
  Node value;
};

struct Document {
  Node root;
  std::vector<std::string> sources;  // file names, or "--set parallel.tp=3"

  // "job.yaml:12:3", "job.yaml:12", "--set parallel.tp=3".
  std::string Where(const Node& node) const;
  std::string Where(const Field& field) const;  // of its key
  // Makes `node`, whose sources are `from`, one of this document's.
  void TakeSources(const std::vector<std::string>& from, Node* node);
};

struct Limits {
  std::size_t bytes = 1 << 20;
  std::size_t depth = 64;
  std::size_t values = 100'000;
};

// `name` stands for the document in errors: "name:line:column: what; remedy".
Result<Document> ParseYaml(std::string_view text, const std::string& name,
                           const Limits& limits = {});
Result<Document> ParseJson(std::string_view text, const std::string& name,
                           const Limits& limits = {});
// By name: *.json is JSON, all else YAML. Reads at most limits.bytes.
Result<Document> ReadDocument(const std::string& path, const Limits& limits = {});

}  // namespace orrery::formats
