#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orrery/base/text.h"
#include "orrery/traffic/report.h"
#include "orrery/traffic/svg.h"

namespace orrery::traffic {
namespace {

constexpr double kPlotWidth = 760, kPlotHeight = 460;
constexpr double kPlotLeft = 70, kPlotTop = 58, kPlotRight = 730, kPlotBottom = 390;
// Okabe and Ito's blue and vermilion: told apart by colour-blind readers too.
constexpr std::string_view kPredicted = "#0072B2", kMeasured = "#D55E00";

struct Axes {
  double least_log = 0, most_log = 1;  // log2 of bytes
  double most_GBps = 1;
  double X(std::int64_t bytes) const {
    return kPlotLeft + (std::log2(static_cast<double>(bytes)) - least_log) /
                           (most_log - least_log) * (kPlotRight - kPlotLeft);
  }
  double Y(double GBps) const { return kPlotBottom - GBps / most_GBps * (kPlotBottom - kPlotTop); }
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
  std::string out = SvgHead(kPlotWidth, kPlotHeight);
  out += SvgText(
      kPlotLeft, 24, "start",
      fmt::format("{} over {} GPUs, network {}", sweep.collective, sweep.gpus, heading.network),
      "font-size=\"15\" font-weight=\"bold\"");
  out += SvgText(kPlotLeft, 43, "start", heading.cluster, "fill=\"#555555\"");
  for (double value = 0; value <= axes.most_GBps * 1.001; value += step) {
    out += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n",
        kPlotLeft, axes.Y(value), kPlotRight, axes.Y(value));
    out += SvgText(kPlotLeft - 8, axes.Y(value) + 4, "end", fmt::format("{:g}", value));
  }
  // A mark at most every 60 px.
  double last = -1e9;
  for (const SweepRow& row : sweep.rows) {
    const double x = axes.X(row.bytes);
    if (x - last < 60) continue;
    last = x;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#eeeeee\"/>\n",
        x, kPlotTop, kPlotBottom);
    out += SvgText(x, kPlotBottom + 18, "middle", HumanBytes(row.bytes));
  }
  out += SvgText((kPlotLeft + kPlotRight) / 2, kPlotBottom + 38, "middle", "size");
  out += fmt::format(
      "<text x=\"18\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 18 "
      "{0:.1f})\">bus bandwidth (GB/s)</text>\n",
      (kPlotTop + kPlotBottom) / 2);
  out += Curve(axes, sweep, false);
  out += Curve(axes, sweep, true);
  out += SvgText(kPlotLeft + 20, kPlotBottom + 58, "start", "predicted",
                 fmt::format("fill=\"{}\"", kPredicted));
  if (compared) {
    out += SvgText(kPlotLeft + 110, kPlotBottom + 58, "start", "measured (dashed, open dots)",
                   fmt::format("fill=\"{}\"", kMeasured));
  }
  return out + "</svg>\n";
}

}  // namespace orrery::traffic
