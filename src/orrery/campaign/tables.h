// What prices, power, electricity and failures are known: data/prices.yaml, power.yaml, grids.yaml
// and failures.yaml, and the files that a user adds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rows.h"

namespace orrery::campaign {

struct Price {
  std::string device, date, source;
  double usd_per_gpu_hour = 0;
};

struct Grid {
  std::string region, source;
  int year = 0;
  double g_per_kwh = 0;
};

// What a row of power.yaml is for.
enum class PowerUse : std::uint8_t { kIdle, kTensor, kMemory, kCommunication, kServer, kPue };
inline constexpr std::size_t kPowerUses = 6;
struct Power {
  double value = 0;
  std::string source;
};

struct Cause {
  std::string name;
  double count = 0;
  bool hardware = false;  // takes a node out
};
struct Failures {
  std::string name, description, source;
  double gpu_days = 0;  // that were watched
  std::vector<Cause> causes;

  // Mean of one GPU between interruptions; 0 where nothing fails.
  double gpu_hours() const;
  double hardware_share() const;  // 0 where nothing fails
};

class Tables {
 public:
  static const Tables& BuiltIn();

  // `file` stands for the text in errors.
  Status AddPrices(std::string_view text, const std::string& file);
  Status AddPower(std::string_view text, const std::string& file);
  Status AddGrids(std::string_view text, const std::string& file);
  Status AddFailures(std::string_view text, const std::string& file);

  const Price* FindPrice(std::string_view device) const;  // null: not known
  const Power& Of(PowerUse use) const { return power_[static_cast<std::size_t>(use)]; }
  // An unknown name lists the nearest valid ones.
  Result<Grid> FindGrid(std::string_view region) const;
  Result<Failures> FindFailures(std::string_view name) const;
  const std::vector<Price>& prices() const { return prices_; }
  const std::vector<Failures>& failures() const { return failures_; }

 private:
  formats::DataTable price_rows_{"price"}, power_rows_{"power"}, grid_rows_{"grid"},
      failure_rows_{"set of failures"};
  std::vector<Price> prices_;
  std::array<Power, kPowerUses> power_;
  std::vector<Grid> grids_;
  std::vector<Failures> failures_;
};

}  // namespace orrery::campaign
