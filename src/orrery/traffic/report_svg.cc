#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orrery/base/text.h"
#include "orrery/traffic/report.h"
#include "orrery/traffic/svg.h"

namespace orrery::traffic {
namespace {

constexpr double kWidth = 760, kHeight = 460;
constexpr double kLeft = 70, kTop = 58, kRight = 730, kBottom = 390;
// Okabe and Ito's blue and vermilion: told apart by colour-blind readers too.
constexpr std::string_view kPredicted = "#0072B2", kMeasured = "#D55E00";

struct Axes {
  double least_log = 0, most_log = 1;  // log2 of bytes
  double most_GBps = 1;
  double X(std::int64_t bytes) const {
    return kLeft + (std::log2(static_cast<double>(bytes)) - least_log) / (most_log - least_log) *
                       (kRight - kLeft);
  }
  double Y(double GBps) const { return kBottom - GBps / most_GBps * (kBottom - kTop); }
};

std::string Curve(const Axes& axes, const Sweep& sweep, bool measured) {
  const std::string_view colour = measured ? kMeasured : kPredicted;
  std::string path, dots;
  for (const SweepRow& row : sweep.rows) {
    if (measured && row.measured_us <= 0) continue;
    const double x = axes.X(row.bytes);
    const double y = axes.Y(measured ? row.measured_busbw_GBps : row.busbw_GBps);
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\"/>\n", x, y,
                        measured ? std::string_view("white") : colour);
    if (measured) {
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"none\" stroke=\"{}\"/>\n", x, y,
          colour);
    }
  }
  if (path.empty()) return "";
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                     path, colour, measured ? " stroke-dasharray=\"6 4\"" : "") +
         dots;
}

}  // namespace

std::string ReportSvg(const Heading& heading, const Sweep& sweep) {
  Axes axes;
  bool compared = false;
  for (const SweepRow& row : sweep.rows) {
    axes.most_GBps = std::max({axes.most_GBps, row.busbw_GBps, row.measured_busbw_GBps});
    compared = compared || row.measured_us > 0;
  }
  const double step = SvgStep(axes.most_GBps);
  axes.most_GBps = step * std::ceil(axes.most_GBps / step);
  axes.least_log = std::log2(static_cast<double>(sweep.rows.front().bytes));
  axes.most_log = std::log2(static_cast<double>(sweep.rows.back().bytes));
  if (axes.most_log <= axes.least_log) axes.most_log = axes.least_log + 1;
  std::string out = SvgHead(kWidth, kHeight);
  out += SvgText(
      kLeft, 24, "start",
      fmt::format("{} over {} GPUs, network {}", sweep.collective, sweep.gpus, heading.network),
      "font-size=\"15\" font-weight=\"bold\"");
  out += SvgText(kLeft, 43, "start", heading.cluster, "fill=\"#555555\"");
  for (double value = 0; value <= axes.most_GBps * 1.001; value += step) {
    out += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n",
        kLeft, axes.Y(value), kRight, axes.Y(value));
    out += SvgText(kLeft - 8, axes.Y(value) + 4, "end", fmt::format("{:g}", value));
  }
  // A mark at most every 60 px.
  double last = -1e9;
  for (const SweepRow& row : sweep.rows) {
    const double x = axes.X(row.bytes);
    if (x - last < 60) continue;
    last = x;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#eeeeee\"/>\n",
        x, kTop, kBottom);
    out += SvgText(x, kBottom + 18, "middle", HumanBytes(row.bytes));
  }
  out += SvgText((kLeft + kRight) / 2, kBottom + 38, "middle", "size");
  out += fmt::format(
      "<text x=\"18\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 18 "
      "{0:.1f})\">bus bandwidth (GB/s)</text>\n",
      (kTop + kBottom) / 2);
  out += Curve(axes, sweep, false);
  out += Curve(axes, sweep, true);
  out += SvgText(kLeft + 20, kBottom + 58, "start", "predicted",
                 fmt::format("fill=\"{}\"", kPredicted));
  if (compared) {
    out += SvgText(kLeft + 110, kBottom + 58, "start", "measured (dashed, open dots)",
                   fmt::format("fill=\"{}\"", kMeasured));
  }
  return out + "</svg>\n";
}

}  // namespace orrery::traffic
