#include "orrery/campaign/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/campaign/goodput.h"
#include "orrery/formats/section.h"

namespace orrery::campaign {
namespace {

using formats::Node;
using formats::Section;
using enum OptionType;

constexpr std::string_view kPricesText[] = {
#include "orrery_data_prices.inc"
};
constexpr std::string_view kPowerText[] = {
#include "orrery_data_power.inc"
};
constexpr std::string_view kGridsText[] = {
#include "orrery_data_grids.inc"
};
constexpr std::string_view kFailuresText[] = {
#include "orrery_data_failures.inc"
};

constexpr Option kPriceKeys[] = {{.name = "usd_per_gpu_hour", .type = kNumber, .max = 1e6},
                                 {.name = "date", .type = kText}};
constexpr OptionTable kPriceTable{.path = "", .doc = "", .options = kPriceKeys};
constexpr Option kPowerKeys[] = {{.name = "value", .type = kNumber, .max = 10}};
constexpr OptionTable kPowerTable{.path = "", .doc = "", .options = kPowerKeys};
constexpr Option kGridKeys[] = {{.name = "carbon_intensity", .type = kNumber, .max = 1e4},
                                {.name = "year", .type = kInteger, .min = 1990, .max = 2100}};
constexpr OptionTable kGridTable{.path = "", .doc = "", .options = kGridKeys};
constexpr Option kFailureKeys[] = {{.name = "gpus", .type = kInteger, .min = 1, .max = 1e9},
                                   {.name = "days", .type = kNumber, .min = 1e-3, .max = 1e6}};
constexpr OptionTable kFailureTable{.path = "", .doc = "", .options = kFailureKeys};
constexpr Option kCount{.name = "count", .type = kNumber, .max = 1e9};

constexpr std::string_view kPowerNames[kPowerUses] = {"idle",          "tensor", "memory",
                                                      "communication", "server", "pue"};

std::string SourceOf(const formats::DataRow& row) {
  return fmt::format("{}", fmt::join(row.sources, "; "));
}

Result<Section> ReadRow(const formats::DataTable& table, const formats::DataRow& row,
                        const OptionTable& options, std::span<const std::string_view> others = {}) {
  ORRERY_ASSIGN_OR_RETURN(Section section,
                          Section::Read(table.document(), row.keys, options, others));
  for (const Option& option : options.options) {
    if (section.Has(option.name)) continue;
    return InvalidInput("{}:{}: the row '{}' needs {}", table.document().sources[row.keys.source],
                        row.line, Printable(row.name, 60), option.name);
  }
  return section;
}

// Calls add(row) for each row of a file that others see.
template <typename Add>
Status AddRows(std::string_view text, const std::string& file, formats::DataTable* table,
               const Add& add) {
  std::size_t next = table->rows().size();
  ORRERY_RETURN_IF_ERROR(table->Add(text, file));
  for (; next < table->rows().size(); ++next) {
    const formats::DataRow& row = table->rows()[next];
    if (!row.part()) ORRERY_RETURN_IF_ERROR(add(row));
  }
  return {};
}

Status AddCauses(const formats::DataTable& table, const Node* causes, bool hardware,
                 Failures* failures) {
  if (causes == nullptr) return {};
  if (causes->kind != Node::Kind::kMap) {
    return InvalidInput("{}: takes causes with their counts", table.document().Where(*causes));
  }
  for (const formats::Field& field : causes->fields) {
    Result<OptionValue> count = formats::ReadOption(kCount, field.value);
    if (!count.ok()) return std::move(count).TakeStatus().In(table.document().Where(field));
    failures->causes.push_back({field.key, std::get<double>(*count), hardware});
  }
  return {};
}

template <typename Row>
std::vector<std::string_view> NamesOf(const std::vector<Row>& rows, std::string Row::*name) {
  std::vector<std::string_view> names;
  for (const Row& row : rows) names.push_back(row.*name);
  return names;
}

}  // namespace

double Failures::gpu_hours() const {
  double count = 0;
  for (const Cause& cause : causes) count += cause.count;
  return count > 0 ? gpu_days * kHoursPerDay / count : 0;
}

double Failures::hardware_share() const {
  double all = 0, hardware = 0;
  for (const Cause& cause : causes) {
    all += cause.count;
    if (cause.hardware) hardware += cause.count;
  }
  return all > 0 ? hardware / all : 0;
}

const Tables& Tables::BuiltIn() {
  static const Tables tables = [] {
    Tables built_in;
    Status status = built_in.AddPrices(formats::Lines(kPricesText), "data/prices.yaml");
    if (status.ok()) status = built_in.AddPower(formats::Lines(kPowerText), "data/power.yaml");
    if (status.ok()) status = built_in.AddGrids(formats::Lines(kGridsText), "data/grids.yaml");
    if (status.ok()) {
      status = built_in.AddFailures(formats::Lines(kFailuresText), "data/failures.yaml");
    }
    ORRERY_CHECK(status.ok(), status.message().c_str());
    return built_in;
  }();
  return tables;
}

Status Tables::AddPrices(std::string_view text, const std::string& file) {
  return AddRows(text, file, &price_rows_, [&](const formats::DataRow& row) -> Status {
    ORRERY_ASSIGN_OR_RETURN(const Section section, ReadRow(price_rows_, row, kPriceTable));
    prices_.push_back(
        {row.name, section.Text("date"), SourceOf(row), section.Real("usd_per_gpu_hour")});
    return {};
  });
}

Status Tables::AddPower(std::string_view text, const std::string& file) {
  return AddRows(text, file, &power_rows_, [&](const formats::DataRow& row) -> Status {
    const auto at = std::find(std::begin(kPowerNames), std::end(kPowerNames), row.name);
    if (at == std::end(kPowerNames)) {
      return InvalidInput("{}:{}: {}", file, row.line,
                          UnknownName("power", Printable(row.name, 60), kPowerNames));
    }
    ORRERY_ASSIGN_OR_RETURN(const Section section, ReadRow(power_rows_, row, kPowerTable));
    power_[static_cast<std::size_t>(at - std::begin(kPowerNames))] = {section.Real("value"),
                                                                      SourceOf(row)};
    return {};
  });
}

Status Tables::AddGrids(std::string_view text, const std::string& file) {
  return AddRows(text, file, &grid_rows_, [&](const formats::DataRow& row) -> Status {
    ORRERY_ASSIGN_OR_RETURN(const Section section, ReadRow(grid_rows_, row, kGridTable));
    grids_.push_back({row.name, SourceOf(row), static_cast<int>(section.Integer("year")),
                      section.Real("carbon_intensity")});
    return {};
  });
}

Status Tables::AddFailures(std::string_view text, const std::string& file) {
  return AddRows(text, file, &failure_rows_, [&](const formats::DataRow& row) -> Status {
    constexpr std::string_view kCauses[] = {"hardware", "other"};
    ORRERY_ASSIGN_OR_RETURN(const Section section,
                            ReadRow(failure_rows_, row, kFailureTable, kCauses));
    Failures failures{
        .name = row.name,
        .description = row.description,
        .source = SourceOf(row),
        .gpu_days = static_cast<double>(section.Integer("gpus")) * section.Real("days"),
        .causes = {}};
    ORRERY_RETURN_IF_ERROR(AddCauses(failure_rows_, row.keys.Find("hardware"), true, &failures));
    ORRERY_RETURN_IF_ERROR(AddCauses(failure_rows_, row.keys.Find("other"), false, &failures));
    failures_.push_back(std::move(failures));
    return {};
  });
}

const Price* Tables::FindPrice(std::string_view device) const {
  const auto at = std::ranges::find(prices_, device, &Price::device);
  return at == prices_.end() ? nullptr : &*at;
}

Result<Grid> Tables::FindGrid(std::string_view region) const {
  const auto at = std::ranges::find(grids_, region, &Grid::region);
  if (at != grids_.end()) return *at;
  return InvalidInput("{}",
                      UnknownName("region", Printable(region, 60), NamesOf(grids_, &Grid::region)));
}

Result<Failures> Tables::FindFailures(std::string_view name) const {
  const auto at = std::ranges::find(failures_, name, &Failures::name);
  if (at != failures_.end()) return *at;
  return InvalidInput("{}", UnknownName("set of failures", Printable(name, 60),
                                        NamesOf(failures_, &Failures::name)));
}

}  // namespace orrery::campaign
