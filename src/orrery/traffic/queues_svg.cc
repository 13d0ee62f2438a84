#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "orrery/base/text.h"
#include "orrery/results/packets.h"
#include "orrery/traffic/report.h"
#include "orrery/traffic/svg.h"

namespace orrery::traffic {
namespace {

constexpr double kWidth = 920, kHeight = 480;
constexpr double kLeft = 70, kTop = 62, kRight = 620, kBottom = 420;
// Okabe and Ito's colours, told apart by colour-blind readers too.
constexpr std::array<std::string_view, 6> kColours = {"#0072B2", "#D55E00", "#009E73",
                                                      "#CC79A7", "#E69F00", "#56B4E9"};

std::string Grid(double most_us, double most_kb) {
  std::string out;
  for (double v = 0; v <= most_kb * 1.001; v += SvgStep(most_kb)) {
    const double y = kBottom - v / most_kb * (kBottom - kTop);
    out += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n",
        kLeft, y, kRight, y);
    out += SvgText(kLeft - 8, y + 4, "end", fmt::format("{:g}", v));
  }
  for (double v = 0; v <= most_us * 1.001; v += SvgStep(most_us)) {
    const double x = kLeft + v / most_us * (kRight - kLeft);
    out += SvgText(x, kBottom + 18, "middle", fmt::format("{:g}", v));
  }
  out += SvgText((kLeft + kRight) / 2, kBottom + 40, "middle", "time (us)");
  return out + fmt::format(
                   "<text x=\"18\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 18 "
                   "{0:.1f})\">data queued (kB), longest in each step</text>\n",
                   (kTop + kBottom) / 2);
}

}  // namespace

std::string QueuesSvg(const Heading& heading, const cluster::Cluster& cluster, const FlowRun& run) {
  std::vector<results::PacketLink> links = results::UseOfPackets(*run.packets, cluster).links;
  std::erase_if(links, [](const results::PacketLink& l) { return l.port.longest_queue == 0; });
  if (links.size() > kColours.size()) links.resize(kColours.size());
  const double most_us = std::max(ToSeconds(run.finish) * 1e6, 1e-3);
  double most_kb = 1;
  for (const results::PacketLink& link : links) {
    most_kb = std::max(most_kb, static_cast<double>(link.port.longest_queue) * 1e-3);
  }
  most_kb = SvgStep(most_kb) * std::ceil(most_kb / SvgStep(most_kb));
  std::string out = SvgHead(kWidth, kHeight);
  out += SvgText(kLeft, 24, "start",
                 fmt::format("Longest queues: {}, {} flows", heading.pattern, run.flows),
                 "font-size=\"15\" font-weight=\"bold\"");
  out += SvgText(kLeft, 43, "start", heading.cluster, "fill=\"#555555\"");
  out += Grid(most_us, most_kb);
  const double step_us = ToSeconds(run.queues.width()) * 1e6;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const auto steps = run.queues.of(links[i].link.index());
    std::string points;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const double y = kBottom - static_cast<double>(steps[s]) * 1e-3 / most_kb * (kBottom - kTop);
      const double x = kLeft + static_cast<double>(s) * step_us / most_us * (kRight - kLeft);
      points += fmt::format("{:.1f},{:.1f} ", std::min(x, kRight), y);
      points += fmt::format("{:.1f},{:.1f} ",
                            std::min(x + step_us / most_us * (kRight - kLeft), kRight), y);
    }
    out +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>\n",
                    points, kColours[i]);
    const network::PacketPort& p = links[i].port;
    const double y = kTop + 14 + 52 * static_cast<double>(i);
    out += SvgText(kRight + 16, y, "start", links[i].name,
                   fmt::format("fill=\"{}\" font-weight=\"bold\"", kColours[i]));
    out += SvgText(kRight + 16, y + 15, "start",
                   fmt::format("longest {}", HumanBytes(p.longest_queue)), "fill=\"#555555\"");
    out += SvgText(
        kRight + 16, y + 30, "start",
        fmt::format("{} marked, {} trimmed, paused {}", p.marks, p.trims, HumanTime(p.paused)),
        "fill=\"#555555\"");
  }
  return out + "</svg>\n";
}

}  // namespace orrery::traffic
