#include <algorithm>

#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {
namespace {

// Places count from the root on.
int PlaceOf(Team team, int root) { return (team.rank - root + team.size) % team.size; }
int MemberAt(int place, Team team, int root) { return (place + root) % team.size; }

template <typename Use>
void EachSegment(std::int64_t bytes, std::int64_t segment, const Use& use) {
  if (segment <= 0) segment = bytes;
  std::int64_t left = bytes;
  do {
    use(std::min(segment, left));
    left -= segment;
  } while (left > 0);
}

// Of `part` of `whole` bytes.
std::int64_t Share(std::int64_t ns, std::int64_t part, std::int64_t whole) {
  if (whole == 0) return 0;
  return static_cast<std::int64_t>(static_cast<double>(ns) * static_cast<double>(part) /
                                   static_cast<double>(whole));
}

}  // namespace

Tree BinomialTree(Team team, int root) {
  Tree tree;
  const int place = PlaceOf(team, root);
  for (std::int64_t mask = 1; mask < team.size; mask *= 2) {
    if ((place & mask) != 0) {
      tree.parent = MemberAt(static_cast<int>(place - mask), team, root);
      break;
    }
    if (place + mask < team.size) {
      tree.children.push_back(MemberAt(static_cast<int>(place + mask), team, root));
    }
  }
  std::reverse(tree.children.begin(), tree.children.end());
  return tree;
}

Tree BinaryTree(Team team, int root) {
  Tree tree;
  const int place = PlaceOf(team, root);
  if (place > 0) tree.parent = MemberAt((place - 1) / 2, team, root);
  for (const std::int64_t child : {2 * std::int64_t{place} + 1, 2 * std::int64_t{place} + 2}) {
    if (child < team.size) {
      tree.children.push_back(MemberAt(static_cast<int>(child), team, root));
    }
  }
  return tree;
}

Tree Chain(Team team, int root) {
  Tree tree;
  const int place = PlaceOf(team, root);
  if (place > 0) tree.parent = MemberAt(place - 1, team, root);
  if (place + 1 < team.size) tree.children.push_back(MemberAt(place + 1, team, root));
  return tree;
}

Tree Star(Team team, int root) {
  Tree tree;
  if (team.rank != root) {
    tree.parent = root;
    return tree;
  }
  for (int place = 1; place < team.size; ++place) {
    tree.children.push_back(MemberAt(place, team, root));
  }
  return tree;
}

void TreeBroadcast(ScheduleWriter* w, const Tree& tree, std::int64_t bytes, std::int64_t segment) {
  EachSegment(bytes, segment, [&](std::int64_t part) {
    w->Step();
    if (tree.parent >= 0) w->Recv(part, tree.parent);
    w->Step();
    for (const int child : tree.children) w->Send(part, child);
  });
}

void TreeReduce(ScheduleWriter* w, const Tree& tree, std::int64_t bytes, std::int64_t segment,
                std::int64_t reduce_ns) {
  EachSegment(bytes, segment, [&](std::int64_t part) {
    const std::int64_t combine = Share(reduce_ns, part, bytes);
    for (std::size_t i = tree.children.size(); i-- > 0;) {  // the smallest subtree first
      w->Step();
      w->Recv(part, tree.children[i]);
      if (combine == 0) continue;
      w->Step();
      w->Calc(combine);
    }
    w->Step();
    if (tree.parent >= 0) w->Send(part, tree.parent);
  });
}

void SplitBinaryBroadcast(ScheduleWriter* w, Team team, int root, std::int64_t bytes,
                          std::int64_t segment) {
  const int place = PlaceOf(team, root);
  const std::int64_t halves[2] = {bytes - bytes / 2, bytes / 2};
  // Of the members of one level the first half hang below the root's first child.
  const auto side = [](int p) {
    while (p > 2) p = (p - 1) / 2;
    return p - 1;
  };
  const auto partner = [](int p) {
    int level = 1, begin = 1;  // of its first member
    while (begin + 2 * level <= p) {
      begin += 2 * level;
      level *= 2;
    }
    return p < begin + level ? p + level : p - level;
  };
  const Tree tree = BinaryTree(team, root);
  if (place > 0) {
    TreeBroadcast(w, tree, halves[side(place)], segment);
  } else {
    for (std::size_t i = 0; i < tree.children.size(); ++i) {
      EachSegment(halves[i], segment, [&](std::int64_t part) { w->Send(part, tree.children[i]); });
    }
  }
  w->Step();
  if (place == 0) {
    for (int p = 1; p < team.size; ++p) {
      if (partner(p) >= team.size) w->Send(halves[1 - side(p)], MemberAt(p, team, root));
    }
    return;
  }
  const int other = partner(place);
  const int from = other < team.size ? MemberAt(other, team, root) : root;
  if (other < team.size) w->Send(halves[side(place)], from);
  w->Recv(halves[1 - side(place)], from);
}

}  // namespace orrery::workload
