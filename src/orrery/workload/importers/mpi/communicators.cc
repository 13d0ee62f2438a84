#include "orrery/workload/importers/mpi/communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "orrery/base/text.h"

namespace orrery::workload {

std::size_t MpiCommunicators::size_of(std::uint32_t i) const {
  if (i == kAlone) return 1;
  return all_[i].members.empty() ? ranks() : all_[i].members.size();
}

bool MpiCommunicators::Holds(std::uint32_t i, const MpiComm& comm, std::uint32_t rank) const {
  if (static_cast<std::size_t>(comm.size) != size_of(i)) return false;
  const std::vector<std::uint32_t>& members = all_[i].members;
  return (members.empty() ? static_cast<std::uint32_t>(comm.rank)
                          : members[static_cast<std::size_t>(comm.rank)]) == rank;
}

bool MpiCommunicators::Before(std::size_t first, std::size_t second) const {
  const auto times = [&](std::size_t a, std::size_t b) {
    const auto found = before_.find({a, b});
    return found == before_.end() ? 0 : found->second;
  };
  return times(first, second) > times(second, first);
}

MpiComm MpiCommunicators::Numbered(std::uint32_t i, const MpiComm& comm, std::uint32_t rank) const {
  MpiComm numbered = comm;
  if (comm.known == MpiComm::Known::kByNumbers) return numbered;
  numbered.size = static_cast<std::int32_t>(size_of(i));
  const std::vector<std::uint32_t>& members = all_[i].members;
  if (i == kAlone) {
    numbered.rank = 0;
  } else if (members.empty()) {
    numbered.rank = static_cast<std::int32_t>(rank);
  } else {
    auto place = std::ranges::lower_bound(members, rank);
    if (place == members.end() || *place != rank) place = std::ranges::find(members, rank);
    numbered.rank = static_cast<std::int32_t>(place - members.begin());
  }
  return numbered;
}

Result<std::uint32_t> RankHandles::Find(const MpiComm& comm) {
  if (comm.known == MpiComm::Known::kWorld) return MpiCommunicators::kWorld;
  if (comm.known == MpiComm::Known::kAlone) return MpiCommunicators::kAlone;
  if (comm.known == MpiComm::Known::kByHandle) {
    const auto made = by_handle_.find(comm.id);
    const auto creations = all_->of_rank(rank_);
    if (made != by_handle_.end() && creations[made->second].made != MpiCommunicators::kNone) {
      return creations[made->second].made;
    }
    return InvalidInput(
        "communicator {}: the trace does not say who belongs to it; MPI_Comm_split, MPI_Comm_dup, "
        "MPI_Cart_create of all ranks, and MPI_Comm_create of groups that MPI_Comm_group and "
        "MPI_Group_incl make, are followed",
        comm.id);
  }
  const auto found = known_.find(comm.id);
  if (found != known_.end() && found->second.comm.size == comm.size &&
      found->second.comm.rank == comm.rank) {
    return found->second.is;
  }
  std::uint32_t is = MpiCommunicators::kNone;
  const auto creations = all_->of_rank(rank_);
  used_.resize(created_, false);
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < created_ && comm.size > 1; ++i) {
    if (!used_[i] && creations[i].made != MpiCommunicators::kNone &&
        all_->Holds(creations[i].made, comm, rank_)) {
      fitting.push_back(i);
    }
  }
  if (!fitting.empty()) {
    std::size_t best = fitting.front();
    for (const std::size_t i : fitting) {
      if (all_->Before(i, best)) best = i;
    }
    used_[best] = true;
    is = creations[best].made;
    guessed_ |= fitting.size() > 1;
    for (std::size_t i = 0; i < created_ && fitting.size() == 1; ++i) {
      if (!used_[i]) seen_.emplace_back(best, i);
    }
  } else if (comm.size == 1) {
    is = MpiCommunicators::kAlone;
  } else if (all_->Holds(MpiCommunicators::kWorld, comm, rank_)) {
    is = MpiCommunicators::kWorld;
  } else {
    return InvalidInput(
        "communicator {}, in which the rank is {} of {}: the trace does not say who belongs to it; "
        "MPI_Comm_split, MPI_Comm_dup and MPI_Cart_create of all ranks are followed",
        comm.id, comm.rank, comm.size);
  }
  known_[comm.id] = {comm, is};
  return is;
}

// Lets the ranks come to their creations, in order, until all have met.
class CommunicatorMaker {
 public:
  explicit CommunicatorMaker(MpiCommunicators* out, std::vector<std::string> names)
      : out_(*out), names_(std::move(names)), next_(out->ranks(), 0) {
    out_.all_.resize(2);
    out_.all_[MpiCommunicators::kAlone].context = 1;
    for (std::uint32_t r = 0; r < out_.ranks(); ++r) {
      handles_.emplace_back(&out_, r);
      ready_.push_back(r);
    }
  }

  Status Run() {
    while (!ready_.empty()) {
      const std::uint32_t rank = ready_.front();
      ready_.pop_front();
      if (next_[rank] < out_.by_rank_[rank].size()) ORRERY_RETURN_IF_ERROR(Arrive(rank));
    }
    for (std::uint32_t r = 0; r < out_.ranks(); ++r) {
      if (next_[r] == out_.by_rank_[r].size()) continue;
      const MpiRecord& record = out_.by_rank_[r][next_[r]].record;
      return InvalidInput("{}:{}: {}: not all members of its communicator come to it",
                          Printable(names_[r]), record.line, CallName(record));
    }
    return {};
  }

 private:
  struct Meeting {
    std::vector<std::uint32_t> ranks;
  };
  static std::string_view CallName(const MpiRecord& record) { return Name(record.call); }

  Status Arrive(std::uint32_t rank) {
    const MpiRecord& record = out_.by_rank_[rank][next_[rank]].record;
    const Result<std::uint32_t> parent = handles_[rank].Find(record.comm);
    for (const auto& [first, second] : handles_[rank].TakeSeen()) out_.Saw(first, second);
    if (!parent.ok()) {
      return Status(parent.status()).In(fmt::format("{}:{}", Printable(names_[rank]), record.line));
    }
    if (*parent == MpiCommunicators::kAlone) {  // what a rank alone makes is of its own
      Done(rank, MpiCommunicators::kAlone);
      return {};
    }
    const std::size_t turn = turns_[{*parent, rank}]++;
    Meeting& meeting = meetings_[{*parent, turn}];
    meeting.ranks.push_back(rank);
    if (meeting.ranks.size() == out_.size_of(*parent)) {
      ORRERY_RETURN_IF_ERROR(Meet(*parent, turn, std::move(meeting)));
      meetings_.erase({*parent, turn});
    }
    return {};
  }

  const MpiRecord& RecordOf(std::uint32_t rank) const {
    return out_.by_rank_[rank][next_[rank]].record;
  }

  // Colour and key; who is not in the group has none.
  std::pair<std::int64_t, std::int64_t> PlaceOf(std::uint32_t parent, std::uint32_t rank) const {
    const MpiRecord& record = RecordOf(rank);
    if (record.group.empty()) return {record.color, record.key};
    const auto own = std::ranges::find(record.group, out_.Numbered(parent, record.comm, rank).rank);
    if (own == record.group.end()) return {-1, 0};
    return {record.group.front(), own - record.group.begin()};
  }

  Status Meet(std::uint32_t parent, std::size_t turn, Meeting meeting) {
    const MpiCall call = RecordOf(meeting.ranks.front()).call;
    std::ranges::sort(meeting.ranks, {}, [&](std::uint32_t r) {
      return std::pair(PlaceOf(parent, r).second, out_.Numbered(parent, RecordOf(r).comm, r).rank);
    });
    const std::uint32_t above = out_.all_[parent].context;
    const auto context =
        contexts_.try_emplace({above, turn}, static_cast<std::uint32_t>(contexts_.size() + 2));
    std::map<std::int64_t, std::uint32_t> by_color;
    for (const std::uint32_t r : meeting.ranks) {
      const MpiRecord& record = RecordOf(r);
      if (record.call != call) {
        return InvalidInput("{}:{}: {}: {} of another rank stands against it", Printable(names_[r]),
                            record.line, CallName(record), Name(call));
      }
      std::uint32_t made = MpiCommunicators::kNone;
      const std::int64_t color = call == MpiCall::kCommSplit ? PlaceOf(parent, r).first : 0;
      if (call != MpiCall::kCommUnknown && color >= 0) {
        const auto [place, fresh] =
            by_color.try_emplace(color, static_cast<std::uint32_t>(out_.all_.size()));
        if (fresh) out_.all_.push_back({{}, context.first->second});
        made = place->second;
        out_.all_[made].members.push_back(r);
      }
      made_[r] = made;
    }
    for (const std::uint32_t r : meeting.ranks) Done(r, made_[r]);
    return {};
  }

  void Done(std::uint32_t rank, std::uint32_t made) {
    MpiCommunicators::Creation& creation = out_.by_rank_[rank][next_[rank]++];
    creation.made = made;
    handles_[rank].Created(creation.record.made);
    ready_.push_back(rank);
  }

  MpiCommunicators& out_;
  std::vector<std::string> names_;
  std::vector<std::size_t> next_;
  std::vector<RankHandles> handles_;
  std::deque<std::uint32_t> ready_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> turns_;
  std::map<std::pair<std::uint32_t, std::size_t>, Meeting> meetings_;
  std::map<std::pair<std::uint32_t, std::size_t>, std::uint32_t> contexts_;
  std::unordered_map<std::uint32_t, std::uint32_t> made_;
};

Result<MpiCommunicators> MpiCommunicators::Make(std::vector<std::vector<Creation>> by_rank,
                                                std::vector<std::string> names) {
  MpiCommunicators out;
  out.by_rank_ = std::move(by_rank);
  ORRERY_RETURN_IF_ERROR(CommunicatorMaker(&out, std::move(names)).Run());
  return out;
}

}  // namespace orrery::workload
