#include "orrery/formats/tree_builder.h"

#include <utility>

#include "orrery/base/text.h"

namespace orrery::formats {

Status TreeBuilder::Count() {
  if (++values_ <= limits_.values) return {};
  return InvalidInput("more than {} values; this is no hand-written file",
                      HumanCount(static_cast<std::int64_t>(limits_.values)));
}

void TreeBuilder::Attach(Node node) {
  if (open_.empty()) {
    root_ = std::move(node);
    return;
  }
  Level& level = open_.back();
  if (level.node.kind == Node::Kind::kList) {
    level.node.items.push_back(std::move(node));
    return;
  }
  level.node.fields.push_back(
      {std::move(level.key), level.key_line, level.key_column, std::move(node)});
  level.expects_key = true;
}

Status TreeBuilder::Key(std::string_view text, std::int32_t line, std::int32_t column) {
  Level& level = open_.back();
  if (!level.seen.emplace(text).second) {
    return InvalidInput("the key '{}' stands here twice; keep one", Printable(text));
  }
  level.key = text;
  level.key_line = line;
  level.key_column = column;
  level.expects_key = false;
  return {};
}

Status TreeBuilder::Scalar(std::string_view text, bool quoted, std::int32_t line,
                           std::int32_t column) {
  ORRERY_RETURN_IF_ERROR(Count());
  Node node;
  node.kind = Node::Kind::kScalar;
  node.quoted = quoted;
  node.text = text;
  node.line = line;
  node.column = column;
  Attach(std::move(node));
  return {};
}

Status TreeBuilder::Null(std::int32_t line, std::int32_t column) {
  ORRERY_RETURN_IF_ERROR(Count());
  Node node;
  node.line = line;
  node.column = column;
  Attach(std::move(node));
  return {};
}

Status TreeBuilder::Open(Node::Kind kind, std::int32_t line, std::int32_t column) {
  ORRERY_RETURN_IF_ERROR(Count());
  if (open_.size() >= limits_.depth) {
    return InvalidInput("nested more than {} deep; flatten it", limits_.depth);
  }
  Level level;
  level.node.kind = kind;
  level.node.line = line;
  level.node.column = column;
  level.expects_key = kind == Node::Kind::kMap;
  open_.push_back(std::move(level));
  return {};
}

void TreeBuilder::Close() {
  Node node = std::move(open_.back().node);
  open_.pop_back();
  Attach(std::move(node));
}

TextPlace PlaceOf(std::string_view text, std::size_t offset) {
  TextPlace place;
  for (std::size_t i = 0; i < offset && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++place.line;
      place.column = 1;
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      ++place.column;
    }
  }
  return place;
}

Status CheckText(std::string_view text, const std::string& name, const Limits& limits) {
  if (text.size() > limits.bytes) {
    return InvalidInput("{}: larger than {}, the limit for this kind of file", Printable(name, 400),
                        HumanBytes(static_cast<std::int64_t>(limits.bytes)));
  }
  const auto refuse = [&](std::size_t offset, std::string_view why) {
    const TextPlace place = PlaceOf(text, offset);
    return InvalidInput("{}:{}:{}: {}", Printable(name, 400), place.line, place.column, why);
  };
  if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return refuse(bad, fmt::format("byte 0x{:02x} is not UTF-8; save the file as UTF-8",
                                   static_cast<unsigned char>(text[bad])));
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7F) {
      return refuse(i, fmt::format("control character 0x{:02x}; is this a text file?", c));
    }
  }
  return {};
}

}  // namespace orrery::formats
