#include "orrery/graph/replicate.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "orrery/graph/verify/verify.h"

namespace orrery::graph {
namespace {

constexpr std::size_t kMostRanks = std::size_t{1} << 20;

class Replicator {
 public:
  Replicator(std::size_t copies, Graph* graph)
      : copies_(copies), graph_(*graph), ranks_(graph->bindings.size()) {}

  Result<Replicated> Run() {
    if (graph_.jobs.size() != 1) {
      return InvalidInput("replicas of {} jobs at once: one is expected", graph_.jobs.size());
    }
    if (ranks_ > kMostRanks / copies_) {
      return InvalidInput("{} ranks, {} times over: more than {}", ranks_, copies_, kMostRanks);
    }
    FindUses();
    ORRERY_RETURN_IF_ERROR(CopyGroups());
    for (std::size_t p = 0; p < graph_.programs.size(); ++p) CopyNumbers(p);
    CopyBindings();
    JobInfo& job = graph_.jobs[0];
    job.ranks = static_cast<std::uint32_t>(ranks_ * copies_);
    job.tokens_per_step *= static_cast<std::int64_t>(copies_);
    job.model_flops_per_step *= static_cast<double>(copies_);
    ORRERY_RETURN_IF_ERROR(Verify(graph_));
    return counts_;
  }

 private:
  // What a rank's blocks use a group for.
  enum Use : std::uint8_t { kCollectives = 1, kMessages = 2 };

  void FindUses() {
    uses_.resize(graph_.groups.size());
    peer_columns_.resize(graph_.programs.size());
    // By program, the slots that it uses: its ranks' groups are looked up below.
    std::vector<std::vector<std::pair<GroupSlot, Use>>> slots(graph_.programs.size());
    for (std::size_t p = 0; p < slots.size(); ++p) {
      const Program& program = graph_.programs[p];
      for (const auto* calls : {&program.prologue, &program.calls}) {
        for (const Call& call : *calls) AddBlock(graph_.blocks[call.block.index()], p, &slots[p]);
      }
      std::sort(slots[p].begin(), slots[p].end());
      slots[p].erase(std::unique(slots[p].begin(), slots[p].end()), slots[p].end());
    }
    for (const Binding& b : graph_.bindings) {
      for (const auto& [slot, use] : slots[b.program.index()]) {
        const GroupId id = graph_.group(b, slot);
        if (id.valid()) uses_[id.index()] = static_cast<std::uint8_t>(uses_[id.index()] | use);
      }
    }
  }
  void AddBlock(const Block& block, std::size_t program,
                std::vector<std::pair<GroupSlot, Use>>* slots) {
    for (const Comm& c : block.comms) {
      if (IsCopy(c.collective)) continue;
      const bool message = IsPointToPoint(c.collective);
      const bool counted = c.peer.kind == PeerKind::kMember || c.peer.kind == PeerKind::kOffset;
      if (!message) slots->emplace_back(c.group, kCollectives);
      if (message && counted) slots->emplace_back(c.group, kMessages);
      if (message && c.peer.kind == PeerKind::kColumn) {
        peer_columns_[program].push_back(static_cast<std::size_t>(c.peer.value));
      }
    }
  }

  Status CopyGroups() {
    Groups groups;
    ids_.resize(graph_.groups.size());
    for (std::size_t g = 0; g < ids_.size(); ++g) {
      const GroupSlot role = graph_.groups.slot(GroupId(g));
      const std::span<const RankId> members = graph_.groups.members(GroupId(g));
      const bool data =
          role == GroupSlot::kDp || role == GroupSlot::kReplica || role == GroupSlot::kExpertDp;
      const bool collectives = (uses_[g] & kCollectives) != 0;
      const bool joined = data || (collectives && members.size() == ranks_);
      if (joined && (uses_[g] & kMessages) != 0) {
        return InvalidInput(
            "ranks send messages within group {} of {} ranks, which is joined across replicas: "
            "whom they would meet is not known",
            g, members.size());
      }
      if (collectives) ++(joined ? counts_.joined : counts_.kept);
      std::vector<RankId> copy;
      for (std::size_t k = 0; k < copies_; ++k) {
        for (const RankId m : members) copy.emplace_back(m.index() + k * ranks_);
        if (joined && k + 1 < copies_) continue;
        ids_[g].resize(joined ? copies_ : k + 1, groups.Add(role, copy));
        copy.clear();
      }
    }
    graph_.groups = std::move(groups);
    return {};
  }

  // Peers that a column names are ranks of the job: those of a copy its own.
  void CopyNumbers(std::size_t program) {
    Columns& columns = graph_.programs[program].columns;
    if (columns.empty()) return;
    const std::size_t rows = columns.rows();
    const std::vector<std::size_t>& peers = peer_columns_[program];
    Columns more;
    std::vector<std::int64_t> values;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const bool peer = std::find(peers.begin(), peers.end(), c) != peers.end();
      values.clear();
      for (std::size_t k = 0; k < copies_; ++k) {
        const auto shift = peer ? static_cast<std::int64_t>(k * ranks_) : 0;
        for (std::size_t row = 0; row < rows; ++row) values.push_back(columns.at(c, row) + shift);
      }
      more.Add(values);
    }
    columns = std::move(more);
    rows_.resize(graph_.programs.size());
    rows_[program] = static_cast<std::uint32_t>(rows);
  }

  void CopyBindings() {
    rows_.resize(graph_.programs.size());
    const std::size_t slots = graph_.more_groups.size();
    const auto of_copy = [&](GroupId id, std::size_t k) {
      return id.valid() ? ids_[id.index()][k] : id;
    };
    std::vector<GroupId> more;
    more.reserve(slots * copies_);
    for (std::size_t k = 0; k < copies_; ++k) {
      for (const GroupId id : graph_.more_groups) more.push_back(of_copy(id, k));
    }
    std::vector<Binding> bindings;
    bindings.reserve(ranks_ * copies_);
    for (std::size_t k = 0; k < copies_; ++k) {
      for (Binding b : graph_.bindings) {
        b.logical_rank += static_cast<std::uint32_t>(k * ranks_);
        for (GroupId& id : b.groups) id = of_copy(id, k);
        for (RankId& peer : b.peers) {
          if (peer.valid()) peer = RankId(peer.index() + k * ranks_);
        }
        b.more_groups += static_cast<std::uint32_t>(k * slots);
        b.row += static_cast<std::uint32_t>(k) * rows_[b.program.index()];
        bindings.push_back(b);
      }
    }
    graph_.more_groups = std::move(more);
    graph_.bindings = std::move(bindings);
  }

  const std::size_t copies_;
  Graph& graph_;
  const std::size_t ranks_;
  std::vector<std::uint8_t> uses_;                      // by group
  std::vector<std::vector<std::size_t>> peer_columns_;  // by program
  std::vector<std::vector<GroupId>> ids_;               // by group and copy
  std::vector<std::uint32_t> rows_;                     // by program
  Replicated counts_;
};

}  // namespace

Result<Replicated> Replicate(std::size_t copies, Graph* graph) {
  return Replicator(copies, graph).Run();
}

}  // namespace orrery::graph
