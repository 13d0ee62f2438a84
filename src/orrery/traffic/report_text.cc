#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orrery/base/text.h"
#include "orrery/results/packets.h"
#include "orrery/results/table.h"
#include "orrery/traffic/report.h"

namespace orrery::traffic {
namespace {

constexpr std::size_t kWorstShown = 5;

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string Count(std::size_t n) { return HumanCount(static_cast<std::int64_t>(n)); }

std::string Head(const Heading& heading) {
  return fmt::format("{} on {}, network {}, seed {}\n\n", Printable(heading.pattern, 60),
                     heading.cluster, heading.network, heading.seed);
}

std::string Assumed(const Heading& heading) {
  std::string text;
  for (const std::string& what : heading.assumed) text += "  assumed: " + what + "\n";
  return text.empty() ? text : "\n" + text;
}

template <class Format>
std::vector<std::string> SpreadRow(const std::string& name, const Spread& spread, Format format) {
  return {name, format(spread.mean), format(spread.p50), format(spread.p99), format(spread.most)};
}

std::string Times(double value) { return fmt::format("{:.2f}x", value); }

// Bytes over what the link can carry until `finish`.
double Utilisation(const cluster::Cluster& cluster,
                   const std::vector<network::PortStatistics>& links, std::size_t link,
                   SimTime finish) {
  const auto rate = static_cast<double>(cluster.links()[link].bandwidth_Bps);
  const double carried = rate * ToSeconds(std::max<SimTime>(finish, 1));
  return rate > 0 ? static_cast<double>(links[link].bytes) / carried : 0;
}

// What network packet saw, and the flows that suffered.
std::string Packets(const cluster::Cluster& cluster, const FlowRun& run) {
  std::string text =
      fmt::format("\n{}\n", results::PacketsText(results::UseOfPackets(*run.packets, cluster)));
  results::TextTable slow;
  slow.Row({"flows that suffered", "size", "took", "slowdown"});
  for (std::size_t column = 1; column < 4; ++column) slow.AlignRight(column);
  for (std::size_t i = 0; i < std::min(kWorstShown, run.slowest.size()); ++i) {
    const SlowFlow& f = run.slowest[i];
    slow.Row({fmt::format("GPU {} to {}", f.from.index(), f.to.index()), HumanBytes(f.bytes),
              HumanTime(f.completion), Times(f.slowdown)});
  }
  return text + slow.Render("  ");
}

}  // namespace

std::vector<LinkClass> LinkClasses(const cluster::Cluster& cluster,
                                   const std::vector<network::PortStatistics>& links,
                                   SimTime finish) {
  std::vector<LinkClass> classes;
  const auto total = static_cast<double>(std::max<SimTime>(finish, 1));
  for (std::size_t l = 0; l < links.size(); ++l) {
    const std::string name(cluster::Name(cluster.links()[l].kind));
    auto c = std::find_if(classes.begin(), classes.end(),
                          [&](const LinkClass& known) { return known.name == name; });
    if (c == classes.end()) {
      classes.push_back({.name = name});
      c = classes.end() - 1;
    }
    const double share = Utilisation(cluster, links, l, finish);
    ++c->links;
    c->used += links[l].bytes > 0 ? 1 : 0;
    c->bytes += links[l].bytes;
    c->busy_share += static_cast<double>(links[l].busy) / total;
    c->most_busy = std::max(c->most_busy, static_cast<double>(links[l].busy) / total);
    c->utilisation += share;
    if (c->links == 1 || share > c->most_used) {
      c->most_used = share;
      c->busiest = LinkId(l);
    }
  }
  for (LinkClass& c : classes) {
    c.busy_share /= static_cast<double>(c.links);
    c.utilisation /= static_cast<double>(c.links);
  }
  return classes;
}

std::vector<LinkUse> WorstLinks(const cluster::Cluster& cluster,
                                const std::vector<network::PortStatistics>& links, SimTime finish,
                                std::size_t count) {
  std::vector<LinkUse> worst;
  for (std::size_t l = 0; l < links.size(); ++l) {
    if (links[l].bytes == 0) continue;
    worst.push_back(
        {LinkId(l), links[l].bytes, links[l].busy, Utilisation(cluster, links, l, finish)});
  }
  const std::size_t kept = std::min(count, worst.size());
  std::partial_sort(worst.begin(), worst.begin() + static_cast<std::ptrdiff_t>(kept), worst.end(),
                    [](const LinkUse& a, const LinkUse& b) {
                      if (a.utilisation != b.utilisation) return a.utilisation > b.utilisation;
                      return a.bytes != b.bytes ? a.bytes > b.bytes : a.link < b.link;
                    });
  worst.resize(kept);
  return worst;
}

namespace {

// Utilisation of links, by kind and of the most used.
std::string Links(const cluster::Cluster& cluster, const FlowRun& run) {
  results::TextTable links;
  links.Row({"links", "used", "bytes", "utilisation", "most", ""});
  for (std::size_t column = 1; column < 5; ++column) links.AlignRight(column);
  for (const LinkClass& c : LinkClasses(cluster, run.links, run.finish)) {
    links.Row({c.name, fmt::format("{} of {}", Count(c.used), Count(c.links)), HumanBytes(c.bytes),
               Percent(c.utilisation), Percent(c.most_used),
               c.used > 0 ? cluster.link_name(c.busiest) : ""});
  }
  std::string text = links.Render("  ") + "\n";
  results::TextTable worst;
  worst.Row({"worst links", "utilisation", "bytes"});
  for (std::size_t column = 1; column < 3; ++column) worst.AlignRight(column);
  for (const LinkUse& use : WorstLinks(cluster, run.links, run.finish, kWorstShown)) {
    worst.Row({cluster.link_name(use.link), Percent(use.utilisation), HumanBytes(use.bytes)});
  }
  return text + worst.Render("  ");
}

}  // namespace

std::string ReportText(const Heading& heading, const cluster::Cluster& cluster,
                       const FlowRun& run) {
  std::string text = Head(heading);
  text += fmt::format("  {} flows, {} in {}: {:.2f} GB/s together\n\n", Count(run.flows),
                      HumanBytes(run.bytes), HumanTime(run.finish),
                      static_cast<double>(run.bytes) / ToSeconds(run.finish) * 1e-9);
  results::TextTable table;
  table.Row({"", "mean", "p50", "p99", "longest"});
  for (std::size_t column = 1; column < 5; ++column) table.AlignRight(column);
  table.Row(SpreadRow("completion time", run.completion_s, HumanSeconds));
  table.Row(SpreadRow("slowdown against an idle network", run.slowdown, Times));
  for (const SizeClass& c : run.sizes) {
    const std::string name = c.up_to > (std::int64_t{1} << 60)
                                 ? std::string("longer")
                                 : fmt::format("up to {} kB", HumanCount(c.up_to / 1000));
    table.Row(SpreadRow(fmt::format("  {} ({} flows)", name, Count(c.flows)), c.slowdown, Times));
  }
  text += table.Render("  ") + "\n";
  const bool seen = std::ranges::any_of(run.links, [](const auto& l) { return l.bytes > 0; });
  text +=
      seen ? Links(cluster, run) : fmt::format("  network {} reports no links\n", heading.network);
  if (run.packets) text += Packets(cluster, run);
  text += Assumed(heading);
  return text + fmt::format("\n  fingerprint {:016x}\n", run.fingerprint);
}

std::string ReportText(const Heading& heading, const Sweep& sweep) {
  std::string text = Head(heading);
  const bool compared = std::any_of(sweep.rows.begin(), sweep.rows.end(),
                                    [](const SweepRow& row) { return row.measured_us > 0; });
  results::TextTable table;
  std::vector<std::string> head = {"size (B)", "time (us)", "algbw (GB/s)", "busbw (GB/s)"};
  if (compared) head.insert(head.end(), {"measured (us)", "busbw (GB/s)", "error"});
  head.push_back("plan");
  for (std::size_t column = 0; column + 1 < head.size(); ++column) table.AlignRight(column);
  table.Row(head);
  double sum = 0;
  std::size_t rows = 0;
  for (const SweepRow& row : sweep.rows) {
    std::vector<std::string> cells = {
        HumanCount(row.bytes), fmt::format("{:.2f}", ToSeconds(row.time) * 1e6),
        fmt::format("{:.2f}", row.algbw_GBps), fmt::format("{:.2f}", row.busbw_GBps)};
    if (compared && row.measured_us > 0) {
      cells.insert(cells.end(), {fmt::format("{:.2f}", row.measured_us),
                                 fmt::format("{:.2f}", row.measured_busbw_GBps),
                                 fmt::format("{:+.1f} %", 100 * row.error())});
      sum += std::abs(row.error());
      ++rows;
    } else if (compared) {
      cells.insert(cells.end(), {"", "", ""});
    }
    std::string plan = row.plan;
    if (!row.instead_of.empty()) plan += fmt::format(" (NCCL: {})", row.instead_of);
    if (!row.note.empty()) plan += fmt::format(" ({})", row.note);
    cells.push_back(std::move(plan));
    table.Row(std::move(cells));
  }
  text += table.Render("  ");
  if (rows > 0) {
    text += fmt::format("\n  mean absolute error {:.1f} % over {} size{}\n",
                        100 * sum / static_cast<double>(rows), rows, rows == 1 ? "" : "s");
  }
  return text + Assumed(heading) + fmt::format("\n  fingerprint {:016x}\n", sweep.fingerprint);
}

}  // namespace orrery::traffic
