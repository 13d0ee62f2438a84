#include "orrery/collective/algorithms/pat.h"

#include <algorithm>
#include <utility>

namespace orrery::collective::pat {
namespace {

struct Stage {
  int dim = -1, blocks = 0;
};

class Walk {
 public:
  explicit Walk(const Pattern& pattern) : p_(pattern) {}

  std::vector<Action> Run() {
    Stage last;
    for (int j = 0; j < p_.upper(); ++j) {
      const Stage stage{p_.dims - 1 - j, p_.UpperBlocks(j)};
      Pass(stage, last);
      last = stage;
    }
    const int lower = std::bit_width(static_cast<unsigned>(p_.values)) - 1;
    Visit(0, lower, last);
    return std::move(actions_);
  }

 private:
  // Sends a stage while what came of `waits` is taken in.
  void Pass(const Stage& stage, const Stage& waits) {
    const int sends = p_.Messages(stage.blocks), receives = p_.Messages(waits.blocks);
    for (int i = 0; i < std::max(sends, receives); ++i) {
      Action action;
      if (i < sends) {
        action.send = static_cast<std::int8_t>(stage.dim);
        action.send_blocks = std::min(p_.per_message, stage.blocks - i * p_.per_message);
      }
      if (i < receives) {
        action.receive = static_cast<std::int8_t>(waits.dim);
        action.receive_blocks = std::min(p_.per_message, waits.blocks - i * p_.per_message);
      }
      actions_.push_back(action);
    }
  }
  // The values that have `value`'s bits and lower ones; `mine`: what has come of `value` itself,
  // until somebody passes it on.
  void Visit(int value, int bits, Stage mine) {
    for (int d = bits - 1; d >= 0; --d) {
      const int child = value + (1 << d);
      const Stage stage{d, p_.Blocks(child)};
      if (stage.blocks == 0) continue;
      Pass(stage, mine);
      mine = {};
      Visit(child, d, stage);
    }
    if (mine.blocks > 0) Pass({}, mine);
  }

  const Pattern& p_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> Pattern::Actions() const {
  std::vector<Action> actions = Walk(*this).Run();
  if (!backwards) return actions;
  std::reverse(actions.begin(), actions.end());
  for (Action& a : actions) {
    std::swap(a.send, a.receive);
    std::swap(a.send_blocks, a.receive_blocks);
  }
  return actions;
}

}  // namespace orrery::collective::pat
