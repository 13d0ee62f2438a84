#include "orrery/search/figure/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "orrery/base/text.h"

namespace orrery::search {
namespace {

constexpr double kLeastWidth = 900, kHeight = 560;
constexpr double kCharacter = 6.6;        // width of one, about, at size 12
constexpr std::size_t kLongestName = 60;  // of a series in the legend
constexpr double kLeft = 90, kTop = 50, kRight = 660, kBottom = 490;
constexpr std::size_t kMostNamed = 20;  // series in the legend
constexpr std::array<std::string_view, 8> kColours = {"#0072B2", "#E69F00", "#009E73", "#D55E00",
                                                      "#CC79A7", "#56B4E9", "#8C8C00", "#444444"};

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : Printable(text, 200)) {
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

// From the least to the greatest value, widened to round ends.
struct Range {
  double low = 0, high = 1, step = 1;
  bool logarithmic = false;  // low, high and step are of the logarithm
  double At(double value) const {
    return ((logarithmic ? std::log10(value) : value) - low) / (high - low);
  }
  double Value(double tick) const {
    if (logarithmic) return std::pow(10.0, tick);
    return std::abs(tick) < 1e-12 ? 0 : tick;
  }
};

Range Decades(double low, double high) {
  if (!(low <= high)) return {.logarithmic = true};
  const double from = std::floor(std::log10(low));
  return {from, std::max(from + 1, std::ceil(std::log10(high))), 1, true};
}

Range Rounded(double low, double high, bool from_zero) {
  if (!(low <= high)) return {};
  if (from_zero && low > 0 && low < 0.6 * high) low = 0;
  if (high <= low) {
    const double around = high != 0 ? std::abs(high) * 0.1 : 1;
    low -= around;
    high += around;
  }
  const double rough = (high - low) / 6;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (step < rough) step = power * factor;
  }
  return {std::floor(low / step) * step, std::ceil(high / step) * step, step};
}

// A number of an axis: 1,000,000 beside 100,000.
std::string Tick(double at) {
  const bool whole = at == std::floor(at) && std::abs(at) >= 1e3 && std::abs(at) < 1e9;
  return whole ? HumanCount(std::llround(at)) : fmt::format("{:.6g}", at);
}

class Chart {
 public:
  explicit Chart(const Figure& figure) : figure_(figure) {
    double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low;
    double y_low = x_low, y_high = x_high;
    for (const FigureSeries& s : figure.series) {
      for (const FigurePoint& p : s.points) {
        x_low = std::min(x_low, p.x);
        x_high = std::max(x_high, p.x);
        y_low = std::min(y_low, p.y);
        y_high = std::max(y_high, p.y);
      }
    }
    x_ = figure.logarithmic ? Decades(x_low, x_high)
         : figure.categories.empty()
             ? Rounded(x_low, x_high, true)
             : Range{-0.5, static_cast<double>(figure.categories.size()) - 0.5, 1};
    y_ = figure.logarithmic ? Decades(y_low, y_high) : Rounded(y_low, y_high, true);
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
        "viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        Width(), kHeight, Width(), kHeight);
  }

  std::string Draw() {
    Axes();
    for (const bool faint : {true, false}) {
      std::size_t colour = 0;
      for (const FigureSeries& s : figure_.series) {
        if (s.faint == faint) Series(s, colour);
        if (!s.faint) ++colour;
      }
    }
    Legend();
    return out_ + "</svg>\n";
  }

 private:
  // With room for the legend's longest name.
  double Width() const {
    std::size_t longest = 0;
    for (const FigureSeries& s : figure_.series) {
      longest = std::max(longest, std::min(s.name.size(), kLongestName));
    }
    return std::max(kLeastWidth, kRight + 46 + kCharacter * static_cast<double>(longest));
  }

  double X(double x) const { return kLeft + x_.At(x) * (kRight - kLeft); }
  double Y(double y) const { return kBottom - y_.At(y) * (kBottom - kTop); }

  void Text(double x, double y, std::string_view anchor, std::string_view text,
            std::string_view more = "") {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y,
                        anchor, more, Escape(text));
  }
  void Line(double x1, double y1, double x2, double y2, std::string_view stroke) {
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1,
        x2, y2, stroke);
  }

  void Axes() {
    for (double y = y_.low; y <= y_.high + y_.step / 2; y += y_.step) {
      const double at = y_.Value(y);
      Line(kLeft, Y(at), kRight, Y(at), "#e4e4e4");
      Text(kLeft - 8, Y(at) + 4, "end", Tick(at));
    }
    if (figure_.categories.empty()) {
      for (double x = x_.low; x <= x_.high + x_.step / 2; x += x_.step) {
        const double at = x_.Value(x);
        Line(X(at), kTop, X(at), kBottom, "#f0f0f0");
        Text(X(at), kBottom + 18, "middle", Tick(at));
      }
    } else {
      const std::size_t every = figure_.categories.size() / 12 + 1;  // of the names, to fit
      for (std::size_t i = 0; i < figure_.categories.size(); i += every) {
        Text(X(static_cast<double>(i)), kBottom + 18, "middle", figure_.categories[i]);
      }
    }
    Line(kLeft, kBottom, kRight, kBottom, "#444444");
    Line(kLeft, kTop, kLeft, kBottom, "#444444");
    Text(kLeft, 26, "start", figure_.title, "font-size=\"15\" font-weight=\"bold\"");
    Text((kLeft + kRight) / 2, kBottom + 44, "middle", figure_.x_label);
    out_ += fmt::format(
        "<text transform=\"translate(24 {:.0f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        (kTop + kBottom) / 2, Escape(figure_.y_label));
  }

  void Mark(double x, double y, std::size_t colour, bool faint) {
    const std::string_view fill =
        faint ? std::string_view("#b0b0b0") : kColours[colour % kColours.size()];
    if (faint || colour / kColours.size() % 2 == 0) {
      out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y,
                          faint ? 2.5 : 4.5, fill);
    } else {
      out_ +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"8\" height=\"8\" fill=\"{}\"/>\n",
                      x - 4, y - 4, fill);
    }
  }

  void Series(const FigureSeries& s, std::size_t colour) {
    if (s.line && s.points.size() > 1) {
      std::string path;
      for (const FigurePoint& p : s.points) path += fmt::format("{:.1f},{:.1f} ", X(p.x), Y(p.y));
      out_ += fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n", path,
          kColours[colour % kColours.size()]);
    }
    for (const FigurePoint& p : s.points) {
      Mark(X(p.x), Y(p.y), colour, s.faint);
      if (!p.label.empty()) Label(X(p.x), Y(p.y), p.label);
    }
  }

  // Beside its point where no other label stands; nowhere if there is no room.
  void Label(double x, double y, const std::string& text) {
    const double width = kCharacter * static_cast<double>(text.size());
    const bool first_left = x > kRight - 90;
    for (const bool below : {false, true}) {
      for (const bool left : {first_left, !first_left}) {
        const double from = left ? x - 8 - width : x + 8, base = below ? y + 14 : y - 6;
        const bool taken = std::ranges::any_of(labels_, [&](const Box& other) {
          return from < other.x + other.width && other.x < from + width &&
                 std::abs(base - other.y) < 12;
        });
        if (taken) continue;
        labels_.push_back({from, base, width});
        Text(left ? x - 8 : x + 8, base, left ? "end" : "start", text);
        return;
      }
    }
  }

  void Legend() {
    double at = kTop + 8;
    std::size_t colour = 0, named = 0;
    for (const FigureSeries& s : figure_.series) {
      const std::size_t own = colour;
      if (!s.faint) ++colour;
      if (s.name.empty()) continue;
      if (named++ == kMostNamed) {
        Text(kRight + 20, at + 4, "start",
             fmt::format("… and {} more", figure_.series.size() - kMostNamed));
        return;
      }
      Mark(kRight + 26, at, own, s.faint);
      Text(kRight + 38, at + 4, "start", Printable(s.name, kLongestName));
      at += 20;
    }
  }

  struct Box {
    double x = 0, y = 0, width = 0;
  };

  const Figure& figure_;
  Range x_, y_;
  std::vector<Box> labels_;
  std::string out_;
};

}  // namespace

std::string ToSvg(const Figure& figure) { return Chart(figure).Draw(); }

}  // namespace orrery::search
