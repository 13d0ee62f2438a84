// Fields of a Hugging Face config.json, and the families that are read apart. Internal to
// hugging_face*.cc.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "orrery/base/text.h"
#include "orrery/formats/tree.h"
#include "orrery/workload/model.h"

namespace orrery::workload::hugging_face {

using formats::Document;
using formats::Node;

// Reads typed fields of one document; the first error stays.
class Reader {
 public:
  Reader(const Document& document, std::string path)
      : document_(document), path_(std::move(path)) {}

  std::int64_t Integer(std::string_view key) {
    const Node* node = Present(key);
    if (node == nullptr) {
      Fail(InvalidInput("{}: {} is missing; add it, or take the model's whole config.json", path_,
                        key));
      return 0;
    }
    return Parse(key, *node);
  }
  std::int64_t IntegerOr(std::string_view key, std::int64_t fallback) {
    const Node* node = Present(key);
    return node == nullptr ? fallback : Parse(key, *node);
  }
  bool BoolOr(std::string_view key, bool fallback) {
    const Node* node = Present(key);
    if (node == nullptr) return fallback;
    if (!node->quoted && node->text == "true") return true;
    if (!node->quoted && node->text == "false") return false;
    Fail(Wrong(key, *node, "true or false"));
    return fallback;
  }
  double FractionOr(std::string_view key, double fallback) {
    const Node* node = Present(key);
    if (node == nullptr) return fallback;
    double value = 0;
    const char* end = node->text.data() + node->text.size();
    const auto [at, error] = std::from_chars(node->text.data(), end, value);
    if (!node->quoted && error == std::errc() && at == end && value >= 0 && value < 1) return value;
    Fail(Wrong(key, *node, "a number from 0 to 1"));
    return fallback;
  }
  std::string Text(std::string_view key) const {
    const Node* node = Present(key);
    return node == nullptr ? "" : node->text;
  }
  // Refuses a field whose value would change the computation.
  void Require(std::string_view key, bool holds, std::string_view remedy) {
    const Node* node = Present(key);
    if (holds || node == nullptr) return;
    Fail(InvalidInput("{}: {} '{}' is not supported; {}", Where(*node), key, Printable(node->text),
                      remedy));
  }
  // Null and missing are the same.
  const Node* Present(std::string_view key) const {
    const Node* node = document_.root.Find(key);
    return node == nullptr || node->kind == Node::Kind::kNull ? nullptr : node;
  }
  // Of "a|b": b where only b is present, else a.
  std::string_view OneOf(std::string_view keys) const {
    const std::size_t bar = keys.find('|');
    if (bar == std::string_view::npos) return keys;
    const std::string_view first = keys.substr(0, bar), second = keys.substr(bar + 1);
    return Present(first) == nullptr && Present(second) != nullptr ? second : first;
  }
  const std::string& path() const { return path_; }
  std::string Where(const Node& node) const { return document_.Where(node); }
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  std::int64_t Parse(std::string_view key, const Node& node) {
    std::int64_t value = 0;
    const char* end = node.text.data() + node.text.size();
    const auto [at, error] = std::from_chars(node.text.data(), end, value);
    if (node.kind == Node::Kind::kScalar && !node.quoted && error == std::errc() && at == end &&
        value >= 1) {
      return value;
    }
    Fail(Wrong(key, node, "a whole number from 1"));
    return 1;
  }
  Status Wrong(std::string_view key, const Node& node, std::string_view expected) const {
    if (node.kind != Node::Kind::kScalar) {
      return InvalidInput("{}: {} is a {}; write {}", Where(node), key,
                          node.kind == Node::Kind::kList ? "list" : "map", expected);
    }
    return InvalidInput("{}: {} is {}{}{}; write {}", Where(node), key, node.quoted ? "'" : "",
                        Printable(node.text), node.quoted ? "'" : "", expected);
  }

  const Document& document_;
  std::string path_;
  Status status_;
};

// One field: its key, and what it is where the file leaves it out. "a|b": either name; no key at
// all: the fallback, whatever the file says.
struct Whole {
  std::string_view key;
  std::optional<std::int64_t> fallback = {};  // none: the file must have it
};
struct Flag {
  std::string_view key;
  bool fallback = false;
};

// The fields that every family has, under one name or another. As it stands here: Llama's.
struct Layout {
  Whole layers = {"num_hidden_layers"}, hidden = {"hidden_size"}, heads = {"num_attention_heads"};
  Whole kv_heads = {"num_key_value_heads"};  // no fallback: as many as heads
  Whole head_dim = {"head_dim", 0};          // 0: hidden / heads
  Whole ffn = {"intermediate_size"};
  std::int64_t ffn_times = 0;  // above 0: ffn's fallback in hidden sizes
  Whole vocab = {"vocab_size"};
  Whole positions = {"max_position_embeddings", 2048};
  Flag tied = {"tie_word_embeddings"};
  Flag attention_bias = {"attention_bias"}, mlp_bias = {"mlp_bias"};
  Norm norm = Norm::kRmsNorm;
  Activation activation = Activation::kSwiglu;
  Position position = Position::kRotary;
};

struct Family {
  std::string_view type;  // model_type
  Layout layout;
  void (*more)(Reader*, Model*);  // what it has besides, once the layout is read; may be null
};
// hugging_face_dense.cc: dense families with a layout of their own.
std::span<const Family> DenseFamilies();

// A window in every layer, or, where layer_types names the layers, in all but the last of every so
// many. What the model cannot say is refused.
void ReadWindows(Reader* r, Model* m);

}  // namespace orrery::workload::hugging_face
