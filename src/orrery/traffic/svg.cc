#include "orrery/traffic/svg.h"

#include <fmt/format.h>

#include <cmath>

#include "orrery/base/text.h"

namespace orrery::traffic {
namespace {

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : Printable(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

std::string SvgHead(double width, double height) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
}

double SvgStep(double most) {
  const double rough = most / 6;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double m : {1.0, 2.0, 5.0}) {
    if (m * power >= rough) return m * power;
  }
  return 10 * power;
}

std::string SvgText(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view style) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y,
                     anchor, style, Escape(text));
}

}  // namespace orrery::traffic
