// All-to-all as steps (p2p_rounds.h, lowering.h).
//
// A lane is one of a channel's eight places for messages at a time. It runs its messages one after
// the other: a chunk leaves with the receipt of the one a buffer's length before it; a message
// begins when the one before it has been sent and received, as a CTA begins its next batch. The
// messages of a batch share the CTA's rate. A message that leaves the domain goes over NVLink to
// the GPU beside the receiver's rail first, where there is one (PXN). Uneven shares have two lanes
// a place, one that sends and one that receives.
#include "orrery/cluster/salts.h"
#include "orrery/collective/algorithms/p2p_rounds.h"
#include "orrery/collective/lowering/lowering.h"

namespace orrery::collective {

// Places, rounds and what runs on each channel; the members in the order of places.
std::vector<std::uint32_t> Schedule::BuildRounds(const cluster::Cluster& cluster,
                                                 std::span<const DeviceId> members) {
  const p2p::Rounds rounds(plan_);
  // Members in the order of the schedule: domain by domain.
  std::vector<std::uint32_t> order(members.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return cluster.nvlink_domain(members[a]) < cluster.nvlink_domain(members[b]);
  });
  position_.resize(ranks_);
  for (std::uint32_t q = 0; q < ranks_; ++q) position_[order[q]] = q;
  const auto group = static_cast<std::uint32_t>(rounds.group);
  for (const int d : rounds.GroupDistances()) {
    for (std::uint32_t l = 0; l < group; ++l) {
      round_shift_.push_back({static_cast<std::uint32_t>(d) * group, l});
    }
  }
  group_ = group;
  parts_ = static_cast<std::size_t>(rounds.parts);
  works_.resize(static_cast<std::size_t>(rounds.channels));
  pair_lanes_ = p2p::kBatch * rounds.channels * (plan_.uneven.shares != nullptr ? 2 : 1);
  for (int r = 0; r < rounds.ranks; ++r) {
    for (int part = 0; part < rounds.parts; ++part) {
      const int channel = (rounds.Base(r) + part) % rounds.channels;
      works_[static_cast<std::size_t>(channel)].push_back(
          {static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(part)});
    }
  }
  return order;
}

void Schedule::BuildAllToAll(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  const std::vector<std::uint32_t> order = BuildRounds(cluster, members);
  const p2p::Rounds rounds(plan_);
  for (int r = 1; r < rounds.ranks; ++r) {
    for (int part = 0; part < rounds.parts; ++part) {
      const int channel = (rounds.Base(r) + part) % rounds.channels;
      for (std::uint32_t q = 0; q < ranks_; ++q) {
        const std::uint32_t from = order[q], to = order[PeerOf(q, static_cast<std::uint32_t>(r))];
        const bool near =
            cluster.nvlink_domain(members[from]) == cluster.nvlink_domain(members[to]);
        connections_.push_back({static_cast<std::uint16_t>(channel), from, to,
                                near || !plan_.pxn ? 0 : cluster::kByRail});
      }
    }
  }
}

// Where the rank at place q sends in a round.
std::uint32_t Schedule::PeerOf(std::uint32_t q, std::uint32_t round) const {
  const auto [groups, place] = round_shift_[round];
  return (q / group_ * group_ + groups) % ranks_ + (q % group_ + place) % group_;
}

// From whom it receives.
std::uint32_t Schedule::SourceOf(std::uint32_t q, std::uint32_t round) const {
  const auto [groups, place] = round_shift_[round];
  return (q / group_ * group_ + ranks_ - groups) % ranks_ + (q % group_ + group_ - place) % group_;
}

// Whether everybody has something for everybody.
bool Schedule::ExchangesWithAll() const {
  if (plan_.uneven.shares == nullptr) return true;
  for (std::uint32_t from = 0; from < ranks_; ++from) {
    for (std::uint32_t to = 0; to < ranks_; ++to) {
      if (from != to && plan_.uneven.Message(plan_.bytes, from, to) == 0) return false;
    }
  }
  return true;
}

Step Schedule::AllToAllStep(std::uint32_t member, int lane, std::uint64_t index) const {
  Step step;
  if (plan_.uneven.shares != nullptr) return UnevenStep(member, lane, index);
  const auto& works = works_[static_cast<std::size_t>(lane / p2p::kBatch)];
  std::size_t work = static_cast<std::size_t>(lane % p2p::kBatch);
  const auto share = [&] {
    const std::size_t first = work / p2p::kBatch * p2p::kBatch;
    return static_cast<int>(std::min<std::size_t>(p2p::kBatch, works.size() - first));
  };
  // Round 0 is the rank's own part: first in its channels, one copy.
  if (work == 0 && !works.empty() && works[0].round == 0) {
    if (index == 0) {
      step.work = Work(pieces_.share, model::kStreams * share(), false);
      return step;
    }
    --index;
    work += p2p::kBatch;
  }
  const std::uint64_t chunks = this->chunks();
  const std::uint64_t ahead = std::min(chunks, static_cast<std::uint64_t>(plan_.credits));
  work += static_cast<std::size_t>(index / (chunks + ahead)) * p2p::kBatch;
  if (work >= works.size()) {
    step.done = true;
    return step;
  }
  const std::uint64_t at = index % (chunks + ahead);
  const auto [round, part] = works[work];
  const std::uint32_t q = position_[member];
  const auto base =
      static_cast<std::uint32_t>((static_cast<std::size_t>(round - 1) * parts_ + part) * ranks_);
  const auto data = [&](std::uint64_t chunk) {
    return (chunk < static_cast<std::uint64_t>(pieces_.rounds) ? pieces_.full : pieces_.tail).bytes;
  };
  if (at < chunks) {
    step.send_connection = static_cast<std::int32_t>(base + q);
    step.bytes = model::OnWire(plan_.protocol, data(at));
    step.post = Post(step.send_connection);
    step.work = Work(data(at), model::kStreams * share(), true);
  }
  if (at >= ahead) {
    step.recv_connection = static_cast<std::int32_t>(base + SourceOf(q, round));
    const bool near = crosses_[static_cast<std::size_t>(step.recv_connection)] == 0;
    // Over NVLink a sender writes into the receiver's buffer, which leaves nothing to copy.
    // Receiving warps keep up with the sending ones: the copy of the last chunk is what is left.
    const bool copies = !near && (at < chunks || at + 1 == chunks + ahead);
    step.work =
        std::max(step.work, Work(copies ? data(at - ahead) : 0, model::kStreams * share(), true));
  }
  return step;
}

namespace {

// The chunks of one part of one message.
struct Message {
  std::uint64_t chunks = 0;
  std::int64_t chunk = 0, last = 0;

  Message(const Plan& plan, std::int64_t bytes) {
    const model::Pieces pieces = model::CutMessage(plan, bytes);
    const std::uint64_t rest = pieces.tail.slices > 0 ? 1 : 0;
    chunks = static_cast<std::uint64_t>(pieces.rounds) + rest;
    chunk = pieces.full.bytes;
    last = (rest > 0 ? pieces.tail : pieces.full).bytes;
  }
  std::int64_t data(std::uint64_t number) const { return number + 1 < chunks ? chunk : last; }
};

}  // namespace

// As above, where a place sends so much and receives so much else: as different warps do both,
// neither waits for the other. A lane of a place sends, another one receives; the window is the
// connection's credits.
Step Schedule::UnevenStep(std::uint32_t member, int lane, std::uint64_t index) const {
  Step step;
  const bool receives = lane >= pair_lanes_ / 2;
  if (receives) lane -= pair_lanes_ / 2;
  const auto& works = works_[static_cast<std::size_t>(lane / p2p::kBatch)];
  const std::uint32_t q = position_[member];
  for (std::size_t work = static_cast<std::size_t>(lane % p2p::kBatch); work < works.size();
       work += p2p::kBatch) {
    const std::size_t first = work / p2p::kBatch * p2p::kBatch;
    const int streams = model::kStreams *
                        static_cast<int>(std::min<std::size_t>(p2p::kBatch, works.size() - first));
    const auto [round, part] = works[work];
    if (round == 0) {  // its own part: one copy
      if (receives || index-- > 0) continue;
      const std::int64_t own = plan_.uneven.Message(plan_.bytes, member, member);
      step.work = Work(model::CutMessage(plan_, own).share, streams, false);
      return step;
    }
    const auto base =
        static_cast<std::uint32_t>((static_cast<std::size_t>(round - 1) * parts_ + part) * ranks_);
    const std::uint32_t connection = base + (receives ? SourceOf(q, round) : q);
    const Connection& c = connections_[connection];
    const Message message(plan_, plan_.uneven.Message(plan_.bytes, c.from, c.to));
    if (index >= message.chunks) {
      index -= message.chunks;
      continue;
    }
    const std::int64_t data = message.data(index);
    if (receives) {
      step.recv_connection = static_cast<std::int32_t>(connection);
      // Over NVLink the sender has written into the receiver's buffer.
      step.work = Work(crosses_[connection] != 0 ? data : 0, streams, true);
    } else {
      step.send_connection = static_cast<std::int32_t>(connection);
      step.bytes = model::OnWire(plan_.protocol, data);
      step.post = Post(step.send_connection);
      step.work = Work(data, streams, true);
    }
    return step;
  }
  step.done = true;
  return step;
}

}  // namespace orrery::collective
