#include <algorithm>

#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {
namespace {

// A binomial tree's member, its parent and the blocks of its and its children's subtrees.
struct Subtrees {
  int parent = -1;
  std::int64_t own = 0;
  std::vector<std::pair<int, std::int64_t>> children;  // nearest first
};
Subtrees SubtreesOf(Team team, int root) {
  Subtrees tree;
  const int place = (team.rank - root + team.size) % team.size;
  std::int64_t mask = 1;
  for (; mask < team.size; mask *= 2) {
    if ((place & mask) != 0) {
      tree.parent = static_cast<int>((place - mask + root) % team.size);
      break;
    }
    if (place + mask < team.size) {
      tree.children.emplace_back(static_cast<int>((place + mask + root) % team.size),
                                 std::min(mask, team.size - (place + mask)));
    }
  }
  tree.own = std::min<std::int64_t>(mask, team.size - place);
  return tree;
}

int Next(Team team, std::int64_t distance) {
  return static_cast<int>((team.rank + distance) % team.size);
}
int Previous(Team team, std::int64_t distance) {
  return static_cast<int>((team.rank - distance % team.size + team.size) % team.size);
}

}  // namespace

void BinomialGather(ScheduleWriter* w, Team team, int root, std::int64_t bytes) {
  const Subtrees tree = SubtreesOf(team, root);
  for (const auto& [child, blocks] : tree.children) {
    w->Step();
    w->Recv(blocks * bytes, child);
  }
  w->Step();
  if (tree.parent >= 0) w->Send(tree.own * bytes, tree.parent);
}

void BinomialScatter(ScheduleWriter* w, Team team, int root, std::int64_t bytes) {
  const Subtrees tree = SubtreesOf(team, root);
  if (tree.parent >= 0) w->Recv(tree.own * bytes, tree.parent);
  for (std::size_t i = tree.children.size(); i-- > 0;) {
    w->Step();
    w->Send(tree.children[i].second * bytes, tree.children[i].first);
  }
}

void DoublingAllGather(ScheduleWriter* w, Team team, std::int64_t bytes) {
  for (int mask = 1; mask < team.size; mask *= 2) {
    w->Step();
    w->Send(mask * bytes, team.rank ^ mask);
    w->Recv(mask * bytes, team.rank ^ mask);
  }
}

void BruckAllGather(ScheduleWriter* w, Team team, std::int64_t bytes) {
  for (std::int64_t distance = 1; distance < team.size; distance *= 2) {
    const std::int64_t part = std::min(distance, team.size - distance) * bytes;
    w->Step();
    w->Send(part, Previous(team, distance));
    w->Recv(part, Next(team, distance));
  }
}

void RingAllGather(ScheduleWriter* w, Team team, std::span<const std::int64_t> sizes) {
  for (int step = 0; step + 1 < team.size; ++step) {
    w->Step();
    w->Send(sizes[static_cast<std::size_t>(Previous(team, step))], Next(team, 1));
    w->Recv(sizes[static_cast<std::size_t>(Previous(team, step + 1))], Previous(team, 1));
  }
}

void NeighbourAllGather(ScheduleWriter* w, Team team, std::int64_t bytes) {
  const bool even = team.rank % 2 == 0;
  const int neighbour[2] = {even ? Next(team, 1) : Previous(team, 1),
                            even ? Previous(team, 1) : Next(team, 1)};
  for (int step = 0; step < team.size / 2; ++step) {
    const std::int64_t part = step == 0 ? bytes : 2 * bytes;
    w->Step();
    w->Send(part, neighbour[step % 2]);
    w->Recv(part, neighbour[step % 2]);
  }
}

void ScatterGatherBroadcast(ScheduleWriter* w, Team team, int root, std::int64_t bytes, bool ring) {
  const std::int64_t block = (bytes + team.size - 1) / team.size;
  BinomialScatter(w, team, root, block);
  if (ring) {
    const std::vector<std::int64_t> sizes(static_cast<std::size_t>(team.size), block);
    RingAllGather(w, team, sizes);
  } else {
    DoublingAllGather(w, team, block);
  }
}

void BruckAllToAll(ScheduleWriter* w, Team team, std::int64_t bytes) {
  for (std::int64_t distance = 1; distance < team.size; distance *= 2) {
    std::int64_t blocks = 0;  // whose number has this bit
    for (std::int64_t i = 0; i < team.size; ++i) blocks += (i & distance) != 0 ? 1 : 0;
    w->Step();
    w->Send(blocks * bytes, Next(team, distance));
    w->Recv(blocks * bytes, Previous(team, distance));
  }
}

void LinearAllToAllV(ScheduleWriter* w, Team team, std::span<const std::int64_t> out,
                     std::span<const std::int64_t> in) {
  for (int step = 1; step < team.size; ++step) {
    const int to = Next(team, step), from = Previous(team, step);
    w->Send(out[static_cast<std::size_t>(to)], to);
    w->Recv(in[static_cast<std::size_t>(from)], from);
  }
}

void PairwiseAllToAllV(ScheduleWriter* w, Team team, std::span<const std::int64_t> out,
                       std::span<const std::int64_t> in) {
  for (int step = 1; step < team.size; ++step) {
    const int to = Next(team, step), from = Previous(team, step);
    w->Step();
    w->Send(out[static_cast<std::size_t>(to)], to);
    w->Recv(in[static_cast<std::size_t>(from)], from);
  }
}

void LinearGatherV(ScheduleWriter* w, Team team, int root, std::int64_t own,
                   std::span<const std::int64_t> sizes) {
  if (team.rank != root) {
    w->Send(own, root);
    return;
  }
  for (int i = 0; i < team.size; ++i) {
    if (i != root) w->Recv(sizes[static_cast<std::size_t>(i)], i);
  }
}

void LinearScatterV(ScheduleWriter* w, Team team, int root, std::int64_t own,
                    std::span<const std::int64_t> sizes) {
  if (team.rank != root) {
    w->Recv(own, root);
    return;
  }
  for (int i = 0; i < team.size; ++i) {
    if (i != root) w->Send(sizes[static_cast<std::size_t>(i)], i);
  }
}

void PairwiseReduceScatter(ScheduleWriter* w, Team team, std::int64_t bytes,
                           std::int64_t reduce_ns) {
  const std::int64_t block = bytes / team.size;
  for (int step = 1; step < team.size; ++step) {
    w->Step();
    w->Send(block, Next(team, step));
    w->Recv(block, Previous(team, step));
    if (reduce_ns / team.size == 0) continue;
    w->Step();
    w->Calc(reduce_ns / team.size);
  }
}

void LinearScan(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns) {
  if (team.rank > 0) {
    w->Recv(bytes, team.rank - 1);
    w->Step();
    if (reduce_ns > 0) w->Calc(reduce_ns);
  }
  w->Step();
  if (team.rank + 1 < team.size) w->Send(bytes, team.rank + 1);
}

void DoublingScan(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns) {
  for (std::int64_t mask = 1; mask < team.size; mask *= 2) {
    const std::int64_t partner = team.rank ^ mask;
    if (partner >= team.size) continue;
    w->Step();
    w->Send(bytes, static_cast<int>(partner));
    w->Recv(bytes, static_cast<int>(partner));
    if (reduce_ns == 0) continue;
    w->Step();
    w->Calc(reduce_ns);
  }
}

}  // namespace orrery::workload
