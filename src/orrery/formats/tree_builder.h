// Builds a tree from parser events under limits: what ParseYaml and ParseJson share.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "orrery/formats/tree.h"

namespace orrery::formats {

class TreeBuilder {
 public:
  explicit TreeBuilder(const Limits& limits) : limits_(limits) {}

  // Each returns an error at the event's own place; nothing may follow an error.
  Status Key(std::string_view text, std::int32_t line, std::int32_t column);
  Status Scalar(std::string_view text, bool quoted, std::int32_t line, std::int32_t column);
  Status Null(std::int32_t line, std::int32_t column);
  Status Open(Node::Kind kind, std::int32_t line, std::int32_t column);
  void Close();

  bool expects_key() const { return !open_.empty() && open_.back().expects_key; }
  Node TakeRoot() { return std::move(root_); }

 private:
  struct Level {
    Node node;
    std::string key;
    std::int32_t key_line = 0, key_column = 0;
    bool expects_key = false;
    std::unordered_set<std::string> seen;
  };
  Status Count();
  void Attach(Node node);

  Limits limits_;
  std::vector<Level> open_;
  std::size_t values_ = 0;
  Node root_;
};

// "name:3:7" of a byte offset.
struct TextPlace {
  std::int32_t line = 1, column = 1;
};
TextPlace PlaceOf(std::string_view text, std::size_t offset);

// Refuses text that no parser should see: not UTF-8, control characters, too large.
Status CheckText(std::string_view text, const std::string& name, const Limits& limits);

}  // namespace orrery::formats
