// Pieces of the plots that `orrery traffic` draws.
#pragma once

#include <string>
#include <string_view>

namespace orrery::traffic {

std::string SvgHead(double width, double height);  // with a white ground; "</svg>" ends it
// 1, 2 or 5 times a power of ten: about six steps up to `most`.
double SvgStep(double most);
std::string SvgText(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view style = "");

}  // namespace orrery::traffic
