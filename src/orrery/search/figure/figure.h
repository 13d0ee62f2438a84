// A chart as SVG: points, or lines through points, with axes, ticks and a legend.
//
// Drawn at 900 × 560; text is escaped. Colours are Okabe and Ito's, told apart by colour-blind
// readers too; series beyond them repeat the colours with other marks.
#pragma once

#include <string>
#include <vector>

namespace orrery::search {

struct FigurePoint {
  double x = 0, y = 0;
  std::string label;  // written beside the point; empty: none
};

struct FigureSeries {
  std::string name;  // in the legend; empty: not in it
  std::vector<FigurePoint> points;
  bool line = false;   // joined in order
  bool faint = false;  // small and grey, behind the others
};

struct Figure {
  std::string title, x_label, y_label;
  std::vector<std::string> categories;  // of x = 0, 1, …; empty: x is a number
  bool logarithmic = false;             // both axes, by decades; all values are above 0
  std::vector<FigureSeries> series;
};

std::string ToSvg(const Figure& figure);

}  // namespace orrery::search
