// Who belongs to the communicators of an MPI program, from its ranks' traces.
//
// A trace of DUMPI's has the handles that calls which make communicators return. One of
// liballprof's has not: a handle is seen first where it is used, with the rank's number in it and
// its size. It is taken for the communicator, among those that the rank has made and not used yet,
// which has that size and gives the rank that number. Where two do, the order in which other ranks,
// for whom only one does, begin to use the two decides (programs are alike on all ranks); without
// such a rank the older one is taken.
//
// Cost: O(creations · members).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/workload/importers/mpi/calls.h"

namespace orrery::workload {

struct Communicator {
  std::vector<std::uint32_t> members;  // ranks of the program; empty: all, in order
  // Equal for communicators that one call made on all ranks (they have no member in common).
  std::uint32_t context = 0;
};

class MpiCommunicators {
 public:
  static constexpr std::uint32_t kWorld = 0, kAlone = 1;  // alone: the rank and nobody else
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;     // made by others; or not known

  struct Creation {
    MpiRecord record;
    std::uint32_t made = kNone;
  };
  // By rank, its creations in order, `made` left out; `where` says where a rank's line stands.
  static Result<MpiCommunicators> Make(std::vector<std::vector<Creation>> by_rank,
                                       std::vector<std::string> names);

  std::size_t ranks() const { return by_rank_.size(); }
  const Communicator& at(std::uint32_t i) const { return all_[i]; }
  std::span<const Creation> of_rank(std::uint32_t rank) const { return by_rank_[rank]; }
  std::size_t size_of(std::uint32_t i) const;
  bool Holds(std::uint32_t i, const MpiComm& comm, std::uint32_t rank) const;
  // The communicator with the rank's number in it and its size. O(1) where the trace says them,
  // else O(log members) in the order of ranks, O(members) in another.
  MpiComm Numbered(std::uint32_t i, const MpiComm& comm, std::uint32_t rank) const;

  // What ranks for whom only one communicator fits have shown: the rank's creation `first` was used
  // while `second` was not.
  void Saw(std::size_t first, std::size_t second) { ++before_[{first, second}]; }
  bool Before(std::size_t first, std::size_t second) const;
  bool saw_any() const { return !before_.empty(); }

 private:
  friend class CommunicatorMaker;
  std::vector<Communicator> all_;
  std::vector<std::vector<Creation>> by_rank_;
  std::map<std::pair<std::size_t, std::size_t>, int> before_;
};

// One rank's handles, in the order of its calls.
class RankHandles {
 public:
  RankHandles(const MpiCommunicators* all, std::uint32_t rank) : all_(all), rank_(rank) {}

  // The rank's next creation is done; it has returned this handle.
  void Created(std::uint64_t handle) { by_handle_[handle] = created_++; }
  // kWorld, kAlone or another.
  Result<std::uint32_t> Find(const MpiComm& comm);
  bool guessed() const { return guessed_; }  // between two, without another rank's word
  // What Find has seen since the last call: for MpiCommunicators::Saw.
  std::vector<std::pair<std::size_t, std::size_t>> TakeSeen() { return std::exchange(seen_, {}); }

 private:
  struct Known {
    MpiComm comm;
    std::uint32_t is = 0;
  };
  const MpiCommunicators* all_;
  std::uint32_t rank_;
  std::vector<std::pair<std::size_t, std::size_t>> seen_;
  std::size_t created_ = 0;
  std::vector<bool> used_;
  std::unordered_map<std::uint64_t, Known> known_;
  std::unordered_map<std::uint64_t, std::size_t> by_handle_;  // the latest creation of each
  bool guessed_ = false;
};

}  // namespace orrery::workload
