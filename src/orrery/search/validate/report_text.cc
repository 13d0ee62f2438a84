#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/results/table.h"
#include "orrery/search/validate/report.h"

namespace orrery::search {
namespace {

constexpr std::size_t kWorst = 15;
constexpr std::size_t kReasons = 25;

std::string Percent(double value) { return fmt::format("{:.1f}", value); }

std::string GroupTable(const std::vector<ErrorSummary>& groups, std::string_view what,
                       std::string ErrorSummary::*name) {
  results::TextTable table;
  bool left_out = false;
  for (const ErrorSummary& g : groups) left_out |= g.left_out.rows > 0;
  std::vector<std::string> head = {
      std::string(what), "quantity",     "rows",   "predicted",        "coverage",
      "median |err| %",  "mean |err| %", "bias %", "in 80 % interval", "noise floor %"};
  if (left_out) head.insert(head.begin() + 8, {"left out: mean", "bias %"});
  table.Row(head);
  for (std::size_t column = 2; column < head.size(); ++column) table.AlignRight(column);
  for (const ErrorSummary& g : groups) {
    const bool any = g.errors.rows > 0;
    std::vector<std::string> row = {
        Printable(g.*name, 48),
        g.quantity,
        fmt::format("{}", g.rows),
        fmt::format("{}", g.predicted),
        fmt::format("{:.0f} %", g.coverage() * 100),
        any ? Percent(g.errors.median_abs_pct) : "-",
        any ? Percent(g.errors.mean_abs_pct) : "-",
        any ? fmt::format("{:+.1f}", g.errors.bias_pct) : "-",
        any ? fmt::format("{:.0f} %", g.in_interval * 100) : "-",
        g.repeated > 0 ? fmt::format("{} ({} rows)", Percent(g.noise_floor_pct), g.repeated) : "-"};
    const bool also = g.left_out.rows > 0;
    if (left_out) {
      row.insert(row.begin() + 8, {also ? Percent(g.left_out.mean_abs_pct) : "-",
                                   also ? fmt::format("{:+.1f}", g.left_out.bias_pct) : "-"});
    }
    table.Row(row);
  }
  return table.Render("  ");
}

// How many rows, the first of them, and the reason.
std::string ReasonTable(const Report& report) {
  struct Rows {
    std::size_t count = 0;
    std::string first;
  };
  std::map<std::string, Rows> reasons;
  for (const Prediction& p : report.rows) {
    if (!p.refused()) continue;
    Rows& rows = reasons[p.reason];
    if (rows.count++ == 0) rows.first = p.id;
  }
  if (reasons.empty()) return "";
  std::vector<std::pair<std::string, Rows>> order(reasons.begin(), reasons.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  results::TextTable table;
  table.Row({"rows", "first", "reason"});
  table.AlignRight(0);
  std::size_t rest = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i < kReasons) {
      const auto& [reason, rows] = order[i];
      table.Row({fmt::format("{}", rows.count),
                 Printable(rows.first, 32) + (rows.count > 1 ? ", …" : ""),
                 Printable(reason, 110)});
    } else {
      rest += order[i].second.count;
    }
  }
  if (rest > 0) {
    table.Row({fmt::format("{}", rest), "", "for other reasons; --json lists each row's"});
  }
  return "\nRefused, and why\n" + table.Render("  ");
}

std::string WorstTable(const Report& report) {
  std::vector<const Prediction*> worst;
  for (const Prediction& p : report.rows) {
    if (p.error_pct()) worst.push_back(&p);
  }
  if (worst.empty()) return "";
  std::stable_sort(worst.begin(), worst.end(), [](const Prediction* a, const Prediction* b) {
    return std::abs(*a->error_pct()) > std::abs(*b->error_pct());
  });
  worst.resize(std::min(worst.size(), kWorst));
  results::TextTable table;
  table.Row({"row", "stratum", "quantity", "measured", "predicted", "error %"});
  for (std::size_t column = 3; column <= 5; ++column) table.AlignRight(column);
  for (const Prediction* p : worst) {
    table.Row({Printable(p->id, 32), p->stratum, std::string(Name(p->quantity)),
               fmt::format("{:.4g}", *p->measured), fmt::format("{:.4g}", *p->predicted),
               fmt::format("{:+.1f}", *p->error_pct())});
  }
  return (worst.size() == 1 ? "\nThe worst row\n"
                            : fmt::format("\nThe worst {} rows\n", worst.size())) +
         table.Render("  ");
}

}  // namespace

std::string ReportToText(const Report& report) {
  std::size_t predicted = 0, unstated = 0;
  for (const Prediction& p : report.rows) {
    predicted += p.refused() ? 0 : 1;
    unstated += p.unstated() ? 1 : 0;
  }
  std::string out = fmt::format("{}: {} quantities asked for, {} predicted\n",
                                Printable(report.table), report.rows.size(), predicted);
  if (unstated > 0) {
    const std::size_t stated = report.rows.size() - unstated;
    out += fmt::format(
        "{} state no whole plan (a column that the run needs is blank); of the others {} are "
        "predicted, {:.1f} %\n",
        unstated, predicted,
        100.0 * static_cast<double>(predicted) /
            static_cast<double>(std::max<std::size_t>(stated, 1)));
  }
  if (report.kind == TableKind::kTraining) {
    out += fmt::format("kernel times {}\n", report.measured_kernels
                                                ? "measured where the tables have them"
                                                : "from models alone");
  }
  out += "\nPer stratum\n" + GroupTable(report.by_stratum, "stratum", &ErrorSummary::stratum);
  out += "\nPer source\n" + GroupTable(report.by_source, "source", &ErrorSummary::label);
  out += ReasonTable(report);
  out += WorstTable(report);
  return out;
}

}  // namespace orrery::search
