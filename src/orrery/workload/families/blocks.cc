#include "orrery/workload/families/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

#include "orrery/base/text.h"

namespace orrery::workload::families {
namespace {

using formats::Document;
using formats::Node;

// Above this a width or a number of heads is no model's.
constexpr std::int64_t kLargest = 1 << 24;

Result<std::int64_t> Whole(const Document& document, const Node& node, std::string_view what) {
  std::int64_t number = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [at, error] = std::from_chars(node.text.data(), end, number);
  if (node.kind == Node::Kind::kScalar && !node.quoted && error == std::errc() && at == end &&
      number > 0 && number <= kLargest) {
    return number;
  }
  return InvalidInput("{}: {} is '{}'; write a whole number from 1", document.Where(node), what,
                      Printable(node.text, 60));
}

const Node* Given(const Node& map, std::string_view key) {
  const Node* node = map.Find(key);
  return node == nullptr || node->kind == Node::Kind::kNull ? nullptr : node;
}

// One searched layer.
struct Block {
  bool attends = true, feeds_forward = true;
  LayerSizes sizes;
};

class BlockReader {
 public:
  BlockReader(const Document& document, const Model& model, const Node& block, std::size_t layer)
      : document_(document), model_(model), block_(block), layer_(layer) {}

  Result<Block> Read() {
    ORRERY_RETURN_IF_ERROR(ReadPart("attention", &Block::attends));
    ORRERY_RETURN_IF_ERROR(ReadPart("ffn", &Block::feeds_forward));
    if (out_.attends) ORRERY_RETURN_IF_ERROR(ReadHeads(*block_.Find("attention")));
    if (out_.feeds_forward) ORRERY_RETURN_IF_ERROR(ReadWidth(*block_.Find("ffn")));
    return out_;
  }

 private:
  Status ReadPart(std::string_view name, bool Block::*has) {
    const Node* part = block_.Find(name);
    if (part == nullptr || part->kind != Node::Kind::kMap) {
      return InvalidInput(
          "{}: block_configs: layer {} has no {}; take the model's whole config.json",
          document_.Where(block_), layer_, name);
    }
    for (const std::string_view key :
         {"replace_with_linear", "sparsify", "window_length", "num_sink_tokens", "llama4"}) {
      const Node* node = part->Find(key);
      if (!Holds(node)) continue;
      return InvalidInput("{}: block_configs: layer {}: {}.{} is not modelled",
                          document_.Where(*node), layer_, name, key);
    }
    out_.*has = !Holds(part->Find("no_op"));
    return {};
  }

  Status ReadHeads(const Node& attention) {
    if (const Node* keys = Given(attention, "num_key_value_heads")) {
      ORRERY_ASSIGN_OR_RETURN(out_.sizes.heads.keys,
                              Whole(document_, *keys, "num_key_value_heads"));
      return {};
    }
    const Node* group = Given(attention, "n_heads_in_group");
    if (group == nullptr) return Missing(attention, "n_heads_in_group");
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t each, Whole(document_, *group, "n_heads_in_group"));
    if (model_.heads % each != 0) {
      return InvalidInput("{}: n_heads_in_group is {}, which does not divide {} attention heads",
                          document_.Where(*group), each, model_.heads);
    }
    out_.sizes.heads.keys = model_.heads / each;
    return {};
  }

  Status ReadWidth(const Node& ffn) {
    if (const Node* width = Given(ffn, "intermediate_size")) {
      ORRERY_ASSIGN_OR_RETURN(out_.sizes.ffn_hidden, Whole(document_, *width, "intermediate_size"));
      return {};
    }
    const Node* node = Given(ffn, "ffn_mult");
    if (node == nullptr) return Missing(ffn, "ffn_mult");
    double times = 0;
    const char* end = node->text.data() + node->text.size();
    const auto [at, error] = std::from_chars(node->text.data(), end, times);
    if (node->quoted || error != std::errc() || at != end || !(times > 0 && times <= 1000)) {
      return InvalidInput("{}: ffn_mult is '{}'; write a number above 0", document_.Where(*node),
                          Printable(node->text, 60));
    }
    const auto whole =
        static_cast<std::int64_t>(2 * times * static_cast<double>(model_.hidden) / 3);
    out_.sizes.ffn_hidden = (whole + 255) / 256 * 256;
    return {};
  }

  Status Missing(const Node& part, std::string_view key) const {
    return InvalidInput(
        "{}: block_configs: layer {}: {} is missing; take the model's whole "
        "config.json",
        document_.Where(part), layer_, key);
  }

  const Document& document_;
  const Model& model_;
  const Node& block_;
  std::size_t layer_;
  Block out_;
};

Status ReadBlocks(const Document& document, const Node& list, Model* model) {
  if (list.kind != Node::Kind::kList || list.items.empty() ||
      static_cast<std::int64_t>(list.items.size()) != model->layers) {
    return InvalidInput("{}: block_configs names {} layers of {}; name each", document.Where(list),
                        list.items.size(), model->layers);
  }
  std::vector<LayerSizes> sizes;
  std::string pattern;
  for (std::size_t l = 0; l < list.items.size(); ++l) {
    ORRERY_ASSIGN_OR_RETURN(const Block block,
                            BlockReader(document, *model, list.items[l], l + 1).Read());
    if (!block.attends && !block.feeds_forward) continue;
    pattern += !block.feeds_forward ? '*' : !block.attends ? '-' : 'D';
    sizes.push_back(block.sizes);
  }
  if (sizes.empty()) {
    return InvalidInput("{}: block_configs: no layer has a part", document.Where(list));
  }
  // The model's own are the largest.
  model->kv_heads = model->ffn_hidden = 1;
  for (const LayerSizes& own : sizes) {
    model->kv_heads = std::max(model->kv_heads, own.heads.keys);
    model->ffn_hidden = std::max(model->ffn_hidden, own.ffn_hidden);
  }
  model->layers = static_cast<std::int64_t>(sizes.size());
  if (pattern.find_first_not_of('D') != std::string::npos) model->pattern = pattern;
  return model->SetSizes(sizes);
}

// Of a value of the family's row; 0 where it is left out.
Result<std::int64_t> Count(Scope* scope, const std::string& name) {
  ORRERY_ASSIGN_OR_RETURN(const std::optional<Value> value, scope->Field(name));
  if (!value) return std::int64_t{0};
  std::int64_t number = 0;
  const char* end = value->text.data() + value->text.size();
  const auto [at, error] = std::from_chars(value->text.data(), end, number);
  if (value->quoted || error != std::errc() || at != end || number < 0 || number > kLargest) {
    return scope->Wrong(*value, "a whole number from 0");
  }
  return number;
}

std::int64_t& MemberOf(LayerSizes* sizes, std::string_view name) {
  return name == "heads"      ? sizes->heads.queries
         : name == "kv_heads" ? sizes->heads.keys
         : name == "head_dim" ? sizes->heads.dim
         : name == "compress" ? sizes->compress
                              : sizes->ffn_hidden;
}

}  // namespace

Status ReadSizes(const Document& document, const Family& family, Scope* scope, Model* model) {
  if (!family.blocks.empty()) {
    const Node* list = scope->Key(family.blocks);
    return list == nullptr ? scope->Missing(family.blocks) : ReadBlocks(document, *list, model);
  }
  std::vector<LayerSizes> sizes(static_cast<std::size_t>(model->layers));
  std::set<std::string> given;
  for (const auto& [name, key, map] : family.sizes_by) {
    const Node* list = scope->Key(key);
    if (list == nullptr || !given.insert(name).second) continue;
    if (list->kind != Node::Kind::kList) {  // one number for all
      for (LayerSizes& own : sizes) {
        ORRERY_ASSIGN_OR_RETURN(MemberOf(&own, name), Whole(document, *list, key));
      }
      continue;
    }
    if (list->items.size() < sizes.size()) {
      return InvalidInput("{}: {} names {} layers of {}; name each", document.Where(*list), key,
                          list->items.size(), sizes.size());
    }
    for (std::size_t l = 0; l < sizes.size(); ++l) {
      const Node* item = &list->items[l];
      if (!map.empty()) item = scope->Key(fmt::format("{}.{}", map, item->text));
      if (item == nullptr || item->text == "0") continue;  // as the model's
      ORRERY_ASSIGN_OR_RETURN(MemberOf(&sizes[l], name), Whole(document, *item, key));
    }
  }
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t borrow, Count(scope, "borrowing_layers"));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t width, Count(scope, "borrowing_ffn_hidden"));
  if (borrow >= model->layers) {
    return InvalidInput(
        "{}: {} layers have keys of earlier ones, of {}; at least one must make them",
        document.sources.front(), borrow, model->layers);
  }
  for (auto l = static_cast<std::size_t>(model->layers - borrow); l < sizes.size(); ++l) {
    sizes[l].borrows_keys = 1;
    if (width > 0) sizes[l].ffn_hidden = width;
  }
  const bool alike = std::ranges::all_of(
      sizes, [&](const LayerSizes& own) { return own.ffn_hidden == sizes.front().ffn_hidden; });
  if (alike && sizes.front().ffn_hidden > 0) model->ffn_hidden = sizes.front().ffn_hidden;
  return family.sizes_by.empty() && borrow == 0 ? Status() : model->SetSizes(sizes);
}

}  // namespace orrery::workload::families
