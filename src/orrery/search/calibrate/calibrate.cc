#include "orrery/search/calibrate/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "orrery/base/check.h"
#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/results/table.h"

namespace orrery::search {
namespace {

using constants::Definitions;
using constants::kCount;
using Matrix = std::vector<double>;  // n x n, rows one after the other

constexpr double kStep = 0.5;           // of a difference, in a-priori spreads
constexpr double kHuber = 1.5;          // sigmas up to which an error counts by its square
constexpr double kCorrelation = 0.05;   // between the errors of two observations of one system
constexpr int kPasses = 3;              // each predicts anew around the point of the last
constexpr int kRounds = 10;             // of a pass: Huber's weights at the point so far
constexpr int kSweeps = 500;            // over the coordinates of a round, at most
constexpr double kStill = 1e-9;         // spreads: a sweep that moves none further is the last
constexpr std::size_t kRemaining = 10;  // observations that the report names
constexpr double kMoved = 0.01;         // spreads from which on a constant has moved

// Inverse of a symmetric positive definite matrix, by Gauss-Jordan: O(n^3), n <= kCount.
Matrix Inverse(Matrix a, std::size_t n) {
  Matrix inverse(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) inverse[i * n + i] = 1;
  for (std::size_t i = 0; i < n; ++i) {
    const double pivot = a[i * n + i];
    ORRERY_CHECK(pivot > 0, "a covariance is positive definite");
    for (std::size_t j = 0; j < n; ++j) {
      a[i * n + j] /= pivot;
      inverse[i * n + j] /= pivot;
    }
    for (std::size_t r = 0; r < n; ++r) {
      const double f = a[r * n + i];
      if (r == i || f == 0) continue;
      for (std::size_t j = 0; j < n; ++j) {
        a[r * n + j] -= f * a[i * n + j];
        inverse[r * n + j] -= f * inverse[i * n + j];
      }
    }
  }
  return inverse;
}

std::vector<double> LogErrors(const std::vector<double>& predicted,
                              const std::vector<double>& measured) {
  std::vector<double> errors(predicted.size());
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] = std::log(predicted[i] / measured[i]);
  return errors;
}

// The constants that may move, and the problem around a point in units of their spreads.
class Solver {
 public:
  Solver(const Observations& o, const constants::Set& start) : o_(o), start_(start) {
    for (std::size_t c = 0; c < kCount; ++c) {
      if (o.scope.Covers(Definitions()[c].scope)) free_.push_back(c);
    }
    const std::size_t n = free_.size();
    Matrix covariance(n * n);
    const auto known = constants::Covariance();
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        covariance[i * n + j] = known[free_[i] * kCount + free_[j]];
      }
    }
    precision_ = Inverse(std::move(covariance), n);
    x_.assign(n, 0.0);
    const auto rows = static_cast<double>(o.measured.size());
    weight_ = 1 / (1 + kCorrelation * (rows - 1));
  }

  constants::Set At(const std::vector<double>& x) const {
    constants::Set set = start_;
    for (std::size_t i = 0; i < free_.size(); ++i) {
      const constants::Definition& d = Definitions()[free_[i]];
      set.set(free_[i], std::clamp(start_.at(free_[i]) + x[i] * d.spread, d.low, d.high));
    }
    return set;
  }

  Status Pass() {
    ORRERY_ASSIGN_OR_RETURN(const std::vector<double> base, o_.predict(At(x_)));
    const std::vector<double> errors = LogErrors(base, o_.measured);
    const std::size_t n = free_.size(), rows = errors.size();
    jacobian_.assign(rows * n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const constants::Definition& d = Definitions()[free_[i]];
      std::vector<double> moved = x_;
      moved[i] += start_.at(free_[i]) + (x_[i] + kStep) * d.spread <= d.high ? kStep : -kStep;
      ORRERY_ASSIGN_OR_RETURN(const std::vector<double> there, o_.predict(At(moved)));
      for (std::size_t r = 0; r < rows; ++r) {
        jacobian_[r * n + i] = std::log(there[r] / base[r]) / (moved[i] - x_[i]);
      }
    }
    Solve(errors);
    return {};
  }

  constants::Set set() const { return At(x_); }
  // Of each free constant, in spreads, before and after.
  double before(std::size_t i) const {
    return std::sqrt(constants::Covariance()[free_[i] * kCount + free_[i]]);
  }
  double after(std::size_t i) const { return std::sqrt(posterior_[i * free_.size() + i]); }
  const std::vector<std::size_t>& free() const { return free_; }

 private:
  void Solve(const std::vector<double>& errors) {
    const std::size_t n = free_.size();
    std::vector<double> x = x_;
    for (int round = 0; round < kRounds; ++round) {
      Matrix a = precision_;
      std::vector<double> b(n, 0.0);  // a x = b
      for (std::size_t r = 0; r < errors.size(); ++r) {
        const double* j = &jacobian_[r * n];
        double here = errors[r], target = -errors[r];
        for (std::size_t i = 0; i < n; ++i) {
          here += j[i] * (x[i] - x_[i]);
          target += j[i] * x_[i];
        }
        const double sigma = o_.sigma[r];
        const double z = std::abs(here) / sigma;
        const double w = weight_ / (sigma * sigma) * (z <= kHuber ? 1 : kHuber / z);
        for (std::size_t i = 0; i < n; ++i) {
          b[i] += w * j[i] * target;
          for (std::size_t k = 0; k < n; ++k) a[i * n + k] += w * j[i] * j[k];
        }
      }
      Project(a, b, &x);
      posterior_ = Inverse(a, n);
    }
    x_ = std::move(x);
  }

  // min 1/2 x'ax - b'x inside the ranges, by coordinates.
  void Project(const Matrix& a, const std::vector<double>& b, std::vector<double>* x) const {
    const std::size_t n = free_.size();
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      double moved = 0;
      for (std::size_t i = 0; i < n; ++i) {
        double gradient = b[i];
        for (std::size_t k = 0; k < n; ++k) gradient -= a[i * n + k] * (*x)[k];
        const constants::Definition& d = Definitions()[free_[i]];
        const double at = start_.at(free_[i]);
        const double to = std::clamp((*x)[i] + gradient / a[i * n + i], (d.low - at) / d.spread,
                                     (d.high - at) / d.spread);
        moved = std::max(moved, std::abs(to - (*x)[i]));
        (*x)[i] = to;
      }
      if (moved < kStill) return;
    }
  }

  const Observations& o_;
  const constants::Set start_;
  std::vector<std::size_t> free_;
  Matrix precision_, posterior_, jacobian_;
  std::vector<double> x_;
  double weight_ = 1;
};

double MeanAbsolute(const std::vector<double>& predicted, const std::vector<double>& measured) {
  double sum = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) sum += std::abs(predicted[i] / measured[i] - 1);
  return sum / static_cast<double>(measured.size()) * 100;
}

bool Moved(const Calibration& c, std::size_t i) {
  return std::abs(c.after.at(i) - c.before.at(i)) > kMoved * Definitions()[i].spread;
}

// "The same" is of the constant above in the table, which may not stand in the report: named.
std::string Explains(std::size_t i) {
  constexpr std::string_view kSame = "the same";
  const std::string_view text = Definitions()[i].explains;
  if (!text.starts_with(kSame)) return std::string(text);
  std::size_t above = i;
  while (above > 0 && Definitions()[above].explains.starts_with(kSame)) --above;
  return fmt::format("as {}{}", Definitions()[above].name, text.substr(kSame.size()));
}

std::string Microseconds(double seconds) {
  const double us = seconds * 1e6;
  return us < 1e4 ? fmt::format("{:.4g}", us) : HumanCount(std::llround(us));
}

// Of each constant that moved: value and spread, before and after.
std::string MovedConstants(const Calibration& c) {
  results::TextTable table;
  table.Row({"constant", "was", "is", "unit", "explains"});
  table.AlignRight(1);
  table.AlignRight(2);
  bool any = false;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (!Moved(c, i)) continue;
    any = true;
    const constants::Definition& d = Definitions()[i];
    table.Row({std::string(d.name),
               fmt::format("{:.4g} ± {:.2g}", c.before.at(i), c.spread_before[i]),
               fmt::format("{:.4g} ± {:.2g}", c.after.at(i), c.spread_after[i]),
               std::string(d.unit), Printable(Explains(i), 70)});
  }
  return any ? table.Render("  ")
             : "  no constant moved: the observations are explained as they are\n";
}

// Errors by kind of observation, in the order in which kinds first stand.
std::string ByKind(const Calibration& c) {
  std::vector<std::string> kinds;
  for (const std::string& kind : c.kind) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  if (kinds.size() < 2) return "";
  results::TextTable table;
  table.Row({"kind", "rows", "mean |err| % before", "bias %", "mean |err| % after", "bias %"});
  for (std::size_t column = 1; column <= 5; ++column) table.AlignRight(column);
  for (const std::string& kind : kinds) {
    std::vector<double> before, after, measured;
    double bias_before = 0, bias_after = 0;
    for (std::size_t i = 0; i < c.kind.size(); ++i) {
      if (c.kind[i] != kind) continue;
      before.push_back(c.predicted_before[i]);
      after.push_back(c.predicted_after[i]);
      measured.push_back(c.measured[i]);
      bias_before += before.back() / measured.back() - 1;
      bias_after += after.back() / measured.back() - 1;
    }
    const auto rows = static_cast<double>(measured.size());
    table.Row({Printable(kind, 40), fmt::format("{}", measured.size()),
               fmt::format("{:.1f}", MeanAbsolute(before, measured)),
               fmt::format("{:+.1f}", 100 * bias_before / rows),
               fmt::format("{:.1f}", MeanAbsolute(after, measured)),
               fmt::format("{:+.1f}", 100 * bias_after / rows)});
  }
  return table.Render("  ") + "\n";
}

// The observations that the calibrated constants explain worst.
std::string WhatRemains(const Calibration& c) {
  std::vector<std::size_t> order(c.measured.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto left = [&](std::size_t i) {
    return std::abs(std::log(c.predicted_after[i] / c.measured[i]));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return left(a) > left(b); });
  order.resize(std::min(order.size(), kRemaining));
  results::TextTable table;
  table.Row({"what remains, largest first", "measured us", "before %", "after %"});
  for (std::size_t column = 1; column <= 3; ++column) table.AlignRight(column);
  const auto error = [&](double predicted, std::size_t i) {
    return fmt::format("{:+.1f}", (predicted / c.measured[i] - 1) * 100);
  };
  for (const std::size_t i : order) {
    table.Row({Printable(c.what[i], 60), Microseconds(c.measured[i]),
               error(c.predicted_before[i], i), error(c.predicted_after[i], i)});
  }
  return table.Render("  ");
}

}  // namespace

Result<Calibration> Calibrate(const Observations& o, const constants::Set& start) {
  if (o.measured.empty()) return InvalidInput("nothing was measured: no row to calibrate with");
  ORRERY_CHECK(o.sigma.size() == o.measured.size(), "every observation has its sigma");
  Solver solver(o, start);
  Calibration out;
  out.before = start;
  out.assumed = o.assumed;
  out.what = o.what;
  out.kind = o.kind;
  out.measured = o.measured;
  ORRERY_ASSIGN_OR_RETURN(out.predicted_before, o.predict(start));
  for (int pass = 0; pass < kPasses; ++pass) ORRERY_RETURN_IF_ERROR(solver.Pass());
  out.after = solver.set();
  ORRERY_ASSIGN_OR_RETURN(out.predicted_after, o.predict(out.after));
  for (const constants::Definition& d : Definitions()) out.spread_before.push_back(d.fitted_spread);
  out.spread_after = out.spread_before;
  for (std::size_t i = 0; i < solver.free().size(); ++i) {
    const std::size_t c = solver.free()[i];
    out.spread_before[c] = solver.before(i) * Definitions()[c].spread;
    out.spread_after[c] = solver.after(i) * Definitions()[c].spread;
  }
  return out;
}

std::string ToJson(const Calibration& c) {
  nlohmann::ordered_json document;
  document["schema"] = "orrery.calibration/1";
  document["from"] = c.from;
  document["assumed"] = c.assumed;
  document["observations"] = c.measured.size();
  document["mean_abs_error_pct"] = {{"before", MeanAbsolute(c.predicted_before, c.measured)},
                                    {"after", MeanAbsolute(c.predicted_after, c.measured)}};
  if (c.measured.size() == 1) {
    document["measured_s"] = c.measured.front();
    document["predicted_s"] = {{"before", c.predicted_before.front()},
                               {"after", c.predicted_after.front()}};
  }
  document["constants"] = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kCount; ++i) {
    if (!Moved(c, i)) continue;
    document["constants"][std::string(Definitions()[i].name)] = {{"value", c.after.at(i)},
                                                                 {"spread", c.spread_after[i]},
                                                                 {"was", c.before.at(i)},
                                                                 {"unit", Definitions()[i].unit}};
  }
  return document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string ToText(const Calibration& c) {
  std::string out = fmt::format("calibrated from {}: {} observation{}\n", Printable(c.from, 120),
                                c.measured.size(), c.measured.size() == 1 ? "" : "s");
  for (const std::string& text : c.assumed)
    out += fmt::format("assumed: {}\n", Printable(text, 120));
  out += fmt::format("mean |error| {:.1f} % before, {:.1f} % after\n\n",
                     MeanAbsolute(c.predicted_before, c.measured),
                     MeanAbsolute(c.predicted_after, c.measured));
  return out + MovedConstants(c) + "\n" + ByKind(c) + WhatRemains(c);
}

Result<constants::Set> ReadCalibration(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 1 << 20));
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded() || !document.is_object() || !document.contains("schema") ||
      document["schema"] != "orrery.calibration/1" || !document.contains("constants") ||
      !document["constants"].is_object()) {
    return InvalidInput(
        "{}: no calibration file (schema orrery.calibration/1); orrery calibrate "
        "writes one",
        Printable(path));
  }
  constants::Set set = constants::Set::Fitted();
  for (const auto& [name, entry] : document["constants"].items()) {
    const std::size_t id = constants::Find(name);
    if (id == kCount) {
      std::vector<std::string_view> names;
      for (const constants::Definition& d : Definitions()) names.push_back(d.name);
      return InvalidInput("{}: {}", Printable(path), UnknownName("constant", name, names));
    }
    const constants::Definition& d = Definitions()[id];
    if (!entry.is_object() || !entry.contains("value") || !entry["value"].is_number()) {
      return InvalidInput("{}: constants.{}: value is missing or no number", Printable(path), name);
    }
    const double value = entry["value"].get<double>();
    if (!(value >= d.low && value <= d.high)) {
      return InvalidInput("{}: constants.{}: {} is outside {} to {}{}{}", Printable(path), name,
                          value, d.low, d.high, d.unit.empty() ? "" : " ", d.unit);
    }
    set.set(id, value);
  }
  return set;
}

}  // namespace orrery::search
