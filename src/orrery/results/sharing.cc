#include "orrery/results/sharing.h"

#include <fmt/format.h>

#include "orrery/base/text.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

std::string Factor(double slowdown) {
  return slowdown > 0 ? fmt::format("{:.3f}", slowdown) : std::string("-");
}

std::string_view TimeHeading(const Sharing& sharing) { return sharing.steps ? "step" : "time"; }

}  // namespace

double SharingRow::slowdown() const {
  if (!alone || *alone <= 0 || time <= 0) return 0;
  return static_cast<double>(time) / static_cast<double>(*alone);
}

double Sharing::jain_index() const {
  double sum = 0, squares = 0;
  int n = 0;
  for (const SharingRow& row : rows) {
    const double slowdown = row.slowdown();
    if (slowdown <= 0) continue;
    const double progress = 1 / slowdown;
    sum += progress;
    squares += progress * progress;
    ++n;
  }
  return n == 0 ? 0 : sum * sum / (n * squares);
}

std::string SharingSummary(const Sharing& sharing) {
  const SharingRow* worst = nullptr;
  for (const SharingRow& row : sharing.rows) {
    if (worst == nullptr || row.slowdown() > worst->slowdown()) worst = &row;
  }
  if (worst == nullptr || worst->slowdown() <= 0) return {};
  if (worst->slowdown() < 1.0005) return "No job takes longer beside the others than alone.";
  return fmt::format("{} is slowed most: {:.1f} % longer than alone. Jain's index is {:.3f}.",
                     Printable(worst->name, 40), (worst->slowdown() - 1) * 100,
                     sharing.jain_index());
}

std::string SharingText(const Sharing& sharing) {
  TextTable table;
  std::vector<std::string> heading = {"job", "kind", "ranks", "hosts", "placement"};
  if (!sharing.steps) heading.insert(heading.end(), {"start", "end", "runs"});
  heading.insert(heading.end(), {std::string(TimeHeading(sharing)), "alone", "slowdown"});
  const std::size_t columns = heading.size();
  table.Row(std::move(heading));
  for (const SharingRow& row : sharing.rows) {
    std::vector<std::string> cells = {Printable(row.name, 24), row.kind, HumanCount(row.ranks),
                                      HumanCount(row.hosts), row.placement};
    if (!sharing.steps) {
      cells.push_back(HumanTime(row.start));
      cells.push_back(row.background ? "background" : HumanTime(row.end));
      cells.push_back(HumanCount(row.iterations));
    }
    cells.push_back(row.time > 0 ? HumanTime(row.time) : "-");
    cells.push_back(row.alone ? HumanTime(*row.alone) : "-");
    cells.push_back(Factor(row.slowdown()));
    table.Row(std::move(cells));
  }
  for (std::size_t i = 2; i < columns; ++i) {
    if (i != 4) table.AlignRight(i);
  }
  std::string text = table.Render("  ");
  if (!sharing.matrix.empty()) {
    text +=
        "\n  Who slows whom: time of the job in the row with only the job in the column beside "
        "it, over\n  its time alone\n";
    TextTable matrix;
    std::vector<std::string> names = {""};
    for (const SharingRow& row : sharing.rows) names.push_back(Printable(row.name, 16));
    matrix.Row(std::move(names));
    for (std::size_t i = 0; i < sharing.rows.size(); ++i) {
      std::vector<std::string> cells = {Printable(sharing.rows[i].name, 24)};
      for (const double one : sharing.matrix[i]) cells.push_back(Factor(one));
      matrix.Row(std::move(cells));
    }
    for (std::size_t i = 1; i <= sharing.rows.size(); ++i) matrix.AlignRight(i);
    text += matrix.Render("  ");
  }
  for (const SharingRow& row : sharing.rows) {
    if (!row.requests) continue;
    text +=
        fmt::format("\n  Requests of {}\n{}", Printable(row.name, 40), RequestsText(*row.requests));
    if (!row.requests_alone) continue;
    text += fmt::format("\n  Requests of {} alone\n{}", Printable(row.name, 40),
                        RequestsText(*row.requests_alone));
  }
  text += fmt::format("\n  Runs: 1 together, {} alone, {} of pairs beside these.{}{}\n",
                      sharing.runs_alone, sharing.runs_of_pairs,
                      sharing.no_matrix_because.empty() ? "" : " ", sharing.no_matrix_because);
  return text;
}

}  // namespace orrery::results
