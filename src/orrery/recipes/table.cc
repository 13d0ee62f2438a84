#include "orrery/recipes/table.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/formats/data_cells.h"

namespace orrery::recipes {
namespace {

constexpr std::size_t kColumns = 10;

std::vector<std::string> Split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

Effect EffectOf(std::string_view text) {
  if (text == "job") return Effect::kJob;
  if (text == "rule") return Effect::kRule;
  if (text == "refused") return Effect::kRefused;
  if (text == "assumed") return Effect::kAssumed;
  ORRERY_CHECK(text == "inert", "an effect is job, rule, inert, assumed or refused");
  return Effect::kInert;
}

}  // namespace

Table::Table(std::span<const std::string_view> lines) {
  for (std::vector<std::string>& cell : formats::DataRows(lines, kColumns)) {
    Row row{.argument = cell[0],
            .also = Split(cell[1], ' '),
            .takes = cell[2],
            .field = cell[3],
            .fallback = cell[4],
            .effect = EffectOf(cell[5]),
            .key = cell[6],
            .values = Split(cell[7], '|'),
            .why = cell[8],
            .source = cell[9]};
    by_name_.emplace(row.argument, rows_.size());
    for (const std::string& other : row.also) by_name_.emplace(other, rows_.size());
    if (!row.field.empty()) by_field_.emplace(row.field, rows_.size());
    rows_.push_back(std::move(row));
  }
}

const Row* Table::Find(std::string_view argument) const {
  if (const auto found = by_name_.find(argument); found != by_name_.end()) {
    return &rows_[found->second];
  }
  for (std::size_t dot = argument.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = argument.rfind('.', dot - 1)) {
    const auto found = by_name_.find(std::string(argument.substr(0, dot)) + ".*");
    if (found != by_name_.end()) return &rows_[found->second];
  }
  // "--sglang-*": all arguments that begin so.
  for (std::size_t dash = argument.find('-', 2); dash != std::string_view::npos;
       dash = argument.find('-', dash + 1)) {
    const auto found = by_name_.find(std::string(argument.substr(0, dash)) + "-*");
    if (found != by_name_.end()) return &rows_[found->second];
  }
  return nullptr;
}

const Row* Table::FindField(std::string_view field) const {
  const auto found = by_field_.find(field);
  return found == by_field_.end() ? nullptr : &rows_[found->second];
}

std::vector<std::string_view> Table::Names() const {
  std::vector<std::string_view> names;
  for (const Row& row : rows_) names.push_back(row.argument);
  return names;
}

std::vector<std::string_view> Table::Fields() const {
  std::vector<std::string_view> names;
  for (const Row& row : rows_) names.push_back(row.field);
  return names;
}

const Row* FindRow(const Tables& tables, std::string_view argument) {
  for (const Table* table : tables) {
    if (const Row* row = table->Find(argument)) return row;
  }
  return nullptr;
}

}  // namespace orrery::recipes
