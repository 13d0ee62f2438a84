// How soon a rank can come to a communication that others may feel: the kernels before it.
//
// A bound from below, by position in the program: the sum of the kernels' least times (of any
// interference class) up to the next communication that is not surely settled inside the rank's
// own NVLink domain. Communications, launches and waits count nothing. Surely settled are
// collectives whose group lies inside a domain, if they block, or if they are waited for after at
// most one piece of work (Machine::MaySettle), as long as nothing else is outstanding on the rank.
// The end of the program counts as a communication.
//
// Cost: O(items of the blocks + calls) to build, for every variant; ToNext is O(1).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "orrery/engine/straight/layout.h"

namespace orrery::engine {

class Lookahead {
 public:
  // inside[v][slot]: the group behind the slot lies in one domain, for every rank of variant v.
  Lookahead(const graph::Graph& graph, const Layout& layout,
            const std::vector<std::array<bool, graph::kGroupSlots>>& inside) {
    for (std::size_t v = 0; v < layout.variants.size(); ++v) {
      Add(graph, layout.variants[v], inside[v]);
    }
  }

  // From before the item on.
  SimTime ToNext(std::uint32_t variant, std::uint32_t call, std::uint32_t layer,
                 std::uint32_t item) const {
    const Program& p = programs_[variant];
    if (call >= p.calls.size()) return 0;
    const Call& c = p.calls[call];
    const Block& b = p.blocks[c.block];
    if (b.items.empty()) return c.after;
    SimTime time = b.items[item].work;
    if (b.items[item].ends) return Shorten(time);
    const SimTime layers = c.repeat - layer - 1;
    if (b.items[0].ends) return Shorten(time + (layers > 0 ? b.items[0].work : c.after));
    return Shorten(time + layers * b.items[0].work + c.after);
  }

 private:
  struct Item {
    SimTime work = 0;   // from here to the next communication of note, or to the block's end
    bool ends = false;  // there is one
  };
  struct Block {
    std::vector<Item> items;
  };
  struct Call {
    std::uint32_t block = 0, repeat = 0;
    SimTime after = 0;  // from its end on
  };
  struct Program {
    std::vector<Block> blocks;  // by BlockId
    std::vector<Call> calls;
  };

  // A change of class rounds what a kernel has done by up to 1 ps.
  static SimTime Shorten(SimTime time) { return time - time / 1024; }

  static bool SurelySettled(const BlockPrice& block, std::size_t i,
                            const std::array<bool, graph::kGroupSlots>& inside) {
    const engine::Item& item = block.items[i];
    if (item.local || item.parts == 0) return true;
    for (std::uint32_t k = 0; k < item.count; ++k) {
      const CommPrice& price = block.comms[item.first + k];
      const graph::Comm& comm = price.comm;
      if (price.nic) return false;
      if (graph::IsPointToPoint(comm.collective)) return false;
      if (!inside[static_cast<std::size_t>(comm.group)]) return false;
    }
    if (item.blocking) return true;
    std::size_t next = i + 1;
    if (next < block.items.size() && block.items[next].kind == ItemKind::kWork) ++next;
    return next < block.items.size() && block.items[next].kind == ItemKind::kWait &&
           block.items[next].event == item.event;
  }

  void Add(const graph::Graph& graph, const Variant& variant,
           const std::array<bool, graph::kGroupSlots>& inside) {
    Program p;
    p.blocks.resize(variant.blocks.size());
    for (std::size_t b = 0; b < variant.blocks.size(); ++b) {
      if (variant.blocks[b] == nullptr) continue;
      const BlockPrice& price = *variant.blocks[b];
      std::vector<Item>& items = p.blocks[b].items;
      items.resize(price.items.size());
      Item behind;
      for (std::size_t i = items.size(); i-- > 0;) {
        const engine::Item& item = price.items[i];
        if (item.kind == ItemKind::kWork) {
          behind.work += *std::min_element(item.duration.begin(), item.duration.end());
        } else if (item.kind == ItemKind::kComm && !SurelySettled(price, i, inside)) {
          behind = {0, true};
        }
        items[i] = behind;
      }
    }
    const auto& calls = graph.programs[variant.program.index()].calls;
    p.calls.resize(calls.size());
    SimTime after = 0;
    for (std::size_t c = calls.size(); c-- > 0;) {
      const auto block = static_cast<std::uint32_t>(calls[c].block.index());
      p.calls[c] = {block, calls[c].repeat, after};
      const std::vector<Item>& items = p.blocks[block].items;
      if (items.empty()) continue;
      after = items[0].ends ? items[0].work
                            : items[0].work * static_cast<SimTime>(calls[c].repeat) + after;
    }
    programs_.push_back(std::move(p));
  }

  std::vector<Program> programs_;  // by variant
};

}  // namespace orrery::engine
