#include "orrery/job/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "orrery/base/file.h"
#include "orrery/base/hash.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::job {
namespace {

Status AddReleases(std::string_view text, const std::string& file, Data* data) {
  using collective::nccl::Releases;
  auto releases =
      std::make_shared<Releases>(data->nccl != nullptr ? *data->nccl : Releases::BuiltIn());
  ORRERY_RETURN_IF_ERROR(releases->Add(text, file));
  data->nccl = std::move(releases);
  return {};
}

// The files of a folder, in the order in which rows may refer to each other.
struct Table {
  std::string_view file;
  Status (*add)(std::string_view text, const std::string& file, Data* data);
};
constexpr Table kTables[] = {
    {"devices.yaml", [](std::string_view text, const std::string& file,
                        Data* data) { return data->clusters.AddDevices(text, file); }},
    {"clusters.yaml", [](std::string_view text, const std::string& file,
                         Data* data) { return data->clusters.AddClusters(text, file); }},
    {"models.yaml", [](std::string_view text, const std::string& file,
                       Data* data) { return data->models.Add(text, file); }},
    {"families.yaml", [](std::string_view text, const std::string& file,
                         Data* data) { return data->models.AddFamilies(text, file); }},
    {"config_keys.yaml", [](std::string_view text, const std::string& file,
                            Data* data) { return data->models.AddConfigKeys(text, file); }},
    // Of measured runs, not of jobs: `orrery validate --data` reads them (search/validate).
    {"columns.yaml", nullptr},
    {"release_recipes.yaml", nullptr},
    {"row_rules.yaml", nullptr},
    {"framework_names.yaml", nullptr},
    {"words.yaml", nullptr},
    {"model_names.yaml", nullptr},
    {"hosts.yaml", nullptr},
    {"fabrics.yaml", nullptr},
    {"frameworks.yaml", [](std::string_view text, const std::string& file,
                           Data* data) { return data->frameworks.Add(text, file); }},
    {"nccl.yaml", AddReleases},
    {"prices.yaml", [](std::string_view text, const std::string& file,
                       Data* data) { return data->campaign.AddPrices(text, file); }},
    {"grids.yaml", [](std::string_view text, const std::string& file,
                      Data* data) { return data->campaign.AddGrids(text, file); }},
    {"failures.yaml", [](std::string_view text, const std::string& file,
                         Data* data) { return data->campaign.AddFailures(text, file); }},
};

std::vector<std::string_view> TableNames() {
  std::vector<std::string_view> names;
  for (const Table& table : kTables) names.push_back(table.file);
  return names;
}

// A file of a name that no table has was surely meant to be read.
Status CheckNames(const std::string& folder) {
  const std::vector<std::string_view> names = TableNames();
  std::error_code error;
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    found.push_back(entry.path().filename().string());
  }
  if (error) {
    return InvalidInput("data: {}: {}; name a folder with tables such as {}", Printable(folder),
                        error.message(), fmt::join(names, ", "));
  }
  std::ranges::sort(found);
  bool any = false;
  for (const std::string& name : found) {
    if (std::ranges::find(names, name) != names.end()) {
      any = true;
    } else if (name.ends_with(".yaml") || name.ends_with(".yml")) {
      return InvalidInput("data: {}: {}", Printable(folder),
                          UnknownName("table", Printable(name, 60), names));
    }
  }
  if (any) return {};
  return InvalidInput("data: {}: holds no table; valid: {}", Printable(folder),
                      fmt::join(names, ", "));
}

}  // namespace

const Data& BuiltInData() {
  static const Data data;
  return data;
}

Result<std::shared_ptr<const Data>> ReadData(const Data& base, const std::string& folder) {
  constexpr std::int64_t kMostBytes = 4 << 20;
  ORRERY_RETURN_IF_ERROR(CheckNames(folder));
  auto data = std::make_shared<Data>(base);
  Hasher hash;
  hash.Add(base.hash);
  for (const Table& table : kTables) {
    const std::string path = fmt::format("{}/{}", folder, table.file);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
    if (table.add != nullptr) ORRERY_RETURN_IF_ERROR(table.add(text, path, data.get()));
    hash.Add(std::string_view(table.file)).Add(std::string_view(text));
  }
  data->folders.push_back(folder);
  data->hash = hash.value();
  return std::shared_ptr<const Data>(std::move(data));
}

Result<std::shared_ptr<const Data>> ReadData(std::span<const std::string> folders) {
  std::shared_ptr<const Data> data;
  for (const std::string& folder : folders) {
    ORRERY_ASSIGN_OR_RETURN(data, ReadData(data != nullptr ? *data : BuiltInData(), folder));
  }
  return data;
}

}  // namespace orrery::job
