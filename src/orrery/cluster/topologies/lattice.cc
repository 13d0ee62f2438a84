// Lattice: rings, lines, full meshes and switches by dimension. See fabric.h.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "orrery/base/rng.h"
#include "orrery/cluster/fabric.h"

namespace orrery::cluster {
namespace {

// Links of one line of `size` points, all directions.
std::size_t LinksOfLine(DimensionKind kind, std::size_t size) {
  switch (kind) {
    case DimensionKind::kRing:
      return size == 1 ? 0 : size == 2 ? 2 : 2 * size;
    case DimensionKind::kLine:
      return 2 * (size - 1);
    case DimensionKind::kFullyConnected:
      return size * (size - 1);
    case DimensionKind::kSwitch:
      return 2 * size;
  }
  return 0;
}

}  // namespace

Lattice::Lattice(Shape shape) : s_(std::move(shape)) {
  for (const Dimension& d : s_.dimensions) {
    axes_.push_back({.size = static_cast<std::size_t>(d.size), .stride = points_});
    points_ *= static_cast<std::size_t>(d.size);
  }
  switches_ = direct() ? 0 : points_;
  links_ = direct() ? 0 : 2 * s_.ends;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const std::size_t lines = points_ / axes_[i].size;
    axes_[i].first_link = links_;
    axes_[i].first_switch = switches_;
    links_ += lines * LinksOfLine(s_.dimensions[i].kind, axes_[i].size);
    if (s_.dimensions[i].kind == DimensionKind::kSwitch) switches_ += lines;
  }
}

std::uint32_t Lattice::switches() const { return static_cast<std::uint32_t>(switches_); }
std::int64_t Lattice::links() const { return static_cast<std::int64_t>(links_); }

std::size_t Lattice::Line(std::size_t axis, std::size_t point) const {
  const Axis& a = axes_[axis];
  return point / (a.stride * a.size) * a.stride + point % a.stride;
}

// Every line's links stand together: of a ring per point plus and minus (one each where two points
// make it); of an open line per gap plus and minus; of a full mesh per point to each other; per
// point to and from the switch.
void Lattice::AddDimension(const Origin& origin, std::size_t axis, std::vector<Link>* links) const {
  const Axis& a = axes_[axis];
  const Dimension& d = s_.dimensions[axis];
  Link link{.kind = LinkKind::kRouter,
            .bandwidth_Bps = d.bandwidth_Bps > 0 ? d.bandwidth_Bps : s_.nic_Bps,
            .latency = d.latency,
            .mtu_bytes = s_.mtu_bytes};
  const std::uint32_t first = direct() ? origin.first_end : origin.first_switch;
  for (std::size_t line = 0; line < points_ / a.size; ++line) {
    const std::size_t base = line / a.stride * a.stride * a.size + line % a.stride;
    const auto at = [&](std::size_t x) {
      return first + static_cast<std::uint32_t>(base + x % a.size * a.stride);
    };
    const auto add = [&](std::uint32_t from, std::uint32_t to) {
      link.from = from, link.to = to;
      links->push_back(link);
    };
    const auto hub =
        origin.first_switch + static_cast<std::uint32_t>(axes_[axis].first_switch + line);
    for (std::size_t x = 0; x < a.size; ++x) {
      switch (d.kind) {
        case DimensionKind::kRing:
          if (a.size > 1) add(at(x), at(x + 1));
          if (a.size > 2) add(at(x), at(x + a.size - 1));
          break;
        case DimensionKind::kLine:
          if (x + 1 < a.size) add(at(x), at(x + 1)), add(at(x + 1), at(x));
          break;
        case DimensionKind::kFullyConnected:
          for (std::size_t y = 0; y < a.size; ++y) {
            if (y != x) add(at(x), at(y));
          }
          break;
        case DimensionKind::kSwitch:
          add(at(x), hub), add(hub, at(x));
          break;
      }
    }
  }
}

void Lattice::AddLinks(const Origin& origin, std::vector<Link>* links) const {
  if (!direct()) {
    AddEndLinks(*this, origin, s_.ends,
                {.bandwidth_Bps = s_.nic_Bps, .latency = s_.latency, .mtu_bytes = s_.mtu_bytes},
                links);
  }
  for (std::size_t i = 0; i < axes_.size(); ++i) AddDimension(origin, i, links);
}

std::size_t Lattice::Step(const Origin& origin, std::size_t axis, std::size_t point, std::size_t to,
                          bool up, std::vector<LinkId>* path) const {
  const Axis& a = axes_[axis];
  const std::size_t x = point / a.stride % a.size;
  const DimensionKind kind = s_.dimensions[axis].kind;
  const std::size_t first =
      origin.first_link + a.first_link + Line(axis, point) * LinksOfLine(kind, a.size);
  std::size_t next = to;
  switch (kind) {
    case DimensionKind::kRing:
      next = (up ? x + 1 : x + a.size - 1) % a.size;
      path->push_back(LinkId(a.size == 2 ? first + x : first + 2 * x + (up ? 0 : 1)));
      break;
    case DimensionKind::kLine:
      next = up ? x + 1 : x - 1;
      path->push_back(LinkId(up ? first + 2 * x : first + 2 * (x - 1) + 1));
      break;
    case DimensionKind::kFullyConnected:
      path->push_back(LinkId(first + x * (a.size - 1) + (to < x ? to : to - 1)));
      break;
    case DimensionKind::kSwitch:
      path->push_back(LinkId(first + 2 * x));
      path->push_back(LinkId(first + 2 * to + 1));
      break;
  }
  return point + next * a.stride - x * a.stride;
}

void Lattice::Route(const Origin& origin, std::size_t from, std::size_t to, Choice choice,
                    std::vector<LinkId>* path) const {
  std::size_t point = direct() ? from : leaf(from);
  const std::size_t goal = direct() ? to : leaf(to);
  struct Way {
    std::size_t axis = 0, steps = 0, to = 0;
    bool up = true;
  };
  std::array<Way, kMostDimensions> ways;
  std::size_t open = 0;
  std::uint64_t h = choice.hash;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const Axis& a = axes_[i];
    const std::size_t x = point / a.stride % a.size, y = goal / a.stride % a.size;
    if (x == y) continue;
    Way way{.axis = i, .steps = 1, .to = y};
    if (s_.dimensions[i].kind == DimensionKind::kLine) {
      way.up = y > x;
      way.steps = way.up ? y - x : x - y;
    } else if (s_.dimensions[i].kind == DimensionKind::kRing) {
      const std::size_t ahead = (y + a.size - x) % a.size;
      way.up = 2 * ahead < a.size;
      if (2 * ahead == a.size) way.up = choice.fixed || ((h = Mix64(h + 1)) & 1) != 0;
      way.steps = way.up ? ahead : a.size - ahead;
    }
    ways[open++] = way;
  }
  if (!direct()) path->push_back(LinkId(origin.first_link + 2 * from));
  while (open > 0) {
    std::size_t chosen = 0;
    if (!choice.fixed && open > 1) chosen = (h = Mix64(h + 1)) % open;
    Way& way = ways[chosen];
    point = Step(origin, way.axis, point, way.to, way.up, path);
    if (--way.steps > 0) continue;
    --open;
    for (std::size_t i = chosen; i < open; ++i) ways[i] = ways[i + 1];
  }
  if (!direct()) path->push_back(LinkId(origin.first_link + 2 * to + 1));
}

std::string Lattice::SwitchName(std::uint32_t number) const {
  std::size_t v = number;
  if (!direct() && v < points_) {
    std::string name = "router";
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      name += fmt::format("{}{}", i == 0 ? "" : ".", v / axes_[i].stride % axes_[i].size);
    }
    return name;
  }
  for (std::size_t i = axes_.size(); i-- > 0;) {
    if (s_.dimensions[i].kind == DimensionKind::kSwitch && v >= axes_[i].first_switch) {
      return fmt::format("dim{}.switch{}", i, v - axes_[i].first_switch);
    }
  }
  return "?";
}

}  // namespace orrery::cluster
