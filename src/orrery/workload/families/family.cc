#include "orrery/workload/families/family.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/workload/options.h"

namespace orrery::workload::families {
namespace {

using formats::DataRow;
using formats::DataTable;
using formats::Field;
using formats::Node;

constexpr std::string_view kFamilies[] = {
#include "orrery_data_families.inc"
};
constexpr std::string_view kKeys[] = {
#include "orrery_data_config_keys.inc"
};

// Reads one row.
class RowReader {
 public:
  RowReader(const DataTable& table, const DataRow& row) : table_(table), row_(row) {}

  Result<Family> Read() {
    family_.type = row_.name;
    for (const Field& field : row_.keys.fields) {
      Status status = ReadField(field);
      if (!status.ok()) {
        return std::move(status).In(
            fmt::format("{}: the family '{}': {}", table_.document().Where(field),
                        Printable(row_.name, 60), Printable(field.key, 60)));
      }
    }
    Describe();
    return std::move(family_);
  }

 private:
  void Describe() {
    std::string source = row_.sources.back();
    constexpr std::string_view kType = "<model_type>";
    if (const auto at = source.find(kType); at != std::string::npos) {
      source.replace(at, kType.size(), row_.name);
    }
    if (!family_.not_modelled.empty()) {
      family_.description = "not modelled: " + family_.not_modelled;
    } else if (!family_.text_type.empty()) {
      family_.description =
          fmt::format("the model in its text_config, of type {} if that names none ({})",
                      family_.text_type, source);
    } else {
      family_.description = source;
    }
  }

  bool IsValue(std::string_view key) const {
    return key == "window_from" || key == "full_offset" || key == "borrowing_layers" ||
           key == "borrowing_ffn_hidden" || key.starts_with('_') ||
           FindOption(ModelOptions().options, key) != nullptr;
  }
  // A name of the row's own that the row gives.
  bool IsField(std::string_view word) const {
    return IsValue(word) && row_.keys.Find(word) != nullptr;
  }

  Status ReadField(const Field& field) {
    const std::string_view key = field.key;
    if (IsValue(key)) return ReadValue(field);
    if (key == "require") return ReadRequired(field.value);
    if (key == "refuse") return ReadReasons(field.value, &family_.refused);
    if (key == "without_effect") return ReadReasons(field.value, &family_.without_effect);
    if (key == "not_modelled") return Text(field.value, &family_.not_modelled);
    if (key == "text_config") return Text(field.value, &family_.text_type);
    if (key == "vision_config") return Text(field.value, &family_.vision_type);
    if (key == "dense_at") return Texts(field.value, &family_.dense_at);
    if (key == "mamba_at") return Texts(field.value, &family_.mamba_at);
    if (key == "experts_at") return Texts(field.value, &family_.experts_at);
    constexpr std::string_view kAttention[] = {"full", "window", "mamba"};
    constexpr std::string_view kFeedForward[] = {"dense", "experts"};
    constexpr std::string_view kLetters[] = {"M", "*", "-", "E", "D", "d", "X", "x", "m", "e"};
    if (key == "attention_by") return ReadWords(field.value, kAttention, &family_.attention);
    if (key == "feed_forward_by") {
      return ReadWords(field.value, kFeedForward, &family_.feed_forward);
    }
    if (key == "blocks") return Text(field.value, &family_.blocks);
    if (key == "sizes_by") return ReadSizes(field.value);
    if (key == "pattern_by") return ReadWords(field.value, kLetters, &family_.pattern);
    std::vector<std::string_view> valid = OptionNames(ModelOptions().options);
    valid.insert(valid.end(),
                 {"require", "refuse", "without_effect", "not_modelled", "text_config",
                  "vision_config", "attention_by", "feed_forward_by", "pattern_by", "window_from",
                  "full_offset", "borrowing_layers", "borrowing_ffn_hidden", "dense_at",
                  "experts_at", "mamba_at", "sizes_by", "blocks"});
    return InvalidInput("{}", UnknownName("key", Printable(key), valid));
  }

  static Status Text(const Node& node, std::string* text) {
    if (node.kind != Node::Kind::kScalar) return InvalidInput("takes a text");
    *text = node.text;
    return {};
  }
  static Status Texts(const Node& node, std::vector<std::string>* texts) {
    if (node.kind == Node::Kind::kScalar) {
      texts->push_back(node.text);
      return {};
    }
    for (const Node& item : node.items) ORRERY_RETURN_IF_ERROR(Text(item, &texts->emplace_back()));
    return texts->empty() ? InvalidInput("takes a text or a list of texts") : Status();
  }
  Status ReadValue(const Field& field) {
    std::vector<std::string> texts;
    ORRERY_RETURN_IF_ERROR(Texts(field.value, &texts));
    std::vector<Expression>& expressions = family_.values[field.key];
    for (const std::string& text : texts) {
      ORRERY_ASSIGN_OR_RETURN(
          Expression expression,
          formats::ParseExpression(text, [this](std::string_view word) { return IsField(word); }));
      expressions.push_back(std::move(expression));
    }
    return {};
  }
  Status ReadRequired(const Node& node) {
    if (node.kind != Node::Kind::kMap) return InvalidInput("takes keys with their valid values");
    for (const Field& field : node.fields) {
      family_.required.emplace_back(field.key, std::vector<std::string>());
      ORRERY_RETURN_IF_ERROR(Texts(field.value, &family_.required.back().second));
    }
    return {};
  }
  Status ReadSizes(const Node& node) {
    constexpr std::string_view kSizes[] = {"heads", "kv_heads", "head_dim", "ffn_hidden",
                                           "compress"};
    if (node.kind != Node::Kind::kMap) return InvalidInput("takes sizes with keys of lists");
    for (const Field& field : node.fields) {
      if (std::ranges::find(kSizes, field.key) == std::end(kSizes)) {
        return InvalidInput("{}", UnknownName("size", Printable(field.key), kSizes));
      }
      std::string text;
      ORRERY_RETURN_IF_ERROR(Text(field.value, &text));
      for (std::string_view rest = text; !rest.empty();) {
        const std::string_view one = rest.substr(0, rest.find(" | "));
        rest.remove_prefix(std::min(rest.size(), one.size() + 3));
        const std::size_t of = std::min(one.find(" of "), one.size());
        family_.sizes_by.push_back({.size = field.key,
                                    .key = std::string(one.substr(0, of)),
                                    .map = std::string(one.substr(std::min(one.size(), of + 4)))});
      }
    }
    return {};
  }
  static Status ReadReasons(const Node& node,
                            std::vector<std::pair<std::string, std::string>>* reasons) {
    if (node.kind != Node::Kind::kMap) return InvalidInput("takes keys with reasons");
    for (const Field& field : node.fields) {
      reasons->emplace_back(field.key, std::string());
      ORRERY_RETURN_IF_ERROR(Text(field.value, &reasons->back().second));
    }
    return {};
  }
  static Status ReadWords(const Node& node, std::span<const std::string_view> valid,
                          LayerWords* words) {
    const Node* key = node.Find("key");
    const Node* map = node.Find("words");
    if (key == nullptr || map == nullptr || map->fields.empty() || node.fields.size() != 2) {
      return InvalidInput("takes key and words");
    }
    ORRERY_RETURN_IF_ERROR(Texts(*key, &words->keys));
    for (const Field& field : map->fields) {
      std::string meaning;
      ORRERY_RETURN_IF_ERROR(Text(field.value, &meaning));
      if (std::ranges::find(valid, meaning) == valid.end()) {
        return InvalidInput("{}", UnknownName("meaning", Printable(meaning), valid));
      }
      words->words.emplace_back(field.key, meaning);
    }
    return {};
  }

  const DataTable& table_;
  const DataRow& row_;
  Family family_;
};

std::string Top(std::string_view dotted) { return std::string(dotted.substr(0, dotted.find('.'))); }

}  // namespace

std::vector<std::string> Family::Keys() const {
  std::vector<std::string> keys;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& key : more) keys.push_back(Top(key));
  };
  for (const auto& [name, expressions] : values) {
    for (const Expression& expression : expressions) add(formats::NamesIn(expression));
  }
  for (const auto& [key, valid] : required) keys.push_back(Top(key));
  for (const auto* reasons : {&refused, &without_effect}) {
    for (const auto& [key, why] : *reasons) keys.push_back(Top(key));
  }
  for (const LayerWords* words : {&attention, &feed_forward, &pattern}) add(words->keys);
  add(dense_at);
  add(experts_at);
  add(mamba_at);
  for (const Sizes& sizes : sizes_by) {
    keys.push_back(Top(sizes.key));
    if (!sizes.map.empty()) keys.push_back(Top(sizes.map));
  }
  if (!blocks.empty()) keys.push_back(Top(blocks));
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

bool Family::Reads(std::string_view key) const {
  const std::vector<std::string> keys = Keys();
  return std::ranges::binary_search(keys, key);
}

const Families& Families::BuiltIn() {
  static const Families families = [] {
    Families built_in;
    Status status = built_in.Add(formats::Lines(kFamilies), "data/families.yaml");
    if (status.ok()) status = built_in.AddKeys(formats::Lines(kKeys), "data/config_keys.yaml");
    ORRERY_CHECK(status.ok(), status.message().c_str());
    return built_in;
  }();
  return families;
}

Status Families::Add(std::string_view text, const std::string& file) {
  std::size_t next = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  for (; next < rows_.rows().size(); ++next) {
    const DataRow& row = rows_.rows()[next];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(Family family, RowReader(rows_, row).Read());
    families_.push_back(std::move(family));
  }
  for (const Family& family : families_) {
    for (const auto& [key, type] :
         {std::pair("text_config", &family.text_type), {"vision_config", &family.vision_type}}) {
      if (type->empty() || Find(*type) != nullptr) continue;
      return InvalidInput("{}: the family '{}': {}: no row is named '{}'", file,
                          Printable(family.type, 60), key, Printable(*type, 60));
    }
  }
  return {};
}

Status Families::AddKeys(std::string_view text, const std::string& file) {
  std::size_t next = key_rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(key_rows_.Add(text, file));
  for (; next < key_rows_.rows().size(); ++next) {
    const DataRow& row = key_rows_.rows()[next];
    if (row.part()) continue;
    const Node* effect = row.keys.Find("effect");
    const Node* why = row.keys.Find("why");
    const bool valid = effect != nullptr && why != nullptr && row.keys.fields.size() == 2 &&
                       (effect->text == "none" || effect->text == "not counted") &&
                       !why->text.empty();
    if (!valid) {
      return InvalidInput(
          "{}: the key '{}': takes effect (none, or not counted) and why, a sentence",
          key_rows_.document().Where(row.keys), Printable(row.name, 60));
    }
    keys_[row.name] = {.costs = effect->text != "none", .why = why->text};
  }
  return {};
}

const Family* Families::Find(std::string_view type) const {
  const auto at = std::ranges::find(families_, type, &Family::type);
  return at == families_.end() ? nullptr : &*at;
}

const InertKey* Families::FindKey(std::string_view key) const {
  const auto at = keys_.find(key);
  return at == keys_.end() ? nullptr : &at->second;
}

std::vector<std::string_view> Families::types() const {
  std::vector<std::string_view> types;
  for (const Family& family : families_) {
    if (family.not_modelled.empty()) types.push_back(family.type);
  }
  return types;
}

std::vector<std::string_view> Families::keys() const {
  std::vector<std::string_view> keys;
  for (const auto& [key, inert] : keys_) keys.push_back(key);
  return keys;
}

}  // namespace orrery::workload::families
