#include "orrery/workload/families/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/workload/families/blocks.h"
#include "orrery/workload/families/layers.h"
#include "orrery/workload/models.h"
#include "orrery/workload/options.h"

namespace orrery::workload {

using families::Families;
using families::Family;
using formats::Document;
using formats::Expression;
using formats::Field;
using formats::Node;
using formats::Section;
using formats::Value;

namespace {

// Lists of labels, tokens and modules make some files this long.
constexpr formats::Limits kLimits{.bytes = 64 << 20, .depth = 64, .values = 4'000'000};

// Bare NaN, Infinity and -Infinity, which Python writes, as texts.
std::string QuotePythonNumbers(std::string_view text) {
  std::string out;
  std::size_t copied = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == 'N' || c == 'I' || c == '-')) {
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (!text.substr(i).starts_with(word)) continue;
        out.append(text.substr(copied, i - copied)).append("\"").append(word).append("\"");
        i += word.size() - 1;
        copied = i + 1;
        break;
      }
    }
  }
  return out.append(text.substr(copied));
}

// A list of equal items, one a layer, stands for its item.
Value OfNode(const std::string& key, const Node& node) {
  const auto alike = [&](const Node& item) {
    return item.kind == Node::Kind::kScalar && item.text == node.items.front().text;
  };
  if (node.items.size() > 1 && std::ranges::all_of(node.items, alike)) {
    return OfNode(key, node.items.front());
  }
  return {.text = node.text, .quoted = node.quoted, .key = key, .node = &node};
}

// The values of one family's row, for one file.
class Reader final : public families::Scope {
 public:
  // `outer` holds `part`: its tie_word_embeddings, where it has one, is of the whole model.
  Reader(const Document& document, const std::string& path, const Node& part, const Node* outer,
         const Family& family)
      : document_(document), path_(path), part_(part), outer_(outer), family_(family) {}

  const Node* Key(std::string_view dotted) override {
    if (outer_ != nullptr && dotted == "tie_word_embeddings") {
      if (const Node* node = Find(*outer_, dotted)) return node;
    }
    return Find(part_, dotted);
  }

  // `key.length`, where the key has a list: how many items it has.
  Result<std::optional<Value>> Named(const std::string& name) override {
    constexpr std::string_view kLength = ".length";
    if (name.ends_with(kLength)) {
      const std::string key = name.substr(0, name.size() - kLength.size());
      const Node* const list = Key(key);
      if (list != nullptr && list->kind == Node::Kind::kList) {
        return std::optional(Value{.text = std::to_string(list->items.size()), .key = key});
      }
    }
    const Node* const node = Key(name);
    if (node == nullptr) return std::optional<Value>();
    return std::optional(OfNode(name, *node));
  }

  Result<std::optional<Value>> Field(const std::string& name) override {
    const auto at = family_.values.find(name);
    if (at == family_.values.end()) return std::optional<Value>();
    if (!open_.insert(name).second) {
      return InvalidInput("{}: the family '{}': {} is said by means of itself", path_, family_.type,
                          name);
    }
    Result<std::optional<Value>> value = Largest(at->second);
    open_.erase(name);
    return value;
  }

  Status Missing(std::string_view key) const override {
    return InvalidInput("{}: {} is missing; add it, or take the model's whole config.json", path_,
                        key);
  }

  Status Wrong(const Value& value, std::string_view expected) const override {
    if (value.node == nullptr) {
      return InvalidInput("{}: the family '{}' says '{}' where {} belongs", path_, family_.type,
                          Printable(value.text, 60), expected);
    }
    const std::string where = document_.Where(*value.node);
    if (value.node->kind != Node::Kind::kScalar) {
      return InvalidInput("{}: {} is a {}; write {}", where, value.key,
                          value.node->kind == Node::Kind::kList ? "list" : "map", expected);
    }
    const std::string_view quote = value.quoted ? "'" : "";
    return InvalidInput("{}: {} is {}{}{}; write {}", where, value.key, quote,
                        Printable(value.text, 60), quote, expected);
  }

  Result<Section> ReadValues() {
    Section section(ModelOptions());
    for (const Option& option : ModelOptions().options) {
      ORRERY_ASSIGN_OR_RETURN(const std::optional<Value> value, Field(std::string(option.name)));
      if (!value) continue;
      ORRERY_ASSIGN_OR_RETURN(OptionValue parsed, Parse(option, *value));
      section.Set(option.name, std::move(parsed),
                  value->node == nullptr ? path_ : document_.Where(*value->node));
    }
    return section;
  }

  Status Check() {
    for (const auto& [key, valid] : family_.required) {
      const Node* node = Key(key);
      const bool list = node != nullptr && node->kind == Node::Kind::kList && !node->items.empty();
      if (list && std::ranges::all_of(node->items, [&](const Node& item) {
            return item.kind == Node::Kind::kScalar && item.text == node->items.front().text;
          })) {
        node = &node->items.front();  // one of all layers
      }
      if (node == nullptr || (list && OwnNumbers(*node) && Holds(valid, "$layer")) ||
          std::ranges::any_of(valid, [&](const std::string& text) {
            const Node* other = text.starts_with('$') ? Key(text.substr(1)) : nullptr;
            return Same(node->text, other != nullptr ? other->text : text);
          })) {
        continue;
      }
      if (Holds(valid, "$layer")) {
        return InvalidInput("{}: {}: layers that take another layer's are not modelled",
                            document_.Where(*node), key);
      }
      return InvalidInput(
          "{}: {} '{}' is not modelled; valid: {}", document_.Where(*node), key,
          node->kind == Node::Kind::kScalar ? Printable(node->text, 60) : "of layers that differ",
          fmt::join(valid, ", "));
    }
    for (const auto& [key, why] : family_.refused) {
      const Node* node = Key(key);
      if (formats::Holds(node)) {
        return InvalidInput("{}: {}: {}", document_.Where(*node), key, why);
      }
    }
    return {};
  }

 private:
  static const Node* Find(const Node& map, std::string_view dotted) {
    const Node* node = &map;
    while (node != nullptr && !dotted.empty()) {
      const std::size_t dot = std::min(dotted.find('.'), dotted.size());
      node = node->Find(dotted.substr(0, dot));
      dotted.remove_prefix(std::min(dot + 1, dotted.size()));
    }
    return node == nullptr || node->kind == Node::Kind::kNull ? nullptr : node;
  }

  // Each layer's item is its own number, from 0.
  static bool OwnNumbers(const Node& list) {
    for (std::size_t l = 0; l < list.items.size(); ++l) {
      if (list.items[l].text != fmt::format("{}", l)) return false;
    }
    return true;
  }
  static bool Holds(const std::vector<std::string>& texts, std::string_view text) {
    return std::ranges::find(texts, text) != texts.end();
  }

  static std::optional<double> Number(std::string_view text) {
    double number = 0;
    const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || at != text.data() + text.size()) return std::nullopt;
    return number;
  }
  static bool Same(std::string_view a, std::string_view b) {
    if (a == b) return true;
    const std::optional<double> x = Number(a), y = Number(b);
    return x && y && *x == *y;
  }

  Result<std::optional<Value>> Largest(const std::vector<Expression>& expressions) {
    std::optional<Value> largest;
    for (const Expression& expression : expressions) {
      ORRERY_ASSIGN_OR_RETURN(std::optional<Value> value, formats::Evaluate(expression, this));
      if (!value) continue;
      if (expressions.size() > 1 && !Number(value->text)) return Wrong(*value, "a number");
      if (!largest || *Number(value->text) > *Number(largest->text)) largest = std::move(value);
    }
    return largest;
  }

  Result<OptionValue> Parse(const Option& option, const Value& value) const {
    const bool text = option.type == OptionType::kText || option.type == OptionType::kChoice;
    const auto expected = [&]() -> std::string {
      if (option.type == OptionType::kBool) return "true or false";
      if (option.type == OptionType::kFraction) return "a number from 0 to 1";
      if (option.type == OptionType::kInteger) {
        return fmt::format("a whole number from {:.0f}", option.min);
      }
      return Expected(option);
    };
    const bool scalar = value.node == nullptr || value.node->kind == Node::Kind::kScalar;
    if (!scalar || (value.quoted && !text)) return Wrong(value, expected());
    Result<OptionValue> parsed = ParseOption(option, value.text);
    if (!parsed.ok()) return Wrong(value, expected());
    return parsed;
  }

  const Document& document_;
  const std::string& path_;
  const Node& part_;
  const Node* outer_;
  const Family& family_;
  std::set<std::string, std::less<>> open_;
};

// One part of the file as a model of a family.
Result<Model> ReadPart(const Document& document, const std::string& path, const Node& part,
                       const Node* outer, const Family& family) {
  Reader reader(document, path, part, outer, family);
  ORRERY_ASSIGN_OR_RETURN(const Section section, reader.ReadValues());
  ORRERY_RETURN_IF_ERROR(reader.Check());
  Model model;
  model.source = path;
  ApplyModelKeys(section, false, &model);
  if (!section.Has("head_dim") && model.heads > 0 && model.hidden % model.heads != 0) {
    return InvalidInput("{}: {} attention heads do not divide the hidden size {}; give head_dim",
                        path, model.heads, model.hidden);
  }
  ORRERY_RETURN_IF_ERROR(families::ReadSizes(document, family, &reader, &model));
  ORRERY_RETURN_IF_ERROR(families::ReadLayers(document, family, &reader, &model));
  if (Status status = Validate(model); !status.ok()) return std::move(status).In(path);
  return model;
}

// What no family reads.
class Rest {
 public:
  Rest(const Document& document, const std::string& path, const Families& families,
       std::vector<std::string>* notes)
      : document_(document), path_(path), families_(families), notes_(notes) {}

  void Look(const Node& map, const Family& family) {
    for (const Field& field : map.fields) {
      const std::string& key = field.key;
      if (key == "model_type" || family.Reads(key) || !formats::Holds(&field.value)) continue;
      if (key.starts_with('_')) continue;  // how transformers loaded the file
      const bool wrapper = !family.text_type.empty();
      if (wrapper && (key == "text_config" || key == "tie_word_embeddings")) continue;
      const families::InertKey* inert = families_.FindKey(key);
      if (wrapper && key == "vision_config" && Vision(field, family)) continue;
      if (inert == nullptr) {
        Unknown(field, family);
      } else if (inert->costs) {
        notes_->push_back(fmt::format("{}: {} is not counted: {}", document_.Where(field),
                                      Printable(key, 60), inert->why));
      }
    }
  }

 private:
  // An encoder of a family that is known: how large it is. False: it is not.
  bool Vision(const Field& field, const Family& wrapper) {
    const Node* named = field.value.Find("model_type");
    const Family* family = named != nullptr ? families_.Find(named->text) : nullptr;
    if (family == nullptr || !family->text_type.empty() || !family->not_modelled.empty()) {
      family = families_.Find(wrapper.vision_type);
    }
    if (family == nullptr || field.value.kind != Node::Kind::kMap) return false;
    const Result<Model> model = ReadPart(document_, path_, field.value, nullptr, *family);
    if (!model.ok() || model->patch_values == 0) return false;
    notes_->push_back(
        fmt::format("{}: vision_config is not counted: an encoder of images of {} parameters "
                    "({}), and what projects its output into the text model's width",
                    document_.Where(field), HumanCount(model->parameters()), family->type));
    return true;
  }
  void Unknown(const Field& field, const Family& family) {
    std::vector<std::string_view> valid = families_.keys();
    const std::vector<std::string> own = family.Keys();
    valid.insert(valid.end(), own.begin(), own.end());
    const std::vector<std::string> near = Nearest(field.key, valid, 1);
    notes_->push_back(
        fmt::format("{}: {} is ignored: no key that Orrery knows of {}{}", document_.Where(field),
                    Printable(field.key, 60), family.type,
                    near.empty() ? "" : fmt::format("; did you mean {}?", near.front())));
  }

  const Document& document_;
  const std::string& path_;
  const Families& families_;
  std::vector<std::string>* notes_;
};

Result<const Family*> FindFamily(const Document& document, const std::string& path,
                                 const Node& part, std::string_view fallback,
                                 const Families& families) {
  const Node* named = part.Find("model_type");
  if (named == nullptr || named->text.empty()) {
    if (const Family* family = families.Find(fallback)) return family;
    return InvalidInput(
        "{}: model_type is missing; add it ('orrery list model-types' has those that are read)",
        path);
  }
  const Family* family = families.Find(named->text);
  if (family == nullptr) {
    constexpr std::size_t kFew = 6;
    const std::vector<std::string_view> types = families.types();
    const std::vector<std::string> near = Nearest(named->text, types, kFew);
    // A name that is near is another architecture: no question whether it is meant.
    return InvalidInput(
        "{}: model_type '{}' is not known, and no other is taken in its place; 'orrery list "
        "model-types' has the {} that are read{}. If you know that it computes as one of them, "
        "name that one, or give it a row in families.yaml (--data)",
        document.Where(*named), Printable(named->text, 60), types.size(),
        near.empty() ? "" : fmt::format(" (names like it: {})", fmt::join(near, ", ")));
  }
  if (!family->not_modelled.empty()) {
    return InvalidInput("{}: model_type '{}' is not modelled: {}", document.Where(*named),
                        family->type, family->not_modelled);
  }
  return family;
}

}  // namespace

Result<Model> ReadConfig(const std::string& path, const Families& families,
                         std::vector<std::string>* notes) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile(path, static_cast<std::int64_t>(kLimits.bytes)));
  Result<Document> parsed = formats::ParseJson(QuotePythonNumbers(text), path, kLimits);
  if (!parsed.ok()) {
    return InvalidInput("{} (the file has {} bytes); take the model's whole config.json",
                        parsed.status().message(), text.size());
  }
  const Document& document = *parsed;
  const Node& root = document.root;
  if (root.kind != Node::Kind::kMap) {
    return InvalidInput("{}: a config.json is one JSON object, this is not", path);
  }
  ORRERY_ASSIGN_OR_RETURN(const Family* family, FindFamily(document, path, root, "", families));
  Rest rest(document, path, families, notes);
  const Node* part = &root;
  if (!family->text_type.empty()) {
    const Node* inner = root.Find("text_config");
    if (inner != nullptr && inner->kind == Node::Kind::kMap) {
      rest.Look(root, *family);
      part = inner;
      ORRERY_ASSIGN_OR_RETURN(family,
                              FindFamily(document, path, *inner, family->text_type, families));
    } else {
      family = families.Find(family->text_type);
    }
  }
  if (!family->text_type.empty() || !family->not_modelled.empty()) {
    return InvalidInput("{}: text_config: a text model belongs here, not '{}'", path, family->type);
  }
  rest.Look(*part, *family);
  ORRERY_ASSIGN_OR_RETURN(
      Model model, ReadPart(document, path, *part, part == &root ? nullptr : &root, *family));
  const Node* name = root.Find("_name_or_path");
  model.name = name != nullptr && !name->text.empty() ? name->text : path;
  return model;
}

}  // namespace orrery::workload
