// Strong ids: an index into one kind of array, not convertible into an index of another kind.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace orrery {

template <class Tag>
struct Id {
  static constexpr std::uint32_t kInvalid = 0xFFFFFFFFu;
  std::uint32_t value = kInvalid;

  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : value(static_cast<std::uint32_t>(index)) {}
  constexpr bool valid() const { return value != kInvalid; }
  constexpr std::size_t index() const { return value; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using RankId = Id<struct RankTag>;        // global over all jobs of a run
using GroupId = Id<struct GroupTag>;      // a communicator: an ordered set of ranks
using BlockId = Id<struct BlockTag>;      // a straight piece of a program
using ProgramId = Id<struct ProgramTag>;  // an order of block calls
using JobId = Id<struct JobTag>;
using DeviceId = Id<struct DeviceTag>;  // a GPU of the cluster
using NodeId = Id<struct NodeTag>;
using NicId = Id<struct NicTag>;
using LinkId = Id<struct LinkTag>;      // one direction of a link
using NameId = Id<struct NameTag>;      // an interned string of a graph
using SharesId = Id<struct SharesTag>;  // who sends how much to whom in an uneven all-to-all

}  // namespace orrery

template <class Tag>
struct std::hash<orrery::Id<Tag>> {
  std::size_t operator()(orrery::Id<Tag> id) const noexcept { return id.value; }
};
