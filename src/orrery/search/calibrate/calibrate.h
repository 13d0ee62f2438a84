// `orrery calibrate`: moves the constants to what a user measured on a system of his own.
//
// In:  observations (durations with what predicts them under any constants).
// Out: the constants that explain them best, pulled towards the shipped ones by the spreads and
//      correlations that the shipped fit left (data/constants/covariance.csv): few observations
//      move little, and what they say nothing about stays.
//
// Minimised: sum of weight · Huber(ln(predicted/measured)/sigma) + 1/2 (u - u0)' C^-1 (u - u0), u
// in a-priori spreads, inside the ranges; Gauss-Newton with differences of half a spread. n
// observations of one system err together and count as n / (1 + 0.05 (n - 1)). Cost: as many
// predictions of all observations as constants in scope, a pass; three passes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/constants/constants.h"
#include "orrery/formats/csv.h"

namespace orrery::search {

struct Observations {
  std::vector<std::string> what;     // "all_reduce 1 MiB", for the report
  std::vector<std::string> kind;     // what its table sums up by: "all_reduce"
  std::vector<double> measured;      // seconds
  std::vector<double> sigma;         // how far a right model may be off each of them
  constants::Scope scope;            // which constants they may move
  std::vector<std::string> assumed;  // the fabric, and what was not stated
  // Predictions in the same order and unit, under these constants.
  std::function<Result<std::vector<double>>(const constants::Set&)> predict;
};

struct Calibration {
  std::string from;  // what it was made from, for the file
  std::vector<std::string> assumed;
  constants::Set before, after;
  std::vector<double> spread_before, spread_after;  // of each constant, in its unit
  std::vector<std::string> what, kind;
  std::vector<double> measured, predicted_before, predicted_after;  // seconds
};

// Fails where there is nothing to learn from, or nothing in scope.
Result<Calibration> Calibrate(const Observations& observations, const constants::Set& start);

// The calibration file, "orrery.calibration/1": every constant that moved, with value, spread and
// what it was.
std::string ToJson(const Calibration& calibration);
// Before, after and what remains, for people.
std::string ToText(const Calibration& calibration);
// A file of ToJson: the shipped constants with its values. Errors name file, constant and value.
Result<constants::Set> ReadCalibration(const std::string& path);

// nccl-tests' output as a table of collectives that `validate` reads. `collective` and `network`
// (such as "8x400Gb/s InfiniBand") add what the log does not say, and so do the hosts, all GPUs
// together and their kind where it lists no ranks; 0 and "": not given. Errors name the log's line.
struct NcclLogOptions {
  std::string collective, network, device;
  int nodes = 0, gpus = 0;
};
Result<std::string> NcclLogToCsv(std::string_view text, const std::string& name,
                                 const NcclLogOptions& options);

Result<Observations> ObserveCollectives(const formats::CsvTable& table);
// CSV files in the format of docs/formats/measured-kernels.md.
Result<Observations> ObserveKernels(const std::vector<std::string>& csv_paths);
// A job file and its measured step time.
Result<Observations> ObserveRun(const std::string& path, double step_time_s,
                                const std::string& measured_database);

}  // namespace orrery::search
