
#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {
namespace {

// Of a member, or of a place in the tree: the root and member 0 change places.
int Swapped(int member, int root) {
  if (member == 0) return root;
  return member == root ? 0 : member;
}

}  // namespace

int PowerBelow(int n) {
  int power = 1;
  while (power <= n / 2) power *= 2;
  return power;
}

void BinomialBroadcast(ScheduleWriter* w, Team team, int root, std::int64_t bytes) {
  const int own = Swapped(team.rank, root);
  ScheduleWriter::Op received = ScheduleWriter::kNone;
  for (std::int64_t distance = 1; distance < team.size; distance *= 2) {
    if (own < distance && own + distance < team.size) {
      w->Step();
      w->Require(w->Send(bytes, Swapped(static_cast<int>(own + distance), root)), received);
    } else if (own >= distance && own < 2 * distance) {
      received = w->Recv(bytes, Swapped(static_cast<int>(own - distance), root));
    }
  }
}

void BinomialReduce(ScheduleWriter* w, Team team, int root, std::int64_t bytes) {
  const int own = Swapped(team.rank, root);
  std::vector<ScheduleWriter::Op> received;
  int parent = -1;
  for (std::int64_t distance = 1; distance < team.size; distance *= 2) {
    if (own < distance && own + distance < team.size) {
      received.push_back(w->Recv(bytes, Swapped(static_cast<int>(own + distance), root)));
    } else if (own >= distance && own < 2 * distance) {
      parent = Swapped(static_cast<int>(own - distance), root);
    }
  }
  if (parent < 0) return;
  w->Step();
  const ScheduleWriter::Op send = w->Send(bytes, parent);
  for (const ScheduleWriter::Op op : received) w->Require(send, op);
}

void BinaryBroadcast(ScheduleWriter* w, Team team, int root, std::int64_t bytes) {
  const int own = Swapped(team.rank, root);
  ScheduleWriter::Op received = ScheduleWriter::kNone;
  if (own > 0) received = w->Recv(bytes, Swapped((own - 1) / 2, root));
  for (const std::int64_t child : {2 * std::int64_t{own} + 1, 2 * std::int64_t{own} + 2}) {
    if (child >= team.size) break;
    w->Step();
    w->Require(w->Send(bytes, Swapped(static_cast<int>(child), root)), received);
  }
}

}  // namespace orrery::workload
