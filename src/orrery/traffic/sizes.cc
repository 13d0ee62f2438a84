// Distributions of flow sizes. Sources: web-search: Alizadeh et al., DCTCP, SIGCOMM'10, figure 4;
// hadoop: Roy et al., "Inside the Social Network's (Datacenter) Network", SIGCOMM'15, figure 6;
// both with the points at which the HPCC artefact (SIGCOMM'19) reads the curves.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/traffic/flows.h"

namespace orrery::traffic {
namespace {

constexpr std::array kDistributions = {
    Pattern{"web-search", "Web search cluster: 1.6 MB on average, half below 80 kB (DCTCP, 2010)."},
    Pattern{"hadoop", "Hadoop at Facebook: 120 kB on average, half below 1 kB (Roy et al., 2015)."},
};

constexpr double kLargestFlow = std::int64_t{1} << 50;  // as in a connection matrix

// "bytes percent" by line, as a file would have it.
constexpr std::string_view kWebSearch =
    "0 0\n10000 15\n20000 20\n30000 30\n50000 40\n80000 53\n200000 60\n1000000 70\n2000000 80\n"
    "5000000 90\n10000000 97\n30000000 100\n";
constexpr std::string_view kHadoop =
    "0 0\n100 1\n200 2\n300 5\n350 15\n400 20\n500 30\n600 40\n700 50\n1000 60\n2000 67\n7000 70\n"
    "30000 72\n50000 82\n80000 87\n120000 90\n300000 95\n1000000 97.5\n2000000 99\n10000000 100\n";

}  // namespace

std::span<const Pattern> SizeDistributions() { return kDistributions; }

Result<SizeDistribution> SizeDistribution::Find(const std::string& name) {
  if (name == "web-search") return Parse(kWebSearch, name);
  if (name == "hadoop") return Parse(kHadoop, name);
  if (name.find_first_of("./") == std::string::npos && access(name.c_str(), F_OK) != 0) {
    std::array<std::string_view, kDistributions.size()> names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = kDistributions[i].name;
    return InvalidInput("--sizes: {}; or give a file of lines 'BYTES PERCENT'",
                        UnknownName("distribution", Printable(name), names));
  }
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(name, 1 << 20));
  return Parse(text, Printable(name));
}

Result<SizeDistribution> SizeDistribution::Parse(std::string_view text, const std::string& name) {
  SizeDistribution out;
  int line = 0;
  while (!text.empty()) {
    ++line;
    std::string_view row = TakeLine(&text);
    row = row.substr(0, row.find_first_of("#\r"));
    const std::size_t begin = row.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;
    row = row.substr(begin);
    const std::size_t gap = row.find_first_of(" \t,");
    const auto bytes = ParseReal(row.substr(0, gap), Dimension::kNone, "");
    const std::size_t next =
        gap == std::string_view::npos ? gap : row.find_first_not_of(" \t,", gap);
    const std::string_view last = next == std::string_view::npos ? "" : row.substr(next);
    const auto percent =
        ParseReal(last.substr(0, last.find_last_not_of(" \t") + 1), Dimension::kNone, "");
    if (!bytes.ok() || !percent.ok() || *percent > 100) {
      return InvalidInput("{}:{}: '{}' is no 'BYTES PERCENT'", name, line, Printable(row, 40));
    }
    if (*bytes > kLargestFlow) {
      return InvalidInput("{}:{}: '{}': a flow has at most {:.0f} bytes", name, line,
                          Printable(row, 40), kLargestFlow);
    }
    const Point point{*bytes, *percent / 100};
    if (!out.points_.empty() &&
        (point.bytes < out.points_.back().bytes || point.share < out.points_.back().share)) {
      return InvalidInput("{}:{}: sizes and per cents must not fall", name, line);
    }
    out.points_.push_back(point);
  }
  if (out.points_.size() < 2 || out.points_.back().share != 1 || out.points_.back().bytes < 1) {
    return InvalidInput("{}: a distribution needs two lines or more and ends at 100 per cent",
                        name);
  }
  return out;
}

std::int64_t SizeDistribution::At(double u) const {
  std::size_t i = 1;
  while (i + 1 < points_.size() && points_[i].share < u) ++i;
  const Point &a = points_[i - 1], &b = points_[i];
  const double t =
      b.share > a.share ? std::clamp((u - a.share) / (b.share - a.share), 0.0, 1.0) : 1;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(a.bytes + t * (b.bytes - a.bytes)));
}

double SizeDistribution::mean() const {
  double sum = points_.front().bytes * points_.front().share;
  for (std::size_t i = 1; i < points_.size(); ++i) {
    sum +=
        (points_[i].share - points_[i - 1].share) * (points_[i].bytes + points_[i - 1].bytes) / 2;
  }
  return sum;
}

}  // namespace orrery::traffic
