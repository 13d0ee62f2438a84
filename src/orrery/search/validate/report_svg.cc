#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "orrery/base/text.h"
#include "orrery/search/validate/report.h"

namespace orrery::search {
namespace {

constexpr double kWidth = 1250;
constexpr double kTop = 64, kLeft = 76, kSide = 470;  // the scatter: a square
constexpr double kStrip = 850, kStripWidth = 340;     // the strips: errors of a source
constexpr double kRow = 20;
constexpr double kShown = 100;  // per cent at the strips' ends
// Okabe and Ito's colours, told apart by colour-blind readers too, and some more.
constexpr std::array<std::string_view, 12> kColours = {"#0072B2", "#E69F00", "#009E73", "#D55E00",
                                                       "#CC79A7", "#56B4E9", "#8C8C00", "#444444",
                                                       "#7B3294", "#A6761D", "#1B9E9E", "#E7298A"};

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : Printable(text)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

class Picture {
 public:
  explicit Picture(double height) {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
        "viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kWidth, height, kWidth, height);
  }
  void Line(double x1, double y1, double x2, double y2, std::string_view style) {
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                        y1, x2, y2, style);
  }
  void Dot(double x, double y, double radius, std::string_view colour) {
    out_ += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\" fill-opacity=\"0.5\"/>\n", x,
        y, radius, colour);
  }
  void Text(double x, double y, std::string_view anchor, std::string_view text,
            std::string_view style = "") {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y,
                        anchor, style, Escape(text));
  }
  std::string Take() && { return out_ + "</svg>\n"; }

 private:
  std::string out_;
};

constexpr std::string_view kGrid = "stroke=\"#dddddd\"";
constexpr std::string_view kAxis = "stroke=\"#444444\"";

struct Decades {
  int low = 0, high = 1;
  double At(double value) const {  // 0 … 1
    return (std::log10(value) - low) / (high - low);
  }
};

Decades DecadesOf(std::span<const Prediction* const> points) {
  double low = 1e300, high = 0;
  for (const Prediction* p : points) {
    low = std::min({low, *p->measured, *p->predicted});
    high = std::max({high, *p->measured, *p->predicted});
  }
  Decades d;
  d.low = static_cast<int>(std::floor(std::log10(low)));
  d.high = std::max(d.low + 1, static_cast<int>(std::ceil(std::log10(high))));
  return d;
}

std::string_view ColourOf(const Report& report, std::string_view stratum) {
  for (std::size_t i = 0; i < report.by_stratum.size(); ++i) {
    if (report.by_stratum[i].stratum == stratum) return kColours[i % kColours.size()];
  }
  return kColours.back();
}

void Scatter(const Report& report, std::span<const Prediction* const> points, Picture* picture) {
  const Decades d = DecadesOf(points);
  const auto x = [&](double value) { return kLeft + d.At(value) * kSide; };
  const auto y = [&](double value) { return kTop + (1 - d.At(value)) * kSide; };
  for (int power = d.low; power <= d.high; ++power) {
    const double value = std::pow(10.0, power);
    picture->Line(x(value), kTop, x(value), kTop + kSide, kGrid);
    picture->Line(kLeft, y(value), kLeft + kSide, y(value), kGrid);
    picture->Text(x(value), kTop + kSide + 18, "middle", fmt::format("{:g}", value));
    picture->Text(kLeft - 8, y(value) + 4, "end", fmt::format("{:g}", value));
  }
  picture->Line(kLeft, kTop + kSide, kLeft + kSide, kTop, kAxis);
  // Where the prediction is off by a factor of two.
  const double shift = std::log10(2.0) / (d.high - d.low) * kSide;
  constexpr std::string_view kDashed = "stroke=\"#aaaaaa\" stroke-dasharray=\"4 4\"";
  picture->Line(kLeft + shift, kTop + kSide, kLeft + kSide, kTop + shift, kDashed);
  picture->Line(kLeft, kTop + kSide - shift, kLeft + kSide - shift, kTop, kDashed);
  for (const Prediction* p : points) {
    picture->Dot(x(*p->measured), y(*p->predicted), 3, ColourOf(report, p->stratum));
  }
  const bool training = report.kind == TableKind::kTraining;
  const std::string_view unit = training ? "s, or GiB of memory" : "us";
  picture->Text(kLeft + kSide / 2, kTop + kSide + 38, "middle",
                fmt::format("measured ({}); dashed: a factor of 2", unit));
  picture->Text(0, 0, "middle", fmt::format("predicted ({})", unit),
                fmt::format("transform=\"translate(18 {:.0f}) rotate(-90)\"", kTop + kSide / 2));
}

void Legend(const Report& report, Picture* picture) {
  double at = kTop + kSide + 62;
  for (const Summary& g : report.by_stratum) {
    picture->Dot(kLeft + 6, at - 4, 5, ColourOf(report, g.stratum));
    const std::string error = g.compared > 0 ? fmt::format("mean |error| {:.1f} %", g.mean_abs_pct)
                                             : std::string("nothing compared");
    picture->Text(kLeft + 18, at, "start", g.stratum);
    picture->Text(kLeft + 200, at, "start",
                  fmt::format("{}, coverage {:.0f} %", error, g.coverage() * 100));
    at += kRow;
  }
}

// One line a source and quantity: its errors, cut at the ends, and their median as a bar.
void Strips(const Report& report, Picture* picture) {
  const auto x = [](double percent) {
    return kStrip + (std::clamp(percent, -kShown, kShown) / kShown + 1) / 2 * kStripWidth;
  };
  double at = kTop + 12;
  for (const Summary& g : report.by_source) {
    if (g.compared == 0) continue;
    std::vector<double> errors;
    for (const Prediction& p : report.rows) {
      const auto error = p.error_pct();
      if (!error || p.source != g.source || Name(p.quantity) != g.quantity) continue;
      picture->Dot(x(*error), at, 2.5, ColourOf(report, p.stratum));
      errors.push_back(*error);
    }
    const double middle = x(Median(std::move(errors)));
    picture->Line(middle, at - 7, middle, at + 7, "stroke=\"black\" stroke-width=\"2\"");
    const bool memory = g.quantity == Name(Quantity::kPeakMemory);
    const std::string name = Printable(g.label, 36) + (memory ? ", memory" : "");
    picture->Text(kStrip - 10, at + 4, "end", name);
    picture->Text(kStrip + kStripWidth + 8, at + 4, "start", fmt::format("{}", g.compared));
    at += kRow;
  }
  for (const double percent : {-100.0, -50.0, 0.0, 50.0, 100.0}) {
    picture->Line(x(percent), kTop, x(percent), at, percent == 0 ? kAxis : kGrid);
    picture->Text(x(percent), at + 16, "middle",
                  percent == 0 ? std::string("0 %") : fmt::format("{:+g} %", percent));
  }
  picture->Text(kStrip + kStripWidth / 2, at + 36, "middle",
                "signed error; bar: median; right: rows compared");
}

}  // namespace

std::string ReportToSvg(const Report& report) {
  std::vector<const Prediction*> points;
  for (const Prediction& p : report.rows) {
    if (p.error_pct()) points.push_back(&p);
  }
  const double legend =
      kTop + kSide + 62 + kRow * static_cast<double>(report.by_stratum.size() + 1);
  const double strips = kTop + 60 + kRow * static_cast<double>(report.by_source.size() + 1);
  Picture picture(std::max(legend, strips));
  picture.Text(kLeft, 30, "start", "Predicted against measured", "font-size=\"17\"");
  picture.Text(kStrip, 30, "start", "Error of each source", "font-size=\"17\"");
  if (points.empty()) {
    picture.Text(kLeft, kTop + 20, "start", "No row is both measured and predicted.");
    return std::move(picture).Take();
  }
  Scatter(report, points, &picture);
  Legend(report, &picture);
  Strips(report, &picture);
  return std::move(picture).Take();
}

}  // namespace orrery::search
