#include "orrery/search/validate/configuration.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/base/schema.h"
#include "orrery/base/text.h"
#include "orrery/search/validate/names.h"

namespace orrery::search {

Configuration::Configuration(const MeasuredTable& table, std::size_t row) : table_(&table) {
  for (const MeasuredTable::Place& place : table.configuration) {
    cells_.push_back(place.at ? table.csv.cell(row, *place.at) : std::string_view());
  }
}

std::size_t Configuration::IndexOf(std::string_view column) const {
  const auto& places = table_->configuration;
  const auto at = std::ranges::find(
      places, column, [](const MeasuredTable::Place& place) { return place.column.name; });
  ORRERY_CHECK(at != places.end(), "a prediction reads configuration columns only");
  return static_cast<std::size_t>(at - places.begin());
}

void Configuration::Translate(const Words& words, std::vector<std::string>* assumed) {
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const std::string& column = table_->configuration[i].column.name;
    const std::string_view means = words.Meaning(column, cells_[i]);
    if (means == cells_[i]) continue;
    assumed->push_back(fmt::format("{}={}: {}", column, Printable(cells_[i], 40), means));
    cells_[i] = means;
  }
}

Status Configuration::Check() const {
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (cells_[i].empty()) continue;
    ORRERY_RETURN_IF_ERROR(table_->configuration[i].column.Check(cells_[i]));
  }
  return {};
}

bool Configuration::Knows(std::string_view column) const {
  return std::ranges::any_of(table_->configuration, [&](const MeasuredTable::Place& place) {
    return place.column.name == column;
  });
}

std::string_view Configuration::text(std::string_view column) const {
  return cells_[IndexOf(column)];
}

std::vector<Configuration::Key> Configuration::keys() const {
  std::vector<Key> keys;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const Column& column = table_->configuration[i].column;
    if (!column.key.empty() && !cells_[i].empty()) keys.push_back({&column, cells_[i]});
  }
  return keys;
}

std::optional<double> Configuration::Number(std::string_view column) const {
  const std::size_t i = IndexOf(column);
  return cells_[i].empty() ? std::nullopt : table_->configuration[i].column.Read(cells_[i]);
}

std::optional<std::int64_t> Configuration::Whole(std::string_view column) const {
  const std::optional<double> value = Number(column);
  return value ? std::optional(static_cast<std::int64_t>(*value)) : std::nullopt;
}

Result<std::int64_t> Configuration::Needed(std::string_view column) const {
  const std::optional<std::int64_t> value = Whole(column);
  if (!value) return InvalidInput("{} is blank: the run cannot be set up without it", column);
  return *value;
}

bool IsOneOf(std::string_view text, std::string_view choices) {
  return std::ranges::count(SplitBars(choices), text) > 0;
}

bool BeginsWithOneOf(std::string_view text, std::string_view choices) {
  return choices.empty() || std::ranges::any_of(SplitBars(choices), [&](std::string_view choice) {
           return text.starts_with(choice);
         });
}

Result<std::optional<double>> ReadOutcome(const formats::CsvTable& table, std::size_t row,
                                          std::string_view column) {
  const auto at = table.Find(column);
  if (!at || table.cell(row, *at).empty()) return std::optional<double>();
  const auto value = ParseNumber(table.cell(row, *at));
  if (!value || *value <= 0) {
    return InvalidInput("{}: '{}' is not a positive number; correct it or leave it blank",
                        table.Where(row, column), Printable(table.cell(row, *at), 40));
  }
  return value;
}

}  // namespace orrery::search
