// PAT as steps (pat.h, lowering.h). Connection (channel * dims + d) * ranks + member: to the member
// 2^d places on.
#include "orrery/collective/algorithms/pat.h"
#include "orrery/collective/lowering/lowering.h"

namespace orrery::collective {

void Schedule::BuildPat() {
  const pat::Pattern pattern(plan_);
  actions_ = pattern.Actions();
  dims_ = pattern.dims;
  connections_.reserve(static_cast<std::size_t>(plan_.channels * dims_) * ranks_);
  for (int c = 0; c < plan_.channels; ++c) {
    for (int d = 0; d < dims_; ++d) {
      for (std::uint32_t m = 0; m < ranks_; ++m) {
        connections_.push_back({static_cast<std::uint16_t>(c), m, (m + (1u << d)) % ranks_});
      }
    }
  }
}

Step Schedule::PatStep(std::uint32_t member, int channel, std::uint64_t index) const {
  Step step;
  const std::uint64_t loop = index / actions_.size();
  const auto rounds = static_cast<std::uint64_t>(pieces_.rounds);
  if (loop >= rounds + (pieces_.tail.slices > 0 ? 1 : 0)) {
    step.done = true;
    return step;
  }
  const std::int64_t block = (loop < rounds ? pieces_.full : pieces_.tail).bytes;
  const pat::Action& action = actions_[index % actions_.size()];
  const auto connection = [&](int dim, std::uint32_t from) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(channel * dims_ + dim) * ranks_ +
                                     from);
  };
  if (action.receive >= 0) {
    step.recv_connection =
        connection(action.receive, (member + ranks_ - (1u << action.receive) % ranks_) % ranks_);
  }
  if (action.send >= 0) {
    step.send_connection = connection(action.send, member);
    step.bytes = action.send_blocks * block;
    step.post = Post(step.send_connection);
  }
  // A last receipt is a copy; what is passed on is read, kept (or added) and sent.
  const std::int64_t blocks = action.send >= 0 ? action.send_blocks : action.receive_blocks;
  step.work = Work(blocks * block, action.send >= 0 ? model::kStreams : 2, true);
  return step;
}

}  // namespace orrery::collective
