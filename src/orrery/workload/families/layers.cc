#include "orrery/workload/families/layers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "orrery/base/text.h"

namespace orrery::workload::families {
namespace {

using formats::Document;
using formats::Node;
using Kinds = std::vector<Kind>;

class LayerReader {
 public:
  LayerReader(const Document& document, const Family& family, Scope* scope, Model* model)
      : document_(document), family_(family), scope_(scope), model_(model) {
    for (std::int64_t l = 0; l < model->layers; ++l) kinds_.push_back(model->layer_kind(l));
  }

  Status Read() {
    ORRERY_RETURN_IF_ERROR(ReadPattern());
    if (!model_->pattern.empty()) return {};
    ORRERY_RETURN_IF_ERROR(ReadWords(family_.attention, kWindowLayer | kMambaLayer));
    ORRERY_RETURN_IF_ERROR(ReadWords(family_.feed_forward, kExpertLayer));
    ORRERY_RETURN_IF_ERROR(ReadWindowFrom());
    ORRERY_RETURN_IF_ERROR(ReadFullOffset());
    ORRERY_RETURN_IF_ERROR(ReadNumbers(family_.experts_at, true));
    ORRERY_RETURN_IF_ERROR(ReadNumbers(family_.dense_at, false));
    ORRERY_RETURN_IF_ERROR(ReadMixers());
    return changed_ ? Say() : Status();
  }

 private:
  const Node* First(const std::vector<std::string>& keys, std::string* key) {
    for (const std::string& name : keys) {
      const Node* node = scope_->Key(name);
      if (node != nullptr && (node->kind != Node::Kind::kList || !node->items.empty())) {
        *key = name;
        return node;
      }
    }
    return nullptr;
  }

  // What each layer's word means. A list may go on for modules that predict further tokens.
  Result<std::vector<std::string_view>> Meanings(const LayerWords& words, const Node& list,
                                                 const std::string& key) {
    const auto layers = static_cast<std::size_t>(model_->layers);
    if (list.kind != Node::Kind::kList || list.items.size() < layers) {
      return InvalidInput("{}: {} names {} layers of {}; name each", document_.Where(list), key,
                          list.items.size(), layers);
    }
    std::vector<std::string_view> meanings;
    for (std::size_t l = 0; l < layers; ++l) {
      const Node& item = list.items[l];
      const auto at =
          std::ranges::find(words.words, item.text, &std::pair<std::string, std::string>::first);
      if (at == words.words.end()) {
        std::vector<std::string_view> valid;
        for (const auto& [word, meaning] : words.words) valid.push_back(word);
        return InvalidInput("{}: {}: '{}' of layer {} is not modelled; valid: {}",
                            document_.Where(item), key, Printable(item.text, 60), l + 1,
                            fmt::join(valid, ", "));
      }
      meanings.push_back(at->second);
    }
    return meanings;
  }

  Status ReadPattern() {
    std::string key;
    const Node* list = First(family_.pattern.keys, &key);
    if (list == nullptr) return {};
    ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string_view> letters,
                            Meanings(family_.pattern, *list, key));
    model_->pattern.clear();
    for (const std::string_view letter : letters) model_->pattern += letter;
    return {};
  }

  Status ReadWords(const LayerWords& words, int bits) {
    std::string key;
    const Node* list = First(words.keys, &key);
    if (list == nullptr) return {};
    ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string_view> meanings,
                            Meanings(words, *list, key));
    for (std::size_t l = 0; l < kinds_.size(); ++l) {
      const std::string_view meaning = meanings[l];
      const int bit = meaning == "window"    ? kWindowLayer
                      : meaning == "mamba"   ? kMambaLayer
                      : meaning == "experts" ? kExpertLayer
                                             : 0;
      kinds_[l] = static_cast<Kind>((kinds_[l] & ~bits) | bit);
    }
    changed_ = true;
    return {};
  }

  // The row's number of that name, unless a word says each layer.
  Result<std::optional<std::int64_t>> NumberOfLayer(const std::string& name) {
    std::string key;
    std::optional<std::int64_t> number;
    if (First(family_.attention.keys, &key) != nullptr) return number;
    ORRERY_ASSIGN_OR_RETURN(const std::optional<Value> value, scope_->Field(name));
    if (!value) return number;
    const char* end = value->text.data() + value->text.size();
    const auto [at, error] = std::from_chars(value->text.data(), end, number.emplace());
    if (value->quoted || error != std::errc() || at != end || *number < 0) {
      return scope_->Wrong(*value, "a whole number from 0");
    }
    return number;
  }

  Status ReadFullOffset() {
    ORRERY_ASSIGN_OR_RETURN(const std::optional<std::int64_t> offset, NumberOfLayer("full_offset"));
    if (!offset || model_->full_every == 0) return {};
    const Kind others = model_->window > 0 ? kWindowLayer : kMambaLayer;
    for (std::size_t l = 0; l < kinds_.size(); ++l) {
      const bool full = static_cast<std::int64_t>(l) % model_->full_every == *offset;
      kinds_[l] = static_cast<Kind>((kinds_[l] & ~others) | (full ? 0 : others));
    }
    changed_ = true;
    return {};
  }

  Status ReadWindowFrom() {
    ORRERY_ASSIGN_OR_RETURN(const std::optional<std::int64_t> from, NumberOfLayer("window_from"));
    if (!from) return {};
    for (std::size_t l = 0; l < kinds_.size(); ++l) {
      const bool window = model_->window > 0 && static_cast<std::int64_t>(l) >= *from;
      kinds_[l] = static_cast<Kind>((kinds_[l] & ~kWindowLayer) | (window ? kWindowLayer : 0));
    }
    changed_ = true;
    return {};
  }

  // Numbers of layers, from 1; those named have a mixer in place of attention.
  Status ReadMixers() {
    std::string key;
    const Node* list = First(family_.mamba_at, &key);
    if (list == nullptr) return {};
    for (Kind& kind : kinds_) kind &= static_cast<Kind>(~kMambaLayer);
    for (const Node& item : list->items) {
      std::size_t layer = 0;
      const char* end = item.text.data() + item.text.size();
      const auto [at, error] = std::from_chars(item.text.data(), end, layer);
      if (error != std::errc() || at != end || layer < 1 || layer > kinds_.size()) {
        return InvalidInput("{}: {}: '{}' is no layer from 1 to {}", document_.Where(item), key,
                            Printable(item.text, 60), kinds_.size());
      }
      kinds_[layer - 1] |= kMambaLayer;
    }
    changed_ = true;
    return {};
  }

  // Numbers of layers; those named have experts, or have none.
  Status ReadNumbers(const std::vector<std::string>& keys, bool experts) {
    std::string key;
    const Node* node = First(keys, &key);
    if (node == nullptr) return {};
    std::vector<std::string_view> texts;
    if (node->kind == Node::Kind::kScalar) {
      for (std::string_view rest = node->text; !rest.empty();) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        texts.push_back(rest.substr(0, comma));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
      }
    }
    for (const Node& item : node->items) texts.emplace_back(item.text);
    if (texts.empty()) return {};
    if (experts) {
      for (Kind& kind : kinds_) kind &= static_cast<Kind>(~kExpertLayer);
    }
    for (const std::string_view text : texts) {
      std::size_t layer = 0;
      const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
      if (error != std::errc() || at != text.data() + text.size() || layer >= kinds_.size()) {
        return InvalidInput("{}: {}: '{}' is no layer from 0 to {}", document_.Where(*node), key,
                            Printable(text, 60), kinds_.size() - 1);
      }
      kinds_[layer] =
          static_cast<Kind>((kinds_[layer] & ~kExpertLayer) | (experts ? kExpertLayer : 0));
    }
    changed_ = true;
    return {};
  }

  bool Any(Kind bit) const {
    return std::ranges::any_of(kinds_, [&](Kind kind) { return (kind & bit) != 0; });
  }
  // Numbers of layers, from 0, with the bit set or not.
  std::vector<std::int64_t> Where(Kind bit, bool set) const {
    std::vector<std::int64_t> layers;
    for (std::size_t l = 0; l < kinds_.size(); ++l) {
      if (((kinds_[l] & bit) != 0) == set) layers.push_back(static_cast<std::int64_t>(l));
    }
    return layers;
  }

  Status Say() {
    if (Any(kWindowLayer) && model_->window == 0) {
      return InvalidInput("{}: layers have a window, but sliding_window is missing or 0; add it",
                          document_.sources.front());
    }
    const std::vector<std::int64_t> full = Where(kWindowLayer, false);
    if (!Any(kWindowLayer)) model_->window = 0;
    model_->full_every = model_->window == 0 || full.empty() ? 0 : full.front() + 1;
    const std::vector<std::int64_t> experts = Where(kExpertLayer, true);
    Experts& e = model_->experts;
    if (experts.empty()) {
      e = {};
    } else {
      e.every = experts.size() > 1 ? experts[1] - experts[0] : 1;
      e.first_dense = std::max<std::int64_t>(0, experts[0] - (e.every - 1));
    }
    bool said = true;
    for (std::size_t l = 0; l < kinds_.size(); ++l) {
      said = said && model_->layer_kind(static_cast<std::int64_t>(l)) == kinds_[l];
    }
    if (said) return {};
    for (const Kind kind : kinds_) {
      const bool routed = (kind & kExpertLayer) != 0, narrow = (kind & kWindowLayer) != 0;
      const bool mamba = (kind & kMambaLayer) != 0;
      model_->pattern += mamba    ? (routed ? 'e' : 'm')
                         : narrow ? (routed ? 'x' : 'd')
                                  : (routed ? 'X' : 'D');
    }
    return {};
  }

  const Document& document_;
  const Family& family_;
  Scope* scope_;
  Model* model_;
  Kinds kinds_;
  bool changed_ = false;
};

}  // namespace

Status ReadLayers(const Document& document, const Family& family, Scope* scope, Model* model) {
  if (!model->pattern.empty() &&
      static_cast<std::int64_t>(model->pattern.size()) != model->layers) {
    return {};  // Validate says so
  }
  return LayerReader(document, family, scope, model).Read();
}

}  // namespace orrery::workload::families
