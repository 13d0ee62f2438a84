// What an all-to-all of uneven shares comes to: the sums that its closed form needs, from all
// pairs' messages in NCCL's rounds (p2p_rounds.h), and how long it takes as played
// (playback_uneven.h). Planned once; all_to_all.cc reads them.
#include <algorithm>
#include <utility>
#include <vector>

#include "orrery/base/int128.h"
#include "orrery/collective/algorithms/p2p_rounds.h"
#include "orrery/collective/collective.h"
#include "orrery/collective/playback/playback_uneven.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

std::int64_t MessageOf(std::int64_t bytes, std::int64_t part, std::uint32_t ranks) {
  const auto whole = static_cast<Int128>(ranks) * graph::Shares::kEven;
  return static_cast<std::int64_t>((static_cast<Int128>(bytes) * part + whole - 1) / whole);
}

// Sums over the places of a group: of uniform domains, one after the other.
class Sums {
 public:
  explicit Sums(const Plan& plan)
      : plan_(plan),
        rounds_(plan),
        ranks_(static_cast<std::size_t>(plan.shape.ranks)),
        per_domain_(static_cast<std::size_t>(plan.shape.ranks_per_domain)),
        nics_(
            static_cast<std::size_t>(std::clamp(plan.shape.nics, 1, plan.shape.ranks_per_domain))),
        channels_(static_cast<std::size_t>(rounds_.channels)),
        out_(ranks_),
        in_(ranks_),
        nic_out_(ranks_ / per_domain_ * nics_),
        nic_in_(nic_out_.size()) {
    const std::vector<std::int64_t>& parts = plan.uneven.shares->parts;
    bytes_.reserve(parts.size());
    for (const std::int64_t part : parts) {
      const std::int64_t bytes = MessageOf(plan.bytes, part, plan.uneven.shares->ranks);
      bytes_.push_back(static_cast<double>((bytes + rounds_.parts - 1) / rounds_.parts));
    }
    // A GPU hands over where NCCL does so (EvenTraffic in all_to_all.cc).
    hands_over_ = plan.pxn && plan.shape.domains > 1 && plan.shape.peer_path == 0;
  }

  // O(ranks^2 * parts).
  void AddTo(Uneven* uneven) {
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t to = 0; to < ranks_; ++to) {
        if (from == to) continue;
        double& largest =
            from / per_domain_ == to / per_domain_ ? uneven->largest_local : uneven->largest_remote;
        largest = std::max(largest, Part(from, to));
      }
    }
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t to = 0; to < ranks_; ++to) {
        const double bytes = Part(from, to);
        if (from != to && bytes > 0) AddToPorts(from, to, bytes, *uneven);
      }
    }
    Ports(uneven);
    Lanes(uneven);
  }

 private:
  struct Nvlink {
    double stays = 0, handed = 0;
    double count = 0, large = 0;  // of messages that stay
  };
  struct Nic {
    double all = 0, handed = 0;
    double count = 0, large = 0;
  };
  static constexpr double kLarge = 0.95;  // of the largest

  double Part(std::size_t from, std::size_t to) const {
    if (plan_.uneven.returned) std::swap(from, to);
    return bytes_[bytes_.size() == ranks_ ? to : from * ranks_ + to];
  }
  std::size_t NicOf(std::size_t place) const { return place % per_domain_ * nics_ / per_domain_; }

  void AddToPorts(std::size_t from, std::size_t to, double bytes, const Uneven& uneven) {
    const std::size_t here = from / per_domain_, there = to / per_domain_;
    if (here == there) {
      for (Nvlink* port : {&out_[from], &in_[to]}) {
        port->stays += bytes;
        port->count += 1;
        port->large += bytes >= kLarge * uneven.largest_local ? 1 : 0;
      }
      return;
    }
    const std::size_t own = NicOf(from), rail = NicOf(to);
    const bool hops = hands_over_ && own != rail;
    Nic& leaves = nic_out_[here * nics_ + (plan_.pxn ? rail : own)];
    Nic& comes = nic_in_[there * nics_ + rail];
    for (Nic* nic : {&leaves, &comes}) {
      nic->all += bytes;
      nic->count += 1;
      nic->large += bytes >= kLarge * uneven.largest_remote ? 1 : 0;
      nic->handed += hops ? bytes : 0;
    }
    if (!hops) return;
    // The first GPU beside the rail's NIC.
    const std::size_t beside = here * per_domain_ + (rail * per_domain_ + nics_ - 1) / nics_;
    out_[from].handed += bytes;
    in_[beside].handed += bytes;
  }

  void Ports(Uneven* uneven) const {
    const auto ranks = static_cast<double>(ranks_);
    for (const auto* side : {&out_, &in_}) {
      for (const Nvlink& port : *side) {
        uneven->local_large = std::max(uneven->local_large, port.large);
        if (port.stays > uneven->local) {
          uneven->local = port.stays;
          uneven->local_count = port.count;
        }
        if (port.stays + port.handed > uneven->stays + uneven->handed) {
          uneven->stays = port.stays;
          uneven->handed = port.handed;
        }
      }
    }
    for (const auto* side : {&nic_out_, &nic_in_}) {
      for (const Nic& nic : *side) {
        uneven->remote_large = std::max(uneven->remote_large, nic.large);
        if (nic.all <= uneven->remote) continue;
        uneven->remote = nic.all;
        uneven->remote_count = nic.count;
        uneven->hops = nic.handed;
      }
    }
    for (const Nvlink& port : out_) {
      uneven->mean_local += port.stays / ranks;
      uneven->mean_handed += port.handed / ranks;
    }
    for (const Nic& nic : nic_out_) uneven->mean_remote += nic.all / ranks;
  }

  // What a place sends in turn, and what it receives: neither waits for the other.
  void Lanes(Uneven* uneven) const {
    struct Place {
      double out = 0, in = 0;
      bool leaves = false;
      double most() const { return std::max(out, in); }
    };
    std::vector<Place> places(ranks_ * channels_ * p2p::kBatch);
    std::vector<std::size_t> on(channels_);  // messages of a channel
    const auto group = static_cast<std::size_t>(rounds_.group);
    int round = 0;
    for (const int distance : rounds_.GroupDistances()) {
      const std::size_t d = static_cast<std::size_t>(distance) * group;
      for (std::size_t l = 0; l < group; ++l, ++round) {
        for (int part = 0; part < rounds_.parts; ++part) {
          const auto channel =
              static_cast<std::size_t>((rounds_.Base(round) + part) % rounds_.channels);
          const std::size_t at = channel * p2p::kBatch + on[channel]++ % p2p::kBatch;
          for (std::size_t q = 0; q < ranks_; ++q) {
            const std::size_t to = (q / group * group + d) % ranks_ + (q % group + l) % group;
            const std::size_t from =
                (q / group * group + ranks_ - d) % ranks_ + (q % group + group - l) % group;
            Place& place = places[q * channels_ * p2p::kBatch + at];
            place.out += Part(q, to);
            place.in += Part(from, q);
            place.leaves = place.leaves || to / per_domain_ != q / per_domain_ ||
                           from / per_domain_ != q / per_domain_;
          }
        }
      }
    }
    for (std::size_t first = 0; first < places.size(); first += p2p::kBatch) {
      double out = 0, in = 0;
      for (std::size_t i = first; i < first + p2p::kBatch; ++i) {
        out += places[i].out;
        in += places[i].in;
        uneven->place = std::max(uneven->place, places[i].most());
        if (places[i].leaves) {
          uneven->place_remote = std::max(uneven->place_remote, places[i].most());
        }
      }
      uneven->channel = std::max({uneven->channel, out, in});
    }
  }

  const Plan& plan_;
  const p2p::Rounds rounds_;
  std::size_t ranks_, per_domain_, nics_, channels_;
  bool hands_over_ = false;
  std::vector<double> bytes_;          // of a part of a message, by Shares::parts
  std::vector<Nvlink> out_, in_;       // by place
  std::vector<Nic> nic_out_, nic_in_;  // by domain and NIC
};

bool IsEven(const graph::Shares& shares) {
  return std::all_of(shares.parts.begin(), shares.parts.end(),
                     [](std::int64_t part) { return part == graph::Shares::kEven; });
}

}  // namespace

std::int64_t Uneven::Message(std::int64_t bytes, std::size_t from, std::size_t to) const {
  return MessageOf(bytes, shares->part(from, to, returned), shares->ranks);
}

Result<Plan> Planner::UnevenPlan(std::int64_t bytes, const GroupShape& shape,
                                 const graph::Shares& shares, bool returned) const {
  constexpr auto kAllToAll = graph::Collective::kAllToAll;
  if (static_cast<int>(shares.ranks) != shape.ranks) {
    return InvalidInput("shares of {} members for an all-to-all of {}", shares.ranks, shape.ranks);
  }
  if (shape.ranks == 1 || IsEven(shares)) return MakePlan(kAllToAll, bytes, shape);
  const std::int64_t most = *std::max_element(shares.parts.begin(), shares.parts.end());
  const std::int64_t largest = MessageOf(bytes, most, shares.ranks);
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  if (largest > kMost / shape.ranks) {
    return InvalidInput("an all-to-all whose largest message is {} bytes", largest);
  }
  ORRERY_ASSIGN_OR_RETURN(Plan plan, MakePlan(kAllToAll, largest * shape.ranks, shape));
  if (largest == 0) return plan;
  plan.uneven.shares = &shares;
  plan.uneven.returned = returned;
  if (!shape.in_order || !shape.uniform) {
    plan.uneven.priced_even = largest * shape.ranks;
    plan.note =
        "shares of a group whose members do not fill NVLink domains one after the other: priced as "
        "if all messages were as large as the largest";
  }
  plan.bytes = bytes;
  if (plan.uneven.priced_even > 0) return plan;
  Sums(plan).AddTo(&plan.uneven);
  plan.uneven.played = PlayUneven(plan, cluster_->spec());
  return plan;
}

}  // namespace orrery::collective
