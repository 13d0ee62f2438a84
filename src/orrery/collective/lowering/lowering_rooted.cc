// Gather and scatter as steps (rooted.h, lowering.h).
//
// Lanes are an all-to-all's (lowering_all_to_all.cc): eight places a channel. The root runs the
// messages of its places one after the other; each of the others has one message, its parts on the
// first place of their channels. Connection (round - 1) * parts + part: between the root and whom
// it meets in that round.
#include "orrery/cluster/salts.h"
#include "orrery/collective/algorithms/p2p_rounds.h"
#include "orrery/collective/lowering/lowering.h"

namespace orrery::collective {

void Schedule::BuildRooted(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  const std::vector<std::uint32_t> order = BuildRounds(cluster, members);
  const p2p::Rounds rounds(plan_);
  const bool gather = plan_.collective == graph::Collective::kGather;
  round_of_.resize(ranks_);
  round_base_.resize(ranks_);
  for (std::uint32_t r = 1; r < ranks_; ++r) {
    const std::uint32_t place = gather ? SourceOf(position_[0], r) : PeerOf(position_[0], r);
    const std::uint32_t peer = order[place];
    round_of_[peer] = r;
    round_base_[r] = static_cast<std::uint32_t>(rounds.Base(static_cast<int>(r)));
    const bool near = cluster.nvlink_domain(members[0]) == cluster.nvlink_domain(members[peer]);
    for (std::size_t part = 0; part < parts_; ++part) {
      const auto channel = static_cast<std::uint16_t>((round_base_[r] + part) % works_.size());
      connections_.push_back({channel, gather ? peer : 0, gather ? 0 : peer,
                              near || !plan_.pxn ? 0 : cluster::kByRail});
    }
  }
}

Step Schedule::RootedStep(std::uint32_t member, int lane, std::uint64_t index) const {
  Step step;
  const bool gather = plan_.collective == graph::Collective::kGather;
  const bool root = member == 0;
  const auto channel = static_cast<std::size_t>(lane / p2p::kBatch);
  const auto& works = works_[channel];
  std::size_t work = static_cast<std::size_t>(lane % p2p::kBatch);
  int share = 1;
  if (root) {
    // Round 0 is the root's own part: first in its channels, one copy.
    const auto shared = [&](std::size_t of) {
      return static_cast<int>(
          std::min<std::size_t>(p2p::kBatch, works.size() - of / p2p::kBatch * p2p::kBatch));
    };
    if (work == 0 && !works.empty() && works[0].round == 0) {
      if (index == 0) {
        step.work = Work(pieces_.share, model::kStreams * shared(0), false);
        return step;
      }
      --index;
      work += p2p::kBatch;
    }
    work += static_cast<std::size_t>(index / chunks()) * p2p::kBatch;
    index %= chunks();
    if (work < works.size()) share = shared(work);
  } else {
    const std::uint32_t round = round_of_[member];
    const std::size_t part = (channel + works_.size() - round_base_[round]) % works_.size();
    if (lane % p2p::kBatch != 0 || part >= parts_ || index >= chunks()) {
      step.done = true;
      return step;
    }
    return RootedChunk(gather, (round - 1) * parts_ + part, index, 1);
  }
  if (work >= works.size()) {
    step.done = true;
    return step;
  }
  return RootedChunk(!gather, (works[work].round - 1) * parts_ + works[work].part, index, share);
}

// Chunk `index` of a message at its sender or receiver, one of `share` in its CTA.
Step Schedule::RootedChunk(bool sends, std::size_t connection, std::uint64_t index,
                           int share) const {
  Step step;
  const auto c = static_cast<std::int32_t>(connection);
  const std::int64_t data =
      (index < static_cast<std::uint64_t>(pieces_.rounds) ? pieces_.full : pieces_.tail).bytes;
  if (sends) {
    step.send_connection = c;
    step.bytes = model::OnWire(plan_.protocol, data);
    step.post = Post(c);
    step.work = Work(data, model::kStreams * share, true);
  } else {
    step.recv_connection = c;
    // Over NVLink a sender writes into the receiver's buffer, which leaves nothing to copy.
    step.work = Work(crosses_[connection] == 0 ? 0 : data, model::kStreams * share, true);
  }
  return step;
}

}  // namespace orrery::collective
